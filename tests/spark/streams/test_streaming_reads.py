"""A streaming query's decisions on a real server: where it begins, goes on and refuses to."""

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from strandline.errors import FormatError, InvalidInput
from strandline.spark.logs.readers import LogStreamReader
from strandline.spark.streams import RecordsMissing, Target
from strandline.spark.streams.log import open_session
from strandline.spark.streams.pull_consumer import count_between, find_end
from tests.servers_nats import NatsServer, running_nats
from tests.spark.streams.helpers import ServerLog, batch_options, column_of, stream_reader

LOTS = ReadMaxRows(1000)


def step(reader: LogStreamReader, start: dict[str, Any], rows: int = 1000) -> tuple[dict[str, Any], list[int]]:
    """Plan a batch and read it."""
    end = reader.latestOffset(start, ReadMaxRows(rows))
    return end, column_of(reader, reader.partitions(start, end), "sequence")


def at(world: ServerLog, sequence: int | str) -> dict[str, Any]:
    return {"stream": world.name, "created": world.state().created, "sequence": sequence}


def test_a_query_begins_with_a_constant_and_reads_on_as_the_stream_grows(stream: ServerLog) -> None:
    stream.fill(250)
    reader = stream_reader(stream, maxRecordsPerTrigger=100)
    start = reader.initialOffset()
    assert start == at(stream, "earliest")
    assert reader.getDefaultReadLimit().max_rows == 100  # type: ignore[attr-defined]
    end, rows = step(reader, start, 100)
    assert (end, rows) == (at(stream, 101), list(range(1, 101)))
    end, rows = step(reader, end)
    assert (end, rows) == (at(stream, 251), list(range(101, 251)))
    assert reader.latestOffset(end, LOTS) == end, "nothing new"
    stream.fill(10)
    assert reader.initialOffset() == start, "T2: the same, whatever happened meanwhile"
    assert step(reader, end) == (at(stream, 261), list(range(251, 261)))
    assert reader.latestOffset(start, ReadAllAvailable()) == at(stream, 261)
    assert reader.reportLatestOffset() == at(stream, 261)
    reader.stop()


def test_t2_a_first_batch_that_is_replayed_after_growth_has_the_same_range(stream: ServerLog) -> None:
    stream.fill(50)
    reader = stream_reader(stream, startingOffset=20)
    start = reader.initialOffset()
    end, rows = step(reader, start)
    stream.fill(50)
    again = stream_reader(stream, startingOffset=20)
    assert again.initialOffset() == start
    assert column_of(again, again.partitions(start, end), "sequence") == rows == list(range(20, 51))
    reader.stop()
    again.stop()


def test_a_query_can_begin_with_a_time(stream: ServerLog) -> None:
    reader = stream_reader(stream, startingTimestamp="2026-01-01T00:00:00Z")
    with pytest.raises(InvalidInput, match="no record was stored at startingTimestamp") as refusal:
        reader.initialOffset()
    assert "startingOffset 1" in str(refusal.value.hint)
    stream.fill(5)
    assert reader.initialOffset() == at(stream, "earliest")
    reader.stop()


def test_an_available_now_run_ends_where_it_was_when_it_began(stream: ServerLog) -> None:
    stream.fill(30)
    reader = stream_reader(stream)
    reader.prepareForTriggerAvailableNow()
    stream.fill(30)
    end, rows = step(reader, reader.initialOffset())
    assert (end, rows) == (at(stream, 31), list(range(1, 31)))
    assert reader.latestOffset(end, LOTS) == end
    reader.stop()


def test_t3_a_stream_that_was_made_again_is_refused_even_where_it_is_longer(stream: ServerLog) -> None:
    stream.fill(20)
    reader = stream_reader(stream)
    end, _ = step(reader, reader.initialOffset())
    stream.make_again()
    stream.fill(50)
    with pytest.raises(RecordsMissing, match="it was made again"):
        reader.latestOffset(end, LOTS)
    with pytest.raises(RecordsMissing, match="made again"):
        reader.partitions(end, {**end, "sequence": 40})
    allowed = stream_reader(stream, failOnDataLoss="false")
    assert step(allowed, end) == (at(stream, 51), list(range(1, 51)))
    reader.stop()
    allowed.stop()


def test_a_stream_that_was_trimmed_past_the_position_is_refused(stream: ServerLog) -> None:
    stream.fill(100)
    reader = stream_reader(stream)
    end, _ = step(reader, reader.initialOffset(), 10)
    stream.purge(below=11)
    assert reader.latestOffset(end, ReadMaxRows(5)) == at(stream, 16), "just what was read is gone"
    stream.purge(below=21)
    with pytest.raises(RecordsMissing, match=r"sequences \[11, 21\) were removed"):
        reader.latestOffset(end, LOTS)
    with pytest.raises(RecordsMissing, match="would have to begin at 21"):
        reader.partitions(at(stream, "earliest"), at(stream, 16))
    allowed = stream_reader(stream, failOnDataLoss="false")
    assert step(allowed, end)[1] == list(range(21, 101))
    reader.stop()
    allowed.stop()


def test_a_stream_that_shrank_is_refused(nats_bucket: str) -> None:
    """A server restored from an older copy has the stream that was made at the same time, with fewer messages."""
    with running_nats() as server, ServerLog(server.url, Target("stream", nats_bucket)) as world:
        world.fill(10)
        reader = stream_reader(world)
        beyond = at(world, 50)
        with pytest.raises(RecordsMissing, match="it ends at 11, before the 50 that was read already"):
            reader.latestOffset(beyond, LOTS)
        reader.stop()


def test_a_stream_with_few_messages_left_is_read_in_few_batches(nats_server: NatsServer, nats_bucket: str) -> None:
    with ServerLog(nats_server.url, Target("bucket", nats_bucket)) as world:
        world.publish("cold", b"v")
        world.fill(20_000, subjects=40)
        reader = stream_reader(world)
        position, batches = reader.initialOffset(), []
        while (end := reader.latestOffset(position, ReadMaxRows(20))) != position:
            batches.append(column_of(reader, reader.partitions(position, end), "revision"))
            position = end
        assert sum(map(len, batches)) == 41
        assert max(map(len, batches)) <= 20
        assert len(batches) <= 4, "not one for each twenty revisions"
        reader.stop()


def test_counts_are_exact_also_with_filters(stream: ServerLog) -> None:
    stream.fill(1000)
    for sequence in range(101, 201):
        stream.delete_message(sequence)
    with open_session(batch_options(stream)) as session:
        assert count_between(session, 1, 1001) == 900
        assert count_between(session, 51, 301) == 150
        one = (f"{stream.name}.k1",)
        assert count_between(session, 1, 101, one) == 10
        end = find_end(session, 1, 1001, 30, one)
        assert 20 <= count_between(session, 1, end, one) <= 30
        assert find_end(session, 1, 1001, 5000) == 1001
        assert stream.has_no_consumers()


def test_a_position_of_a_journal_is_refused(stream: ServerLog) -> None:
    reader = stream_reader(stream)
    with pytest.raises(FormatError, match="not a position in a stream"):
        reader.latestOffset({"journal": "00" * 16, "offset": 3}, LOTS)


def test_a_reader_with_an_open_connection_pickles_and_reads_elsewhere(stream: ServerLog) -> None:
    stream.fill(10)
    reader = stream_reader(stream)
    start = reader.initialOffset()
    end = reader.latestOffset(start, LOTS)
    copy, parts = pickle.loads(pickle.dumps((reader, reader.partitions(start, end))))  # noqa: S301 - our own
    assert column_of(copy, parts, "sequence") == list(range(1, 11))
    reader.stop()


def test_a_server_that_was_restarted_between_batches_is_connected_to_again(nats_bucket: str) -> None:
    with running_nats() as server, ServerLog(server.url, Target("stream", nats_bucket)) as world:
        world.fill(10)
        reader = stream_reader(world)
        end, _ = step(reader, reader.initialOffset())
        server.restart()
        assert reader.latestOffset(end, LOTS) == end
        reader.stop()
