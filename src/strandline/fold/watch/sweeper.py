"""Removal of evicted entries from a fold: those below the log's first revision, and values whose time to live is over.

Invariants: an entry is removed only if `fold_modes.has_left` holds for the stored entry at that moment, by an
observation of the bucket whose end the fold has reached. Candidates are only hints.

An observation must not cost a scan. So a scan remembers the smallest revisions and the soonest deadlines beside the
entries that have left (`Window`), and as long as the log's first revision and the time move within these, only they are
checked. A scan runs in a thread of its own, and the next one waits ten times as long as it took.
"""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.fold.columns import numbers_of
from strandline.fold.cursor import FoldCursor, parse_fold_cursor
from strandline.fold.records import FoldEntry
from strandline.fold.store import FoldReader, versions_of
from strandline.fold.watch.observation import Observation
from strandline.kv import UpdateBatch, UpdateKind
from strandline.kv.entries import REVISION_BYTES, REVISION_MAX
from strandline.protocol import fold_modes
from strandline.protocol.fold_modes import FoldMode
from strandline.wire import binary_array, binary_list, take_rows

WINDOW_ROWS = 65_536
PAUSE_FACTOR = 10.0
Numbers = NDArray[np.uint64]


class Limits(NamedTuple):
    """The limits below which entries have left: the log's first revision (0: unknown), and the time."""

    first: int
    now_ns: int


class Window:
    """The entries with the smallest numbers: every entry of the fold up to `bound` is among them, or has changed."""

    def __init__(self, bound: int = -1) -> None:
        self.bound = bound
        self._rows: list[tuple[int, bytes]] = []

    @property
    def least(self) -> int | None:
        """Return the smallest number, None if there is none."""
        return self._rows[0][0] if self._rows else None

    def fill(self, rows: list[tuple[int, bytes]], bound: int) -> None:
        """Take the rows of a scan that found everything up to `bound`."""
        self._rows, self.bound = rows, bound
        heapq.heapify(self._rows)
        self._trim()

    def add(self, numbers: Numbers, keys: pa.BinaryArray) -> None:
        """Add later updates; a scan finds those above the bound."""
        rows = np.flatnonzero((numbers > 0) & (numbers <= max(self.bound, 0)))
        if len(rows):
            for row in zip(numbers[rows].tolist(), binary_list(take_rows(keys, rows)), strict=True):
                heapq.heappush(self._rows, row)
            self._trim()

    def take(self, limit: int) -> list[bytes]:
        """Remove and return the keys up to a number, which must be within the window."""
        keys = []
        while self._rows and self._rows[0][0] <= limit:
            keys.append(heapq.heappop(self._rows)[1])
        return keys

    def _trim(self) -> None:
        if len(self._rows) > 2 * WINDOW_ROWS:
            self._rows = heapq.nsmallest(WINDOW_ROWS, self._rows)
            self.bound = self._rows[-1][0] - 1  # others may have the last number


class Scanned(NamedTuple):
    """The result of a scan: keys that have left, and the smallest numbers of the others with their keys."""

    left: list[bytes]
    revisions: list[tuple[int, bytes]]
    deadlines: list[tuple[int, bytes]]
    revision: int
    """The fold's cursor: all revisions up to it are known, as far as the rows reach."""


class Sweeper:
    """Finds the entries that have left, for one fold during one watch."""

    def __init__(self, cursor: FoldCursor, mode: FoldMode) -> None:
        self.mode = mode
        self.floor = cursor.floor if mode is FoldMode.MIRROR else 0
        self.has_deadlines = cursor.has_deadlines
        self._revisions = Window()
        self._deadlines = Window(-1 if cursor.has_deadlines else REVISION_MAX)
        self._noted: list[UpdateBatch] | None = None

    @property
    def next_deadline_ns(self) -> int | None:
        """Return the time of the next expiry, if known; of a mirror only."""
        return self._deadlines.least if self.mode is FoldMode.MIRROR else None

    def note(self, batch: UpdateBatch) -> None:
        """Note updates before they are stored."""
        if self._noted is not None:
            self._noted.append(batch)
        puts = batch.kinds == UpdateKind.PUT
        self._revisions.add(np.where(puts, batch.versions, 0), batch.key_column)
        if batch.expires_ns is not None and (deadlines := np.where(puts, batch.expires_ns, 0)).any():
            self.has_deadlines = True
            self._deadlines.add(deadlines, batch.key_column)

    def limits(self, look: Observation, cursor: FoldCursor) -> Limits | None:
        """Return the limits below which entries have left, or None if they are not new."""
        retention = look.retention
        if retention is None:
            return None
        drops = cursor.seen_dropping or retention.drops_current_values
        follows = fold_modes.has_left(self.mode, 1, 0, first=2, now_ns=0, drops=drops)
        first = retention.first_revision if follows else 0
        now_ns = (retention.now_ns or look.at_ns) if self.mode is FoldMode.MIRROR else 0
        is_over = self.has_deadlines and (self._deadlines.bound < now_ns or (self._deadlines.least or now_ns) < now_ns)
        return Limits(first, now_ns) if first > self.floor or is_over else None

    def needs_scan(self, limits: Limits) -> bool:
        """Return whether limits are beyond the windows."""
        is_behind = limits.first > self.floor and self._revisions.bound < limits.first - 1
        return is_behind or (self.has_deadlines and self._deadlines.bound < limits.now_ns)

    def begin_scan(self) -> None:
        """Note the start of a scan; updates are remembered until its end."""
        self._noted = []

    def end_scan(self, found: Scanned | None) -> list[bytes]:
        """Take the result of a scan (None: failed), and return candidates of keys that have left."""
        noted, self._noted = self._noted or [], None
        if found is None:
            return []
        self._revisions.fill(found.revisions, _bound(found.revisions, found.revision))
        self._deadlines.fill(found.deadlines, _bound(found.deadlines, REVISION_MAX))
        for batch in noted:
            self.note(batch)
        return found.left

    def take(self, limits: Limits) -> list[bytes]:
        """Return the candidates up to some limits, which are within the windows."""
        keys = self._revisions.take(limits.first - 1) if limits.first > self.floor else []
        return [*keys, *self._deadlines.take(limits.now_ns)] if self.has_deadlines else keys

    def put_back(self, keys: Sequence[bytes], limits: Limits) -> None:
        """Keep expired keys that the bucket still has as candidates of the next observation."""
        self._deadlines.add(np.full(len(keys), limits.now_ns + 1, np.uint64), binary_array(keys))

    def swept(self, limits: Limits) -> None:
        """Note that no entry is left below some limits."""
        self.floor = max(self.floor, limits.first)


def _bound(rows: list[tuple[int, bytes]], otherwise: int) -> int:
    """Return the bound up to which the rows of a scan are complete: it keeps a limited number."""
    return rows[-1][0] - 1 if len(rows) >= WINDOW_ROWS else otherwise


def scan(fold: FoldReader, limits: Limits) -> Scanned:
    """Scan one snapshot of a fold for entries that have left and for those that leave next."""
    left: list[bytes] = []
    revisions, deadlines = _Smallest(), _Smallest()
    cursor, columns = versions_of(fold)
    with closing(columns):
        for keys, versions in columns:
            numbers, expiries = numbers_of(versions)
            gone = ((numbers > 0) & (numbers < limits.first)) | ((expiries > 0) & (expiries <= limits.now_ns))
            if gone.any():
                left += binary_list(take_rows(keys, np.flatnonzero(gone)))
            revisions.add(np.where(gone, 0, numbers), keys)
            deadlines.add(np.where(gone, 0, expiries), keys)
    return Scanned(left, revisions.rows(), deadlines.rows(), parse_fold_cursor(cursor).revision)


class _Smallest:
    """The rows with the smallest numbers above 0, as columns: a scan looks at every entry of a fold."""

    def __init__(self) -> None:
        self._numbers: list[Numbers] = []
        self._keys: list[pa.BinaryArray] = []
        self._count = 0
        self._cut = REVISION_MAX

    def add(self, numbers: Numbers, keys: pa.BinaryArray) -> None:
        rows = np.flatnonzero((numbers > 0) & (numbers <= self._cut))
        if len(rows):
            self._numbers.append(numbers[rows])
            self._keys.append(take_rows(keys, rows))
            self._count += len(rows)
        if self._count > 2 * WINDOW_ROWS:
            self._trim()

    def rows(self) -> list[tuple[int, bytes]]:
        self._trim()
        if not self._count:
            return []
        (numbers,), (keys,) = self._numbers, self._keys
        order = np.argsort(numbers, kind="stable")
        return list(zip(numbers[order].tolist(), binary_list(take_rows(keys, order)), strict=True))

    def _trim(self) -> None:
        """Keep the smallest in one piece."""
        if not self._count:
            return
        numbers, keys = np.concatenate(self._numbers), pa.concat_arrays(self._keys)
        if self._count > WINDOW_ROWS:
            chosen = np.argpartition(numbers, WINDOW_ROWS - 1)[:WINDOW_ROWS]
            numbers, keys = numbers[chosen], take_rows(keys, chosen)
            self._cut = int(numbers.max())
        self._numbers, self._keys, self._count = [numbers], [keys], len(numbers)


def leaving(entries: Sequence[FoldEntry | None], mode: FoldMode, limits: Limits, *, drops: bool) -> Iterator[FoldEntry]:
    """Yield the entries that have left the bucket in a way that the fold follows."""
    for entry in entries:
        if entry is None:
            continue
        revision = int.from_bytes(entry.version, "big") if len(entry.version) == REVISION_BYTES else 0
        if fold_modes.has_left(mode, revision, entry.expires_ns, first=limits.first, now_ns=limits.now_ns, drops=drops):
            yield entry


def swept_entries(fold: FoldReader, cursor: FoldCursor, look: Observation) -> list[FoldEntry] | None:
    """Return the entries of an unchanging fold that have left; None if there can be no new ones."""
    retention = look.retention
    limits = Sweeper(cursor, cursor.mode).limits(look, cursor)
    if retention is None or limits is None or not fold_modes.is_settled(cursor.revision, retention.last_revision):
        return None
    drops = cursor.seen_dropping or retention.drops_current_values
    return list(leaving(fold.multi_get(scan(fold, limits).left), cursor.mode, limits, drops=drops))
