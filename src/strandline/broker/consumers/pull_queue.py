"""The pulls that wait at a consumer: who is next, and who has waited long enough.

Invariants: pulls are served in turns; one that still wants more goes behind the others (with priorities: behind those
of its own priority). A pull that has expired, or that nobody listens for any more, is not served. Pure: times come in.
"""

from collections.abc import Callable
from dataclasses import dataclass

from strandline.broker.api.consumer_requests import PullRequest

NO_PRIORITY = 2**31 - 1
BEAT_MIN_NS = 50_000_000
"""How often heartbeats come at most, whatever a client asks for."""


@dataclass(slots=True)
class Pull:
    """One request for messages, and what is left of it."""

    inbox: bytes
    wanted: int
    size: int
    """How many bytes may still be sent; 0 for any number."""
    no_wait: bool
    expires_ns: int
    """When it ends; 0 for never."""
    every_ns: int
    """How often a heartbeat is wanted; 0 for never."""
    beat_ns: int
    group: str
    pin: str
    min_pending: int
    min_ack_pending: int
    priority: int
    received_ns: int
    delivered: int = 0


def make_pull(inbox: bytes, request: PullRequest, now_ns: int, *, is_formal: bool) -> Pull:
    """Return a request as it waits."""
    every_ns = max(request.idle_heartbeat, BEAT_MIN_NS) if request.idle_heartbeat > 0 else 0
    return Pull(
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
        request.priority if is_formal else NO_PRIORITY,
        now_ns,
    )


class Pulls:
    """The pulls that wait, first come first served."""

    def __init__(self, waiting_max: int, *, by_priority: bool = False) -> None:
        self.waiting_max = waiting_max
        self._by_priority = by_priority
        self._waiting: list[Pull] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        return len(self._waiting) >= self.waiting_max

    @property
    def wanted(self) -> int:
        """How many messages are asked for by all of them."""
        return sum(pull.wanted for pull in self._waiting)

    def add(self, pull: Pull) -> None:
        """Let a pull wait, behind those of its priority."""
        waiting = self._waiting
        if not self._by_priority or not waiting or waiting[-1].priority <= pull.priority:
            waiting.append(pull)
            return
        at = next(at for at, other in enumerate(waiting) if other.priority > pull.priority)
        waiting.insert(at, pull)

    def first(self) -> Pull | None:
        """Return the one whose turn it is."""
        return self._waiting[0] if self._waiting else None

    def rivals(self) -> int:
        """Return how many share the turn with the first, itself included."""
        if not self._by_priority:
            return len(self._waiting)
        priority = self._waiting[0].priority
        return sum(pull.priority == priority for pull in self._waiting)

    def rotate(self) -> None:
        """Let the first wait for its next turn."""
        if len(self._waiting) > 1:
            self.add(self._waiting.pop(0))

    def remove_first(self) -> None:
        """Take the first out."""
        del self._waiting[0]

    def take_all(self) -> list[Pull]:
        """Take all of them out."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def keep(self, wanted: Callable[[Pull], bool]) -> None:
        """Keep those of which somebody says so."""
        self._waiting = [pull for pull in self._waiting if wanted(pull)]

    def inboxes(self) -> list[bytes]:
        """Return where each of them wants its messages."""
        return [pull.inbox for pull in self._waiting]

    def any_no_wait(self) -> bool:
        """Tell whether one of them does not want to wait."""
        return any(pull.no_wait for pull in self._waiting)
