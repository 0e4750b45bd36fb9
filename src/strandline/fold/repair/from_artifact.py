"""Repairs from an artifact: another fold of the same bucket, newer than this one and within reach of the log.

Invariants: `restore_allowed` and `restore_key` decide. The artifact's values are taken chunk by chunk under the old
cursor, and keys of the fold alone are deleted unless the bucket lists them; the caller stores the artifact's cursor
last. Memory holds one chunk of rows, and the keys that are deleted.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from strandline.fold.cursor import UNKNOWN, FoldCursor, parse_fold_cursor
from strandline.fold.errors import RepairRefused
from strandline.fold.records import FoldEntry
from strandline.fold.scopes import Scope
from strandline.fold.store import FoldReader
from strandline.kv import Retention, UpdateBatch
from strandline.kv.entries import REVISION_BYTES
from strandline.protocol import repairs
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import Held, KeyRepair

ROWS_PER_CHUNK = 4096
MultiGet = Callable[[Sequence[bytes]], list[FoldEntry | None]]
LATER = "wait for a newer artifact, or remove the fold and begin anew"


def checked_mark(
    artifact: FoldReader, bucket: str, scope: Scope, local: FoldCursor, retention: Retention | None, mode: FoldMode
) -> FoldCursor:
    """Return the cursor of an artifact that this fold may be restored from; else `RepairRefused`."""
    cursor = parse_fold_cursor(artifact.cursor())
    identity = retention.identity if retention is not None else b""
    if identity and cursor.identity not in (UNKNOWN, identity):
        raise RepairRefused(bucket, "the artifact is of another bucket", hint="check the source of artifacts")
    if mode is FoldMode.ARCHIVE and cursor.mode is FoldMode.MIRROR:
        hint = "export artifacts of an archive for archives"
        raise RepairRefused(bucket, "the artifact is of a mirror, which lacks evicted values", hint=hint)
    if not scope.is_covered_by(cursor.scope):
        raise RepairRefused(bucket, f"the artifact does not hold {scope}", hint="export with a scope that covers this")
    if not repairs.restore_ahead(cursor.revision, local.revision):
        reason = f"the newest artifact stands at revision {cursor.revision}, the fold at {local.revision} already"
        if retention is not None:
            reason += f", and the log begins at {retention.first_revision}"
        raise RepairRefused(bucket, reason, hint=LATER)
    if retention is not None and not repairs.restore_allowed(cursor.revision, local.revision, retention.first_revision):
        reason = (
            f"the newest artifact stands at revision {cursor.revision}, the log begins at {retention.first_revision}"
        )
        raise RepairRefused(bucket, reason, hint=LATER)
    return cursor


def for_each_taken(
    artifact: FoldReader, multi_get: MultiGet, scope: Scope, take: Callable[[UpdateBatch], object], *, comparable: bool
) -> int:
    """Hand over, in chunks, the entries of an artifact that the fold lacks or has older; return the number of keys.

    `multi_get` reads the fold, which changes meanwhile. If not `comparable`, the fold's revisions may be of another
    log, and are ignored.
    """
    waiting: list[FoldEntry] = []
    taken = 0

    def flush() -> None:
        nonlocal taken
        local = multi_get([entry.key for entry in waiting])
        chosen = [
            entry
            for entry, found in zip(waiting, local, strict=True)
            if decided(found, entry, listed=True, comparable=comparable) is KeyRepair.TAKE
        ]
        waiting.clear()
        if chosen:
            taken += len(chosen)
            take(puts(chosen))

    def visit(entry: FoldEntry) -> None:
        waiting.append(entry)
        if len(waiting) == ROWS_PER_CHUNK:
            flush()

    for prefix in scope.starts:
        artifact.for_each_in_range(prefix, visit)
    flush()
    return taken


def vanished_keys(
    artifact: FoldReader, fold: FoldReader, scope: Scope, listed: Collection[bytes], *, whole: bool = False
) -> list[bytes]:
    """Return the keys of the fold alone that the bucket does not list; if `whole`, also those outside the scope."""
    gone: list[bytes] = []
    waiting: list[FoldEntry] = []

    def flush() -> None:
        theirs = artifact.multi_get([entry.key for entry in waiting])
        for entry, found in zip(waiting, theirs, strict=True):
            theirs_too = found if scope.has(entry.key) else None
            if decided(entry, theirs_too, listed=entry.key in listed, comparable=True) is KeyRepair.DELETE:
                gone.append(entry.key)
        waiting.clear()

    def visit(entry: FoldEntry) -> None:
        waiting.append(entry)
        if len(waiting) == ROWS_PER_CHUNK:
            flush()

    for prefix in (b"",) if whole else scope.starts:
        fold.for_each_in_range(prefix, visit)
    flush()
    return gone


def decided(local: FoldEntry | None, artifact: FoldEntry | None, *, listed: bool, comparable: bool) -> KeyRepair:
    """Return the change of a key."""
    identical = local is not None and artifact is not None and local == artifact
    held = _held(local) if comparable or local is None else Held(None)
    return repairs.restore_key(held, _held(artifact), identical=identical, listed=listed)


def puts(entries: Sequence[FoldEntry]) -> UpdateBatch:
    """Return entries as updates."""
    keys, values = (pa.array(column, pa.binary()) for column in zip(*((e.key, e.value) for e in entries), strict=True))
    revisions = np.array([_revision(entry) or 0 for entry in entries], np.uint64)
    deadlines = np.array([entry.expires_ns for entry in entries], np.uint64)
    return UpdateBatch(keys, np.zeros(len(entries), np.uint8), revisions, values, deadlines)


def _held(entry: FoldEntry | None) -> Held | None:
    return None if entry is None else Held(_revision(entry))


def _revision(entry: FoldEntry) -> int | None:
    return int.from_bytes(entry.version, "big") if len(entry.version) == REVISION_BYTES else None
