"""Compaction: many files of a replica merged into one, in bounded memory.

Invariants: the merged file has, of each page, the version of the last file that has it, and no page beyond the size of
the database after the last file. It begins and ends where its sources do, so that what follows them follows it. Sources
are merged only if they are contiguous and each follows the one before it; otherwise no object appears. A merged file
that is to hold a whole database has every page. What is before a change of the page size is not in it. Merging the same
sources again gives the same pages, so that a compaction that was cut off, or done twice, is harmless.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise

from strandline.objects import ObjectStore
from strandline.replica.errors import LtxDamaged, ReplicaGap
from strandline.replica.layout import LEVEL_SNAPSHOT, Layout, LtxFile
from strandline.replica.ltx import LtxHeader, LtxReader, encode, file_checksum, lock_page
from strandline.replica.restore_points import plan_restore

FILES_MAX = 64
"""How many files are merged at once; each has a piece in memory."""
PIECE_BYTES = 1 << 20


def compact(store: ObjectStore, layout: Layout, files: Sequence[LtxFile], level: int) -> LtxFile:
    """Merge contiguous files, at most `FILES_MAX`, into one of a level; return it. The sources stay."""
    readers = [LtxReader(_pieces(store, file), file.key) for file in files]
    tail = store.get(files[-1].key, start=max(0, files[-1].size - 8))
    if tail is None:
        raise LtxDamaged(files[-1].key, "it went away while it was merged")
    header = _merged(readers[0].header, readers[-1].header, file_checksum(tail.body))
    for before, after in pairwise(reader.header for reader in readers):
        _check_transactions(before, after, store.address)
    sizes = [reader.header.page_size for reader in readers]
    first = max((at for at in range(1, len(sizes)) if sizes[at] != sizes[at - 1]), default=0)
    is_whole = header.is_snapshot or first > 0  # nothing of a page of another size is left
    key = layout.key(level, header.min_txid, header.max_txid)
    merged = merge(readers[first:], header, store.address, is_whole=is_whole)
    store.put_stream(key, merged, metadata=layout.metadata(header.timestamp_ms))
    info = store.head(key)
    if info is None:
        raise LtxDamaged(key, "it went away after it was written")
    return LtxFile(level, header.min_txid, header.max_txid, key, info.size, info.modified)


def take_snapshot(store: ObjectStore, layout: Layout, files: Sequence[LtxFile]) -> LtxFile | None:
    """Write the whole database after the last transaction as one file; None where there is one already."""
    plan = plan_restore(files, address=store.address)
    if plan[-1].level == LEVEL_SNAPSHOT:
        return None
    while len(plan) > FILES_MAX:
        plan = [compact(store, layout, plan[:FILES_MAX], LEVEL_SNAPSHOT), *plan[FILES_MAX:]]
    return compact(store, layout, plan, LEVEL_SNAPSHOT)


def compact_level(store: ObjectStore, layout: Layout, files: Sequence[LtxFile], level: int) -> list[LtxFile]:
    """Merge what the level below has beyond this one; return the new files."""
    reached = max((file.max_txid for file in files if file.level == level), default=0)
    sources = sorted(file for file in files if file.level == level - 1 and file.max_txid > reached)
    made = []
    while len(sources) > 1:
        batch, sources = sources[:FILES_MAX], sources[FILES_MAX:]
        if batch[0].min_txid > reached + 1 and reached:
            raise ReplicaGap(store.address, reached, f"level {level - 1} begins at transaction {batch[0].min_txid}")
        made.append(compact(store, layout, batch, level))
        reached = made[-1].max_txid
    return made


def merge(readers: Sequence[LtxReader], header: LtxHeader, address: str, *, is_whole: bool = False) -> Iterator[bytes]:
    """Yield the file that contiguous ones come to; its last piece comes after all of them were verified.

    Where it is to hold a whole database (`is_whole`), a missing page is an error.
    """
    for before, after in pairwise(reader.header for reader in readers):
        _check_contiguous(before, after, address)
    held: bytes | None = None
    pages = _latest(readers, header.commit)
    for piece in encode(header, _complete(pages, header, address) if is_whole else pages):
        if held is not None:
            yield held
        held = piece
    for earlier, later in pairwise(readers):
        if earlier.end is None or later.end is None:
            raise LtxDamaged("a source of a merge", "it was not read to its end")
        is_next = later.header.min_txid == earlier.header.max_txid + 1
        if is_next and not later.header.continues(earlier.header.end_checksum(earlier.end.checksum)):
            raise ReplicaGap(address, earlier.header.max_txid, "a file follows another one")
    if held is not None:
        yield held


def _merged(first: LtxHeader, last: LtxHeader, last_checksum: int) -> LtxHeader:
    return LtxHeader(
        last.page_size,
        last.commit,
        first.min_txid,
        last.max_txid,
        last.timestamp_ms,
        epoch=last.epoch,
        predecessor=first.predecessor,
        end=last.end_checksum(last_checksum),
    )


def _check_contiguous(before: LtxHeader, after: LtxHeader, address: str) -> None:
    if before.page_size != after.page_size:
        problem = f"pages of {after.page_size} bytes follow ones of {before.page_size}"
        raise ReplicaGap(address, before.max_txid, problem)
    _check_transactions(before, after, address)


def _check_transactions(before: LtxHeader, after: LtxHeader, address: str) -> None:
    if not after.min_txid <= before.max_txid + 1 <= after.max_txid:
        raise ReplicaGap(address, before.max_txid, f"transactions {after.min_txid} to {after.max_txid} do not follow")


def _latest(readers: Sequence[LtxReader], commit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the latest version of each page, in order."""

    def ranked(reader: LtxReader, rank: int) -> Iterator[tuple[int, int, bytes]]:
        return ((number, rank, page) for number, page in reader.pages())

    last = 0
    newest_first = [ranked(reader, -rank) for rank, reader in enumerate(readers)]
    for number, _, page in heapq.merge(*newest_first, key=lambda item: item[:2]):
        if number != last and number <= commit:
            yield number, page
        last = number


def _complete(pages: Iterator[tuple[int, bytes]], header: LtxHeader, address: str) -> Iterator[tuple[int, bytes]]:
    """Yield the pages of a whole database; `ReplicaGap` where one is missing."""
    expected, lock = 1, lock_page(header.page_size)
    for number, page in pages:
        expected += expected == lock
        if number != expected:
            break
        yield number, page
        expected += 1
    expected += expected == lock
    if expected <= header.commit:
        raise ReplicaGap(address, header.max_txid, f"page {expected} of {header.commit} is missing")


def _pieces(store: ObjectStore, file: LtxFile) -> Iterator[bytes]:
    for start in range(0, file.size, PIECE_BYTES):
        found = store.get(file.key, start=start, stop=min(start + PIECE_BYTES, file.size))
        if found is None:
            raise LtxDamaged(file.key, "it went away while it was merged")
        yield found.body
