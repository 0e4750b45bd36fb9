"""The queue people use: put, take, answer.

Invariants: a job is given to one taker of a group at a time; a job that is not answered within its visibility is given
again; what was acknowledged is never given again, whatever crashes. A taker that is slower than its visibility should
`extend`, or it will meet `StaleDelivery` and somebody else will do the work too.

Takers of a group look one after another, but mark, which waits for the disk, together: what one of them is about to
mark is claimed meanwhile, so that the others look past it and their marks share one fsync.
"""

import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from strandline.clock import Clock, SystemClock
from strandline.errors import Closed, Conflict, InvalidInput, Unavailable, UnknownOutcome
from strandline.groups import Delivery
from strandline.journal import Appended
from strandline.queue.config import QueueConfig
from strandline.queue.durable import JournalStorage
from strandline.queue.memory import MemoryStorage
from strandline.queue.storage import DeadLetter, DeadLetterStorage, GroupStatus, Message, QueueStorage

POLL_S = 0.05
"""How soon a waiting taker notices that a delivery of somebody else expired."""


SECONDS_MAX = 100 * 365.25 * 86400
"""A hundred years: what comes later does not fit the nanoseconds of a deadline."""


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
        """Say which job this is, not what is in it."""
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
        """When it will be given to somebody else."""
        return self._delivery.deadline_ns

    def ack(self) -> None:
        """Say that it is done; returns when that is durable."""
        self._queue.ack_many([self])

    def nack(self, delay_s: float = 0.0) -> None:
        """Give it back, to be taken again after a delay."""
        self._queue.nack(self, delay_s)

    def extend(self, visibility_s: float) -> None:
        """Keep it for `visibility_s` more seconds from now; `StaleDelivery` if it was too late for that."""
        self._delivery = self._queue.extend(self, visibility_s)

    @property
    def group(self) -> str:
        """The group it was given to."""
        return self._group


class _Claims:
    """What the takers of one group are about to mark, and the turn to look."""

    __slots__ = ("offsets", "turn")

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.offsets: set[int] = set()


class Queue:
    """A durable work queue: any number of groups, each of which gets every message."""

    def __init__(self, storage: Storage, *, clock: Clock | None = None) -> None:
        """Use `Queue.open` for a durable queue, or give a storage of your own."""
        self._storage = storage
        self._clock = clock or SystemClock()
        self._claims: dict[str, _Claims] = {}
        self._changed = threading.Condition()
        self._puts = 0
        self._is_closed = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], config: QueueConfig | None = None) -> Self:
        """Open a queue in a folder, recovering it, or create it; `Locked` where another process has it."""
        return cls(JournalStorage.open(path, config))

    @classmethod
    def in_memory(cls, config: QueueConfig | None = None) -> Self:
        """Return a queue that is forgotten with the process."""
        return cls(MemoryStorage(config))

    # Putting.

    def put(self, value: bytes, *, key: bytes | None = None, headers: bytes | None = None) -> int:
        """Put one message and return its offset once it is durable."""
        keys = None if key is None else [key]
        return self.put_many([value], keys=keys, headers=None if headers is None else [headers]).base_offset

    def put_many(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes] | None = None,
        headers: Sequence[bytes] | None = None,
    ) -> Appended:
        """Put messages, all or none, with one fsync; a thousand cost hardly more than one."""
        appended = self._open_storage.append_batch(values, keys=keys, headers=headers)
        self._wake()
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
        if not 0 < visibility_s <= SECONDS_MAX or prefetch < 1:
            raise InvalidInput("visibility_s must be above 0 and below a hundred years, and prefetch at least 1")
        if wait_s is not None and not wait_s >= 0:
            raise InvalidInput(f"wait_s must not be negative, as {wait_s} is", hint="None waits for ever")
        self._refuse_if_closed()
        return self._take(group, visibility_s, wait_s, prefetch)

    def _take(self, group: str, visibility_s: float, wait_s: float | None, prefetch: int) -> Iterator[Job]:
        while True:
            jobs = self._wait_for_jobs(group, visibility_s, wait_s, prefetch)
            if not jobs:
                return
            try:
                while jobs and not self._is_closed:
                    job = jobs.popleft()
                    if self._refresh(job, visibility_s):
                        yield job
            finally:
                for job in jobs:
                    self._give_back(job)

    def _wait_for_jobs(self, group: str, visibility_s: float, wait_s: float | None, count: int) -> deque[Job]:
        until = None if wait_s is None else time.monotonic() + wait_s
        while not self._is_closed:
            puts = self._puts
            jobs = self._reserve(group, visibility_s, count)
            if jobs:
                return jobs
            left_s = POLL_S if until is None else until - time.monotonic()
            if left_s <= 0:
                break
            self._wait_for_change(puts, min(left_s, POLL_S))
        return deque()

    def _reserve(self, group: str, visibility_s: float, count: int) -> deque[Job]:
        """Take what is available; nothing where there is nothing, or the queue or the group was closed meanwhile."""
        claims = self._claims_of(group)
        try:
            while messages := self._claim(group, claims, count):
                jobs = self._mark(group, claims, messages, visibility_s)
                if jobs:
                    return jobs
        except Closed:
            pass
        return deque()

    def _mark(self, group: str, claims: _Claims, messages: list[Message], visibility_s: float) -> deque[Job]:
        """Make jobs of claimed messages; none where one of them was acknowledged late, by a taker that had lost it."""
        offsets = [message.offset for message in messages]
        try:
            deliveries = self._open_storage.mark_inflight(group, offsets, self._after(visibility_s))
        except Conflict:
            return deque()
        finally:
            with claims.turn:
                claims.offsets.difference_update(offsets)
        return deque(Job(self, group, *pair) for pair in zip(messages, deliveries, strict=True))

    def _claim(self, group: str, claims: _Claims, count: int) -> list[Message]:
        """Return available messages that no other taker here is about to mark, and claim them."""
        with claims.turn:
            found = self._open_storage.fetch_available(group, count + len(claims.offsets))
            messages = [message for message in found if message.offset not in claims.offsets][:count]
            claims.offsets.update(message.offset for message in messages)
            return messages

    def _claims_of(self, group: str) -> _Claims:
        with self._changed:
            return self._claims.setdefault(group, _Claims())

    def _refresh(self, job: Job, visibility_s: float) -> bool:
        """See that a prefetched job has at least half its visibility left; return whether it is still ours."""
        if job.deadline_ns - self._clock.now_ns() >= visibility_s * 0.5e9:
            return True
        try:
            job.extend(visibility_s)
        except Conflict:  # it expired while it waited here, and is somebody else's now
            return False
        return True

    def _give_back(self, job: Job) -> None:
        # Where that cannot be done it need not be: the job is somebody else's already, or will be when it expires.
        with suppress(Conflict, Unavailable, UnknownOutcome):
            job.nack()

    # Answering.

    def ack_many(self, jobs: Sequence[Job]) -> None:
        """Say that jobs are done, with one fsync for each group among them."""
        by_group: defaultdict[str, list[int]] = defaultdict(list)
        for job in jobs:
            by_group[job.group].append(job.offset)
        for group, offsets in by_group.items():
            self._open_storage.ack(group, offsets)

    def nack(self, job: Job, delay_s: float = 0.0) -> None:
        """Give a job back, to be taken again after a delay."""
        self._open_storage.nack(job.group, job.offset, self._after(delay_s), job.deliveries)
        self._wake()

    def extend(self, job: Job, visibility_s: float) -> Delivery:
        """Move the deadline of a job to `visibility_s` seconds from now."""
        return self._open_storage.extend(job.group, job.offset, self._after(visibility_s), job.deliveries)

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """Return the messages that the group gave up on, oldest first."""
        return self._open_storage.dead_letters(group)

    # Groups and the end; a storage of one's own may lack them.

    def status(self) -> list[GroupStatus]:
        """Return how far each group is, by name."""
        return self._durable().status()

    def add_group(self, name: str, *, at_end: bool = False) -> None:
        """Create a group at the first message, or, with `at_end`, after the last; an existing one is left alone."""
        self._durable().add_group(name, at_end=at_end)

    def remove_group(self, name: str) -> None:
        """Forget a group and all it did, so that it no longer keeps messages from being removed."""
        self._durable().remove_group(name)

    def close(self) -> None:
        """End all takers and close the storage, if it can be closed. Closing twice is harmless."""
        self._is_closed = True
        self._wake()
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

    def _durable(self) -> JournalStorage:
        if isinstance(self._storage, JournalStorage):
            return self._storage
        raise InvalidInput("this queue's storage does not manage groups", hint="use Queue.open")

    @property
    def _open_storage(self) -> Storage:
        self._refuse_if_closed()
        return self._storage

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise Closed("the queue")

    def _after(self, seconds: float) -> int:
        """Return the time so many seconds from now."""
        if not 0 <= seconds <= SECONDS_MAX:
            raise InvalidInput(f"{seconds} is not a number of seconds between 0 and a hundred years")
        return self._clock.now_ns() + int(seconds * 1e9)

    def _wait_for_change(self, puts: int, timeout_s: float) -> None:
        """Return when something was put or given back since `puts` was read, or after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._puts != puts, timeout_s)

    def _wake(self) -> None:
        with self._changed:
            self._puts += 1
            self._changed.notify_all()
