"""`strandline scan --journal PATH --follow`: scan a journal as it grows, until a signal."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from strandline.cli.metrics_options import Monitoring
from strandline.cli.scan_progress import ScanProgress
from strandline.cli.scan_results import ResultOptions
from strandline.findings.report_builder import scan_report
from strandline.journal import JournalReader
from strandline.scan import ScanRequest
from strandline.scan.metrics import follow_metrics
from strandline.scan.sources import JournalSource
from strandline.scan.state import State
from strandline.spark.errors import spark_errors
from strandline.spark.executor_watch import watch_executors
from strandline.spark.journal_scan.inventory import inventory_digest
from strandline.spark.journal_scan.scan import JournalScan, scan_journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.cli.scan import NoAlarms
    from strandline.cli.scan_alarms import ScanAlarms

_LOOK_EVERY_S = 0.5


def follow(
    state: State,
    request: ScanRequest,
    source: JournalSource,
    factory: Callable[[], "SparkSession"],
    results: ResultOptions,
    monitoring: Monitoring,
    told_of: "Callable[[str], AbstractContextManager[ScanAlarms | NoAlarms]]",
) -> None:
    """Scan the journal of a request until Ctrl-C or SIGTERM, then print its findings."""
    results.check(state.key)
    subject = f"following scan {inventory_digest(request).hex()[:12]} of {state.address}"
    with told_of(subject) as told, spark_errors():
        spark = factory()
        with (
            ScanProgress(quiet=results.quiet, log=monitoring.log) as progress,
            told_to_stop() as stop,
            JournalReader.open(os.fsdecode(source.folder)) as reader,
            scan_journal(spark, request, follow=True) as scan,
            monitoring.serve(
                lambda: follow_metrics(scan.offset, reader.next_offset, scan.totals),
                *told.metric_sources,
                health=progress.counts.health(),
            ),
        ):
            before, begin = scan.totals, scan.offset
            executors = watch_executors(spark)
            while not stop.is_set() and not scan.wait(_LOOK_EVERY_S):
                progress.show(_line(scan, reader.next_offset))
                if scan.offset > begin or scan.offset >= reader.next_offset:  # it works: it did not only start
                    told.stopped(None)
                missing = executors.missing() if executors is not None else None
                if missing is not None:
                    progress.tell(missing)
    done = scan.totals.items - before.items
    report = scan_report(state, inventory_digest(request), coverage=results.with_coverage)
    report = results.chosen(report, state.key)
    summary = {"next_offset": scan.offset, "blocks_looked_at": done, "findings": len(report.findings)}
    line = f"{source.name}: scanned up to offset {scan.offset:,}; findings: {len(report.findings):,}"
    results.show(report, summary, lambda: print(line, file=sys.stderr))


def _line(scan: JournalScan, end: int) -> str:
    left = max(0, end - scan.offset)
    return f"offset {scan.offset:,}, {left:,} records left, {scan.totals.findings:,} findings"


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set, instead of interrupting the scan."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
