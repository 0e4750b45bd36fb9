"""Conditions of a running process, looked at again and again, and their alarms, delivered beside it.

Invariants: the process that is watched never waits for a receiver, and never fails because of one. What is told with
`tell` is durable when it returns. A condition that cannot be asked or stored hides no other. Looks are `look_every_s`
apart. At the end there is one more look, what is due is sent, and the rest stays in the outbox.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from strandline.alarms.alarm import KINDS, Condition
from strandline.alarms.delivery import PAUSE_S, Delivery
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
        self._ending = threading.Event()
        self._due = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"strandline-alarms-{name}", daemon=True)
            for name, run in (("look", self._look_on), ("delivery", self._deliver_on))
        ]

    def add(self, source: ConditionSource) -> None:
        """Look at a further source of conditions."""
        self._sources.append(source)

    def tell(self, seen: Condition) -> None:
        """Take a condition in, durably."""
        if self.settings.is_configured and (not self.settings.kinds or seen.kind in self.settings.kinds):
            alarm = self.outbox.observe(seen)
            if alarm is not None and alarm.pending:
                self._due.set()

    def look(self) -> None:
        """Look at all conditions once."""
        for source in list(self._sources):
            with _logged():
                for seen in source():
                    with _logged():
                        self.tell(seen)

    def _look_on(self) -> None:
        while not self._ending.is_set():
            self.look()
            self._ending.wait(self.settings.look_every_s)

    def _deliver_on(self) -> None:
        while not self._ending.is_set():
            with _logged():
                self.delivery.run()
            self._due.wait(min(PAUSE_S, self.settings.look_every_s))
            self._due.clear()

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
        self._ending.set()
        self._due.set()
        for thread in self._threads:
            thread.join()
        self.look()
        with _logged():
            self.delivery.run()


@contextmanager
def _logged() -> Iterator[None]:
    """Log what fails in the block: the process that is watched goes on."""
    try:
        yield
    except (StrandlineError, OSError) as error:
        logger.warning("alarms: %s", error)
    except Exception:
        logger.exception("alarms: a look failed")
