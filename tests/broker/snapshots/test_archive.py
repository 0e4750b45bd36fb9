"""The archive in a snapshot: what is written is read back, and nats-server's is read too."""

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig
from strandline.broker.consumers.state import SavedPosition
from strandline.broker.snapshots.archive import (
    BATCH,
    END,
    ENTRY_MAX,
    MAGIC,
    Archived,
    ArchiveReader,
    BadArchive,
    format_entry,
    format_messages,
    format_uvarint,
)
from strandline.broker.snapshots.archived_consumer import format_saved, parse_saved
from strandline.broker.snapshots.s2 import S2Reader
from strandline.broker.streams import Messages
from tests.broker.snapshots.recorded import REAL

SECOND = 1_000_000_000
ENTRIES = st.builds(
    Archived,
    st.binary(min_size=1, max_size=20),
    st.integers(-(2**62), 2**62),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=20),
    st.binary(max_size=300),
)


def _fed(reader: ArchiveReader, data: bytes) -> list[Archived]:
    return [entry for entries in reader.feed(data) for entry in entries]


@given(st.lists(ENTRIES, max_size=6), st.integers(1, 400))
def test_what_is_written_is_read_in_whatever_pieces_it_comes(entries: list[Archived], step: int) -> None:
    data = MAGIC + b"".join(map(format_entry, entries)) + END
    reader = ArchiveReader(1000)
    found = [entry for at in range(0, len(data), step) for entry in _fed(reader, data[at : at + step])]
    reader.close()
    assert found == entries


@given(st.lists(ENTRIES.filter(lambda entry: entry.sequence), max_size=6))
def test_many_messages_are_written_as_each_of_them_is(entries: list[Archived]) -> None:
    messages = Messages(
        np.array([entry.sequence for entry in entries], np.uint64),
        np.array([entry.time_ns for entry in entries], np.int64),
        np.zeros(len(entries), np.uint32),
        [entry.name for entry in entries],
        [entry.headers for entry in entries],
        [entry.payload for entry in entries],
    )
    assert format_messages(messages) == b"".join(map(format_entry, entries))


def test_what_nats_server_wrote_is_read() -> None:
    packed, reader = S2Reader(), ArchiveReader(1 << 20)
    found = [entry for part in packed.feed(REAL) for entry in _fed(reader, part)]
    reader.close()
    assert [entry.name for entry in found[:2]] == [b"state.json", b"consumers/c"]
    messages = {entry.sequence: entry for entry in found[2:]}
    assert sorted(messages) == [*range(1, 5), *range(6, 24)]
    assert messages[1].headers == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert messages[20][:1] + messages[20][3:] == (b"s.1", b"", b"hello hello hello hello 19")
    config, where = parse_saved(found[1].payload)
    assert config.durable_name == "c"
    assert where.delivered == (7, 7)
    assert where.floor == (1, 1)
    assert {sequence: (part[0], part[2]) for sequence, part in where.pending.items()} == {
        2: (2, 1),
        4: (4, 2),
        6: (5, 1),
        7: (6, 1),
    }


def test_a_consumer_is_read_back_as_it_was_written() -> None:
    config = ConsumerConfig(name="C", ack_policy=AckPolicy.EXPLICIT, ack_wait=5 * SECOND)
    where = SavedPosition((9, 12), (3, 4), {5: (4, 100 * SECOND, 1), 7: (9, 101 * SECOND, 3)})
    assert parse_saved(format_saved(config, where)) == (config, where)


def _consumer(**state: object) -> bytes:
    return json.dumps({"config": {"durable_name": "C"}, "state": state}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'{"config":5}',
        b'{"config":{},"state":{"pending":[1]}}',
        b'{"config":{},"state":{"delivered":{"stream_seq":1e999}}}',
        _consumer(delivered={"consumer_seq": 1, "stream_seq": 2**70}),
        _consumer(ack_floor={"consumer_seq": -5, "stream_seq": 1}),
        _consumer(pending={"-1": {"Sequence": 1, "Timestamp": 1}}),
        _consumer(pending={"1": {"Sequence": 2**65, "Timestamp": 1}}),
        _consumer(pending={"1": {"Sequence": 1, "Timestamp": 1}}, redelivered={"1": 2**70}),
    ],
)
def test_a_consumer_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(BadArchive):
        parse_saved(data)


def test_times_and_counts_of_a_consumer_are_brought_within_bounds() -> None:
    pending = {"1": {"Sequence": 1, "Timestamp": 2**70}, "2": {"Sequence": 2, "Timestamp": -(2**70)}}
    where = parse_saved(_consumer(pending=pending, redelivered={"1": 2**40}))[1]
    assert where.pending == {1: (1, 2**62, 2**31), 2: (2, 0, 1)}


def test_what_is_no_archive_is_refused() -> None:
    for data, problem in (
        (b"meta.inf\x00\x00\x00\x00\x00\x00", "unknown snapshot format"),
        (MAGIC + b"\xff" * 11, "too large"),
        (MAGIC + b"\xff\xff\xff\xff\x7f\x00\x01\x00\x00", "too large"),
    ):
        with pytest.raises(BadArchive, match=problem):
            _fed(ArchiveReader(1 << 20), data)
    reader = ArchiveReader(1 << 20)
    _fed(reader, MAGIC)
    with pytest.raises(BadArchive, match="EOF"):
        reader.close()


def test_nothing_may_follow_the_end() -> None:
    with pytest.raises(BadArchive, match="after the end"):
        _fed(ArchiveReader(1000), MAGIC + END + b"\x00")
    reader = ArchiveReader(1000)
    assert _fed(reader, MAGIC + END) == _fed(reader, b"") == []
    with pytest.raises(BadArchive, match="after the end"):
        _fed(reader, b"x")


def test_an_entry_is_refused_as_soon_as_it_claims_too_much() -> None:
    for sequence, limit in ((1, 1000), (0, ENTRY_MAX)):
        head = format_entry(Archived(b"a", 0, sequence, b"", b""))[:4]
        assert _fed(ArchiveReader(1000), MAGIC + head + format_uvarint(limit - 1) + b"a") == []
        with pytest.raises(BadArchive, match="too large"):
            _fed(ArchiveReader(1000), MAGIC + head + format_uvarint(limit))


def test_many_entries_are_read_in_steps() -> None:
    data = MAGIC + format_entry(Archived(b"a", 0, 1, b"", b"")) * (2 * BATCH + 1)
    assert [len(entries) for entries in ArchiveReader(1000).feed(data)] == [BATCH, BATCH, 1]


def test_a_large_entry_in_small_pieces_is_not_copied_for_each_of_them() -> None:
    reader = ArchiveReader(1000)
    data = MAGIC + format_entry(Archived(b"state.json", 0, 0, b"", bytes(ENTRY_MAX - 10)))
    start = time.thread_time()
    found = [entry for at in range(0, len(data), 500) for entry in _fed(reader, data[at : at + 500])]
    assert time.thread_time() - start < 5  # a copy for each of them takes twice as long
    assert [len(entry.payload) for entry in found] == [ENTRY_MAX - 10]
