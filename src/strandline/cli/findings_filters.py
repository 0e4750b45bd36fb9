"""Which findings a command is about: the options that `list` and `export` share.

Invariants: several values of one option are "or", several options are "and"; an option that cannot fit anything is an
error, never an empty answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from strandline.detect import PathGlobs, parse_globs
from strandline.detect.results import CONFIDENCE_MAX
from strandline.errors import InvalidInput
from strandline.findings.reports import Level, Report, ReportFinding
from strandline.findings.reports.values import HIGH, MEDIUM


class StateName(StrEnum):
    """A state of triage, as it is written on the command line."""

    OPEN = "open"
    CONFIRMED = "confirmed"
    FALSE_POSITIVE = "false-positive"
    REVOKED = "revoked"


Rules = Annotated[
    list[str] | None, typer.Option("--rule", metavar="ID", help="Findings of this rule; * and ? are wild.")
]
Paths = Annotated[
    list[str] | None, typer.Option("--path", metavar="GLOB", help="Findings in paths that fit, as in a .gitignore.")
]
States = Annotated[
    list[StateName] | None,
    typer.Option(
        "--is", metavar="STATE", help="Findings in this state of triage: open, confirmed, false-positive, revoked."
    ),
]
Confidence = Annotated[
    str | None,
    typer.Option("--confidence", metavar="LEVEL|N", help="At least this sure: low, medium, high, or 0 to 10."),
]
Sources = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="KIND|NAME", help="Findings in file, git, table, journal, or a source by name."),
]
All = Annotated[bool, typer.Option("--all", help="Everything that was ever found, not only what is there now.")]

_LEAST = {Level.LOW: 0, Level.MEDIUM: MEDIUM, Level.HIGH: HIGH}


@dataclass(frozen=True)
class Filters:
    """What findings must fit."""

    rules: Sequence[str] = ()
    paths: PathGlobs | None = None
    states: Sequence[str] = ()
    confidence: int = 0
    sources: Sequence[str] = ()

    def apply(self, report: Report) -> Report:
        """Return the report of the findings that fit."""
        names = {number: source.name for number, source in enumerate(report.facts.sources)}
        self._check_sources(report, set(names.values()))
        return replace(report, findings=[one for one in report.findings if self._fits(one, names)])

    def _fits(self, finding: ReportFinding, names: dict[int, str]) -> bool:
        if self.rules and not any(fnmatchcase(finding.rule_id, rule) for rule in self.rules):
            return False
        if self.paths is not None and self.paths.leaving_out(finding.path) is None:
            return False
        if self.states and finding.state not in self.states:
            return False
        if self.sources and not {finding.location.source, names.get(finding.source, "")}.intersection(self.sources):
            return False
        return finding.location.confidence >= self.confidence

    def _check_sources(self, report: Report, names: set[str]) -> None:
        known = names | {source.kind for source in report.facts.sources} | {"file", "git", "table", "journal"}
        if unknown := next((name for name in self.sources if name not in known), None):
            raise InvalidInput(f"no source is called {unknown!r}", hint=f"there are: {', '.join(sorted(known))}")


def make_filters(
    rules: list[str] | None,
    paths: list[str] | None,
    states: list[StateName] | None,
    confidence: str | None,
    sources: list[str] | None,
) -> Filters:
    """Return what the options ask for."""
    globs = parse_globs("\n".join(paths), "--path") if paths else None
    return Filters(rules or (), globs, [state.value for state in states or ()], _least(confidence), sources or ())


def _least(text: str | None) -> int:
    if text is None:
        return 0
    if text in set(Level):
        return _LEAST[Level(text)]
    if text.isascii() and text.isdigit() and int(text) <= CONFIDENCE_MAX:
        return int(text)
    raise InvalidInput(f"{text!r} is no confidence", hint="give low, medium, high, or a number of 0 to 10")
