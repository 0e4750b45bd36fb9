"""Deliveries found in one pass are what the frame-by-frame parser says, whatever the buffer holds."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.wire import (
    Ack,
    ProtocolViolation,
    Side,
    Times,
    WireLimits,
    deliveries,
    find_deliveries,
    format_ack,
    format_headers,
    format_msg,
    parse_ack,
)
from strandline.wire.lines import Row, parse_frame
from tests.effort import examples

LIMITS = WireLimits(1 << 16, 4096)
PREFIX = b"$KV.b."
DELETED = format_headers([("KV-Operation", "DEL")])
IDLE = format_headers([("Nats-Last-Consumer", "3")], status=100, description="Idle Heartbeat")
FAKE = b"\r\nMSG $KV.b.fake 1 $JS.ACK.KV_b.c0ffee.1.9.9.1700000000000000000.0 3\r\nabc\r\n"


@pytest.fixture(autouse=True)
def few_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "ROWS_MIN", 1)


def delivery(
    key: bytes, payload: bytes, ack: Ack, headers: bytes = b"", consumer: str = "c0ffee", sid: int = 1
) -> bytes:
    return format_msg(PREFIX + key, sid, payload, format_ack("KV_b", consumer, ack).encode(), headers)


def agrees(data: bytes, *, times: bool = True) -> int:
    """Check what a pass says against the frame-by-frame parser, and return how many deliveries it found."""
    wanted = Times.ALL if times else Times.NONE
    found = find_deliveries(data, len(data), LIMITS, subject_prefix=PREFIX, times=wanted)
    if found is None:
        return 0
    rows = zip(
        found.subjects.to_pylist(),
        found.payloads.to_pylist(),
        [b""] * len(found) if found.headers is None else found.headers.to_pylist(),
        found.stream_sequences.tolist(),
        found.consumer_sequences.tolist(),
        [0] * len(found) if found.timestamps_ns is None else found.timestamps_ns.tolist(),
        strict=True,
    )
    others = dict(found.others)
    at, pending = 0, 0
    while at < found.end:
        if at in others:
            at = end_of_other(data, at, others[at])
            continue
        row = parse_frame(data, at, Side.SERVER, LIMITS)
        assert isinstance(row, Row)
        subject, payload = data[row.subject_start : row.subject_end], data[row.payload_start : row.payload_end]
        ack = parse_ack(data[row.reply_start : row.reply_end])
        assert ack is not None
        assert subject.startswith(PREFIX)
        expected = (subject[len(PREFIX) :], payload, data[row.header_start : row.payload_start])
        assert next(rows) == (
            *expected,
            ack.stream_sequence,
            ack.consumer_sequence,
            ack.timestamp_ns if times else 0,
        )
        at, pending = row.end, ack.pending
    assert next(rows, None) is None
    assert found.pending == pending
    return len(found)


def end_of_other(data: bytes, start: int, end: int) -> int:
    """Check where a message that is no delivery ends; it may also be one that cannot be read at all."""
    try:
        row = parse_frame(data, start, Side.SERVER, LIMITS)
    except ProtocolViolation:
        return end
    assert isinstance(row, Row)
    assert row.end == end
    return end


def stream(seed: int, count: int) -> bytes:
    chance = random.Random(seed)
    frames = []
    for number in range(count):
        key = b"key.%d" % chance.randrange(10 ** chance.randint(1, 9))
        payload = chance.choice([b"", FAKE, chance.randbytes(chance.randrange(300)), b"\r\n", b"x" * 1234])
        headers = chance.choice([b"", b"", b"", DELETED])
        sequence = number + 10 ** chance.randint(0, 12)
        ack = Ack(
            1, sequence, number + 1, 1_700_000_000_000_000_000 + number, chance.choice([0, count - number, 10**9])
        )
        frames.append(delivery(key, payload, ack, headers))
        if chance.random() < 0.05:
            frames.append(format_msg(b"_INBOX.x", 1, b"", b"$JS.FC.KV_b.c0ffee.abcd", IDLE))
    return b"".join(frames)


@pytest.mark.parametrize("seed", range(20))
def test_a_pass_reads_what_the_parser_reads(seed: int) -> None:
    data = stream(seed, 200)
    assert agrees(data) == 200
    assert agrees(data, times=False) == 200


def test_times_of_headers_are_read_only_where_there_are_headers() -> None:
    ack = Ack(1, 7, 1, 1_700_000_000_000_000_000, 0)
    for headers, times in ((b"", None), (b"NATS/1.0\r\nNats-TTL: 1\r\n\r\n", [ack.timestamp_ns] * 40)):
        data = delivery(b"key", b"value", ack, headers) * 40
        found = find_deliveries(data, len(data), LIMITS, subject_prefix=PREFIX, times=Times.OF_HEADERS)
        assert found is not None
        assert (None if found.timestamps_ns is None else found.timestamps_ns.tolist()) == times


def test_a_pass_ends_before_a_partial_frame_wherever_the_buffer_ends() -> None:
    data = stream(3, 20)[:1200]
    counts = [agrees(data[:end]) for end in range(len(data) + 1)]
    assert counts[0] == 0
    assert all(later >= earlier for earlier, later in pairwise(counts))


def test_bytes_beyond_the_size_are_not_looked_at() -> None:
    data = stream(5, 50)
    whole = find_deliveries(data + FAKE * 3, len(data), LIMITS, subject_prefix=PREFIX)
    assert whole is not None
    assert (len(whole), whole.end) == (50, len(data))


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(b"PING\r\n", id="another operation"),
        pytest.param(b"msg $KV.b.k 1 $JS.ACK.KV_b.c0ffee.1.7.7.1700000000000000000.0 1\r\nx\r\n", id="lower case"),
        pytest.param(b"MSG  $KV.b.k 1 $JS.ACK.KV_b.c0ffee.1.7.7.1700000000000000000.0 1\r\nx\r\n", id="two blanks"),
        pytest.param(b"MSG\t$KV.b.k 1 $JS.ACK.KV_b.c0ffee.1.7.7.1700000000000000000.0 1\r\nx\r\n", id="a tab"),
        pytest.param(b"MSG $KV.b.k k 1 $JS.ACK.KV_b.c0ffee.1.7.7.1700000000000000000.0 1\r\nx\r\n", id="too many"),
        pytest.param(
            b"MSG $KV.b.k 1 $JS.ACK.KV_b.c0ffee.1.7.7.1700000000000000000.0 99999999\r\nx\r\n", id="too large"
        ),
        pytest.param(b"MSG $KV.b.k 1 $JS.ACK.KV_b.c0ffee.1.7.7.1700000000000000000.0 2\r\nx\r\n", id="wrong size"),
        pytest.param(
            b"HMSG $KV.b.k 1 $JS.ACK.KV_b.c0ffee.1.7.7.1700000000000000000.0 9 1\r\nx\r\n", id="headers beyond"
        ),
        pytest.param(b"MSG $KV.b.k 1 $JS.ACK.KV_b.c0ffee.1.7.x.1700000000000000000.0 1\r\nx\r\n", id="no number"),
        pytest.param(b"MSG $KV.b.k 1 $JS.ACK.KV_b.c0ffee.1.7.7.170000000000000000.0 1\r\nx\r\n", id="a short time"),
        pytest.param(b"MSG $KV.b.k 1 $JS.ACK.KV_b.c0ffee.2.7.7.1700000000000000000.0 1\r\nx\r\n", id="sent again"),
        pytest.param(
            b"MSG $KV.b.k 1 $JS.ACK.KV_b.other0.1.7.7.1700000000000000000.0 1\r\nx\r\n", id="another consumer"
        ),
        pytest.param(b"MSG $KV.c.k 1 $JS.ACK.KV_b.c0ffee.1.7.7.1700000000000000000.0 1\r\nx\r\n", id="another prefix"),
        pytest.param(
            b"MSG $KV.b.k 1 $JS.ACK.KV_b.c0ffee.1." + b"7" * 25 + b".7.1700000000000000000.0 1\r\nx\r\n", id="long"
        ),
        pytest.param(b"MSG $KV.b.k 1 1\r\nx\r\n", id="no reply"),
        pytest.param(b"MSG $KV.b.k 1 $JS.ACK.d.a.KV_b.c0ffee.1.7.7.1700000000000000000.0.t 1\r\nx\r\n", id="long form"),
    ],
)
def test_what_is_odd_is_left_to_the_parser(odd: bytes) -> None:
    before, after = stream(7, 20), stream(8, 20)
    # A blank within a subject shows only when all subjects are there, and then nothing is taken.
    assert agrees(before + odd + after) >= (0 if b"k k" in odd else 20)
    agrees(odd + after)
    agrees(odd * 3)


@given(st.data())
@examples(100)
def test_changed_bytes_are_read_the_same_or_left_alone(data: st.DataObject) -> None:
    bytes_ = bytearray(stream(data.draw(st.integers(0, 50)), 30))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(bytes_) - 1))
        bytes_[at] = data.draw(st.sampled_from([*b"\r\n .1M0$>", 0, 255]) | st.integers(0, 255))
    agrees(bytes(bytes_))


keys = st.binary(min_size=1, max_size=12).map(lambda key: bytes(byte if byte > 32 else byte + 40 for byte in key))
numbers = st.integers(0, 10**14)


@given(st.lists(st.tuples(keys, st.binary(max_size=40) | st.just(FAKE), numbers, numbers, st.booleans()), max_size=60))
def test_random_deliveries_are_read_the_same(rows: list[tuple[bytes, bytes, int, int, bool]]) -> None:
    data = b"".join(
        delivery(key, payload, Ack(1, one, other, 10**18 + one, other), DELETED if with_headers else b"")
        for key, payload, one, other, with_headers in rows
    )
    agrees(data)
