"""A fold in memory: records by key, and the keys in order for whoever asks for a range.

Invariants: `rows` are in the order of their keys and of one moment; the order of the keys is kept only while somebody
asks for ranges, and costs nothing while a fold is loaded.
"""

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from itertools import repeat

from strandline.fold.batches import FoldBatch, cursor_or
from strandline.fold.records import FoldEntry, digest_rows, format_records, make_entry, prefix_end
from strandline.fold.store import Held, Verified
from strandline.kv import NO_CURSOR, WatchCursor

_FEW = 16
"""New keys are put in their places one by one while they are fewer than this part of all keys; else they are merged."""


class ResidentFold:
    """Keys and records in memory; one thread changes it, any may ask."""

    def __init__(self, records: dict[bytes, bytes] | None = None, cursor: WatchCursor = NO_CURSOR) -> None:
        self.records: dict[bytes, bytes] = {} if records is None else records
        self.cursor = cursor
        self.bytes = sum(map(len, self.records)) + sum(map(len, self.records.values()))
        self._order: list[bytes] | None = None
        self._added: list[bytes] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.records)

    def held(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        return Held(self.cursor, bool(self.records)) if self.records or self.cursor else None

    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        """Take a batch in, and the cursor after it."""
        records, (keys, values, versions), gone = self.records, batch.puts, batch.deletes.keys
        fresh = format_records(versions, values)
        before = sum(map(len, map(records.get, keys, repeat(b"")))) + sum(map(len, map(records.get, gone, repeat(b""))))
        with self._lock:
            count = len(records)
            records.update(zip(keys, fresh, strict=True))
            if len(records) != count:
                self.bytes += (len(records) - count) * sum(map(len, keys)) // len(keys)
                self._note(keys)
            for key in gone:
                if records.pop(key, None) is not None:
                    self.bytes -= len(key)
            self.cursor = cursor_or(cursor, self.cursor)
        self.bytes += sum(map(len, fresh)) - before

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        record = self.records.get(key)
        return None if record is None else make_entry(key, record)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        with self._lock:
            found = list(map(self.records.get, keys))
        return [None if record is None else make_entry(key, record) for key, record in zip(keys, found, strict=True)]

    def rows(self, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Return keys and records of a range, by key."""
        return self.moment(prefix)[1]

    def moment(self, prefix: bytes = b"") -> tuple[WatchCursor, list[tuple[bytes, bytes]]]:
        """Return the cursor, and the rows of a range as they are at it."""
        with self._lock:
            order, records = self._ordered(), self.records
            end = prefix_end(prefix)
            keys = order[bisect_left(order, prefix) : len(order) if end is None else bisect_left(order, end)]
            return self.cursor, [(key, record) for key in keys if (record := records.get(key)) is not None]

    def verified(self) -> Verified:
        """Return the digest of everything, and its cursor."""
        cursor, rows = self.moment()
        return Verified(cursor, *digest_rows(rows))

    def visit(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        rows = self.rows(prefix)
        for key, record in rows:
            visit(make_entry(key, record))
        return len(rows)

    def entries(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries of a range, by key."""
        return [make_entry(key, record) for key, record in self.rows(prefix)]

    def _note(self, keys: Sequence[bytes]) -> None:
        if self._order is None:
            return
        self._added.extend(keys)
        if len(self._added) > len(self.records):
            self._order = None
            self._added.clear()

    def _ordered(self) -> list[bytes]:
        """Return all keys in order, and perhaps some that are gone."""
        order, added = self._order, self._added
        if order is None or len(order) > 2 * len(self.records) + _FEW:
            order = sorted(self.records)
        elif len(added) * _FEW < len(order):
            for key in added:
                at = bisect_left(order, key)
                if at == len(order) or order[at] != key:
                    insort(order, key, at)
        elif added:
            order = sorted([*order, *sorted(set(added))])  # two sorted runs, which are merged
            order = list(dict.fromkeys(order))
        self._order, self._added = order, []
        return order
