"""Splits: a shard is replaced by its parts, or splits off its rest and keeps the beginning.

    active, leased   split_replace    split    same fence   lease cleared   cursor kept; the parts are active
    active, leased   split_residual   active   same fence   lease kept      cursor kept; the end moves to the cut

Invariants: the parts are exactly the shard's range; what is scanned stays scanned (the part that holds the cursor
begins with it, the rest of a residual split begins with nothing); ids of parts follow from run, parent, operation and
index, so that a repeated split names the same shards.
"""

from typing import NamedTuple

from strandline.protocol import guards
from strandline.protocol.canonical import derive_64, to_signed, to_unsigned, u8, u32, u64
from strandline.protocol.leases import Decided, decide
from strandline.protocol.operations import payload_hash, replay, specs_payload
from strandline.protocol.shards import (
    Code,
    Cursor,
    Lease,
    OpKind,
    Outcome,
    ShardRecord,
    ShardSpec,
    ShardStatus,
    within,
)

_SPLIT_ID = "gossip/coord/v1/split-id"
_DERIVED = 1 << 63


class SplitKind(Code):
    """The kind of split that made a shard."""

    CHILD = 0
    RESIDUAL = 1


class ResidualPlan(NamedTuple):
    """A residual split: the range that the shard keeps, and the rest."""

    kept: ShardSpec
    rest: ShardSpec


def split_id(run: int, parent: int, op_id: int, kind: SplitKind, index: int) -> int:
    """Return the id of a part; its highest bit is set, so that it is negative as a signed number."""
    data = u64(to_unsigned(run)) + u64(to_unsigned(parent)) + u64(to_unsigned(op_id)) + u8(kind) + u32(index)
    return to_signed(derive_64(_SPLIT_ID, data) | _DERIVED)


def split_replace(record: ShardRecord, lease: Lease, now: int, parts: tuple[ShardSpec, ...], op_id: int) -> Decided:
    """Replace a shard by its parts."""
    hashed = payload_hash(OpKind.SPLIT_REPLACE, specs_payload(parts))
    if outcome := replay(record.ops, op_id, hashed):
        return Decided(record, outcome, replayed=True)
    guards.check_lease(record, lease, now)
    guards.check_children_count(record, parts)
    guards.check_spawned_room(record, len(parts))
    guards.check_parts(record, parts)
    first = len(record.spawned)
    ids = tuple(
        split_id(record.run, record.shard, op_id, SplitKind.CHILD, first + index) for index in range(len(parts))
    )
    split = record._replace(status=ShardStatus.SPLIT, spawned=record.spawned + ids, owner=None, deadline=None)
    children = tuple(_child(record, shard, spec) for shard, spec in zip(ids, parts, strict=True))
    return decide(split, op_id, hashed, Outcome(OpKind.SPLIT_REPLACE, now, ids), children)


def split_residual(record: ShardRecord, lease: Lease, now: int, plan: ResidualPlan, op_id: int) -> Decided:
    """Split off the rest of a shard, which keeps its beginning under the same lease."""
    hashed = payload_hash(OpKind.SPLIT_RESIDUAL, specs_payload(plan))
    if outcome := replay(record.ops, op_id, hashed):
        return Decided(record, outcome, replayed=True)
    if (known := find_residual(record, op_id)) is not None:
        return Decided(record, Outcome(OpKind.SPLIT_RESIDUAL, now, (known,)), replayed=True)
    guards.check_lease(record, lease, now)
    guards.check_spawned_room(record, 1)
    guards.check_parts(record, plan)
    guards.check_cursor_kept(record, plan.kept)
    shard = split_id(record.run, record.shard, op_id, SplitKind.RESIDUAL, len(record.spawned))
    shrunk = record._replace(spec=plan.kept, spawned=(*record.spawned, shard))
    outcome = Outcome(OpKind.SPLIT_RESIDUAL, now, (shard,))
    return decide(shrunk, op_id, hashed, outcome, (_child(record, shard, plan.rest),))


def find_residual(record: ShardRecord, op_id: int) -> int | None:
    """Return the shard that an operation split off, even if the operation is no longer remembered."""
    for index, shard in enumerate(record.spawned):
        if split_id(record.run, record.shard, op_id, SplitKind.RESIDUAL, index) == shard:
            return shard
    return None


def _child(parent: ShardRecord, shard: int, spec: ShardSpec) -> ShardRecord:
    # The token stays behind: it belongs to the listing of the whole range.
    key = parent.cursor.key
    cursor = Cursor(key) if key and within(spec, key) else Cursor()
    return ShardRecord(
        parent.tenant, parent.run, shard, spec, semantics=parent.semantics, cursor=cursor, parent=parent.shard
    )
