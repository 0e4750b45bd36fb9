"""When a batch is complete; pure.

Invariants: batches come out in the order they went in. Nothing here looks at single updates in Python.
"""

from dataclasses import dataclass, field

from strandline.errors import InvalidInput
from strandline.kv import UpdateBatch
from strandline.protocol import flushes

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Batching:
    """A batch is stored when it is `window_s` old, or has so many updates or bytes, whichever comes first.

    While a batch is being stored the next one gathers, so that under load batches grow by themselves; when the next one
    is full, nothing more is received. So memory holds about two batches. A longer window makes fewer, larger writes
    where updates trickle in, and every update later by as much.
    """

    window_s: float = 0.002
    updates_max: int = 65_536
    bytes_max: int = 16 * MIB

    def __post_init__(self) -> None:
        if self.window_s < 0 or self.updates_max < 1 or self.bytes_max < 1:
            raise InvalidInput("a batch has at least one update and one byte, and a window that is not negative")


@dataclass(slots=True)
class PendingUpdates:
    """Updates that were received and not yet stored."""

    batches: list[UpdateBatch] = field(default_factory=list)
    updates: int = 0
    bytes: int = 0

    def add(self, batch: UpdateBatch) -> None:
        """Take a batch in, behind those that are there."""
        self.batches.append(batch)
        self.updates += len(batch)
        self.bytes += batch.byte_count

    def is_full(self, batching: Batching) -> bool:
        """Tell whether it is to be stored at once."""
        return self.updates >= batching.updates_max or self.bytes >= batching.bytes_max

    def before(self, later: "PendingUpdates") -> "PendingUpdates":
        """Return these updates and then those."""
        batches = [*flushes.requeue(self.batches, later.batches)]
        return PendingUpdates(batches, self.updates + later.updates, self.bytes + later.bytes)

    def __bool__(self) -> bool:
        return bool(self.batches)
