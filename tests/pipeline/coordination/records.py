"""Records of coordination: strategies for any that keep their invariants, and a few that are known byte for byte."""

from hypothesis import strategies as st

from strandline.protocol.runs import RunRecord, RunStatus
from strandline.protocol.shards import (
    Cursor,
    CursorSemantics,
    OpEntry,
    OpKind,
    Outcome,
    ParkReason,
    ShardRecord,
    ShardSpec,
    ShardStatus,
)

i64 = st.integers(-(2**63), 2**63 - 1)
derived = st.integers(-(2**63), -1)
outcomes = st.builds(Outcome, st.sampled_from(OpKind), i64, st.lists(derived, max_size=3).map(tuple))
entries = st.builds(OpEntry, i64, st.integers(1, 2**64 - 1), outcomes)
tenants = st.binary(min_size=32, max_size=32)


def ops(most: int) -> st.SearchStrategy[tuple[OpEntry, ...]]:
    return st.lists(entries, max_size=most, unique_by=lambda entry: entry.op_id).map(tuple)


@st.composite
def shards(draw: st.DrawFn) -> ShardRecord:
    """Draw a shard that keeps its invariants."""
    bounds = sorted(draw(st.sets(st.binary(min_size=1, max_size=5), min_size=3, max_size=3)))
    start, key, end = bounds
    status = draw(st.sampled_from(ShardStatus))
    parent = draw(st.none() | i64)
    key = key if status is ShardStatus.DONE or draw(st.booleans()) else b""
    record = ShardRecord(
        draw(tenants),
        draw(i64),
        draw(st.integers(0, 2**63 - 1) if parent is None else derived),
        ShardSpec(start, draw(st.sampled_from([end, b""])), draw(st.binary(max_size=9))),
        status,
        draw(st.sampled_from(CursorSemantics)),
        Cursor(key, draw(st.binary(max_size=9)) if key else b""),
        draw(st.integers(1, 2**63 - 1)),
        park_reason=draw(st.sampled_from(ParkReason)) if status is ShardStatus.PARKED else None,
        parent=parent,
        ops=draw(ops(16)),
    )
    spawned = draw(st.lists(derived.filter(lambda shard: shard != record.shard), min_size=2, max_size=9, unique=True))
    record = record._replace(spawned=tuple(spawned))
    if status is ShardStatus.ACTIVE and draw(st.booleans()):
        record = record._replace(owner=draw(i64), deadline=draw(i64))
    return record


@st.composite
def runs(draw: st.DrawFn) -> RunRecord:
    """Draw a run that keeps its invariants."""
    status = draw(st.sampled_from(RunStatus))
    over = status in {RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED}
    return RunRecord(
        draw(tenants),
        draw(i64),
        status,
        draw(st.sampled_from(CursorSemantics)),
        draw(i64),
        draw(i64) if over else None,
        draw(st.none() | entries) if status is RunStatus.INITIALIZING else None,
        draw(ops(8)),
    )


TENANT = bytes(range(32))
KNOWN_SHARDS = {
    "new": ShardRecord(TENANT, 7, 1, ShardSpec(b"a", b"m", b"\0\0\0\x01\0")),
    "leased": ShardRecord(
        TENANT,
        -7,
        2,
        ShardSpec(b"m"),
        semantics=CursorSemantics.DISPATCHED,
        cursor=Cursor(b"q", b"token"),
        fence=3,
        owner=-5,
        deadline=1_700_000_000_000_000_000,
        spawned=(-9, -(2**63)),
        ops=(
            OpEntry(-1, 2**64 - 1, Outcome(OpKind.CHECKPOINT, 5)),
            OpEntry(2, 1, Outcome(OpKind.SPLIT_RESIDUAL, 6, (-9,))),
        ),
    ),
    "parked": ShardRecord(
        TENANT, 7, -9, ShardSpec(), ShardStatus.PARKED, fence=1, park_reason=ParkReason.PERMISSION_DENIED, parent=2
    ),
    "done": ShardRecord(TENANT, 7, 4, ShardSpec(), ShardStatus.DONE, cursor=Cursor(b"\0"), fence=2),
    "split": ShardRecord(TENANT, 7, 5, ShardSpec(b"a", b"c"), ShardStatus.SPLIT, fence=1, spawned=(-1, -2)),
}
KNOWN_RUNS = {
    "initializing": RunRecord(
        TENANT,
        7,
        RunStatus.INITIALIZING,
        CursorSemantics.COMPLETED,
        100,
        pending=OpEntry(3, 4, Outcome(OpKind.REGISTER_SHARDS, 101)),
        ops=(OpEntry(1, 2, Outcome(OpKind.CREATE_RUN, 100)),),
    ),
    "cancelled": RunRecord(TENANT, -7, RunStatus.CANCELLED, CursorSemantics.DISPATCHED, 100, completed_at=105),
}
