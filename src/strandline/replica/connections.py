"""Connections to the database of an application: which databases are refused, and SQLite's errors as ours.

Invariants: a database is looked at through SQLite alone, since closing a file drops the locks of its process. A
connection of ours leaves the log alone: it checkpoints when it is told to, and removes nothing.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.errors import Damaged, StorageRefused, Unavailable
from strandline.lazy_imports import deferred
from strandline.replica.errors import DatabaseRefused

if TYPE_CHECKING:
    import apsw
else:
    apsw = deferred("apsw", "replica")

SQLITE_MIN = (3, 51, 3)
LOG_KEPT_BYTES = 16 << 20
BUSY_MS = 5_000
_CACHE_KIB = 64
_MAGIC = b"SQLite format 3\0"
_DESCRIPTORS = Path("/proc/self/fd")


def check_library() -> None:
    """Refuse a SQLite that can lose commits while it is checkpointed from outside."""
    version = apsw.sqlite_lib_version() if hasattr(apsw, "sqlite_lib_version") else apsw.sqlitelibversion()
    if tuple(int(part) for part in version.split(".")) < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        hint = f"install apsw {needed} or later, which brings its own SQLite"
        raise DatabaseRefused("SQLite", f"{version} can lose commits when a log begins anew", hint=hint)


def check_one_library(path: Path) -> None:
    """Refuse a database that a second SQLite library of this process has open: their locks do not exclude each other.

    Each library opens the index of a log once. It is looked for where the system lists the descriptors of a process.
    """
    try:
        index = path.with_name(f"{path.name}-shm").stat()
        descriptors = list(_DESCRIPTORS.iterdir())
    except OSError:
        return
    opened = 0
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            found = descriptor.stat()
            opened += (found.st_dev, found.st_ino) == (index.st_dev, index.st_ino)
    if opened > 1:
        hint = "in this process, open it with apsw (Python's sqlite3 is another library); or replicate it from another"
        raise DatabaseRefused(str(path), "two SQLite libraries of this process have it open, and damage it", hint=hint)


def real_path(path: Path) -> Path:
    """Return where a database is: SQLite keeps its log, and we our lock, beside the file that a link leads to."""
    return Path(os.path.realpath(path))


def check_database(path: Path) -> None:
    """Refuse what is no SQLite database. It is read through SQLite, as the application may have it open here."""
    hint = "give the path of a database that the application has created"
    if not path.exists():
        raise DatabaseRefused(str(path), "there is no such file", hint=hint)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise DatabaseRefused(str(path), "it is not a file that can be read", hint=hint)
    with sqlite_errors(path):
        file = apsw.VFSFile("", str(path.absolute()), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
        try:
            head = file.xRead(len(_MAGIC), 0) if file.xFileSize() >= len(_MAGIC) else b""
            is_empty = file.xFileSize() == 0
        finally:
            file.xClose()
    if head != _MAGIC and not is_empty:
        raise DatabaseRefused(str(path), "it is not a SQLite database", hint=hint)


@contextlib.contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into one of ours: those that pass are `Unavailable`."""
    try:
        yield
    except (apsw.BusyError, apsw.LockedError) as error:
        hint = "a connection holds it for long; shorter transactions let others in"
        raise Unavailable(f"{path}: the database is busy", hint=hint) from error
    except apsw.FullError as error:
        raise StorageRefused(
            str(path), "the disk is full", "ENOSPC", hint="free some space; it goes on then"
        ) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        safe = "restore from the replica; it is as of the last transaction that was shipped"
        raise Damaged(str(path), f"SQLite finds it damaged: {error}", safe=safe) from error
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError) as error:
        hint = "a replicator needs the rights that the application has, on the file and on its folder"
        raise DatabaseRefused(str(path), f"SQLite cannot use it: {error}", hint=hint) from error
    except apsw.Error as error:
        raise Unavailable(f"{path}: SQLite says: {error}", hint="it is tried again") from error


def connect(path: Path) -> "apsw.Connection":
    """Return a connection that leaves the log alone: it checkpoints when it is told to, and removes nothing."""
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_MS)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    # A log that begins anew is cut to this size by whichever connection does it; for ours it is bounded.
    for pragma in (
        "wal_autocheckpoint = 0",
        f"journal_size_limit = {LOG_KEPT_BYTES}",
        "synchronous = NORMAL",
        f"cache_size = -{_CACHE_KIB}",
    ):
        connection.execute(f"PRAGMA {pragma}")
    with contextlib.suppress(apsw.Error):
        _persist_log(connection)
    return connection


def _persist_log(connection: "apsw.Connection") -> None:
    """Have the log stay when the last connection is closed: the next process goes on with it."""
    import ctypes  # noqa: PLC0415 - only here

    value = ctypes.c_int(1)
    connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(value))
