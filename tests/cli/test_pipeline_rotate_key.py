"""`strandline pipeline rotate-key`: what people see, and what is left when it is killed."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strandline.detect import expand
from strandline.pipeline.key_files import next_key_path, read_key
from strandline.pipeline.stores import open_stores
from strandline.protocol import InitialShard, RunKey, ShardKey, ShardSpec
from strandline.scan.run.scan_run import begin_run
from strandline.scan.state import tenant_named
from tests.cli.runs import Ran, run_command

KILLED = """
import os, signal, sys
from strandline.cli import pipeline_rotate_key
from strandline.cli.app import main
from strandline.pipeline import rotation
from strandline.pipeline.sql.sqlite import SqliteDatabase

kills = sys.argv.pop(1)
left = 0
rotation.PAGE_FINDINGS = 1

def counted(call):
    def counting(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*arguments, **named)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return counting

pipeline_rotate_key.make_key = counted(pipeline_rotate_key.make_key)
SqliteDatabase.write = counted(SqliteDatabase.write)
os.replace = counted(os.replace)
for kill_at in kills.split(","):
    child = os.fork()
    if not child:
        left = int(kill_at)
        main()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs the command again and again in children, each killed before or after the n-th step that changes something.

Every step is a transaction or a file.
"""


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, and a state of its scan in which a decision was made."""
    folder = tmp_path_factory.mktemp("rotate")
    (folder / "corpus").mkdir()
    for number in range(3):
        (folder / "corpus" / f"{number}.txt").write_text(
            expand("GITHUB_TOKEN={{github-crc32:ghp_}}\n", f"seed {number}")
        )
    assert scan(folder).code == 0
    finding = listed(folder / "state")[0]
    done(
        "findings", "triage", finding["finding_id"], "--as", "revoked", "--reason", "gone", "--state", folder / "state"
    )
    return folder


def scan(folder: Path, *more: str) -> Ran:
    return run_command("scan", "--without-spark", "--exit-zero", folder / "corpus", "--state", folder / "state", *more)


def done(*arguments: str | Path) -> str:
    ran = run_command(*arguments)
    assert ran.code == 0, ran.err
    return ran.out


def listed(state: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in done("findings", "list", "--state", state, "--all", "--json").splitlines()]


def meaning(state: Path) -> list[str]:
    """Return what is known of findings, but for their ids and the hashes of secrets."""
    renamed = {"finding_id", "secret"}
    rows = [{name: value for name, value in row.items() if name not in renamed} for row in listed(state)]
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def copied(scanned: Path, tmp_path: Path) -> Path:
    """A copy of the state, at a place of its own, with the corpus where it was."""
    shutil.copytree(scanned / "state", tmp_path / "state")
    return tmp_path / "state"


def key_of(state: Path) -> Path:
    return state / "tenant-default.key"


def rotate(state: Path, *more: str) -> Ran:
    return run_command("pipeline", "rotate-key", "--state", state, *more)


def test_a_rotation_keeps_what_is_known_and_leaves_nothing_to_scan(scanned: Path, tmp_path: Path) -> None:
    state = copied(scanned, tmp_path)
    known, ids = meaning(state), {row["finding_id"] for row in listed(state)}
    assert len(ids) == 3
    old = key_of(state).read_text()
    planned = rotate(state, "--dry-run")
    assert planned.code == 0
    assert "would derive the ids of 3 findings anew" in planned.out
    assert (key_of(state).read_text(), next_key_path(key_of(state)).exists()) == (old, False)
    record = json.loads(rotate(state, "--json").out)
    assert (record["findings"], record["applied"], record["resumed"]) == (3, True, False)
    assert meaning(state) == known
    assert not ids & {row["finding_id"] for row in listed(state)}
    lines = key_of(state).read_text().splitlines(keepends=True)
    assert (lines[0], len(lines)) == (old, 2)
    assert key_of(state).stat().st_mode & 0o777 == 0o600
    assert done("pipeline", "verify", state / "pipeline.db").endswith("whole\n")
    again = run_command("scan", "--without-spark", "--exit-zero", scanned / "corpus", "--state", state)
    assert "0 scanned now" in again.out + again.err
    assert meaning(state) == known, "a scan with the new key finds the same findings"
    key_of(state).write_text(old)
    refused = run_command("findings", "list", "--state", state)
    assert refused.code == 1
    assert "this is not the key" in refused.err
    assert lines[1].strip() not in planned.out + refused.err


def test_a_changed_corpus_is_found_under_the_new_key(scanned: Path, tmp_path: Path) -> None:
    shutil.copytree(scanned, tmp_path / "all")
    state = tmp_path / "all" / "state"
    assert rotate(state).code == 0
    (tmp_path / "all" / "corpus" / "0.txt").write_text(expand("\nGITHUB_TOKEN={{github-crc32:ghp_}}\n", "seed 0"))
    before = {row["finding_id"] for row in listed(state)}
    assert scan(tmp_path / "all").code == 0
    secrets = {row["finding_id"] for row in listed(state)}
    assert len(secrets & before) >= 2


@pytest.mark.parametrize(
    "kills",
    [(2, 4, 3, 5), *(pytest.param((at,), marks=pytest.mark.long) for at in range(1, 19))],
    ids=lambda kills: "-".join(map(str, kills)),
)
def test_a_rotation_that_is_killed_anywhere_goes_on(scanned: Path, tmp_path: Path, kills: tuple[int, ...]) -> None:
    """Killed before or after steps that change something, once or again and again; then it is finished."""
    state = copied(scanned, tmp_path)
    known = meaning(state)
    numbers = ",".join(map(str, kills))
    command = [sys.executable, "-c", KILLED, numbers, "pipeline", "rotate-key", "--state", str(state)]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)
    assert ended.stdout.split() == [str(-signal.SIGKILL.value)] * len(kills), ended.stderr
    looked = run_command("findings", "list", "--state", state)
    assert looked.code == 0 or "is being rotated" in looked.err
    if len(kills) > 1:
        assert looked.code == 1, "it was killed in the middle"
    if not is_rotated(state):
        assert rotate(state).code == 0
    assert is_rotated(state)
    assert meaning(state) == known
    assert done("pipeline", "verify", state / "pipeline.db").endswith("whole\n")


def is_rotated(state: Path) -> bool:
    key = read_key(key_of(state))
    assert key is not None
    return len(key.epochs) == 2 and not next_key_path(key_of(state)).exists()


def test_it_is_refused_while_a_scan_is_at_work_and_for_strangers(scanned: Path, tmp_path: Path) -> None:
    state = copied(scanned, tmp_path)
    run = RunKey(tenant_named("default"), 99)
    with open_stores(str(state / "pipeline.db")) as stores:
        stores.coordinator.create_run(1, run, 1)
        stores.coordinator.register_shards(1, run, [InitialShard(1, ShardSpec(b"a", b"z"))], 2)
        assert rotate(state, "--dry-run").code == 0, "a run that nobody works on can be finished later"
        stores.coordinator.acquire_and_restore(time.time_ns(), ShardKey(*run, 1), 7)
    refused = rotate(state)
    assert refused.code == 1
    assert "a scan of this tenant is running" in refused.err
    assert not next_key_path(key_of(state)).exists()
    assert rotate(tmp_path / "nothing").code == 1
    unknown = rotate(state, "--tenant", "nobody")
    assert "tenant 'nobody' has no results here" in unknown.err
    (tmp_path / "other.key").write_text("ab" * 32 + "\n")
    (tmp_path / "other.key").chmod(0o600)
    wrong = rotate(state, "--key-file", str(tmp_path / "other.key"))
    assert wrong.code == 1
    assert "under another key" in wrong.err
    assert not next_key_path(tmp_path / "other.key").exists()
    assert run_command("pipeline", "rotate-key", "--state", "postgresql://h/d").code == 1


def test_a_scan_that_began_before_a_rotation_stores_nothing_under_the_old_key(
    scanned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read its key, and lists; then the key is rotated; then it finds something, and loses its shard soon."""
    shutil.copytree(scanned, tmp_path / "all")
    folder, state = tmp_path / "all", tmp_path / "all" / "state"
    (folder / "corpus" / "new.txt").write_text(expand("GITHUB_TOKEN={{github-crc32:ghp_}}\n", "seed new"))

    def begin_late(*arguments: Any) -> Any:  # noqa: ANN401 - as the one that it replaces
        assert rotate(state).code == 0
        return begin_run(*arguments)

    with monkeypatch.context() as late:
        late.setattr(sys.modules["strandline.scan.driver"], "begin_run", begin_late)
        ended = scan(folder, "--lease-s", "1")
    assert ended.code == 1
    assert "key was rotated" in ended.err
    assert len(listed(state)) == 3
    assert scan(folder).code == 0
    secrets = {row["finding_id"] for row in listed(state)}
    (folder / "corpus" / "new.txt").write_text(expand("\nGITHUB_TOKEN={{github-crc32:ghp_}}\n", "seed new"))
    assert scan(folder).code == 0
    assert {row["finding_id"] for row in listed(state)} == secrets, "the same secret, found again, is the same finding"
    assert len(secrets) == 3 + 4, "of the corpus from before, and of its copy"


def test_damage_from_before_is_told_before_the_old_key_is_refused(scanned: Path, tmp_path: Path) -> None:
    state = copied(scanned, tmp_path)
    with closing(sqlite3.connect(state / "pipeline.db")) as database, database:
        database.execute("UPDATE findings SET secret = randomblob(32) WHERE rowid = (SELECT min(rowid) FROM findings)")
    refused = rotate(state)
    assert refused.code == 3, refused.err
    assert "is being rotated" not in run_command("findings", "list", "--state", state).err


def test_a_state_on_postgresql_is_rotated_too(scanned: Path, tmp_path: Path, postgres_state: str) -> None:
    key = tmp_path / "tenant.key"
    key.write_text(os.urandom(32).hex() + "\n")
    key.chmod(0o600)
    place = ("--state", postgres_state, "--key-file", key)
    done("scan", "--without-spark", "--exit-zero", scanned / "corpus", *place)
    before = done("findings", "list", "--json", *place).splitlines()
    assert json.loads(done("pipeline", "rotate-key", "--json", *place))["findings"] == len(before) == 3
    after = done("findings", "list", "--json", *place).splitlines()
    ids = [{json.loads(line)["finding_id"] for line in lines} for lines in (before, after)]
    assert len(ids[1]) == 3
    assert not ids[0] & ids[1]
