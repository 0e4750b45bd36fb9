"""`strandline replica`: as its users run it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from strandline.cli import replica_run
from strandline.cli.command_log import CommandLog
from strandline.cli.ending_signals import ending_signals
from strandline.errors import StrandlineError, Unavailable
from strandline.objects import MemoryObjects, StoreRefused, open_objects
from strandline.replica import Followed, Follower, Layout, LtxDamaged, Maintenance, Position, Replicator
from tests.cli.runs import Ran, run_command
from tests.replica.databases import content, database, fill
from tests.scraped import page
from tests.waiting import PATIENCE_S, eventually

LOCKS = Path("/proc/locks")
STRANDLINE = (str(Path(sys.executable).parent / "strandline"),)


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[str]:
    """The address of a replica of `a.db`, of some transactions."""
    address = f"file://{tmp_path}/replica"
    store = open_objects(address)
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", store) as running:
            for number in range(4):
                fill(connection, 2, seed=number)
                running.wait_durable(PATIENCE_S)
    yield address
    store.close()


def shown(ran: Ran) -> dict[str, object]:
    """Return the one record that a command printed."""
    assert ran.code == 0, ran.err
    return dict(json.loads(ran.out))


def test_a_replica_is_restored_and_verified(tmp_path: Path, replica: str) -> None:
    record = shown(run_command("replica", "restore", replica, tmp_path / "out.db", "--verify", "--json"))
    assert record["txid"] == shown(run_command("replica", "status", replica, "--json"))["txid"]
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.db"]
    assert content(tmp_path / "out.db") == content(tmp_path / "a.db")


def test_a_local_replica_has_one_address_however_it_is_written(tmp_path: Path, replica: str) -> None:
    wanted = shown(run_command("replica", "status", replica, "--json"))
    for address in (f"{replica}/", f"file://localhost{tmp_path}/replica"):
        assert shown(run_command("replica", "status", address, "--json")) == wanted
    ran = run_command("replica", "status", f"file://localhost{tmp_path}/nothing")
    assert ran.code == 1
    assert "no such folder" in ran.err
    assert not (tmp_path / "nothing").exists()


def test_a_dry_run_lists_files_and_writes_nothing(tmp_path: Path, replica: str) -> None:
    ran = run_command("replica", "restore", replica, tmp_path / "out.db", "--txid", "2", "--dry-run", "--json")
    assert [json.loads(line)["file"][-20:] for line in ran.out.splitlines()] == [
        "0000000000000001.ltx",
        "0000000000000002.ltx",
    ]
    assert not (tmp_path / "out.db").exists()


def test_explain_estimates_a_replica_and_a_database(tmp_path: Path, replica: str) -> None:
    ran = run_command("replica", "explain", replica, "--commits-per-hour", "1000", "--price-gb", "0", "--json")
    usage, *lines = [json.loads(line) for line in ran.out.splitlines()]
    assert usage["commits_per_hour"] == 1000
    assert lines[0]["writes_per_hour"] == 1000
    assert lines[-1]["monthly_dollars"] == pytest.approx(sum(line["monthly_dollars"] for line in lines[:-1]), abs=0.05)
    ran = run_command("replica", "explain", tmp_path / "a.db", "--sample", "0.1", "--no-maintain", "--json")
    assert [json.loads(line).get("what") for line in ran.out.splitlines()] == [None, "transactions", "total"]
    assert "not a SQLite database" in run_command("replica", "explain", __file__, "--sample", "0.1").err


def test_a_replica_is_encrypted_under_a_new_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, keys = f"file://{tmp_path}/encrypted", tmp_path / "keys"
    keys.write_text(f"old = {'A' * 43}=\n")
    keys.chmod(0o600)
    assert "there are no keys" in run_command("replica", "rotate-key", address).err
    monkeypatch.setenv("STRANDLINE_ENCRYPTION_KEYS", str(keys))
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", open_objects(address)) as running:
            running.wait_durable(PATIENCE_S)
    keys.write_text(f"new = {'B' * 43}=\nold = {'A' * 43}=\n")
    assert shown(run_command("replica", "rotate-key", address, "--json"))["encrypted"] == 2
    assert shown(run_command("replica", "rotate-key", address, "--json"))["encrypted"] == 0
    keys.write_text(f"new = {'B' * 43}=\n")
    assert shown(run_command("replica", "restore", address, tmp_path / "out.db", "--json"))["txid"] == 1
    keys.write_text(f"newer = {'B' * 43}=\n")
    ran = run_command("replica", "restore", address, tmp_path / "no.db")
    assert "under the key 'new', which is not in" in ran.err
    assert ran.code != 0


def test_what_cannot_be_restored_is_said_with_a_hint(tmp_path: Path, replica: str) -> None:
    for arguments, problem in (
        ((replica, tmp_path / "a.db"), "there is a file already"),
        ((replica, tmp_path / "o.db", "--timestamp", "yesterday"), "'yesterday' is no time"),
        ((replica, tmp_path / "o.db", "--timestamp", "2001-01-01"), "does not reach back"),
        ((replica, tmp_path / "o.db", "--txid", "2", "--timestamp", "2001-01-01"), "exclude each other"),
        ((f"file://{tmp_path}/nothing", tmp_path / "o.db"), "there is no such folder"),
        (("ftp://host/x", tmp_path / "o.db"), "ftp"),
    ):
        ran = run_command("replica", "restore", *arguments)
        assert (ran.code, problem in ran.err) == (1, True), ran.err
    assert not (tmp_path / "o.db").exists()
    assert not (tmp_path / "nothing").exists()


def test_a_time_is_restored(tmp_path: Path, replica: str) -> None:
    last = shown(run_command("replica", "restore", replica, tmp_path / "1.db", "--json"))
    again = run_command("replica", "restore", replica, tmp_path / "2.db", "--timestamp", last["timestamp"], "--json")  # type: ignore[arg-type]
    assert shown(again)["txid"] == last["txid"]


def test_files_are_merged_and_pruned(tmp_path: Path, replica: str) -> None:
    before = int(str(shown(run_command("replica", "status", replica, "--json"))["files"]))
    assert shown(run_command("replica", "compact", replica, "--json"))["level"] == 1
    assert shown(run_command("replica", "compact", replica, "--level", "9", "--json"))["level"] == 9
    assert len(run_command("replica", "snapshots", replica, "--json").out.splitlines()) == 3
    young = run_command("replica", "prune", replica, "--hours", "0", "--dry-run", "--json").out.splitlines()
    assert json.loads(young[-1])["files"] == 1, "the merged one: leaders rely on single transactions"
    for file in (tmp_path / "replica" / "ltx" / "0").iterdir():
        os.utime(file, (time.time() - 600,) * 2)
    planned = run_command("replica", "prune", replica, "--hours", "0", "--dry-run", "--json").out.splitlines()
    assert len(planned) == before + 1, "the files, the merged one and a line of totals, but not the last transaction"
    assert shown(run_command("replica", "prune", replica, "--hours", "0", "--json"))["files"] == before
    assert shown(run_command("replica", "status", replica, "--json"))["files"] == 2
    shown(run_command("replica", "restore", replica, tmp_path / "out.db", "--json"))
    assert content(tmp_path / "out.db") == content(tmp_path / "a.db")


def test_damage_is_found_and_has_an_exit_code(tmp_path: Path, replica: str) -> None:
    assert shown(run_command("replica", "verify", replica, "--json"))["damaged"] == 0
    file = sorted((tmp_path / "replica" / "ltx" / "0").iterdir())[2]
    body = bytearray(file.read_bytes())
    body[150] ^= 1
    file.write_bytes(body)
    ran = run_command("replica", "verify", replica, "--json")
    damaged, total = map(json.loads, ran.out.splitlines())
    assert (ran.code, total["damaged"], file.name in damaged["file"]) == (3, 1, True)
    assert run_command("replica", "restore", replica, tmp_path / "out.db").code == 3
    file.unlink()
    assert run_command("replica", "verify", replica).code == 3
    assert "missing" in str(run_command("replica", "status", replica).out)


def test_an_empty_replica_is_shown_as_such(tmp_path: Path) -> None:
    (tmp_path / "replica").mkdir()
    assert shown(run_command("replica", "status", f"file://{tmp_path}/replica", "--json"))["state"] == "empty"


def test_a_database_is_replicated_until_sigterm(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/replica"
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        running = subprocess.Popen(
            [*STRANDLINE, "replica", "run", str(tmp_path / "a.db"), address, "--metrics-port", "0"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        metrics = running.stderr.readline().removeprefix("metrics at ").strip()
        assert "at transaction 1" in running.stderr.readline()
        fill(connection, 5, seed=1)
        shipped = f"strandline_replica_transactions_total{{database={tmp_path / 'a.db'}}}"
        eventually(lambda: page(metrics)[shipped] > 1, "a second transaction")
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 0
        assert "shipped to transaction" in running.stderr.read()
        running.stderr.close()
        assert run_command("replica", "restore", address, tmp_path / "out.db").code == 0
        assert content(tmp_path / "out.db") == content(tmp_path / "a.db")


def test_a_copy_is_followed(tmp_path: Path, replica: str) -> None:
    once = run_command("replica", "follow", replica, tmp_path / "copy.db", "--once", "--json")
    assert shown(once)["txid"] == shown(run_command("replica", "status", replica, "--json"))["txid"]
    assert content(tmp_path / "copy.db") == content(tmp_path / "a.db")
    running = subprocess.Popen(
        [*STRANDLINE, "replica", "follow", replica, str(tmp_path / "copy.db"), "--metrics-port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    metrics = running.stderr.readline().removeprefix("metrics at ").strip()
    assert "at transaction" in running.stdout.readline()
    assert page(metrics)[f"strandline_replica_follower_txid{{database={tmp_path / 'copy.db'}}}"] == shown(once)["txid"]
    running.stderr.close()
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 0
    running.stdout.close()


def test_a_follower_goes_on_after_a_refusal_and_does_not_start_with_one(
    tmp_path: Path, replica: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, damaged = StoreRefused(replica, "the token has expired"), LtxDamaged("0/1", "it is cut off")
    monkeypatch.setattr("strandline.cli.replica_follow.REFUSED_PAUSE_S", 0.0)
    followed: list[Followed | StrandlineError] = [Followed(Position(1, 2), 0, 0), refused, refused, damaged]
    for answers in (followed[1:2], followed):
        asked = iter(answers)

        def catch_up(_: Follower, asked: Iterator[Followed | StrandlineError] = asked) -> Followed:
            answer = next(asked)
            if isinstance(answer, StrandlineError):
                raise answer
            return answer

        monkeypatch.setattr(Follower, "catch_up", catch_up)
        ran = run_command("replica", "follow", replica, tmp_path / "copy.db", "--interval", "0.01")
        assert ran.code != 0
        assert ran.err.count("the token has expired; trying again") == max(0, len(answers) - 2)
        assert str(answers[-1]) in ran.err


def test_a_follower_ends_while_a_reader_holds_its_copy(tmp_path: Path, replica: str) -> None:
    copy = tmp_path / "copy.db"
    assert run_command("replica", "follow", replica, copy, "--once").code == 0
    reader = apsw.Connection(str(copy))
    reader.execute("BEGIN")
    before = list(reader.execute("SELECT count(*) FROM t"))
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3, seed=5)
        assert run_command("replica", "run", tmp_path / "a.db", replica, "--exec", "true").code == 0
    running = subprocess.Popen([*STRANDLINE, "replica", "follow", replica, str(copy)])
    locks = f"{copy.stat().st_ino}"
    eventually(lambda: any(locks in line and "WRITE" in line for line in LOCKS.read_text().splitlines()), "its lock")
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 0
    assert list(reader.execute("SELECT count(*) FROM t")) == before
    reader.close()


def test_a_command_is_run_and_its_exit_code_kept(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/replica"
    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)
    code = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute('PRAGMA busy_timeout = 60000');"
        "c.execute('INSERT INTO t (body) VALUES (1)'); sys.exit(7)"
    )
    (tmp_path / "app.py").write_text(code)
    command = f"{sys.executable} {tmp_path}/app.py {tmp_path}/a.db"
    ran = subprocess.run(
        [*STRANDLINE, "replica", "run", str(tmp_path / "a.db"), address, "--exec", command], check=False
    )
    assert ran.returncode == 7
    assert run_command("replica", "restore", address, tmp_path / "out.db").code == 0
    assert content(tmp_path / "out.db") == content(tmp_path / "a.db")


def test_a_replicator_that_is_fenced_ends_its_command(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/replica"
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        running = subprocess.Popen(
            [*STRANDLINE, "replica", "run", str(tmp_path / "a.db"), address, "--exec", "sleep 1000"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        assert "at transaction 1" in running.stderr.readline()
        store = open_objects(address)
        store.put(Layout(store).key(0, 2, 2), b"x" * 200)
        store.close()
        fill(connection, 1, seed=1)
        assert running.wait(PATIENCE_S) != 0
        running.stderr.close()


@pytest.mark.parametrize(("name", "problem"), [("none.db", "there is no such file"), ("text.db", "not a SQLite")])
def test_what_is_no_database_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "text.db").write_text("this is not a database " * 100)
    ran = subprocess.run(
        [*STRANDLINE, "replica", "run", str(tmp_path / name), f"file://{tmp_path}/replica"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, problem in ran.stderr, "Traceback" in ran.stderr) == (1, True, False)


def test_a_signal_ends_a_replicator_whose_store_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Away(MemoryObjects):
        def put(self, key: str, *arguments: object, **options: object) -> str:
            if key.endswith(".ltx"):
                raise Unavailable("the store is away")
            return super().put(key, *arguments, **options)  # type: ignore[arg-type]

    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)
        with ending_signals() as ending:
            replicator = Replicator(tmp_path / "a.db", Away()).start()
            try:
                signal.raise_signal(signal.SIGTERM)
                told = replica_run._Told(CommandLog("replica"), as_json=False)  # noqa: SLF001
                assert replica_run._begun(replicator, ending, told) is None  # noqa: SLF001
            finally:
                replicator.close(flush=False)
    assert "Traceback" not in capsys.readouterr().err


def test_a_problem_of_maintenance_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Told(replica_run._Told):  # noqa: SLF001
        def say(self, line: str, *, level: str = "info", **fields: object) -> None:
            super().say(line, level=level, **fields)
            (tmp_path / "said").touch()

    told = Told(CommandLog("replica"), as_json=False)
    store = MemoryObjects()
    maintenance = Maintenance(store)
    maintenance.error = LtxDamaged("0001/x.ltx", "it is cut off")
    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", store) as replicator, ending_signals() as ending:
            command = f"sh -c 'until [ -e {tmp_path}/said ]; do sleep 0.05; done'"
            code = replica_run._until_ended(replicator, maintenance, ending, command, told)  # noqa: SLF001
            assert code == 0
    assert "maintenance: 0001/x.ltx: it is cut off" in capsys.readouterr().err


def node_command(place: Path, name: str, *more: str) -> "subprocess.Popen[str]":
    """Start a node."""
    command = [*STRANDLINE, "replica", "node", str(place / f"{name}.db"), f"file://{place}/replica", "--name", name]
    options = ["--address", f"http://{name}", "--ttl", "60", "--interval", "0.1", "--json", *more]
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(child: "subprocess.Popen[str]", **expected: object) -> dict[str, object]:
    """Return the first record of a node with some values."""
    assert child.stdout is not None
    for line in child.stdout:
        record = json.loads(line)
        if all(record.get(key) == value for key, value in expected.items()):
            return dict(record)
    _, error = child.communicate()
    raise AssertionError(f"it ended: {error}")


def check_said(place: Path, metrics: str) -> None:
    """Hold `status` and the metrics of the leader against the nodes `a` and `b`."""
    url = f"file://{place}/replica"

    def followers() -> list[str]:
        ran = run_command("replica", "status", url, "--json")
        return [node["name"] for node in json.loads(ran.out)["followers"]]

    eventually(lambda: followers() == ["b"])
    leader = json.loads(run_command("replica", "status", url, "--json").out)["leader"]
    assert (leader["name"], leader["address"], leader["epoch"]) == ("a", "http://a", 1)
    assert leader["age_s"] < PATIENCE_S
    found, labels = page(metrics), f"database={place}/a.db,node=a"
    prefix = "strandline_replica_node"
    roles = {role: found[f"{prefix}_role{{{labels},role={role}}}"] for role in ("leader", "follower", "changing")}
    assert roles == {"leader": 1, "follower": 0, "changing": 0}
    assert (found[f"{prefix}_epoch{{{labels}}}"], found[f"{prefix}_failovers_total{{{labels}}}"]) == (1, 1)
    assert found[f"{prefix}_txid{{{labels}}}"] >= 1
    assert found[f"{prefix}_lag_seconds{{{labels}}}"] >= 0


def test_nodes_lead_hand_over_and_end(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application:
        fill(application, 3)
    first = node_command(tmp_path, "a", "--health-every", "0.1", "--metrics-port", "0")
    try:
        address = str(until(first, event="metrics")["address"])
        assert until(first, event="role", role="leader")["epoch"] == 1
        second = node_command(tmp_path, "b")
        try:
            until(second, event="role", role="follower")
            assert until(first, event="health")["leader_address"] == "http://a"
            check_said(tmp_path, address)
            first.send_signal(signal.SIGUSR1)
            assert until(second, event="role", role="leader")["epoch"] == 2
            until(first, event="role", role="follower")
            second.send_signal(signal.SIGTERM)
            _, error = second.communicate(timeout=PATIENCE_S)
            assert second.returncode == 0, error
            assert until(first, event="role", role="leader")["epoch"] == 3
        finally:
            second.kill()
            second.wait()
    finally:
        first.terminate()
        _, error = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 0, error
    assert content(tmp_path / "a.db") == content(tmp_path / "b.db")


def test_a_node_runs_its_application_and_ends_with_it(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application:
        fill(application, 3)
    child = node_command(tmp_path, "a", "--exec", f"{sys.executable} -c 'raise SystemExit(7)'")
    _, error = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 7, error


def test_a_node_with_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    ran = run_command("replica", "node", tmp_path / "a.db", f"file://{tmp_path}/replica", "--name", "a/b")
    assert (ran.code, "cannot name a node" in ran.err) == (1, True)


@pytest.mark.parametrize("what", ["run", "node"])
@pytest.mark.parametrize("command", ["/no/such/program", "a 'b", ""])
def test_a_command_that_cannot_be_started_is_said(tmp_path: Path, what: str, command: str) -> None:
    with database(tmp_path / "a.db") as application:
        fill(application, 1)
    more = ["--name", "a", "--ttl", "60"] if what == "node" else []
    ran = run_command("replica", what, tmp_path / "a.db", f"file://{tmp_path}/replica", *more, "--exec", command)
    assert (ran.code, "cannot be started" in ran.err, "Traceback" in ran.err) == (1, True, False)
