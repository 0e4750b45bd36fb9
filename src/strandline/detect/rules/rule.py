"""Rules as values: the pattern of a secret, the conditions of a match, and allowlists.

A rule's canonical content (`Rule.plain`) is everything that decides its findings; its fingerprint is derived from it,
so a change of meaning changes the fingerprint. Description and examples decide nothing and are left out.

Invariants: a `RuleSet` that exists can be run: its expressions parse, the groups they name are there, the rules
that they require exist and are other rules. Rules are kept sorted by id: the order in a file decides nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self, TypeAlias

from strandline.detect.errors import RegexInvalid, RulesInvalid
from strandline.detect.expressions.classes import Unsupported
from strandline.detect.expressions.nodes import Node, groups
from strandline.detect.expressions.syntax import parse
from strandline.detect.limits import ENGINE_VERSION, VIEWS, Limits
from strandline.detect.tokens.examples import CHARSETS
from strandline.detect.tokens.validators import VALIDATORS
from strandline.pipeline.identity import RuleFingerprint
from strandline.pipeline.policy import Policy
from strandline.protocol.canonical import Plain

RegexTarget: TypeAlias = Literal["secret", "match", "line"]
REGEX_CHARACTERS_MAX = 65_536


def parse_regex(where: str, text: str) -> Node:
    """Return the tree of an expression; `RegexInvalid` names the file or rule in `where`."""
    if len(text) > REGEX_CHARACTERS_MAX:
        raise RegexInvalid(where, f"longer than {REGEX_CHARACTERS_MAX:,} characters")
    try:
        return parse(text)
    except Unsupported as problem:
        raise RegexInvalid(where, problem.problem, problem.position) from None


@dataclass(frozen=True)
class Allowlist:
    """Criteria of matches that are no secret; with `all_of` every one must hold, otherwise one is enough."""

    description: str = ""
    all_of: bool = False
    commits: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()
    regex_target: RegexTarget = "secret"
    stopwords: tuple[str, ...] = ()

    def plain(self) -> Plain:
        """Return the canonical content."""
        lists = [sorted(set(values)) for values in (self.commits, self.paths, self.regexes, self.stopwords)]
        return [self.all_of, self.regex_target, *lists]

    def check(self, where: str) -> None:
        """Refuse a list that allows nothing, or an expression that does not parse."""
        if not (self.commits or self.paths or self.regexes or self.stopwords):
            raise RulesInvalid(where, "an allowlist has none of commits, paths, regexes and stopwords")
        for regex in (*self.paths, *self.regexes):
            parse_regex(f"{where}, allowlist", regex)


@dataclass(frozen=True)
class Required:
    """Another rule that must match too, within a number of lines and columns if these are given."""

    rule_id: str
    within_lines: int | None = None
    within_columns: int | None = None


@dataclass(frozen=True)
class Rule:
    """The pattern of one kind of secret; without `regex` the rule finds items by their path."""

    id: str
    regex: str | None = None
    description: str = ""
    secret_group: int = 0
    entropy: float = 0.0
    path: str | None = None
    keywords: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    allowlists: tuple[Allowlist, ...] = ()
    required: tuple[Required, ...] = ()
    skip_report: bool = False
    validator: str | None = None
    charset: str | None = None
    examples: tuple[str, ...] = field(default=(), compare=False)
    example_path: str = field(default="", compare=False)
    counterexamples: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_generic(self) -> bool:
        """Return whether a provider's rule wins when both find the same secret."""
        return not any(tag.startswith("provider:") for tag in self.tags)

    @property
    def is_for_named_files(self) -> bool:
        """Return whether the rule reads all of the files that its path names, and is no part of the prefilter."""
        return self.path is not None and self.regex is not None and not self.keywords

    def plain(self) -> Plain:
        """Return the canonical content, which decides the findings."""
        return {
            "regex": self.regex,
            "secret_group": self.secret_group,
            "entropy": float(self.entropy),
            "path": self.path,
            "keywords": sorted(set(self.keywords)),
            "generic": self.is_generic,
            "allowlists": [allowlist.plain() for allowlist in self.allowlists],
            "required": [[other.rule_id, other.within_lines, other.within_columns] for other in self.required],
            "skip_report": self.skip_report,
            "validator": self.validator,
            "charset": self.charset,
        }

    def check(self) -> None:
        """Refuse a rule that cannot be run."""
        where = f"rule {self.id!r}"
        if not self.id:
            raise RulesInvalid("a rule", "it has no id")
        if self.regex is None and self.path is None:
            raise RulesInvalid(where, "it has neither regex nor path")
        self._check_expressions(where)
        if not 0 <= self.entropy <= 8:  # noqa: PLR2004
            raise RulesInvalid(where, f"entropy {self.entropy} is not within 0 to 8 bits")
        if any(not keyword for keyword in self.keywords):
            raise RulesInvalid(where, "a keyword is empty")
        for kind, name, known in (("charset", self.charset, CHARSETS), ("validator", self.validator, VALIDATORS)):
            if name is not None and name not in known:
                raise RulesInvalid(where, f"unknown {kind} {name!r}", hint=f"known: {', '.join(known)}")
        for allowlist in self.allowlists:
            allowlist.check(where)

    def _check_expressions(self, where: str) -> None:
        if self.path is not None:
            parse_regex(f"{where}, path", self.path)
        if self.regex is not None:
            count = sum(1 for _ in groups(parse_regex(where, self.regex)))
            if not 0 <= self.secret_group <= count:
                raise RulesInvalid(where, f"secretGroup {self.secret_group} is not one of its {count} groups")


@dataclass(frozen=True)
class RuleSet:
    """Rules, sorted by id, and the allowlists of all of them."""

    rules: tuple[Rule, ...]
    allowlists: tuple[Allowlist, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(sorted(self.rules, key=lambda rule: rule.id)))
        for rule in self.rules:
            rule.check()
        for allowlist in self.allowlists:
            allowlist.check("global allowlist")
        if len(self.by_id) < len(self.rules):
            twice = next(
                rule.id for rule, after in zip(self.rules, self.rules[1:], strict=False) if rule.id == after.id
            )
            raise RulesInvalid(f"rule {twice!r}", "it is there twice")
        for rule in self.rules:
            for other in rule.required:
                if other.rule_id == rule.id or other.rule_id not in self.by_id:
                    raise RulesInvalid(
                        f"rule {rule.id!r}", f"it requires {other.rule_id!r}, which is no other rule here"
                    )

    @classmethod
    def checked(
        cls,
        rules: tuple[Rule, ...],
        allowlists: tuple[Allowlist, ...],
        fingerprints: Mapping[str, RuleFingerprint],
    ) -> Self:
        """Return the set of rules that were a set before: nothing is checked, and the fingerprints are those."""
        made = object.__new__(cls)
        object.__setattr__(made, "rules", rules)
        object.__setattr__(made, "allowlists", allowlists)
        object.__setattr__(made, "_known", fingerprints)
        return made

    @cached_property
    def by_id(self) -> dict[str, Rule]:
        """Return the rules by their ids."""
        return {rule.id: rule for rule in self.rules}

    @property
    def looks_at_paths(self) -> bool:
        """Return whether the same bytes can have other findings under another path."""
        allowlists = [*self.allowlists, *(allowlist for rule in self.rules for allowlist in rule.allowlists)]
        return any(rule.path is not None for rule in self.rules) or any(allowlist.paths for allowlist in allowlists)

    def without(self, ids: Collection[str]) -> Self:
        """Return the set without some rules."""
        return type(self)(tuple(rule for rule in self.rules if rule.id not in ids), self.allowlists)

    def only(self, ids: Iterable[str]) -> Self:
        """Return the set of some rules and of those that they require."""
        wanted = set(ids)
        if unknown := sorted(wanted - self.by_id.keys()):
            raise RulesInvalid(f"rule {unknown[0]!r}", "there is no such rule")
        wanted |= {other.rule_id for name in wanted for other in self.by_id[name].required}
        return self.without(self.by_id.keys() - wanted)

    def policy(self, limits: Limits | None = None, *, generation: int = 0) -> Policy:
        """Return the policy that a scan with these rules and limits is under; made once for each limits."""
        key = (limits or Limits(), generation)
        if key not in self._policies:
            self._policies[key] = self._policy(*key)
        return self._policies[key]

    @cached_property
    def _known(self) -> Mapping[str, RuleFingerprint] | None:
        return None

    @cached_property
    def _policies(self) -> dict[tuple[Limits, int], Policy]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {"rules": self.rules, "allowlists": self.allowlists}

    def _policy(self, limits: Limits, generation: int) -> Policy:
        return Policy(
            rules={rule.id: self._content(rule) for rule in self.rules},
            tuning={"limits": limits.plain(), "allowlists": [each.plain() for each in self.allowlists]},
            decoders=list(VIEWS),
            engine=ENGINE_VERSION,
            generation=generation,
            known=self._known,
        )

    def _content(self, rule: Rule) -> Plain:
        return [rule.plain(), [self.by_id[other.rule_id].plain() for other in rule.required]]
