"""The folder in which a server keeps everything: one lock for all that is in it, and a share of the handles.

Invariants: whoever holds the folder's lock is the only one who writes anything below it; that it is so is marked, as
for a `JournalSet`, so that tools that open one of its journals meet that lock, too. Streams and consumers, however
many, take no more handles than the share, plus those that are in use at the moment.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from strandline.errors import Unavailable
from strandline.files import Disk, Lock, OsDisk, OsLock, read_file, replace_file
from strandline.journal.folder import SET_MARKER, SET_MARKER_CONTENT, lock_home
from strandline.journal.handles import HandleDisk
from strandline.journal.recovery import LOCK_NAME

FOLDER_BYTES_MAX = 255
_DOTS = {".": "%2E", "..": "%2E%2E"}
"""Names that mean another folder."""


def format_account_folder(name: str) -> str:
    """Return what the folder of an account is called: a name of its own for every account, and one name in a path."""
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


class StoreDisk(HandleDisk):
    """The disk as a server uses it, which has a lock already."""

    def __init__(self, disk: Disk, held: Path, open_files_max: int, executor: Executor | None = None) -> None:
        super().__init__(disk, open_files_max, executor)
        self._held = held

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock that the file at `path` stands for; the one that is held covers every journal."""
        return OsLock(-1) if path == self._held else super().lock(path)


@contextmanager
def open_store(folder: Path, open_files_max: int, executor: Executor | None = None) -> Iterator[StoreDisk]:
    """Hold a server's folder, made where there is none; `Locked` if another has it."""
    disk = OsDisk()
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
