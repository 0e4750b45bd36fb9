"""What a scan says of itself to Prometheus, put together from its events.

Invariants: counters count what is committed, by this process and since its start; they never fall, although a scan may
have several runs, each with counts of its own.
"""

import threading
import time
from collections.abc import Iterable

from strandline.metrics.health import Health
from strandline.metrics.metric import Metric, Sample, counter, gauge
from strandline.scan.events import Event, Listed, NoExecutor, Planned
from strandline.scan.run.progress import Progress, rates
from strandline.scan.run.totals import Totals

_PREFIX = "strandline_scan"
_COUNTED = {
    "items": "Items scanned.",
    "bytes": "Bytes scanned.",
    "findings": "Findings stored.",
    "failed": "Items that could not be scanned.",
    "skipped": "Items that were skipped.",
}
_NAMES = {"failed": "failed_items", "skipped": "skipped_items"}


def follow_metrics(offset: int, end: int, totals: Totals) -> Iterable[Metric]:
    """Return what tells how the scan of a journal that grows is doing: it is at an offset, of those below an end."""
    return [
        gauge(f"{_PREFIX}_follow_offset", "The offset up to which a journal is scanned.", offset),
        gauge(f"{_PREFIX}_follow_remaining_records", "Records of the journal that are left.", max(0, end - offset)),
        gauge(f"{_PREFIX}_follow_findings", "Findings stored, of all scans of the journal.", totals.findings),
    ]


class ScanCounts:
    """How a scan is doing; a listener for its events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listed = self._planned = 0
        self._past = Totals()
        self._now: Progress | None = None
        self._first: tuple[float, Progress] | None = None
        self._moved_s = time.time()
        self._missing_s = 0.0

    def tell(self, event: Event) -> None:
        """Take an event in."""
        with self._lock:
            match event:
                case Listed(items):
                    self._listed = max(self._listed, items)
                    self._moved_s = time.time()
                case Planned(plan):
                    self._listed, self._planned = plan.items, plan.todo_items
                    self._moved_s = time.time()
                case Progress():
                    self._take(event)
                case NoExecutor(seconds):
                    self._missing_s = seconds
                case _:
                    pass

    def _take(self, event: Progress) -> None:
        before = self._now
        if before is None or event.done.items < before.done.items or event.items_todo != before.items_todo:
            if before is not None:
                self._past = self._past.plus(before.done)  # another run began
            self._first = (time.monotonic(), event)
            self._past = self._past.minus(event.done)  # what was done before this process
        if before is None or event.done != before.done:
            self._moved_s, self._missing_s = time.time(), 0.0
        self._now = event

    def metrics(self) -> Iterable[Metric]:
        """Return what is known."""
        with self._lock:
            now, first, past = self._now, self._first, self._past
            listed, planned, moved_s, missing_s = self._listed, self._planned, self._moved_s, self._missing_s
        total = past.plus(now.done) if now is not None else Totals()
        for name, text in _COUNTED.items():
            yield counter(f"{_PREFIX}_{_NAMES.get(name, name)}_total", text, getattr(total, name))
        yield gauge(f"{_PREFIX}_listed_items", "Items that the sources have.", listed)
        yield gauge(f"{_PREFIX}_planned_items", "Items that were left to scan at the last plan.", planned)
        active = (0, 0, 0) if now is None else (now.shards_active, now.shards_done, now.shards_parked)
        states = zip(("active", "done", "parked"), active, strict=True)
        shards = [Sample(count, {"state": state}) for state, count in states]
        yield Metric(f"{_PREFIX}_shards", "gauge", "Shards of the run, by state.", shards)
        rate = None if now is None or first is None else rates(first[1], now, time.monotonic() - first[0])
        yield gauge(f"{_PREFIX}_items_per_second", "Rate since the run began.", rate.items_per_s if rate else 0)
        yield gauge(f"{_PREFIX}_bytes_per_second", "Rate since the run began.", rate.bytes_per_s if rate else 0)
        left = [Sample(rate.left_s)] if rate is not None and rate.left_s is not None else []
        yield Metric(f"{_PREFIX}_remaining_seconds", "gauge", "Time left at these rates.", left)
        yield gauge(f"{_PREFIX}_last_progress_timestamp_seconds", "When the scan last moved on.", moved_s)
        yield gauge(f"{_PREFIX}_executor_missing_seconds", "How long the cluster has given no executor.", missing_s)

    def health(self) -> Health:
        """Return the checks: a scan whose cluster gives no executor does no work."""

        def executors() -> str | None:
            with self._lock:
                return f"the cluster has given no executor for {self._missing_s:.0f} s" if self._missing_s else None

        def shards() -> str | None:
            with self._lock:
                parked = self._now.shards_parked if self._now is not None else 0
            return f"{parked} shards are parked: they failed again and again" if parked else None

        return Health(ready={"executors": executors, "shards": shards})
