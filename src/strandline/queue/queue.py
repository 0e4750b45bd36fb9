"""The public queue: put, take, answer.

Invariants: a job is given to one taker of a group at a time; a job that is not answered within its visibility is given
again; what was acknowledged is never given again, whatever crashes. A taker that is slower than its visibility should
`extend`, or it will meet `StaleDelivery` and another taker will do the work too. One process owns a queue's folder;
others use it through a socket that the owner serves, with the same face and the same promises.
"""

import asyncio
import os
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, cast

from strandline.clock import Clock, SystemClock
from strandline.errors import Closed, Conflict, InvalidInput, Unavailable, UnknownOutcome
from strandline.groups import Delivery
from strandline.journal import Appended
from strandline.queue.config import QueueConfig
from strandline.queue.durable import JournalStorage
from strandline.queue.memory import MemoryStorage
from strandline.queue.remote import RemoteStorage
from strandline.queue.reservations import SECONDS_MAX, Reservations, Reserver, deadline_after
from strandline.queue.server import QueueServer, parse_address
from strandline.queue.session import ServedStorage
from strandline.queue.storage import DeadLetter, DeadLetterStorage, GroupStatus, GroupStorage, Message, QueueStorage

ASYNC_WAIT_S = 0.25
"""The longest the thread of an asynchronous taker waits before it looks whether it is still wanted."""


class Storage(QueueStorage, DeadLetterStorage, Protocol):
    """What a queue needs of its storage."""


class Job:
    """A message that was given to this taker; answer it with `ack` or `nack`, or it comes again."""

    __slots__ = ("_delivery", "_group", "_message", "_queue")

    def __init__(self, queue: "Queue", group: str, message: Message, delivery: Delivery) -> None:
        """Jobs come from `Queue.take`."""
        self._queue = queue
        self._group = group
        self._message = message
        self._delivery = delivery

    def __repr__(self) -> str:
        """Show group and offset, never the message."""
        return f"Job({self._group!r}, offset={self.offset}, deliveries={self.deliveries})"

    @property
    def offset(self) -> int:
        """The offset of the message."""
        return self._message.offset

    @property
    def value(self) -> bytes:
        """The message."""
        return self._message.value

    @property
    def key(self) -> bytes | None:
        """The message's key, if it was given one."""
        return self._message.key

    @property
    def headers(self) -> bytes | None:
        """The message's headers, if it was given any."""
        return self._message.headers

    @property
    def deliveries(self) -> int:
        """How often the group was given it, this time included."""
        return self._delivery.deliveries

    @property
    def deadline_ns(self) -> int:
        """When it will be given to another taker."""
        return self._delivery.deadline_ns

    def ack(self) -> None:
        """Acknowledge the job; return when that is durable."""
        self._queue.ack_many([self])

    async def ack_async(self) -> None:
        """Acknowledge the job as `ack` does, without blocking the event loop."""
        await asyncio.to_thread(self.ack)

    def nack(self, delay_s: float = 0.0) -> None:
        """Give the job back, to be delivered again after a delay."""
        self._queue.nack(self, delay_s)

    async def nack_async(self, delay_s: float = 0.0) -> None:
        """Give it back, as `nack` does, without blocking the event loop."""
        await asyncio.to_thread(self.nack, delay_s)

    def extend(self, visibility_s: float) -> None:
        """Keep it for `visibility_s` more seconds from now; `StaleDelivery` if it was too late for that."""
        self._delivery = self._queue.extend(self, visibility_s)

    @property
    def group(self) -> str:
        """The group it was given to."""
        return self._group


class Queue:
    """A durable work queue: any number of groups, each of which gets every message."""

    def __init__(self, storage: Storage, *, clock: Clock | None = None) -> None:
        """Use `Queue.open` for a durable queue, or give a storage of your own."""
        self._storage = storage
        self._clock = clock or SystemClock()
        self._reserver: Reserver = Reservations(storage, self._clock)
        if isinstance(storage, RemoteStorage):
            self._reserver = storage
        self._servers: list[QueueServer] = []
        self._is_closed = False

    def __repr__(self) -> str:
        """Say where the messages are."""
        return f"Queue({self._storage!r}{', closed' if self._is_closed else ''})"

    @classmethod
    def open(cls, path: str | os.PathLike[str], config: QueueConfig | None = None) -> Self:
        """Open a queue in a folder, recovering it, or create it; `Locked` where another process has it.

        One process owns a queue. Others use what it serves: see `serve` and `connect`.
        """
        return cls(JournalStorage.open(path, config))

    @classmethod
    def connect(cls, address: str, *, timeout_s: float = 30.0) -> Self:
        """Use a queue that another process of this machine serves, such as `unix:///var/lib/jobs/socket`.

        Calls wait up to `timeout_s` for the owner to answer or to come back; then they raise `Unavailable`, or, where
        it is not known whether a message was put or given back, `UnknownOutcome`. Closing gives back what was taken.
        """
        return cls(RemoteStorage(parse_address(address), timeout_s))

    @classmethod
    def in_memory(cls, config: QueueConfig | None = None) -> Self:
        """Return a queue that is forgotten with the process."""
        return cls(MemoryStorage(config))

    # Putting.

    def put(self, value: bytes, *, key: bytes | None = None, headers: bytes | None = None) -> int:
        """Put one message and return its offset once it is durable."""
        keys = None if key is None else [key]
        return self.put_many([value], keys=keys, headers=None if headers is None else [headers]).base_offset

    async def put_async(self, value: bytes, *, key: bytes | None = None, headers: bytes | None = None) -> int:
        """Put one message as `put` does, without blocking the event loop."""
        return await asyncio.to_thread(self.put, value, key=key, headers=headers)

    def put_many(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes] | None = None,
        headers: Sequence[bytes] | None = None,
    ) -> Appended:
        """Put messages, all or none, with one fsync; a thousand cost hardly more than one."""
        appended = self._open_storage.append_batch(values, keys=keys, headers=headers)
        self._reserver.wake()
        return appended

    # Taking.

    def take(
        self, group: str, *, visibility_s: float = 30.0, wait_s: float | None = 0.0, prefetch: int = 1
    ) -> Iterator[Job]:
        """Yield jobs, each given to this taker alone for `visibility_s` seconds.

        Ends when nothing has been available for `wait_s` seconds (None waits for ever), or when the queue is closed.
        With `prefetch`, that many jobs are reserved with one fsync; those not yet handed out are given back when the
        loop is left, and count as delivered.
        """
        self._check_taking(visibility_s, wait_s, prefetch)
        return self._take(group, visibility_s, wait_s, prefetch)

    def take_async(
        self, group: str, *, visibility_s: float = 30.0, wait_s: float | None = 0.0, prefetch: int = 1
    ) -> AsyncIterator[Job]:
        """Yield jobs as `take` does, for `async for`; it waits in a thread of its own.

        Answer with `await job.ack_async()`. What is not handed out when the loop is left or cancelled is given back.
        """
        self._check_taking(visibility_s, wait_s, prefetch)
        return self._take_async(group, visibility_s, wait_s, prefetch)

    def _check_taking(self, visibility_s: float, wait_s: float | None, prefetch: int) -> None:
        if not 0 < visibility_s <= SECONDS_MAX or prefetch < 1:
            raise InvalidInput("visibility_s must be above 0 and below a hundred years, and prefetch at least 1")
        if wait_s is not None and not wait_s >= 0:
            raise InvalidInput(f"wait_s must not be negative, as {wait_s} is", hint="None waits for ever")
        self._refuse_if_closed()

    def _reserve(self, group: str, visibility_s: float, wait_s: float | None, count: int) -> deque[Job]:
        reserved = self._reserver.reserve(group, visibility_s, wait_s, count)
        return deque(Job(self, group, *pair) for pair in reserved)

    async def _take_async(
        self, group: str, visibility_s: float, wait_s: float | None, prefetch: int
    ) -> AsyncIterator[Job]:
        thread = ThreadPoolExecutor(1, "strandline-take")
        jobs: deque[Job] = deque()
        try:
            while jobs := await self._wait_for_jobs(thread, group, visibility_s, wait_s, prefetch):
                while jobs and not self._is_closed:
                    is_ours = await asyncio.wrap_future(thread.submit(self._refresh, jobs[0], visibility_s))
                    job = jobs.popleft()
                    if is_ours:
                        yield job
        finally:
            for job in jobs:
                thread.submit(self._give_back, job)
            thread.shutdown(wait=False)

    async def _wait_for_jobs(
        self, thread: Executor, group: str, visibility_s: float, wait_s: float | None, count: int
    ) -> deque[Job]:
        """Reserve jobs in slices of a wait, so that a taker that was cancelled does not wait on."""
        until = None if wait_s is None else time.monotonic() + wait_s
        while not self._is_closed:
            left_s = ASYNC_WAIT_S if until is None else min(ASYNC_WAIT_S, max(0.0, until - time.monotonic()))
            asked = thread.submit(self._reserve, group, visibility_s, left_s, count)
            try:
                jobs = await asyncio.shield(asyncio.wrap_future(asked))
            except asyncio.CancelledError:
                thread.submit(self._give_back_all, asked)
                raise
            if jobs:
                return jobs
            if until is not None and time.monotonic() >= until:
                break
        return deque()

    def _give_back_all(self, reserved: "Future[deque[Job]]") -> None:
        if reserved.exception() is None:
            for job in reserved.result():
                self._give_back(job)

    def _take(self, group: str, visibility_s: float, wait_s: float | None, prefetch: int) -> Iterator[Job]:
        while jobs := self._reserve(group, visibility_s, wait_s, prefetch):
            try:
                while jobs and not self._is_closed:
                    job = jobs.popleft()
                    if self._refresh(job, visibility_s):
                        yield job
            finally:
                for job in jobs:
                    self._give_back(job)

    def _refresh(self, job: Job, visibility_s: float) -> bool:
        """Extend a prefetched job that has less than half its visibility left; return whether it is still ours."""
        if job.deadline_ns - self._clock.now_ns() >= visibility_s * 0.5e9:
            return True
        try:
            job.extend(visibility_s)
        except Conflict:  # it expired while it waited here, and is another taker's now
            return False
        return True

    def _give_back(self, job: Job) -> None:
        # Where that cannot be done it need not be: the job is another taker's already, or will be when it expires.
        with suppress(Conflict, Unavailable, UnknownOutcome):
            job.nack()

    # Answering.

    def ack_many(self, jobs: Sequence[Job]) -> None:
        """Acknowledge jobs, with one fsync for each group among them."""
        by_group: defaultdict[str, list[int]] = defaultdict(list)
        for job in jobs:
            by_group[job.group].append(job.offset)
        for group, offsets in by_group.items():
            self._open_storage.ack(group, offsets)

    def nack(self, job: Job, delay_s: float = 0.0) -> None:
        """Give a job back, to be taken again after a delay."""
        self._open_storage.nack(job.group, job.offset, self._after(delay_s), job.deliveries)
        self._reserver.wake()

    def extend(self, job: Job, visibility_s: float) -> Delivery:
        """Move the deadline of a job to `visibility_s` seconds from now."""
        return self._open_storage.extend(job.group, job.offset, self._after(visibility_s), job.deliveries)

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the messages that the group gave up on, oldest first."""
        return self._open_storage.dead_letters(group)

    # Groups, other processes, and the end; a storage of one's own may lack groups.

    def status(self) -> list[GroupStatus]:
        """Return how far each group is, by name."""
        return self._groups().status()

    def add_group(self, name: str, *, at_end: bool = False) -> None:
        """Create a group at the first message, or, with `at_end`, after the last; an existing one is left alone."""
        self._groups().add_group(name, at_end=at_end)

    def remove_group(self, name: str) -> None:
        """Remove a group, so that it no longer keeps messages from being removed."""
        self._groups().remove_group(name)

    def serve(self, path: str | os.PathLike[str] | None = None) -> QueueServer:
        """Serve this queue to other processes of the same user, at a socket, until the server or the queue is closed.

        The socket is `socket` in the queue's folder unless a path is given; `Locked` where another process has it.
        """
        storage = self._groups()
        if path is None and not isinstance(storage, JournalStorage):
            raise InvalidInput("this queue has no folder", hint="say at which path to serve it")
        place = storage.socket_path if path is None and isinstance(storage, JournalStorage) else Path(path or "")
        server = QueueServer(place, storage, self._reserver, self._clock)
        self._servers.append(server)
        return server

    def close(self) -> None:
        """End all takers and close the storage, if it can be closed. Closing twice is harmless."""
        self._is_closed = True
        self._reserver.stop()
        for server in self._servers:
            server.close()
        if isinstance(self._storage, JournalStorage):
            self._storage.close()

    def __enter__(self) -> Self:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def storage(self) -> Storage:
        """What keeps the messages; `Closed` if the queue is."""
        return self._open_storage

    def _groups(self) -> ServedStorage:
        storage = self._open_storage
        if isinstance(storage, GroupStorage):
            return cast("ServedStorage", storage)
        raise InvalidInput("this queue's storage does not manage groups", hint="give it what GroupStorage asks for")

    def _after(self, seconds: float) -> int:
        return deadline_after(self._clock, seconds)

    @property
    def _open_storage(self) -> Storage:
        self._refuse_if_closed()
        return self._storage

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise Closed("the queue")
