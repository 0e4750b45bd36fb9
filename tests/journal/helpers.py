"""What the journal's tests share: small journals on a simulated disk, watched disks, and reading it all back."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from strandline.clock import ManualClock
from strandline.events import Event, Events
from strandline.files import Buffer, Disk, File, Lock, OpenMode, OsDisk
from strandline.gather import InlineExecutor
from strandline.journal import Journal, JournalConfig, JournalReader, Record
from strandline.journal.segment import SEGMENT_HEADER_BYTES, parse_segment_name, walk
from tests import tally
from tests.waiting import PATIENCE_S

P = ParamSpec("P")
R = TypeVar("R")

FOLDER = Path("/sim/journal")
SMALL = JournalConfig(segment_bytes_max=1024, reserve_bytes_max=0)
"""A few records fill a segment."""
WAIT_S = PATIENCE_S
"""Longer than anything here takes; a test that waits so long has failed."""


def open_sim(disk: Disk, config: JournalConfig = SMALL, *, events: Events | None = None) -> Journal:
    """Open a journal on a simulated disk: no threads, and a clock that stands still."""
    return Journal.open(FOLDER, config, disk=disk, clock=ManualClock(), executor=InlineExecutor(), events=events)


def records_of(journal: Journal | JournalReader, start: int | None = None) -> list[Record]:
    """Read everything that can be read, from the first offset."""
    begin = journal.first_offset if start is None else start
    return [record for batch in journal.scan(begin) for record in batch.records()]


def values_of(journal: Journal | JournalReader, start: int | None = None) -> list[bytes]:
    """Read the values of everything that can be read."""
    return [record.value for record in records_of(journal, start)]


def numbered(begin: int, end: int, size: int = 0) -> list[bytes]:
    """Return values that tell their own number, each at least `size` long."""
    return [f"{number}:".encode().ljust(size, b".") for number in range(begin, end)]


def segments_in(folder: Path, disk: Disk | None = None) -> list[str]:
    """Return the names of the segments in a folder, in order."""
    return [name for name in (disk or OsDisk()).names(folder) if parse_segment_name(name) is not None]


def contents(folder: Path, disk: Disk | None = None) -> dict[str, bytes]:
    """Return every file of a folder with its bytes."""
    disk = disk or OsDisk()
    return {name: content(folder / name, disk) for name in disk.names(folder)}


def content(path: Path, disk: Disk | None = None) -> bytes:
    """Return the bytes of a file."""
    with closing((disk or OsDisk()).open(path, "read")) as file:
        return file.pread(file.size(), 0)


def plant(path: Path, data: bytes, disk: Disk | None = None) -> None:
    """Make `data` the content of a file, durably, whatever was there."""
    disk = disk or OsDisk()
    mode: OpenMode = "write" if path.name in disk.names(path.parent) else "create"
    with closing(disk.open(path, mode)) as file:
        file.truncate(0)
        if data:
            file.pwritev([data], 0)
        file.sync()
    disk.sync_folder(path.parent)


def flip(path: Path, position: int, disk: Disk | None = None, mask: int = 1) -> None:
    """Flip bits of one byte; a negative position counts from the end."""
    data = bytearray(content(path, disk))
    data[position] ^= mask
    plant(path, bytes(data), disk)


@contextmanager
def telling(**facts: object) -> Iterator[None]:
    """Say with any failure of the body what it was about: the seed, the place, the number of the call."""
    tally.count(tally.SEEDS, "seed" in facts)
    try:
        yield
    except BaseException as error:
        error.add_note(" ".join(f"{name}={value!r}" for name, value in facts.items()))
        raise


def open_descriptors() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


class Heard:
    """A listener that keeps what it heard."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.hub = Events(self.events.append)

    def of(self, kind: type[Event]) -> list[Event]:
        """Return what was heard of one kind."""
        return [event for event in self.events if type(event) is kind]


Watch = Callable[[str, Path, int], None]
"""Called for each operation, before it has any effect, with its name, path and number of bytes; may raise."""


class WatchedDisk:
    """A disk that tells what is about to be done to it; a synced write is a "pwritev" and then a "sync"."""

    def __init__(self, disk: Disk, watch: Watch) -> None:
        self._disk = disk
        self._watch = watch

    def open(self, path: Path, mode: OpenMode) -> File:
        self._watch("create" if mode == "create" else "open", path, 0)
        return _WatchedFile(self._disk.open(path, mode), path, self._watch)

    def names(self, folder: Path) -> list[str]:
        self._watch("names", folder, 0)
        return self._disk.names(folder)

    def make_folder(self, folder: Path) -> None:
        self._watch("make_folder", folder, 0)
        self._disk.make_folder(folder)

    def remove_folder(self, folder: Path) -> None:
        self._watch("remove_folder", folder, 0)
        self._disk.remove_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        self._watch("rename", target, 0)
        self._disk.rename(source, target)

    def remove(self, path: Path) -> None:
        self._watch("remove", path, 0)
        self._disk.remove(path)

    def sync_folder(self, folder: Path) -> None:
        self._watch("sync_folder", folder, 0)
        self._disk.sync_folder(folder)

    def lock(self, path: Path) -> Lock:
        self._watch("lock", path, 0)
        return self._disk.lock(path)


class _WatchedFile:
    def __init__(self, file: File, path: Path, watch: Watch) -> None:
        self._file = file
        self._path = path
        self._watch = watch

    def pread(self, count: int, position: int) -> bytes:
        data = self._file.pread(count, position)
        self._watch("pread", self._path, len(data))
        return data

    def pwritev(self, buffers: Sequence[Buffer], position: int, *, sync: bool = False) -> int:
        self._watch("pwritev", self._path, sum(map(len, buffers)))
        if sync:
            try:
                self._watch("sync", self._path, 0)
            except BaseException:
                self._file.pwritev(buffers, position)  # written, and nobody knows whether for good
                raise
        return self._file.pwritev(buffers, position, sync=sync)

    def sync(self) -> None:
        self._watch("sync", self._path, 0)
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._watch("truncate", self._path, size)
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._watch("allocate", self._path, size)
        self._file.allocate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class Tally:
    """A watch that counts operations, and the bytes that they were about, by name of the operation."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.log: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def __call__(self, operation: str, path: Path, size: int) -> None:
        with self._lock:
            self.times[operation] += 1
            self.bytes[operation] += size
            self.log.append((operation, path.name))

    def clear(self) -> None:
        with self._lock:
            self.times.clear()
            self.bytes.clear()
            self.log.clear()


class LaterExecutor(Executor):
    """Keeps what it is given until it is told to run it: a test decides what happens in between."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        future: Future[R] = Future()
        self._waiting.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    def run_all(self) -> None:
        """Run what waits, and what that adds."""
        while self._waiting:
            self._waiting.popleft()()

    def run_one(self) -> bool:
        """Run the first that waits; return whether there was one."""
        if not self._waiting:
            return False
        self._waiting.popleft()()
        return True

    def __len__(self) -> int:
        return len(self._waiting)


def in_threads(work: Sequence[Callable[[], R]]) -> list[R | BaseException]:
    """Run each in a thread of its own, at once; return what each returned or raised."""
    outcomes: list[R | BaseException] = [AssertionError("it never ended")] * len(work)
    barrier = threading.Barrier(len(work))

    def run(number: int) -> None:
        barrier.wait(WAIT_S)
        try:
            outcomes[number] = work[number]()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "a thread hangs"
    return outcomes


def batches_at(path: Path, disk: Disk | None = None) -> Iterator[tuple[int, int]]:
    """Yield (position, stored bytes) of each batch of a segment."""
    base = parse_segment_name(path.name)
    assert base is not None
    with closing((disk or OsDisk()).open(path, "read")) as file:
        for position, batch in walk(file, SEGMENT_HEADER_BYTES, base):
            yield position, batch.stored_bytes
