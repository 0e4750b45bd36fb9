"""`strandline pipeline`: stores are made, shown, brought up to date and checked; errors say what to do."""

import json
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from strandline.clock import SystemClock
from strandline.pipeline import HeldShard, Policy, TriageEvent, TriageState, claim, commit_page
from strandline.pipeline.stores import open_stores
from strandline.protocol import InitialShard, RunKey, ShardSpec
from tests.cli.runs import Ran, run_command
from tests.pipeline.rows import POLICY, TENANT, page_of

RUN = RunKey(TENANT, 7)


def run(*arguments: str | Path) -> Ran:
    return run_command("pipeline", *arguments)


def told(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    ran = run(*arguments, "--json")
    assert ran.code == code, ran.err
    record = json.loads(ran.out)
    assert isinstance(record, dict)
    return record


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database in which one shard of two was scanned: three items, two of them with findings."""
    path = tmp_path / "pipeline.db"
    with open_stores(str(path), migrate=True) as stores:
        stores.coordinator.create_run(1, RUN, 1)
        shards = [InitialShard(1, ShardSpec(b"a", b"m")), InitialShard(2, ShardSpec(b"m", b"z"))]
        stores.coordinator.register_shards(1, RUN, shards, 2)
        held = claim(stores.coordinator, RUN, 0, SystemClock())
        assert isinstance(held, HeldShard)
        page = page_of([1, 2, 3], [2, 3], held.context(POLICY), held.spec.start + b"x")
        commit_page(page, stores.findings, stores.ledger, held)
        held.complete()
        stores.policies.register_policy(TENANT, Policy({"a": 1, "b": 2}, None, None, "1").record)
        stores.triage.record_triage(
            [TriageEvent(TENANT, page.findings.findings[0].finding_id, TriageState.CONFIRMED, 5, "ada", "real")]
        )
    return path


def change(path: Path, *statements: str) -> None:
    """Change a database behind everybody's back."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA foreign_keys=OFF; PRAGMA ignore_check_constraints=ON")
    for statement in statements:
        connection.execute(statement)
    connection.close()


class TestInit:
    """Making the stores."""

    def test_makes_them_once(self, tmp_path: Path) -> None:
        path = tmp_path / "new.db"
        assert "created, schema version" in run("init", path).out
        before = path.read_bytes()
        ran = run("init", path)
        assert (ran.code, ran.err) == (0, "")
        assert "exists already" in ran.out
        assert path.read_bytes() == before

    def test_tells_programs(self, tmp_path: Path) -> None:
        path = tmp_path / "new.db"
        first, second = told("init", path), told("init", path)
        assert (first["created"], second["created"]) == (True, False)
        assert first["address"] == str(path)
        assert first["pending"] == []

    def test_leaves_another_programs_database_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        change(path, "CREATE TABLE theirs (x)")
        before = path.read_bytes()
        ran = run("init", path)
        assert ran.code == 1
        assert "another program" in ran.err
        assert "hint:" in ran.err
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        "address",
        [
            "mysql://root:hunter2@host/db",
            "host=127.0.0.1 password=hunter2 dbname=x",
            "postgresql:/bob:hunter2@host/db",
            "Postgres:bob:hunter2@host",
            "postgresql://bob:a/hunter2@host/db",
            "postgresql://bob:hunter2",
            "sqlite:",
        ],
    )
    def test_refuses_an_address_it_does_not_know_without_showing_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        ran = run("init", address)
        assert ran.code == 1
        assert "hint: " in ran.err
        assert "hunter2" not in ran.out + ran.err
        assert list(tmp_path.iterdir()) == []


class TestStatus:
    """Looking at the stores."""

    def test_shows_rows_policies_and_runs(self, database: Path) -> None:
        record = told("status", database)
        rows = record["rows"]
        assert isinstance(rows, dict)
        assert (rows["ledger_entries"], rows["findings"], rows["observations"], rows["shards"]) == (3, 2, 2, 2)
        by_policy = {policy["policy"]: policy for policy in record["policies"]}
        policy = by_policy.pop(POLICY.hex())
        (registered,) = by_policy.values()
        assert list(registered) == list(policy)
        assert registered["scanned_clean"] == 0
        assert (policy["scanned_clean"], policy["scanned_with_findings"], policy["findings"]) == (1, 2, 2)
        (seen,) = record["runs"]
        assert (seen["status"], seen["active"], seen["done"]) == ("active", 1, 1)

    def test_is_readable(self, database: Path) -> None:
        ran = run("status", database)
        assert ran.code == 0
        for word in ("policies", "runs", "scanned_clean", "0000000000000007"):
            assert word in ran.out

    def test_shows_one_tenant_alone(self, database: Path) -> None:
        assert told("status", database, "--tenant", TENANT.hex())["runs"]
        assert told("status", database, "--tenant", "00" * 32)["runs"] == []
        assert "rows" not in told("status", database, "--tenant", TENANT.hex())
        ran = run("status", database, "--tenant", "zz")
        assert ran.code == 2
        assert "64 hexadecimal digits" in ran.err

    def test_of_nothing_says_how_to_begin(self, tmp_path: Path) -> None:
        ran = run("status", tmp_path / "none.db")
        assert ran.code == 1
        assert "strandline pipeline init" in ran.err
        assert not (tmp_path / "none.db").exists()


class TestMigrate:
    """Bringing the tables up to date."""

    def test_of_a_current_database_changes_nothing(self, database: Path) -> None:
        assert "up to date" in run("migrate", database).out
        assert told("migrate", database)["applied"] == []

    def test_applies_what_is_pending_and_a_dry_run_does_not(self, tmp_path: Path, database: Path) -> None:
        old = tmp_path / "old.db"
        shutil.copy(database, old)
        forget = "DELETE FROM schema_migrations WHERE version >= 2"
        change(old, forget, "DROP TABLE runs", "DROP TABLE shards", "DROP INDEX observations_by_object")
        ran = run("verify", old)
        assert ran.code == 1
        assert "strandline pipeline migrate" in ran.err
        assert "would apply 0002 coordination" in run("migrate", old, "--dry-run").out
        assert run("status", old).code == 1
        assert told("migrate", old)["applied"] == ["0002 coordination", "0003 observations_by_object"]
        assert run("verify", old).code == 0

    def test_of_nothing_says_how_to_begin(self, tmp_path: Path) -> None:
        ran = run("migrate", tmp_path / "none.db")
        assert ran.code == 1
        assert "strandline pipeline init" in ran.err


class TestVerify:
    """Checking everything."""

    def test_of_a_whole_database_says_so(self, database: Path) -> None:
        ran = run("verify", database)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.endswith("whole\n")
        record = told("verify", database)
        assert (record["whole"], record["problems"]) == (True, [])

    @pytest.mark.parametrize(
        ("statement", "table", "problem"),
        [
            ("UPDATE ledger_entries SET status = 4, error_code = 'x'", "ledger", "status"),
            ("UPDATE ledger_entries SET members_skipped = 1 WHERE status = 10", "ledger", "gaps"),
            ("UPDATE ledger_entries SET findings_count = 9 WHERE status = 11", "ledger", "more findings"),
            ("DELETE FROM observations", "ledger", "more findings"),
            ("DELETE FROM findings", "occurrences", "do not exist"),
            ("DELETE FROM occurrences", "observations", "do not exist"),
            ("UPDATE findings SET item = zeroblob(32) WHERE rowid = 1", "findings", "its content"),
            ("UPDATE occurrences SET byte_offset = 5", "occurrences", "its content"),
            ("UPDATE observations SET policy = zeroblob(32)", "observations", "its content"),
            ("UPDATE observations SET seen_at = 0", "observations", "time"),
            ("UPDATE triage_events SET state = 2", "triage_events", "its content"),
            ("UPDATE triage_events SET who = 'eve'", "triage_events", "its content"),
            ("UPDATE policies SET frame_digest = zeroblob(32)", "policies", "its rules"),
            ("DELETE FROM policy_rules WHERE name = 'a'", "policies", "its rules"),
            ("UPDATE shards SET fence = 7", "shards", "columns"),
            ("UPDATE shards SET record = zeroblob(9)", "shards", "record"),
            ("UPDATE runs SET status = 2", "runs", "columns"),
            ("DELETE FROM runs", "shards", "do not exist"),
        ],
    )
    def test_finds_what_is_broken(self, database: Path, statement: str, table: str, problem: str) -> None:
        change(database, statement.replace(" WHERE rowid = 1", ""))
        record = told("verify", database, code=3)
        assert record["whole"] is False
        problems = record["problems"]
        assert isinstance(problems, list)
        assert any(one["table"] == table and problem in one["problem"] for one in problems), problems
        ran = run("verify", database)
        assert ran.code == 3
        assert "damaged:" in ran.out
        assert "hint:" in ran.err
