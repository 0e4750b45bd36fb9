"""Streams with three replicas whose leader is killed: a range goes on, and a commit that fails is finished, once."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.errors import StrandlineError
from strandline.spark.logs.ranges import resolve_range
from strandline.spark.sink import Commit, commit_rows, stage
from strandline.spark.streams import Target, read_stream
from strandline.spark.streams import publisher as publisher_module
from strandline.spark.streams.log import StreamLog, open_session, read_messages
from strandline.spark.streams.options import parse_publish_options
from strandline.spark.streams.publisher import Publisher
from strandline.spark.streams.sink import StreamSink
from tests.servers_nats import NatsCluster
from tests.spark.streams.helpers import ServerLog, batch_options

pytestmark = pytest.mark.long
COUNT = 20_000


@pytest.fixture
def replicated(nats_cluster: NatsCluster, nats_bucket: str) -> Iterator[ServerLog]:
    with ServerLog(",".join(nats_cluster.urls), Target("stream", nats_bucket), num_replicas=3) as world:
        yield world


def values_of(world: ServerLog) -> Sequence[bytes]:
    batches = read_stream(world.settings, world.target, ["data"])
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def test_a_range_goes_on_when_the_leader_is_killed(nats_cluster: NatsCluster, replicated: ServerLog) -> None:
    replicated.fill(COUNT)
    options = batch_options(replicated)
    with open_session(options) as session:
        wanted = resolve_range(StreamLog(session, options), options)
    messages = read_messages(options, wanted)
    sequences = next(messages).sequences.tolist()
    nats_cluster.leader_of(replicated.name).kill()
    for delivered in messages:
        sequences += delivered.sequences.tolist()
    assert sequences == list(range(1, COUNT + 1))


def test_a_commit_whose_leader_is_killed_is_finished_and_each_row_is_there_once(
    nats_cluster: NatsCluster, replicated: ServerLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "WINDOW_ROWS", 500)
    options = parse_publish_options({**replicated.options, "checkpointLocation": "/none"}, "stream", is_stream=True)
    values = [b"%d" % number for number in range(COUNT)]
    rows = pa.RecordBatch.from_pydict({"subject": [f"{replicated.name}.x"] * COUNT, "data": values})
    sink = StreamSink(options)
    staged = [stage(tmp_path, [rows], sink.staged_schema(rows.schema), sink.convert)]
    send, windows = Publisher.send, []

    def sending(publisher: Publisher, frames: bytes, count: int) -> None:
        windows.append(count)
        if len(windows) == 10:
            threading.Thread(target=nats_cluster.leader_of(replicated.name).kill).start()
        send(publisher, frames, count)

    monkeypatch.setattr(Publisher, "send", sending)
    give_up = time.monotonic() + 90
    while True:
        try:
            commit_rows(sink, Commit("query/one", 0), staged)
            break
        except StrandlineError:
            assert time.monotonic() < give_up
            time.sleep(0.2)
    assert sorted(values_of(replicated), key=int) == values
