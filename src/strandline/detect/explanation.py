"""Why a match is not a finding: the engine's own decisions, written down while it scans.

`Engine.explain` is `Engine.scan` with a `Trace`: both run the same code, so the findings of an explanation are those of
a scan. A dismissed match has a place, a rule, the check that dismissed it and a reason.

Invariants: a reason holds no byte of the scanned item; places are counted as those of findings are; a trace keeps at
most `DISMISSED_MAX` matches and counts the rest.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from strandline.detect.expressions.linear import Exhausted
from strandline.detect.frames import Frame
from strandline.detect.limits import Limits
from strandline.detect.matching.matcher import Check, Hit, Refusal, entropy_bits
from strandline.detect.results import ItemResult
from strandline.detect.rules.rule import Allowlist, Rule, RuleSet
from strandline.detect.tokens.validators import judge

DISMISSED_MAX = 10_000
PATH, RULE, REQUIRED, REPEATED, SILENT = "path", "another rule", "required rule", "repeated", "not reported"


@dataclass(frozen=True, slots=True)
class Dismissed:
    """A match that is no finding; line and column are those of the secret, 0 for a whole file."""

    rule_id: str
    path: str
    line: int
    column: int
    check: str
    reason: str
    via: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of a scan, and the matches that were dismissed, by place; `uncounted` more were not kept."""

    result: ItemResult
    dismissed: tuple[Dismissed, ...]
    uncounted: int = 0


class Trace:
    """Collects the matches that an engine dismisses."""

    def __init__(self, rules: RuleSet, limits: Limits) -> None:
        self._rules = rules
        self._limits = limits
        self._found: dict[Dismissed, None] = {}
        self._uncounted = 0

    def explanation(self, result: ItemResult) -> Explanation:
        """Return the explanation of a scan."""
        ordered = sorted(self._found, key=lambda one: (one.path, one.line, one.column, one.rule_id, one.via))
        return Explanation(result, tuple(ordered), self._uncounted)

    def allowed_file(self, frame: Frame) -> None:
        """A global allow-list allows everything in a file."""
        self._add(Dismissed("", frame.path, 0, 0, Check.ALLOWLIST.value, "a global allow-list allows the whole file"))

    def not_for_path(self, frame: Frame, matches: Iterable[Hit | Refusal]) -> None:
        """A rule matches, but it is not for files of this path."""
        with suppress(Exhausted):
            for match in matches:
                rule = self._rules.rules[match.rule]
                self._note(frame, match, PATH, f"the rule is for paths like {rule.path}")

    def refused(self, frame: Frame, refusal: Refusal) -> None:
        """A check refused a match."""
        rule = self._rules.rules[refusal.rule]
        self._note(frame, refusal, refusal.check.value, _reason(frame, refusal, rule, self._rules, self._limits))

    def unselected(self, frame: Frame, hits: Sequence[Hit], kept: Sequence[Hit]) -> None:
        """Hits that the selection dropped."""
        rules = self._rules.rules
        for hit in hits:
            if hit in kept:
                continue
            winner = next((one for one in kept if one.start < hit.end and hit.start < one.end), None)
            if rules[hit.rule].skip_report:
                self._note(frame, hit, SILENT, "the rule is only there for other rules (skipReport)")
            elif winner is not None:
                self._note(frame, hit, RULE, f"rule {rules[winner.rule].id} says more about the same place")
            else:
                names = ", ".join(other.rule_id for other in rules[hit.rule].required)
                self._note(frame, hit, REQUIRED, f"no match of {names} is near")

    def repeated(self, frame: Frame, hits: Sequence[Hit], news: Sequence[Hit]) -> None:
        """Hits of a view that the text around it has already."""
        for hit in hits:
            if hit not in news:
                self._note(frame, hit, REPEATED, "the text that this was decoded from has the finding already")

    def _note(self, frame: Frame, match: Hit | Refusal, check: str, reason: str) -> None:
        file, start, _ = frame.placed(match.start, max(match.start, match.end))
        line, column = file.lines.locate(start)
        rule = self._rules.rules[match.rule].id
        self._add(Dismissed(rule, file.path, line, column, check, reason, frame.via))

    def _add(self, dismissed: Dismissed) -> None:
        if len(self._found) < DISMISSED_MAX:
            self._found[dismissed] = None
        else:
            self._uncounted += dismissed not in self._found


def _reason(  # noqa: PLR0911 - one for each check
    frame: Frame, refusal: Refusal, rule: Rule, rules: RuleSet, limits: Limits
) -> str:
    secret = frame.data[refusal.start : refusal.end]
    match refusal.check:
        case Check.LENGTH if refusal.start >= refusal.end:
            return "the expression matches, and its secret is empty"
        case Check.LENGTH:
            return f"the match is longer than {limits.match_bytes_max:,} bytes"
        case Check.CHARACTERS:
            return f"a character is not of {rule.charset}"
        case Check.ENTROPY:
            return f"entropy {entropy_bits(secret):.2f}; the rule wants more than {rule.entropy:g} bits"
        case Check.KEYWORD:
            words = ", ".join(rule.keywords)
            return f"no keyword ({words}) within {limits.keyword_radius:,} bytes of the match"
        case Check.ALLOWLIST:
            own = len(rule.allowlists)
            number = refusal.allowlist
            if number < own:
                return f"an allow-list of the rule{_described(rule.allowlists[number])}"
            return f"a global allow-list{_described(rules.allowlists[number - own])}"
        case Check.VALIDATOR:
            judgement = judge(rule.validator or "", secret)
            return f"{rule.validator}: {judgement.reason}"


def _described(allowlist: Allowlist) -> str:
    parts = [name for name in ("commits", "paths", "regexes", "stopwords") if getattr(allowlist, name)]
    what = f" ({allowlist.description})" if allowlist.description else ""
    return f"{what}, by its {' and '.join(parts) if allowlist.all_of else ' or '.join(parts)}"
