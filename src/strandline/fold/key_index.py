"""Which record of a log is the last of each key: runs of columns until the first lookup, then a dictionary.

Invariants: `spans` holds exactly the keys that are there. A fold that is filled or opened, and not asked, has no object
for each key; how much of it counts can be told from below without any.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.fold.batches import FoldBatch
from strandline.fold.columns import Hashes, Numbers, hash_rows, lengths_of
from strandline.fold.log_rows import GONE, LENGTH_MASK, NO_ROWS, LogRows, Spans, sum_of_lengths
from strandline.fold.records import prefix_end
from strandline.wire import binary_array, binary_list, take_rows

_FEW = 16
"""New keys are put in their places one by one while they are fewer than this part of all keys; else they are merged."""
_RUNS_MAX = 256
_ROWS_PER_RUN = 512
_ROWS_LOOKED_AT = 4096
_SLOTS = 1 << 22


class KeyIndex:
    """Spans by key; one thread at a time."""

    def __init__(self, runs: Iterable[tuple[pa.BinaryArray, Spans]] = ()) -> None:
        self._runs: list[tuple[pa.BinaryArray, Spans]] | None = list(runs)
        self._spans: dict[bytes, int] = {}
        self._rows = 0
        self._bytes = 0
        self._slots: NDArray[np.uint32] | None = None
        self._slotted = 0
        self._order: list[bytes] | None = None
        self._added: list[bytes] = []

    @staticmethod
    def of(keys: list[bytes], spans: list[int]) -> "KeyIndex":
        """Return the index of keys that are in order."""
        index = KeyIndex()
        if not keys:
            return index
        index._runs = None
        index._spans = dict(zip(keys, spans, strict=True))
        index._bytes = sum_of_lengths(np.array(spans, np.uint64))
        index._order = keys
        return index

    @property
    def is_built(self) -> bool:
        """Return whether there was a lookup."""
        return self._runs is None

    @property
    def spans(self) -> dict[bytes, int]:
        """Return where each key has its record."""
        if self._runs is not None:
            runs, self._runs, self._slots = self._runs, None, None
            for keys, spans in runs:
                self._take_run(keys, spans)
            self._bytes = sum_of_lengths(np.fromiter(self._spans.values(), np.uint64, len(self._spans)))
        return self._spans

    def __bool__(self) -> bool:
        if self._runs is None or not self._runs:
            return bool(self._spans)
        return self._has_lasting_put(self._runs) or bool(self.spans)

    @staticmethod
    def _has_lasting_put(runs: list[tuple[pa.BinaryArray, Spans]]) -> bool:
        """Tell whether some key is put and certainly never deleted, without an object for each key."""
        marked = [(keys, (spans & np.uint64(GONE)).astype(np.bool_)) for keys, spans in runs]
        none = np.empty(0, np.uint64)
        deleted = np.concatenate(
            [none, *(hash_rows(take_rows(keys, np.flatnonzero(gone))) for keys, gone in marked if gone.any())]
        )
        for keys, gone in marked:
            for first in range(0, len(keys), _ROWS_LOOKED_AT):
                rows = slice(first, first + _ROWS_LOOKED_AT)
                if not (gone[rows] | np.isin(hash_rows(keys[rows]), deleted)).all():
                    return True
        return False

    def apply(self, batch: FoldBatch, spans: Spans) -> None:
        """Take in the puts of a batch and then its deletes, whose records are at these spans."""
        if self._runs is not None:
            self._runs.append((_keys(batch), spans))
            self._rows += len(spans)
            if len(self._runs) > _RUNS_MAX + self._rows // _ROWS_PER_RUN:  # many small runs cost more than an index
                _ = self.spans
            return
        known, keys, gone = self._spans, batch.puts.keys, batch.deletes.keys
        self._bytes -= sum(map(LENGTH_MASK.__and__, map(known.get, keys, repeat(0))))
        self._bytes += sum_of_lengths(spans[: len(keys)])
        count = len(known)
        known.update(zip(keys, spans.tolist(), strict=False))
        if len(known) != count:
            self._note(keys)
        self._bytes -= sum(map(LENGTH_MASK.__and__, map(known.pop, gone, repeat(0))))

    def bytes_live(self) -> int:
        """Return how many bytes the records have that count."""
        _ = self.spans
        return self._bytes

    def bytes_sure(self) -> int:
        """Return a number that `bytes_live` is not below, at once where most keys are in one run, each once.

        A row that came later takes the place of one record of these at most.
        """
        if not self._runs:
            return self._bytes
        (keys, spans), *later = self._runs
        lengths = spans & np.uint64(LENGTH_MASK)
        if not len(keys) or (spans & np.uint64(GONE)).any() or not is_ascending(keys):
            return 0
        return max(0, int(lengths.sum()) - int(lengths.max()) * sum(len(spans) for _, spans in later))

    def bytes_least(self) -> int:
        """Return a number that `bytes_live` is not below, without an object for each key."""
        if self._runs is None:
            return self._bytes
        if self._slots is None:
            self._slots, self._slotted = np.zeros(_SLOTS, np.uint32), 0
        for keys, spans in self._runs[self._slotted :]:
            lengths = np.where(spans & np.uint64(GONE), 0, spans & np.uint64(LENGTH_MASK))
            self._slots[hash_rows(keys) & np.uint64(_SLOTS - 1)] = lengths  # of keys that share a slot, one counts
        self._slotted = len(self._runs)
        return int(self._slots.sum(dtype=np.int64))

    def counted(self) -> "CountedSpans":
        """Return the records that count, as a moment that takes little time to take and can be sorted out later."""
        if self._runs is None:
            return CountedSpans([], list(self._spans.values()))
        return CountedSpans(self._runs.copy(), [])

    def rows(self) -> LogRows:
        """Return the records that count, in their order; before the first question, all of them."""
        if self._runs is None:
            spans = np.fromiter(self._spans.values(), np.uint64, len(self._spans))
            lengths = np.fromiter(map(len, self._spans), np.uint16, len(self._spans))
            order = np.argsort(spans)
            return LogRows(spans[order], lengths[order])
        spans = np.concatenate([NO_ROWS.spans, *(spans for _, spans in self._runs)])
        all_lengths = (lengths_of(keys).astype(np.uint16) for keys, _ in self._runs)
        return LogRows(spans, np.concatenate([NO_ROWS.key_lengths, *all_lengths]))

    def range(self, prefix: bytes) -> tuple[list[bytes], list[int]]:
        """Return the keys that begin so, in order, and their spans."""
        spans, order = self.spans, self._ordered()
        end = prefix_end(prefix)
        keys = order[bisect_left(order, prefix) : len(order) if end is None else bisect_left(order, end)]
        if len(order) != len(spans):  # some of them are gone
            keys = [key for key in keys if key in spans]
        return keys, list(map(spans.__getitem__, keys))

    def _take_run(self, keys: pa.BinaryArray, spans: Spans) -> None:
        known, listed = self._spans, binary_list(keys)
        known.update(zip(listed, spans.tolist(), strict=True))
        for row in np.flatnonzero(spans & np.uint64(GONE)).tolist():
            if known.get(listed[row], 0) & GONE:
                del known[listed[row]]

    def _note(self, keys: Sequence[bytes]) -> None:
        if self._order is None:
            return
        self._added.extend(keys)
        if len(self._added) > len(self._spans):
            self._order = None
            self._added.clear()

    def _ordered(self) -> list[bytes]:
        """Return all keys in order, and perhaps some that are gone."""
        order, added = self._order, self._added
        if order is None or len(order) > 2 * len(self._spans) + _FEW:
            order = sorted(self._spans)
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


class CountedSpans(NamedTuple):
    """Which records count at one moment: runs of columns in the order of the log, or spans in no order."""

    runs: list[tuple[pa.BinaryArray, Spans]]
    spans: list[int]

    def ascending(self) -> Numbers:
        """Return the spans of the records that count, in the order of the log."""
        if not self.runs:
            return np.sort(np.array(self.spans, np.uint64)).view(np.int64)
        (keys, spans), *later = self.runs
        if sum(len(run) for _, run in later) * _FEW <= len(keys) and is_ascending(keys):
            return self._behind_sorted(keys, spans, CountedSpans(later, []))
        spans = np.concatenate([spans for _, spans in self.runs])
        hashes = np.concatenate([hash_rows(keys) for keys, _ in self.runs])
        order = np.lexsort((spans, hashes))
        hashes, ordered = hashes[order], spans[order]
        last = np.append(hashes[1:] != hashes[:-1], True)
        if not (last.all() or self._share_hashes(order, hashes)):
            ordered = ordered[last]
        elif not last.all():
            return CountedSpans([], list(KeyIndex(self.runs).spans.values())).ascending()
        return np.sort(ordered[(ordered & np.uint64(GONE)) == 0]).view(np.int64)

    @staticmethod
    def _behind_sorted(keys: pa.BinaryArray, spans: Spans, later: "CountedSpans") -> Numbers:
        """Return the same for few rows behind many that have each key once."""
        is_put = (spans & np.uint64(GONE)) == 0
        if later.runs:
            known = pa.concat_arrays([keys for keys, _ in later.runs])
            is_put &= ~pc.is_in(keys, value_set=known).to_numpy(zero_copy_only=False)
        return np.concatenate([spans[is_put].view(np.int64), later.ascending()])

    def _share_hashes(self, order: Numbers, hashes: Hashes) -> bool:
        """Tell whether two different keys have one hash."""
        keys = pa.chunked_array([keys for keys, _ in self.runs])
        twice = np.flatnonzero(hashes[1:] == hashes[:-1])
        for first in range(0, len(twice), _ROWS_LOOKED_AT):
            rows = twice[first : first + _ROWS_LOOKED_AT]
            if pc.any(pc.not_equal(keys.take(pa.array(order[rows])), keys.take(pa.array(order[rows + 1])))).as_py():
                return True
        return False


def is_ascending(keys: pa.BinaryArray) -> bool:
    """Tell whether keys are in their order, each key once, as in a log that was compacted."""
    return bool(pc.all(pc.less(keys[:-1], keys[1:]), min_count=0).as_py())


def _keys(batch: FoldBatch) -> pa.BinaryArray:
    puts = batch.put_columns
    keys = binary_array(batch.puts.keys) if puts is None else puts.keys
    gone = batch.deletes.keys
    return pa.concat_arrays([keys, binary_array(gone)]) if gone else keys
