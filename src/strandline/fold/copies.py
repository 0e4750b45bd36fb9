"""Copies of folds: made of rows, and read again to verify them.

Invariants: a copy is made where nothing is, of rows in the order of their keys, each key once; it is whole when
`make_copy` returns, but nothing is synced. Neither way holds a fold in memory, whatever its backend.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from strandline.fold.backends import Backend, backend_of, open_read_only
from strandline.fold.batches import PutColumns, check_cursor
from strandline.fold.compacted_log import verify_log, write_log
from strandline.fold.store import Verified
from strandline.kv import WatchCursor


def make_copy(path: Path, backend: Backend, pages: Iterable[PutColumns], cursor: WatchCursor) -> None:
    """Make a fold of rows and a cursor; its lock belongs to the caller."""
    check_cursor(cursor)
    match backend:
        case Backend.APPEND_LOG:
            write_log(path, pages, cursor)
        case Backend.SQLITE:
            from strandline.fold.sqlite import write_database  # noqa: PLC0415 - needs the extra `sqlite`

            write_database(path, pages, cursor)
        case Backend.ROCKSDB:
            from strandline.fold.rocksdb import write_tables  # noqa: PLC0415 - needs the extra `rocksdb`

            write_tables(path, pages, cursor)


def verify_copy(path: Path, *, leaves_hints: bool = False) -> Verified:
    """Read all of a copy, as its store does; files that the store writes beside its data are removed.

    With `leaves_hints`, those that make the next opening quick are left beside an append log.
    """
    if backend_of(path) is Backend.APPEND_LOG and (found := verify_log(path, leaves_hints=leaves_hints)) is not None:
        return found
    before = set(path.rglob("*"))
    with contextlib.closing(open_read_only(path)) as copy:
        found = copy.verify()
    for written in set(path.rglob("*")) - before:
        written.unlink()
    return found
