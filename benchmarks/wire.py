"""The NATS protocol, parsed and formatted, beside nats-py's parser and the plainest Python that writes the same bytes.

Buffers are of 64 KiB, as a socket hands them out. Ours is asked for what the peer makes anyhow: subject, reply and
payload of every message as bytes. Every message is compared before its figure counts. `make bench ONLY=wire
MESSAGES=20000` shows a quick run and keeps nothing of it.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator

import numpy as np
from nats.protocol.parser import Parser

from benchmarks._harness import Row, alone, compare, medians, report, show, sized
from strandline.wire import (
    NO_HEADERS,
    FrameParser,
    Side,
    WireLimits,
    find_deliveries,
    format_msgs,
    format_pubs,
    parse_headers,
)

MESSAGES = 200_000
ROUNDS = 5
BUFFER_BYTES = 64 * 1024
SIZES = (16, 128, 1024)
PEER = "nats-py's parser"
PLAIN = "a loop that joins"
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 12345678\r\nTrace: 0123456789abcdef\r\n\r\n"
Message = tuple[bytes, bytes, bytes]
"""Subject, reply, payload."""


class Receiver:
    """What nats-py's parser hands messages to."""

    def __init__(self) -> None:
        self.found: list[Message] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        del sid, headers
        self.found.append((subject, reply, data))


def main() -> None:
    """Run all of it."""
    count = sized("MESSAGES", MESSAGES)
    rows = [row for size in SIZES for row in _rows(count, size)]
    (report if count == MESSAGES else show)("wire", rows)


def _rows(count: int, size: int) -> Iterator[Row]:
    what = f"of {size:,} B"
    for name, headers in (("MSG", b""), ("HMSG", HEADERS)):
        messages = _messages(count, size)
        buffers = _buffers(format_msgs((subject, 7, reply, headers, data) for subject, reply, data in messages))
        sides = [lambda b=buffers, m=messages: _ours(b, m), lambda b=buffers, m=messages: _peers(b, m)]
        ours, peer = medians(ROUNDS, sides)
        yield compare(f"parse {name} {what}, each as bytes", ours, PEER, peer, "messages/s")
    deliveries = _messages(count, size, acks=True)
    data = format_msgs((subject, 7, reply, b"", payload) for subject, reply, payload in deliveries)
    ours, peer = medians(ROUNDS, [lambda: _one_pass(data, deliveries), lambda: _peers(_buffers(data), deliveries)])
    yield compare(f"parse deliveries of a consumer {what}, into columns", ours, PEER, peer, "messages/s")
    published = _messages(count, size)
    buffers = _buffers(format_pubs((subject, reply, b"", payload) for subject, reply, payload in published))
    (rate,) = medians(ROUNDS, [lambda: _ours(buffers, published, Side.CLIENT)])
    yield alone(f"parse PUB {what}, as a server does", rate, "messages/s")
    rows = [(subject, reply, b"", payload) for subject, reply, payload in published]
    ours, peer = medians(ROUNDS, [lambda: _rate(count, lambda: format_pubs(rows)), lambda: _joined(rows)])
    assert format_pubs(rows) == b"".join(_frames(rows))
    yield compare(f"format PUB {what}", ours, PLAIN, peer, "messages/s")
    if size == SIZES[0]:
        (rate,) = medians(ROUNDS, [lambda: _rate(count, lambda: [parse_headers(HEADERS) for _ in range(count)])])
        assert parse_headers(HEADERS) != NO_HEADERS
        yield alone("parse two headers", rate, "blocks/s")


def _messages(count: int, size: int, *, acks: bool = False) -> list[Message]:
    reply = b"$JS.ACK.KV_b.c.1.%d.%d.1700000000000000000.%d"
    return [
        (
            b"$KV.b.device.%04d.%07d" % (number % 1000, number),
            reply % (number + 1, number + 1, count - number - 1) if acks else b"_INBOX.abcdefgh.%d" % number,
            (b"%d:" % number).ljust(size, b"x"),
        )
        for number in range(count)
    ]


def _buffers(data: bytes) -> list[bytes]:
    return [data[start : start + BUFFER_BYTES] for start in range(0, len(data), BUFFER_BYTES)]


def _rate(count: int, work: Callable[[], object]) -> float:
    """Return how many of so many are done in a second of processor time."""
    gc.collect()
    began = time.thread_time()
    work()
    return count / (time.thread_time() - began)


def _ours(buffers: list[bytes], messages: list[Message], side: Side = Side.SERVER) -> float:
    found: list[Message] = []

    def work() -> None:
        parser = FrameParser(side)
        for buffer in buffers:
            batch = parser.feed(buffer).messages()
            found.extend(zip(batch.subject_list(), batch.replies(), batch.payloads(), strict=True))

    rate = _rate(len(messages), work)
    assert found == messages
    return rate


def _peers(buffers: list[bytes], messages: list[Message]) -> float:
    receiver = Receiver()

    async def parse() -> None:
        parser = Parser(receiver)
        for buffer in buffers:
            await parser.parse(buffer)

    rate = _rate(len(messages), lambda: asyncio.run(parse()))
    assert [tuple(bytes(part) for part in each) for each in receiver.found] == messages
    return rate


def _one_pass(data: bytes, messages: list[Message]) -> float:
    """Read what a bulk reader reads: megabytes of deliveries of one consumer, into columns."""
    part = 1 << 20
    limits, passes = WireLimits(), []

    def work() -> None:
        start = 0
        while start < len(data):
            found = find_deliveries(data[start : start + part], min(part, len(data) - start), limits)
            assert found is not None
            passes.append(found)
            start += found.end

    rate = _rate(len(messages), work)
    assert [payload for found in passes for payload in found.payloads.to_pylist()] == [each[2] for each in messages]
    sequences = np.concatenate([found.stream_sequences for found in passes])
    assert sequences.tolist() == list(range(1, len(messages) + 1))
    return rate


def _joined(rows: list[tuple[bytes, bytes, bytes, bytes]]) -> float:
    return _rate(len(rows), lambda: b"".join(_frames(rows)))


def _frames(rows: list[tuple[bytes, bytes, bytes, bytes]]) -> Iterator[bytes]:
    for subject, reply, _, payload in rows:
        yield b"PUB " + subject + b" " + reply + b" " + str(len(payload)).encode() + b"\r\n" + payload + b"\r\n"


if __name__ == "__main__":
    main()
