"""Scanner state: batches, limits, and tenants that do not see one another."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from strandline.errors import InvalidInput, RecordTooLarge, Unavailable
from strandline.pipeline.errors import BatchTooLarge
from strandline.pipeline.identity import PolicyHash, TenantId
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.sql import PostgresDatabase, SqliteDatabase, SqlState
from strandline.pipeline.state import (
    GATHERED_BYTES_MAX,
    GATHERED_MAX,
    STATE_VALUE_BYTES_MAX,
    Delete,
    GatheredPuts,
    MemoryState,
    Put,
    ScannerState,
    format_fence_key,
    last_operations,
    parse_fence_key,
)
from tests.effort import examples

TENANT = TenantId(b"t" * 32)
KEYS = [b"a", b"b", b"a\0", b"\xff" * 2048]
operations = st.one_of(
    st.builds(Put, st.sampled_from(KEYS), st.binary(max_size=3)), st.builds(Delete, st.sampled_from(KEYS))
)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScannerState]:
    if request.param == "memory":
        yield MemoryState()
        return
    if request.param == "sqlite":
        database: SqliteDatabase | PostgresDatabase = SqliteDatabase(tmp_path / "pipeline.db")
    else:
        server, schema = request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_schema")
        database = PostgresDatabase(server.dsn, schema=schema)
    with database:
        database.migrate()
        yield SqlState(database)


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.booleans(), st.lists(operations, max_size=6)), max_size=5))
def test_batches_do_what_their_operations_do_one_after_another(
    state: ScannerState, batches: list[tuple[bool, list[Put | Delete]]]
) -> None:
    tenants = {side: TenantId(os.urandom(32)) for side in (False, True)}
    expected: dict[bool, dict[bytes, bytes]] = {False: {}, True: {}}
    for side, batch in batches:
        state.apply_batch(tenants[side], batch)
        for operation in batch:
            if isinstance(operation, Put):
                expected[side][operation.key] = operation.value
            else:
                expected[side].pop(operation.key, None)
    wanted = [*KEYS, b"never", KEYS[0]]
    for side, tenant in tenants.items():
        assert state.multi_get(tenant, wanted) == [expected[side].get(key) for key in wanted]


def test_what_is_over_a_limit_is_refused_and_nothing_is_done(state: ScannerState) -> None:
    small = Put(b"k", b"v")
    with pytest.raises(RecordTooLarge, match="value of 16,777,217 bytes"):
        state.apply_batch(TENANT, [small, Put(b"large", bytes(STATE_VALUE_BYTES_MAX + 1))])
    for key in (b"", b"x" * 2049):
        with pytest.raises(InvalidInput, match="not within 1 and 2,048"):
            state.apply_batch(TENANT, [small, Put(key, b"v")])
        with pytest.raises(InvalidInput):
            state.multi_get(TENANT, [key])
    with pytest.raises(BatchTooLarge, match="10,001 keys"):
        state.apply_batch(TENANT, [Put(b"%d" % number, b"") for number in range(10_001)])
    with pytest.raises(BatchTooLarge):
        state.multi_get(TENANT, [b"k"] * 10_001)
    with pytest.raises(InvalidInput, match="tenant"):
        state.multi_get(TenantId(b"short"), [b"k"])
    assert state.multi_get(TENANT, [b"k"]) == [None]


def test_the_largest_value_and_the_largest_batch_fit(state: ScannerState) -> None:
    state.apply_batch(TENANT, [Put(b"large", bytes(STATE_VALUE_BYTES_MAX))])
    assert state.multi_get(TENANT, [b"large"]) == [bytes(STATE_VALUE_BYTES_MAX)]
    keys = [b"%d" % number for number in range(10_000)]
    state.apply_batch(TENANT, [Put(key, key) for key in keys])
    assert state.multi_get(TENANT, keys[::-1]) == keys[::-1]


def test_nothing_asked_and_nothing_done_is_fine(state: ScannerState) -> None:
    state.apply_batch(TENANT, [])
    assert state.multi_get(TENANT, []) == []


def test_only_the_last_operation_on_a_key_counts_and_none_shows_bytes() -> None:
    batch: list[Put | Delete] = [
        Put(b"a", b"1"),
        Delete(b"a"),
        Put(b"b", b"1"),
        Put(b"b", b"2"),
        Put(b"c", b"hidden"),
        Delete(b"c"),
    ]
    assert last_operations(TENANT, batch, None) == ([Put(b"b", b"2")], [b"a", b"c"])
    assert "hidden" not in repr(batch)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_keys_of_fences_come_back_as_they_went(run: int, shard: int) -> None:
    writer = WriteContext(TENANT, PolicyHash(bytes(32)), run, shard, 1)
    assert parse_fence_key(format_fence_key(writer)) == (run, shard)
    assert parse_fence_key(b"a scanner's") is None


def test_a_scanner_cannot_use_the_key_of_a_fence() -> None:
    key = format_fence_key(WriteContext(TENANT, PolicyHash(bytes(32)), 1, 2, 3))
    for operation in (Put(key, b""), Delete(key)):
        with pytest.raises(InvalidInput, match="the store's own"):
            MemoryState().apply_batch(TENANT, [operation])


class FailingState(MemoryState):
    """A store that refuses its next batch, and counts the others."""

    fails = False
    batches = 0

    def apply_batch(
        self, tenant: TenantId, operations: Sequence[Put | Delete], *, writer: WriteContext | None = None
    ) -> None:
        if self.fails:
            self.fails = False
            raise Unavailable("the store does not answer")
        self.batches += 1
        super().apply_batch(tenant, operations, writer=writer)


def test_gathered_writes_are_durable_after_a_flush_also_if_one_before_failed() -> None:
    state = FailingState()
    puts = GatheredPuts(state, TENANT)
    puts.add(Put(b"a", b"1"))
    assert state.multi_get(TENANT, [b"a"]) == [None]
    state.fails = True
    with pytest.raises(Unavailable):
        puts.flush()
    puts.add(Put(b"b", b"2"))
    puts.flush()
    assert state.multi_get(TENANT, [b"a", b"b"]) == [b"1", b"2"]


@pytest.mark.parametrize(("size", "count"), [(1, GATHERED_MAX), (GATHERED_BYTES_MAX // 2, 2), (GATHERED_BYTES_MAX, 1)])
def test_gathered_writes_make_a_batch_once_they_are_many_or_large(size: int, count: int) -> None:
    state = FailingState()
    puts = GatheredPuts(state, TENANT)
    for number in range(count):
        assert state.batches == 0
        puts.add(Put(b"%d" % number, bytes(size)))
    assert state.batches == 1
