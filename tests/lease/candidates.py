"""Candidates for a lease over a memory store, with a clock that moves when told."""

from collections.abc import Callable

from strandline.clock import NS_PER_S
from strandline.lease import Claimant, LeaseRecord, LeaseTiming, ObjectLeaseStore
from strandline.objects import MemoryObjects

KEY = "orders/lease"
TTL_S, MARGIN_S = 10.0, 1.0
TIMING = LeaseTiming(TTL_S, renew_s=2.0, margin_s=MARGIN_S)


class ElapsedTime:
    """A monotonic clock."""

    def __init__(self) -> None:
        self.ns = 1_000 * NS_PER_S

    def __call__(self) -> int:
        """Return its time."""
        return self.ns

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.ns += int(seconds * NS_PER_S)


class SharedLease:
    """One store, and candidates that share its record."""

    def __init__(self, objects: MemoryObjects | None = None) -> None:
        self.objects = objects or MemoryObjects()
        self.time = ElapsedTime()

    def candidate(
        self, holder: str = "a", *, floor: Callable[[], int] = lambda: 0, now_ns: Callable[[], int] | None = None
    ) -> Claimant:
        """Return a candidate that has just started."""
        store = ObjectLeaseStore(self.objects, KEY)
        return Claimant(store, holder, timing=TIMING, floor=floor, now_ns=now_ns or self.time)

    def record(self) -> LeaseRecord | None:
        """Return what the store holds."""
        found = ObjectLeaseStore(self.objects, KEY).read()
        return found.record if found else None

    def epoch(self) -> int:
        """Return the epoch that the store holds, 0 if there is no record."""
        record = self.record()
        return record.epoch if record else 0


def epoch_of(candidate: Claimant) -> int:
    """Return the epoch that a candidate holds, 0 if it holds none."""
    tenure = candidate.tenure
    return tenure.record.epoch if tenure else 0
