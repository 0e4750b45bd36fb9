"""The ledger of one tenant and policy in memory, in columns: folded from pages, sorted by key.

Most keys come once, and those rows are never touched by Python; rows of equal keys are merged by
`strandline.pipeline.ledger.merge`, the rule that all stores share.

Invariants: a folded table has each key once, in order; folding is idempotent, and does not depend on the order of what
is folded; the time of a status is its earliest.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import Damaged
from strandline.pipeline import ledger as rules
from strandline.pipeline.errors import KeyMismatch
from strandline.pipeline.identity import DIGEST_BYTES, OvidHash
from strandline.pipeline.lake.columns import LEDGER, TIMES, ledger_rows
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.reads import Coverage

_KEY = ("tenant", "policy", "ovid")
_SMALL_ROWS = 20_000


def fold_ledger(tables: Sequence[pa.Table], where: str) -> pa.Table:
    """Return rows of the ledger with those of equal keys merged, sorted by key."""
    table = pa.concat_tables(tables).combine_chunks() if tables else LEDGER.empty_table()
    if len(table) < 2:  # noqa: PLR2004 - one row is sorted
        return table
    table = table.take(pc.sort_indices(table, [(name, "ascending") for name in _KEY])).combine_chunks()
    again = pa.array(np.ones(len(table) - 1, bool))
    for name in _KEY:
        column = table[name].combine_chunks()
        again = pc.and_(again, pc.equal(column.slice(1), column.slice(0, len(column) - 1)))
    repeats = np.concatenate([[False], again.to_numpy(zero_copy_only=False)])
    if not repeats.any():
        return table
    group = np.cumsum(~repeats) - 1
    several = np.bincount(group)[group] > 1
    rest = table.filter(pa.array(~several))
    merged = _merged(table.filter(pa.array(several)), group[several], where)
    return fold_ledger([rest, merged], where)


def _merged(table: pa.Table, groups: np.ndarray, where: str) -> pa.Table:
    """Merge neighbours of equal keys."""
    times = list(zip(*(table[name].to_pylist() for name in TIMES), strict=True))
    found: dict[int, tuple[LedgerRecord, tuple[int | None, ...]]] = {}
    for group, row, firsts in zip(groups.tolist(), ledger_rows(table, where), times, strict=True):
        known = found.get(group)
        try:
            found[group] = (row, firsts) if known is None else (rules.merge(known[0], row), _earliest(known[1], firsts))
        except KeyMismatch as error:
            problem = "a row of the ledger is of a strong version in one page and of a weak one in another"
            safe = "find the writer whose ids are not derived; nothing was changed"
            raise Damaged(where, problem, safe=safe) from error
    rows = [(*row, *firsts) for row, firsts in found.values()]
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(cells, field.type) for cells, field in zip(columns, LEDGER, strict=True)], schema=LEDGER)


def _earliest(one: Iterable[int | None], other: Iterable[int | None]) -> tuple[int | None, ...]:
    return tuple(min((ns for ns in both if ns is not None), default=None) for both in zip(one, other, strict=True))


class LedgerFold:
    """The rows of one tenant and policy, to which pages are added."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._base = LEDGER.empty_table()
        self._keys = _keys(self._base)
        self._recent: list[pa.Table] = []
        self._lock = threading.RLock()

    def add(self, table: pa.Table) -> None:
        """Add the rows of a page."""
        with self._lock:
            if len(table):
                self._recent.append(table)

    @property
    def is_small(self) -> bool:
        """Return whether there are few rows."""
        with self._lock:
            return len(self._base) + sum(map(len, self._recent)) < _SMALL_ROWS

    def table(self) -> pa.Table:
        """Return all rows, folded and sorted."""
        with self._lock:
            if self._recent:
                self._base = fold_ledger([self._base, *self._recent], self._where)
                self._keys = _keys(self._base)
                self._recent = []
            return self._base

    def rows(self, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        """Return the row of each key, in their order; None where there is none."""
        with self._lock:
            return self._rows(ovids)

    def _rows(self, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        recent = sum(map(len, self._recent))
        if recent * 4 > len(self._base):
            self.table()
        found: dict[bytes, LedgerRecord] = {}
        for row in _looked_up(self._base, self._keys, ovids, self._where):
            found[row.ovid] = row
        if self._recent:
            if len(self._recent) > 1:
                self._recent = [fold_ledger(self._recent, self._where)]
            for row in _looked_up(self._recent[0], _keys(self._recent[0]), ovids, self._where):
                known = found.get(row.ovid)
                found[row.ovid] = row if known is None else rules.merge(known, row)
        return [found.get(ovid) for ovid in ovids]

    def done(self) -> list[OvidHash]:
        """Return the keys whose row suppresses a rescan, sorted."""
        table = self.table()
        is_done = pc.not_equal(table["status"], int(DoneStatus.FAILED_RETRYABLE))
        found: list[OvidHash] = table.filter(pc.and_not(is_done, table["weak"]))["ovid"].to_pylist()
        return found

    def scanned(self) -> set[bytes]:
        """Return the keys that were scanned, in part at least."""
        table = self.table()
        return set(table.filter(pc.greater_equal(table["status"], int(DoneStatus.SCANNED_PARTIAL)))["ovid"].to_pylist())

    def coverage(self) -> Coverage:
        """Return how completely the objects were scanned."""
        table = self.table()
        gaps = ("members_skipped", "decodes_skipped", "findings_dropped")
        has_gaps = pc.greater(pc.max_element_wise(*(table[name] for name in gaps)), 0)
        scanned = pc.greater_equal(table["status"], int(DoneStatus.SCANNED_PARTIAL))
        statuses = Counter({int(one["values"]): one["counts"] for one in pc.value_counts(table["status"]).to_pylist()})
        return Coverage(
            {_known(rank, self._where): count for rank, count in statuses.items()},
            pc.sum(pc.and_(has_gaps, scanned)).as_py() or 0,
            pc.sum(table["weak"]).as_py() or 0,
            *(_wide_sum(table[name]) for name in ("bytes_seen", *gaps)),
        )

    def known_at(self, at_ns: int) -> dict[DoneStatus, int]:
        """Return how many objects had each status at a time, by the largest that each had."""
        table = self.table()
        rank = np.zeros(len(table), np.int8)
        at = pa.scalar(max(rules.I64_MIN, min(at_ns, rules.I64_MAX)), pa.int64())
        for status, name in zip(DoneStatus, TIMES, strict=True):
            had = pc.fill_null(pc.less_equal(table[name], at), False)  # noqa: FBT003 - a value
            rank[had.to_numpy(zero_copy_only=False)] = int(status)
        ranks, counts = np.unique(rank[rank > 0], return_counts=True)
        return {DoneStatus(int(one)): int(count) for one, count in zip(ranks, counts, strict=True)}


def _known(rank: int, where: str) -> DoneStatus:
    try:
        return DoneStatus(rank)
    except ValueError:
        problem = f"a row of the ledger has the status {rank}, which does not exist"
        raise Damaged(where, problem, safe="find the writer of the row; nothing was changed") from None


def _wide_sum(column: pa.ChunkedArray) -> int:
    """Return a sum that may need more than 64 bits."""
    high, low = (pc.sum(part).as_py() or 0 for part in (pc.shift_right(column, 32), pc.bit_wise_and(column, 2**32 - 1)))
    return (int(high) << 32) + int(low)


def _keys(table: pa.Table) -> np.ndarray:
    """Return the keys as fixed-size strings, whose order is that of their bytes."""
    fixed = table["ovid"].combine_chunks().cast(pa.binary(DIGEST_BYTES))
    if not len(fixed):
        return np.empty(0, f"S{DIGEST_BYTES}")
    return np.frombuffer(fixed.buffers()[1], f"S{DIGEST_BYTES}")[fixed.offset : fixed.offset + len(fixed)]


def _looked_up(table: pa.Table, keys: np.ndarray, ovids: Sequence[OvidHash], where: str) -> list[LedgerRecord]:
    """Return the rows of some keys of a folded table."""
    if not len(table) or not ovids:
        return []
    wanted = np.unique(np.frombuffer(b"".join(ovids), f"S{DIGEST_BYTES}"))
    at = np.searchsorted(keys, wanted)
    at = at[at < len(keys)]
    hits = at[np.isin(keys[at], wanted)]
    return ledger_rows(table.take(pa.array(np.unique(hits))), where) if len(hits) else []
