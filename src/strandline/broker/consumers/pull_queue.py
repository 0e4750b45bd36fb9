"""The waiting pulls of a consumer in their order, and the pin of its priority group.

Invariants: pulls are served round-robin; one that wants more goes behind the others (with priorities: behind those of
its own priority). At most one client holds the pin, as long as it pulls within the timeout. Pure.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from strandline.broker.api.consumer_requests import PullRequest

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NO_PRIORITY = 2**31 - 1
BEAT_MIN_NS = 50_000_000
"""The shortest heartbeat interval."""


@dataclass(slots=True)
class WaitingPull:
    """One pull request, and what is left of it."""

    inbox: bytes
    wanted: int
    size: int
    """How many bytes may still be sent, 0 for no limit."""
    no_wait: bool
    expires_ns: int
    """When the pull expires, 0 for never."""
    every_ns: int
    """The heartbeat interval, 0 for none."""
    beat_ns: int
    group: str
    pin: str
    min_pending: int
    min_ack_pending: int
    priority: int
    received_ns: int
    delivered: int = 0


def make_waiting_pull(inbox: bytes, request: PullRequest, now_ns: int, *, is_json: bool) -> WaitingPull:
    """Return a pull request as it is queued."""
    every_ns = max(request.idle_heartbeat, BEAT_MIN_NS) if request.idle_heartbeat > 0 else 0
    return WaitingPull(
        inbox,
        request.batch,
        request.max_bytes,
        request.no_wait,
        now_ns + request.expires if request.expires else 0,
        every_ns,
        now_ns + every_ns if every_ns else 0,
        request.group,
        request.id,
        request.min_pending,
        request.min_ack_pending,
        request.priority if is_json else NO_PRIORITY,
        now_ns,
    )


class PullQueue:
    """The waiting pulls, first come first served."""

    def __init__(self, waiting_max: int, *, by_priority: bool = False) -> None:
        self.waiting_max = waiting_max
        self._by_priority = by_priority
        self._waiting: list[WaitingPull] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether `max_waiting` is reached."""
        return len(self._waiting) >= self.waiting_max

    @property
    def wanted(self) -> int:
        """How many messages all pulls want together."""
        return sum(pull.wanted for pull in self._waiting)

    def add(self, pull: WaitingPull) -> None:
        """Queue a pull, behind those of its priority."""
        waiting = self._waiting
        if not self._by_priority or not waiting or waiting[-1].priority <= pull.priority:
            waiting.append(pull)
            return
        at = next(at for at, other in enumerate(waiting) if other.priority > pull.priority)
        waiting.insert(at, pull)

    def first(self) -> WaitingPull | None:
        """Return the first pull, None if there is none."""
        return self._waiting[0] if self._waiting else None

    def rivals(self) -> int:
        """Return how many pulls have the priority of the first, itself included."""
        if not self._by_priority:
            return len(self._waiting)
        priority = self._waiting[0].priority
        return sum(pull.priority == priority for pull in self._waiting)

    def rotate(self) -> None:
        """Move the first pull behind the others."""
        if len(self._waiting) > 1:
            self.add(self._waiting.pop(0))

    def remove_first(self) -> None:
        """Remove the first pull."""
        del self._waiting[0]

    def take_all(self) -> list[WaitingPull]:
        """Remove and return all pulls."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def keep(self, wanted: Callable[[WaitingPull], bool]) -> None:
        """Keep the pulls for which `wanted` is true."""
        self._waiting = [pull for pull in self._waiting if wanted(pull)]

    def inboxes(self) -> list[bytes]:
        """Return the reply subjects of all pulls."""
        return [pull.inbox for pull in self._waiting]

    def any_no_wait(self) -> bool:
        """Tell whether some pull has `no_wait`."""
        return any(pull.no_wait for pull in self._waiting)


class Pin:
    """The pin of a consumer's priority group."""

    def __init__(self, timeout_ns: int) -> None:
        self.timeout_ns = timeout_ns
        self.identifier = ""
        self.since_ns = 0
        self.until_ns: int | None = None

    def give(self, now_ns: int) -> str:
        """Pin the group to a new client; return the pin id."""
        self.identifier = "".join(secrets.choice(_LETTERS) for _ in range(22))
        self.since_ns = now_ns
        self.prolong(now_ns)
        return self.identifier

    def prolong(self, now_ns: int) -> None:
        """Extend the pin by the timeout."""
        self.until_ns = now_ns + self.timeout_ns

    def release(self) -> None:
        """Release the pin."""
        self.identifier = ""
        self.since_ns = 0
        self.until_ns = None
