"""Rules files in the TOML of gitleaks, parsed in full.

Tables: `[extend]` (useDefault, path, disabledRules), `[[rules]]`, `[[rules.allowlists]]` and the older
`[rules.allowlist]`, `[[rules.required]]`, `[[allowlists]]` with targetRules and the older `[allowlist]`. Keys are
compared without case, as gitleaks does. A rule that extends one of the same id replaces the values it sets and adds
keywords, tags and allowlists. Strandline adds the keys validator, charset, examples and counterexamples per rule.

Invariants: an unknown key, a value of a wrong kind or a broken file is a `RulesInvalid` with the key's name and the
file; what `strandline.detect.rules.gitleaks_format` writes is read back the same.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias, cast

from strandline.detect.errors import RulesInvalid
from strandline.detect.rules.rule import Allowlist, RegexTarget, Required, Rule, RuleSet
from strandline.detect.rules.rules_cache import cached_rules

EXTEND_DEPTH_MAX = 2
FILE_BYTES_MAX = 16 << 20

_Table: TypeAlias = Mapping[str, Any]
_TOP = ("title", "description", "minVersion", "extend", "rules", "allowlist", "allowlists")
_EXTEND = ("useDefault", "path", "url", "disabledRules")
_RULE = (
    *("id", "description", "regex", "secretGroup", "entropy", "path", "keywords", "tags", "allowlist", "allowlists"),
    *("required", "skipReport", "validator", "charset", "examples", "examplePath", "counterexamples"),
)
_ALLOWLIST = ("description", "condition", "commits", "paths", "regexes", "regexTarget", "stopwords")
_REQUIRED = ("id", "withinLines", "withinColumns")
_KINDS = {str: "a text", int: "a whole number", bool: "true or false", (int, float): "a number"}


def load_rules(path: str | Path) -> RuleSet:
    """Return the rules of a file and of the files that it extends."""
    path = Path(path)
    text = _text_of(path)

    def parse() -> tuple[RuleSet, bool]:
        config = _parse(text, str(path), path.parent, 0)
        return config.finished(), not config.has_files

    return cached_rules((text.encode(), *_builtin_texts().values()), parse)


@cache
def load_builtin() -> RuleSet:
    """Return Strandline's own rules, read once in a process."""
    texts = _builtin_texts()

    def parse() -> tuple[RuleSet, bool]:
        config = _Config("builtin")
        for name, text in texts.items():
            config.add(_parse(text.decode(), f"builtin/{name}", None, 0))
        return config.finished(), True

    return cached_rules(tuple(texts.values()), parse)


@cache
def _builtin_texts() -> dict[str, bytes]:
    folder = resources.files("strandline.detect.rules") / "builtin"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name: file.read_bytes() for file in files}


def parse_rules(text: str, name: str = "rules", folder: Path | None = None) -> RuleSet:
    """Return the rules of a text; paths of files that it extends are relative to `folder`."""
    return _parse(text, name, folder, 0).finished()


class _Config:
    """A file without its base: rules may lack values that the extended file sets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: dict[str, Rule] = {}
        self.allowlists: list[Allowlist] = []
        self.targeted: list[tuple[str, Allowlist]] = []
        self.has_files = False
        """Whether it extends other files."""

    def add(self, other: "_Config") -> None:
        """Add another file of the same level; refuse a rule that both have."""
        for rule in other.rules.values():
            if rule.id in self.rules:
                raise RulesInvalid(other.name, f"rule {rule.id!r} is there twice")
            self.rules[rule.id] = rule
        self.allowlists += other.allowlists
        self.targeted += other.targeted

    def extend(self, base: "_Config", disabled: tuple[str, ...]) -> None:
        """Add the rules and values of an extended file; this file's own values win."""
        for rule in base.rules.values():
            if rule.id not in disabled:
                own = self.rules.get(rule.id)
                self.rules[rule.id] = _merged(own, rule) if own else rule
        self.allowlists += base.allowlists
        self.targeted += [(name, allowlist) for name, allowlist in base.targeted if name not in disabled]

    def finished(self) -> RuleSet:
        """Return the set; raise `RulesInvalid` if a value is missing."""
        rules = dict(self.rules)
        for name, allowlist in self.targeted:
            if name not in rules:
                raise RulesInvalid(self.name, f"allowlists: targetRules names {name!r}, which is no rule here")
            rules[name] = replace(rules[name], allowlists=(*rules[name].allowlists, allowlist))
        try:
            return RuleSet(tuple(rules.values()), tuple(self.allowlists))
        except RulesInvalid as error:
            raise error.within(self.name) from None


def _merged(own: Rule, base: Rule) -> Rule:
    return replace(
        base,
        regex=own.regex or base.regex,
        description=own.description or base.description,
        secret_group=own.secret_group or base.secret_group,
        entropy=own.entropy or base.entropy,
        path=own.path or base.path,
        keywords=(*base.keywords, *own.keywords),
        tags=(*base.tags, *own.tags),
        allowlists=(*base.allowlists, *own.allowlists),
        required=own.required or base.required,
        skip_report=own.skip_report or base.skip_report,
        validator=own.validator or base.validator,
        charset=own.charset or base.charset,
    )


def _read(path: Path, depth: int) -> _Config:
    return _parse(_text_of(path), str(path), path.parent, depth)


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise RulesInvalid(str(path), f"the file is larger than {FILE_BYTES_MAX:,} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RulesInvalid(str(path), "the file is not UTF-8") from None
    except OSError as error:
        raise RulesInvalid(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError:
        raise RulesInvalid(str(path)[:200], "is not the name of a file") from None


def _parse(text: str, name: str, folder: Path | None, depth: int) -> _Config:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        hint = "rules are written as in a .gitleaks.toml; values with a backslash in '''three quotes'''"
        raise RulesInvalid(name, f"not TOML: {error}", hint=hint) from None
    top = _keys(document, _TOP, name, "")
    config = _Config(name)
    for table in _tables(top, "rules", name):
        rule = _rule(table, name)
        if rule.id in config.rules:
            raise RulesInvalid(name, f"rule {rule.id!r} is there twice")
        config.rules[rule.id] = rule
    for table in _allowlist_tables(top, name):
        keys = _keys(table, (*_ALLOWLIST, "targetRules"), name, "allowlists.")
        targets = _texts(keys, "targetRules", name)
        allowlist = _allowlist(keys, name)
        config.targeted += [(target, allowlist) for target in targets]
        config.allowlists += [] if targets else [allowlist]
    if "extend" in top:
        _extend(config, _keys(_table(top["extend"], f"{name}: extend"), _EXTEND, name, "extend."), folder, depth)
    return config


def _extend(config: _Config, keys: _Table, folder: Path | None, depth: int) -> None:
    default, path = _typed(keys, "useDefault", bool, config.name) or False, _text(keys, "path", config.name)
    if default and path:
        raise RulesInvalid(config.name, "extend: useDefault and path exclude each other")
    if keys.get("url"):
        raise RulesInvalid(config.name, "extend.url: rules are not fetched over the network", hint="use extend.path")
    if depth >= EXTEND_DEPTH_MAX:
        raise RulesInvalid(config.name, f"extend: more than {EXTEND_DEPTH_MAX} files extend each other")
    disabled = _texts(keys, "disabledRules", config.name)
    if default:
        builtin = load_builtin()
        base = _Config("builtin")
        base.rules, base.allowlists = dict(builtin.by_id), list(builtin.allowlists)
        config.extend(base, disabled)
    elif path:
        config.has_files = True
        config.extend(_read((folder or Path()) / path, depth + 1), disabled)


def _rule(table: _Table, name: str) -> Rule:
    rule_id = str(next((value for key, value in table.items() if key.lower() == "id"), ""))
    where = f"{name}: rule {rule_id!r}"
    keys = _keys(table, _RULE, where, "")
    if not _text(keys, "id", where):
        raise RulesInvalid(name, "a rule has no id")
    return Rule(
        id=rule_id,
        regex=_text(keys, "regex", where) or None,
        description=_text(keys, "description", where),
        secret_group=_typed(keys, "secretGroup", int, where) or 0,
        entropy=float(_typed(keys, "entropy", (int, float), where) or 0.0),
        path=_text(keys, "path", where) or None,
        keywords=tuple(keyword.lower() for keyword in _texts(keys, "keywords", where)),
        tags=_texts(keys, "tags", where),
        allowlists=tuple(
            _allowlist(_keys(t, _ALLOWLIST, where, "allowlists."), where) for t in _allowlist_tables(keys, where)
        ),
        required=tuple(
            _required(_keys(t, _REQUIRED, where, "required."), where) for t in _tables(keys, "required", where)
        ),
        skip_report=_typed(keys, "skipReport", bool, where) or False,
        validator=_text(keys, "validator", where) or None,
        charset=_text(keys, "charset", where) or None,
        examples=_texts(keys, "examples", where),
        example_path=_text(keys, "examplePath", where),
        counterexamples=_texts(keys, "counterexamples", where),
    )


def _required(keys: _Table, where: str) -> Required:
    if not _text(keys, "id", where):
        raise RulesInvalid(where, "required.id is missing")
    lines, columns = (_typed(keys, key, int, where) for key in ("withinLines", "withinColumns"))
    if min(lines or 0, columns or 0) < 0:
        raise RulesInvalid(where, "required: withinLines and withinColumns are 0 or more")
    return Required(_text(keys, "id", where), lines, columns)


def _allowlist(keys: _Table, where: str) -> Allowlist:
    condition = _text(keys, "condition", where).upper() or "OR"
    if condition not in {"OR", "||", "AND", "&&"}:
        raise RulesInvalid(where, "allowlists.condition is OR or AND")
    target = _text(keys, "regexTarget", where) or "secret"
    if target not in {"secret", "match", "line"}:
        raise RulesInvalid(where, "allowlists.regexTarget is secret, match or line")
    allowlist = Allowlist(
        description=_text(keys, "description", where),
        all_of=condition in {"AND", "&&"},
        commits=tuple(commit.lower() for commit in _texts(keys, "commits", where)),
        paths=_texts(keys, "paths", where),
        regexes=_texts(keys, "regexes", where),
        regex_target=cast("RegexTarget", target),
        stopwords=tuple(word.lower() for word in _texts(keys, "stopwords", where)),
    )
    allowlist.check(where)
    return allowlist


def _allowlist_tables(keys: _Table, where: str) -> list[_Table]:
    tables = _tables(keys, "allowlists", where)
    if "allowlist" not in keys:
        return tables
    if tables:
        raise RulesInvalid(where, "allowlist and allowlists exclude each other")
    return [_table(keys["allowlist"], f"{where}: allowlist")]


def _keys(table: _Table, known: tuple[str, ...], where: str, prefix: str) -> dict[str, Any]:
    """Return a table with its keys in their known spelling."""
    spelled = {key.lower(): key for key in known}
    keys: dict[str, Any] = {}
    for key, value in table.items():
        name = spelled.get(key.lower())
        if name is None:
            near = get_close_matches(key.lower(), spelled, 1)
            guess = f"perhaps {spelled[near[0]]}; " if near else ""
            raise RulesInvalid(where, f"unknown key {prefix}{key}", hint=f"{guess}known keys: {', '.join(known)}")
        if name in keys:
            raise RulesInvalid(where, f"key {prefix}{key} is there twice, in another case")
        keys[name] = value
    return keys


def _table(value: object, where: str) -> _Table:
    if not isinstance(value, dict):
        raise RulesInvalid(where, "is not a table")
    return value


def _tables(keys: _Table, key: str, where: str) -> list[_Table]:
    value = keys.get(key, [])
    if not isinstance(value, list):
        raise RulesInvalid(where, f"{key} is not an array of tables")
    return [_table(entry, f"{where}: {key}") for entry in value]


def _typed(keys: _Table, key: str, kind: Any, where: str) -> Any:  # noqa: ANN401
    value = keys.get(key)
    if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise RulesInvalid(where, f"{key} is not {_KINDS[kind]}")


def _text(keys: _Table, key: str, where: str) -> str:
    return _typed(keys, key, str, where) or ""


def _texts(keys: _Table, key: str, where: str) -> tuple[str, ...]:
    value = keys.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise RulesInvalid(where, f"{key} is not a list of texts")
    return tuple(value)
