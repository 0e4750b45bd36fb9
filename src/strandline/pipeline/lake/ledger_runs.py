"""Sorted runs of the ledger: rows of one tenant and policy as fixed-size records, in memory or in files of a machine.

    records     one `RECORD` for each row, sorted by key; each key once
    prefixes    the first eight bytes of each key as a number, in the same order: what is searched

A run of many rows is in temporary files without a name, which go with the process, and is read by the page: memory
holds what a question touches, and `forget` gives that back.

Invariants: a run never changes; records keep every column of a row, so that runs are merged by the rules that all
stores share, whatever the order; a file that cannot be written is `StorageRefused`, and nothing depends on it.
"""

import mmap
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import Damaged
from strandline.files import storage_error
from strandline.pipeline import ledger as rules
from strandline.pipeline.errors import KeyMismatch
from strandline.pipeline.identity import DIGEST_BYTES, PolicyHash, TenantId
from strandline.pipeline.lake.columns import LEDGER, TIMES, ledger_rows
from strandline.pipeline.ledger import LedgerRecord

Records: TypeAlias = npt.NDArray[np.void]
Keys: TypeAlias = npt.NDArray[np.bytes_]
Prefixes: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int64]
KEY = np.dtype(f"S{DIGEST_BYTES}")
_NUMBERS = [
    name for name in LEDGER.names if name not in ("tenant", "policy", "ovid", "weak", "status", "error_code", *TIMES)
]
RECORD = np.dtype(
    [
        ("ovid", KEY),
        ("weak", np.bool_),
        ("status", np.int8),
        ("has_time", np.uint8),
        ("code", np.int32),
        *((name, LEDGER.field(name).type.to_pandas_dtype()) for name in (*_NUMBERS, *TIMES)),
    ]
)
"""A row but for its tenant and policy; `has_time` has a bit for each of `TIMES`, and a `code` of -1 is none."""
MEMORY_ROWS_MAX = 1 << 15
"""A run with more rows is in files."""
MERGE_ROWS = 1 << 16
"""Rows of one range of keys that are merged in memory at once."""
_SAMPLES = 16
_NO_CODE = -1


class Scope:
    """What rows of one tenant and policy share; error codes are numbered as they come."""

    def __init__(self, tenant: TenantId, policy: PolicyHash, where: str) -> None:
        self.tenant = tenant
        self.policy = policy
        self.where = where
        self._codes: list[str] = []
        self._numbers: dict[str, int] = {}

    def records(self, table: pa.Table) -> Records:
        """Return rows of the ledger as records, in their order."""
        found: Records = np.zeros(len(table), RECORD)
        if not len(table):
            return found
        found["ovid"] = _fixed(table["ovid"], self.where)
        for name in ("weak", "status", *_NUMBERS):
            found[name] = _plain(table[name])
        found["code"] = self._numbered(table["error_code"])
        for bit, name in enumerate(TIMES):
            column = table[name]
            if column.null_count < len(column):
                found[name] = _plain(pc.fill_null(column, 0))
                found["has_time"] |= _plain(pc.is_valid(column)).astype(np.uint8) << bit
        return found

    def table(self, records: Records) -> pa.Table:
        """Return records as columns of the ledger."""
        count = len(records)
        columns: dict[str, pa.Array] = {
            "tenant": pa.repeat(pa.scalar(self.tenant, pa.binary()), count),
            "policy": pa.repeat(pa.scalar(self.policy, pa.binary()), count),
            "ovid": _binary(records["ovid"]),
            **{name: self.column(records, name) for name in ("weak", "status", "error_code", *_NUMBERS)},
        }
        for bit, name in enumerate(TIMES):
            columns[name] = pa.array(np.ascontiguousarray(records[name]), mask=records["has_time"] >> bit & 1 == 0)
        return pa.table([columns[name] for name in LEDGER.names], schema=LEDGER)

    def column(self, records: Records, name: str) -> pa.Array:
        """Return a column of records that is neither of the key nor a time."""
        if name != "error_code":
            return pa.array(np.ascontiguousarray(records[name]))
        numbers = np.ascontiguousarray(records["code"])
        return pa.array(self._codes, pa.string()).take(pa.array(numbers, mask=numbers == _NO_CODE))

    def rows(self, records: Records) -> list[LedgerRecord]:
        """Return records as rows of the ledger."""
        return ledger_rows(self.table(records), self.where)

    def folded(self, records: Records) -> Records:
        """Return records with those of equal keys merged, sorted by key."""
        records = records[_order(records["ovid"])]
        again = _repeats(records["ovid"])
        if not again.any():
            return records
        group = np.cumsum(~again) - 1
        several = np.bincount(group)[group] > 1
        merged = self._merged(records[several], group[several])
        kept = records[~again]
        kept[np.unique(group[several])] = merged
        return kept

    def _merged(self, records: Records, groups: npt.NDArray[np.int64]) -> Records:
        """Merge neighbours of equal keys."""
        table = self.table(records)
        times = list(zip(*(table[name].to_pylist() for name in TIMES), strict=True))
        found: dict[int, tuple[LedgerRecord, tuple[int | None, ...]]] = {}
        for group, row, firsts in zip(groups.tolist(), ledger_rows(table, self.where), times, strict=True):
            known = found.get(group)
            merged = (row, firsts) if known is None else (self.merge(known[0], row), _earliest(known[1], firsts))
            found[group] = merged
        columns = zip(*((*row, *firsts) for row, firsts in found.values()), strict=True)
        arrays = [pa.array(cells, field.type) for cells, field in zip(columns, LEDGER, strict=True)]
        return self.records(pa.table(arrays, schema=LEDGER))

    def merge(self, one: LedgerRecord, other: LedgerRecord) -> LedgerRecord:
        """Return the merge of two rows of one key."""
        try:
            return rules.merge(one, other)
        except KeyMismatch as error:
            problem = "a row of the ledger is of a strong version in one page and of a weak one in another"
            safe = "find the writer whose ids are not derived; nothing was changed"
            raise Damaged(self.where, problem, safe=safe) from error

    def _numbered(self, codes: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        if codes.null_count == len(codes):
            return np.full(len(codes), _NO_CODE, np.int32)
        encoded = codes.combine_chunks().dictionary_encode()
        for code in encoded.dictionary.to_pylist():
            if code not in self._numbers:
                self._numbers[code] = len(self._codes)
                self._codes.append(code)
        numbers = np.array([*(self._numbers[code] for code in encoded.dictionary.to_pylist()), _NO_CODE], np.int32)
        found: npt.NDArray[np.int32] = numbers[_plain(pc.fill_null(encoded.indices, len(numbers) - 1))]
        return found


class LedgerRun:
    """Sorted records, each key once."""

    def __init__(self, records: Records, prefixes: Prefixes, maps: Sequence[mmap.mmap] = ()) -> None:
        self._records = records
        self._prefixes = prefixes
        self._maps = maps

    @classmethod
    def of(cls, parts: Iterable[Records], rows: int) -> "LedgerRun":
        """Return folded records, part by part in their order, as a run; `rows` is at least their number."""
        if rows > MEMORY_ROWS_MAX:
            return cls._stored(parts)
        records = np.concatenate([np.zeros(0, RECORD), *parts])
        return cls(records, prefixes_of(records["ovid"]))

    @classmethod
    def _stored(cls, parts: Iterable[Records]) -> "LedgerRun":
        """Write records into files without a name."""
        folder = spill_folder()
        try:
            with tempfile.TemporaryFile(dir=folder) as rows, tempfile.TemporaryFile(dir=folder) as prefixes:
                for part in parts:
                    rows.write(np.ascontiguousarray(part).view(np.uint8).data)
                    prefixes.write(prefixes_of(part["ovid"]).view(np.uint8).data)
                rows.flush()
                prefixes.flush()
                maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in (rows, prefixes)]
        except OSError as error:
            raise storage_error(Path(folder), error) from error
        return cls(np.frombuffer(maps[0], RECORD), np.frombuffer(maps[1], np.uint64), maps)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._records)

    def found(self, wanted: Keys) -> tuple[Records, Places]:
        """Return the records of some keys, which are sorted and distinct, and the place of each among them."""
        asked = prefixes_of(wanted)
        at, place = np.searchsorted(self._prefixes, asked), np.arange(len(wanted))
        hits, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        while len(at):
            at, place = at[at < len(self)], place[at < len(self)]
            same = self._prefixes[at] == asked[place]
            at, place = at[same], place[same]
            is_hit = self._records["ovid"][at] == wanted[place]
            hits.append(at[is_hit])
            places.append(place[is_hit])
            at, place = at[~is_hit] + 1, place[~is_hit]  # another key of the same prefix
        together, found = np.concatenate(hits), np.concatenate(places)
        order = np.argsort(found)
        return self._records[together[order]], found[order]

    def between(self, low: int, high: int | None) -> Records:
        """Return the records whose prefixes are in `[low, high)`."""
        bounds = self._prefixes.searchsorted(np.array([low, high or 0], np.uint64))
        return self._records[bounds[0] : len(self) if high is None else bounds[1]]

    def samples(self, each: int) -> Prefixes:
        """Return the prefix of every n-th row."""
        return self._prefixes[each - 1 :: each]

    def forget(self) -> None:
        """Give back the memory of what was read; it stays in the file."""
        for one in self._maps:
            one.madvise(mmap.MADV_DONTNEED)


def merged(scope: Scope, runs: Sequence[LedgerRun]) -> Iterator[Records]:
    """Yield the rows of runs, folded and in order, some `MERGE_ROWS` at a time."""
    each = max(1, MERGE_ROWS // _SAMPLES)
    samples = np.sort(np.concatenate([np.zeros(0, np.uint64), *(run.samples(each) for run in runs)]))
    bounds = np.unique(np.concatenate([np.zeros(1, np.uint64), samples[_SAMPLES - 1 :: _SAMPLES]])).tolist()
    for low, high in zip(bounds, [*bounds[1:], None], strict=True):
        parts = [run.between(low, high) for run in runs]
        together = np.concatenate(parts) if parts else np.zeros(0, RECORD)
        if len(together):
            yield scope.folded(together)
        del parts, together
        for run in runs:
            run.forget()


def sorted_keys(keys: Keys) -> tuple[Keys, Places]:
    """Return keys in order, each once, and the place of each of the given ones among them."""
    order = _order(keys)
    ranked = keys[order]
    again = _repeats(ranked)
    places = np.empty(len(keys), np.int64)
    places[order] = np.cumsum(~again) - 1
    return ranked[~again], places


def prefixes_of(keys: Keys) -> Prefixes:
    """Return the first eight bytes of each key as a number, whose order is that of the bytes."""
    first = np.ascontiguousarray(_words(keys)[:, 0])
    return first.byteswap() if sys.byteorder == "little" else first


def spill_folder() -> str:
    """Return the folder for temporary files: that of Spark on its workers, or the system's."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((folder for folder in folders if folder and os.access(folder, os.W_OK)), tempfile.gettempdir())


def _words(keys: Keys) -> Prefixes:
    return np.ascontiguousarray(keys).view(np.uint64).reshape(-1, DIGEST_BYTES // 8)


def _order(keys: Keys) -> npt.NDArray[np.int64]:
    """Return the order of keys; equal ones stay in theirs."""
    prefixes = prefixes_of(keys)
    order = np.argsort(prefixes, kind="stable")
    ranked = prefixes[order]
    tied = np.flatnonzero(ranked[1:] == ranked[:-1])
    if (keys[order[tied]] == keys[order[tied + 1]]).all():
        return order
    words = _words(keys).byteswap() if sys.byteorder == "little" else _words(keys)
    return np.lexsort([words[:, at] for at in reversed(range(words.shape[1]))])


def _repeats(keys: Keys) -> npt.NDArray[np.bool_]:
    """Return which sorted keys are that of the row before."""
    words = _words(keys)
    again = np.zeros(len(keys), np.bool_)
    again[1:] = (words[1:] == words[:-1]).all(axis=1)
    return again


def keys_of(column: pa.Array) -> Keys:
    """Return a column of keys, none of them null, as an array."""
    if not len(column):
        return np.zeros(0, KEY)
    return np.frombuffer(column.buffers()[1], KEY)[column.offset : column.offset + len(column)]


def _fixed(column: pa.ChunkedArray, where: str) -> Keys:
    try:
        return keys_of(column.combine_chunks().cast(pa.binary(DIGEST_BYTES)))
    except pa.ArrowInvalid as error:
        safe = "find the writer of the row; nothing was changed"
        raise Damaged(where, f"a key of the ledger is not {DIGEST_BYTES} bytes", safe=safe) from error


def _binary(keys: Keys) -> pa.Array:
    buffer = pa.py_buffer(np.ascontiguousarray(keys).view(np.uint8).data if len(keys) else b"")
    return pa.Array.from_buffers(pa.binary(DIGEST_BYTES), len(keys), [None, buffer]).cast(pa.binary())


def _plain(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.generic]:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    plain: npt.NDArray[np.generic] = whole.to_numpy(zero_copy_only=False)
    return plain


def _earliest(one: Iterable[int | None], other: Iterable[int | None]) -> tuple[int | None, ...]:
    return tuple(min((ns for ns in both if ns is not None), default=None) for both in zip(one, other, strict=True))
