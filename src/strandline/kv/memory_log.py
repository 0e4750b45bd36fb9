"""The memory twin's bucket: a log of updates under retention, as a JetStream stream keeps it; no clock, no asyncio.

Invariants: revisions are 1, 2, 3, … and never come back. At most `history` updates of a key are kept. `first_revision`
is the oldest update kept, or the next one if there is none; it never falls. A write that is refused changes nothing.
The size of an update is that of its key and value.
"""

import heapq
import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from strandline.errors import RecordTooLarge, StrandlineError
from strandline.kv.config import Discard, Retention, StoreConfig
from strandline.kv.entries import UpdateKind
from strandline.kv.errors import BucketFull, BucketPurged

NS = 1_000_000_000
IDENTITY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Record:
    """One update in the log; `expires_ns` of 0 is never. A marker stands for a value that expired."""

    revision: int
    kind: UpdateKind
    key: str
    value: bytes
    created_ns: int
    expires_ns: int = 0
    is_marker: bool = False

    @property
    def size(self) -> int:
        """Return what it counts for in a limit of bytes."""
        return len(self.key) + len(self.value)


class Listener(Protocol):
    """A listener to each update as it is written."""

    def tell(self, record: Record) -> None:
        """Hear of an update."""
        ...

    def lose(self, failure: StrandlineError) -> None:
        """Hear that the bucket is gone or was emptied, by its error."""
        ...


class MemoryLog:
    """The updates of one bucket, oldest first."""

    def __init__(self, name: str, config: StoreConfig) -> None:
        self.name = name
        self.config = config
        self.identity = secrets.token_bytes(IDENTITY_BYTES)
        self.last_revision = 0
        self.listeners: list[Listener] = []
        self._records: dict[int, Record] = {}
        self._of_key: dict[str, deque[int]] = {}
        self._expiries: list[tuple[int, int]] = []
        self._bytes = 0

    @property
    def first_revision(self) -> int:
        """Return the oldest revision kept, or the next to come."""
        return next(iter(self._records), self.last_revision + 1)

    @property
    def is_filled(self) -> bool:
        """Tell whether it holds an update."""
        return bool(self._records)

    @property
    def is_purged(self) -> bool:
        """Tell whether it holds nothing, though nothing but a purge of all removes the last update of a key."""
        return not self._records and not self.config.evicts_current_values

    def retention(self) -> Retention:
        """Return what is kept, now."""
        config = self.config
        overflows = config.discard is Discard.OLD and bool(config.updates_max or config.bytes_max)
        age_only = config.age_max_s > 0 and not (config.ttl or overflows)
        ttl_only = config.ttl and not (config.age_max_s or overflows)
        age_max_ns = int(config.age_max_s * NS)
        first, last = self.first_revision, self.last_revision
        kept = self.identity, len(self._records), not config.ttl
        return Retention(
            config.evicts_current_values, first, last, age_only, age_max_ns, *kept, ttl_only, config.history
        )

    def last_of(self, key: str) -> Record | None:
        """Return the last update of a key that is kept."""
        revisions = self._of_key.get(key)
        return self._records[revisions[-1]] if revisions else None

    def history_of(self, key: str) -> list[Record]:
        """Return the updates of a key that are kept, oldest first."""
        return [self._records[revision] for revision in self._of_key.get(key, ())]

    def latest(self) -> list[Record]:
        """Return the last update of every key, in the order of revisions."""
        return [self._records[revision] for revision in sorted(kept[-1] for kept in self._of_key.values())]

    def after(self, revision: int) -> Iterator[Record]:
        """Yield the updates after a revision."""
        return (record for record in list(self._records.values()) if record.revision > revision)

    def append(
        self,
        kind: UpdateKind,
        key: str,
        value: bytes,
        now_ns: int,
        ttl_s: float | None = None,
        *,
        is_marker: bool = False,
    ) -> Record:
        """Add an update and let retention do its work; `BucketFull` or `RecordTooLarge` if it is refused."""
        expires_ns = now_ns + int(ttl_s * NS) if ttl_s is not None else 0
        record = Record(self.last_revision + 1, kind, key, value, now_ns, expires_ns, is_marker)
        limit = self.config.value_bytes_max
        if limit and len(value) > limit:
            raise RecordTooLarge(len(value), limit, "value")
        if self.config.discard is Discard.NEW:
            self._refuse_beyond_limits(record)
        self._add(record)
        if kind is UpdateKind.PURGE:
            self._trim(key, 1)
        self._trim(key, self.config.history)
        self._evict_oldest()
        for listener in list(self.listeners):
            listener.tell(record)
        return record

    def expire(self, now_ns: int) -> None:
        """Remove what is too old; where a current value expires, a marker takes its place if the bucket is so set."""
        gone = []
        while self._expiries and self._expiries[0][0] <= now_ns:
            record = self._records.get(heapq.heappop(self._expiries)[1])
            if record is not None:
                gone.append((record, self.last_of(record.key) is record))
                self._remove(record)
        age_max_ns = int(self.config.age_max_s * NS)
        while age_max_ns and self._records:
            oldest = next(iter(self._records.values()))
            if oldest.created_ns + age_max_ns > now_ns:
                break
            gone.append((oldest, self.last_of(oldest.key) is oldest))
            self._remove(oldest)
        if self.config.marker_ttl_s:
            for record, was_current in gone:
                if was_current and record.kind is UpdateKind.PUT:
                    self.append(UpdateKind.PURGE, record.key, b"", now_ns, self.config.marker_ttl_s, is_marker=True)

    def remove_through(self, revision: int) -> None:
        """Remove every update up to a revision, as an operator's purge of the stream does."""
        was_filled = self.is_filled
        for record in list(self._records.values()):
            if record.revision <= revision:
                self._remove(record)
        if was_filled and self.is_purged:
            for listener in list(self.listeners):
                listener.lose(BucketPurged(self.name, self.last_revision, self.first_revision, self.last_revision))

    def _refuse_beyond_limits(self, record: Record) -> None:
        kept = self.history_of(record.key)
        freed = kept if record.kind is UpdateKind.PURGE else kept[: max(0, len(kept) + 1 - self.config.history)]
        count = len(self._records) - len(freed) + 1
        size = self._bytes - sum(old.size for old in freed) + record.size
        if self.config.updates_max and count > self.config.updates_max:
            raise BucketFull(self.name, f"{self.config.updates_max:,} updates")
        if self.config.bytes_max and size > self.config.bytes_max:
            raise BucketFull(self.name, f"{self.config.bytes_max:,} bytes")

    def _evict_oldest(self) -> None:
        config = self.config
        while (config.updates_max and len(self._records) > config.updates_max) or (
            config.bytes_max and self._bytes > config.bytes_max
        ):
            self._remove(next(iter(self._records.values())))

    def _add(self, record: Record) -> None:
        self.last_revision = record.revision
        self._records[record.revision] = record
        self._of_key.setdefault(record.key, deque()).append(record.revision)
        self._bytes += record.size
        if record.expires_ns:
            heapq.heappush(self._expiries, (record.expires_ns, record.revision))

    def _trim(self, key: str, count: int) -> None:
        while len(revisions := self._of_key[key]) > count:
            self._remove(self._records[revisions[0]])

    def _remove(self, record: Record) -> None:
        del self._records[record.revision]
        self._bytes -= record.size
        revisions = self._of_key[record.key]
        revisions.remove(record.revision)
        if not revisions:
            del self._of_key[record.key]
