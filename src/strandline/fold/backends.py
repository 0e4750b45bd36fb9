"""Opening a fold by its path alone: what is there says which backend it is, and the name decides for a new one.

| name of a new fold | backend |
|---|---|
| `….db`, `….sqlite`, `….sqlite3` | SQLite, one file |
| `….rocks` | RocksDB, a folder |
| anything else | append log, one file; held in memory |

Invariants: what exists is never taken for something else, and never replaced: its content decides, and a `backend` that
says otherwise is refused. A fold that is locked names who holds it, where the system tells.
"""

import contextlib
import re
from enum import Enum
from pathlib import Path

from strandline.errors import FormatError, Locked
from strandline.fold.append_log import AppendLogReader, AppendLogStore
from strandline.fold.paths import LOCK_SUFFIX
from strandline.fold.store import FoldReader, SnapshotStore
from strandline.journal import SYNCED, Durability

_SQLITE_MAGIC = b"SQLite format 3\0"
_LOG_MAGIC = b"PGSS"
_ROCKSDB_FILE = "CURRENT"
_ROCKSDB_NAME = re.compile(
    r"rocksdict-config\.json|LOG(\.old.*)?|LOCK|IDENTITY|CURRENT|MANIFEST-\d+|OPTIONS-\d+|\d+\.(log|sst|dbtmp)"
)
"""What RocksDB calls its files; without `CURRENT` they are those of a store whose first moment was cut short."""


class Backend(Enum):
    """What keeps a fold."""

    APPEND_LOG = "append-log"
    SQLITE = "sqlite"
    ROCKSDB = "rocksdb"


_BY_SUFFIX = {
    ".db": Backend.SQLITE,
    ".sqlite": Backend.SQLITE,
    ".sqlite3": Backend.SQLITE,
    ".rocks": Backend.ROCKSDB,
}


def open_fold(path: Path | str, backend: Backend | None = None, *, sync: Durability = SYNCED) -> SnapshotStore:
    """Open the fold at `path`, or begin one; the caller closes it.

    `FormatError` if something else is there, `Damaged` if it is not whole, `Locked` if another process has it open.
    """
    path = Path(path)
    chosen = backend_of(path, backend)
    try:
        match chosen:
            case Backend.APPEND_LOG:
                return AppendLogStore.open(path, sync=sync)
            case Backend.SQLITE:
                from strandline.fold.sqlite import SqliteStore  # noqa: PLC0415 - needs the extra `sqlite`

                return SqliteStore.open(path, sync=sync)
            case Backend.ROCKSDB:
                from strandline.fold.rocksdb import RocksDbStore  # noqa: PLC0415 - needs the extra `rocksdb`

                return RocksDbStore.open(path, sync=sync)
    except Locked as locked:
        holder = holder_of(path) or "another writer"
        hint = f"{holder} keeps it up to date; read it with open_read_only, stop that, or give another path"
        raise Locked(str(path), hint=hint) from locked


def open_read_only(path: Path | str) -> FoldReader:
    """Open the fold at `path` beside its writer, without a lock; `StorageRefused` if there is none."""
    match backend_of(path):
        case Backend.APPEND_LOG:
            return AppendLogReader.open_read_only(path)
        case Backend.SQLITE:
            from strandline.fold.sqlite import SqliteReader  # noqa: PLC0415 - needs the extra `sqlite`

            return SqliteReader.open_read_only(path)
        case Backend.ROCKSDB:
            from strandline.fold.rocksdb import RocksDbReader  # noqa: PLC0415 - needs the extra `rocksdb`

            return RocksDbReader.open_read_only(path)


def backend_of(path: Path | str, backend: Backend | None = None) -> Backend:
    """Return the backend of the fold at `path`, or of the one that would be made there; `FormatError` for neither."""
    path = Path(path)
    found = existing_backend(path)
    if found is None:
        return backend or _BY_SUFFIX.get(path.suffix, Backend.APPEND_LOG)
    if backend is not None and backend is not found:
        hint = f"open it as {found.value}, or give another path"
        raise FormatError(str(path), f"is a fold of backend {found.value}, not {backend.value}", hint=hint)
    return found


def existing_backend(path: Path | str) -> Backend | None:
    """Return the backend of the fold at `path`, None if nothing is there yet; `FormatError` if it is no fold."""
    path = Path(path)
    if path.is_dir():
        if (path / _ROCKSDB_FILE).exists():
            return Backend.ROCKSDB
        if not all(_ROCKSDB_NAME.fullmatch(file.name) for file in path.iterdir()):
            raise FormatError(str(path), "is a folder, but not of a fold", hint="give the path of a fold")
        return Backend.ROCKSDB
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE_MAGIC))
    except FileNotFoundError:
        return None
    if not start:
        return None
    if start == _SQLITE_MAGIC:
        return Backend.SQLITE
    if start.startswith(_LOG_MAGIC):
        return Backend.APPEND_LOG
    raise FormatError(str(path), "is not a fold", hint="give the path of a fold, or of no file")


def holder_of(path: Path | str) -> str | None:
    """Name the process that keeps a fold open to change it; None if there is none, or if the system does not tell."""
    path = Path(path)
    with contextlib.suppress(OSError, ValueError):
        inode = str(path.with_name(path.name + LOCK_SUFFIX).stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                return _process(int(fields[4]))
    return None


def _process(pid: int) -> str:
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        return f"process {pid} ({name})"
    return f"process {pid}"
