"""`strandline rules test`: what rules find and dismiss in one file."""

import sys
from typing import Annotated

import typer

from strandline.cli.output import AsJson, Record, emit_rows, to_json
from strandline.cli.rules_options import STDIN, Name, OnlyRules, RulesFile, chosen_rules, engine_of, read_input
from strandline.cli.scan import AllowComments
from strandline.detect.locations import shown
from strandline.findings.verdicts import Outcome, Verdict, verdicts

File = Annotated[str, typer.Argument(metavar="FILE|-", help="File to look at; - is standard input.")]
Dismissed = Annotated[bool, typer.Option("--dismissed", help="Show dismissed matches too, each with the reason.")]


def run_rules(
    file: File,
    rules: RulesFile = None,
    rule: OnlyRules = None,
    name: Name = "",
    dismissed: Dismissed = False,
    allow_comments: AllowComments = True,
    as_json: AsJson = False,
) -> None:
    """Run the rules on a file, and show what they find and dismiss.

    Nothing is stored, and values are shown by their length alone. Leaves with 1 if nothing was found.
    """
    engine = engine_of(chosen_rules(rules, rule), allow_comments=allow_comments)
    data = read_input(file)
    found = verdicts(engine, data, name or ("" if file == STDIN else file))
    chosen = [one for one in found if dismissed or one.outcome is not Outcome.DISMISSED]
    if as_json:
        for one in chosen:
            print(to_json(verdict_record(one)))
    else:
        emit_rows(map(verdict_row, chosen), as_json=False)
        left = len(found) - len(chosen)
        print(
            f"{_count(found)} found{f', {left:,} dismissed (--dismissed shows them)' if left else ''}", file=sys.stderr
        )
    if not any(one.outcome is Outcome.FOUND for one in found):
        raise typer.Exit(1)


def _count(found: list[Verdict]) -> str:
    return f"{sum(one.outcome is Outcome.FOUND for one in found):,}"


def verdict_record(one: Verdict) -> Record:
    """Return a verdict as a JSON record."""
    return {
        "outcome": one.outcome.value,
        "rule": one.rule_id,
        "path": one.path,
        "line": one.line,
        "column": one.column,
        "by": one.by,
        "reason": one.reason,
        "confidence": one.confidence,
        "via": list(one.via),
        "length": one.length,
    }


def verdict_row(one: Verdict) -> Record:
    """Return a verdict as a row of a table."""
    value = f"{one.length} bytes" if one.length else "encoded" if one.via else ""
    because = f"{one.by}: {one.reason}" if one.reason else ""
    return {
        "place": f"{one.line}:{one.column}" if one.line else "file",
        "outcome": one.outcome.value,
        "rule": shown(one.rule_id),
        "why": shown(because) or f"confidence {one.confidence} ({one.level})",
        "value": " → ".join([*one.via, value]) if one.via else value,
    }
