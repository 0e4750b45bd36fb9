"""What the queue's tests share: queues on a simulated disk, disks that fail, and listeners that remember."""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import TypeVar

from strandline.clock import Clock, ManualClock
from strandline.events import Event, Events
from strandline.files import Disk
from strandline.gather import InlineExecutor
from strandline.groups import GroupConfig
from strandline.journal import JournalConfig
from strandline.queue import JournalStorage, MemoryStorage, QueueConfig, QueueServer, RemoteStorage
from strandline.queue.reservations import Reservations
from strandline.sim import Fault
from tests.waiting import PATIENCE_S

R = TypeVar("R")
E = TypeVar("E", bound=Event)

FOLDER = Path("/sim/queue")
CHANGES = frozenset({"create", "pwritev", "sync", "truncate", "allocate", "rename", "remove", "sync_folder"})
"""The operations that change a simulated disk."""
SMALL_JOURNAL = JournalConfig(segment_bytes_max=1024, reserve_bytes_max=0)
SMALL = QueueConfig(deliveries_max=3, journal=SMALL_JOURNAL)
"""A few messages fill a segment."""
WAIT_S = PATIENCE_S
"""Longer than anything here takes; a test that waits so long has failed."""


def open_sim(
    disk: Disk,
    clock: Clock | None = None,
    config: QueueConfig = SMALL,
    *,
    events: Events | None = None,
    folder: Path = FOLDER,
) -> JournalStorage:
    """Open a queue's storage on a simulated disk: no threads, and a clock that stands still."""
    return JournalStorage.open(
        folder, config, disk=disk, clock=clock or ManualClock(), executor=InlineExecutor(), events=events
    )


@contextmanager
def served(storage: JournalStorage | MemoryStorage, clock: Clock) -> Iterator[RemoteStorage]:
    """Serve a storage at a socket, and yield it as another process would use it."""
    with TemporaryDirectory(prefix="strandline-") as folder, ExitStack() as held:
        if isinstance(storage, JournalStorage):
            held.enter_context(storage)
        reservations = Reservations(storage, clock)
        held.enter_context(QueueServer(Path(folder) / "socket", storage, reservations, clock))
        held.callback(reservations.stop)
        remote = RemoteStorage(Path(folder) / "socket", WAIT_S)
        held.callback(remote.stop)
        yield remote


def tiny(deliveries_max: int | None = 3, compact_bytes: int = 1024) -> QueueConfig:
    """Return settings under which segments roll and groups compact all the time."""
    group = GroupConfig(compact_bytes_min=compact_bytes, compact_age_s=None)
    return QueueConfig(deliveries_max=deliveries_max, journal=SMALL_JOURNAL, group=group)


def power_cut(countdown: int) -> Fault:
    """Return a fault after which nothing works any more, as if the machine were off."""
    return Fault(CHANGES, countdown, errno.EIO, sticky=True)


def later(clock: Clock, seconds: float = 30.0) -> int:
    """Return the time so many seconds from now."""
    return clock.now_ns() + int(seconds * 1e9)


def give(storage: JournalStorage, clock: Clock, group: str, count: int, seconds: float = 30.0) -> list[int]:
    """Take up to so many messages for a group and return their offsets."""
    offsets = [message.offset for message in storage.fetch_available(group, count)]
    storage.mark_inflight(group, offsets, later(clock, seconds))
    return offsets


class Heard:
    """A listener that keeps what it heard."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.hub = Events(self.events.append)

    def of(self, kind: type[E]) -> list[E]:
        """Return what was heard of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


def in_threads(work: Sequence[Callable[[], R]]) -> list[R]:
    """Run each in a thread of its own, at once; return what each returned, or raise what one raised."""
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    barrier = Barrier(len(work))

    def run(number: int) -> None:
        barrier.wait(WAIT_S)
        try:
            results[number] = work[number]()
        except BaseException as error:  # noqa: BLE001 - raised again below, where the test can see it
            errors.append(error)

    threads = [Thread(target=run, args=(number,), daemon=True) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(work))]
