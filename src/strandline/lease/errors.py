"""What a lease refuses, and why; part of the one tree of `strandline.errors`.

    InvalidInput
    └── InvalidLease             no lease can have such settings, or such a place
    Damaged
    └── LeaseDamaged             the record cannot be read, so its epoch is not known
    Unavailable
    └── LeaseUnanswered          the store did not answer a read within the limit
    Conflict
    ├── LeaseHeld                another process holds it
    ├── LeaseLost                it is not held, or no longer: do nothing under it
    └── FenceStale               the data was written under a greater epoch
    UnknownOutcome
    └── LeaseWriteUnanswered     the store did not answer a write within the limit

Invariants: no message holds a credential.
"""

from strandline.errors import Conflict, Damaged, InvalidInput, Unavailable, UnknownOutcome


class InvalidLease(InvalidInput):
    """Settings or a place that no lease can have."""


class LeaseDamaged(Damaged):
    """The record is not one of ours, or no longer whole; it was left alone, for its epoch is not known."""

    def __init__(self, address: str, problem: str) -> None:
        safe = "stop every holder, delete the record, and start them again with a floor: the highest epoch in your data"
        super().__init__(address, problem, safe=safe)
        self.address = address


class LeaseUnanswered(Unavailable):
    """The store did not answer a read in time; nothing was changed."""

    def __init__(self, address: str, limit_s: float) -> None:
        super().__init__(f"{address}: no answer within {limit_s:.1f} s", hint="check the store and the network")
        self.address = address
        self.limit_s = limit_s


class LeaseWriteUnanswered(UnknownOutcome):
    """The store did not answer a write in time: it may have been done, or may still be done."""

    def __init__(self, address: str, limit_s: float) -> None:
        super().__init__(f"{address}: no answer to a write within {limit_s:.1f} s", hint="read the record back")
        self.address = address
        self.limit_s = limit_s


class LeaseHeld(Conflict):
    """Another process holds the lease."""

    retryable = True

    def __init__(self, address: str, holder: str, holder_address: str, epoch: int) -> None:
        at = f" at {holder_address}" if holder_address else ""
        super().__init__(
            f"{address} is held by {holder}{at} under epoch {epoch}",
            hint="wait for it with acquire(), or send the work to its holder",
        )
        self.address = address
        self.holder = holder
        self.holder_address = holder_address
        self.epoch = epoch


class LeaseLost(Conflict):
    """The lease is not held, or no longer, or under another epoch; `epoch` is the expected one, 0 if none."""

    def __init__(self, address: str, epoch: int, reason: str) -> None:
        under = f" under epoch {epoch}" if epoch else ""
        super().__init__(
            f"{address} is not held{under}: {reason}", hint="stop writing at once; acquire() leads under a new epoch"
        )
        self.address = address
        self.epoch = epoch
        self.reason = reason


class FenceStale(Conflict):
    """The data was written under a greater epoch: another process leads since then."""

    def __init__(self, epoch: int, found: int) -> None:
        super().__init__(
            f"epoch {epoch} is older than epoch {found}, under which the data was written",
            hint="stop writing: another holder leads",
        )
        self.epoch = epoch
        self.found = found
