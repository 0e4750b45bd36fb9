"""`strandline scan --repos FILE`: many repositories, one scan after the other, in one state.

Each repository is the scan that `strandline scan REPOSITORY` is: the same items, findings and run, so that the same
command goes on after an interruption, and either way of scanning adds to the other.

Invariants: a repository that cannot be reached or read stops no other, is named with its reason, and the exit code is
not 0; an error of the state ends the command. No repository hides another: two of one origin need a name.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import typer

from strandline.cli.exit_codes import EXIT_FAILED
from strandline.cli.metrics_options import Monitoring
from strandline.cli.output import Record
from strandline.cli.repository_list import ListedRepository
from strandline.cli.scan_progress import ScanProgress
from strandline.cli.scan_results import ResultOptions
from strandline.cli.scan_summary import failed_items, in_items
from strandline.cli.scan_workers import WorkerOptions
from strandline.cli.vocabulary import in_cli_words
from strandline.errors import InvalidInput, StrandlineError
from strandline.findings.report_builder import build_report
from strandline.findings.reports.values import Report
from strandline.pipeline.ledger import DoneStatus
from strandline.scan import Outcome, ScanRequest, Workers, find_inventory
from strandline.scan import scan as run_scan
from strandline.scan.sources import InputMissing, InputRefused, InputUnusable, Source
from strandline.scan.state import State
from strandline.scan.unfinished import find_unfinished

if TYPE_CHECKING:
    from strandline.cli.scan import NoAlarms
    from strandline.cli.scan_alarms import ScanAlarms

MakeSource = Callable[[ListedRepository], Source]
MakeRequest = Callable[[State, Source], ScanRequest]
_OF_ONE = (InputMissing, InputUnusable, InputRefused)


class SameRepository(InvalidInput):
    """Two repositories of a list have one identity: one would hide the findings of the other."""

    def __init__(self, one: ListedRepository, first: ListedRepository) -> None:
        super().__init__(
            f"{one.shown}: it begins with the same commit as {first.shown} (line {first.line}): a clone or a fork",
            hint="give one of them a name of its own, after its address, or leave it out",
        )


class UnusableRepository(StrandlineError):
    """A repository that could not be scanned, for a reason of its own; the others can."""

    def __init__(self, cause: StrandlineError) -> None:
        super().__init__(str(cause), hint=cause.hint)
        self.cause = cause


@dataclass
class RepositoryScan:
    """A repository of the list, and what became of it; both are None if it was not reached."""

    repository: ListedRepository
    outcome: Outcome | None = None
    error: StrandlineError | None = None
    digest: bytes = b""
    seconds: float = 0.0
    findings: int = 0
    open: int = 0

    @property
    def counted(self) -> str:
        """Return how much was scanned, for people."""
        if self.outcome is None:
            return "not scanned"
        outcome, failed = self.outcome, failed_items(self.outcome)
        found = outcome.statuses.get(DoneStatus.SCANNED_WITH_FINDINGS, 0)
        text = f"{in_items(outcome.items)}, {outcome.new_items:,} scanned now, {found:,} with findings"
        return f"{text}, {failed:,} not scanned completely" if failed else text

    def record(self) -> Record:
        """Return it for programs."""
        status = "failed" if self.error else "not scanned" if self.outcome is None else "scanned"
        named: Record = {"name": self.repository.shown, "line": self.repository.line, "status": status}
        if self.error is not None:
            return {**named, "error": str(self.error), "hint": in_cli_words(self.error.hint or "")}
        if self.outcome is None:
            return named
        return {
            **named,
            "items": self.outcome.items,
            "looked_at": self.outcome.new_items,
            "whole": self.outcome.is_whole,
            "findings": self.findings,
            "open": self.open,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class RepositoriesScan:
    """The scans of a list of repositories."""

    state: State
    repositories: Sequence[ListedRepository]
    source_of: MakeSource
    request_of: MakeRequest
    run_on: WorkerOptions
    results: ResultOptions
    scans: list[RepositoryScan] = field(init=False)

    def __post_init__(self) -> None:
        self.scans = [RepositoryScan(one) for one in self.repositories]

    def run(
        self,
        monitoring: Monitoring,
        told_of: "Callable[[], AbstractContextManager[ScanAlarms | NoAlarms]]",
    ) -> None:
        """Scan all, print the results, and leave with the exit code."""
        self.results.check(self.state.key)
        try:
            with (
                ScanProgress(quiet=self.results.quiet, log=monitoring.log) as progress,
                told_of() as told,
                monitoring.serve(progress.counts.metrics, *told.metric_sources, health=progress.counts.health()),
            ):
                self._scan_all(progress)
                if self._outcomes:
                    parked = sum(one.parked_shards for one in self._outcomes)
                    told.ended(replace(self._outcomes[-1], parked_shards=parked), self._report, self._problem)
                else:  # nothing is known of findings
                    told.stopped(self._problem)
        except KeyboardInterrupt:
            self.results.show_interrupted(self._report())
        self._show()

    @property
    def _outcomes(self) -> list[Outcome]:
        return [one.outcome for one in self.scans if one.outcome is not None]

    @property
    def _failed(self) -> list[RepositoryScan]:
        return [one for one in self.scans if one.error is not None]

    @property
    def _problem(self) -> str | None:
        count = len(self._failed)
        what = "1 repository" if count == 1 else f"{count:,} repositories"
        return f"{what} of {len(self.scans):,} could not be scanned" if count else None

    def _scan_all(self, progress: ScanProgress) -> None:
        workers = self.run_on.workers(progress.tell)
        seen: dict[bytes, ListedRepository] = {}
        for number, one in enumerate(self.scans, 1):
            name, began = f"[{number}/{len(self.scans)}] {one.repository.shown}", time.monotonic()
            progress.show(name)
            try:
                self._scan_one(one, seen, workers, progress)
            except UnusableRepository as error:
                one.error = error.cause
                progress.warn(f"{name}: not scanned: {error}", event="repository", repository=one.repository.shown)
                if error.cause.hint:
                    progress.warn(f"hint: {in_cli_words(error.cause.hint)}")
            else:
                one.seconds = time.monotonic() - began
                progress.say(f"{name}: {one.counted}", event="repository", repository=one.repository.shown)

    def _scan_one(
        self, one: RepositoryScan, seen: dict[bytes, ListedRepository], workers: Workers, progress: ScanProgress
    ) -> None:
        try:
            source = self.source_of(one.repository)  # whatever fails here is about this repository alone
        except StrandlineError as error:
            raise UnusableRepository(error) from error
        first = seen.setdefault(source.instance, one.repository)
        if first is not one.repository:
            raise UnusableRepository(SameRepository(one.repository, first))
        request = self.request_of(self.state, source)
        one.digest = request.inputs_digest
        try:
            one.outcome = run_scan(request, workers, progress.tell)
        except _OF_ONE as error:
            raise UnusableRepository(error) from error

    def _report(self, *, coverage: bool = False) -> Report:
        """Return the report of the repositories that were scanned now, with that of an interrupted one so far."""
        stores, tenant = self.state.stores.state, self.state.tenant
        digests = [one.digest for one in self.scans if one.digest]
        inventories = [find_inventory(stores, tenant, one.digest) for one in self.scans if one.outcome is not None]
        unfinished = [find_unfinished(stores, tenant, digest) for digest in digests]
        report = build_report(
            self.state,
            inventories=[one for one in inventories if one is not None],
            unfinished=[one for one in unfinished if one is not None],
            coverage=coverage,
        )
        return self.results.chosen(report, self.state.key)

    def _show(self) -> None:
        report = self._report(coverage=self.results.with_coverage)
        failing = self.results.failing(report)
        self._count(report)
        summary: Record = {
            "repositories": [one.record() for one in self.scans],
            "failed": len(self._failed),
            "items": sum(one.items for one in self._outcomes),
            "looked_at": sum(one.new_items for one in self._outcomes),
            "findings": len(report.findings),
            "open": len(failing),
            "whole": not self._failed and all(one.is_whole for one in self._outcomes),
            "seconds": round(sum(one.seconds for one in self.scans), 3),
        }
        failed_now = sum(map(failed_items, self._outcomes))
        self._say_problem()
        self.results.show(report, summary, lambda: self._print(report, failed_now), failed=failed_now)
        if self._failed:
            raise typer.Exit(EXIT_FAILED)

    def _count(self, report: Report) -> None:
        """Count the findings of each repository; its number in the report is that among the scanned ones."""
        found = Counter(one.source for one in report.findings)
        failing = Counter(one.source for one in self.results.failing(report))
        for number, one in enumerate(one for one in self.scans if one.outcome is not None):
            one.findings, one.open = found[number], failing[number]

    def _say_problem(self) -> None:
        """Name the repositories that were not scanned, whatever else is printed or not."""
        if self._problem:
            names = ", ".join(one.repository.shown for one in self._failed)
            print(f"error: {self._problem}: {names}", file=sys.stderr)

    def _print(self, report: Report, failed_now: int) -> None:
        items, looked_at = (sum(getattr(one, name) for one in self._outcomes) for name in ("items", "new_items"))
        done = f"{len(self._outcomes):,} of {len(self.scans):,} repositories scanned"
        print(f"{done}: {items:,} items, {looked_at:,} scanned now", file=sys.stderr)
        if failed_now:
            print(
                f"{failed_now:,} items were not scanned completely: see `strandline findings coverage`", file=sys.stderr
            )
        for one in sorted(self.scans, key=lambda one: -one.open):
            if one.findings:
                print(f"  {one.repository.shown}: {one.findings:,} findings, {one.open:,} open", file=sys.stderr)
        print(f"findings: {len(report.findings):,}", file=sys.stderr)
