"""Removal of evicted entries from a fold: those below the log's first revision, and values whose time to live is over.

Invariants: an entry is removed only if `fold_modes.has_left` says so of the entry as the store has it at that moment,
by a look at the bucket whose end the fold has reached. Candidates are only where to look.

Looking for them must not cost a scan for each look. So a scan remembers the smallest revisions and the soonest
deadlines beside what has left (`Window`), and as long as the log's beginning and the time move within these, only they
are looked at. A scan runs in a thread of its own, and the next one waits ten times as long as it took.
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
from strandline.fold.store import FoldReader
from strandline.fold.watch.observation import Observation
from strandline.kv import UpdateBatch, UpdateKind
from strandline.kv.entries import REVISION_BYTES, REVISION_MAX
from strandline.protocol import fold_modes
from strandline.protocol.fold_modes import FoldMode
from strandline.wire import binary_list

WINDOW_ROWS = 65_536
PAUSE_FACTOR = 10.0
Numbers = NDArray[np.uint64]


class Limits(NamedTuple):
    """Below what entries have left: the log's first revision, 0 if that says nothing; and the time."""

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
        """Take in what was put since; what is above the bound will be found by a scan."""
        rows = np.flatnonzero((numbers > 0) & (numbers <= max(self.bound, 0)))
        if len(rows):
            for row in zip(numbers[rows].tolist(), binary_list(keys.take(pa.array(rows))), strict=True):
                heapq.heappush(self._rows, row)
            self._trim()

    def take(self, limit: int) -> list[bytes]:
        """Take out the keys up to a number, which the window must reach."""
        keys = []
        while self._rows and self._rows[0][0] <= limit:
            keys.append(heapq.heappop(self._rows)[1])
        return keys

    def _trim(self) -> None:
        if len(self._rows) > 2 * WINDOW_ROWS:
            self._rows = heapq.nsmallest(WINDOW_ROWS, self._rows)
            self.bound = self._rows[-1][0] - 1  # others may have the last number


class Scanned(NamedTuple):
    """What a scan found: keys that have left, and the smallest numbers of the others with their keys."""

    left: list[bytes]
    revisions: list[tuple[int, bytes]]
    deadlines: list[tuple[int, bytes]]
    revision: int
    """Where the fold stood: all revisions up to there are known, as far as the rows reach."""


class Sweeper:
    """Finds what has left one fold, while one watch lasts."""

    def __init__(self, cursor: FoldCursor, mode: FoldMode) -> None:
        self.mode = mode
        self.floor = cursor.floor if mode is FoldMode.MIRROR else 0
        self.has_deadlines = cursor.has_deadlines
        self._revisions = Window()
        self._deadlines = Window(-1 if cursor.has_deadlines else REVISION_MAX)
        self._noted: list[UpdateBatch] | None = None

    @property
    def is_scanning(self) -> bool:
        """Tell whether a scan is under way."""
        return self._noted is not None

    @property
    def next_deadline_ns(self) -> int | None:
        """Return when the next value expires, as far as that is known; of a mirror only."""
        return self._deadlines.least if self.mode is FoldMode.MIRROR else None

    def note(self, batch: UpdateBatch) -> None:
        """Learn of updates that are about to be stored."""
        if self._noted is not None:
            self._noted.append(batch)
        puts = batch.kinds == UpdateKind.PUT
        self._revisions.add(np.where(puts, batch.versions, 0), batch.key_column)
        if batch.expires_ns is not None and (deadlines := np.where(puts, batch.expires_ns, 0)).any():
            self.has_deadlines = True
            self._deadlines.add(deadlines, batch.key_column)

    def limits(self, look: Observation, cursor: FoldCursor) -> Limits | None:
        """Return what a look says has left, None if it is nothing new."""
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
        """Tell whether the windows do not reach so far."""
        is_behind = limits.first > self.floor and self._revisions.bound < limits.first - 1
        return is_behind or (self.has_deadlines and self._deadlines.bound < limits.now_ns)

    def begin_scan(self) -> None:
        """Note that a scan begins; updates are remembered until it ended."""
        self._noted = []

    def end_scan(self, found: Scanned | None) -> list[bytes]:
        """Take in what a scan found, None if it failed, and return the keys that seem to have left."""
        noted, self._noted = self._noted or [], None
        if found is None:
            return []
        self._revisions.fill(found.revisions, _bound(found.revisions, found.revision))
        self._deadlines.fill(found.deadlines, _bound(found.deadlines, REVISION_MAX))
        for batch in noted:
            self.note(batch)
        return found.left

    def take(self, limits: Limits) -> list[bytes]:
        """Take the candidates up to some limits, which the windows reach."""
        keys = self._revisions.take(limits.first - 1) if limits.first > self.floor else []
        return [*keys, *self._deadlines.take(limits.now_ns)] if self.has_deadlines else keys

    def put_back(self, keys: Sequence[bytes], limits: Limits) -> None:
        """Have keys looked at again, by the next look, whose time is over and which the bucket still has."""
        self._deadlines.add(np.full(len(keys), limits.now_ns + 1, np.uint64), pa.array(keys, pa.binary()))

    def swept(self, limits: Limits) -> None:
        """Note that nothing below some limits is left."""
        self.floor = max(self.floor, limits.first)


def _bound(rows: list[tuple[int, bytes]], otherwise: int) -> int:
    """Return up to where the rows of a scan are all there are: it keeps only so many."""
    return rows[-1][0] - 1 if len(rows) >= WINDOW_ROWS else otherwise


def scan(fold: FoldReader, limits: Limits) -> Scanned:
    """Look through a whole fold, as it is at one moment, for what has left and for what will be next."""
    left: list[bytes] = []
    revisions, deadlines = _Smallest(), _Smallest()
    pages = fold.pages()
    with closing(pages.columns):
        for page in pages.columns:
            numbers, expiries = numbers_of(page.versions)
            gone = ((numbers > 0) & (numbers < limits.first)) | ((expiries > 0) & (expiries <= limits.now_ns))
            if gone.any():
                left += binary_list(page.keys.filter(pa.array(gone)))
            revisions.add(np.where(gone, 0, numbers), page.keys)
            deadlines.add(np.where(gone, 0, expiries), page.keys)
    return Scanned(left, revisions.rows(), deadlines.rows(), parse_fold_cursor(pages.cursor).revision)


class _Smallest:
    """The rows with the smallest numbers above 0."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, bytes]] = []
        self._cut = REVISION_MAX

    def add(self, numbers: Numbers, keys: pa.BinaryArray) -> None:
        rows = np.flatnonzero((numbers > 0) & (numbers <= self._cut))
        if len(rows):
            self._rows += zip(numbers[rows].tolist(), binary_list(keys.take(pa.array(rows))), strict=True)
        if len(self._rows) > 2 * WINDOW_ROWS:
            self._rows = heapq.nsmallest(WINDOW_ROWS, self._rows)
            self._cut = self._rows[-1][0]

    def rows(self) -> list[tuple[int, bytes]]:
        return heapq.nsmallest(WINDOW_ROWS, self._rows)


def leaving(entries: Sequence[FoldEntry | None], mode: FoldMode, limits: Limits, *, drops: bool) -> Iterator[FoldEntry]:
    """Yield the entries that have left the bucket in a way that the fold follows."""
    for entry in entries:
        if entry is None:
            continue
        revision = int.from_bytes(entry.version, "big") if len(entry.version) == REVISION_BYTES else 0
        if fold_modes.has_left(mode, revision, entry.expires_ns, first=limits.first, now_ns=limits.now_ns, drops=drops):
            yield entry


def swept_entries(fold: FoldReader, cursor: FoldCursor, look: Observation) -> list[FoldEntry] | None:
    """Return the entries of a fold, which does not change meanwhile, that have left; None if nothing new can have."""
    retention = look.retention
    limits = Sweeper(cursor, cursor.mode).limits(look, cursor)
    if retention is None or limits is None or not fold_modes.is_settled(cursor.revision, retention.last_revision):
        return None
    drops = cursor.seen_dropping or retention.drops_current_values
    return list(leaving(fold.multi_get(scan(fold, limits).left), cursor.mode, limits, drops=drops))
