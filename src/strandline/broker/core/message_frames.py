"""MSG and HMSG frames for one subscription, made from PUB frames or from columns.

Invariants: the result is one buffer, in order, that `wire` parses back. A subscriber without header support gets the
payload alone.
"""

from collections.abc import Sequence
from itertools import chain, repeat

import numpy as np

from strandline.broker.routes import Deliveries
from strandline.wire import Frame, FrameBatch, Op

_ALIKE_MIN = 16
"""Below this, one frame after the other is faster than columns."""

_HPUB = int(Op.HPUB)
_LENGTHS = [b" %d\r\n" % length for length in range(8192)]
_LENGTHS_MAX = len(_LENGTHS)


def from_frames(frames: FrameBatch, sid: bytes) -> bytes:
    """Return PUB and HPUB frames as MSG and HMSG frames for a subscription."""
    if len(frames) >= _ALIKE_MIN:
        alike = _from_alike(frames, sid)
        if alike is not None:
            return alike
    data = frames.data
    if not frames.is_tidy:
        return b"".join([_from_parts(frame, sid) for frame in frames])
    if not frames.has_headers():
        spans = frames.spans("subject_start", "subject_end", "end")
        return b"".join([b"MSG %b %b%b" % (data[a:b], sid, data[b:end]) for a, b, end in spans])
    lines = frames.spans("op", "subject_start", "subject_end", "end")
    return b"".join(
        [b"%b %b %b%b" % (b"HMSG" if op == _HPUB else b"MSG", data[a:b], sid, data[b:end]) for op, a, b, end in lines]
    )


def for_many(frames: FrameBatch, sids: Sequence[bytes]) -> bytes:
    """Return tidy PUB frames as MSG frames for several subscriptions of one client."""
    data, parts = frames.data, list[bytes]()
    for op, start, end, stop in frames.spans("op", "subject_start", "subject_end", "end"):
        head = b"%b %b " % (b"HMSG" if op == _HPUB else b"MSG", data[start:end])
        tail = data[end:stop]
        parts += (head, (tail + head).join(sids), tail)
    return b"".join(parts)


def without_headers(frames: FrameBatch, sid: bytes) -> bytes:
    """Return PUB and HPUB frames as MSG frames for a client without header support."""
    return b"".join(
        [
            b"MSG %b %b %b%b%d\r\n%b\r\n"
            % (frame.subject, sid, frame.reply, b" " if frame.reply else b"", len(frame.payload), bytes(frame.payload))
            for frame in frames
        ]
    )


def from_columns(messages: Deliveries, sid: bytes) -> bytes:
    """Return columns of messages as frames for a subscription."""
    if len(messages.subjects) == 1:
        return _one_by_one(messages, sid)
    if messages.headers is not None:
        return _with_headers(messages, messages.headers, sid)
    subjects, payloads, replies = messages.subjects, messages.payloads, messages.replies
    if replies is not None and not all(replies):
        return _one_by_one(messages, sid)
    lengths = _lengths(payloads)
    if replies is None:
        return _joined(zip(subjects, repeat(b" " + sid), lengths, payloads, repeat(b"\r\nMSG "), strict=False))
    if subjects.count(subjects[0]) == len(subjects):
        start = b"\r\nMSG %b %b " % (subjects[0], sid)
        text = b"".join(chain.from_iterable(zip(repeat(start), replies, lengths, payloads, strict=False)))
        return text[2:] + b"\r\n"
    columns = zip(subjects, repeat(b" %b " % sid), replies, lengths, payloads, repeat(b"\r\nMSG "), strict=False)
    return _joined(columns)


def from_one(subject: bytes, payload: bytes, reply: bytes, headers: bytes, sid: bytes) -> bytes:
    """Return one message as a frame for a subscription."""
    to = b"%b %b %b" % (subject, sid, reply) if reply else b"%b %b" % (subject, sid)
    if headers:
        size = len(headers)
        return b"HMSG %b %d %d\r\n%b%b\r\n" % (to, size, size + len(payload), headers, payload)
    return b"MSG %b %d\r\n%b\r\n" % (to, len(payload), payload)


def _from_alike(frames: FrameBatch, sid: bytes) -> bytes | None:
    """Return the frames if their control lines are the same bytes, one frame after the other; None if they are not."""
    data, count = frames.data, len(frames)
    ends = frames.column("end")
    stride = int(ends[1] - ends[0])
    first = int(ends[0]) - stride
    if int(ends[-1]) - first != stride * count or first < 0:
        return None
    subject_start, subject_end, body = (
        int(frames.column(name)[0]) for name in ("subject_start", "subject_end", "header_start")
    )
    octets = np.frombuffer(data, np.uint8, stride * count, first).reshape(count, stride)
    line = body - first
    if line > stride or not (octets[:, :line] == octets[0, :line]).all() or not frames.is_tidy:
        return None
    word = b"HMSG" if int(frames.ops[0]) == _HPUB else b"MSG"
    start = b"%b %b %b" % (word, data[subject_start:subject_end], sid)
    kept = subject_end - first
    out = np.empty((count, len(start) + stride - kept), np.uint8)
    out[:, : len(start)] = np.frombuffer(start, np.uint8)
    out[:, len(start) :] = octets[:, kept:]
    return out.tobytes()


def _from_parts(frame: Frame, sid: bytes) -> bytes:
    return from_one(frame.subject, bytes(frame.payload), frame.reply, bytes(frame.headers), sid)


def _lengths(payloads: list[bytes]) -> list[bytes]:
    try:
        return [_LENGTHS[length] for length in map(len, payloads)]
    except IndexError:
        return [b" %d\r\n" % length for length in map(len, payloads)]


def _joined(columns: "zip[tuple[bytes, ...]]") -> bytes:
    """Return `MSG ` and the columns, each row of which ends with the start of the next."""
    text = b"".join(chain((b"MSG ",), chain.from_iterable(columns)))
    return text[: -len(b"MSG ")]


def _with_headers(messages: Deliveries, headers: list[bytes], sid: bytes) -> bytes:
    if not all(headers) or (messages.replies is not None and not all(messages.replies)):
        return _one_by_one(messages, sid)
    start = b" " + sid
    sizes = list(map(len, headers))
    totals = _lengths_of([a + b for a, b in zip(sizes, map(len, messages.payloads), strict=True)])
    if messages.replies is None:
        return b"".join(
            [
                b"HMSG %b%b %d%b%b%b\r\n" % (subject, start, size, total, block, payload)
                for subject, size, total, block, payload in zip(
                    messages.subjects, sizes, totals, headers, messages.payloads, strict=True
                )
            ]
        )
    return b"".join(
        [
            b"HMSG %b%b %b %d%b%b%b\r\n" % (subject, start, reply, size, total, block, payload)
            for subject, reply, size, total, block, payload in zip(
                messages.subjects, messages.replies, sizes, totals, headers, messages.payloads, strict=True
            )
        ]
    )


def _lengths_of(sizes: list[int]) -> list[bytes]:
    return [_LENGTHS[size] if size < _LENGTHS_MAX else b" %d\r\n" % size for size in sizes]


def _one_by_one(messages: Deliveries, sid: bytes) -> bytes:
    replies, headers = messages.replies or repeat(b""), messages.headers or repeat(b"")
    columns = zip(messages.subjects, messages.payloads, replies, headers, strict=False)
    return b"".join([from_one(*row, sid) for row in columns])
