"""Delivery: notices of an outbox to receivers, each at least once and in order, tried again with growing pauses.

Invariants: a notice leaves the outbox after its receiver took it. For each alarm and receiver the oldest notice goes
first. One process delivers for a folder at a time. Notices for a receiver that is not configured here are left to a
process that has it, and dropped after `UNCLAIMED_S`.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from strandline.alarms.alarm import Alarm, Pending, delivered, failed, next_due
from strandline.alarms.outbox import Outbox
from strandline.alarms.receivers import NotTaken, Receiver
from strandline.clock import NS_PER_S, Clock, SystemClock

PAUSE_S = 1.0
PAUSE_MAX_S = 300.0
UNCLAIMED_S = 7 * 86_400


def pause_s(attempts: int) -> float:
    """Return the pause after so many attempts that failed."""
    return min(PAUSE_MAX_S, PAUSE_S * float(1 << min(attempts, 20)))


class Attempt(NamedTuple):
    """An attempt: the notice, and why it was not taken; empty if it was."""

    pending: Pending
    error: str


class Delivery:
    """Brings the notices of an outbox to receivers."""

    def __init__(self, outbox: Outbox, receivers: Sequence[Receiver], clock: Clock | None = None) -> None:
        self._outbox = outbox
        self._receivers = {receiver.name: receiver for receiver in receivers}
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self.delivered = 0
        self.failed = 0

    def run(self, *, now: bool = False) -> list[Attempt]:
        """Send what is due, or with `now` all that is left; nothing while another process delivers."""
        if not self._outbox.folder.is_dir():
            return []
        with self._lock, self._outbox.locked("delivery.lock", wait=False) as is_held:
            if not is_held:
                return []
            return [attempt for alarm in self._outbox.alarms() for attempt in self._deliver(alarm, now=now)]

    def _deliver(self, alarm: Alarm, *, now: bool) -> list[Attempt]:
        attempts: list[Attempt] = []
        old_ns = self._clock.now_ns() - UNCLAIMED_S * NS_PER_S
        others = (each for each in alarm.pending if each.receiver not in self._receivers)
        gone = [each for each in others if each.notice.at_ns < old_ns]
        for each in gone:
            self._outbox.change(alarm, lambda known, each=each: delivered(known, each))  # type: ignore[misc]
        for name, receiver in self._receivers.items():
            left: Alarm | None = alarm
            while left is not None and (pending := next_due(left, name)) is not None:
                if pending.due_ns > self._clock.now_ns() and not now:
                    break
                attempt = self._attempt(receiver, pending)
                attempts.append(attempt)
                left = self._noted(alarm, attempt)
                if attempt.error:
                    break
        return attempts

    def _attempt(self, receiver: Receiver, pending: Pending) -> Attempt:
        try:
            receiver.send(pending.notice)
        except NotTaken as error:
            self.failed += 1
            return Attempt(pending, f"{error} ({error.hint})" if error.hint else str(error))
        self.delivered += 1
        return Attempt(pending, "")

    def _noted(self, alarm: Alarm, attempt: Attempt) -> Alarm | None:
        pending, error = attempt
        if not error:
            return self._outbox.change(alarm, lambda known: delivered(known, pending))
        due_ns = self._clock.now_ns() + int(pause_s(pending.attempts) * NS_PER_S)
        return self._outbox.change(alarm, lambda known: failed(known, pending, error, due_ns))
