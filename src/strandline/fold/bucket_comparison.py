"""A fold beside its source: whether the state at its cursor is what the bucket says it was; and a key's history.

What is compared. A bucket tells the last update of each key, and no more of what was overwritten. So of the state at
the fold's cursor C:

* a key whose last update in the bucket is at or before C must be in the fold as it is in the bucket, or be missing if
  that update is a delete: it is *missing*, *extra* or *different* otherwise, and the fold is wrong;
* a key that was updated after C is *newer*: what it was at C is no longer known, and nothing is said about it;
* a key of the fold of which the bucket holds nothing, not even a delete, is *extra* if the bucket has not moved on
  since C and never evicts, or if the fold is a mirror and nothing says that the key has left; else it is *unaccounted
  for*, because it may have been evicted, or deleted later and its marker removed;
* to an archive a marker of an expired value says nothing, nor does a value before one that has expired.

Both digests are those of `verify`, over the keys that are compared. If there are no others (`is_complete`), they are
the hashes of the whole state at C, of the fold and of its source.

Invariants: the fold is seen at one moment, and only read. The copy of the source is built in memory, or in a store that
is given for it.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from strandline.fold.batches import FoldBatch, PutColumns
from strandline.fold.cursor import parse_fold_cursor
from strandline.fold.differences import Difference, side_by_side
from strandline.fold.digests import FoldDigest
from strandline.fold.errors import AnotherSource, ScopeChanged
from strandline.fold.memory import MemoryStore
from strandline.fold.records import FoldEntry
from strandline.fold.repair.decisions import foreign_reason
from strandline.fold.scopes import ALL, Scope, start_watch
from strandline.fold.store import FoldReader, SnapshotStore, Verified
from strandline.kv import (
    NO_CURSOR,
    UNKNOWN_VERSION,
    KvStore,
    KvUpdate,
    KvWatcher,
    NotSupported,
    Retention,
    UpdateBatch,
    Watch,
    WatchCursor,
)
from strandline.kv.entries import REVISION_BYTES
from strandline.protocol.fold_modes import FoldMode, follows_expiry, has_left

SAMPLES_MAX = 20
LOOKS_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Keys:
    """How many keys, and the first of them."""

    count: int
    samples: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found; `verified` is the whole fold, the two digests are of the keys that were compared."""

    verified: Verified
    revision: int
    source_revision: int
    compared: int
    fold_digest: bytes
    source_digest: bytes
    missing: Keys
    extra: Keys
    different: Keys
    newer: Keys
    unaccounted: Keys

    @property
    def is_equal(self) -> bool:
        """Tell whether nothing that could be compared is wrong."""
        return not (self.missing.count or self.extra.count or self.different.count)

    @property
    def is_complete(self) -> bool:
        """Tell whether every key could be compared, so that the digests are of the whole state."""
        return not (self.newer.count or self.unaccounted.count)


async def verify_against(
    fold: FoldReader,
    bucket: KvStore,
    scope: Scope = ALL,
    *,
    samples_max: int = SAMPLES_MAX,
    workspace: SnapshotStore | None = None,
) -> Comparison:
    """Compare a fold with the bucket that it was made of, at the fold's cursor.

    `workspace` is an empty store for the copy of the bucket, where memory is too small. `AnotherSource` if the fold is
    of another bucket, `ScopeChanged` if it was made of other keys.
    """
    watcher = bucket.watcher()
    if watcher is None:
        raise NotSupported(f"watching bucket {bucket.name!r}")
    pages = await asyncio.to_thread(fold.pages)
    with closing(pages.columns):
        cursor = parse_fold_cursor(pages.cursor)
        if not scope.is_stored_as(cursor.scope):
            raise ScopeChanged(bucket.name, str(scope))
        reason = foreign_reason(cursor, await watcher.retention())
        if reason is not None:
            raise AnotherSource(bucket.name, reason)
        source = _Source(workspace or MemoryStore(), cursor.revision, cursor.mode)
        await _read(watcher, scope, source)
        retention = await watcher.retention()
        findings = _Findings(source, retention, samples_max)
        await asyncio.to_thread(findings.take, pages.columns)
        return findings.comparison(pages.cursor)


async def history(bucket: KvStore, key: str) -> list[KvUpdate]:
    """Return what the bucket still holds of a key's past, the oldest first; empty if it holds nothing of it."""
    return await bucket.reader().history(key)


class _Source:
    """The bucket as it was at a revision, as far as it still tells."""

    def __init__(self, store: SnapshotStore, revision: int, mode: FoldMode) -> None:
        self.store = store
        self.mode = mode
        self.deleted: set[bytes] = set()
        self.newer: set[bytes] = set()
        self.revision = revision

    def take(self, batch: UpdateBatch) -> None:
        if not follows_expiry(self.mode):
            batch = batch.select(~batch.is_expiry)
        then = (batch.versions != 0) & (batch.versions <= self.revision)
        self.newer.update(batch.select(~then).key_bytes)
        changes = FoldBatch.from_updates(batch.select(then))
        self.deleted.update(changes.deletes.keys)
        self.store.apply(changes, NO_CURSOR)


async def _read(watcher: KvWatcher, scope: Scope, source: _Source) -> None:
    watch = await start_watch(watcher, scope, NO_CURSOR)
    async with watch:
        while not watch.is_current:
            batch = await _next_batch(watch)
            if batch is not None:
                await asyncio.to_thread(source.take, batch)


async def _next_batch(watch: Watch) -> UpdateBatch | None:
    """Return the next updates, None if none come soon: a watch may become current without any."""
    try:
        async with asyncio.timeout(LOOKS_EVERY_S) as limit:
            return await watch.batch()
    except TimeoutError:
        if not limit.expired():
            raise
        return None


@dataclass
class _Tally:
    """Keys that are counted, and the first of them kept."""

    samples_max: int
    count: int = 0
    samples: list[bytes] = field(default_factory=list)

    def add(self, key: bytes) -> None:
        self.count += 1
        if len(self.samples) < self.samples_max:
            self.samples.append(key)

    def keys(self) -> Keys:
        return Keys(self.count, tuple(self.samples))


class _Findings:
    """What is found while both sides go by."""

    def __init__(self, source: _Source, retention: Retention, samples_max: int) -> None:
        self._source = source
        self._retention = retention
        self._whole, self._ours, self._theirs = FoldDigest(), FoldDigest(), FoldDigest()
        self._missing, self._extra, self._different, self._newer, self._unaccounted = (
            _Tally(samples_max) for _ in range(5)
        )

    def take(self, pages: Iterable[PutColumns]) -> None:
        """Go through both sides."""
        with closing(self._source.store.pages().columns) as theirs:
            for rows in side_by_side(pages, theirs):
                if isinstance(rows, PutColumns):
                    for digest in (self._whole, self._ours, self._theirs):
                        digest.update(rows)
                else:
                    self._take_rows(rows)
        unseen = self._source.newer - self._source.deleted
        held = self._source.store.multi_get(sorted(unseen))
        for key, entry in zip(sorted(unseen), held, strict=True):
            if entry is None:
                self._newer.add(key)

    def _take_rows(self, rows: list[Difference]) -> None:
        judged = [row for row in rows if self._judge(row)]
        self._whole.update(_columns(row.left for row in rows))
        self._ours.update(_columns(row.left for row in judged))
        self._theirs.update(_columns(row.right for row in judged))

    def _judge(self, row: Difference) -> bool:
        """Tally a row; False if nothing can be said about it."""
        if row.left is None:
            self._missing.add(row.key)
        elif row.right is not None:
            if not _is_same(row.left, row.right):
                if self._is_kept_alone(row.left, row.right):
                    self._unaccounted.add(row.key)
                    return False
                self._different.add(row.key)
        elif row.key in self._source.deleted or not (row.key in self._source.newer or self._may_have_lost(row.left)):
            self._extra.add(row.key)
        else:
            if row.key not in self._source.newer:
                self._unaccounted.add(row.key)
            return False
        return True

    def _may_have_lost(self, entry: FoldEntry) -> bool:
        """Tell whether the bucket may hold nothing of a key that it had at the fold's cursor."""
        retention, mode = self._retention, self._source.mode
        if retention.last_revision > self._source.revision:
            return True
        if mode is not FoldMode.MIRROR:
            return retention.evicts_current_values
        now_ns = retention.now_ns or time.time_ns()
        first, revision = retention.first_revision, _revision(entry)
        return has_left(mode, revision, entry.expires_ns, first=first, now_ns=now_ns, drops=True)

    def _is_kept_alone(self, ours: FoldEntry, theirs: FoldEntry) -> bool:
        """Tell whether an archive has kept a value that expired, so that the bucket is back at the one before."""
        is_archive = self._source.mode is FoldMode.ARCHIVE
        return is_archive and ours.expires_ns > 0 and _revision(ours) > _revision(theirs)

    def comparison(self, cursor: WatchCursor) -> Comparison:
        """Return what was found."""
        tallies = self._missing, self._extra, self._different, self._newer, self._unaccounted
        missing, extra, different, newer, unaccounted = (tally.keys() for tally in tallies)
        return Comparison(
            verified=Verified(cursor, self._whole.entries, self._whole.digest()),
            revision=self._source.revision,
            source_revision=self._retention.last_revision,
            compared=self._ours.entries + missing.count,
            fold_digest=self._ours.digest(),
            source_digest=self._theirs.digest(),
            missing=missing,
            extra=extra,
            different=different,
            newer=newer,
            unaccounted=unaccounted,
        )


def _revision(entry: FoldEntry) -> int:
    return int.from_bytes(entry.version, "big") if len(entry.version) == REVISION_BYTES else 0


def _is_same(ours: FoldEntry, theirs: FoldEntry) -> bool:
    """Tell whether two entries agree; a version that the fold does not know agrees with any."""
    return ours.value == theirs.value and ours.version in (UNKNOWN_VERSION, theirs.version)


def _columns(entries: Iterable[FoldEntry | None]) -> PutColumns:
    there = [entry for entry in entries if entry is not None]
    columns = [entry.key for entry in there], [entry.value for entry in there], [entry.version for entry in there]
    return PutColumns(*(pa.array(column, pa.binary()) for column in columns))
