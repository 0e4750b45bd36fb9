"""Conditions of a running process, looked at again and again, and their alarms, delivered beside it.

Invariants: the process that is watched never waits for a receiver, and never fails because of one. What is told with
`tell` is durable when it returns. At the end what is left is tried once more, and stays in the outbox otherwise.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from strandline.alarms.alarm import KINDS, Condition
from strandline.alarms.delivery import Delivery
from strandline.alarms.outbox import Outbox
from strandline.alarms.settings import AlarmSettings
from strandline.errors import StrandlineError
from strandline.metrics import Metric, Sample, counter, gauge

ConditionSource = Callable[[], Iterable[Condition]]
logger = logging.getLogger("strandline.alarms")


class AlarmWatch:
    """Raises and resolves alarms of a process; use it in a `with` statement. Without receivers it does nothing."""

    def __init__(self, settings: AlarmSettings, *sources: ConditionSource) -> None:
        self.settings = settings
        self._sources = list(sources)
        receivers = settings.receivers()
        self.outbox = Outbox(settings.folder, tuple(receiver.name for receiver in receivers))
        self.delivery = Delivery(self.outbox, receivers)
        self._wake = threading.Event()
        self._is_ending = False
        self._threads = [
            threading.Thread(target=self._run, args=(step,), name=f"strandline-alarms-{name}", daemon=True)
            for name, step in (("look", self.look), ("delivery", self._deliver))
        ]

    def add(self, source: ConditionSource) -> None:
        """Look at a further source of conditions."""
        self._sources.append(source)

    def tell(self, seen: Condition) -> None:
        """Take a condition in, durably."""
        if self.settings.is_configured and (not self.settings.kinds or seen.kind in self.settings.kinds):
            self.outbox.observe(seen)
            self._wake.set()

    def look(self) -> None:
        """Look at all conditions once."""
        for source in list(self._sources):
            for seen in source():
                self.tell(seen)

    def _deliver(self) -> None:
        self.delivery.run()

    def _run(self, step: Callable[[], None]) -> None:
        while not self._is_ending:
            try:
                step()
            except (StrandlineError, OSError) as error:
                logger.warning("alarms: %s", error)
            except Exception:
                logger.exception("alarms: a look failed")
            self._wake.wait(self.settings.look_every_s)
            self._wake.clear()

    def metrics(self) -> Iterable[Metric]:
        """Return what tells how alarms are doing."""
        alarms = self.outbox.alarms()
        firing = Counter(alarm.kind for alarm in alarms if alarm.is_firing)
        left = sum(len(alarm.pending) for alarm in alarms)
        samples = [Sample(firing[kind], {"kind": kind}) for kind in KINDS]
        return [
            Metric("strandline_alarms_firing", "gauge", "Alarms that are raised and not resolved.", samples),
            gauge("strandline_alarms_undelivered", "Notices that a receiver has not taken.", left),
            counter("strandline_alarms_delivered_total", "Notices that were taken.", self.delivery.delivered),
            counter("strandline_alarms_failed_attempts_total", "Attempts that failed.", self.delivery.failed),
        ]

    def __enter__(self) -> Self:
        """Begin to look and to deliver."""
        if self.settings.is_configured:
            for thread in self._threads:
                thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look and deliver once more, and end."""
        if not self.settings.is_configured:
            return
        self._is_ending = True
        for thread in self._threads:
            self._wake.set()
            thread.join()
        try:
            self.delivery.run()
        except (StrandlineError, OSError) as problem:
            logger.warning("alarms: %s", problem)
