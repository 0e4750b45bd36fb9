"""Scanner state as a log of objects: batches are whole, in one order, and found again after any crash."""

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Damaged
from strandline.objects import MemoryObjects, ObjectInfo, ObjectStore, WriteUnknown
from strandline.pipeline.identity import TenantId
from strandline.pipeline.lake import LakeState
from strandline.pipeline.lake.layout import (
    PageName,
    format_log,
    format_log_prefix,
    format_page,
    format_policy,
    format_snapshot,
    format_snapshots_prefix,
    format_value,
    format_values_prefix,
    parse_number,
    parse_page,
    parse_policy,
    parse_tenant,
    parse_value,
)
from strandline.pipeline.lake.state_log import (
    CLOCK,
    INLINE_BYTES_MAX,
    SNAPSHOT_EVERY,
    STALE_S,
    Batch,
    Operation,
    StateLog,
    Value,
    format_batch,
    parse_batch,
)
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import Delete, Put
from strandline.protocol.errors import StaleFence
from strandline.testing.persistence_helpers import POLICY, TENANT
from tests.pipeline.lake.faulty import Killed, Mortal, losing_answers

LARGE = b"v" * (INLINE_BYTES_MAX + 1)


def fill(store: ObjectStore) -> None:
    state = LakeState(store)
    state.apply_batch(TENANT, [Put(b"a", b"1"), Put(b"b", LARGE)])
    state.apply_batch(TENANT, [Delete(b"a"), Put(b"b", b"2"), Put(b"c", LARGE)])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_writer_that_dies_at_any_request_leaves_whole_batches(*, after: bool) -> None:
    counted = Mortal(MemoryObjects(), None)
    fill(counted)
    seen = set()
    for number in range(1, counted.writes + 1):
        store = MemoryObjects()
        with pytest.raises(Killed):
            fill(Mortal(store, number, after=after))
        values = tuple(LakeState(store).multi_get(TENANT, [b"a", b"b", b"c"]))
        assert values in {(None, None, None), (b"1", LARGE, None), (None, b"2", LARGE)}
        seen.add(values)
        fill(store)
        assert LakeState(store).multi_get(TENANT, [b"a", b"b", b"c"]) == [None, b"2", LARGE]
    assert len(seen) >= 2


def test_a_batch_whose_answer_was_lost_is_found_and_not_added_again() -> None:
    for number in range(1, 5):
        store = losing_answers(number)
        fill(store)
        assert LakeState(store).multi_get(TENANT, [b"a", b"b", b"c"]) == [None, b"2", LARGE]
        assert len(list(store.list(format_log_prefix(TENANT)))) == 2


def test_a_batch_that_never_landed_is_written_again_under_the_same_number() -> None:
    store = MemoryObjects()
    store.faults.fail("put", WriteUnknown("an object", "no answer"))
    LakeState(store).apply_batch(TENANT, [Put(b"a", b"1")])
    assert [parse_number(info.key) for info in store.list(format_log_prefix(TENANT))] == [0]


class Overtaken(Mortal):
    """Lets another process write a batch before the first batch of this one."""

    def _written(self, write: Callable[[], str | None]) -> str:
        if not self.writes:
            LakeState(self._store).apply_batch(TENANT, [Put(b"first", b"theirs"), Put(b"theirs", b"1")])
        return super()._written(write)


def test_a_batch_that_was_overtaken_is_decided_again_and_overwrites_no_other() -> None:
    store = MemoryObjects()
    LakeState(Overtaken(store, None)).apply_batch(TENANT, [Put(b"mine", b"2")])
    assert LakeState(store).multi_get(TENANT, [b"mine", b"theirs"]) == [b"2", b"1"]
    fresh = MemoryObjects()
    assert LakeState(Overtaken(fresh, None)).put_first(TENANT, b"first", b"mine") == b"theirs"


def test_a_reader_that_was_away_for_long_begins_at_the_last_snapshot() -> None:
    store, now_s = MemoryObjects(), [0.0]
    reader = StateLog(store, TENANT, lambda: now_s[0])
    writer = LakeState(store)
    writer.apply_batch(TENANT, [Put(b"a", b"old")])
    assert reader.read(lambda log: log.get(b"a")) == Value(b"old", is_id=False)
    for number in range(SNAPSHOT_EVERY + 1):
        writer.apply_batch(TENANT, [Put(b"a", b"%d" % number)])
    for number in range(SNAPSHOT_EVERY - 1):  # retention, which waits for twice as long as a reader may be away
        store.delete(format_log(TENANT, number))
    now_s[0] = STALE_S + 1
    assert reader.read(lambda log: log.get(b"a")) == Value(b"%d" % SNAPSHOT_EVERY, is_id=False)
    assert getattr(time, "CLOCK_BOOTTIME", CLOCK) == CLOCK  # time that a machine slept counts


def test_a_reader_that_begins_at_a_snapshot_sees_what_the_whole_log_says() -> None:
    store = MemoryObjects()
    state = LakeState(store)
    for number in range(SNAPSHOT_EVERY + 3):
        state.apply_batch(TENANT, [Put(b"%d" % (number % 50), b"%d" % number), Delete(b"%d" % (number % 7))])
    (snapshot,) = store.list(format_snapshots_prefix(TENANT))
    assert parse_number(snapshot.key) == SNAPSHOT_EVERY - 1
    everything = state.list_range(TENANT, b"\x00", b"\xff", 1_000)
    for number in range(SNAPSHOT_EVERY - 1):  # what the snapshot has is no longer needed
        store.delete(format_log(TENANT, number))
    assert LakeState(store).list_range(TENANT, b"\x00", b"\xff", 1_000) == everything


def test_a_writer_that_slept_until_its_number_was_used_and_deleted_loses_no_batch() -> None:
    store = MemoryObjects()
    sleeper, others = LakeState(store), LakeState(store)
    sleeper.apply_batch(TENANT, [Put(b"first", b"1")])
    for number in range(2 * SNAPSHOT_EVERY):
        others.apply_batch(TENANT, [Put(b"theirs", b"%d" % number)])
    for number in range(SNAPSHOT_EVERY):  # as a compaction does, once they are old
        store.delete(format_log(TENANT, number))
    sleeper.apply_batch(TENANT, [Put(b"mine", b"2")])
    for state in (sleeper, others, LakeState(store)):
        assert state.multi_get(TENANT, [b"first", b"theirs", b"mine"]) == [b"1", b"%d" % (2 * SNAPSHOT_EVERY - 1), b"2"]
    assert min(parse_number(info.key) for info in store.list(format_log_prefix(TENANT))) == SNAPSHOT_EVERY


def test_a_listing_that_lacks_a_batch_before_another_is_no_damage() -> None:
    store = MemoryObjects()
    fill(store)

    class Lagging(Mortal):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            found = super().list(prefix, start_after=start_after)
            return (info for info in found if info.key != format_log(TENANT, 0))

    assert LakeState(Lagging(store, None)).multi_get(TENANT, [b"a", b"b", b"c"]) == [None, b"2", LARGE]


def test_a_batch_or_a_value_that_is_gone_is_damage() -> None:
    store = MemoryObjects()
    fill(store)
    for key in [info.key for info in store.list(format_values_prefix(TENANT))]:
        store.delete(key)
    with pytest.raises(Damaged, match="is gone"):
        LakeState(store).multi_get(TENANT, [b"c"])
    store.delete(format_log(TENANT, 0))
    with pytest.raises(Damaged, match="batch 0"):
        LakeState(store).multi_get(TENANT, [b"b"])
    store.put(format_log(TENANT, 0), b"SLB1")
    with pytest.raises(Damaged, match="ends too early"):
        LakeState(store).multi_get(TENANT, [b"b"])


def test_a_writer_is_fenced_by_what_was_written_even_where_no_shard_is_known() -> None:
    store = MemoryObjects()
    writer = WriteContext(TENANT, POLICY, 1, 2, 5)
    LakeState(store).apply_batch(TENANT, [Put(b"a", b"5")], writer=writer._replace(fence=6))
    with pytest.raises(StaleFence):
        LakeState(store).apply_batch(TENANT, [Put(b"a", b"4")], writer=writer)
    assert LakeState(store).multi_get(TENANT, [b"a"]) == [b"5"]


@given(
    st.lists(st.builds(Operation, st.integers(0, 2), st.binary(min_size=1, max_size=9), st.binary(max_size=9))),
    st.integers(0, 40),
)
def test_a_batch_comes_back_and_no_part_of_it_passes_for_one(operations: list[Operation], cut: int) -> None:
    batch = Batch(b"i" * 16, tuple(operations))
    data = format_batch(batch)
    assert parse_batch(data, "x") == batch
    if cut < len(data):
        with pytest.raises(Damaged):
            parse_batch(data[:cut], "x")
    with pytest.raises(Damaged):
        parse_batch(data + b"\0", "x")


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1), st.binary())
def test_names_of_pages_come_back(run: int, shard: int, fence: int, seed: bytes) -> None:
    digest = (seed + bytes(16))[:16]
    name = PageName.of("ledger", WriteContext(TENANT, POLICY, run, shard, fence), digest)
    assert parse_page(format_page(name)) == name
    assert parse_page(format_page(name) + "x") is None
    other = TenantId(bytes(32))
    assert parse_value(format_value(other, digest)) == digest
    assert parse_number(format_snapshot(other, fence)) == fence
    assert (parse_policy(format_policy(other, POLICY)), parse_tenant(format_policy(other, POLICY))) == (POLICY, other)
