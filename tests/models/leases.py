"""One shard and its leases: workers take it, work, stall, and send what they meant to send long after.

Whoever was ever given a lease may send any request under it at any later time, and any number of times: so every delay,
duplicate and zombie is among the explored. Others try the current fence without having been given it, and a stranger
comes from another tenant. With `lag_max` a request may be decided with a clock behind the world's, like a call that was
held up between reading the clock and reaching the store. An operator unparks what is parked.

All decisions are those of `strandline.protocol`; the laws are those of `lease_laws`. A refusal is held to the laws too;
as it changes nothing, it is no step.

A state is `(local, holders)`: `local` is the time and the records as small numbers, `holders` says which worker was
given each fence (0: nobody, as unparking takes a fence too).
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from strandline.errors import Conflict, InvalidInput
from strandline.protocol import leases, runs
from strandline.protocol.canonical import u64
from strandline.protocol.errors import RecordBroken
from strandline.protocol.leases import Decided
from strandline.protocol.operations import cursor_payload, op_id, park_payload, payload_hash
from strandline.protocol.runs import RunDecided
from strandline.protocol.shards import Lease, OpKind, ParkReason
from strandline.sim.explore import Step
from tests.models.lease_codec import CURSOR, OWNER, RUN, SHARD, TENANT, LeaseCodec, Local, Numbers, cursor_at
from tests.models.lease_laws import Answer, Asked, LeaseWorld, broken_law

STRANGER = b"s" * 32
NOBODY = 0
FAR = 10**6
"""A zombie believes that its lease lasts."""

LeaseState: TypeAlias = tuple[Local, Numbers]
Move: TypeAlias = tuple[str, Local, int | None, str | None]
"""An action, the records after it, who was given a fence by it, and what is wrong."""


class LeaseBounds(NamedTuple):
    """How large the world is; times are in ticks."""

    workers: int = 3
    fence_max: int = 3
    cursor_max: int = 2
    time_max: int = 6
    lease_ticks: int = 2
    lag_max: int = 0


class _Moves(NamedTuple):
    """What can happen to some records: by anybody, and by the holder of a stale fence, the owner or not."""

    world: LeaseWorld
    by_anybody: tuple[Move, ...]
    by_holder: dict[tuple[int, bool], tuple[Move, ...]]


class LeaseModel:
    """The model. What was decided once is kept, since many states share their records."""

    def __init__(self, bounds: LeaseBounds | None = None) -> None:
        self.bounds = bounds or LeaseBounds()
        self._workers = range(1, self.bounds.workers + 1)
        fences = range(self.bounds.fence_max + 1)
        self._requests = [tuple(_requests(fence, self.bounds.cursor_max)) for fence in fences]
        self._tries = [tuple({asked.kind: asked for asked in requests}.values()) for requests in self._requests]
        self._wrong = [tuple(_wrong_cursors(fence, self.bounds.cursor_max)) for fence in fences]
        self._unparkings = [_unparking(fence) for fence in fences[1:]]
        known = [asked for requests in self._requests + self._wrong for asked in requests] + self._unparkings
        self._codec = LeaseCodec(known, self.bounds.cursor_max)
        self._moves: dict[Local, _Moves] = {}
        self._sent: dict[tuple[Lease, str, int, int], list[Asked]] = {}

    def initial(self) -> list[LeaseState]:
        """Return a run with a shard that nobody has."""
        return [(self._codec.start(), ())]

    def steps(self, state: LeaseState) -> list[Step[LeaseState]]:
        """Return what the clock, an operator and every holder of a lease can do."""
        local, holders = state
        moves = self._moves.get(local) or self._find_moves(local)
        found: list[Step[LeaseState]] = [
            (action, (after, holders if holder is None else (*holders, holder)), problem)
            for action, after, holder, problem in moves.by_anybody
        ]
        owner = local[1][OWNER]
        for fence, worker in enumerate(holders[:-1], 1):
            if worker == NOBODY:
                continue
            # Workers are alike but for one thing: whether they have the shard by now, under a later fence.
            stale = moves.by_holder.get((fence, worker == owner))
            if stale is None:
                sent = self._send(moves.world, local, _lease(worker, fence), self._requests[fence])
                stale = moves.by_holder[fence, worker == owner] = tuple(sent)
            if stale:
                found += [(action, (after, holders), problem) for action, after, _, problem in stale]
        return found

    def broken(self, state: LeaseState) -> str | None:
        """Return None: every law is about a step."""

    def place(self, state: LeaseState) -> Local:
        """Return the records, by which decisions are kept."""
        return state[0]

    def show(self, state: LeaseState) -> str:
        """Return the time, the shard and who was given which fence."""
        local, holders = state
        now, shard, _ = self._codec.parse_world(local)
        lease = "free" if shard.owner is None else f"of w{shard.owner} until {shard.deadline}"
        given = " ".join(f"{fence}:w{worker}" for fence, worker in enumerate(holders, 1) if worker)
        return (
            f"t={now} {shard.status.name.lower()}, fence {shard.fence}, {lease}, cursor {local[1][CURSOR]}, "
            f"{len(shard.ops)} operations; given {given or '-'}"
        )

    def _find_moves(self, local: Local) -> _Moves:
        world = self._codec.parse_world(local)
        moves = self._moves[local] = _Moves(world, tuple(self._by_anybody(world, local)), {})
        return moves

    def _by_anybody(self, world: LeaseWorld, local: Local) -> Iterator[Move]:
        now, shard, run = local
        fence, owner = world.shard.fence, world.shard.owner or 1
        if now < self.bounds.time_max:
            yield "tick", (now + 1, shard, run), None, None
        yield from self._settle(world, local, [asked._replace(at=now) for asked in self._unparkings], NOBODY)
        for worker in self._workers:
            yield from self._settle(world, local, self._acquisitions(TENANT, worker, now), worker)
        yield from self._settle(world, local, self._acquisitions(STRANGER, owner, now), owner)
        yield from self._send(world, local, _lease(owner, fence), self._requests[fence])
        yield from self._send(world, local, _lease(owner, fence), self._wrong[fence])
        for impostor in (_lease(owner % self.bounds.workers + 1, fence), _lease(owner, fence, STRANGER)):
            yield from self._send(world, local, impostor, self._tries[fence])

    def _acquisitions(self, tenant: bytes, worker: int, now: int) -> list[Asked]:
        return [Asked("acquire", _lease(worker, 0, tenant), at) for at in self._clocks(now)]

    def _send(self, world: LeaseWorld, local: Local, lease: Lease, requests: tuple[Asked, ...]) -> Iterator[Move]:
        """Send requests under a lease, whoever has it."""
        key = (lease, requests[0].kind, len(requests), world.now)
        if key not in self._sent:
            clocks = self._clocks(world.now)
            self._sent[key] = [asked._replace(lease=lease, at=at) for at in clocks for asked in requests]
        return self._settle(world, local, self._sent[key], None)

    def _settle(self, world: LeaseWorld, local: Local, requests: list[Asked], holder: int | None) -> Iterator[Move]:
        """The steps that the answers make: those that change something or break a law."""
        lease_ticks, fence_max = self.bounds.lease_ticks, self.bounds.fence_max
        for asked in requests:
            try:
                answer = _decide(world, asked, lease_ticks)
                problem = broken_law(world, asked, answer)
            except RecordBroken as error:
                yield _name(asked, world.now), local, None, str(error)
                continue
            if problem is not None:
                yield _name(asked, world.now), local, None, problem
            elif answer.after is not None and answer.after != world and answer.after.shard.fence <= fence_max:
                yield _name(asked, world.now), self._codec.format_world(answer.after), holder, None

    def _clocks(self, now: int) -> range:
        return range(now, max(0, now - self.bounds.lag_max) - 1, -1)


def _decide(world: LeaseWorld, asked: Asked, lease_ticks: int) -> Answer:
    """Let production decide."""
    shard, lease, at, cursor, op_id = world.shard, asked.lease, asked.at, asked.cursor or cursor_at(0), asked.op_id or 0
    decided: Decided | RunDecided
    try:
        match asked.kind:
            case "acquire":
                taken = leases.acquire(shard, at, lease.tenant, lease.worker, lease_ticks)
                return Answer(world._replace(shard=taken))
            case "renew":
                return Answer(world._replace(shard=leases.renew(shard, lease, at, lease_ticks)))
            case "unpark":
                decided = runs.unpark(world.run, shard, at, op_id)
                shard = decided.shards[0] if decided.shards else shard
                return Answer(LeaseWorld(world.now, shard, decided.record), decided.outcome, decided.replayed)
            case "checkpoint":
                decided = leases.checkpoint(shard, lease, at, cursor, op_id)
            case "complete":
                decided = leases.complete(shard, lease, at, cursor, op_id)
            case "park":
                decided = leases.park(shard, lease, at, ParkReason.OTHER, op_id)
    except (Conflict, InvalidInput):
        return Answer(None)
    return Answer(world._replace(shard=decided.record), decided.outcome, decided.replayed)


def _lease(worker: int, fence: int, tenant: bytes = TENANT) -> Lease:
    return Lease(tenant, RUN, SHARD, worker, fence, FAR)


def _requests(fence: int, cursor_max: int) -> Iterator[Asked]:
    """What is sent under a fence: whatever is right, and an id that was for something else."""
    nobody = _lease(NOBODY, fence)
    yield Asked("renew", nobody, 0)
    right = [(number, number) for number in range(1, cursor_max + 1)]
    for number, sequence in (*right, (cursor_max, 1)):
        yield _with_cursor("checkpoint", OpKind.CHECKPOINT, nobody, number, sequence)
    for number in (1, cursor_max):
        yield _with_cursor("complete", OpKind.COMPLETE, nobody, number, 0)
    hashed = payload_hash(OpKind.PARK, park_payload(ParkReason.OTHER))
    yield Asked("park", nobody, 0, None, op_id(RUN, SHARD, fence, OpKind.PARK), hashed)


def _wrong_cursors(fence: int, cursor_max: int) -> Iterator[Asked]:
    """What a worker with every right must still not write: no cursor, and one beyond the end."""
    for number in (0, cursor_max + 1):
        yield _with_cursor("checkpoint", OpKind.CHECKPOINT, _lease(NOBODY, fence), number, number)


def _with_cursor(
    name: Literal["checkpoint", "complete"], kind: OpKind, lease: Lease, number: int, sequence: int
) -> Asked:
    cursor = cursor_at(number)
    hashed = payload_hash(kind, cursor_payload(cursor))
    return Asked(name, lease, 0, cursor, op_id(RUN, SHARD, lease.fence, kind, sequence), hashed)


def _unparking(fence: int) -> Asked:
    operator = _lease(NOBODY, fence)
    hashed = payload_hash(OpKind.UNPARK, u64(SHARD))
    return Asked("unpark", operator, 0, None, op_id(RUN, SHARD, fence, OpKind.UNPARK), hashed)


def _name(asked: Asked, now: int) -> str:
    lease, cursor = asked.lease, asked.cursor
    who = "operator" if lease.worker == NOBODY else f"w{lease.worker}" if lease.tenant == TENANT else "stranger"
    under = f" under {lease.fence}" if lease.fence else ""
    what = "" if cursor is None else f" {cursor.key[0] if cursor.key else 'nothing'}"
    late = f", clock at {asked.at}" if asked.at < now else ""
    return f"{who}{under}: {asked.kind}{what}{late}"
