"""Coordination over objects as an explicit state machine, request by request.

Programs are calls of production's `Coordinator` over `ObjectRecords`: claims, checkpoints, splits, unparks, and the
ends of runs. What must hold, in every state and step:

- a fence is told to one worker; a fence, a cursor and a status never go back;
- nobody changes a shard under an old fence;
- what a program was told is durable is durable;
- a shard that is claimed after the end of its run is not told;
- parts of a split are there as soon as their parent names them, and are seen only then;
- an unpark is in the run and in the shard, or in neither, and a run is over only when no shard is active.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from strandline.objects import ObjectStore
from strandline.pipeline.coordination import Coordinator
from strandline.pipeline.coordination.codec import parse_run, parse_shard
from strandline.pipeline.coordination.object_records import (
    format_run_key,
    format_shard_key,
    format_shards_prefix,
    parse_envelope,
    parse_shard_key,
)
from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.protocol.runs import RunRecord, RunStatus
from strandline.protocol.shards import Cursor, ParkReason, ShardKey, ShardRecord, ShardStatus
from strandline.testing.coordination_helpers import EXPIRED, HALVES, LEASE_TTL_NS, NOW, RUN, WHOLE, begin, take
from tests.models.object_programs import Contents, Fact, ObjectModel, ObjectState, Program, body_of

SHARD = ShardKey(*RUN, 1)
_ERRORS = {
    "WriteUnknown",
    "AlreadyLeased",
    "Contended",
    "LeaseExpired",
    "RunExists",
    "RunTerminal",
    "RunUnfinished",
    "ShardNotParked",
    "ShardTerminal",
    "StaleFence",
}
"""What a program may be told instead of an answer."""


def coordinator_over(store: ObjectStore) -> Coordinator:
    """Return a coordinator of a process of its own."""
    return Coordinator(ObjectRecords(store), lease_ttl_ns=LEASE_TTL_NS, pause=lambda _: None)


def worker(name: str, now: int, *, number: int = 1, cursor: bytes = b"c", until: str = "complete") -> Program:
    """Return a worker that claims the shard by its own clock, moves the cursor, and ends it."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        it = coordinator_over(store)
        lease = it.acquire_and_restore(now, SHARD, number).lease
        yield "claim", lease.fence
        if until == "claim":
            return
        it.checkpoint(now, lease, Cursor(cursor), 10 + lease.fence)
        yield "cursor", cursor
        if until == "complete":
            it.complete(now, lease, Cursor(cursor), 20 + lease.fence)
            yield "completion", lease.fence

    return Program(name, run)


def splitter(name: str, now: int) -> Program:
    """Return a worker that claims the shard and splits it in halves."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        it = coordinator_over(store)
        lease = it.acquire_and_restore(now, SHARD, 1).lease
        yield "claim", lease.fence
        it.split_replace(now, lease, HALVES, 30)
        yield ("split",)

    return Program(name, run)


def caller(name: str, call: Callable[[Coordinator], object], *fact: Any) -> Program:  # noqa: ANN401 - parts of a fact
    """Return a program of one call."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        call(coordinator_over(store))
        yield fact

    return Program(name, run)


def reader(name: str) -> Program:
    """Return a program that lists the shards, and asks for each part by its key."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        shards = coordinator_over(store).list_shards(RUN)
        yield "saw", tuple(sorted((shard.parent is not None, shard.status) for shard in shards))
        parts = [key for info in store.list(format_shards_prefix(RUN)) if (key := parse_shard_key(info.key)) != SHARD]
        yield from (("part",) for found in ObjectRecords(store).load_shards(parts) if found is not None)

    return Program(name, run)


def one_shard(store: ObjectStore) -> None:
    """Begin a run with one shard."""
    begin(coordinator_over(store), WHOLE)


def parked_shard(store: ObjectStore) -> None:
    """Begin a run with one shard, which is parked."""
    one_shard(store)
    it = coordinator_over(store)
    it.park_shard(NOW, take(it, SHARD), ParkReason.OTHER, 3)


def nothing(_: ObjectStore) -> None:
    """Begin with an empty store."""


class ObjectCoordinationModel(ObjectModel):
    """The model."""

    def broken(self, state: ObjectState) -> str | None:
        """Return which promise a state breaks, or None."""
        facts = self.facts(state)
        told = [fact for known in facts for fact in known]
        fences = [fact[1] for fact in told if fact[0] == "claim"]
        if len(set(fences)) < len(fences):
            return "a fence was given out twice"
        if any(("late claim", fence) in state.notes for fence in fences):
            return "a shard was claimed after the end of its run"
        if wrong := next((fact[1] for fact in told if fact[0] == "error" and fact[1] not in _ERRORS), None):
            return f"a program was told {wrong}"
        shard, run = self._shard(state.contents), self._run(state.contents)
        return (
            self._broken_told(told, shard, run)
            or self._broken_parts(state.contents, told, shard)
            or self._broken_run(state.contents, told, shard, run)
        )

    def broken_step(self, before: ObjectState, after: ObjectState, index: int | None) -> str | None:
        """Return which promise a step breaks, or None."""
        old, new = self._shard(before.contents), self._shard(after.contents)
        if old is None or new is None or old == new:
            return "a shard was lost" if old is not None and new is None else None
        if new.fence < old.fence:
            return "a fence went back"
        if new.cursor.key < old.cursor.key:
            return "a cursor went back"
        if old.status in {ShardStatus.DONE, ShardStatus.SPLIT} and new.status != old.status:
            return "a shard that was over changed"
        if index is not None and (fence := self._fence(after, index)) and fence < old.fence:
            return "a shard changed under an old fence"
        return None

    def notes(self, before: ObjectState, after: ObjectState, index: int | None) -> frozenset[Fact]:  # noqa: ARG002
        """Remember fences that were taken after the end of the run."""
        old, new, run = self._shard(before.contents), self._shard(after.contents), self._run(before.contents)
        if run is not None and run.over and old is not None and new is not None and new.fence > old.fence:
            return after.notes | {("late claim", new.fence)}
        return after.notes

    # What must hold

    def _broken_told(self, told: list[Fact], shard: ShardRecord | None, run: RunRecord | None) -> str | None:
        holds: dict[str, Callable[[Any], bool]] = {
            "cursor": lambda key: shard is not None and shard.cursor.key >= key,
            "completion": lambda _: shard is not None and shard.status == ShardStatus.DONE,
            "claim": lambda fence: shard is not None and shard.fence >= fence,
            "split": lambda _: shard is not None and shard.status == ShardStatus.SPLIT,
            "part": lambda _: shard is not None and bool(shard.spawned),
            "run": lambda op_id: run is not None and op_id in {entry.op_id for entry in run.ops},
        }
        wrong = (fact for fact in told if fact[0] in holds and not holds[fact[0]](fact[-1]))
        return next((f"a program was told of a {fact[0]} that is not there" for fact in wrong), None)

    def _broken_parts(self, contents: Contents, told: list[Fact], shard: ShardRecord | None) -> str | None:
        if shard is None:
            return None
        for part in shard.spawned:
            if body_of(contents, format_shard_key(SHARD._replace(shard=part))) is None:
                return "a split names a part that is not there"
        whole = {((False, ShardStatus.ACTIVE),)}
        parts = ((False, ShardStatus.SPLIT), (True, ShardStatus.ACTIVE), (True, ShardStatus.ACTIVE))
        if any(fact[0] == "saw" and fact[1] not in {*whole, parts} for fact in told):
            return "a reader saw a part of a split"
        return None

    def _broken_run(
        self, contents: Contents, told: list[Fact], shard: ShardRecord | None, run: RunRecord | None
    ) -> str | None:
        if run is None or shard is None or self._intent(contents):
            return None
        unparked = {entry.op_id for entry in run.ops} & {12, 13}
        shards = [self._record(number) for key, number in contents if key.startswith(format_shards_prefix(RUN))]
        begun = self._shard(self.initial()[0].contents)
        was_parked = begun is not None and begun.status == ShardStatus.PARKED
        problems = {
            "a program was told of an unpark that is not there": {fact[1] for fact in told if fact[0] == "unparked"}
            - unparked,
            "a shard was unparked twice": len(unparked) > 1,
            "a run says unparked, and its shard is parked": unparked and shard.status == ShardStatus.PARKED,
            "a shard was unparked, and its run does not say so": not unparked
            and was_parked
            and shard.status != ShardStatus.PARKED,
            "a run is done, and a shard is active": run.status == RunStatus.DONE
            and any(one.status == ShardStatus.ACTIVE for one in shards),
        }
        return next((problem for problem, is_there in problems.items() if is_there), None)

    # What is stored

    def _fence(self, state: ObjectState, index: int) -> int | None:
        fences = [fact[1] for fact in self.facts(state)[index] if fact[0] == "claim"]
        return fences[-1] if fences else None

    def _shard(self, contents: Contents) -> ShardRecord | None:
        number = body_of(contents, format_shard_key(SHARD))
        return None if number is None else self._record(number)

    def _run(self, contents: Contents) -> RunRecord | None:
        number = body_of(contents, format_run_key(RUN))
        return None if number is None else _parsed_run(self.bodies[number])

    def _record(self, number: int) -> ShardRecord:
        return _parsed_shard(self.bodies[number])

    def _intent(self, contents: Contents) -> bytes:
        number = body_of(contents, format_run_key(RUN))
        return b"" if number is None else parse_envelope(self.bodies[number], "a run").intent


@lru_cache(maxsize=1 << 14)
def _parsed_shard(body: bytes) -> ShardRecord:
    return parse_shard(parse_envelope(body, "a shard").record)


@lru_cache(maxsize=1 << 14)
def _parsed_run(body: bytes) -> RunRecord:
    return parse_run(parse_envelope(body, "a run").record)


def complete_run(it: Coordinator) -> object:
    """End the run."""
    return it.complete_run(NOW, RUN, 14)


def takeover(faults: int = 1) -> ObjectCoordinationModel:
    """Two workers, one of whom has the lease of the other end early."""
    both = worker("first", NOW), worker("second", EXPIRED, cursor=b"d")
    return ObjectCoordinationModel(both, one_shard, faults)


def twins(faults: int = 1) -> ObjectCoordinationModel:
    """Two processes that call themselves the same worker."""
    both = worker("first", NOW, until="claim"), worker("second", NOW, until="claim")
    return ObjectCoordinationModel(both, one_shard, faults)


def cancelled(faults: int = 1) -> ObjectCoordinationModel:
    """Two workers, and a run that ends meanwhile."""
    end = caller("cancels", lambda it: it.cancel_run(NOW, RUN, 15), "cancelled")
    both = worker("first", NOW, until="claim"), worker("second", EXPIRED, until="claim")
    return ObjectCoordinationModel([*both, end], one_shard, faults)


def split(faults: int = 1) -> ObjectCoordinationModel:
    """A worker that splits the shard, and a reader."""
    return ObjectCoordinationModel([splitter("first", NOW), reader("reader")], one_shard, faults)


def split_twice(faults: int = 1) -> ObjectCoordinationModel:
    """Two workers that both split the shard."""
    return ObjectCoordinationModel([splitter("first", NOW), splitter("second", EXPIRED)], one_shard, faults)


def unparked(faults: int = 1) -> ObjectCoordinationModel:
    """Two callers that unpark one shard."""
    both = (
        caller("first", lambda it: it.unpark_shard(NOW, SHARD, 12), "unparked", 12),
        caller("second", lambda it: it.unpark_shard(NOW, SHARD, 13), "unparked", 13),
    )
    return ObjectCoordinationModel(both, parked_shard, faults)


def unparked_at_the_end(faults: int = 1) -> ObjectCoordinationModel:
    """A caller that unparks the shard, and one that ends the run."""
    both = (
        caller("first", lambda it: it.unpark_shard(NOW, SHARD, 12), "unparked", 12),
        caller("second", complete_run, "ended"),
    )
    return ObjectCoordinationModel(both, parked_shard, faults)


def created(faults: int = 1) -> ObjectCoordinationModel:
    """Two callers that create the same run."""
    both = (
        caller("first", lambda it: it.create_run(NOW, RUN, 16), "run", 16),
        caller("second", lambda it: it.create_run(NOW, RUN, 17), "run", 17),
    )
    return ObjectCoordinationModel(both, nothing, faults)
