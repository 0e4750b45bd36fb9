"""`strandline demo`: the whole promise in half a minute.

A small corpus with planted fake secrets is scanned on Spark; the scan is killed in the middle, goes on, and comes to
the same findings as an undisturbed one; scanning again finds nothing to do; with one rule changed only that rule
runs. What is left is a folder with the corpus, the state and an HTML report.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.demo_corpus import Planted, plant
from strandline.cli.findings_list import print_findings
from strandline.cli.output import AsJson, emit
from strandline.cli.scan_progress import ScanProgress
from strandline.detect import RuleSet, load_builtin
from strandline.errors import InvalidInput, StrandlineError
from strandline.extras import require
from strandline.findings.export import write_report
from strandline.findings.report_builder import scan_report
from strandline.findings.reports import Report, ReportFormat
from strandline.lazy_imports import deferred
from strandline.scan import Event, Outcome, Progress, Reason, ScanRequest
from strandline.scan.sources import FileSource, GitSource, JournalSource, Source, TableSource
from strandline.scan.state import State, open_state

if TYPE_CHECKING:
    from strandline import spark
else:
    spark = deferred("strandline.spark")

KILL_AFTER_ITEMS = 1_000
LEASE_S = 3.0
START_S = 120.0
CHANGED_RULE = "sendgrid-key"
_MARK = ".strandline-demo"
_CHILD = "import sys; from strandline.cli.demo import scan_and_tell; scan_and_tell(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, in figures."""

    folder: str
    report: str
    planted: int
    items: int
    items_before_kill: int
    findings: int
    findings_undisturbed: int
    again_looked_at: int
    again_s: float
    rule_changed_items: int
    rule_changed_s: float


Folder = Annotated[
    Path, typer.Option("--folder", metavar="PATH", help="Folder for sample, state and report; replaced.")
]


def demo(folder: Folder = Path("strandline-demo"), as_json: AsJson = False) -> None:
    """Scan a sample with planted secrets, kill the scan, resume it, and check that no work is repeated.

    Exit code 1 if a promise is broken.
    """
    require("scan", "hyperscan")
    require("spark", "pyspark")
    teller = _Teller(quiet=as_json)
    _make_anew(folder)
    began = time.monotonic()
    planted = plant(folder / "corpus")
    teller.step(
        f"Planted {len(planted.secrets)} fake secrets in {folder / 'corpus'}: files, an archive, "
        f"{'a git history, ' if planted.git else ''}a Parquet table and a journal ({time.monotonic() - began:.1f} s)."
    )
    if planted.git is None:
        teller.say("git is not installed: the sample has no git history.")
    killed_at = _scan_and_kill(folder)
    teller.step(f"Started a scan on Spark, and killed all its processes (SIGKILL) after {killed_at:,} committed items.")
    story = _go_on(folder, planted, killed_at, teller)
    if as_json:
        emit(asdict(story), as_json=True)


def _go_on(folder: Path, planted: Planted, killed_at: int, teller: "_Teller") -> Story:
    rules = load_builtin()
    with open_state(str(folder / "state"), create=True) as state:
        resumed, resumed_s = _scan(state, folder, rules, teller)
        report = scan_report(state, _request(state, folder, rules).inputs_digest, coverage=True)
        looked = resumed.progress.done.items if resumed.progress else 0
        teller.step(
            f"The same command resumed the run: at least {killed_at:,} of {looked:,} items were not scanned again; "
            f"the rest took {resumed_s:.1f} s, with the start of Spark and the leases of the killed workers."
        )
        teller.findings(report)
        _check_planted(planted, report)
        calm = _undisturbed(folder, rules, state, teller)
        if _rows(calm) != _rows(report):
            raise StrandlineError("the findings of the killed scan differ from those of an uninterrupted one")
        teller.step(f"An uninterrupted scan has the same {len(calm.findings)} findings, id for id.")
        again, again_s = _scan(state, folder, rules, teller)
        again_items = sum(again.reasons.get(reason, 0) for reason in Reason if reason is not Reason.DONE)
        teller.step(f"Scanned again: {again.items:,} items, {again_items} to scan; {again_s:.2f} s.")
        changed, changed_s = _scan(state, folder, _with_changed_rule(rules), teller)
        by_rule = changed.reasons.get(Reason.RULES, 0)
        teller.step(f"Changed the rule {CHANGED_RULE}: {by_rule:,} items scanned for it alone, in {changed_s:.1f} s.")
        page = folder / "report.html"
        write_report(report, ReportFormat.HTML, page)
        teller.step(f"The report is {page.absolute()}")
        teller.say(f"See also: strandline findings list --state {folder / 'state'}")
        teller.say(f"In a browser: strandline ui --state {folder / 'state'}, or strandline ui --demo for every page")
    return Story(
        folder=str(folder),
        report=str(page.absolute()),
        planted=len(planted.secrets),
        items=resumed.items,
        items_before_kill=killed_at,
        findings=len(report.findings),
        findings_undisturbed=len(calm.findings),
        again_looked_at=again_items,
        again_s=again_s,
        rule_changed_items=by_rule,
        rule_changed_s=changed_s,
    )


def scan_and_tell(folder: str) -> None:
    """Scan the corpus and print how many items are committed, as a child process that is killed meanwhile."""

    def tell(event: Event) -> None:
        if isinstance(event, Progress):
            print(event.done.items, flush=True)

    with open_state(str(Path(folder) / "state"), create=True) as state:
        spark.scan_on_spark(_request(state, Path(folder), load_builtin()), spark.session, tell)


def _scan_and_kill(folder: Path) -> int:
    """Let a child scan until some of it is committed, kill it and all its children, and return how much that was."""
    command = [sys.executable, "-c", _CHILD, str(folder)]
    items = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:  # noqa: S603
        guard = threading.Timer(START_S, lambda: os.killpg(child.pid, signal.SIGKILL))
        guard.start()
        for line in child.stdout or ():
            items = int(line)
            if items >= KILL_AFTER_ITEMS:
                os.killpg(child.pid, signal.SIGKILL)
                break
        guard.cancel()
        child.wait()
    if child.returncode != -signal.SIGKILL:
        raise StrandlineError(f"the scan ended before it was killed ({child.returncode})", hint="see its message above")
    return items


def _undisturbed(folder: Path, rules: RuleSet, state: State, teller: "_Teller") -> Report:
    """Scan everything anew, under the same key, in a state of its own that is removed afterwards."""
    calm = folder / "undisturbed"
    key = folder / "state" / f"tenant-{state.name}.key"
    with open_state(str(calm), key_file=key, create=True) as other:
        _scan(other, folder, rules, teller)
        report = scan_report(other, _request(other, folder, rules).inputs_digest, coverage=False)
    shutil.rmtree(calm)
    return report


def _scan(state: State, folder: Path, rules: RuleSet, teller: "_Teller") -> tuple[Outcome, float]:
    began = time.monotonic()
    with ScanProgress(quiet=teller.quiet) as progress:
        outcome = spark.scan_on_spark(_request(state, folder, rules), spark.session, progress.tell)
    return outcome, time.monotonic() - began


def _request(state: State, folder: Path, rules: RuleSet) -> ScanRequest:
    return ScanRequest(
        sources=_sources(folder / "corpus"),
        rules=rules,
        tenant=state.tenant,
        key=state.key,
        address=state.address,
        lease_ttl_s=LEASE_S,
    )


def _sources(corpus: Path) -> tuple[Source, ...]:
    git: Sequence[Source] = [GitSource.at(corpus / "service.git")] if (corpus / "service.git").exists() else []
    table = TableSource.at(f"parquet:{corpus / 'customers'}", key="id")
    return (FileSource.at(corpus / "files"), *git, table, JournalSource.at(corpus / "events"))


def _with_changed_rule(rules: RuleSet) -> RuleSet:
    return RuleSet(
        tuple(replace(rule, entropy=rule.entropy + 0.1) if rule.id == CHANGED_RULE else rule for rule in rules.rules),
        rules.allowlists,
    )


def _check_planted(planted: Planted, report: Report) -> None:
    """Refuse a report that lacks a secret which was planted, or has one that was not."""
    wanted = Counter(rule for _, rule in planted.secrets)
    found = Counter(finding.rule_id for finding in report.findings)
    if wanted != found:
        raise StrandlineError(
            f"planted but not found: {dict(wanted - found)}; found but not planted: {dict(found - wanted)}"
        )


def _rows(report: Report) -> list[tuple[str, str, str]]:
    return sorted((one.finding_id, one.rule_id, one.display) for one in report.findings)


def _make_anew(folder: Path) -> None:
    """Make the folder, or make it anew if it is one of ours."""
    if folder.exists():
        if not (folder / _MARK).is_file():
            raise InvalidInput(f"{folder} exists and was not made by `strandline demo`", hint="give another --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()


class _Teller:
    """Says what happens, step by step."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self._steps = 0

    def step(self, text: str) -> None:
        """Say what was done."""
        self._steps += 1
        self.say(f"{self._steps}. {text}")

    def say(self, text: str) -> None:
        """Say something."""
        if not self.quiet:
            print(text, flush=True)

    def findings(self, report: Report) -> None:
        """Show what was found."""
        if not self.quiet:
            print_findings(report, as_json=False)
