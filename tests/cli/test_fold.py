"""The commands of `strandline fold`, against a real nats-server."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from strandline.fold import AppendLogStore, FoldBatch
from strandline.kv import StoreConfig
from tests.cli.fold_buckets import STRANDLINE, Bucket
from tests.cli.runs import Ran, run_command
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

BACKENDS = ("fold.log", "fold.db", "fold.rocks")


@pytest.fixture
def bucket(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> Bucket:
    made = Bucket(nats_server, nats_bucket, tmp_path)
    made.write(("a.1", b"one"), ("a.2", b"two"), ("b.1", b"\xff\x00"), config=StoreConfig(history=5))
    return made


def _json(ran: Ran) -> list[dict[str, object]]:
    assert ran.code in {0, 1}, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.mark.parametrize("name", BACKENDS)
def test_a_fold_is_made_asked_and_goes_on_where_it_stopped(bucket: Bucket, name: str) -> None:
    path = bucket.folder / name
    (first,) = _json(bucket.fold("--json", name=name))
    assert (first["revision"], first["updates"]) == (3, 3)
    bucket.write(("a.1", None), ("a.2", b"TWO"))
    (second,) = _json(bucket.fold("--json", name=name))
    assert (second["revision"], second["updates"]) == (5, 2), "only what was missing is told again"
    rows = _json(run_command("fold", "range", path, "--json"))
    assert rows == [
        {"key": "a.2", "revision": 5, "value": "TWO"},
        {"key": "b.1", "revision": 3, "value_base64": "/wA="},
    ]
    asked = run_command("fold", "get", path, "a.2", "a.1", "--json")
    assert asked.code == 1
    assert _json(asked) == rows[:1]
    assert "a.1: no such key" in asked.err


def test_raw_writes_the_bytes_and_nothing_else(bucket: Bucket) -> None:
    bucket.fold()
    done = subprocess.run(
        [*STRANDLINE, "fold", "get", str(bucket.folder / "fold.log"), "b.1", "--raw"],
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"\xff\x00"


def test_the_state_at_a_revision_has_one_hash_on_every_backend_and_in_the_bucket(bucket: Bucket) -> None:
    seen = set()
    for name in BACKENDS:
        bucket.fold(name=name)
        (found,) = _json(run_command("fold", "verify", bucket.folder / name, "--bucket", bucket.address, "--json"))
        assert (found["equal"], found["complete"], found["revision"]) == (True, True, 3)
        assert found["digest"] == found["bucket_digest"]
        seen.add(found["digest"])
    assert len(seen) == 1


def test_a_fold_that_differs_from_its_bucket_is_told_and_repaired(bucket: Bucket) -> None:
    path = bucket.folder / "fold.log"
    bucket.fold()
    spoil(path)
    (status,) = _json(run_command("fold", "status", path, "--json"))
    assert status["last_repair"] is None
    wrong = run_command("fold", "verify", path, "--bucket", bucket.address)
    assert wrong.code == 1
    assert "extra: 1 keys: zz" in wrong.out
    assert "the bucket says otherwise" in wrong.out
    *changes, summary = _json(run_command("fold", "repair", bucket.address, path, "--dry-run", "--json"))
    assert changes == [{"key": "zz", "action": "delete", "why": "the bucket does not list it"}]
    assert (summary["take"], summary["delete"]) == (0, 1)
    assert run_command("fold", "verify", path, "--bucket", bucket.address).code == 1, "a dry run changes nothing"
    repaired = run_command("fold", "repair", bucket.address, path)
    assert (repaired.code, repaired.err.count("repair: ")) == (0, 1)
    (status,) = _json(run_command("fold", "status", path, "--json"))
    assert (status["last_repair"], status["last_repair_put"], status["last_repair_deleted"]) == ("relist", 0, 1)
    assert status["last_repair_because"] == "a repair was requested"
    mended = run_command("fold", "verify", path, "--bucket", bucket.address)
    assert mended.code == 0
    assert "the bucket says the same" in mended.out


def spoil(path: Path) -> None:
    """Put a key into a fold that its bucket never had."""
    with AppendLogStore.open(path) as store:
        store.apply(FoldBatch([b"zz"], [b"?"], [b""]), store.cursor())


def test_two_folds_are_compared_key_by_key(bucket: Bucket) -> None:
    old, new = bucket.folder / "fold.log", bucket.folder / "fold.db"
    bucket.fold()
    bucket.write(("a.1", None), ("a.2", b"TWO"), ("c", b"new"))
    bucket.fold(name="fold.db")
    differing = run_command("fold", "diff", old, new)
    assert differing.code == 1
    assert differing.out.splitlines() == [
        "- a.1  revision 1  one",
        "~ a.2  revision 2 → 5  two → TWO",
        "+ c  revision 6  new",
    ]
    rows = _json(run_command("fold", "diff", old, new, "--prefix", "c", "--json"))
    assert rows == [{"key": "c", "right": {"revision": 6, "value": "new"}}]
    assert run_command("fold", "diff", old, old).code == 0
    since = run_command("fold", "diff", new, "--since", "5")
    assert since.out.splitlines() == ["+ c  revision 6  new"]
    assert run_command("fold", "diff", new).code == 2


def test_the_history_of_a_key_is_what_the_bucket_still_holds(bucket: Bucket) -> None:
    bucket.write(("a.1", b"uno"), ("a.1", None))
    rows = _json(run_command("fold", "history", bucket.address, "a.1", "--json"))
    assert rows == [
        {"revision": 1, "kind": "put", "value": "one"},
        {"revision": 4, "kind": "put", "value": "uno"},
        {"revision": 5, "kind": "delete"},
    ]
    unknown = run_command("fold", "history", bucket.address, "nope")
    assert unknown.code == 1
    assert "holds nothing of key 'nope'" in unknown.err


def test_status_says_how_far_behind_a_fold_is_and_what_would_happen(bucket: Bucket) -> None:
    path = bucket.folder / "fold.log"
    bucket.fold()
    bucket.write(("a.3", b"three"))
    (found,) = _json(run_command("fold", "status", path, "--bucket", bucket.address, "--json"))
    assert (found["backend"], found["revision"], found["behind"], found["next"]) == ("append-log", 3, 1, "resume")
    assert found["kept_by"] is None


def test_a_running_fold_is_asked_beside_it_and_stops_at_a_signal(bucket: Bucket) -> None:
    path = bucket.folder / "fold.log"
    command = [*STRANDLINE, "fold", "run", bucket.address, str(path), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            _wait_for(path, 3)
            bucket.write(("live", b"yes"))
            _wait_for(path, 4)
            (status,) = _json(run_command("fold", "status", path, "--json"))
            assert str(child.pid) in str(status["kept_by"])
            taken = run_command("fold", "run", bucket.address, path, "--once")
            assert taken.code == 1
            assert str(child.pid) in taken.err
            child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=PATIENCE_S)
        finally:
            child.kill()
    assert child.returncode == 0, err
    assert json.loads(out)["revision"] == 4


def _wait_for(path: Path, revision: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ran = run_command("fold", "status", path, "--json")
        if ran.code == 0 and (json.loads(ran.out)["revision"] or 0) >= revision:
            return
        time.sleep(0.05)
    pytest.fail(f"revision {revision} never came")


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_repair_of_a_path_without_a_fold_makes_none(bucket: Bucket, options: tuple[str, ...]) -> None:
    bucket.write(("a", b"1"))
    ran = run_command("fold", "repair", bucket.address, bucket.folder / "typo.log", *options)
    assert ran.code != 0
    assert "there is no fold" in ran.err
    assert not list(bucket.folder.glob("typo*"))


def test_a_scope_is_kept_and_another_one_is_refused_until_it_is_repaired(bucket: Bucket) -> None:
    path = bucket.folder / "fold.log"
    assert bucket.fold("--prefix", "a.").code == 0
    assert run_command("fold", "range", path, "--keys").out.split() == ["a.1", "a.2"]
    other = bucket.fold("--prefix", "b.")
    assert other.code == 1
    assert "hint: give this scope a path of its own" in other.err
    assert run_command("fold", "repair", bucket.address, path, "--prefix", "b.").code == 0
    assert run_command("fold", "range", path, "--keys").out.split() == ["b.1"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nats://127.0.0.1:1/b", "Connection refused"),
        ("nats://127.0.0.1:1", "names no bucket"),
        ("http://127.0.0.1/b", "http"),
        ("things", "names no bucket"),
    ],
)
def test_an_address_that_leads_nowhere_is_told_and_leaves_nothing(tmp_path: Path, address: str, said: str) -> None:
    ran = run_command("fold", "run", address, tmp_path / "fold.log", "--once", "--timeout", "3")
    assert ran.code == 1
    assert said in ran.err
    assert "hint:" in ran.err
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_a_missing_bucket_a_missing_fold_and_a_file_that_is_none_are_told(bucket: Bucket) -> None:
    missing = run_command("fold", "run", f"{bucket.server.url}/not-there", bucket.folder / "x", "--once")
    assert (missing.code, "'not-there' does not exist" in missing.err) == (1, True)
    assert "there is no fold" in run_command("fold", "get", bucket.folder / "nope", "k").err
    other = bucket.folder / "notes.txt"
    other.write_text("remember the milk")
    refused = run_command("fold", "status", other)
    assert (refused.code, "is not a fold" in refused.err) == (1, True)
