"""A pool: many replicators in a few threads.

Invariants: one thread at a time makes the steps of a replicator; a commit, a wake or the end of a pause has a step made
by the next free thread. A replicator that waits for its store to come back holds no thread; where stores that do not
answer hold all threads, another one is started for waiting replicators, and ends when it has nothing to do. One
descriptor watches all logs, since a user has few of them. `close` gives all replicators together as long as one has.
"""

import heapq
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from strandline.errors import Closed
from strandline.replica.pace import Pause
from strandline.replica.replicator import FLUSH_S, Replicator
from strandline.replica.wakeups import ManyChanges

WORKERS = 8
LOOK_EVERY_S = 0.05
"""How often logs are looked at where the system has no inotify."""
STALL_S = 1.0
"""How long a replicator waits for a thread before another one is started."""
_IDLE_S = 10.0


Sleeper = TypeVar("Sleeper")


class Pauses(Generic[Sleeper]):
    """Who is to be woken when: the latest pause of each, since earlier ones were cut short."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Sleeper]] = []
        self._latest: dict[int, int] = {}
        self._count = 0

    def begin(self, sleeper: Sleeper, until_s: float) -> bool:
        """Note a pause; return whether it is the first to be over."""
        self._count += 1
        self._latest[id(sleeper)] = self._count
        heapq.heappush(self._heap, (until_s, self._count, sleeper))
        return self._heap[0][1] == self._count

    def next_s(self) -> float | None:
        """Return when the first is over; None where there is none."""
        return self._heap[0][0] if self._heap else None

    def over(self, now_s: float) -> list[Sleeper]:
        """Return those whose latest pause is over, each once."""
        found = list[Sleeper]()
        while self._heap and self._heap[0][0] <= now_s:
            _, number, sleeper = heapq.heappop(self._heap)
            if self._latest.get(id(sleeper)) == number:
                del self._latest[id(sleeper)]
                found.append(sleeper)
        return found


class _Member:
    """A replicator of the pool: what wakes it, and whether a thread has it."""

    def __init__(self, pool: "ReplicaPool", replicator: Replicator) -> None:
        self._pool = pool
        self.replicator = replicator
        self.is_queued = False
        self.is_woken = self.has_commit = False
        """Whether it was woken, or something was committed, since its step began."""
        self.is_resting = False
        self.is_paced = False
        self.is_over = False
        self.ended = threading.Event()
        self.path: Path | None = None

    def watch(self, path: Path) -> None:
        """Look at a file from now on."""
        self.path = path
        self._pool.changes.watch(path, self)

    def wake(self) -> None:
        """Have the next step made at once."""
        self._pool.make_ready(self)

    def close(self) -> None:
        """Stop watching."""
        self._pool.changes.forget(self)


class ReplicaPool:
    """Replicators that share threads, from `start` of each to `close` of it or of the pool."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.changes = ManyChanges[_Member]()
        self._ready: queue.SimpleQueue[_Member | None] = queue.SimpleQueue()
        self._pauses = Pauses[_Member]()
        self._members = list[_Member]()
        self._lock = threading.Lock()
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_open = True
        self._taken_s = 0.0
        """When a thread last took a replicator."""
        self._threads = [
            threading.Thread(target=target, name=f"strandline-replicas-{number}", daemon=True)
            for number, target in enumerate([self._watch, *[self._work] * workers])
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close(flush=kind is None)

    def start(self, replicator: Replicator) -> Replicator:
        """Have the threads of this pool make the steps of a replicator until it is closed; return it."""
        if not self._is_open:
            raise Closed("the pool of replicators")
        member = _Member(self, replicator)
        replicator.open(member, self._leaving(member))
        with self._lock:
            self._members.append(member)
        self.make_ready(member)
        return replicator

    def close(self, *, flush: bool = True) -> None:
        """Close every replicator, then end the threads; raise the first error that one of them ended with."""
        failures = list[BaseException]()
        asked = [(member.replicator, member.replicator.request() if flush else 0) for member in list(self._members)]
        give_up_s = time.monotonic() + FLUSH_S
        for replicator, request in asked:
            try:
                if flush:
                    with suppress(Closed):
                        replicator.await_request(request, max(0.0, give_up_s - time.monotonic()))
            except Exception as error:  # noqa: BLE001 - raised below, after the others were closed
                failures.append(error)
            replicator.close(flush=False)
        self._is_open = False
        self._interrupt()
        self._threads[0].join()
        with self._lock:
            workers = self._threads[1:]
        for _ in workers:
            self._ready.put(None)
        for thread in workers:
            thread.join()
        self.changes.close()
        os.close(self._woken)
        os.close(self._wakes)
        if failures:
            raise failures[0]

    def make_ready(self, member: _Member, *, is_commit: bool = False) -> None:
        """Have a step made, once, by the next free thread; a backoff is not cut short, nor a pace by a commit."""
        with self._lock:
            if member.is_queued or member.is_over:
                if is_commit:
                    member.has_commit = True
                else:
                    member.is_woken = True
                return
            if is_commit and member.is_paced:
                return
            if member.is_resting and not member.replicator.is_over:
                return
            member.is_queued, member.is_woken, member.has_commit = True, False, False
        self._ready.put(member)
        if not self._ready.empty():
            self._interrupt()  # it may wait for a thread

    def _leaving(self, member: _Member) -> Callable[[], None]:
        def leave() -> None:
            member.ended.wait()
            with self._lock:
                self._members.remove(member)

        return leave

    def _work(self, idle_s: float | None = None) -> None:
        """Make steps until the pool is closed, or there was none to make for a while."""
        with suppress(queue.Empty):
            while (member := self._ready.get(timeout=idle_s)) is not None:
                self._taken_s = time.monotonic()
                pause = member.replicator.step()
                self._rest(member, pause)
        with self._lock:
            self._threads.remove(threading.current_thread())

    def _help(self) -> None:
        """Start another thread, while there are fewer than replicators."""
        thread = threading.Thread(target=self._work, args=(_IDLE_S,), name="strandline-replicas-more", daemon=True)
        with self._lock:
            if len(self._threads) > len(self._members):
                return  # each has one
            self._threads.append(thread)
        thread.start()

    def _rest(self, member: _Member, pause: Pause | None) -> None:
        """Put a replicator where it waits for its next step."""
        with self._lock:
            if pause is None:
                member.is_over, member.is_queued = True, False
                member.ended.set()
                return
            goes_on = pause.seconds == 0 or member.is_woken or (member.has_commit and not pause.is_pace)
            if goes_on and not pause.is_backoff:
                member.is_woken = member.has_commit = False
                self._ready.put(member)
                return
            member.is_queued, member.is_resting, member.is_paced = False, pause.is_backoff, pause.is_pace
            is_first = self._pauses.begin(member, time.monotonic() + pause.seconds)
        if member.replicator.is_over:
            self.make_ready(member)
        if is_first:
            self._interrupt()

    def _watch(self) -> None:
        """Make replicators ready whose logs have changed or whose pauses are over."""
        descriptors = [self._woken, *([] if self.changes.descriptor is None else [self.changes.descriptor])]
        stalled = 0.0, 0.0  # what was taken last, and since when nothing was although something is ready
        while self._is_open:
            with self._lock:
                until_s = self._pauses.next_s()
            if self._ready.empty() or stalled[0] != self._taken_s:
                stalled = self._taken_s, time.monotonic()
            elif time.monotonic() - stalled[1] >= STALL_S:
                self._help()
                stalled = self._taken_s, time.monotonic()
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            if self.changes.descriptor is None:
                left_s = LOOK_EVERY_S if left_s is None else min(left_s, LOOK_EVERY_S)
            if not self._ready.empty():
                left_s = STALL_S if left_s is None else min(left_s, STALL_S)
            ready, _, _ = select.select(descriptors, [], [], left_s)
            if self._woken in ready:
                os.read(self._woken, 4096)
            for member in self.changes.changed():
                self.make_ready(member, is_commit=True)
            for member in self._pauses_over():
                self.make_ready(member)

    def _pauses_over(self) -> list[_Member]:
        with self._lock:
            over = self._pauses.over(time.monotonic())
            for member in over:
                member.is_resting = False
        return over

    def _interrupt(self) -> None:
        try:
            os.write(self._wakes, b"\0")
        except BlockingIOError:
            return  # a full pipe has wakes enough
