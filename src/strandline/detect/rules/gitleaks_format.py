"""Rule sets written as the TOML that `strandline.detect.rules.gitleaks` and gitleaks itself read.

Invariants: parsing the text gives the same set; expressions are literal strings where TOML allows it.
"""

import json
import re
from collections.abc import Iterable, Iterator

from strandline.detect.rules.rule import Allowlist, Rule, RuleSet

_LITERAL = re.compile(r"[^\x00-\x1f\x7f]*[^\x00-\x1f\x7f']")


def format_set(rules: RuleSet) -> str:
    """Return a set as TOML."""
    lines = ['title = "rules"']
    for rule in rules.rules:
        lines += ["", "[[rules]]", *_rule(rule)]
        for allowlist in rule.allowlists:
            lines += ["", "[[rules.allowlists]]", *_allowlist(allowlist)]
        for required in rule.required:
            lines += ["", "[[rules.required]]", f"id = {_text(required.rule_id)}"]
            lines += [] if required.within_lines is None else [f"withinLines = {required.within_lines}"]
            lines += [] if required.within_columns is None else [f"withinColumns = {required.within_columns}"]
    for allowlist in rules.allowlists:
        lines += ["", "[[allowlists]]", *_allowlist(allowlist)]
    return "\n".join(lines) + "\n"


def _rule(rule: Rule) -> Iterator[str]:
    yield f"id = {_text(rule.id)}"
    for key, value in (("description", rule.description), ("regex", rule.regex), ("path", rule.path)):
        if value:
            yield f"{key} = {_text(value)}"
    if rule.secret_group:
        yield f"secretGroup = {rule.secret_group}"
    if rule.entropy:
        yield f"entropy = {rule.entropy!r}"
    if rule.skip_report:
        yield "skipReport = true"
    for key, value in (("validator", rule.validator), ("charset", rule.charset), ("examplePath", rule.example_path)):
        if value:
            yield f"{key} = {_text(value)}"
    yield from _lists(
        ("keywords", rule.keywords),
        ("tags", rule.tags),
        ("examples", rule.examples),
        ("counterexamples", rule.counterexamples),
    )


def _allowlist(allowlist: Allowlist) -> Iterator[str]:
    if allowlist.description:
        yield f"description = {_text(allowlist.description)}"
    if allowlist.all_of:
        yield 'condition = "AND"'
    if allowlist.regex_target != "secret":
        yield f"regexTarget = {_text(allowlist.regex_target)}"
    yield from _lists(
        ("commits", allowlist.commits),
        ("paths", allowlist.paths),
        ("regexes", allowlist.regexes),
        ("stopwords", allowlist.stopwords),
    )


def _lists(*pairs: tuple[str, Iterable[str]]) -> Iterator[str]:
    for key, values in pairs:
        if texts := [_text(value) for value in values]:
            yield f"{key} = [{', '.join(texts)}]"


def _text(value: str) -> str:
    if ("\\" in value or '"' in value) and "'''" not in value and _LITERAL.fullmatch(value):
        return f"'''{value}'''"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
