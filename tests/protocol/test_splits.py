"""Splits: ids that follow from the operation, limits, and parts that are the whole, whatever is cut."""

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol import leases, splits
from strandline.protocol.errors import SplitInvalid
from strandline.protocol.keyspace import cut_spec
from strandline.protocol.shards import Cursor, Lease, ShardRecord, ShardSpec, ShardStatus, within
from strandline.protocol.splits import ResidualPlan, SplitKind, split_id

TENANT = b"t" * 32
keys = st.binary(min_size=1, max_size=3)


def leased(spec: ShardSpec, cursor: bytes = b"") -> tuple[ShardRecord, Lease]:
    shard = ShardRecord(TENANT, -5, 2, spec, cursor=Cursor(cursor))
    record = leases.acquire(shard, 100, TENANT, 5, 10)
    return record, leases.lease_of(record)


def test_the_id_of_a_part_follows_from_run_parent_operation_kind_and_index() -> None:
    numbers = b"".join(number.to_bytes(8, "little", signed=True) for number in (-5, 2, 9))
    digest = blake3(numbers + b"\x01\x07\0\0\0", derive_key_context="gossip/coord/v1/split-id").digest()
    wanted = int.from_bytes(digest[:8], "little") | 1 << 63
    assert split_id(-5, 2, 9, SplitKind.RESIDUAL, 7) == wanted - 2**64


def test_indexes_go_on_from_what_a_shard_spawned_before() -> None:
    record, lease = leased(ShardSpec(b"b", b"y"))
    first = splits.split_residual(record, lease, 101, ResidualPlan(*cut_spec(record.spec, [b"m"])), 8)
    second = splits.split_replace(first.record, lease, 101, cut_spec(first.record.spec, [b"c"]), 9)
    assert second.outcome.spawned == tuple(split_id(-5, 2, 9, SplitKind.CHILD, index) for index in (1, 2))
    assert second.record.spawned == (split_id(-5, 2, 8, SplitKind.RESIDUAL, 0), *second.outcome.spawned)


def test_a_forgotten_residual_split_is_found_by_what_it_spawned() -> None:
    record, lease = leased(ShardSpec(b"b", b"y"))
    plan = ResidualPlan(*cut_spec(record.spec, [b"m"]))
    split = splits.split_residual(record, lease, 101, plan, 8)
    forgetful = split.record._replace(ops=(), owner=None, deadline=None)
    again = splits.split_residual(forgetful, lease, 9_000, plan, 8)
    assert (again.record, again.outcome.spawned, again.replayed) == (forgetful, split.outcome.spawned, True)


def test_a_shard_spawns_at_most_1024_others() -> None:
    record, lease = leased(ShardSpec(b"b", b"y"))
    parts = cut_spec(record.spec, [b"m"])
    nearly = record._replace(spawned=tuple(range(-1_023, 0)))
    with pytest.raises(SplitInvalid, match="1,024"):
        splits.split_replace(nearly, lease, 101, parts, 9)
    full = splits.split_residual(nearly, lease, 101, ResidualPlan(*parts), 9).record
    with pytest.raises(SplitInvalid, match="1,024"):
        splits.split_residual(full, lease, 101, ResidualPlan(*cut_spec(full.spec, [b"c"])), 10)


def test_256_parts_are_the_most() -> None:
    record, lease = leased(ShardSpec())
    cuts = [b"%03d" % number for number in range(256)]
    decided = splits.split_replace(record, lease, 101, cut_spec(record.spec, cuts[:255]), 9)
    assert len(decided.spawned) == 256
    with pytest.raises(SplitInvalid):
        splits.split_replace(record, lease, 101, cut_spec(record.spec, cuts), 9)


@given(st.sets(keys, min_size=1, max_size=6), keys, st.booleans(), keys)
def test_each_key_belongs_to_one_part_and_what_is_scanned_stays_so(
    cuts: set[bytes], cursor: bytes, scanned: bool, key: bytes
) -> None:
    record, lease = leased(ShardSpec(), cursor if scanned else b"")
    parts = cut_spec(record.spec, sorted(cuts))
    decided = splits.split_replace(record, lease, 101, parts, 9)
    assert decided.record.status is ShardStatus.SPLIT
    (home,) = [child for child in decided.spawned if within(child.spec, key)]
    assert home.cursor == Cursor(cursor if scanned and within(home.spec, cursor) else b"")


@given(keys, keys, keys)
def test_a_rest_is_given_away_only_if_the_cursor_stays(cut: bytes, cursor: bytes, key: bytes) -> None:
    record, lease = leased(ShardSpec(), cursor)
    plan = ResidualPlan(*cut_spec(record.spec, [cut]))
    if cursor >= cut:
        with pytest.raises(SplitInvalid):
            splits.split_residual(record, lease, 101, plan, 9)
        return
    decided = splits.split_residual(record, lease, 101, plan, 9)
    (rest,) = decided.spawned
    assert within(decided.record.spec, key) != within(rest.spec, key)
    assert (decided.record.cursor, rest.cursor) == (Cursor(cursor), Cursor())
    assert (decided.record.fence, decided.record.owner) == (lease.fence, lease.worker)
