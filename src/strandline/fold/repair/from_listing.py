"""Repairs from a listing: keys that the bucket does not list are deleted, under the old cursor.

Invariants: the listing is complete before anything is deleted; the deletes have no version, so they move no cursor.
The bucket's values are not part of it: the watch delivers them after the deletes.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from strandline.fold.records import FoldEntry
from strandline.fold.scopes import Scope
from strandline.fold.store import FoldReader
from strandline.kv import KvEntry, KvReader, UpdateBatch, UpdateKind, parse_revision

KEYS_PER_CHUNK = 10_000


async def list_keys(reader: KvReader, scope: Scope) -> set[bytes]:
    """Return every key of a scope that the bucket lists; an error ends the repair, also halfway."""
    listed: set[bytes] = set()
    for prefix in scope.prefixes:
        listed.update(key.encode(errors="surrogateescape") for key in await reader.keys(prefix))
    return listed


def stale_keys(store: FoldReader, scope: Scope, listed: Collection[bytes], *, whole: bool = False) -> list[bytes]:
    """Return the keys of a fold that are not listed; if `whole`, also those outside its scope."""
    stale: list[bytes] = []

    def visit(entry: FoldEntry) -> None:
        if entry.key not in listed:
            stale.append(entry.key)

    for prefix in (b"",) if whole else scope.starts:
        store.for_each_in_range(prefix, visit)
    return stale


def deletes(keys: Sequence[bytes]) -> Iterator[UpdateBatch]:
    """Yield deletes of unknown version for some keys, in chunks."""
    for start in range(0, len(keys), KEYS_PER_CHUNK):
        chunk = keys[start : start + KEYS_PER_CHUNK]
        kinds = np.full(len(chunk), UpdateKind.DELETE, np.uint8)
        nothing = pa.array([b""] * len(chunk), pa.binary())
        yield UpdateBatch(pa.array(chunk, pa.binary()), kinds, np.zeros(len(chunk), np.uint64), nothing)


def puts_of(entries: Sequence[KvEntry]) -> UpdateBatch:
    """Return entries of the bucket as updates."""
    return UpdateBatch.from_columns(
        [entry.key for entry in entries],
        np.zeros(len(entries), np.uint8),
        np.array([parse_revision(entry.version) or 0 for entry in entries], np.uint64),
        [entry.value for entry in entries],
        np.array([entry.expires_ns for entry in entries], np.uint64),
    )
