"""Records of shards: the invariants each, and nothing secret in what is shown."""

from collections.abc import Callable

import pytest

from strandline.protocol.errors import RecordBroken
from strandline.protocol.shards import (
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    SPAWNED_PER_SHARD_MAX,
    TOKEN_BYTES_MAX,
    Cursor,
    OpEntry,
    OpKind,
    Outcome,
    ParkReason,
    ShardRecord,
    ShardSpec,
    ShardStatus,
    check_invariants,
    within,
)

WHOLE = ShardRecord(b"t" * 32, 1, 2, ShardSpec(b"b", b"y"))
OP = OpEntry(1, 7, Outcome(OpKind.CHECKPOINT, 5))

BROKEN: dict[str, ShardRecord] = {
    "its tenant has 31 bytes": WHOLE._replace(tenant=b"t" * 31),
    "an id does not fit 64 bits": WHOLE._replace(run=2**63),
    "its range is empty": WHOLE._replace(spec=ShardSpec(b"b", b"b")),
    "its bounds may have 4,096 bytes": WHOLE._replace(spec=ShardSpec(b"b", b"y" * (KEY_BYTES_MAX + 1))),
    "its metadata may have 16,384 bytes": WHOLE._replace(spec=ShardSpec(metadata=b"m" * (METADATA_BYTES_MAX + 1))),
    "a token without a key": WHOLE._replace(cursor=Cursor(b"", b"t")),
    "its cursor is out of bounds": WHOLE._replace(cursor=Cursor(b"y")),
    "its cursor is too large": WHOLE._replace(cursor=Cursor(b"c", b"t" * (TOKEN_BYTES_MAX + 1))),
    "its fence is negative": WHOLE._replace(fence=-1),
    "an owner without a deadline": WHOLE._replace(fence=1, owner=3),
    "it is done and leased": WHOLE._replace(status=ShardStatus.DONE, cursor=Cursor(b"c"), fence=1, owner=3, deadline=5),
    "it is leased under fence 0": WHOLE._replace(owner=3, deadline=5),
    "parked without a reason": WHOLE._replace(status=ShardStatus.PARKED),
    "or the other way round": WHOLE._replace(park_reason=ParkReason.OTHER),
    "it is done and has no cursor": WHOLE._replace(status=ShardStatus.DONE),
    "it is split into fewer than two": WHOLE._replace(status=ShardStatus.SPLIT, spawned=(-1,)),
    "it spawned 1,025 shards": WHOLE._replace(spawned=tuple(range(-SPAWNED_PER_SHARD_MAX - 1, 0))),
    "it spawned a shard twice": WHOLE._replace(spawned=(-1, -1)),
    "or itself": WHOLE._replace(shard=-4, parent=2, spawned=(-4, -5)),
    "derived ids are negative": WHOLE._replace(spawned=(4,)),
    "derived ids are negative, and no others": WHOLE._replace(shard=-4),
    "it remembers 17 operations": WHOLE._replace(ops=tuple(OP._replace(op_id=number) for number in range(17))),
    "it remembers an operation twice": WHOLE._replace(ops=(OP, OP)),
    "an operation has hash 0": WHOLE._replace(ops=(OP._replace(payload_hash=0),)),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_record_that_breaks_an_invariant_is_refused(problem: str) -> None:
    with pytest.raises(RecordBroken) as caught:
        check_invariants(BROKEN[problem])
    assert problem in str(caught.value)


WHOLE_ONES: dict[str, Callable[[], ShardRecord]] = {
    "new": lambda: WHOLE,
    "unbounded": lambda: WHOLE._replace(spec=ShardSpec()),
    "leased": lambda: WHOLE._replace(fence=1, owner=-3, deadline=5),
    "expired and kept": lambda: WHOLE._replace(fence=4, cursor=Cursor(b"b", b"token"), owner=0, deadline=0),
    "parked": lambda: WHOLE._replace(status=ShardStatus.PARKED, park_reason=ParkReason.PERMISSION_DENIED),
    "split": lambda: WHOLE._replace(status=ShardStatus.SPLIT, spawned=(-1, -2)),
    "a part": lambda: WHOLE._replace(shard=-1, parent=2),
    "done": lambda: WHOLE._replace(status=ShardStatus.DONE, cursor=Cursor(b"x\xff")),
}


@pytest.mark.parametrize("name", WHOLE_ONES)
def test_whole_records_pass_and_can_be_put_in_sets(name: str) -> None:
    record = WHOLE_ONES[name]()
    assert check_invariants(record) is record
    assert {record, record._replace()} == {record}


def test_what_is_shown_of_a_record_holds_no_key_cursor_token_or_metadata() -> None:
    spec = ShardSpec(b"SECRET-a", b"SECRET-b", b"SECRET")
    record = WHOLE._replace(spec=spec, cursor=Cursor(b"SECRET-a", b"SECRET"), ops=(OP,))
    assert "SECRET" not in repr(record)
    assert str(OP.payload_hash) not in repr(OP)


def test_a_range_without_bounds_holds_every_key() -> None:
    assert within(ShardSpec(), b"\x00")
    assert within(ShardSpec(b"b"), b"\xff" * 9)
    assert not within(ShardSpec(b"b"), b"a")
    assert within(ShardSpec(b"", b"b"), b"")
    assert not within(ShardSpec(b"", b"b"), b"b")
