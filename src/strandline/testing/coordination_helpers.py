"""Shared code of the checks of coordination: begin a run, take a shard, try every operation."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

from strandline.pipeline.coordination import RunCoordinator, RunReader, ShardCoordinator
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import Cursor, CursorSemantics, Lease, Outcome, ParkReason, RunKey, ShardKey, ShardSpec
from strandline.protocol.splits import ResidualPlan

LEASE_TTL_NS = 30_000_000_000
"""The lease duration of a coordinator under check."""
NOW = 1_000_000_000_000
EXPIRED = NOW + LEASE_TTL_NS
TENANT, OTHER = b"\x01" * 32, b"\x02" * 32
RUN = RunKey(TENANT, 7)
WHOLE = ShardSpec(b"b", b"y")
HALVES = (ShardSpec(b"b", b"m"), ShardSpec(b"m", b"y"))
CUT = ResidualPlan(*HALVES)


class CheckedCoordinator(ShardCoordinator, RunCoordinator, RunReader, Protocol):
    """The coordinator under check: the interfaces of workers, orchestrators and observers."""


CoordinationCheck = Callable[[CheckedCoordinator], None]
"""Takes a coordinator without runs, whose leases last `LEASE_TTL_NS`."""

Operation = Callable[[CheckedCoordinator, int, Lease, int], Outcome]
"""An operation on a shard under a lease: coordinator, now, lease, operation id."""

OPERATIONS: dict[str, Operation] = {
    "checkpoint": lambda it, now, lease, op: it.checkpoint(now, lease, Cursor(b"c"), op),
    "complete": lambda it, now, lease, op: it.complete(now, lease, Cursor(b"c"), op),
    "park_shard": lambda it, now, lease, op: it.park_shard(now, lease, ParkReason.NOT_FOUND, op),
    "split_replace": lambda it, now, lease, op: it.split_replace(now, lease, HALVES, op),
    "split_residual": lambda it, now, lease, op: it.split_residual(now, lease, CUT, op),
}
"""Every operation that is remembered, with content that fits a shard `WHOLE`."""

OTHER_CONTENT: dict[str, Operation] = {
    "checkpoint": lambda it, now, lease, op: it.checkpoint(now, lease, Cursor(b"c", b"token"), op),
    "complete": lambda it, now, lease, op: it.complete(now, lease, Cursor(b"d"), op),
    "park_shard": lambda it, now, lease, op: it.park_shard(now, lease, ParkReason.OTHER, op),
    "split_replace": lambda it, now, lease, op: it.split_replace(now, lease, parts(b"b", b"k", b"y"), op),
    "split_residual": lambda it, now, lease, op: it.split_residual(
        now, lease, ResidualPlan(*parts(b"b", b"k", b"y")), op
    ),
}
"""The same operations with other content."""


def parts(*bounds: bytes) -> tuple[ShardSpec, ...]:
    """Return the ranges between bounds."""
    return tuple(ShardSpec(start, end) for start, end in pairwise(bounds))


def begin(
    coordinator: CheckedCoordinator,
    *specs: ShardSpec,
    run: RunKey = RUN,
    semantics: CursorSemantics = CursorSemantics.COMPLETED,
) -> list[ShardKey]:
    """Begin a run with shards 1, 2, 3 … of these ranges, and return their keys."""
    shards = [InitialShard(number, spec) for number, spec in enumerate(specs, start=1)]
    coordinator.create_run(NOW, run, 1, semantics)
    coordinator.register_shards(NOW, run, shards, 2)
    return [ShardKey(*run, shard.shard) for shard in shards]


def take(coordinator: CheckedCoordinator, key: ShardKey, now: int = NOW, worker: int = 1) -> Lease:
    """Take a shard and return the lease."""
    return coordinator.acquire_and_restore(now, key, worker).lease


def fresh_shards(coordinator: CheckedCoordinator, count: int = len(OPERATIONS)) -> Iterator[ShardKey]:
    """Begin a run with so many shards `WHOLE`; an operation that ends one leaves the others."""
    return iter(begin(coordinator, *[WHOLE] * count))


def every_operation(coordinator: CheckedCoordinator) -> Iterator[tuple[str, Operation, ShardKey]]:
    """Yield each operation with a shard of its own."""
    for (name, operation), key in zip(OPERATIONS.items(), fresh_shards(coordinator), strict=True):
        yield name, operation, key
