"""A seeded simulation of many workers over coordination in objects: requests, conflicts, idle and lost time.

Each worker is a thread with a `Coordinator` over `ObjectRecords` of its own, as processes have; one thread runs at a
time, and gives way at each request, which takes a time that the seed draws. So requests of different workers interleave
as they would, and the same seed is the same simulation. Some workers are slow, some stop for longer than a lease lasts
and go on as zombies, some die.

Invariant: every shard is done in the end.
"""

import heapq
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.objects import MemoryObjects, ObjectStore
from strandline.pipeline.coordination import Coordinator, NoneAvailable, Throttled
from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.protocol.errors import LeaseLost, RunTerminal, ShardTerminal
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import Cursor, RunKey, ShardSpec
from strandline.scan.worker.worker import IDLE_MAX_S, IDLE_SHARE, PAUSE_MAX_S, PAUSE_MIN_S
from strandline.sim.slow_objects import SlowObjects

RUN = RunKey(b"t" * 32, 1)
LEASE_TTL_S = 30.0
RETRY_PAUSE_S = 0.05
START_NS = 10**18
_READS_AT_ONCE = 16
_STACK_BYTES = 1 << 18
_NS = 1_000_000_000


@dataclass(frozen=True)
class Fleet:
    """Workers, their shards, and what befalls them; shares are of one."""

    workers: int
    shards: int
    pages_per_shard: int = 20
    page_s: float = 1.0
    request_s: float = 0.02
    slow_share: float = 0.02
    slow_times: float = 5.0
    paused_share: float = 0.01
    died_share: float = 0.01


@dataclass
class Traffic:
    """What a simulation came to: seconds, requests by operation and outcome, and time of workers."""

    seconds: float = 0.0
    ideal_s: float = 0.0
    """The time that the work alone takes, divided evenly among the workers."""
    requests: Counter[str] = field(default_factory=Counter)
    claims: int = 0
    throttled: int = 0
    lost_leases: int = 0
    taken_over: int = 0
    died: int = 0
    claim_s: float = 0.0
    """Time of workers in claims that gave a shard."""
    idle_s: float = 0.0
    """Time of workers in claims that gave none, and in pauses after them."""


def simulate_workers(seed: int, fleet: Fleet) -> Traffic:
    """Run a simulation until each worker has ended; return what it came to."""
    return _Simulation(seed, fleet).run()


class Turns:
    """Simulated time: threads that run one at a time, each until it waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, threading.Semaphore]] = []
        self._numbers = itertools.count()
        self._over = threading.Semaphore(0)
        self._mine = threading.local()
        self._errors: list[BaseException] = []

    def wait(self, seconds: float) -> None:
        """Let others run for so long; outside of a worker's thread no time passes."""
        mine = getattr(self._mine, "turn", None)
        if mine is None:
            return
        heapq.heappush(self._due, (self.now_s + seconds, next(self._numbers), mine))
        if self._next() is not mine:
            mine.acquire()

    def run(self, bodies: Sequence[Callable[[], None]]) -> None:
        """Run bodies in threads to their ends; the first error is raised."""
        before = threading.stack_size(_STACK_BYTES)
        try:
            for body in bodies:
                turn = threading.Semaphore(0)
                heapq.heappush(self._due, (self.now_s, next(self._numbers), turn))
                threading.Thread(target=self._body, args=(body, turn), daemon=True).start()
        finally:
            threading.stack_size(before)
        self._next()
        self._over.acquire()
        if self._errors:
            raise self._errors[0]

    def _body(self, body: Callable[[], None], turn: threading.Semaphore) -> None:
        self._mine.turn = turn
        turn.acquire()
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._errors.append(error)
        self._mine.turn = None
        self._next()

    def _next(self) -> threading.Semaphore | None:
        """Let the thread run whose time comes first, and return its turn; if it is the caller's, there is no switch."""
        if self._errors or not self._due:
            self._over.release()
            return None
        self.now_s, _, turn = heapq.heappop(self._due)
        if turn is not getattr(self._mine, "turn", None):
            turn.release()
        return turn


class _Records(ObjectRecords):
    """Records whose reads of many objects take the time of so many at once, without threads of their own."""

    def __init__(self, store: SlowObjects, rng: random.Random) -> None:
        super().__init__(store, rng)
        self._slow = store

    def _get_all(self, keys: Sequence[str]) -> list[Any]:
        with self._slow.at_once(-(-len(keys) // _READS_AT_ONCE)):
            return list(map(self._get, keys))


class _Simulation:
    def __init__(self, seed: int, fleet: Fleet) -> None:
        self._random = random.Random(seed)
        self.fleet = fleet
        self.turns = Turns()
        self.traffic = Traffic(ideal_s=fleet.shards * fleet.pages_per_shard * fleet.page_s / fleet.workers)
        self._store: ObjectStore = MemoryObjects()

    def run(self) -> Traffic:
        fleet, traffic = self.fleet, self.traffic
        setup = Coordinator(ObjectRecords(self._store), pause=lambda _: None)
        setup.create_run(START_NS, RUN, 1)
        setup.register_shards(START_NS, RUN, [InitialShard(n, ShardSpec()) for n in range(fleet.shards)], 2)
        self.turns.run([self._worker(number) for number in range(1, fleet.workers + 1)])
        progress = setup.progress(RUN)
        if progress.done != fleet.shards:
            raise AssertionError(f"{progress.done:,} of {fleet.shards:,} shards are done")
        traffic.seconds = self.turns.now_s
        return traffic

    def _worker(self, number: int) -> Callable[[], None]:
        draw, fleet = self._random, self.fleet
        fate = draw.random()
        page_s = fleet.page_s * (fleet.slow_times if fate < fleet.slow_share else 1.0) * draw.uniform(0.7, 1.3)
        paused = fleet.slow_share <= fate < fleet.slow_share + fleet.paused_share
        dies = number > 1 and 1 - fate <= fleet.died_share
        pages = fleet.pages_per_shard * fleet.shards // fleet.workers
        fails_at = draw.randrange(1, max(2, pages)) if paused or dies else 0
        rng = random.Random(draw.random())
        store = SlowObjects(self._store, self.turns.wait, fleet.request_s, rng, self.traffic.requests)
        it = Coordinator(
            _Records(store, rng),
            lease_ttl_ns=int(LEASE_TTL_S * _NS),
            pause=lambda _: self.turns.wait(RETRY_PAUSE_S),  # the coordinator's own has jitter of no seed
        )
        return _Worker(self, it, store, number, page_s, fails_at, dies=dies)


class _Worker:
    def __init__(
        self,
        simulation: _Simulation,
        coordinator: Coordinator,
        store: SlowObjects,
        number: int,
        page_s: float,
        fails_at: int,
        *,
        dies: bool,
    ) -> None:
        self._turns, self._traffic, self._pages = simulation.turns, simulation.traffic, simulation.fleet.pages_per_shard
        self._it, self._store, self._number, self._page_s = coordinator, store, number, page_s
        self._fails_at, self._dies, self._paged = fails_at, dies, 0

    def __call__(self) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            began = self._turns.now_s
            try:
                found = self._it.claim_next_available(self._now_ns(), RUN, self._number)
            except RunTerminal:
                return
            took = self._turns.now_s - began
            if isinstance(found, Acquired):
                self._traffic.claims += 1
                self._traffic.claim_s += took
                self._traffic.taken_over += found.lease.fence > 1
                pause_s = PAUSE_MIN_S
                if not self._work(found):
                    return
                continue
            if isinstance(found, NoneAvailable) and found.earliest_deadline is None:
                return
            self._traffic.throttled += isinstance(found, Throttled)
            wait_s = min(pause_s, found.retry_after_ns / _NS) if isinstance(found, Throttled) else pause_s
            wait_s = max(wait_s, min(IDLE_SHARE * took, IDLE_MAX_S))
            self._turns.wait(wait_s)
            self._traffic.idle_s += took + wait_s
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _work(self, taken: Acquired) -> bool:
        """Work on a shard to its end, or until its lease is lost; return False if the worker dies."""
        lease = taken.lease
        renewed_s = self._turns.now_s
        first = int(taken.cursor.key or b"0")
        try:
            for page in range(first + 1, self._pages + 1):
                self._turns.wait(self._page_s)
                self._paged += 1
                if self._paged == self._fails_at:
                    if self._dies:
                        self._traffic.died += 1
                        return False
                    self._turns.wait(2 * LEASE_TTL_S)
                self._store.charge("put page", 2)  # findings and ledger
                self._it.checkpoint(self._now_ns(), lease, Cursor(b"%08d" % page), page)
                if self._turns.now_s - renewed_s > LEASE_TTL_S / 3:
                    lease = self._it.renew(self._now_ns(), lease)
                    renewed_s = self._turns.now_s
            self._it.complete(self._now_ns(), lease, Cursor(b"%08d" % self._pages), self._pages + 1)
        except (LeaseLost, ShardTerminal):
            self._traffic.lost_leases += 1
        return True

    def _now_ns(self) -> int:
        return START_NS + int(self._turns.now_s * _NS)
