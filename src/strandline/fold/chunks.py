"""The bytes of a snapshot log in memory, in pieces as they were appended.

Invariants: pieces are only appended, never changed, so a holder of a `Chunks` can read what was there on any thread.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from strandline.files import Buffer
from strandline.fold.batches import PutColumns
from strandline.fold.columns import Numbers
from strandline.fold.log_format import KEY_AT, PUT_OVERHEAD_BYTES
from strandline.fold.log_rows import LENGTH_MASK, START_SHIFT
from strandline.fold.records import FoldEntry, split_version
from strandline.wire import binary_spans, gather, take_rows
from strandline.wire.columns import words_at

_U32 = struct.Struct("<I")
_GATHERED_BYTES_MAX = 1 << 31
_NONE = pa.nulls(0, pa.binary())
_SMALL_BYTES = 16 * 1024
"""Pieces below this are joined, lest there be one for every small batch."""


class Chunks:
    """Bytes by their position in the log."""

    def __init__(self, parts: Iterable[Buffer] = ()) -> None:
        self._starts: list[int] = []
        self._parts: list[memoryview] = []
        self.end = 0
        for part in parts:
            self.append(part)

    def append(self, part: Buffer) -> None:
        """Put bytes behind the last ones."""
        if not len(part):
            return
        if self._parts and len(self._parts[-1]) + len(part) <= _SMALL_BYTES:
            self._parts[-1] = memoryview(b"".join((self._parts[-1], part)))
        else:
            self._parts.append(memoryview(part))  # before its start, because readers look for starts
            self._starts.append(self.end)
        self.end += len(part)

    def parts(self) -> Iterator[memoryview]:
        """Yield all bytes, piece by piece."""
        return iter(self._parts)

    def record(self, span: int) -> memoryview:
        """Return the bytes of a record."""
        part, at = self._place(span)
        return part[at : at + (span & LENGTH_MASK)]

    def joined(self, spans: Numbers) -> bytes:
        """Return the bytes of many records, one after the other."""
        if max(map(len, self._parts), default=0) >= _GATHERED_BYTES_MAX:
            return b"".join(map(self.record, spans.tolist()))
        order = np.argsort(spans, kind="stable")
        ordered = spans[order]
        starts, lengths = ordered >> START_SHIFT, ordered & LENGTH_MASK
        borders = np.searchsorted(starts, [*self._starts, self.end])
        found = []
        for number in np.flatnonzero(np.diff(borders)).tolist():
            rows = slice(borders[number], borders[number + 1])
            first = starts[rows] - self._starts[number]
            found.append(gather(self._parts[number], first, first + lengths[rows]))
        if not found:
            return b""
        records = pa.concat_arrays(found)
        if (order[1:] < order[:-1]).any():
            back = np.empty_like(order)
            back[order] = np.arange(len(order))
            records = take_rows(records, back)
        data, offsets = binary_spans(records)
        return bytes(data[offsets[0] : offsets[-1]])

    def keys(self, spans: Numbers) -> pa.BinaryArray:
        """Return the keys of many records; their spans ascend, and the keys are smaller than 2 GiB together."""
        starts = spans >> START_SHIFT
        borders = np.searchsorted(starts, [*self._starts, self.end])
        found = [_NONE]
        for number in np.flatnonzero(np.diff(borders)).tolist():
            first = starts[borders[number] : borders[number + 1]] - self._starts[number]
            part = self._parts[number]
            lengths = words_at(part, "<u2", first + (KEY_AT - 2)).astype(np.int64)  # type: ignore[arg-type]
            found.append(_gathered(part, first + KEY_AT, first + KEY_AT + lengths))
        return pa.concat_arrays(found)

    def versions(self, spans: Numbers) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Return the keys and the stored versions of many puts; their spans ascend."""
        starts, lengths = spans >> START_SHIFT, spans & LENGTH_MASK
        borders = np.searchsorted(starts, [*self._starts, self.end])
        keys, versions = [_NONE], [_NONE]
        for number in np.flatnonzero(np.diff(borders)).tolist():
            rows = slice(borders[number], borders[number + 1])
            first, part = starts[rows] - self._starts[number], self._parts[number]
            keys_at = first + KEY_AT
            keys_end = keys_at + words_at(part, "<u2", keys_at - 2).astype(np.int64)  # type: ignore[arg-type]
            versions_at = keys_end + 4 + words_at(part, "<u4", keys_end).astype(np.int64)  # type: ignore[arg-type]
            keys.append(_gathered(part, keys_at, keys_end))
            versions.append(_gathered(part, versions_at + 1, first + lengths[rows]))
        return pa.concat_arrays(keys), pa.concat_arrays(versions)

    def frozen(self) -> "Chunks":
        """Return the bytes of this moment, which later ones are not added to; they share their memory."""
        copy = Chunks()
        copy._starts, copy._parts, copy.end = self._starts.copy(), self._parts.copy(), self.end
        return copy

    def entry(self, key: bytes, span: int) -> FoldEntry:
        """Return the entry that the put of a key stands for."""
        part, at = self._place(span)
        value_at = at + PUT_OVERHEAD_BYTES + len(key)
        version_at = value_at + _U32.unpack_from(part, value_at - 4)[0]
        version = part[version_at + 1 : at + (span & LENGTH_MASK)].tobytes()
        return FoldEntry(key, part[value_at:version_at].tobytes(), *split_version(version))

    def _place(self, span: int) -> tuple[memoryview, int]:
        start = span >> START_SHIFT
        at = bisect_right(self._starts, start) - 1
        return self._parts[at], start - self._starts[at]

    def columns(self, keys: Sequence[bytes], spans: Sequence[int]) -> PutColumns:
        """Return the puts of some keys as columns."""
        lengths = np.fromiter(map(len, keys), np.int64, len(keys))
        return self._columns(np.array(spans, np.uint64).view(np.int64), lengths)

    def rows(self, spans: Numbers) -> PutColumns:
        """Return some puts as columns, in the order of their spans."""
        return self._columns(spans, None)

    def _columns(self, numbers: Numbers, key_lengths: Numbers | None) -> PutColumns:
        data = self.joined(numbers)
        ends = np.cumsum(numbers & LENGTH_MASK)
        starts = np.append(0, ends[:-1])[: len(ends)]
        if key_lengths is None:
            key_lengths = words_at(data, "<u2", starts + (KEY_AT - 2)).astype(np.int64)
        values_at = starts + PUT_OVERHEAD_BYTES + key_lengths
        versions_at = values_at + words_at(data, "<u4", values_at - 4).astype(np.int64)
        return PutColumns(
            gather(data, starts + KEY_AT, values_at - 4),
            gather(data, values_at, versions_at),
            gather(data, versions_at + 1, ends),
        )


def _gathered(part: memoryview, starts: Numbers, ends: Numbers) -> pa.BinaryArray:
    """Return pieces of a part of any size; Arrow's own way ends at 2 GiB."""
    if len(part) < _GATHERED_BYTES_MAX:
        return gather(part, starts, ends)
    return pa.array([part[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])
