"""The commands of `strandline fold` about artifacts: a real nats-server, the local store, and SeaweedFS."""

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import pyarrow.dataset
import pytest

from strandline.artifacts import PublishedArtifacts
from strandline.artifacts.layout import POINTER_KEY
from strandline.artifacts.manifest import MANIFEST_NAME
from strandline.fold import open_fold
from strandline.kv import Discard, StoreConfig
from strandline.objects import LocalObjects
from tests.cli.fold_buckets import STRANDLINE, Bucket
from tests.cli.runs import Ran, run_command
from tests.servers_nats import NatsServer
from tests.servers_seaweed import SeaweedServer, fresh_address
from tests.waiting import PATIENCE_S, eventually

BACKENDS = ("copy.log", "copy.db", "copy.rocks")


@pytest.fixture
def bucket(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> Bucket:
    made = Bucket(nats_server, nats_bucket, tmp_path)
    made.write(("a.1", b"one"), ("a.2", b"two"), ("b.1", b"\xff\x00"), config=StoreConfig(history=5))
    return made


@pytest.fixture
def fold(bucket: Bucket) -> Path:
    """A fold of the bucket, at revision 3."""
    assert bucket.fold().code == 0
    return bucket.folder / "fold.log"


@pytest.fixture
def address(tmp_path: Path) -> str:
    return (tmp_path / "artifacts").as_uri()


def one(ran: Ran) -> dict[str, object]:
    """Return the record of a command that succeeded."""
    assert ran.code == 0, ran.err
    found: dict[str, object] = json.loads(ran.out)
    return found


def state(path: Path) -> str:
    """Return the hash of a fold's state."""
    return str(one(run_command("fold", "verify", path, "--json"))["digest"])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(".lock")}


class TestFolders:
    """`fold export` and `fold import`."""

    @pytest.mark.parametrize("name", BACKENDS)
    def test_an_exported_fold_is_imported_by_every_backend(self, fold: Path, name: str, tmp_path: Path) -> None:
        exported = one(run_command("fold", "export", fold, tmp_path / "art", "--json"))
        assert (exported["revision"], exported["entries"], exported["form"]) == (3, 3, "logical")
        imported = one(run_command("fold", "import", tmp_path / "art", tmp_path / name, "--json"))
        assert imported["backend"] == {"log": "append-log", "db": "sqlite", "rocks": "rocksdb"}[name.split(".")[1]]
        assert state(tmp_path / name) == state(fold)

    def test_a_raw_export_is_of_its_backend_alone(self, fold: Path, tmp_path: Path) -> None:
        exported = one(run_command("fold", "export", fold, tmp_path / "art", "--raw", "--json"))
        assert (exported["form"], exported["backend"]) == ("raw", "append-log")
        refused = run_command("fold", "import", tmp_path / "art", tmp_path / "copy.db", "--backend", "sqlite")
        assert refused.code == 1
        assert "hint: give the artifact's --backend, or export it without --raw" in refused.err
        one(run_command("fold", "import", tmp_path / "art", tmp_path / "copy", "--json"))
        assert state(tmp_path / "copy") == state(fold)

    def test_an_increment_has_what_changed(self, bucket: Bucket, fold: Path, tmp_path: Path) -> None:
        run_command("fold", "export", fold, tmp_path / "old")
        bucket.write(("a.1", None), ("c", b"new"))
        bucket.fold()
        seen = one(
            run_command("fold", "export", fold, tmp_path / "new", "--since", tmp_path / "old", "--dry-run", "--json")
        )
        assert (seen["increment"], seen["revision"]) == (True, 5)
        assert not (tmp_path / "new").exists()
        found = one(run_command("fold", "export", fold, tmp_path / "new", "--since", tmp_path / "old", "--json"))
        assert (found["runs"], found["entries"]) == (2, 3)
        one(run_command("fold", "import", tmp_path / "new", tmp_path / "copy.db", "--json"))
        assert state(tmp_path / "copy.db") == state(fold)

    def test_other_programs_read_the_tables(self, fold: Path, tmp_path: Path) -> None:
        run_command("fold", "export", fold, tmp_path / "art")
        table = pyarrow.dataset.dataset(tmp_path / "art" / "data").to_table(columns=["key", "revision", "value"])
        frame = table.to_pandas()
        assert list(frame["key"]) == [b"a.1", b"a.2", b"b.1"]
        assert frame.set_index("key")["value"][b"a.2"] == b"two"
        assert list(frame["revision"]) == [1, 2, 3]
        assert pd.read_parquet(tmp_path / "art" / "data")["key"].tolist() == [b"a.1", b"a.2", b"b.1"]

    def test_what_is_refused_is_told_and_leaves_nothing(self, fold: Path, tmp_path: Path) -> None:
        run_command("fold", "export", fold, tmp_path / "art")
        before = names(tmp_path)
        taken = run_command("fold", "export", fold, tmp_path / "art")
        assert (taken.code, "is there already" in taken.err, "hint: give another path" in taken.err) == (1, True, True)
        for option in ((), ("--dry-run",)):
            missing = run_command("fold", "import", tmp_path / "nothing", tmp_path / "copy", *option)
            assert (missing.code, "there is no such folder\nhint: give the folder of an" in missing.err) == (3, True)
            none = run_command("fold", "import", fold.parent, tmp_path / "copy", *option)
            assert (none.code, f"there is no {MANIFEST_NAME}\nhint: give the folder of an" in none.err) == (3, True)
            mirror = run_command("fold", "import", tmp_path / "art", tmp_path / "copy", "--mode", "archive", *option)
            assert (mirror.code, "it is of mode mirror" in mirror.err) == (1, True)
            over = run_command("fold", "import", tmp_path / "art", fold, *option)
            assert (over.code, "is there already" in over.err) == (1, True)
        (data,) = (tmp_path / "art" / "data").iterdir()
        data.write_bytes(data.read_bytes()[:-1] + b"?")
        changed = run_command("fold", "import", tmp_path / "art", tmp_path / "copy")
        assert (changed.code, "has not the hash" in changed.err, "hint:" in changed.err) == (3, True, True)
        none = run_command("fold", "export", tmp_path / "typo", tmp_path / "other")
        assert (none.code, "there is no fold" in none.err) == (1, True)
        both = run_command("fold", "export", fold, tmp_path / "other", "--raw", "--since", tmp_path / "art")
        assert (both.code, "exclude each other" in both.err) == (1, True)
        assert names(tmp_path) == before

    def test_an_empty_fold_is_not_exported(self, tmp_path: Path) -> None:
        open_fold(tmp_path / "empty").close()
        ran = run_command("fold", "export", tmp_path / "empty", tmp_path / "art")
        assert (ran.code, "of no revision yet" in ran.err, "catch up" in ran.err) == (1, True, True)
        assert not (tmp_path / "art").exists()


class TestPublished:
    """`fold publish`, `bootstrap`, `artifacts` and `prune`."""

    def test_a_fold_that_is_not_there_makes_no_folder_of_artifacts(self, tmp_path: Path) -> None:
        none = run_command("fold", "publish", tmp_path / "none", f"file://{tmp_path}/artifacts")
        assert (none.code, "there is no fold" in none.err) == (1, True)
        assert not (tmp_path / "artifacts").exists()

    def test_a_published_fold_is_bootstrapped_and_only_the_rest_is_told(
        self, bucket: Bucket, fold: Path, address: str
    ) -> None:
        planned = one(run_command("fold", "publish", fold, address, "--dry-run", "--json"))
        assert (planned["outcome"], planned["dry_run"], planned["uploaded_bytes"]) == (
            "published", True, planned["bytes"],
        )  # fmt: skip
        assert not (bucket.folder / "artifacts").exists(), "a dry run writes nothing"
        published = one(run_command("fold", "publish", fold, address, "--json"))
        assert (published["outcome"], published["revision"]) == ("published", 3)
        bucket.write(("a.3", b"three"))
        looked = one(run_command("fold", "bootstrap", address, bucket.folder / "new.db", "--dry-run", "--json"))
        assert (looked["revision"], (bucket.folder / "new.db").exists()) == (3, False)
        made = one(run_command("fold", "bootstrap", address, bucket.folder / "new.db", "--json"))
        assert (made["revision"], made["backend"], made["entries"]) == (3, "sqlite", 3)
        caught_up = one(bucket.fold("--json", name="new.db"))
        assert (caught_up["revision"], caught_up["updates"]) == (4, 1)

    def test_a_second_publication_uploads_what_changed_and_prune_removes_what_is_left(
        self, bucket: Bucket, fold: Path, address: str
    ) -> None:
        bucket.write(*((f"many.{at}", bytes([at]) * 500) for at in range(100)))
        bucket.fold()
        first = one(run_command("fold", "publish", fold, address, "--json"))
        bucket.write(("a.1", b"uno"))
        bucket.fold()
        second = one(run_command("fold", "publish", fold, address, "--json"))
        assert second["runs"] == 2
        assert int(str(second["uploaded_bytes"])) < int(str(first["uploaded_bytes"]))
        one(run_command("fold", "publish", fold, address, "--whole", "--json"))
        rows = [json.loads(line) for line in run_command("fold", "artifacts", address, "--json").out.splitlines()]
        assert [row["newest"] for row in rows].count(True) == 1
        assert len(rows) == 3
        kept = one(run_command("fold", "prune", address, "--json"))
        assert (kept["manifests"], kept["files"]) == (0, 0), "the grace is an hour"
        (bucket.folder / "artifacts").touch()
        bucket.write(("a.1", b"eins"))
        bucket.fold()
        one(run_command("fold", "publish", fold, address, "--whole", "--json"))
        planned = one(run_command("fold", "prune", address, "--grace", "0", "--dry-run", "--json"))
        assert planned["manifests"] == 3
        assert len(run_command("fold", "artifacts", address, "--json").out.splitlines()) == 4
        pruned = one(run_command("fold", "prune", address, "--grace", "0", "--json"))
        assert (pruned["manifests"], pruned["files"]) == (planned["manifests"], planned["files"])
        (left,) = run_command("fold", "artifacts", address, "--json").out.splitlines()
        assert json.loads(left)["newest"] is True
        one(run_command("fold", "bootstrap", address, bucket.folder / "copy", "--json"))
        assert state(bucket.folder / "copy") == state(fold)

    def test_an_older_fold_does_not_replace_a_newer_artifact(self, bucket: Bucket, fold: Path, address: str) -> None:
        run_command("fold", "export", fold, bucket.folder / "old")
        bucket.write(("a.3", b"three"))
        bucket.fold()
        one(run_command("fold", "publish", fold, address, "--json"))
        for option in ((), ("--dry-run",)):
            late = run_command("fold", "publish", bucket.folder / "old", address, "--json", *option)
            assert (late.code, json.loads(late.out)["outcome"]) == (1, "superseded")
        assert one(run_command("fold", "bootstrap", address, bucket.folder / "copy", "--json"))["revision"] == 4

    def test_seaweed_keeps_artifacts_too(
        self,
        fold: Path,
        tmp_path: Path,
        seaweed_server: SeaweedServer,
        seaweed_address: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name, value in seaweed_server.environ.items():
            monkeypatch.setenv(name, value)
        one(run_command("fold", "publish", fold, seaweed_address, "--json"))
        nothing = run_command("fold", "bootstrap", fresh_address(), tmp_path / "copy")
        assert nothing.code == 1
        assert "there is no artifact\nhint: publish one first, or check the address" in nothing.err
        one(run_command("fold", "bootstrap", seaweed_address, tmp_path / "copy", "--json"))
        assert state(tmp_path / "copy") == state(fold)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        denied = run_command("fold", "bootstrap", seaweed_address, tmp_path / "other")
        assert (denied.code, "AWS_ACCESS_KEY_ID" in denied.err) == (1, True)
        assert not (tmp_path / "other").exists()

    def test_what_cannot_be_used_is_told_with_a_hint(self, fold: Path, address: str, tmp_path: Path) -> None:
        for command in (("bootstrap", address, str(tmp_path / "copy")), ("artifacts", address), ("prune", address)):
            missing = run_command("fold", *command, *(["--dry-run"] if command[0] == "prune" else []))
            assert (missing.code, "there is no such folder" in missing.err, "hint:" in missing.err) == (1, True, True)
        wrong = run_command("fold", "publish", fold, "ftp://host/x")
        assert (wrong.code, "is not an object store" in wrong.err, "hint: use s3://" in wrong.err) == (1, True, True)
        one(run_command("fold", "publish", fold, address, "--json"))
        taken = run_command("fold", "bootstrap", address, fold)
        assert (taken.code, "is there already" in taken.err) == (1, True)
        archive = run_command("fold", "bootstrap", address, tmp_path / "copy", "--mode", "archive")
        assert (archive.code, "it is of mode mirror" in archive.err) == (1, True)
        with closing(LocalObjects(tmp_path / "artifacts")) as objects:
            objects.put(POINTER_KEY, b"not a pointer")
        broken = run_command("fold", "bootstrap", address, tmp_path / "copy")
        assert (broken.code, "the pointer cannot be read\nhint: publish again" in broken.err) == (3, True)
        assert not (tmp_path / "copy").exists()


class TestStatus:
    """`fold status --artifacts` and `fold artifacts --bucket`."""

    def test_the_last_artifact_its_age_and_whether_the_log_continues_it(
        self, bucket: Bucket, fold: Path, address: str
    ) -> None:
        one(run_command("fold", "publish", fold, address, "--json"))
        bucket.write(("a.3", b"three"))
        bucket.fold()
        found = one(run_command("fold", "status", fold, "--artifacts", address, "--bucket", bucket.address, "--json"))
        assert (found["artifact_revision"], found["artifact_behind"], found["artifact_continues"]) == (3, 1, True)
        assert found["artifact_alarm"] is None
        assert int(str(found["artifact_age_s"])) >= 0

    def test_an_artifact_older_than_the_floor_of_the_log_is_an_alarm(
        self, nats_server: NatsServer, nats_bucket: str, tmp_path: Path, address: str
    ) -> None:
        bucket = Bucket(nats_server, nats_bucket, tmp_path)
        config = StoreConfig(updates_max=5, discard=Discard.OLD)
        bucket.write(*((f"old.{at}", b"x") for at in range(5)), config=config)
        bucket.fold()
        fold = tmp_path / "fold.log"
        one(run_command("fold", "publish", fold, address, "--json"))
        bucket.write(*((f"new.{at}", b"y") for at in range(8)))
        asked = ("fold", "status", fold, "--artifacts", address, "--bucket", bucket.address, "--json")
        alarmed = run_command(*asked)
        assert alarmed.code == 1
        assert (
            "alarm: the artifact is older than the log's floor: it is of revision 5, and the log begins at 9"
            in alarmed.err
        )
        assert json.loads(alarmed.out)["artifact_continues"] is False
        (row,) = run_command("fold", "artifacts", address, "--bucket", bucket.address, "--json").out.splitlines()
        assert (json.loads(row)["continues"], "older than the log's floor" in json.loads(row)["because"]) == (
            False,
            True,
        )
        bucket.fold()
        one(run_command("fold", "publish", fold, address, "--json"))
        assert run_command(*asked).code == 0

    def test_no_artifact_is_an_alarm(self, fold: Path, tmp_path: Path) -> None:
        LocalObjects(tmp_path / "none").close()
        ran = run_command("fold", "status", fold, "--artifacts", (tmp_path / "none").as_uri())
        assert (ran.code, "alarm: there is no artifact" in ran.err) == (1, True)


class TestRun:
    """`fold run --bootstrap --publish --export-every`."""

    def test_one_run_publishes_at_its_end_and_another_starts_from_there(self, bucket: Bucket, address: str) -> None:
        first = bucket.fold("--publish", address, "--json")
        assert (one(first)["updates"], "published: the artifact of revision 3" in first.err) == (3, True)
        second = bucket.fold("--bootstrap", address, "--json", name="second.db")
        assert (one(second)["updates"], one(second)["revision"]) == (0, 3)
        assert "made of the artifact of revision 3, 3 entries" in second.err
        assert state(bucket.folder / "second.db") == state(bucket.folder / "fold.log")

    def test_an_address_without_an_artifact_is_no_obstacle(self, bucket: Bucket, address: str) -> None:
        assert one(bucket.fold("--bootstrap", address, "--json"))["updates"] == 3
        assert not (bucket.folder / "artifacts").exists()

    def test_an_archive_that_missed_updates_is_restored(
        self, nats_server: NatsServer, nats_bucket: str, tmp_path: Path, address: str
    ) -> None:
        bucket = Bucket(nats_server, nats_bucket, tmp_path)
        bucket.write(("a.1", b"x"), config=StoreConfig(updates_max=3, discard=Discard.OLD))
        for name in ("late.log", "fold.log"):
            one(bucket.fold("--mode", "archive", "--json", name=name))
        bucket.write(("a.2", b"x"), ("a.3", b"x"))
        bucket.fold()
        bucket.write(("a.4", b"x"), ("a.5", b"x"))
        bucket.fold("--publish", address)
        refused = bucket.fold(name="late.log")
        assert (refused.code, "hint: give --bootstrap ADDRESS" in refused.err) == (1, True)
        planned = run_command(
            "fold", "repair", bucket.address, tmp_path / "late.log", "--bootstrap", address, "--dry-run", "--json"
        )
        assert len(planned.out.splitlines()) == 5, planned.err
        assert bucket.fold("--bootstrap", address, "--repair", "restore", name="late.log").code == 0
        assert state(tmp_path / "late.log") == state(tmp_path / "fold.log")

    def test_options_that_exclude_each_other_are_told(self, bucket: Bucket, address: str) -> None:
        alone = run_command("fold", "run", bucket.address, bucket.folder / "x", "--export-every", "1")
        assert (alone.code, "needs an address" in alone.err) == (1, True)
        both = bucket.fold("--export-every", "1", "--publish", address)
        assert (both.code, "exclude each other" in both.err) == (1, True)

    def test_a_running_fold_publishes_again_and_again_and_is_exported_beside(
        self, bucket: Bucket, fold: Path, address: str
    ) -> None:
        command = [*STRANDLINE, "fold", "run", bucket.address, str(fold)]
        command += ["--bootstrap", address, "--publish", address, "--export-every", "0.5", "--json"]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child,
            PublishedArtifacts.open(address) as artifacts,
        ):
            try:
                eventually(lambda: (found := artifacts.pointer()) and found.rank >= 3, "an artifact")
                bucket.write(("live", b"yes"))
                eventually(lambda: (found := artifacts.pointer()) and found.rank >= 4, "another artifact")
                beside = one(run_command("fold", "export", fold, bucket.folder / "beside", "--json"))
                assert beside["revision"] == 4
                raw = run_command("fold", "export", fold, bucket.folder / "raw", "--raw")
                assert (raw.code, str(child.pid) in raw.err) == (1, True)
                child.send_signal(signal.SIGTERM)
                out, err = child.communicate(timeout=PATIENCE_S)
            finally:
                child.kill()
        assert child.returncode == 0, err
        assert json.loads(out)["revision"] == 4
        assert "published the artifact of revision 3" in err
        assert "export failed" not in err
        assert {name for name in names(bucket.folder) if not name.startswith("fold.log")} == {"artifacts", "beside"}
        assert (bucket.folder / "beside" / MANIFEST_NAME).exists()
