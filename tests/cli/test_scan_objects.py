"""`strandline scan s3://…` on a real S3 server: SeaweedFS."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.objects import ObjectStore, open_objects
from tests.cli.runs import run_command
from tests.cli.scan_command import RULES
from tests.scan.sources.inventories import as_csv, deliver
from tests.servers_seaweed import BUCKET, SeaweedServer

TEXTS = {
    "logs/a.txt": "nothing",
    "logs/b #1%20é.txt": "alpha_12345678",
    "logs/deep/c.env": "one\nbeta_12345678",
    "z.txt": "alpha_87654321",
}


@pytest.fixture
def bucket(seaweed_server: SeaweedServer, seaweed_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a prefix with objects."""
    for name, value in seaweed_server.environ.items():
        monkeypatch.setenv(name, value)
    store = open_objects(seaweed_address)
    for key, text in TEXTS.items():
        store.put(key, text.encode())
    yield seaweed_address
    store.close()


@pytest.fixture
def store(bucket: str) -> ObjectStore:
    return open_objects(bucket)


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "rules.toml").write_text(RULES)
    return ["--rules", str(tmp_path / "rules.toml"), "--state", str(tmp_path / "state"), "--without-spark", "--json"]


def scan(*arguments: str) -> tuple[list[str], dict[str, object]]:
    ran = run_command("scan", *arguments, "--exit-zero")
    assert ran.code == 0, ran.err
    *rows, last = (json.loads(line) for line in ran.out.splitlines())
    return sorted(row["location"] for row in rows), last["summary"]


def test_a_prefix_is_scanned_and_again_only_what_changed(bucket: str, store: ObjectStore, options: list[str]) -> None:
    begin = bucket.removeprefix(f"s3://{BUCKET}/")
    found, summary = scan(bucket, *options)
    assert found == [f"{begin}/logs/b #1%20é.txt:1:1", f"{begin}/logs/deep/c.env:2:1", f"{begin}/z.txt:1:1"]
    assert summary["items"] == 4
    store.put("logs/a.txt", b"beta_11111111")
    store.delete("z.txt")
    found, summary = scan(bucket, *options)
    assert found == [f"{begin}/logs/a.txt:1:1", f"{begin}/logs/b #1%20é.txt:1:1", f"{begin}/logs/deep/c.env:2:1"]
    assert (summary["items"], summary["looked_at"]) == (3, 1)
    assert scan(f"{bucket}/logs/deep", *options)[0] == [f"{begin}/logs/deep/c.env:2:1"]


def test_an_inventory_of_objects_that_are_gone_or_new_says_what_it_did_not_see(bucket: str, options: list[str]) -> None:
    store = open_objects(f"s3://{BUCKET}")
    begin = bucket.removeprefix(f"s3://{BUCKET}/")
    infos = list(store.list(f"{begin}/"))
    rows = [
        [BUCKET, one.key, "", True, False, one.size, one.modified.isoformat(), one.etag.strip('"')] for one in infos
    ]
    rows.append([BUCKET, f"{begin}/gone", "", True, False, 3, rows[0][6], "abc"])
    manifest = deliver(store, "CSV", rows, as_csv)
    body = json.loads(store.get(manifest).body)  # type: ignore[union-attr]
    store.put(manifest, json.dumps(body | {"sourceBucket": BUCKET}).encode())
    ran = run_command("scan", bucket, "--inventory", f"s3://{BUCKET}/{manifest}", *options, "--exit-zero")
    *found, last = (json.loads(line) for line in ran.out.splitlines())
    assert (len(found), last["summary"]["codes"]) == (3, {"VANISHED": 1})
    assert last["summary"]["whole"] is False
    _, summary = scan(bucket, *options)
    assert summary["looked_at"] == 0, "a listing knows the versions of the inventory"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s3://no-such-bucket-at-all", "the bucket does not exist"),
        (f"s3://{BUCKET}/no/such/prefix", "no such object, nor any below it"),
        ("s3://", "it names no bucket"),
        (f"s3://{BUCKET}/a?b=c", "a query"),
    ],
)
def test_what_is_not_there_is_a_typed_error_with_a_hint(bucket: str, options: list[str], path: str, said: str) -> None:
    assert bucket
    ran = run_command("scan", path, *options)
    assert ran.code != 0
    assert said in ran.err
    assert "hint: " in ran.err


def test_a_wrong_login_is_refused(bucket: str, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-this-one")
    ran = run_command("scan", bucket, *options)
    assert ran.code != 0
    assert "SignatureDoesNotMatch" in ran.err
    assert "AWS_ACCESS_KEY_ID" in ran.err


@pytest.mark.long
def test_the_real_command_killed_in_the_middle_goes_on(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    for number in range(12):
        store.put(f"more/{number:02}", b"alpha_%08d" % number)
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "key").write_text("5a" * 32)
    (tmp_path / "key").chmod(0o600)
    common = ["scan", bucket, "--rules", str(tmp_path / "rules.toml"), "--key-file", str(tmp_path / "key")]
    common += ["--without-spark", "--json", "--quiet", "--exit-zero", "--state"]

    def run(state: str, writes: int) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "tests.scan.dying_command", str(writes), *common, str(tmp_path / state)]
        return subprocess.run(command, capture_output=True, check=False)

    assert run("killed", 9).returncode == -9
    again, calm = run("killed", 0), run("calm", 0)
    assert (again.returncode, calm.returncode) == (0, 0), again.stderr + calm.stderr
    found = [{name: row[name] for name in ("finding_id", "location", "secret")} for row in rows_of(again)]
    assert len(found) == 15
    assert found == [{name: row[name] for name in ("finding_id", "location", "secret")} for row in rows_of(calm)]


def rows_of(ran: subprocess.CompletedProcess[bytes]) -> list[dict[str, object]]:
    return [json.loads(line) for line in ran.stdout.splitlines()[:-1]]
