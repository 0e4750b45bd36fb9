"""Atomic batches: messages that are staged until the batch is committed, and then stored all or none.

Invariants: the messages of a batch are numbered from 1 without a gap. The first error drops the batch. A batch without
a new message for ten seconds is abandoned, and so is one beyond the memory of its stream or of all streams. Nothing of
a batch is durable, or visible, before the commit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.broker.api import codes
from strandline.broker.api.config import StreamConfig
from strandline.broker.streams import headers as names
from strandline.broker.streams.admission import Draft

ID_MAX = 64
MESSAGES_MAX = 1_000
BATCHES_MAX = 50
BYTES_MAX = 64 << 20
"""Memory of the batches of one stream."""
ALL_BATCHES_MAX, ALL_BYTES_MAX = 1_000, 256 << 20
"""How many batches all streams may have together, and how much memory they may take."""
DRAFT_OVERHEAD = 600
"""Approximate memory of a message beside its bytes."""
IDLE_NS = 10_000_000_000
COMMIT, END = b"1", b"eob"


def _ignore(identifier: bytes, reason: str) -> None:
    del identifier, reason


@dataclass(slots=True)
class Staged:
    """One batch under way."""

    drafts: list[Draft] = field(default_factory=list)
    touched_ns: int = 0
    size: int = 0


@dataclass(slots=True)
class AllBatches:
    """How many batches some streams have together, and how large they are."""

    count: int = 0
    size: int = 0


class AtomicBatches:
    """The batches of one stream that are not committed yet."""

    def __init__(self) -> None:
        self._staged: dict[bytes, Staged] = {}
        self._size = 0
        self._all = AllBatches()
        self.on_abandoned: Callable[[bytes, str], None] = _ignore
        """Called with a batch that is given up, and why."""

    def __len__(self) -> int:
        return len(self._staged)

    def count_in(self, everything: AllBatches) -> None:
        """Count the batches of this stream with those of other streams; call it before there are any."""
        self._all = everything

    def stage(self, draft: Draft, config: StreamConfig, now_ns: int) -> list[Draft] | None:
        """Stage a message; return the whole batch when it is to be committed, or raise `ApiError`."""
        if not config.allow_atomic:
            raise codes.ATOMIC_PUBLISH_DISABLED.error()
        identifier = draft.special[names.BATCH_ID]
        if len(identifier) > ID_MAX:
            raise codes.ATOMIC_PUBLISH_INVALID_BATCH_ID.error()
        number = names.parse_number(draft.special.get(names.BATCH_SEQUENCE, b""))
        if number is None:
            raise codes.ATOMIC_PUBLISH_MISSING_SEQ.error()
        commit = draft.special.get(names.BATCH_COMMIT)
        if commit not in (None, COMMIT, END):
            self._take(identifier)
            raise codes.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT.error()
        staged = self._find(identifier, number, now_ns)
        if commit == END:
            self._take(identifier)
            if not staged.drafts:
                raise codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error()
            last = staged.drafts[-1]
            last.headers = names.with_headers(last.headers, [(names.BATCH_COMMIT, COMMIT)])
            return staged.drafts
        size = DRAFT_OVERHEAD + len(draft.subject) + len(draft.headers) + len(draft.payload)
        if self._size + size > BYTES_MAX or len(staged.drafts) >= MESSAGES_MAX:
            self._drop(identifier, "large")
            raise codes.ATOMIC_PUBLISH_TOO_LARGE_BATCH.with_text(size=MESSAGES_MAX)
        if self._all.size + size > ALL_BYTES_MAX:
            self._drop(identifier, "large")
            raise codes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.error()
        staged.size += size
        self._size += size
        self._all.size += size
        staged.drafts.append(draft)
        staged.touched_ns = now_ns
        if commit is None:
            return None
        self._take(identifier)
        return staged.drafts

    def _find(self, identifier: bytes, number: int, now_ns: int) -> Staged:
        staged = self._staged.get(identifier)
        if number == 1 and staged is None:
            if len(self._staged) >= BATCHES_MAX or self._all.count >= ALL_BATCHES_MAX:
                raise codes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.error()
            staged = self._staged[identifier] = Staged(touched_ns=now_ns)
            self._all.count += 1
        if staged is None or number != len(staged.drafts) + 1:
            self._drop(identifier, "incomplete")
            raise codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error()
        return staged

    def _take(self, identifier: bytes) -> bool:
        """Have a batch no more; return whether it was there."""
        staged = self._staged.pop(identifier, None)
        if staged is None:
            return False
        self._size -= staged.size
        self._all.size -= staged.size
        self._all.count -= 1
        return True

    def _drop(self, identifier: bytes, reason: str) -> None:
        if self._take(identifier):
            self.on_abandoned(identifier, reason)

    def abandon(self, now_ns: int) -> list[bytes]:
        """Drop the batches that were left alone for too long, and return their identifiers."""
        late = [name for name, staged in self._staged.items() if now_ns - staged.touched_ns >= IDLE_NS]
        for name in late:
            self._drop(name, "timeout")
        return late

    def next_ns(self) -> int | None:
        """Return when the next batch is abandoned, or None."""
        return min((staged.touched_ns + IDLE_NS for staged in self._staged.values()), default=None)

    def clear(self) -> None:
        """Drop everything."""
        for identifier in list(self._staged):
            self._take(identifier)
