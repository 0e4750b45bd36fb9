"""Filters: the findings of a report that match a rule, a path, a state, a confidence, a source or an owner.

Invariants: several values of one filter are "or", several filters are "and", and so are `new` and `live`; a filter that
matches no source is an error, never an empty report, and so is one that matches no rule of a scan.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from strandline.detect.results import CONFIDENCE_MAX
from strandline.errors import InvalidInput
from strandline.findings.reports.values import HIGH, MEDIUM, Level, Report, ReportFinding
from strandline.scan.path_globs import PathGlobs, parse_globs


class StateName(StrEnum):
    """A state of triage, as it is written on the command line."""

    OPEN = "open"
    CONFIRMED = "confirmed"
    FALSE_POSITIVE = "false-positive"
    REVOKED = "revoked"


class ShownState(StrEnum):
    """A condition on the state of findings: a state of triage, or new or live, which narrow the states further."""

    NEW = "new"
    LIVE = "live"
    OPEN = "open"
    CONFIRMED = "confirmed"
    FALSE_POSITIVE = "false-positive"
    REVOKED = "revoked"


NO_OWNER = "none"
_LEAST = {Level.LOW: 0, Level.MEDIUM: MEDIUM, Level.HIGH: HIGH}


@dataclass(frozen=True)
class Filters:
    """Conditions on findings; an empty one matches every finding."""

    rules: Sequence[str] = ()
    paths: PathGlobs | None = None
    states: Sequence[str] = ()
    confidence: int = 0
    sources: Sequence[str] = ()
    is_new: bool = False
    owners: Sequence[str] = ()
    """Owners of CODEOWNERS in lower case; `NO_OWNER` stands for findings without an owner."""
    is_live: bool = False

    def apply(self, report: Report) -> Report:
        """Return the report with the matching findings."""
        names = {number: source.name for number, source in enumerate(report.facts.sources)}
        self._check_sources(report, set(names.values()))
        return replace(report, findings=[one for one in report.findings if self._fits(one, names)])

    def check_rules(self, known: Collection[str]) -> None:
        """Refuse a rule that no scan with these rules can find: the gate of a misspelt rule would always pass."""
        for rule in self.rules:
            if not any(fnmatchcase(name, rule) for name in known):
                raise InvalidInput(f"--rule {rule}: no rule of this scan has this id", hint="`*` stands for any text")

    def _fits(self, finding: ReportFinding, names: dict[int, str]) -> bool:
        if self.rules and not any(fnmatchcase(finding.rule_id, rule) for rule in self.rules):
            return False
        if self.paths is not None and self.paths.leaving_out(finding.path) is None:
            return False
        if self.states and finding.state not in self.states:
            return False
        if (self.is_new and not finding.is_new) or (self.is_live and not finding.is_live):
            return False
        if self.sources and not {finding.location.source, names.get(finding.source, "")}.intersection(self.sources):
            return False
        return finding.location.confidence >= self.confidence and self._is_owned(finding)

    def _is_owned(self, finding: ReportFinding) -> bool:
        owners = {one.casefold() for one in finding.owners or (NO_OWNER,)}
        return not self.owners or not owners.isdisjoint(self.owners)

    def _check_sources(self, report: Report, names: set[str]) -> None:
        known = names | {source.kind for source in report.facts.sources} | {"file", "git", "table", "journal"}
        if unknown := next((name for name in self.sources if name not in known), None):
            raise InvalidInput(f"no source is called {unknown!r}", hint=f"known sources: {', '.join(sorted(known))}")


def make_filters(
    rules: Sequence[str] | None = None,
    paths: Sequence[str] | None = None,
    states: Sequence[ShownState] | None = None,
    confidence: str | None = None,
    sources: Sequence[str] | None = None,
    owners: Sequence[str] | None = None,
) -> Filters:
    """Return filters from texts: rules with wildcards, path globs, a confidence as a level or a number."""
    globs = parse_globs("\n".join(paths), "--path") if paths else None
    given = states or ()
    decided = [state.value for state in given if state not in {ShownState.NEW, ShownState.LIVE}]
    is_new, is_live = ShownState.NEW in given, ShownState.LIVE in given
    owned = [one.casefold() for one in owners or ()]
    return Filters(rules or (), globs, decided, _least(confidence), sources or (), is_new, owned, is_live)


def _least(text: str | None) -> int:
    if text is None:
        return 0
    if text in set(Level):
        return _LEAST[Level(text)]
    if text.isascii() and text.isdigit() and int(text) <= CONFIDENCE_MAX:
        return int(text)
    raise InvalidInput(f"{text!r} is not a confidence", hint="give low, medium, high, or a number from 0 to 10")
