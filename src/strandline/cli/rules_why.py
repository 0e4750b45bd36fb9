"""`strandline rules why FILE:LINE`: what becomes of each match on a line, and which rules came close."""

import re
from typing import Annotated

import typer

from strandline.cli.ignore_options import Baselines, IgnoreFiles, NoIgnore
from strandline.cli.output import AsJson, emit_rows, to_json
from strandline.cli.rules_options import STDIN, Name, OnlyRules, RulesFile, chosen_rules, engine_of, read_input
from strandline.cli.rules_test import verdict_record, verdict_row
from strandline.cli.scan import AllowComments
from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.findings.ignores import Ignores, load_ignores
from strandline.findings.verdicts import Outcome, Verdict, unmatched, verdicts
from strandline.pipeline.identity import TenantSecretKey

RULES_SHOWN = 8
_PLACE = re.compile(r"(.+):([0-9]+)(?::[0-9]+)?")
Place = Annotated[str, typer.Argument(metavar="FILE:LINE", help="Line of a file; -:LINE is one of standard input.")]


def why(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    place: Place,
    rules: RulesFile = None,
    rule: OnlyRules = None,
    name: Name = "",
    ignore_file: IgnoreFiles = None,
    baseline: Baselines = None,
    no_ignore: NoIgnore = False,
    allow_comments: AllowComments = True,
    as_json: AsJson = False,
) -> None:
    """Say why something was or was not found on a line of a file.

    Names the check that dismissed each match: keyword, characters, entropy, allow-list, validator, another rule, or the
    comment, ignore file or baseline that leaves it out. Decisions of triage are those of `findings show`.
    """
    file, number = _parsed(place)
    data = read_input(file)
    lines = data.split(b"\n")
    if not 0 < number <= len(lines):
        raise InvalidInput(f"{file} has {len(lines):,} lines, and no line {number:,}", hint="lines count from 1")
    engine = engine_of(chosen_rules(rules, rule), allow_comments=allow_comments)
    path = name or ("" if file == STDIN else file)
    key = TenantSecretKey(bytes(32))
    ignores = Ignores() if no_ignore else load_ignores(key, files=ignore_file, baselines=baseline)
    found = [one for one in verdicts(engine, data, path, ignores) if one.line in {0, number}]
    near = unmatched(engine, lines[number - 1], found)
    if as_json:
        print(to_json({"place": place, "verdicts": list(map(verdict_record, found)), "keywords_only": near}))
        return
    _print(found, near, has_rule=bool(rule))


def _parsed(place: str) -> tuple[str, int]:
    match = _PLACE.fullmatch(place)
    if match is None:
        raise InvalidInput(f"{place}: no line is named", hint="write FILE:LINE, such as src/app.py:12")
    return match[1], int(match[2])


def _print(found: list[Verdict], near: dict[str, list[str]], *, has_rule: bool) -> None:
    emit_rows(map(verdict_row, found), as_json=False)
    if any(one.outcome is Outcome.FOUND for one in found):
        print("found")
        return
    if found:
        print("not found: every match is ignored or dismissed")
    else:
        print("not found: no expression of a rule matches on this line")
    shown_rules = list(near.items())[: None if has_rule else RULES_SHOWN]
    for rule_id, words in shown_rules:
        print(f"{shown(rule_id)}: its keyword {shown(words[0])!r} is there, its expression does not match")
    if len(near) > len(shown_rules):
        print(f"{len(near) - len(shown_rules):,} more rules have a keyword there (--rule ID for one of them)")
