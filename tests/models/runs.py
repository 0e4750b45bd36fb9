"""A run from its creation to its end: orchestrators that stop half-way, repeat, and contradict each other.

Two registrations compete, and one that can never work; each comes in one commit, or in several with a record of what
was begun. Whoever has begun may write its shards at any later time. Workers complete and park shards, an operator
unparks them, and anybody ends the run, at any time and again. All decisions are those of `strandline.protocol`.

What must hold: a run that is over never changes; an active run has exactly the shards of one registration; a run is
done only when no shard is left; shards are worked on and unparked only while their run lasts; a repeated operation is
answered as the first time and changes nothing.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

from strandline.errors import Conflict, InvalidInput
from strandline.protocol import leases, runs
from strandline.protocol.runs import InitialShard, RunDecided, RunRecord, RunStatus
from strandline.protocol.shards import (
    Cursor,
    CursorSemantics,
    OpEntry,
    ParkReason,
    RunKey,
    ShardRecord,
    ShardSpec,
    ShardStatus,
)
from strandline.sim.explore import Step

KEY = RunKey(b"t" * 32, 1)
NOW, TTL, WORKER = 0, 9, 3
FENCE_MAX = 3
LEFT, RIGHT = ShardSpec(end=b"m"), ShardSpec(start=b"m")
CONTENTS = (
    (InitialShard(1, LEFT), InitialShard(2, RIGHT)),
    (InitialShard(1, ShardSpec()),),
    (InitialShard(1, LEFT), InitialShard(1, RIGHT)),
)
REGISTRATIONS = ((1, 0), (2, 1), (1, 1), (3, 2))
"""Operation and content; the third takes the id of the first."""
CREATE, COMPLETE, FAIL, CANCEL, UNPARK = 10, 20, 21, 22, 30
OVER = {RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED}


class RunState(NamedTuple):
    """The run, its shards, which registrations were begun, and what was done."""

    run: RunRecord | None = None
    shards: tuple[ShardRecord, ...] = ()
    begun: frozenset[tuple[int, int]] = frozenset()
    done: frozenset[str] = frozenset()


ResultT = TypeVar("ResultT")
Decide: TypeAlias = Callable[[RunRecord], RunDecided]


class RunModel:
    """The model."""

    def initial(self) -> list[RunState]:
        """Return nothing: no run yet."""
        return [RunState()]

    def place(self, state: RunState) -> RunState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: RunState) -> Iterator[Step[RunState]]:
        """Yield every request, and what shards and half-done registrations do."""
        for op_id in (CREATE, CREATE + 1):
            decided = _attempt(lambda op_id=op_id: _create(state.run, op_id))  # type: ignore[misc]
            yield from _settle(f"create#{op_id}", state, decided, op_id)
        run = state.run
        if run is None:
            return
        for op_id, content in REGISTRATIONS:
            yield from self._register(state, run, op_id, content)
        for name, op_id, decide in _endings(state):
            yield from _settle(f"{name}#{op_id}", state, _attempt(lambda decide=decide: decide(run)), op_id)  # type: ignore[misc]
        for index, shard in enumerate(state.shards):
            yield from self._unpark(state, run, index, shard)
            yield from self._work(state, run, index, shard)

    def broken(self, state: RunState) -> str | None:
        """Return what is wrong with a run and its shards together, or None."""
        if state.run is None or state.run.status != RunStatus.ACTIVE:
            return None
        found = tuple(InitialShard(shard.shard, shard.spec) for shard in state.shards)
        return None if found in CONTENTS[:2] else "an active run has not the shards of one registration"

    def show(self, state: RunState) -> str:
        """Return where the run and its shards stand."""
        if state.run is None:
            return "no run"
        shards = ", ".join(f"{shard.shard} {shard.status.name.lower()}" for shard in state.shards)
        pending = "" if state.run.pending is None else ", a registration is pending"
        return f"{state.run.status.name.lower()}{pending}; shards: {shards or 'none'}"

    def _register(self, state: RunState, run: RunRecord, op_id: int, content: int) -> Iterator[Step[RunState]]:
        wanted = CONTENTS[content]
        name = f"#{op_id} with {len(wanted)} shards"
        begun = _attempt(lambda: runs.begin_registration(run, NOW, wanted, op_id))
        if begun is not None and begun.shards:
            after = state._replace(run=begun.record, begun=state.begun | {(op_id, content)})
            yield f"begin {name}", after, _broken_run(run, begun.record)
        registered = _attempt(lambda: runs.register_shards(run, NOW, wanted, op_id))
        if (op_id, content) in state.begun:
            yield from _write(state, run, wanted)
            if registered is not None and _has(state, wanted):
                yield from _settle(f"register {name}", state, registered._replace(shards=()), op_id)
        if registered is None or registered.replayed or not state.shards:
            yield from _settle(f"register {name}", state, registered, op_id)

    def _unpark(self, state: RunState, run: RunRecord, index: int, shard: ShardRecord) -> Iterator[Step[RunState]]:
        for fence in range(1, FENCE_MAX):
            op_id = UNPARK + 10 * fence + shard.shard
            decided = _attempt(lambda op_id=op_id: runs.unpark(run, shard, NOW, op_id))  # type: ignore[misc]
            if decided is None or not decided.shards or decided.shards[0].fence <= FENCE_MAX:
                name = f"unpark#{op_id} {shard.shard}"
                for action, after, problem in _settle(name, state, decided, op_id, index):
                    bad = None if shard.status == ShardStatus.PARKED else "a shard was unparked that was not parked"
                    yield action, after, problem or bad

    def _work(self, state: RunState, run: RunRecord, index: int, shard: ShardRecord) -> Iterator[Step[RunState]]:
        """A worker takes a shard, and completes or parks it."""
        for name in ("complete", "park"):
            after = _attempt(lambda name=name: _worked(run, shard, name))  # type: ignore[misc]
            if after is not None and after.fence <= FENCE_MAX:
                problem = None if run.status == RunStatus.ACTIVE else "a shard was worked on whose run is not active"
                yield f"{name} {shard.shard}", state._replace(shards=_replaced(state.shards, index, after)), problem


def _create(run: RunRecord | None, op_id: int) -> RunDecided:
    return runs.create_run(run, NOW, KEY, CursorSemantics.COMPLETED, op_id)


def _endings(state: RunState) -> Iterator[tuple[str, int, Decide]]:
    """Every way to end a run, one of them under the id of another."""
    active = sum(shard.status == ShardStatus.ACTIVE for shard in state.shards)
    yield "complete", COMPLETE, lambda run: runs.complete_run(run, NOW, COMPLETE, active)
    yield "fail", FAIL, lambda run: runs.fail_run(run, NOW, FAIL)
    yield "cancel", CANCEL, lambda run: runs.cancel_run(run, NOW, CANCEL)
    yield "cancel", FAIL, lambda run: runs.cancel_run(run, NOW, FAIL)


def _worked(run: RunRecord, shard: ShardRecord, name: str) -> ShardRecord:
    runs.check_run_active(run)
    taken = leases.acquire(shard, NOW, KEY.tenant, WORKER, TTL)
    lease = leases.lease_of(taken)
    if name == "park":
        return leases.park(taken, lease, NOW, ParkReason.OTHER, taken.fence).record
    return leases.complete(taken, lease, NOW, Cursor(shard.spec.start or b"a"), taken.fence).record


def _write(state: RunState, run: RunRecord, wanted: tuple[InitialShard, ...]) -> Iterator[Step[RunState]]:
    """Whoever has begun writes a shard that is missing, if what is there fits."""
    ids = {shard.shard for shard in state.shards}
    fits = all(InitialShard(shard.shard, shard.spec) in wanted for shard in state.shards)
    for shard in wanted:
        if shard.shard not in ids and fits:
            fresh = ShardRecord(*KEY, shard.shard, shard.spec, semantics=run.semantics)
            yield f"write shard {shard.shard}", state._replace(shards=_sorted((*state.shards, fresh))), None


def _settle(
    name: str, state: RunState, decided: RunDecided | None, op_id: int, index: int | None = None
) -> Iterator[Step[RunState]]:
    """The step that a decision makes; a repeat makes none, and must be answered as the first time."""
    known = next((entry for entry in state.run.ops if entry.op_id == op_id), None) if state.run else None
    if known is not None:
        if problem := _broken_repeat(name, state, decided, known):
            yield name, state, problem
        return
    if decided is None:
        return
    shards = state.shards
    if index is not None:
        shards = _replaced(shards, index, decided.shards[0])
    elif decided.shards:
        shards = _sorted((*shards, *decided.shards))
    after = RunState(decided.record, shards, state.begun, state.done | {name})
    remembers = any(entry.op_id == op_id for entry in decided.record.ops)
    yield name, after, _broken_end(state, decided) if remembers else "an operation that was done is not remembered"


def _broken_repeat(name: str, state: RunState, decided: RunDecided | None, known: OpEntry) -> str | None:
    if name not in state.done:
        return None if decided is None else "an operation's id was taken for other content"
    if decided is None:
        return "a repeated operation was refused"
    same = decided.replayed and decided.record == state.run and decided.outcome == known.outcome
    return None if same else "a repeated operation acted twice"


def _broken_end(state: RunState, decided: RunDecided) -> str | None:
    active = any(shard.status == ShardStatus.ACTIVE for shard in state.shards)
    if decided.record.status == RunStatus.DONE and active:
        return "a run is done, and a shard is not"
    return _broken_run(state.run, decided.record)


def _broken_run(before: RunRecord | None, after: RunRecord) -> str | None:
    if before is None:
        return None
    if before.status in OVER and after != before:
        return "a run that is over changed"
    if before.status == RunStatus.ACTIVE and after.status == RunStatus.INITIALIZING:
        return "a run went back to its beginning"
    return None


def _has(state: RunState, wanted: tuple[InitialShard, ...]) -> bool:
    return {shard.shard for shard in state.shards} == {shard.shard for shard in wanted}


def _sorted(shards: tuple[ShardRecord, ...]) -> tuple[ShardRecord, ...]:
    return tuple(sorted(shards, key=lambda shard: shard.shard))


def _replaced(shards: tuple[ShardRecord, ...], index: int, shard: ShardRecord) -> tuple[ShardRecord, ...]:
    return (*shards[:index], shard, *shards[index + 1 :])


def _attempt(decide: Callable[[], ResultT]) -> ResultT | None:
    try:
        return decide()
    except (Conflict, InvalidInput):
        return None
