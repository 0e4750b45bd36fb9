"""A fold kept current by a streaming query: data and cursor together, whatever Spark repeats or forgets."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from strandline.errors import Locked
from strandline.fold import FoldBatch, MemoryStore
from strandline.fold.backends import Backend, open_fold
from strandline.fold.cursor import FoldCursor, format_fold_cursor, parse_fold_cursor
from strandline.fold.errors import ScopeChanged
from strandline.kv import format_revision
from strandline.nats.streams import StreamState
from strandline.protocol.fold_modes import FoldMode
from strandline.spark.folds import fold_build, keep_current
from strandline.spark.folds.follower import FoldFollower, changes_of, stored_cursor
from strandline.spark.folds.scope import options_of
from strandline.spark.streams import RecordsMissing, Target
from tests.servers_nats import NatsServer
from tests.spark.folds.helpers import verified, watched
from tests.spark.streams.helpers import ServerLog
from tests.waiting import PATIENCE_S, eventually


def caught_up(
    spark: SparkSession, world: ServerLog, path: Path, mode: FoldMode | None = None, **options: str
) -> FoldFollower:
    given = {**world.options, **options}
    with keep_current(spark, given, path, mode=mode, follow=False, records_per_trigger=500) as kept:
        kept.wait()
    return kept


def test_a_fold_is_begun_and_gone_on_with_and_equals_a_watched_one(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path
) -> None:
    bucket.fill(1200, subjects=300)
    kept = caught_up(spark, bucket, tmp_path / "f")
    assert kept.revision == 1200
    bucket.take_away("k107")
    bucket.take_away("k108", purge=True)
    bucket.publish("k109", b"")
    bucket.fill(50, subjects=40)
    again = caught_up(spark, bucket, tmp_path / "f")
    assert again.applied == 43, "only what is new"
    ours, theirs = verified(tmp_path / "f"), watched(bucket, tmp_path / "w")
    assert (ours.entries, ours.digest) == (theirs.entries, theirs.digest)
    assert parse_fold_cursor(ours.cursor).identity == parse_fold_cursor(theirs.cursor).identity
    assert caught_up(spark, bucket, tmp_path / "f").applied == 0


def test_a_built_fold_is_kept_current_while_it_is_asked(spark: SparkSession, bucket: ServerLog, tmp_path: Path) -> None:
    bucket.fill(1000, subjects=100)
    fold_build(spark, bucket.options, tmp_path / "f.rocks", Backend.ROCKSDB)
    with keep_current(spark, bucket.options, tmp_path / "f.rocks") as kept:
        with pytest.raises(Locked):
            open_fold(tmp_path / "f.rocks")
        bucket.publish("fresh", b"now")
        give_up = time.monotonic() + PATIENCE_S
        while kept.store.get(b"fresh") is None:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        assert not kept.wait(0.1)
    assert kept.revision == 1001


def test_the_mark_moves_with_the_bucket_though_only_other_keys_are_written(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path
) -> None:
    bucket.publish("a.1", b"v")
    bucket.fill(50)
    kept = caught_up(spark, bucket, tmp_path / "f", prefix="a.")
    assert (kept.revision, kept.applied) == (51, 1)
    bucket.fill(50)
    kept = caught_up(spark, bucket, tmp_path / "f", prefix="a.")
    assert (kept.revision, kept.applied) == (101, 0)
    assert parse_fold_cursor(verified(tmp_path / "f").cursor).revision == 101


def test_replayed_rows_change_nothing(tmp_path: Path) -> None:
    rows = pa.table(
        {"key": ["b", "a", "a"], "revision": [5, 3, 4], "kind": ["put", "put", "delete"], "value": [b"1", b"2", None]}
    )
    with open_fold(tmp_path / "f") as store:  # type: ignore[attr-defined]
        batch, last = changes_of(rows, 2)
        assert last == 5
        assert (batch.puts.keys, batch.deletes.keys) == ([b"b"], [b"a"])
        again, last = changes_of(rows, 5)
        assert (len(again), last) == (0, 5)
        partly, last = changes_of(rows, 4)
        assert (partly.puts.keys, last) == ([b"b"], 5)
        assert np.all(changes_of(rows, 0)[0].kinds == [0, 1, 0])
        assert store.load() is None


STATE = StreamState("KV_b", "2026-01-01T00:00:00Z", first=1, last=5, messages=5)
OPTIONS = options_of({"servers": "nats://127.0.0.1:4222", "bucket": "b"})


def standing_at(mark: FoldCursor, *keys: bytes) -> MemoryStore:
    store = MemoryStore()
    store.apply(FoldBatch(keys, [b"value"] * len(keys), [format_revision(5)] * len(keys)), format_fold_cursor(mark))
    return store


@pytest.mark.parametrize(
    "mark", [FoldCursor(), FoldCursor(identity=STATE.identity), FoldCursor(seen_evicting=True, identity=STATE.identity)]
)
def test_a_fold_with_keys_and_no_revision_is_refused(mark: FoldCursor) -> None:
    with pytest.raises(RecordsMissing, match="has keys and no cursor") as refused:
        stored_cursor(standing_at(mark, b"key"), STATE, OPTIONS)
    assert "strandline fold repair" in str(refused.value.hint)
    assert stored_cursor(standing_at(mark), STATE, OPTIONS).revision == 0, "one without keys is begun"


@pytest.mark.parametrize("mark", [FoldCursor(6), FoldCursor(6, identity=STATE.identity)])
def test_a_cursor_beyond_the_end_of_the_log_is_refused(mark: FoldCursor) -> None:
    with pytest.raises(RecordsMissing, match="ends at 5, before the fold's 6") as refused:
        stored_cursor(standing_at(mark, b"key"), STATE, OPTIONS)
    assert "strandline fold repair" in str(refused.value.hint)
    with pytest.raises(RecordsMissing, match="ends at 5"):
        stored_cursor(standing_at(mark), STATE, OPTIONS)
    assert stored_cursor(standing_at(mark._replace(revision=5), b"key"), STATE, OPTIONS).revision == 5


def test_a_fold_of_another_bucket_or_of_other_keys_is_refused(
    spark: SparkSession, bucket: ServerLog, tmp_path: Path
) -> None:
    bucket.fill(10)
    fold_build(spark, bucket.options, tmp_path / "f")
    with pytest.raises(ScopeChanged):
        caught_up(spark, bucket, tmp_path / "f", prefix="a.")
    bucket.make_again()
    bucket.fill(20)
    with pytest.raises(RecordsMissing, match="of another stream, or it was made again"):
        caught_up(spark, bucket, tmp_path / "f")


def test_a_bucket_that_evicted_is_begun_with_what_is_there_and_what_leaves_it_leaves_the_mirror(
    spark: SparkSession, nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    evicting = {"max_msgs": 20, "discard": "old", "max_msgs_per_subject": 5}
    with ServerLog(nats_server.url, Target("bucket", nats_bucket), **evicting) as world:
        world.fill(30, subjects=30)
        assert caught_up(spark, world, tmp_path / "f").revision == 30
        caught_up(spark, world, tmp_path / "a", mode=FoldMode.ARCHIVE)
        assert parse_fold_cursor(verified(tmp_path / "a").cursor).floor == 11
        world.fill(10, subjects=10)
        assert caught_up(spark, world, tmp_path / "f").revision == 40
        assert verified(tmp_path / "f").entries == 19, "what the bucket holds"
        caught_up(spark, world, tmp_path / "a")
        assert verified(tmp_path / "a").entries == 29, "ten of them are kept here alone"
        world.fill(30, subjects=30)
        with pytest.raises(Exception, match=r"sequences \[41, 51\) were removed"):
            caught_up(spark, world, tmp_path / "f")


def test_a_marker_of_an_expired_value_is_no_delete_to_an_archive() -> None:
    when = pa.array([None, 1_700_000_000_000_000, None], pa.timestamp("us", "UTC"))
    rows = pa.table(
        {
            "key": ["a", "b", "c"],
            "revision": [1, 2, 3],
            "kind": ["put", "purge", "purge"],
            "value": [b"1", None, None],
            "expires": when,
        }
    )
    changes, last = changes_of(rows, 0, FoldMode.ARCHIVE)
    assert (changes.puts.keys, changes.deletes.keys, last) == ([b"a"], [b"c"], 3)
    assert changes_of(rows, 0, FoldMode.MIRROR)[0].deletes.keys == [b"b", b"c"]
    only, last = changes_of(rows.slice(1, 1), 0, FoldMode.ARCHIVE)
    assert (len(only), last) == (0, 2), "the mark moves over it"


def test_the_value_before_an_expired_one_is_back_in_a_kept_mirror(
    spark: SparkSession, nats_server: NatsServer, nats_bucket: str, tmp_path: Path
) -> None:
    with ServerLog(nats_server.url, Target("bucket", nats_bucket), max_msgs_per_subject=5, allow_msg_ttl=True) as world:
        world.publish("a", b"old")
        world.publish("a", b"new", [("Nats-TTL", "1s")])
        world.publish("b", b"new", [("Nats-TTL", "1s")])
        caught_up(spark, world, tmp_path / "f")
        eventually(lambda: world.state().messages == 1, "the server removes what expired")
        world.publish("c", b"1")
        caught_up(spark, world, tmp_path / "f")
    with open_fold(tmp_path / "f") as fold:  # type: ignore[attr-defined]
        assert {entry.key: entry.value for entry in fold.range()} == {b"a": b"old", b"c": b"1"}


def test_a_stream_is_kept_by_subject(spark: SparkSession, stream: ServerLog, tmp_path: Path) -> None:
    stream.fill(700, subjects=7)
    kept = caught_up(spark, stream, tmp_path / "f")
    assert kept.revision == 700
    with open_fold(tmp_path / "f") as store:  # type: ignore[attr-defined]
        entry = store.get(f"{stream.name}.k3".encode())
        assert entry is not None
        assert entry.value == b"value 696"
