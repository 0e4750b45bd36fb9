"""Readers of buckets and streams over a real server, undisturbed: order, kinds, keys, scopes, limits."""

import multiprocessing
import pickle
import threading
import time

import pytest

from strandline.errors import Closed, InvalidInput
from strandline.kv import BucketNotFound, CursorExpired, Overrun, UpdateBatch, UpdateKind
from strandline.kv.nats.bucket_reader import BucketReader, read_keys, scan_bucket
from strandline.kv.nats.layout import retention_of
from strandline.nats import NatsSocket, OrderedReader, ReadPlan, StreamNotFound, stream_state
from strandline.nats.settings import NatsSettings
from strandline.wire import Times, format_headers
from tests.nats.filling import DELETED, PURGED, filled_bucket
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

LIMIT_S = PATIENCE_S


@pytest.fixture
def settings(nats_server: NatsServer) -> NatsSettings:
    return NatsSettings(nats_server.url, timeout_s=LIMIT_S)


def read_until(reader: BucketReader, revision: int) -> UpdateBatch:
    batches = []
    while reader.position < revision:
        batch = reader.read(LIMIT_S)
        assert batch is not None, "nothing came"
        batches.append(batch)
    return UpdateBatch.concat(batches)


def is_current(reader: BucketReader) -> bool:
    return reader.is_current


def test_a_reader_tells_the_state_first_and_then_every_update(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket) as bucket:
        bucket.put([f"key-{number}" for number in range(3000)], b"old")
        last = bucket.put([f"key-{number}" for number in range(0, 3000, 2)], b"new")
        with BucketReader.open(settings, nats_bucket) as reader:
            assert not is_current(reader)
            state = read_until(reader, last)
            assert is_current(reader)
            assert reader.frontier == reader.position == last
            assert len(state) == 3000
            assert state.versions.tolist() == [*range(2, 3001, 2), *range(3001, 4501)]
            assert dict(zip(state.keys, state.values, strict=True)) == {
                f"key-{number}": b"old" if number % 2 else b"new" for number in range(3000)
            }
            assert reader.read(0.05) is None
            bucket.put(["a.b", "key-1"], b"live")
            live = read_until(reader, last + 2)
            assert list(zip(live.keys, live.versions.tolist(), live.values, strict=True)) == [
                ("a.b", last + 1, b"live"),
                ("key-1", last + 2, b"live"),
            ]


def test_a_reader_goes_on_after_a_revision(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket, max_msgs_per_subject=8) as bucket:
        last = bucket.put(["a", "b", "a", "b", "a"])
        with BucketReader.open(settings, nats_bucket, ReadPlan(stream="", after=2)) as reader:
            assert read_until(reader, last).versions.tolist() == [3, 4, 5]
            assert reader.is_current
        with BucketReader.open(settings, nats_bucket, ReadPlan(stream="", after=last)) as reader:
            assert reader.is_current
            assert reader.read(0.05) is None
            assert reader.position == last


def test_an_empty_bucket_is_current_at_once(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket), BucketReader.open(settings, nats_bucket) as reader:
        assert reader.is_current
        assert reader.read(0.05) is None


def test_deletes_purges_and_markers_are_told_as_such(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket, max_msgs_per_subject=4) as bucket:
        bucket.put(["a", "b", "c", "d", "e"])
        bucket.put(["a"], b"ignored", DELETED)
        bucket.put(["b"], b"", PURGED)
        bucket.put(["c"], b"", format_headers([("Nats-Marker-Reason", "MaxAge")]))
        bucket.put(["d"], b"kept", format_headers([("Other", "KV-Operation: DEL")]))
        last = bucket.put(["e"], b"")
        with BucketReader.open(settings, nats_bucket) as reader:
            batch = read_until(reader, last)
        assert batch.keys == ["a", "b", "c", "d", "e"]
        assert batch.kinds.tolist() == [
            UpdateKind.DELETE,
            UpdateKind.PURGE,
            UpdateKind.PURGE,
            UpdateKind.PUT,
            UpdateKind.PUT,
        ]
        assert batch.values == [b"", b"", b"", b"kept", b""]


def test_keys_may_be_any_bytes_that_the_server_takes(settings: NatsSettings, nats_bucket: str) -> None:
    keys = ["größe", "\udcff\udc80", "a.b.c", "x" * 500, "*x", "a>b", "MSG", "=/_-", "日本.語"]
    with filled_bucket(settings, nats_bucket) as bucket:
        last = bucket.put(keys)
        with BucketReader.open(settings, nats_bucket) as reader:
            batch = read_until(reader, last)
        assert batch.keys == keys
        assert sorted(read_keys(settings, nats_bucket)) == sorted(keys)


def test_values_may_be_as_large_as_the_server_takes_and_hold_anything(settings: NatsSettings, nats_bucket: str) -> None:
    frames = b"\r\nMSG $KV.x.y 1 $JS.ACK.KV_x.c.1.9.9.1.0 3\r\nabc\r\n" * 50
    with filled_bucket(settings, nats_bucket, max_msgs_per_subject=64) as bucket:
        for value in (b"", frames, b"v" * (1 << 20), b"\r\n", bytes(range(256)) * 16):
            last = bucket.put(["k"] * 3, value)
        with BucketReader.open(settings, nats_bucket, ReadPlan(stream="", after=0)) as reader:
            batch = read_until(reader, last)
        assert batch.values[::3] == [b"", frames, b"v" * (1 << 20), b"\r\n", bytes(range(256)) * 16]


@pytest.mark.parametrize("prefixes", [("a.",), ("a.", "c."), ("a.", "a.b.", "c."), ("",), ("", "a.")])
def test_prefixes_are_read_in_one_order(settings: NatsSettings, nats_bucket: str, prefixes: tuple[str, ...]) -> None:
    keys = ["a.1", "b.1", "c.1", "a.b.2", "ab.1", "c.2", "d"]
    with filled_bucket(settings, nats_bucket) as bucket:
        bucket.put(keys)
        expected = [key for key in keys if key.startswith(prefixes)]
        with BucketReader.open(settings, nats_bucket, prefixes=prefixes) as reader:
            found = list[str]()
            while not reader.is_current:
                batch = reader.read(LIMIT_S)
                assert batch is not None
                found += batch.keys
            assert found == expected
        assert read_keys(settings, nats_bucket, prefixes=prefixes) == expected


def test_a_scan_has_the_current_values_without_deletes(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket, max_msgs_per_subject=5) as bucket:
        assert list(scan_bucket(settings, nats_bucket)) == []
        bucket.put([f"k{number}" for number in range(100)] * 2, b"1")
        bucket.put(["k1"], b"", DELETED)
        bucket.put(["k2"], b"", PURGED)
        bucket.put(["k3"], b"")
        bucket.put(["k4"], b"2")
        batch = UpdateBatch.concat(list(scan_bucket(settings, nats_bucket)))
        assert sorted(batch.keys) == sorted(f"k{number}" for number in range(100) if number not in (1, 2))
        assert batch.keys[-1] == "k4"
        assert (batch.kinds == UpdateKind.PUT).all()
        assert read_keys(settings, nats_bucket) == batch.keys


def test_a_stream_that_is_no_bucket_is_read_with_subjects_times_and_headers(
    settings: NatsSettings, nats_bucket: str
) -> None:
    before = time.time_ns()
    with filled_bucket(settings, nats_bucket) as filler:
        filler.stream, filler.prefix = f"S{nats_bucket}", f"{nats_bucket}."
        filler.create(max_msgs_per_subject=-1)
        block = format_headers([("A", "1"), ("A", "2")])
        filler.put(["x", "y"], b"plain")
        last = filler.put(["x"], b"with", block)
        plan = ReadPlan(stream=filler.stream, after=0, times=Times.ALL)
        with OrderedReader.open(settings, plan) as reader:
            rows: list[tuple[bytes, bytes, bytes, int]] = []
            while reader.position < last:
                delivered = reader.read(LIMIT_S)
                assert delivered is not None
                assert delivered.times_ns is not None
                headers = [b""] * len(delivered) if delivered.headers is None else delivered.headers.to_pylist()
                columns = (delivered.subjects.to_pylist(), delivered.payloads.to_pylist(), headers)
                rows += zip(*columns, delivered.times_ns.tolist(), strict=True)
        assert [row[:3] for row in rows] == [
            (f"{nats_bucket}.x".encode(), b"plain", b""),
            (f"{nats_bucket}.y".encode(), b"plain", b""),
            (f"{nats_bucket}.x".encode(), b"with", block),
        ]
        assert all(before < row[3] < time.time_ns() for row in rows)


def test_a_cursor_outside_of_the_stream_is_expired(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket, max_msgs_per_subject=8) as bucket:
        bucket.put([f"k{number}" for number in range(10)])
        bucket.purge(seq=5)
        for after, is_within in ((3, False), (4, True), (10, True), (11, False)):
            plan = ReadPlan(stream="", after=after)
            if is_within:
                BucketReader.open(settings, nats_bucket, plan).close()
                continue
            with pytest.raises(CursorExpired) as expired:
                BucketReader.open(settings, nats_bucket, plan)
            assert (expired.value.bucket, expired.value.revision) == (nats_bucket, after)
            assert (expired.value.first_revision, expired.value.last_revision) == (5, 10)


def test_a_bucket_that_is_not_there_and_a_plan_that_cannot_be(settings: NatsSettings) -> None:
    with pytest.raises(BucketNotFound, match="nowhere"):
        BucketReader.open(settings, "nowhere")
    with pytest.raises(StreamNotFound):
        stream_state(settings, "KV_nowhere")
    with pytest.raises(InvalidInput):
        ReadPlan(stream="s", filters=())
    with pytest.raises(InvalidInput):
        ReadPlan(stream="s", after=2**64 - 1)


def test_retention_is_that_of_the_stream(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket, max_age=3_600_000_000_000) as bucket:
        bucket.put(["a", "b", "a"])
        retention = retention_of(stream_state(settings, bucket.stream))
        assert (retention.first_revision, retention.last_revision) == (2, 3)
        assert retention.evicts_current_values
        assert retention.age_only
        assert retention.age_max_ns == 3_600_000_000_000
        assert len(retention.identity) == 8
        bucket.delete()
        bucket.create()
        again = retention_of(stream_state(settings, bucket.stream))
        assert again.identity != retention.identity
        assert not again.evicts_current_values
        assert (again.first_revision, again.last_revision) == (1, 0)


def test_a_reader_ends_when_another_thread_closes_it(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket), BucketReader.open(settings, nats_bucket) as reader:
        threading.Timer(0.1, reader.close).start()
        with pytest.raises(Closed):
            reader.read(LIMIT_S)
        with pytest.raises(Closed):
            reader.read(LIMIT_S)


def _read_in_child(reader: BucketReader, answers: "multiprocessing.SimpleQueue[str]") -> None:
    try:
        reader.read(1.0)
    except Closed as closed:
        answers.put(str(closed))
    reader.close()


def test_plans_travel_to_other_processes_and_readers_do_not(settings: NatsSettings, nats_bucket: str) -> None:
    plan = ReadPlan(stream="KV_b", after=7, identity=b"12345678")
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - our own
    with filled_bucket(settings, nats_bucket) as bucket, BucketReader.open(settings, nats_bucket) as reader:
        with pytest.raises(TypeError, match="pickle its settings"):
            pickle.dumps(reader)
        forked = multiprocessing.get_context("fork")
        answers = forked.SimpleQueue()
        child = forked.Process(target=_read_in_child, args=(reader, answers))
        child.start()
        child.join(LIMIT_S)
        assert "another process" in answers.get()
        last = bucket.put(["a"])
        assert read_until(reader, last).keys == ["a"]


def test_what_a_connection_asks_is_answered_or_refused_in_time(settings: NatsSettings) -> None:
    with NatsSocket.connect(settings) as connection:
        assert connection.flush() == []
        assert connection.info.jetstream
        reply = connection.request("$JS.API.INFO")
        assert b"account_info_response" in reply.payload


@pytest.mark.parametrize("overrun", Overrun)
@pytest.mark.parametrize("prefix", ["", "a."])
def test_a_reader_whose_last_messages_are_removed_before_they_are_sent_is_current(
    settings: NatsSettings, nats_bucket: str, prefix: str, overrun: Overrun
) -> None:
    with filled_bucket(settings, nats_bucket, storage="memory") as bucket:
        bucket.put([f"a.kept{number}" for number in range(5)])
        bucket.put([f"a.removed.{number}" for number in range(200)], b"v" * 200_000)
        plan = ReadPlan(stream="", overrun=overrun, backstop_s=2 * LIMIT_S)
        with BucketReader.open(settings, nats_bucket, plan, prefixes=[prefix]) as reader:
            assert reader.read(LIMIT_S) is not None
            bucket.purge(filter=f"{bucket.prefix}a.removed.>")
            began = time.monotonic()
            while not reader.is_current:
                assert time.monotonic() - began < LIMIT_S, "only the backstop tells it"
                reader.read(LIMIT_S)
            assert reader.pending == 0
            assert reader.position < 205
            assert reader.frontier == 205
            last = bucket.put(["a.next"])
            assert read_until(reader, last).keys == ["a.next"]


def test_a_scan_ends_if_the_last_values_are_removed_meanwhile(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket, storage="memory") as bucket:
        bucket.put(["kept"])
        bucket.put([f"removed.{number}" for number in range(200)], b"v" * 200_000)
        batches = scan_bucket(settings, nats_bucket)
        keys = next(batches).keys
        bucket.purge(filter=f"{bucket.prefix}removed.>")
        keys += [key for batch in batches for key in batch.keys]
        assert keys[0] == "kept"
        assert len(keys) < 201
