"""Columns of messages: what a bucket's headers say of their keys, and which times are asked for."""

import numpy as np
import pyarrow as pa
import pytest

from strandline.kv.nats.bucket_reader import kinds_of
from strandline.kv.nats.messages import kind_of_headers
from strandline.nats.deliveries import Delivered
from strandline.nats.streams import parse_header_values
from strandline.spark.streams.columns import COLUMNS, deadlines_of, project, times_for
from strandline.wire import Times

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    "line",
    [
        b"KV-Operation: DEL",
        b"KV-Operation: PURGE",
        b"KV-Operation: DELAYED",
        b"Nats-Marker-Reason: MaxAge",
        b"Nats-Marker-Reason: Purge",
        b"Nats-Marker-Reason: Remove",
        b"Nats-Marker-Reason: Moonlight",
        b"Nats-Marker-Reason: MaxAge\r\nKV-Operation: DEL",
        b"My-Header: 1",
    ],
)
def test_columns_and_single_messages_agree_about_what_happened_to_a_key(line: bytes) -> None:
    block = b"NATS/1.0\r\n" + line + b"\r\n\r\n"
    assert kinds_of(pa.array([block, b""], pa.binary()), 2).tolist() == [
        kind_of_headers(parse_header_values(block)),
        kind_of_headers({}),
    ]


def delivered_with(*blocks: bytes) -> Delivered:
    count = len(blocks)
    return Delivered(
        pa.array([b"$KV.b.k%d" % number for number in range(count)], pa.binary()),
        np.arange(1, count + 1, dtype=np.uint64),
        pa.array([b"v%d" % number for number in range(count)], pa.binary()),
        pa.array(blocks, pa.binary()) if any(blocks) else None,
        np.arange(count, dtype=np.int64) * SECOND_NS,
        0,
    )


def test_a_deadline_is_the_time_of_its_message_and_its_time_to_live() -> None:
    block = b"NATS/1.0\r\nNats-TTL: 60s\r\n\r\n"
    assert deadlines_of(delivered_with(b"", block, b"", block)).tolist() == [0, 61 * SECOND_NS, 0, 63 * SECOND_NS]
    assert deadlines_of(delivered_with(b"", b"")).tolist() == [0, 0]


def test_times_are_read_only_where_a_column_needs_them() -> None:
    columns = COLUMNS["bucket"]
    assert times_for(columns.chosen(["key", "value"])) is Times.NONE
    assert times_for(columns.chosen(["key", "expires"])) is Times.OF_HEADERS
    assert times_for(columns.chosen(["expires", "time"])) is Times.ALL


def test_rows_that_are_chosen_keep_their_columns_together() -> None:
    block = b"NATS/1.0\r\nA: 1\r\n\r\n"
    chosen = delivered_with(b"", block, b"").select(np.array([False, True, True]))
    table = project(chosen, COLUMNS["stream"].whole)
    assert table.column("sequence").to_pylist() == [2, 3]
    assert table.column("subject").to_pylist() == ["$KV.b.k1", "$KV.b.k2"]
    assert table.column("data").to_pylist() == [b"v1", b"v2"]
    assert table.column("headers").to_pylist() == [[("A", ["1"])], None]
    assert [time.timestamp() for time in table.column("time").to_pylist()] == [1, 2]
    assert project(chosen, COLUMNS["bucket"].chosen(["key"]), len("$KV.b.")).column(0).to_pylist() == ["k1", "k2"]
