"""A seeded simulation of many workers over one coordinator, with faults; the same seed is the same simulation.

First some workers take shards and go to sleep (the zombies). Then, for as many steps as asked, workers work, fail,
retry, stall, crash and compete; zombies wake up and write; requests arrive a second time, much
later; the store refuses, or loses its answer after it has written; there are also
bursts of claims, of shards and of crashes. Finally the faults end, and the run must end too.

Every write keeps the invariants S1 to S9 of `coordination_invariants`; an honest worker, which repeats a failed
operation under the same id, is refused only because its lease is over.
"""

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from strandline.errors import Damaged, StrandlineError, Unavailable, UnknownOutcome
from strandline.pipeline.coordination import Coordinator, MemoryRecords, NoneAvailable, RecordStore, Throttled
from strandline.pipeline.coordination.record_store import Plan
from strandline.protocol.errors import AlreadyLeased, LeaseLost, RunNotActive, RunTerminal, ShardTerminal
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import Cursor, Lease, Outcome, RunKey, ShardKey, ShardSpec, ShardStatus
from strandline.protocol.splits import ResidualPlan
from strandline.sim.coordination_invariants import Asker, InvariantBroken, Oracle
from strandline.sim.coordination_workers import (
    KEYS,
    PARTS_MAX,
    Request,
    SimWorker,
    cuts_of,
    finishing_request,
    is_divisible,
    parts_at,
    right_request,
    wrong_request,
)
from strandline.sim.hooked_records import HookedRecords

MILLION = 1_000_000
TENANT = b"t" * 32
START_NS = 10**18
LEASE_TTL_NS = 60 * 10**9
TICK_NS = LEASE_TTL_NS // 60
WARMUP_OPS = 5
ZOMBIES = 3
INITIAL_SHARDS = 6
ACTIVE_SHARDS_MAX = 60
LATE_MAX = 200
CHECKED_EVERY = 250
LIVENESS_STEPS_PER_SHARD = 200


class FaultLevel(NamedTuple):
    """Rates, in parts of a million, of refusals, lost answers and repeated requests."""

    name: str
    refused_ppm: int = 0
    lost_ppm: int = 0
    late_ppm: int = 0
    skew_ns: int = 0


SUNNY_DAY = FaultLevel("SunnyDay")
STORMY = FaultLevel("Stormy", 100_000, 50_000, 100_000, TICK_NS)
RADIOACTIVE = FaultLevel("Radioactive", 200_000, 100_000, 200_000, LEASE_TTL_NS // 4)
RACE_PPM, STALL_PPM, OVERLOAD_PPM, ZOMBIE_PPM, WRONG_PPM, OPERATOR_PPM = 50_000, 30_000, 10_000, 100_000, 50_000, 50_000
OVER = (LeaseLost, ShardTerminal)
UNCERTAIN = (Unavailable, UnknownOutcome)
MAY_MEET = (*OVER, *UNCERTAIN, AlreadyLeased, RunTerminal, RunNotActive)
"""The allowed answers to an honest worker."""

Answer = Outcome | Lease | Acquired | NoneAvailable | Throttled | StrandlineError | None


def simulate(
    seed: int, level: FaultLevel, steps: int, workers: int = 8, store: RecordStore | None = None
) -> Counter[str]:
    """Run a simulation, and return the counts of answers; `InvariantBroken` has the call that repeats it.

    A store must be empty; without one the records are in memory.
    """
    simulation = CoordinationSimulation(seed, level, workers, store or MemoryRecords())
    try:
        simulation.run(steps)
    except Exception as error:
        call = f"simulate({seed}, {level.name}, {steps}, {workers})"
        history = "\n  ".join(simulation.history)
        raise InvariantBroken(f"{error}\nin step {simulation.step} of {call}; before that:\n  {history}") from error
    return simulation.answers


class CoordinationSimulation:
    """The simulation: a clock, a coordinator over a failing store, workers, and an oracle that sees every write."""

    def __init__(self, seed: int, level: FaultLevel, workers: int, store: RecordStore) -> None:
        self.random = Random(seed)
        self.level = level
        self.step = 0
        self.history: deque[str] = deque(maxlen=25)
        self.answers: Counter[str] = Counter()
        self._now = START_NS
        self._oracle = Oracle()
        self._store = HookedRecords(store, self)
        self._coordinator = Coordinator(self._store, lease_ttl_ns=LEASE_TTL_NS, pause=lambda _: None)
        self._parts_max = min(PARTS_MAX, store.records_per_commit_max - 1)
        skew = level.skew_ns
        self._workers = [SimWorker(number, self.random.randint(-skew, skew)) for number in range(1, workers + 1)]
        self._operator = SimWorker(0)
        self._zombies: deque[Acquired] = deque(maxlen=LATE_MAX)
        self._late: deque[Request] = deque(maxlen=LATE_MAX)
        self._askers: list[Asker] = []
        self._faults = False
        self._race_ppm = RACE_PPM
        self._run = RunKey(TENANT, 0)

    # Hooks of the store around each commit

    def before(self, plan: Plan) -> None:
        """Refuse a commit, or let another worker commit first."""
        if not self._faults or len(self._askers) > 1:
            return
        if self._chance(self.level.refused_ppm):
            raise Unavailable("the store cannot be reached")
        if plan.shards and self._chance(self._race_ppm):
            worker = self.random.choice(self._workers)
            answer = self._ask(Request("acquire_and_restore", worker.number, content=plan.shards[0].after.key))
            if isinstance(answer, Acquired):
                self._zombies.append(answer)

    def after(self, plan: Plan) -> None:
        """Show the oracle what was written, and lose the answer."""
        self._oracle.saw_write(self._askers[-1], plan)
        if self._faults and len(self._askers) == 1 and self._chance(self.level.lost_ppm):
            raise UnknownOutcome("the answer was lost")

    # The stages

    def run(self, steps: int) -> None:
        """Run the three stages."""
        self._begin_run()
        for worker in self._workers[:ZOMBIES]:
            for _ in range(WARMUP_OPS):
                self._turn(worker)
            self._crash(worker)
        self._now += 2 * LEASE_TTL_NS
        self._faults = True
        for self.step in range(1, steps + 1):
            self._safety_step()
            if self.step % CHECKED_EVERY == 0:
                self._oracle.check_store(self._store, self._run)
        self._faults = False
        self._finish()
        self._oracle.check_store(self._store, self._run)

    def _safety_step(self) -> None:
        """Run one step."""
        stall = self._chance(STALL_PPM)
        self._now += self.random.randrange(2 * LEASE_TTL_NS if stall else TICK_NS)
        if self._chance(OVERLOAD_PPM):
            self.random.choice([self._burst_claim, self._capacity_drop, self._burst_shards])()
        elif self._zombies and self._chance(ZOMBIE_PPM):
            self._wake_zombie()
        elif self._late and self._chance(self.level.late_ppm):
            self._ask(self.random.choice(self._late))
        elif self._chance(OPERATOR_PPM):
            self._operate()
        else:
            self._turn(self.random.choice(self._workers))

    def _finish(self) -> None:
        """Without faults, finish the remaining work and the run."""
        for key in self._parked():
            self._ask(Request("unpark_shard", 0, content=key, op_id=self._operator.next_op_id()))
        limit = LIVENESS_STEPS_PER_SHARD * (1 + len(self._oracle.shards))
        for _ in range(limit):
            if not self._coordinator.progress(self._run).active:
                break
            self.step += 1
            self._now += TICK_NS
            self._turn(self.random.choice(self._workers), finishing=True)
        answer = self._ask(Request("complete_run", 0, content=self._run, op_id=self._operator.next_op_id()))
        if not isinstance(answer, Outcome):
            raise InvariantBroken(f"liveness: the run does not end: {answer}")

    # Workers

    def _turn(self, worker: SimWorker, *, finishing: bool = False) -> None:
        held, honest = worker.held, True
        if worker.pending is not None:
            request, worker.pending = worker.pending, None
        elif held is None:
            request = self._taking(worker)
        elif finishing:
            request = finishing_request(worker, held)
        elif self._faults and self._chance(WRONG_PPM):
            request, honest = wrong_request(self.random, worker, held), False
        else:
            request = right_request(self.random, worker, held, may_split=self._may_split())
        self._settle(worker, request, self._ask(request), honest=honest)

    def _taking(self, worker: SimWorker) -> Request:
        if self._chance(9 * MILLION // 10):
            return Request("claim_next_available", worker.number)
        keys = [key for key in self._oracle.shards if key[:2] == self._run]
        return Request("acquire_and_restore", worker.number, content=self.random.choice(keys))

    def _settle(self, worker: SimWorker, request: Request, answer: Answer, *, honest: bool) -> None:
        """Apply an answer to the worker's state."""
        if isinstance(answer, UNCERTAIN):
            if honest:
                worker.pending = request if request.op_id else None
            else:
                self._crash(worker)
        elif isinstance(answer, OVER) and request.lease is not None:
            self._crash(worker)
        elif isinstance(answer, StrandlineError):
            if honest and not isinstance(answer, MAY_MEET):
                raise InvariantBroken(f"an honest worker was refused: {answer}")
        elif isinstance(answer, Acquired):
            worker.held = answer
        elif isinstance(answer, Lease) and worker.held is not None:
            worker.held = worker.held._replace(lease=answer)
        elif isinstance(answer, Outcome):
            self._done(worker, request)

    def _done(self, worker: SimWorker, request: Request) -> None:
        if request.what == "checkpoint" and isinstance(request.content, Cursor):
            worker.moved(request.content)
        elif request.what == "split_residual" and isinstance(request.content, ResidualPlan) and worker.held:
            worker.held = worker.held._replace(spec=request.content.kept)
        else:
            self._crash(worker)

    def _crash(self, worker: SimWorker) -> None:
        """Let a worker lose its state; its lease stays in the store."""
        if worker.held is not None:
            self._zombies.append(worker.held)
        worker.held = worker.pending = None

    def _wake_zombie(self) -> None:
        held = self.random.choice(self._zombies)
        worker = self._workers[held.lease.worker - 1]
        makes = wrong_request if self._chance(WRONG_PPM) else right_request
        self._ask(makes(self.random, worker, held))

    # Overload

    def _burst_claim(self) -> None:
        """All workers claim at once and lose to another one; then shards become free, and all claim again."""
        self._race_ppm = MILLION
        self._claim_all()
        self._race_ppm = 0
        for held in list(self._zombies)[-ZOMBIES:]:
            self._split(self._workers[held.lease.worker - 1], held)
        self._claim_all()
        self._race_ppm = RACE_PPM

    def _claim_all(self) -> None:
        for worker in self._workers:
            answer = self._ask(Request("claim_next_available", worker.number))
            if isinstance(answer, Acquired):
                self._crash(worker)
                worker.held = answer

    def _capacity_drop(self) -> None:
        """Half of the workers crash."""
        for worker in self.random.sample(self._workers, len(self._workers) // 2):
            self._crash(worker)

    def _burst_shards(self) -> None:
        """Split shards into many parts."""
        for worker in self._workers:
            if worker.held is not None and worker.pending is None:
                self._split(worker, worker.held)

    def _split(self, worker: SimWorker, held: Acquired) -> None:
        if not self._may_split() or not is_divisible(held.spec):
            return
        parts = parts_at(held.spec, cuts_of(self.random, held.spec, self._parts_max - 1))
        request = Request("split_replace", worker.number, held.lease, parts, worker.next_op_id())
        answer = self._ask(request)
        if held is worker.held:
            self._settle(worker, request, answer, honest=True)

    # The operator

    def _operate(self) -> None:
        parked = self._parked() or list(self._oracle.shards)
        op_id = self._operator.next_op_id()
        if self._chance(MILLION // 2):
            self._ask(Request("unpark_shard", 0, content=self.random.choice(parked), op_id=op_id))
        elif self._chance(MILLION // 20):
            ending = self.random.choice(["fail_run", "cancel_run"])
            self._ask(Request(ending, 0, content=self.random.choice(list(self._oracle.runs)), op_id=op_id))
        else:
            self._ask(Request("complete_run", 0, content=self._run, op_id=op_id))
        if self._oracle.runs[self._run].over:
            self._oracle.check_store(self._store, self._run)
            self._begin_run()

    def _begin_run(self) -> None:
        for worker in self._workers:
            self._crash(worker)
        self._run = RunKey(TENANT, self._run.run + 1)
        cuts = sorted(self.random.sample(range(1, KEYS), INITIAL_SHARDS - 1))
        shards = tuple(InitialShard(*pair) for pair in enumerate(parts_at(ShardSpec(), cuts)))
        self._insist(Request("create_run", 0, content=self._run, op_id=self._operator.next_op_id()))
        self._insist(Request("register_shards", 0, content=shards, op_id=self._operator.next_op_id()))

    def _insist(self, request: Request) -> None:
        """Repeat a request under its operation id until it is answered."""
        while isinstance(answer := self._ask(request), UNCERTAIN):
            pass
        if isinstance(answer, StrandlineError):
            raise InvariantBroken(f"an honest operator was refused: {answer}")

    def _parked(self) -> list[ShardKey]:
        found = self._oracle.shards.items()
        return [key for key, shard in found if shard.status == ShardStatus.PARKED and key[:2] == self._run]

    def _may_split(self) -> bool:
        return self._store.progress(self._run).active < ACTIVE_SHARDS_MAX

    # Requests

    def _ask(self, request: Request) -> Answer:
        """Send a request to the coordinator, and return its answer or error; some are repeated later."""
        skew = self._workers[request.worker - 1].skew_ns if request.worker else 0
        asker = Asker(request.what, self._now + skew, request.worker, request.lease)
        self._askers.append(asker)
        try:
            answer = self._call(request, asker.now)
        except Damaged as error:
            raise InvariantBroken(f"S4: {error}") from error
        except StrandlineError as error:
            answer = error
        finally:
            self._askers.pop()
        name = type(answer).__name__
        self.answers[f"{request.what}: {name}"] += 1
        self.history.append(f"{self.step}: {asker}: {name}")
        if request.lease is not None and self._faults and self._chance(self.level.late_ppm):
            self._late.append(request)
        return answer

    def _call(self, request: Request, now: int) -> Answer:
        what, worker, lease, content, op_id = request
        method: Callable[..., Answer] = getattr(self._coordinator, what)
        if what == "claim_next_available":
            answer = method(now, self._run, worker)
            if isinstance(answer, Throttled):
                self._oracle.saw_pause(self._run, worker, now + answer.retry_after_ns)
            elif isinstance(answer, Acquired):
                self._oracle.saw_claim(self._run, worker, now)
            return answer
        if what == "acquire_and_restore":
            return method(now, content, worker)
        if what == "register_shards":
            return method(now, self._run, content, op_id)
        if what == "renew":
            return method(now, lease)
        return method(now, content, op_id) if lease is None else method(now, lease, content, op_id)

    def _chance(self, ppm: int) -> bool:
        return self.random.randrange(MILLION) < ppm
