"""Streams of frames to parse, and plain readings of them to compare with."""

from itertools import pairwise

from hypothesis import strategies as st

from strandline.wire import (
    OK,
    PING,
    PONG,
    Frame,
    FrameParser,
    ProtocolViolation,
    Side,
    WireLimits,
    format_connect,
    format_err,
    format_headers,
    format_info,
    format_msg,
    format_pub,
    format_sub,
    format_unsub,
    lines,
)

Plain = tuple[int, bytes, bytes, bytes, bytes, bytes]
Reading = tuple[list[Plain], str]
LIMITS = WireLimits(payload_bytes_max=100_000)

tokens = st.binary(min_size=1, max_size=12).map(lambda raw: bytes(33 + byte % 200 for byte in raw))
subjects = st.lists(tokens, min_size=1, max_size=4).map(b".".join)
tricky = st.sampled_from(
    [b"\r\n", b"\r\nMSG a 1 5\r\n", b"\r\nPUB a 5\r\nhello\r\n", b"\r", b"\n", b"HMSG ", b"\r\nMSG ", b" "]
)
payloads = st.lists(st.one_of(tricky, st.binary(max_size=40)), max_size=4).map(b"".join)
header_blocks = st.one_of(st.just(b""), st.just(format_headers([("Nats-Msg-Id", "x"), ("K", "a b")])))
replies = st.one_of(st.just(b""), subjects, st.just(b"$JS.ACK.S.C.1.22.333.1794724724829917591.5"))

server_frames = st.one_of(
    st.sampled_from([PING, PONG, OK, format_info({"server_id": "N"}), format_err("Stale Connection"), b"ping\r\n"]),
    st.builds(format_msg, subjects, st.integers(0, 10**6), payloads, replies, header_blocks),
    st.builds(
        lambda subject, payload: b"msg\t%s  7 %d \r\n%s\r\n" % (subject, len(payload), payload), subjects, payloads
    ),
)
client_frames = st.one_of(
    st.sampled_from([PING, PONG, format_connect({"verbose": False}), format_unsub(1), format_unsub(1, 5)]),
    st.builds(format_pub, subjects, payloads, replies, header_blocks),
    st.builds(format_sub, subjects, st.integers(0, 10**6), st.one_of(st.just(b""), tokens)),
)
FRAMES_OF = {Side.SERVER: server_frames, Side.CLIENT: client_frames}


def plain(frame: Frame) -> Plain:
    return int(frame.op), frame.subject, frame.reply, frame.sid, bytes(frame.headers), bytes(frame.payload)


def read(pieces: list[bytes], side: Side, limits: WireLimits = LIMITS) -> Reading:
    """Return the frames that a parser makes of a stream, and the kind of violation it ends with."""
    parser = FrameParser(side, limits)
    found: list[Plain] = []
    for piece in pieces:
        try:
            batch = parser.feed(piece)
        except ProtocolViolation as problem:
            return found, type(problem).__name__
        found += map(plain, batch)
        if batch.problem is not None:
            return found, type(batch.problem).__name__
    return found, ""


def read_one_by_one(data: bytes, side: Side, limits: WireLimits = LIMITS) -> Reading:
    """Return the same by the function that reads a single frame."""
    found: list[Plain] = []
    position = 0
    while position < len(data):
        try:
            row = lines.parse_frame(data, position, side, limits)
        except ProtocolViolation as problem:
            return found, type(problem).__name__
        if isinstance(row, lines.Incomplete):
            break
        spans = [row[1:3], row[3:5], row[5:7], row[7:9], row[8:10]]
        op, *parts = row.op, *(data[start:end] for start, end in spans)
        found.append((op, *parts))  # type: ignore[arg-type]
        position = row.end
    return found, ""


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return the stream in pieces."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]
