"""The SQLite store: the same as memory whatever is done, and shared by processes that all claim at once."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strandline.errors import Damaged, StrandlineError
from strandline.pipeline.coordination import Coordinator, MemoryRecords, SqliteRecords
from strandline.pipeline.sql import SqliteDatabase
from strandline.protocol.runs import InitialShard, Progress
from strandline.protocol.shards import Cursor, Lease, ParkReason, RunKey, ShardKey
from strandline.protocol.splits import ResidualPlan
from strandline.testing.coordination_helpers import CUT, LEASE_TTL_NS, NOW, RUN, WHOLE, begin, take
from tests.effort import examples
from tests.pipeline.coordination.backends import sqlite_records
from tests.waiting import PATIENCE_S

SHARDS = 3
keys = st.sampled_from([b"b", b"d", b"h", b"l", b"m", b"n", b"q", b"y"])
ops = st.integers(0, 12)


class TwinMachine(RuleBasedStateMachine):
    """Do the same to memory and to SQLite: the same answers, the same refusals, the same records."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.database = SqliteDatabase(Path(self.folder.name) / "pipeline.db")
        self.database.migrate()
        self.stores = (MemoryRecords(), SqliteRecords(self.database))
        self.both = [Coordinator(store, lease_ttl_ns=100, pause=lambda _: None) for store in self.stores]
        self.now = 1_000
        self.leases = [Lease(*RUN, 1, 0, 1, 0)]
        for coordinator in self.both:
            coordinator.create_run(self.now, RUN, 100)
            shards = [InitialShard(number, WHOLE) for number in range(1, SHARDS + 1)]
            coordinator.register_shards(self.now, RUN, shards, 101)

    def same(self, call: Callable[[Coordinator], object]) -> object:
        answers: list[object] = []
        for coordinator in self.both:
            try:
                answers.append(call(coordinator))
            except StrandlineError as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]
        return answers[0]

    def lease(self, number: int) -> Lease:
        return self.leases[number % len(self.leases)]

    @rule(elapsed=st.sampled_from([1, 50, 99, 100]))
    def wait(self, elapsed: int) -> None:
        self.now += elapsed

    @rule(number=st.integers(0, 20), worker=st.integers(0, 3))
    def acquire(self, number: int, worker: int) -> None:
        known = [shard.key for shard in self.both[0].list_shards(RUN)]
        key = known[number % len(known)]
        taken = self.same(lambda it: it.acquire_and_restore(self.now, key, worker).lease)
        if isinstance(taken, Lease):
            self.leases.append(taken)

    @rule(number=st.integers(0, 20))
    def renew(self, number: int) -> None:
        self.same(lambda it: it.renew(self.now, self.lease(number)))

    @rule(number=st.integers(0, 20), key=keys, op=ops)
    def checkpoint(self, number: int, key: bytes, op: int) -> None:
        self.same(lambda it: it.checkpoint(self.now, self.lease(number), Cursor(key), op))

    @rule(number=st.integers(0, 20), key=keys, op=ops)
    def complete(self, number: int, key: bytes, op: int) -> None:
        self.same(lambda it: it.complete(self.now, self.lease(number), Cursor(key), op))

    @rule(number=st.integers(0, 20), reason=st.sampled_from(ParkReason), op=ops)
    def park(self, number: int, reason: ParkReason, op: int) -> None:
        self.same(lambda it: it.park_shard(self.now, self.lease(number), reason, op))

    @rule(number=st.integers(0, 20), cut=keys, op=ops, residual=st.booleans())
    def split(self, number: int, cut: bytes, op: int, residual: bool) -> None:
        lease = self.lease(number)
        spec = self.both[0].get_shard(lease.key).spec
        plan = ResidualPlan(spec._replace(end=cut), spec._replace(start=cut))
        if residual:
            self.same(lambda it: it.split_residual(self.now, lease, plan, op))
        else:
            self.same(lambda it: it.split_replace(self.now, lease, plan, op))

    @rule(number=st.integers(0, 20), op=st.integers(200, 205))
    def unpark(self, number: int, op: int) -> None:
        self.same(lambda it: it.unpark_shard(self.now, self.lease(number).key, op))

    @rule(op=st.integers(206, 208))
    def complete_run(self, op: int) -> None:
        self.same(lambda it: it.complete_run(self.now, RUN, op))

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "both"):
            return
        self.same(lambda it: (it.list_shards(RUN), it.get_run(RUN), it.progress(RUN)))
        first, second = (store.claimable(RUN, self.now, 100) for store in self.stores)
        assert set(first.shards) == set(second.shards)
        assert first.earliest_deadline == second.earliest_deadline

    def teardown(self) -> None:
        if hasattr(self, "both"):
            self.database.close()
            self.folder.cleanup()


TestTwins = TwinMachine.TestCase
TestTwins.settings = examples(25, stateful_step_count=30)


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    with sqlite_records(tmp_path) as records:
        coordinator = Coordinator(records, lease_ttl_ns=LEASE_TTL_NS)
        (key,) = begin(coordinator, WHOLE)
        lease = take(coordinator, key)
        coordinator.checkpoint(NOW, lease, Cursor(b"c", b"token"), 10)
        coordinator.split_residual(NOW, lease, CUT, 11)
        before = (coordinator.get_run(RUN), coordinator.list_shards(RUN), coordinator.progress(RUN))
    with sqlite_records(tmp_path) as records:
        coordinator = Coordinator(records, lease_ttl_ns=LEASE_TTL_NS)
        assert (coordinator.get_run(RUN), coordinator.list_shards(RUN), coordinator.progress(RUN)) == before
        coordinator.checkpoint(NOW, lease, Cursor(b"d"), 12)


def test_columns_repeat_what_the_record_says(tmp_path: Path) -> None:
    with sqlite_records(tmp_path) as records:
        coordinator = Coordinator(records, lease_ttl_ns=LEASE_TTL_NS)
        first, second = begin(coordinator, WHOLE, WHOLE)
        lease = take(coordinator, first)
        coordinator.park_shard(NOW, take(coordinator, second), ParkReason.OTHER, 10)
        coordinator.renew(NOW + 5, lease)
    with apsw.Connection(str(tmp_path / "pipeline.db")) as connection:
        shards = connection.execute("SELECT shard_id, status, fence, deadline, version FROM shards").fetchall()
        assert shards == [(1, 0, 1, NOW + 5 + LEASE_TTL_NS, 3), (2, 3, 1, None, 3)]
        assert connection.execute("SELECT run_id, status, version FROM runs").fetchall() == [(7, 1, 2)]
    connection.close()


def test_claims_come_from_the_index(tmp_path: Path) -> None:
    with sqlite_records(tmp_path) as records:
        begin(Coordinator(records, lease_ttl_ns=LEASE_TTL_NS), WHOLE)
        sql = records._sql["claimable"]  # noqa: SLF001 - the plan of this statement is what is tested
    connection = apsw.Connection(str(tmp_path / "pipeline.db"))
    plan = " ".join(row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql, (*RUN, 5)))
    connection.close()
    assert "COVERING INDEX shards_to_claim (tenant=? AND run_id=? AND status=?)" in plan
    assert "TEMP B-TREE" not in plan


def test_a_record_that_is_damaged_is_told_and_left_alone(tmp_path: Path) -> None:
    with sqlite_records(tmp_path) as records:
        coordinator = Coordinator(records, lease_ttl_ns=LEASE_TTL_NS)
        (key,) = begin(coordinator, WHOLE)
        connection = apsw.Connection(str(tmp_path / "pipeline.db"))
        connection.execute("UPDATE shards SET record = substr(record, 1, 40)")
        connection.close()
        with pytest.raises(Damaged):
            take(coordinator, key)


CHILD = """
import json, sys
from strandline.pipeline.coordination import Coordinator, NoneAvailable, SqliteRecords, Throttled
from strandline.pipeline.sql import SqliteDatabase
from strandline.protocol.shards import Cursor, RunKey

path, worker = sys.argv[1], int(sys.argv[2])
run = RunKey(bytes.fromhex(sys.argv[3]), int(sys.argv[4]))
sys.stdin.readline()
now, done = 1_000, []
with SqliteDatabase(path) as database:
    coordinator = Coordinator(SqliteRecords(database))
    while not isinstance(taken := coordinator.claim_next_available(now, run, worker), NoneAvailable):
        if isinstance(taken, Throttled):
            now += taken.retry_after_ns
            continue
        coordinator.checkpoint(now, taken.lease, Cursor(b"c"), 1)
        coordinator.complete(now, taken.lease, Cursor(b"d"), 2)
        done.append((taken.lease.shard, taken.lease.fence))
print(json.dumps(done))
"""


def test_processes_that_claim_at_once_share_the_shards(tmp_path: Path) -> None:
    shards = 60
    with sqlite_records(tmp_path) as records:
        begin(Coordinator(records), *[WHOLE] * shards)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "pipeline.db")]
    children = [
        subprocess.Popen(
            [*command, str(worker), RUN.tenant.hex(), str(RUN.run)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for worker in range(2)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=PATIENCE_S)[0] for child in children]
    done = [tuple(row) for output in outputs for row in json.loads(output)]
    assert sorted(done) == [(shard, 1) for shard in range(1, shards + 1)]
    with sqlite_records(tmp_path) as records:
        assert Coordinator(records).progress(RUN) == Progress(done=shards)


def test_pages_reach_the_smallest_and_the_largest_id(tmp_path: Path) -> None:
    with sqlite_records(tmp_path) as records:
        coordinator = Coordinator(records)
        for number in (-(2**63), 2**63 - 1):
            coordinator.create_run(NOW, RunKey(RUN.tenant, number), 1)
        assert [run.run for run in coordinator.list_runs(RUN.tenant)] == [-(2**63), 2**63 - 1]
        assert [run.run for run in coordinator.list_runs(RUN.tenant, -(2**63))] == [2**63 - 1]
        assert coordinator.list_runs(RUN.tenant, 2**63 - 1) == []
        assert records.load_shards([ShardKey(*RUN, 1)]) == [None]
