"""Checks: whether SQLite finds a database whole, and whether every file of a replica is."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.lazy_imports import deferred
from strandline.objects import ObjectStore
from strandline.replica.errors import LtxDamaged, ReplicaGap, RestorePointMissing
from strandline.replica.layout import LtxFile
from strandline.replica.ltx import LtxReader
from strandline.replica.restore import file_pieces
from strandline.replica.restore_points import plan_restore

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")


class FileCheck(NamedTuple):
    """What was found of one file; `problem` is None where it is whole."""

    file: LtxFile
    pages: int
    problem: str | None


def integrity_problems(path: Path) -> list[str]:
    """Return what SQLite's integrity check says of a database, if it says anything but "ok"."""
    # As immutable, so that SQLite makes no files beside it.
    address = f"{path.absolute().as_uri()}?immutable=1"
    connection = apsw.Connection(address, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check")]
    except (apsw.NotADBError, apsw.CorruptError) as error:
        return [str(error)]
    finally:
        connection.close()
    return [] if found == ["ok"] else found


def check_files(store: ObjectStore, files: Sequence[LtxFile]) -> Iterator[FileCheck]:
    """Read every file to its end, and yield what was found."""
    for file in files:
        try:
            yield FileCheck(file, _pages(store, file), None)
        except LtxDamaged as error:
            yield FileCheck(file, 0, error.problem)


def _pages(store: ObjectStore, file: LtxFile) -> int:
    """Read a file to its end; return how many pages it has."""
    reader = LtxReader(file_pieces(store, file), file.key)
    if (reader.header.min_txid, reader.header.max_txid) != (file.min_txid, file.max_txid):
        raise LtxDamaged(file.key, "its name is of other transactions")
    return sum(1 for _ in reader.pages())


def reach_problem(files: Sequence[LtxFile], address: str) -> str | None:
    """Return why the last transaction could not be restored; None where it can."""
    try:
        plan_restore(files, address=address)
    except (ReplicaGap, RestorePointMissing) as error:
        return str(error)
    return None
