"""A cache of messages that were just appended or read ahead, so that taking one by one does not search for each one.

A journal finds one record among small batches by walking up to 64 KiB of them. Takers mostly want the next message, or
one that was put a moment ago; both are here.

Invariants: what the cache holds is durable and equal to what the journal holds; the cache is bounded by count and
by bytes, oldest first out, and is never needed: whatever is missing is read.
"""

import threading
from collections.abc import Sequence
from itertools import repeat

from strandline.errors import Damaged, OffsetError
from strandline.journal import Journal, Record

RECORDS_MAX = 4096
BYTES_MAX = 4 * 1024 * 1024
AHEAD_RECORDS = 256
AHEAD_BYTES = 256 * 1024
FEW = 1024
"""An append of more records would take a large part of the cache, and is found fast enough."""


class RecordCache:
    """A bounded store of records in front of a journal. Safe to use from many threads."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._records: dict[int, Record] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def put(
        self,
        base_offset: int,
        values: Sequence[bytes],
        keys: Sequence[bytes] | None,
        headers: Sequence[bytes] | None,
    ) -> None:
        """Keep what was just appended, if it is little enough."""
        if len(values) > FEW or not all(_is_plain(column) for column in (values, keys, headers)):
            return
        offsets = range(base_offset, base_offset + len(values))
        self._keep(list(map(Record, offsets, values, keys or repeat(None), headers or repeat(None), repeat(None))))

    def read(self, start: int, end: int) -> list[Record]:
        """Return the first records of [start, end), at least one; raises what `Journal.scan` raises."""
        with self._lock:
            found = self._run(start, end)
        if found:
            return found
        records = self._read_ahead(start, max(end - start, AHEAD_RECORDS))
        self._keep(records)
        return records[: end - start]

    def _run(self, start: int, end: int) -> list[Record]:
        found: list[Record] = []
        while start < end and (record := self._records.get(start)) is not None:
            found.append(record)
            start += 1
        return found

    def _read_ahead(self, start: int, records_max: int) -> list[Record]:
        records: list[Record] = []
        try:
            for batch in self._journal.scan(start, max_records=records_max, max_bytes=AHEAD_BYTES):
                records += batch.records()
        except (OffsetError, Damaged):
            if not records:
                raise
        return records

    def _keep(self, records: Sequence[Record]) -> None:
        with self._lock:
            for record in records:
                if record.offset not in self._records:
                    self._records[record.offset] = record
                    self._bytes += _size(record)
            while self._bytes > BYTES_MAX or len(self._records) > RECORDS_MAX:
                self._bytes -= _size(self._records.pop(next(iter(self._records))))


def _is_plain(column: Sequence[bytes] | None) -> bool:
    """Whether the values of a column cannot be changed afterwards."""
    return column is None or set(map(type, column)) <= {bytes}


def _size(record: Record) -> int:
    _, value, key, headers, _ = record
    return len(value) + (len(key) if key else 0) + (len(headers) if headers else 0)
