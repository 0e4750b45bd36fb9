"""The folder of a server: one lock for all files in it, and a share of the file descriptors.

Invariants: only the holder of the folder's lock writes in the folder. A file marks this, as for a `JournalSet`, so that
tools that open one of its journals meet the lock, too. Streams and consumers, however many, use no more descriptors
than the share, plus those in use at the moment.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from urllib.parse import quote

from strandline.errors import Unavailable
from strandline.files import (
    Buffer,
    Disk,
    File,
    Lock,
    OpenMode,
    OsDisk,
    OsFile,
    OsLock,
    open_descriptor,
    read_file,
    replace_file,
)
from strandline.journal.folder import SET_MARKER, SET_MARKER_CONTENT, lock_home
from strandline.journal.handles import HandleDisk
from strandline.journal.recovery import LOCK_NAME
from strandline.metrics.metric import Durations

FOLDER_BYTES_MAX = 255
_DOTS = {".": "%2E", "..": "%2E%2E"}
"""Names that mean another folder."""


def format_account_folder(name: str) -> str:
    """Return the folder name of an account: unique for each account, and one name in a path."""
    quoted = quote(name, safe="$", errors="surrogatepass")
    if len(quoted) > FOLDER_BYTES_MAX:
        return f"%long-{sha256(name.encode(errors='surrogatepass')).hexdigest()}"
    return _DOTS.get(quoted, quoted)


def storage_unavailable(folder: Path, error: OSError) -> Unavailable:
    """Return why a server cannot keep its data in a folder, in nats-server's words, which tools match."""
    if isinstance(error, NotADirectoryError | FileExistsError):
        reason, hint = "storage directory is not a directory", "it, or a part of its path, is a file"
    else:
        text = (error.strerror or str(error)).lower()
        reason = f"could not create storage directory - mkdir {folder}: {text}"
        hint = "it has to exist, or to be made, and the server has to write there"
    return Unavailable(f"Can't start JetStream: {reason}", hint=f"{folder}: {hint}; give another (store_dir, -sd)")


class TimedFile(OsFile):
    """A file that counts how long its syncs take."""

    def __init__(self, descriptor: int, syncs: Durations) -> None:
        super().__init__(descriptor)
        self._syncs = syncs

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        """Write all buffers one after another from `position`; return how many bytes that was."""
        if not sync:
            return super().pwritev(buffers, position)
        began_s = perf_counter()
        written = super().pwritev(buffers, position, sync=True)
        self._syncs.add(perf_counter() - began_s)
        return written

    def sync(self) -> None:
        """Return when what was written, and the size, are on stable storage."""
        began_s = perf_counter()
        super().sync()
        self._syncs.add(perf_counter() - began_s)


class TimedDisk(OsDisk):
    """The real disk, which counts how long syncs of files take."""

    def __init__(self, syncs: Durations) -> None:
        self._syncs = syncs

    def open(self, path: Path, mode: OpenMode) -> File:
        """Open for reading, for writing (must exist), or create (must not exist)."""
        return TimedFile(open_descriptor(path, mode), self._syncs)


class StoreDisk(HandleDisk):
    """The disk as a server uses it, which has a lock already."""

    def __init__(self, disk: Disk, held: Path, open_files_max: int, executor: Executor | None = None) -> None:
        super().__init__(disk, open_files_max, executor)
        self._held = held

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock of the file at `path`; the lock that is held covers every journal."""
        return OsLock(-1) if path == self._held else super().lock(path)


@contextmanager
def open_store(
    folder: Path, open_files_max: int, executor: Executor | None = None, syncs: Durations | None = None
) -> Iterator[StoreDisk]:
    """Hold the folder of a server, and create it if needed; `Locked` if another server holds it.

    `syncs` counts how long each sync of a file takes.
    """
    disk = OsDisk() if syncs is None else TimedDisk(syncs)
    disk.make_folder(folder)
    folder = folder.resolve()
    home = lock_home(disk, folder) / LOCK_NAME
    with ExitStack() as held:
        held.callback(disk.lock(home).release)
        if read_file(disk, folder / SET_MARKER) != SET_MARKER_CONTENT:
            replace_file(disk, folder / SET_MARKER, SET_MARKER_CONTENT)
        store = StoreDisk(disk, home, open_files_max, executor)
        held.callback(store.close_idle)
        yield store
