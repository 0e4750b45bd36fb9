"""Alarms of a scan: findings that are open, and a scan that ended before it was done.

Invariant: an alarm names rules, counts and ids of findings; no path and no byte of what was scanned.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256

from strandline.alarms import AlarmWatch, Condition
from strandline.findings.filters import StateName
from strandline.findings.reports.values import Report
from strandline.metrics import MetricSource
from strandline.scan import Outcome

FINDINGS, STOPPED = "findings", "scan_stopped"


class ScanAlarms:
    """What a scan tells."""

    def __init__(self, alarms: AlarmWatch, subject: str) -> None:
        self._alarms = alarms
        self.metric_sources: tuple[MetricSource, ...] = (alarms.metrics,)
        self._subject = subject

    def ended(self, outcome: Outcome, make_report: Callable[[], Report], problem: str | None = None) -> None:
        """Tell the result of a scan: findings that are open, and shards that are parked or another problem."""
        if not self._alarms.settings.is_configured:
            return
        report = make_report()
        opened = [finding for finding in report.findings if finding.state == StateName.OPEN.value]
        rules = Counter(finding.rule_id for finding in opened)
        ids = sorted(finding.finding_id for finding in opened)
        found = f"{len(opened):,} findings are open" if opened else None
        key = sha256("\n".join(ids).encode()).hexdigest()[:16] if opened else ""
        details: dict[str, str | int | float] = {"open": len(opened), "rules": ", ".join(sorted(rules))}
        self._alarms.tell(Condition(FINDINGS, self._subject, found, key, details))
        parked = outcome.parked_shards
        self.stopped(f"{parked} shards failed again and again, and are parked" if parked else problem)

    def stopped(self, problem: str | None) -> None:
        """Tell that a scan ended before it was done, or that it did not."""
        self._alarms.tell(Condition(STOPPED, self._subject, problem))


@contextmanager
def scan_alarms(alarms: AlarmWatch, subject: str) -> Iterator[ScanAlarms]:
    """Tell of a scan that the block runs; one that raises has stopped."""
    told = ScanAlarms(alarms, subject)
    try:
        yield told
    except BaseException as error:
        told.stopped(f"the scan ended before it was done: {type(error).__name__}")
        raise
