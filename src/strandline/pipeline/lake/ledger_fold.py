"""The ledger of one tenant and policy as this process has read it: pages, folded into sorted runs (`ledger_runs`).

Rows that are added gather in memory. Some ten thousand make a run; eight runs of about one size become one of the
next. So memory does not grow with the ledger, a row is written a few times, and a question looks into a few runs.

Invariants: rows come out once for each key, in order, whatever the order in which they were added; adding again what is
there changes nothing; the time of a status is its earliest.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import Damaged
from strandline.pipeline import ledger as rules
from strandline.pipeline.identity import OvidHash, PolicyHash, TenantId
from strandline.pipeline.lake.columns import LEDGER, TIMES
from strandline.pipeline.lake.ledger_runs import (
    KEY,
    RECORD,
    Keys,
    LedgerRun,
    Places,
    Records,
    Scope,
    keys_of,
    merged,
    sorted_keys,
)
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.reads import Coverage

RUN_ROWS = 1 << 16
"""So many rows that were added make a run."""
RUNS_MAX = 8
"""So many runs of about one size are merged into one."""
KEYS_AT_ONCE = 2_048
"""Keys that are looked up before the memory of files is given back: the system maps 64 KiB around each."""
_SMALL_ROWS = 20_000


class LedgerFold:
    """The rows of one tenant and policy, to which pages are added."""

    def __init__(self, tenant: TenantId, policy: PolicyHash, where: str) -> None:
        self._scope = Scope(tenant, policy, where)
        self._where = where
        self._recent: list[Records] = []
        self._recent_rows = 0
        self._runs: list[LedgerRun] = []
        self._lock = threading.RLock()

    def add(self, table: pa.Table) -> None:
        """Add rows of the tenant and policy."""
        with self._lock:
            for at in range(0, len(table), RUN_ROWS):
                self._recent.append(self._scope.records(table.slice(at, RUN_ROWS)))
                self._recent_rows += len(self._recent[-1])
                if self._recent_rows >= RUN_ROWS:
                    self._make_run()

    @property
    def is_empty(self) -> bool:
        """Return whether there are no rows."""
        with self._lock:
            return not (self._runs or self._recent)

    @property
    def is_small(self) -> bool:
        """Return whether there are few rows."""
        with self._lock:
            return sum(map(len, self._runs)) + self._recent_rows < _SMALL_ROWS

    def tables(self) -> Iterator[pa.Table]:
        """Yield all rows, folded and sorted, some ten thousand at a time."""
        with self._lock:
            self._make_run()
            runs = list(self._runs)
        yield from map(self._scope.table, merged(self._scope, runs))

    def table(self) -> pa.Table:
        """Return all rows, folded and sorted, in memory."""
        return pa.concat_tables([LEDGER.empty_table(), *self.tables()]).combine_chunks()

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self.tables()))

    def rows(self, ovids: Sequence[OvidHash]) -> list[LedgerRecord | None]:
        """Return the row of each key, in their order; None where there is none."""
        if not ovids:
            return []
        records, _ = self._found(sorted_keys(np.frombuffer(b"".join(ovids), KEY))[0])
        found = {row.ovid: row for row in self._scope.rows(records)}
        return [found.get(ovid) for ovid in ovids]

    def columns(self, ovids: pa.Array, names: Sequence[str]) -> list[pa.Array]:
        """Return some columns of the rows of keys, in their order; null where there is no row, or no key."""
        if self.is_empty:
            return [pa.nulls(len(ovids), self._scope.column(np.zeros(0, RECORD), name).type) for name in names]
        known = ovids.is_valid().to_numpy(zero_copy_only=False)
        wanted, places = sorted_keys(keys_of(ovids.drop_null()))
        records, found = self._found(wanted)
        for rank in np.unique(records["status"]).tolist():
            _known(rank, self._where)
        at = np.full(len(wanted) + 1, len(records))  # the last place is that of no key
        at[found] = np.arange(len(records))
        rows = np.full(len(ovids), len(wanted))
        rows[known] = places
        taken = pa.array(at[rows], mask=at[rows] == len(records))
        return [self._scope.column(records, name).take(taken) for name in names]

    def _found(self, wanted: Keys) -> tuple[Records, Places]:
        """Return the rows of keys, which are sorted and distinct, merged, and the places of their keys."""
        with self._lock:
            self._make_run()
            runs = list(self._runs)
        parts: list[tuple[Records, Places]] = []
        for begin in range(0, len(wanted), KEYS_AT_ONCE):
            for run in runs:
                records, places = run.found(wanted[begin : begin + KEYS_AT_ONCE])
                run.forget()
                if len(records):
                    parts.append((records, places + begin))
        if len(parts) == 1:
            return parts[0]
        records = np.concatenate([np.zeros(0, RECORD), *(records for records, _ in parts)])
        places = np.concatenate([np.zeros(0, np.int64), *(places for _, places in parts)])
        return self._scope.folded(records), np.unique(places)

    def done(self) -> list[OvidHash]:
        """Return the keys whose row suppresses a rescan, sorted."""
        found: list[OvidHash] = []
        for table in self.tables():
            is_done = pc.not_equal(table["status"], int(DoneStatus.FAILED_RETRYABLE))
            found += table.filter(pc.and_not(is_done, table["weak"]))["ovid"].to_pylist()
        return found

    def scanned(self) -> set[bytes]:
        """Return the keys that were scanned, in part at least."""
        found = set[bytes]()
        for table in self.tables():
            is_scanned = pc.greater_equal(table["status"], int(DoneStatus.SCANNED_PARTIAL))
            found.update(table.filter(is_scanned)["ovid"].to_pylist())
        return found

    def coverage(self) -> Coverage:
        """Return how completely the objects were scanned."""
        gaps = ("members_skipped", "decodes_skipped", "findings_dropped")
        statuses: Counter[int] = Counter()
        with_gaps = weak = 0
        sums = [0] * (1 + len(gaps))
        for table in self.tables():
            has_gaps = pc.greater(pc.max_element_wise(*(table[name] for name in gaps)), 0)
            scanned = pc.greater_equal(table["status"], int(DoneStatus.SCANNED_PARTIAL))
            statuses.update({int(one["values"]): one["counts"] for one in pc.value_counts(table["status"]).to_pylist()})
            with_gaps += pc.sum(pc.and_(has_gaps, scanned)).as_py() or 0
            weak += pc.sum(table["weak"]).as_py() or 0
            sums = [total + _wide_sum(table[name]) for total, name in zip(sums, ("bytes_seen", *gaps), strict=True)]
        objects = {_known(rank, self._where): count for rank, count in statuses.items()}
        return Coverage(objects, with_gaps, weak, *sums)

    def known_at(self, at_ns: int) -> dict[DoneStatus, int]:
        """Return how many objects had each status at a time, by the largest that each had."""
        at = pa.scalar(max(rules.I64_MIN, min(at_ns, rules.I64_MAX)), pa.int64())
        known: Counter[DoneStatus] = Counter()
        for table in self.tables():
            rank = np.zeros(len(table), np.int8)
            for status, name in zip(DoneStatus, TIMES, strict=True):
                had = pc.fill_null(pc.less_equal(table[name], at), False)  # noqa: FBT003 - a value
                rank[had.to_numpy(zero_copy_only=False)] = int(status)
            ranks, counts = np.unique(rank[rank > 0], return_counts=True)
            known.update({DoneStatus(int(one)): int(count) for one, count in zip(ranks, counts, strict=True)})
        return dict(sorted(known.items()))

    def _make_run(self) -> None:
        """Make a run of the rows that gathered, and one of the last ones where there are several of one size."""
        if not self._recent:
            return
        self._runs.append(LedgerRun.of([self._scope.folded(np.concatenate(self._recent))], self._recent_rows))
        self._recent, self._recent_rows = [], 0
        while len(self._runs) >= RUNS_MAX and len(self._runs[-RUNS_MAX]) <= RUNS_MAX * len(self._runs[-1]):
            last = self._runs[-RUNS_MAX:]
            self._runs[-RUNS_MAX:] = [LedgerRun.of(merged(self._scope, last), sum(map(len, last)))]


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
