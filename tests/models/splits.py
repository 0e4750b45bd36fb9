"""A shard that is split, and its parts again: cut anywhere, asked for twice, and late, with plans for what it once was.

Keys are the numbers below `keys`. Every holder asks for every split of its shard's range and of the range that it had
at first, and for plans with a gap, an overlap or a single part; each under an id of its own, and under one that they
share. All decisions are those of `strandline.protocol`; a step is a request that changes something.

What must hold: the shards that are not split are exactly all keys, once each; no key counts as scanned that was not;
what holds the cursor keeps it; and nothing is split twice by one operation.
"""

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

from strandline.errors import Conflict, InvalidInput
from strandline.protocol import leases, splits
from strandline.protocol.errors import RecordBroken
from strandline.protocol.leases import Decided
from strandline.protocol.shards import Cursor, Lease, ShardRecord, ShardSpec, ShardStatus
from strandline.protocol.splits import ResidualPlan
from strandline.sim.explore import Step

TENANT = b"t" * 32
RUN, ROOT, WORKER = 1, 2, 3
SHARED_ID = 7
FAR = 10**6


class SplitBounds(NamedTuple):
    """How large the world is."""

    keys: int = 4
    shards_max: int = 5


class SplitRequest(NamedTuple):
    """A checkpoint of a key, a split into parts, or a residual split."""

    content: int | tuple[ShardSpec, ...] | ResidualPlan
    op_id: int

    def __str__(self) -> str:
        if isinstance(self.content, int):
            return f"checkpoint {self.content}"
        kind = "residual" if isinstance(self.content, ResidualPlan) else "replace"
        return f"split_{kind} {' '.join(map(_shown, self.content))} #{self.op_id}"


class SplitState(NamedTuple):
    """The shards by id, and the splits that were done, each with the shard's id."""

    shards: tuple[ShardRecord, ...]
    done: frozenset[tuple[int, SplitRequest]] = frozenset()


class SplitModel:
    """The model."""

    def __init__(self, bounds: SplitBounds | None = None) -> None:
        self.bounds = bounds or SplitBounds()
        self._answers: dict[tuple[ShardRecord, SplitRequest], Decided | str | None] = {}
        self._requests: dict[ShardSpec, list[SplitRequest]] = {}

    def initial(self) -> list[SplitState]:
        """Return one shard with all keys."""
        return [SplitState((ShardRecord(TENANT, RUN, ROOT, ShardSpec(end=_key(self.bounds.keys))),))]

    def place(self, state: SplitState) -> SplitState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: SplitState) -> Iterator[Step[SplitState]]:
        """Yield every request to every shard."""
        for index, shard in enumerate(state.shards):
            if shard.owner is None and shard.status == ShardStatus.ACTIVE:
                taken = leases.acquire(shard, 0, TENANT, WORKER, FAR)
                yield f"acquire {_shown(shard.spec)}", _with(state, index, taken), None
            first = ShardSpec(end=_key(self.bounds.keys)) if shard.shard == ROOT else shard.spec
            for request in dict.fromkeys(self._possible(shard.spec) + self._possible(first)):
                yield from self._ask(state, index, request)

    def broken(self, state: SplitState) -> str | None:
        """Return whether the shards are not exactly all keys."""
        live = sorted(shard.spec for shard in state.shards if shard.status != ShardStatus.SPLIT)
        edges = [live[0].start, live[-1].end] if live else []
        whole = edges == [b"", _key(self.bounds.keys)] and all(a.end == b.start for a, b in pairwise(live))
        return None if whole else "the shards are not exactly all keys"

    def show(self, state: SplitState) -> str:
        """Return the shards' ranges and cursors."""
        return ", ".join(
            f"{_shown(shard.spec)} {shard.status.name.lower()} at {shard.cursor.key.hex() or '-'}"
            for shard in state.shards
        )

    def _possible(self, spec: ShardSpec) -> list[SplitRequest]:
        if spec not in self._requests:
            self._requests[spec] = list(self._make_requests(spec))
        return self._requests[spec]

    def _make_requests(self, spec: ShardSpec) -> Iterator[SplitRequest]:
        low, high = spec.start[0] if spec.start else 0, spec.end[0]
        for key in range(max(1, low), high):
            yield SplitRequest(key, key)
        number = 100
        for plan in _plans(spec, low, high):
            number += 1
            yield SplitRequest(plan, number * 16 + high)
            yield SplitRequest(plan, SHARED_ID)

    def _ask(self, state: SplitState, index: int, request: SplitRequest) -> Iterator[Step[SplitState]]:
        shard = state.shards[index]
        key = (shard, request)
        if key not in self._answers:
            self._answers[key] = _decide(shard, request)
        answer = self._answers[key]
        name = f"{_shown(shard.spec)}: {request}"
        if isinstance(answer, str):
            yield name, state, answer
        elif answer is None:
            if _must_answer(state, shard, request):
                yield name, state, "a repeated split was refused"
        elif not answer.replayed:
            after = _with(state, index, answer.record, answer.spawned, request)
            if len(after.shards) <= self.bounds.shards_max:
                yield name, after, _broken_step(state, after, shard, request)


def _must_answer(state: SplitState, shard: ShardRecord, request: SplitRequest) -> bool:
    """Return whether a request was done before and is known: a residual split by its part, even if it is forgotten."""
    remembered = any(entry.op_id == request.op_id for entry in shard.ops)
    return (shard.shard, request) in state.done and (remembered or isinstance(request.content, ResidualPlan))


def _broken_step(before: SplitState, after: SplitState, shard: ShardRecord, request: SplitRequest) -> str | None:
    if isinstance(request.content, int):
        return None
    if any(key == shard.shard and done.op_id == request.op_id for key, done in before.done):
        return "a shard was split twice by one operation"
    if not _scanned(after) <= _scanned(before):
        return "a split made keys count as scanned"
    if isinstance(request.content, ResidualPlan) and _scanned(after) != _scanned(before):
        return "a residual split forgot what was scanned"
    if shard.cursor.key and shard.cursor.key[0] not in _scanned(after):
        return "a split forgot its cursor"
    ids = [found.shard for found in after.shards]
    return "two shards have one id" if len(set(ids)) != len(ids) else None


def _decide(shard: ShardRecord, request: SplitRequest) -> Decided | str | None:
    """Let production decide; None if it refuses, and a text if it breaks."""
    lease = Lease(TENANT, RUN, shard.shard, WORKER, shard.fence, FAR)
    content, op_id = request
    try:
        if isinstance(content, int):
            return leases.checkpoint(shard, lease, 0, Cursor(_key(content)), op_id)
        if isinstance(content, ResidualPlan):
            return splits.split_residual(shard, lease, 0, content, op_id)
        return splits.split_replace(shard, lease, 0, content, op_id)
    except (Conflict, InvalidInput):
        return None
    except RecordBroken as error:
        return str(error)


def _plans(spec: ShardSpec, low: int, high: int) -> Iterator[tuple[ShardSpec, ...] | ResidualPlan]:
    """Every split of a range, and some that leave a gap, overlap, or cut nothing off."""
    cuts = range(low + 1, high)
    for count in (0, 1, 2):
        for chosen in combinations(cuts, count):
            parts = _parts(spec, *chosen)
            yield parts
            if count == 1:
                yield ResidualPlan(*parts)
    for cut, other in pairwise(cuts):
        yield (ShardSpec(spec.start, _key(cut)), ShardSpec(_key(other), spec.end))
        yield ResidualPlan(ShardSpec(spec.start, _key(other)), ShardSpec(_key(cut), spec.end))


def _parts(spec: ShardSpec, *cuts: int) -> tuple[ShardSpec, ...]:
    edges = [spec.start, *map(_key, cuts), spec.end]
    return tuple(ShardSpec(start, end) for start, end in pairwise(edges))


def _with(
    state: SplitState,
    index: int,
    record: ShardRecord,
    spawned: tuple[ShardRecord, ...] = (),
    request: SplitRequest | None = None,
) -> SplitState:
    shards = (*state.shards[:index], record, *state.shards[index + 1 :], *spawned)
    done = state.done | {(record.shard, request)} if spawned and request else state.done
    return SplitState(tuple(sorted(shards, key=lambda shard: shard.shard)), done)


def _scanned(state: SplitState) -> set[int]:
    live = (shard for shard in state.shards if shard.status != ShardStatus.SPLIT and shard.cursor.key)
    return {
        key for shard in live for key in range(shard.spec.start[0] if shard.spec.start else 0, shard.cursor.key[0] + 1)
    }


def _key(number: int) -> bytes:
    return bytes([number])


def _shown(spec: ShardSpec) -> str:
    return f"[{spec.start[0] if spec.start else 0}, {spec.end[0]})"
