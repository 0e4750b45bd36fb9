"""The range reader on a real server: every message of a range, in order, once, or an error that says why."""

import pickle
import threading
import time

import pytest

from strandline.errors import InvalidInput
from strandline.nats.deliveries import Delivered, Taken, take_messages
from strandline.nats.errors import AccessRefused, Unreachable
from strandline.nats.settings import DEFAULT_INBOX, NatsSettings
from strandline.nats.socket import NatsSocket
from strandline.spark.logs.ranges import resolve_range, split_range
from strandline.spark.streams import RecordsMissing, Target, pull_consumer, read_stream
from strandline.spark.streams.columns import COLUMNS
from strandline.spark.streams.log import (
    ROWS_PER_PART,
    StreamLog,
    StreamRange,
    StreamSource,
    open_session,
    read_messages,
)
from strandline.spark.streams.options import Kind
from strandline.spark.streams.pull_consumer import ConsumerLost, check_order
from strandline.wire import Ack, FrameParser, Side, Times, format_ack, format_msg, format_pub
from tests.identities_nats import USER, USER_INFO
from tests.servers_nats import NatsServer, running_nats
from tests.spark.streams.helpers import ServerLog, batch_options, batch_reader, column_of, numbered, rows_of
from tests.waiting import PATIENCE_S


def plan(world: ServerLog, **options: object) -> StreamRange:
    wanted = batch_options(world, **options)
    with open_session(wanted) as session:
        return resolve_range(StreamLog(session, wanted), wanted)


def subjects_of(delivered: Delivered) -> list[str]:
    return [subject.decode() for subject in delivered.subjects.to_pylist()]


def read(world: ServerLog, wanted: StreamRange | None = None, **options: object) -> list[int]:
    parsed = batch_options(world, **options)
    name = "sequence" if world.target.kind == "stream" else "revision"
    schema = COLUMNS[world.target.kind].chosen([name])
    batches = StreamSource(parsed).read(wanted or plan(world, **options), schema)
    return [sequence for batch in batches for sequence in batch.column(0).to_pylist()]


def test_all_doors_yield_the_same_rows(stream: ServerLog) -> None:
    stream.fill(5000)
    reader = batch_reader(stream, partitions=3, rowsPerBatch=100)
    parts = reader.partitions()
    assert len(parts) == 2, "a part is not much shorter than two thousand messages"
    table = rows_of(reader, parts)
    assert table["sequence"].to_pylist() == list(range(1, 5001))
    assert table["data"].to_pylist() == numbered(1, 5001)
    assert table["subject"][41].as_py() == f"{stream.name}.k2"
    plain = list(read_stream(stream.settings, stream.target, ["data"], rows_per_batch=100))
    assert [value for batch in plain for value in batch.column(0).to_pylist()] == numbered(1, 5001)
    assert max(batch.num_rows for batch in plain) == 100


def test_a_range_has_a_start_and_an_exclusive_end(stream: ServerLog) -> None:
    stream.fill(100)
    assert read(stream, startingOffset=10, endingOffset=15) == [10, 11, 12, 13, 14]
    assert read(stream, startingOffset=0, endingOffset=2) == [1]
    assert read(stream, startingOffset=101) == []
    with pytest.raises(InvalidInput, match="beyond the end, 101"):
        read(stream, startingOffset=102)


def test_a_range_can_begin_and_end_by_time(stream: ServerLog) -> None:
    stream.fill(10)
    table = rows_of(batch_reader(stream), batch_reader(stream).partitions())
    times = [time.isoformat() for time in table["time"].to_pylist()]
    assert read(stream, startingTimestamp=times[4], endingTimestamp="2100-01-01T00:00:00Z")[0] in (4, 5)
    assert read(stream, startingTimestamp="2100-01-01T00:00:00Z") == []
    assert read(stream, startingTimestamp="2001-01-01T00:00:00Z") == list(range(1, 11))


def test_deleted_messages_leave_gaps_and_nothing_hangs(stream: ServerLog, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.fill(100)
    for sequence in (1, 2, 50, *range(91, 101)):
        stream.delete_message(sequence)
    monkeypatch.setattr(pull_consumer, "QUIET_S", 2 * PATIENCE_S)
    began = time.monotonic()
    assert read(stream) == [*range(3, 50), *range(51, 91)]
    assert read(stream, startingOffset=91) == []
    assert read(stream, startingOffset=50, endingOffset=51) == []
    assert read(stream, startingOffset=45, endingOffset=51) == list(range(45, 50))
    assert time.monotonic() - began < PATIENCE_S, "the end of a range is known without waiting"


def test_a_range_whose_messages_are_deleted_while_it_is_read_ends(
    stream: ServerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that was counted as pending and is deleted then never comes: the consumer is asked."""
    monkeypatch.setattr(pull_consumer, "QUIET_S", 0.1)
    monkeypatch.setattr(pull_consumer, "FETCH_MESSAGES", 10)
    stream.fill(50)
    wanted = plan(stream)
    messages = read_messages(batch_options(stream), wanted)
    first = next(messages)
    for sequence in range(41, 51):
        stream.delete_message(sequence)
    came = len(first) + sum(len(rest) for rest in messages)
    assert came in (40, 50), "those that were on their way may come"


def test_subjects_are_filtered_by_the_server(stream: ServerLog) -> None:
    stream.fill(100)
    assert read(stream, subjects=f"{stream.name}.k1, {stream.name}.k2") == [
        number for number in range(1, 101) if number % 10 in (1, 2)
    ]
    assert read(stream, subjects=f"{stream.name}.nobody") == []


def test_headers_large_values_and_empty_ones_come_as_they_are(stream: ServerLog) -> None:
    stream.publish("a", b"")
    stream.publish("b", b"x" * 1_000_000, [("Nats-Msg-Id", "7"), ("Two", "1"), ("Two", "2")])
    stream.publish("c", b"\r\nMSG a 1 1\r\n\x00\xff")
    table = rows_of(batch_reader(stream), batch_reader(stream).partitions())
    assert [len(data) for data in table["data"].to_pylist()] == [0, 1_000_000, 15]
    assert table["headers"].to_pylist() == [None, [("Nats-Msg-Id", ["7"]), ("Two", ["1", "2"])], None]


def test_many_values_of_a_mebibyte_are_read_within_bounded_requests(stream: ServerLog) -> None:
    for _ in range(30):
        stream.publish("large", b"y" * 1_000_000)
    sizes = [batch.num_rows for batch in read_stream(stream.settings, stream.target, ["sequence", "data"])]
    assert sum(sizes) == 30
    assert max(sizes) <= 8, "a batch has at most eight mebibytes"


def test_messages_that_are_evicted_before_they_are_read_are_told(stream: ServerLog) -> None:
    stream.fill(100)
    wanted = plan(stream)
    stream.purge(below=31)
    with pytest.raises(RecordsMissing, match="sequences from 1 on were removed before they were read: it begins at 31"):
        read(stream, wanted)
    assert read(stream, wanted, failOnDataLoss="false") == list(range(31, 101))


def test_messages_that_are_evicted_after_they_were_read_are_no_loss(stream: ServerLog) -> None:
    stream.fill(100)
    messages = read_messages(batch_options(stream), plan(stream))
    came = 0
    while came < 100:
        came += len(next(messages))
    stream.purge(below=31)
    assert list(messages) == []


def test_a_purge_in_the_middle_of_a_query_is_told(stream: ServerLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_consumer, "FETCH_MESSAGES", 10)
    monkeypatch.setattr(pull_consumer, "QUIET_S", 0.1)
    stream.fill(100)
    messages = read_messages(batch_options(stream), plan(stream))
    next(messages)
    stream.purge()
    with pytest.raises(RecordsMissing, match="removed before they were read"):
        list(messages)


def test_a_stream_that_is_made_again_in_the_middle_of_a_query_is_told(stream: ServerLog) -> None:
    stream.fill(100)
    wanted = plan(stream)
    stream.make_again()
    stream.fill(100)
    for allowed in ("true", "false"):
        with pytest.raises(RecordsMissing, match="made again"):
            read(stream, wanted, failOnDataLoss=allowed)


def test_a_start_that_was_trimmed_is_refused_unless_loss_is_allowed(stream: ServerLog) -> None:
    stream.fill(100)
    stream.purge(below=11)
    assert read(stream) == list(range(11, 101)), "earliest is where it begins now"
    with pytest.raises(RecordsMissing, match=r"sequences \[5, 11\) were removed"):
        read(stream, startingOffset=5)
    assert read(stream, startingOffset=5, failOnDataLoss="false") == list(range(11, 101))


def test_a_lost_connection_is_made_again_and_the_range_goes_on(nats_bucket: str) -> None:
    with running_nats() as server, ServerLog(server.url, Target("stream", nats_bucket)) as world:
        world.fill(40_000)
        messages = read_messages(batch_options(world), plan(world))
        came = [next(messages)]
        server.restart(kill=True)
        came += list(messages)
        sequences = [number for delivered in came for number in delivered.sequences.tolist()]
        assert sequences == list(range(1, 40_001))


def test_a_consumer_that_is_deleted_is_made_again(stream: ServerLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_consumer, "FETCH_MESSAGES", 100)
    monkeypatch.setattr(pull_consumer, "QUIET_S", 0.1)
    stream.fill(5000)
    messages = read_messages(batch_options(stream), plan(stream))
    came = [next(messages)]
    (consumer,) = stream.ask(f"CONSUMER.NAMES.{stream.name}")["consumers"]
    stream.ask(f"CONSUMER.DELETE.{stream.name}.{consumer}")
    came += list(messages)
    assert [number for delivered in came for number in delivered.sequences.tolist()] == list(range(1, 5001))


def test_messages_that_a_consumer_skips_are_noticed() -> None:
    def taken(*numbers: int) -> Taken:
        acks = (Ack(1, number, number, 1, 1) for number in numbers)
        frames = b"".join(format_msg(b"a", 1, b"", format_ack("s", "c", ack).encode()) for ack in acks)
        return take_messages(FrameParser(Side.SERVER).feed(frames), b"", times=Times.NONE)

    check_order(taken(4, 5, 6), 3)
    for wrong in (taken(5, 6), taken(4, 6), taken(4, 4), taken(3, 4)):
        with pytest.raises(ConsumerLost, match="did not come in order"):
            check_order(wrong, 3)


def test_what_is_neither_a_message_of_the_stream_nor_the_end_of_a_request_ends_the_consumer(
    stream: ServerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.fill(100)
    inboxes: list[str] = []
    subscribe = NatsSocket.subscribe

    def noted(connection: NatsSocket, subject: str) -> int:
        inboxes.append(subject)
        return subscribe(connection, subject)

    monkeypatch.setattr(NatsSocket, "subscribe", noted)
    monkeypatch.setattr(pull_consumer, "FETCH_MESSAGES", 10)
    messages = read_messages(batch_options(stream), plan(stream))
    sequences = next(messages).sequences.tolist()
    with NatsSocket.connect(stream.settings) as other:
        other.send(format_pub(inboxes[-1].replace("*", "1").encode(), b"", b"no.ack"))
        other.flush()
    for delivered in messages:
        sequences += delivered.sequences.tolist()
    assert sequences == list(range(1, 101))
    assert len([inbox for inbox in inboxes if inbox.startswith(f"{DEFAULT_INBOX}.")]) > 3, "another consumer went on"


def test_a_reader_leaves_no_consumer_behind(stream: ServerLog) -> None:
    stream.fill(100)
    read(stream)
    messages = read_messages(batch_options(stream), plan(stream))
    next(messages)
    messages.close()  # type: ignore[attr-defined]
    assert stream.has_no_consumers()


def test_a_stream_that_is_not_kept_by_limits_is_refused(nats_server: NatsServer, nats_bucket: str) -> None:
    with ServerLog(nats_server.url, Target("stream", nats_bucket), retention="workqueue") as world:
        world.fill(10)
        with pytest.raises(InvalidInput, match="kept by workqueue"):
            read(world)
        assert world.state().messages == 10


def test_a_missing_stream_a_missing_server_and_wrong_credentials_are_told_apart(stream: ServerLog) -> None:
    with pytest.raises(InvalidInput, match="there is no stream nobody"):
        list(read_stream(stream.settings, Target("stream", "nobody")))
    with pytest.raises(InvalidInput, match="there is no bucket nobody"):
        list(read_stream(stream.settings, Target("bucket", "nobody")))
    nowhere = NatsSettings("nats://127.0.0.1:1", timeout_s=1)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        list(read_stream(nowhere, stream.target))
    with running_nats(USER) as server:
        with pytest.raises(AccessRefused) as refusal:
            list(read_stream(NatsSettings(server.url_with("zebra:crossing")), stream.target))
        assert "crossing" not in str(refusal.value)
        with ServerLog(server.url_with(USER_INFO), Target("stream", "mine")) as world:
            world.fill(3)
            assert read(world) == [1, 2, 3]


def test_latest_values_are_one_row_for_each_key_that_has_one(bucket: ServerLog) -> None:
    bucket.fill(100)
    bucket.take_away("k3")
    bucket.take_away("k4", purge=True)
    bucket.publish("k5", b"")
    bucket.publish("k6", b"new")
    reader = batch_reader(bucket)
    table = rows_of(reader, reader.partitions())
    values = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert values == {
        **{f"k{number % 10}": b"value %d" % number for number in (91, 92, 97, 98, 99, 100)},
        "k5": b"",
        "k6": b"new",
    }
    assert set(table["kind"].to_pylist()) == {"put"}


def test_changes_of_a_bucket_are_all_that_it_keeps(nats_server: NatsServer, nats_bucket: str) -> None:
    with ServerLog(nats_server.url, Target("bucket", nats_bucket), max_msgs_per_subject=5) as world:
        world.fill(30)
        world.take_away("k3")
        world.publish("k5", b"")
        world.take_away("k4", purge=True)
        reader = batch_reader(world, view="changes")
        table = rows_of(reader, reader.partitions())
    last = list(zip(*(table[name].to_pylist() for name in ("key", "revision", "kind", "value")), strict=True))[-3:]
    assert last == [("k3", 31, "delete", None), ("k5", 32, "put", b""), ("k4", 33, "purge", None)]
    assert table.num_rows == 30 + 3 - 3, "a purge takes the history of its key"


def test_prefixes_of_a_bucket_are_filtered_by_the_server(bucket: ServerLog) -> None:
    for key in ("a.1", "a.2", "b.1", "ab.1"):
        bucket.publish(key, b"v")
    reader = batch_reader(bucket, prefix="a., b.")
    assert column_of(reader, reader.partitions(), "key") == ["a.1", "a.2", "b.1"]
    with pytest.raises(InvalidInput, match="option prefix cannot be"):
        batch_reader(bucket, prefix="a")


def test_a_bucket_that_is_written_while_its_values_are_read_misses_no_key_and_repeats_none(
    bucket: ServerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_consumer, "FETCH_MESSAGES", 50)
    bucket.fill(500, subjects=500)
    messages = read_messages(batch_options(bucket), plan(bucket))
    keys = subjects_of(next(messages))
    bucket.fill(400, subjects=400)
    bucket.publish("another", b"one")
    for delivered in messages:
        keys += subjects_of(delivered)
    names = [key.rpartition(".")[2] for key in keys]
    assert len(names) == len(set(names)), "no key comes twice"
    assert {f"k{number}" for number in range(500)} <= set(names), "a key that moved on is not missed"


def test_keys_that_are_purged_while_values_are_read_are_told(
    bucket: ServerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_consumer, "FETCH_MESSAGES", 50)
    monkeypatch.setattr(pull_consumer, "QUIET_S", 0.1)
    for allowed in ("true", "false"):
        bucket.fill(500, subjects=500)
        messages = read_messages(batch_options(bucket, failOnDataLoss=allowed), plan(bucket))
        next(messages)
        bucket.purge()
        if allowed == "true":
            with pytest.raises(RecordsMissing, match="keys were purged before they were read"):
                list(messages)
        else:
            list(messages)


def test_a_bucket_that_is_made_again_while_values_are_read_is_told(bucket: ServerLog) -> None:
    bucket.fill(100)
    wanted = plan(bucket)
    bucket.make_again()
    bucket.fill(100)
    with pytest.raises(RecordsMissing, match="made again"):
        read(bucket, wanted)


def test_a_mirror_of_a_bucket_has_the_keys_of_its_origin(bucket: ServerLog, nats_server: NatsServer) -> None:
    bucket.fill(20)
    copy = Target("bucket", f"{bucket.target.name}-m")
    mirror = {"mirror": {"name": bucket.name}, "subjects": None, "discard": "old"}
    with ServerLog(nats_server.url, copy, **mirror) as world:
        while world.state().last < 20:
            time.sleep(0.01)
        reader = batch_reader(world, prefix="")
        assert sorted(column_of(reader, reader.partitions(), "key")) == [f"k{number}" for number in range(10)]
        reader = batch_reader(world, view="changes")
        assert column_of(reader, reader.partitions(), "revision") == list(range(11, 21))


def test_a_range_is_cut_into_contiguous_parts() -> None:
    name = ("S", "t")
    parts = split_range(StreamRange(name, 1, 10_001, prefix="p."), 4, ROWS_PER_PART)
    assert [(part.start, part.stop) for part in parts] == [(1, 2501), (2501, 5001), (5001, 7501), (7501, 10_001)]
    assert {part.prefix for part in parts} == {"p."}
    assert split_range(StreamRange(name, 5, 5), 4, ROWS_PER_PART) == []
    assert [(part.start, part.stop) for part in split_range(StreamRange(name, 1, 3), 4, ROWS_PER_PART)] == [(1, 3)]
    latest = StreamRange(name, 1, 10_001, "latest")
    assert split_range(latest, 4, ROWS_PER_PART) == [latest]


def test_errors_and_options_pickle_and_options_show_no_secret(stream: ServerLog) -> None:
    options = batch_options(stream, userSecret="zebra:crossing", startingOffset=3)
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own
    assert "crossing" not in repr(options)
    assert str(pickle.loads(pickle.dumps(ConsumerLost("x")))) == str(ConsumerLost("x"))  # noqa: S301


def test_a_read_while_messages_arrive_ends_at_the_end_that_was_planned(stream: ServerLog) -> None:
    stream.fill(20_000)
    wanted = plan(stream)
    stop = threading.Event()

    def write() -> None:
        with stream.another() as world:
            while not stop.is_set():
                world.fill(500)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read(stream, wanted) == list(range(1, 20_001))
    finally:
        stop.set()
        thread.join()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["stream", "bucket"])
def test_a_reader_that_pauses_for_longer_than_a_server_waits_goes_on(
    nats_server: NatsServer, nats_bucket: str, kind: Kind
) -> None:
    """A task waits for Java, which sorts; a server gives a client up that takes nothing for ten seconds."""
    with ServerLog(nats_server.url, Target(kind, nats_bucket)) as world:
        for number in range(80):
            world.publish(f"k{number}", b"y" * 1_000_000)
        messages = read_messages(batch_options(world), plan(world))
        came = len(next(messages))
        time.sleep(15)
        assert came + sum(len(delivered) for delivered in messages) == 80
