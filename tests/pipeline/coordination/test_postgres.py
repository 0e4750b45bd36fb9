"""Coordination over a real PostgreSQL: rivals, locks, lost answers and a server that is lost."""

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
import pytest

from strandline.errors import CommitFailed, UnknownOutcome
from strandline.pipeline.coordination import Coordinator
from strandline.pipeline.coordination.codec import format_run, format_shard
from strandline.pipeline.coordination.postgres import PostgresRecords
from strandline.pipeline.coordination.record_store import Plan, Result, ShardChange
from strandline.pipeline.sql import PostgresDatabase
from strandline.pipeline.sql.database import AnyConnection
from strandline.protocol.errors import Contended, RunNotFound
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import Progress
from strandline.protocol.shards import Cursor, RunKey, ShardKey
from tests.pipeline.coordination.rivals import (
    OTHER_TENANT,
    RUN,
    TENANT,
    TTL_NS,
    acquire_one,
    begin_run,
    claim_twice_over,
    processes_meet,
    refuse_stale_plans,
    survive_outage,
)
from tests.pipeline.coordination.twins import Twins, many_runs
from tests.servers_postgres import PostgresServer, running_postgres

SHARD = ShardKey(*RUN, 0)
T = TypeVar("T")


class LossyDatabase(PostgresDatabase):
    """A database that can lose the answer of a commit."""

    lose_answers = 0

    def write(self, work: Callable[[AnyConnection], T]) -> T:
        result = super().write(work)
        if self.lose_answers:
            self.lose_answers -= 1
            raise CommitFailed(self.describe(), "the answer was lost")
        return result


@pytest.fixture
def database(postgres_server: PostgresServer, postgres_schema: str) -> Iterator[LossyDatabase]:
    with LossyDatabase(postgres_server.dsn, schema=postgres_schema) as database:
        database.migrate()
        yield database


@pytest.fixture
def store(database: LossyDatabase) -> PostgresRecords:
    return PostgresRecords(database)


def test_the_columns_repeat_the_record(store: PostgresRecords, database: LossyDatabase) -> None:
    coordinator = begin_run(store, 1)
    coordinator.acquire_and_restore(10, SHARD, worker=1)
    shard, run = coordinator.get_shard(SHARD), coordinator.get_run(RUN)
    rows = database.read(lambda connection: connection.execute("TABLE shards").fetchall())
    assert rows == [(*SHARD, shard.status, shard.fence, shard.deadline, 2, format_shard(shard))]
    rows = database.read(lambda connection: connection.execute("TABLE runs").fetchall())
    assert rows == [(*RUN, run.status, 2, format_run(run))]


def test_a_plan_is_written_only_over_the_versions_it_was_decided_on(store: PostgresRecords) -> None:
    refuse_stale_plans(store)


def test_a_run_that_ends_during_a_claim_stops_the_claim(
    store: PostgresRecords, postgres_server: PostgresServer, postgres_schema: str
) -> None:
    coordinator = begin_run(store, 1)
    run, (shard,) = store.load_run(RUN), store.load_shards([SHARD])
    assert run is not None
    assert shard is not None
    claim = Plan(5, (ShardChange(shard, shard.record._replace(fence=1, owner=1, deadline=9)),), unchanged_run=run)
    results: list[Result] = []
    claimer = threading.Thread(target=lambda: results.append(store.commit(claim)))
    with psycopg.connect(postgres_server.dsn, options=f"-c search_path={postgres_schema}") as ending:
        ending.execute("UPDATE runs SET version = version + 1")
        claimer.start()
        claimer.join(0.2)
        assert claimer.is_alive()  # it waits to learn what becomes of the run
    claimer.join()
    assert results == [Result.CHANGED]
    assert coordinator.get_shard(SHARD) == shard.record


def test_a_shard_that_somebody_is_changing_is_passed_over(
    store: PostgresRecords, postgres_server: PostgresServer, postgres_schema: str
) -> None:
    begin_run(store, 2)
    coordinator = Coordinator(store, lease_ttl_ns=TTL_NS, pause=lambda _: None)
    with psycopg.connect(postgres_server.dsn, options=f"-c search_path={postgres_schema}") as busy:
        busy.execute("SELECT FROM shards WHERE shard_id = 0 FOR SHARE")
        claimed = coordinator.claim_next_available(10, RUN, worker=0)
        assert isinstance(claimed, Acquired)
        assert claimed.lease.shard == 1
        with pytest.raises(Contended):
            coordinator.acquire_and_restore(10, SHARD, worker=0)
    assert coordinator.acquire_and_restore(10, SHARD, worker=0).lease.fence == 1


def test_a_lost_answer_is_an_unknown_outcome_and_the_operation_can_be_repeated(
    store: PostgresRecords, database: LossyDatabase
) -> None:
    coordinator = begin_run(store, 1)
    lease = coordinator.acquire_and_restore(10, SHARD, worker=1).lease
    database.lose_answers = 1
    with pytest.raises(UnknownOutcome):
        coordinator.checkpoint(20, lease, Cursor(b"a"), op_id=9)
    assert coordinator.checkpoint(25, lease, Cursor(b"a"), op_id=9).at == 20
    assert len(coordinator.get_shard(SHARD).ops) == 1


def test_shards_are_claimed_from_the_index(store: PostgresRecords, database: LossyDatabase) -> None:
    begin_run(store, 10_000)
    database.write(lambda connection: connection.execute("ANALYZE shards"))
    explain = "EXPLAIN " + store._sql["claimable"]  # noqa: SLF001 - the statement is what is tested
    plan = database.read(lambda connection: connection.execute(explain, (*RUN, 64)).fetchall())
    text = "\n".join(line for (line,) in plan)
    assert "shards_to_claim" in text
    assert "Sort" not in text


def test_tenants_do_not_see_each_other(store: PostgresRecords) -> None:
    coordinator = begin_run(store, 3)
    other = RunKey(OTHER_TENANT, RUN.run)
    assert store.list_shards(other, None, 10) == []
    with pytest.raises(RunNotFound):
        coordinator.progress(other)
    begin_run(store, 1, other)
    assert coordinator.progress(RUN) == Progress(active=3)
    assert coordinator.progress(other) == Progress(active=1)
    assert [run.tenant for run in coordinator.list_runs(TENANT)] == [TENANT]


def test_runs_are_listed_by_signed_id(store: PostgresRecords) -> None:
    many_runs(store)


def test_threads_that_claim_at_once_get_different_shards_under_growing_fences(store: PostgresRecords) -> None:
    claim_twice_over(store, workers=6, shards=24)


def test_of_threads_that_take_one_shard_at_once_one_wins(store: PostgresRecords) -> None:
    acquire_one(store, workers=8)


def test_processes_take_a_shard_in_turns_under_growing_fences(
    store: PostgresRecords, postgres_server: PostgresServer, postgres_schema: str
) -> None:
    processes_meet(store, "postgres", postgres_server.dsn, postgres_schema)


def test_a_server_that_is_killed_and_comes_back_loses_nothing_that_was_answered() -> None:
    with running_postgres() as server, PostgresDatabase(server.dsn) as database:
        database.migrate()

        def outage() -> None:
            server.kill()
            server.start()

        survive_outage(PostgresRecords(database), outage)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_random_operations_end_as_they_do_in_memory(seed: int, store: PostgresRecords) -> None:
    Twins(store, seed).run(steps=120)
