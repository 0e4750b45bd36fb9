"""Restore: a database as it was after a transaction, from the files of a replica.

Invariants: the files that are applied begin with a whole database and follow one another without a gap; each is
verified to its last byte, and against the one before it where it names it; the database appears under its name when all
of it is on disk, and an existing file is never touched.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from strandline.errors import StorageRefused
from strandline.files import OsDisk, pwritev_all, storage_error
from strandline.objects import ObjectStore
from strandline.replica.errors import LtxDamaged, ReplicaGap
from strandline.replica.layout import Layout, LtxFile
from strandline.replica.ltx import LtxReader
from strandline.replica.restore_points import find_plan
from strandline.replica.shipper import Position

DOWNLOADS = 4
PIECE_BYTES = 4 << 20
RUN_PAGES = 256
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""What a file system without links says."""


class Restored(NamedTuple):
    """What a restore came to."""

    position: Position
    files: int
    size: int
    timestamp_ms: int
    page_size: int
    epoch: int


class Applied(NamedTuple):
    """How far a restore is."""

    file: LtxFile
    number: int
    of: int


def restore(
    store: ObjectStore,
    layout: Layout,
    to: Path,
    *,
    txid: int | None = None,
    at: datetime | None = None,
    tell: Callable[[Applied], None] = lambda _: None,
) -> Restored:
    """Write the database to a path where there is no file yet, as it was after a transaction or at a time."""
    if to.exists():
        raise _exists(to)
    for left in (to.with_name(f"{to.name}-wal"), to.with_name(f"{to.name}-journal")):
        if left.exists():  # SQLite would write it into what is restored
            hint = "it is of another database of that name: move it away, or restore to another name"
            raise StorageRefused(str(left), "there is a log already", "EEXIST", hint=hint)
    plan = find_plan(store, layout.all_files(), txid=txid, at=at)
    part = to.with_name(f".{to.name}.restoring-{os.getpid()}")
    try:
        with part.open("xb") as out:
            restored = apply_files(store, plan, out.fileno(), tell)
            os.fsync(out.fileno())
        _appear(part, to)
        OsDisk().sync_folder(to.parent)
    except OSError as error:
        raise storage_error(to, error) from error
    finally:
        part.unlink(missing_ok=True)
    return restored


def _appear(part: Path, to: Path) -> None:
    """Give a file its name, and not over one that an application has made meanwhile."""
    try:
        to.hardlink_to(part)
    except FileExistsError:
        raise _exists(to) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        part.rename(to)


def _exists(to: Path) -> StorageRefused:
    return StorageRefused(str(to), "there is a file already", "EEXIST", hint="restore beside it, and move it then")


def apply_files(
    store: ObjectStore,
    plan: Sequence[LtxFile],
    file: int,
    tell: Callable[[Applied], None] = lambda _: None,
    after: Position | None = None,
) -> Restored:
    """Write the pages of files into an open database file, one file after another, downloaded ahead."""
    position, size, timestamp_ms, page_size, epoch = after, 0, 0, 0, 0
    with ThreadPoolExecutor(DOWNLOADS, "strandline-restore") as pool:
        for number, (one, pieces) in enumerate(_downloaded(store, plan, pool), 1):
            reader = LtxReader(pieces, one.key)
            header = reader.header
            if (header.min_txid, header.max_txid) != (one.min_txid, one.max_txid):
                raise LtxDamaged(one.key, f"it holds transactions {header.min_txid} to {header.max_txid}")
            if (
                position is not None
                and header.min_txid == position.txid + 1
                and not header.continues(position.checksum)
            ):
                raise ReplicaGap(store.address, position.txid, f"{one.key} follows another file")
            _write_pages(file, reader.pages(), header.page_size)
            os.ftruncate(file, header.commit * header.page_size)
            assert reader.end is not None  # noqa: S101 - all pages were handed out
            position = Position(header.max_txid, header.end_checksum(reader.end.checksum))
            page_size, timestamp_ms, epoch = header.page_size, header.timestamp_ms, max(epoch, header.epoch)
            size = header.commit * page_size
            tell(Applied(one, number, len(plan)))
    assert position is not None  # noqa: S101 - a plan has a file
    return Restored(position, len(plan), size, timestamp_ms, page_size, epoch)


def _write_pages(file: int, pages: Iterable[tuple[int, bytes]], page_size: int) -> None:
    """Write pages, those that stand side by side at once."""
    first, run = 1, list[bytes]()
    for number, page in pages:
        if number != first + len(run) or len(run) == RUN_PAGES:
            pwritev_all(file, run, (first - 1) * page_size)
            first, run = number, []
        run.append(page)
    pwritev_all(file, run, (first - 1) * page_size)


def _downloaded(
    store: ObjectStore, plan: Sequence[LtxFile], pool: ThreadPoolExecutor
) -> Iterator[tuple[LtxFile, Iterator[bytes]]]:
    """Yield files with their bytes; pieces of this and of the next files are on their way meanwhile."""
    pieces = [(file, start) for file in plan for start in range(0, file.size, PIECE_BYTES)]
    under_way: list[Future[bytes]] = []
    asked = 0

    def ask() -> None:
        nonlocal asked
        while asked < len(pieces) and len(under_way) < 2 * DOWNLOADS:
            under_way.append(pool.submit(_piece, store, *pieces[asked]))
            asked += 1

    def bytes_of(file: LtxFile) -> Iterator[bytes]:
        for _ in range(0, file.size, PIECE_BYTES):
            ask()
            yield under_way.pop(0).result()

    for file in plan:
        yield file, bytes_of(file)


def _piece(store: ObjectStore, file: LtxFile, start: int) -> bytes:
    stop = min(start + PIECE_BYTES, file.size)
    found = store.get(file.key, start=start, stop=stop)
    if found is None or len(found.body) != stop - start:
        raise LtxDamaged(file.key, "it went away or changed while it was read")
    return found.body


def file_pieces(store: ObjectStore, file: LtxFile) -> Iterator[bytes]:
    """Yield the bytes of a file, one piece after another."""
    for start in range(0, file.size, PIECE_BYTES):
        yield _piece(store, file, start)
