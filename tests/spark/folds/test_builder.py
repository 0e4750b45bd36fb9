"""Folds that Spark builds: equal to what a watch leaves, whole or not there, and never short of what was evicted."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.artifacts import Outcome, PublishedArtifacts, fetch_fold
from strandline.errors import InvalidInput, Locked
from strandline.fold.backends import Backend, open_fold, open_read_only
from strandline.fold.cursor import parse_fold_cursor
from strandline.fold.scopes import Scope
from strandline.objects import InvalidAddress
from strandline.protocol.fold_modes import FoldMode
from strandline.spark.folds import builder, fold_build
from strandline.spark.logs import ranges
from strandline.spark.streams import RecordsMissing, Target
from tests.servers_nats import NatsServer
from tests.spark.folds.helpers import verified, watched
from tests.spark.streams.helpers import ServerLog
from tests.waiting import eventually


def beside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if "builder" in file.name)


@pytest.mark.parametrize("backend", list(Backend))
def test_a_built_fold_equals_a_watched_one_and_is_gone_on_from(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "CUT_BYTES", 50_000)
    bucket.fill(6000, subjects=1500)
    for number in range(0, 1500, 7):
        bucket.take_away(f"k{number}", purge=number % 2 == 0)
    bucket.publish("k5", b"")
    built = fold_build(spark, {**bucket.options, "partitions": "3"}, tmp_path / "f", backend)
    assert built.backend is backend
    assert built.cursor.revision == bucket.state().last
    assert built.messages == bucket.state().messages
    ours, theirs = verified(tmp_path / "f"), watched(bucket, tmp_path / "w")
    assert (ours.entries, ours.digest) == (theirs.entries, theirs.digest)
    assert ours.entries == built.entries
    mark, other = parse_fold_cursor(ours.cursor), parse_fold_cursor(theirs.cursor)
    assert (mark.revision, mark.identity, mark.scope) == (other.revision, other.identity, other.scope)
    assert beside(tmp_path / "f") == []
    bucket.fill(100, subjects=50)
    assert watched(bucket, tmp_path / "f").digest == watched(bucket, tmp_path / "w").digest


def test_a_fold_of_some_prefixes_has_their_keys_and_scope(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path
) -> None:
    for key in ("a.1", "a.2", "b.1", "c.1"):
        bucket.publish(key, key.encode())
    built = fold_build(spark, {**bucket.options, "prefix": "a., b."}, tmp_path / "f")
    assert built.entries == 3
    assert built.cursor.scope == Scope.of("b.", "a.")
    theirs = watched(bucket, tmp_path / "w", Scope.of("a.", "b."))
    assert verified(tmp_path / "f").digest == theirs.digest


def test_a_built_fold_is_published_and_another_starts_from_it(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path
) -> None:
    bucket.fill(300, subjects=100)
    address = (tmp_path / "objects").as_uri()
    built = fold_build(spark, bucket.options, tmp_path / "f", publish=address)
    assert built.published is not None
    assert built.published.outcome is Outcome.PUBLISHED
    assert built.published.manifest.entries == built.entries
    with PublishedArtifacts.open(address) as artifacts:
        fetch_fold(artifacts, tmp_path / "copy.db")
    assert verified(tmp_path / "copy.db").digest == verified(tmp_path / "f").digest
    with pytest.raises(InvalidAddress):
        fold_build(spark, bucket.options, tmp_path / "g", publish="nowhere")
    assert not (tmp_path / "g").exists()


def test_a_stream_is_folded_by_subject(spark: SparkSession, stream: ServerLog, tmp_path: Path) -> None:
    stream.fill(5000, subjects=20)
    built = fold_build(spark, stream.options, tmp_path / "f.db")
    assert (built.backend, built.entries, built.messages) == (Backend.SQLITE, 20, 5000)
    with open_fold(tmp_path / "f.db") as store:  # type: ignore[attr-defined]
        entry = store.get(f"{stream.name}.k3".encode())
        assert entry is not None
        assert (entry.value, int.from_bytes(entry.version, "big")) == (b"value 4983", 4983)


def test_an_empty_bucket_makes_an_empty_fold(spark: SparkSession, bucket: ServerLog, tmp_path: Path) -> None:
    built = fold_build(spark, bucket.options, tmp_path / "f")
    assert (built.entries, built.cursor.revision) == (0, 0)
    assert verified(tmp_path / "f").entries == 0


def test_what_is_there_is_never_replaced_and_a_kept_fold_is_locked(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path
) -> None:
    bucket.fill(10)
    fold_build(spark, bucket.options, tmp_path / "f")
    before = (tmp_path / "f").read_bytes()
    with pytest.raises(InvalidInput, match="is there already"):
        fold_build(spark, bucket.options, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == before
    with open_fold(tmp_path / "g"), pytest.raises(Locked):  # type: ignore[attr-defined]
        fold_build(spark, bucket.options, tmp_path / "g")


def test_a_build_that_fails_leaves_nothing_under_the_name(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.fill(100, subjects=50)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(builder, "put_in_place", fail)
    with pytest.raises(KeyboardInterrupt):
        fold_build(spark, bucket.options, tmp_path / "f")
    assert not (tmp_path / "f").exists()
    assert beside(tmp_path / "f") == []
    monkeypatch.undo()
    (tmp_path / "f.builder").mkdir()
    (tmp_path / "f.builder" / "fold").write_text("what a killed build left")
    assert fold_build(spark, bucket.options, tmp_path / "f").entries == 50


def test_a_bucket_that_evicted_is_built_with_what_is_there_and_an_archive_says_from_where_on_it_is_complete(
    spark: SparkSession, nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    evicting = {"max_msgs": 50, "discard": "old", "max_msgs_per_subject": 5}
    with ServerLog(nats_server.url, Target("bucket", nats_bucket), **evicting) as world:
        world.fill(40, subjects=40)
        built = fold_build(spark, world.options, tmp_path / "f", mode=FoldMode.ARCHIVE)
        assert (built.cursor.seen_evicting, built.cursor.floor) == (True, 1), "it evicts, though it has not yet"
        world.fill(40, subjects=40)
        mirror = fold_build(spark, world.options, tmp_path / "g")
        assert (mirror.entries, mirror.cursor.mode, mirror.cursor.floor) == (40, FoldMode.MIRROR, 31)
        archive = fold_build(spark, world.options, tmp_path / "h", mode=FoldMode.ARCHIVE)
        assert (archive.entries, archive.cursor.mode, archive.cursor.floor) == (40, FoldMode.ARCHIVE, 31)


def test_values_that_expire_keep_their_deadline_and_leave_the_mirror_that_goes_on(
    spark: SparkSession, nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    for ttl_s in (1, 4, 16, 64):  # a slow machine may build the fold when the value has expired
        target, path = Target("bucket", f"{nats_bucket}-{ttl_s}"), tmp_path / f"f{ttl_s}"
        with ServerLog(nats_server.url, target, allow_msg_ttl=True) as world:
            world.publish("stays", b"1")
            world.publish("goes", b"2", [("Nats-TTL", f"{ttl_s}s")])
            built = fold_build(spark, world.options, path)
            with open_read_only(path) as reader:  # type: ignore[attr-defined]
                found = [(entry.key, entry.expires_ns > 0) for entry in reader.range()]
            if found != [(b"stays", False)]:
                assert found == [(b"goes", True), (b"stays", False)]
                assert built.cursor.has_deadlines
                eventually(lambda: watched(world, path).entries == 1, "it leaves the mirror")  # noqa: B023 - called at once
                return
    raise AssertionError("each time the value had expired before it was read")


def test_a_bucket_that_is_purged_or_made_again_meanwhile_is_refused(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_parts = builder.read_parts
    for change in (bucket.purge, bucket.make_again):
        bucket.fill(100, subjects=50)

        def read(*arguments: object, change: object = change) -> int:
            count = read_parts(*arguments)  # type: ignore[arg-type]
            change()  # type: ignore[operator]
            bucket.fill(1)
            return count

        monkeypatch.setattr(builder, "read_parts", read)
        with pytest.raises(RecordsMissing, match=r"purged|made again"):
            fold_build(spark, bucket.options, tmp_path / "f")
        assert not (tmp_path / "f").exists()
        monkeypatch.undo()


def test_a_task_that_fails_is_told_as_what_it_was(
    spark: SparkSession, stream: ServerLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.fill(100)
    split: Any = ranges.split_range

    def late(*arguments: object) -> object:
        parts: object = split(*arguments)
        stream.make_again()
        return parts

    monkeypatch.setattr(builder, "split_range", late)
    with pytest.raises(RecordsMissing, match="made again since the range was planned"):
        fold_build(spark, stream.options, tmp_path / "f")


@pytest.mark.parametrize("wrong", [{"view": "latest"}, {"startingOffset": "3"}, {"stream": "x"}, {"nonsense": "1"}])
def test_options_that_make_no_fold_are_refused(spark: SparkSession, tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        fold_build(spark, {"bucket": "b", **wrong}, tmp_path / "f")
