"""One frame at a position of a buffer: what decides, byte by byte, what the protocol allows.

This is the reference that the batch parser must agree with; it also takes what that one leaves out: operations in lower
case, tabs and repeated spaces, control lines, small buffers.

Invariants: a frame is returned whole, or `Incomplete` says how many bytes are needed at least, or it is a
`ProtocolViolation`; the same bytes give the same answer however they were split. A line ends with CR LF and so does a
payload. Sizes are decimal digits only.
"""

import sys
from typing import NamedTuple

from strandline.wire.errors import LineTooLong, MalformedFrame, PayloadTooLarge, shown
from strandline.wire.ops import OPS_OF, WORDS, Op, Side, WireLimits

WORD_BYTES_MAX = 7
SIZE_DIGITS_MAX = 18
CRLF = b"\r\n"
PLAIN_DIGITS_MAX = 9
BLANKS = b" \t\r\n"
"""What may follow the word of an operation."""


class Incomplete(NamedTuple):
    """A frame that is not all there; more can be said when this many bytes are, or, within a line, a line feed."""

    needed: int
    in_line: bool


class Row(NamedTuple):
    """Where the parts of one frame lie in its buffer; an absent part is an empty span.

    `reply` is the queue group of a SUB. The payload of a control line is its argument: the JSON of INFO and CONNECT,
    the text of -ERR, the count of UNSUB.
    """

    op: int
    subject_start: int
    subject_end: int
    reply_start: int
    reply_end: int
    sid_start: int
    sid_end: int
    header_start: int
    payload_start: int
    payload_end: int
    end: int


class _Token(NamedTuple):
    start: int
    end: int


_NONE = _Token(0, 0)


def parse_frame(data: bytes, start: int, side: Side, limits: WireLimits) -> Row | Incomplete:
    """Return the frame that begins at a position."""
    word, word_end = _word(data, start)
    op = OPS_OF[side].get(word)
    limit = limits.info_bytes_max if op is Op.INFO else limits.line_bytes_max
    line_end = data.find(CRLF, start, start + limit + len(CRLF))
    if line_end < 0:
        return _unfinished(data, start, side, limit)
    if op is None:
        raise MalformedFrame(f"unknown operation {shown(data[start:line_end])}")
    if data.find(b"\r", word_end, line_end) >= 0 or data.find(b"\n", word_end, line_end) >= 0:
        raise MalformedFrame(f"a line break that is not CR LF in {shown(data[start:line_end])}")
    match op:
        case Op.MSG | Op.HMSG | Op.PUB | Op.HPUB:
            found = _message(data, op, _tokens(data, word_end, line_end), line_end, limits)
            return found if isinstance(found, Row) else Incomplete(found - start, in_line=False)
        case Op.SUB | Op.UNSUB:
            return _subscription(op, _tokens(data, word_end, line_end), line_end)
        case Op.PING | Op.PONG | Op.OK:
            if _tokens(data, word_end, line_end):
                raise MalformedFrame(f"{word.decode()} takes no argument")
            return _control(op, line_end, line_end, line_end)
        case Op.INFO | Op.CONNECT | Op.ERR:
            return _argument(data, op, word_end, line_end)


def parse_plain(
    data: bytes, start: int, side: Side, limits: WireLimits, rows_max: int = sys.maxsize
) -> list[tuple[int, ...]]:
    """Return the message frames from a position on as long as they are plain: no headers, and single spaces.

    Each is a tuple of the fields of `Row`. What stops it, the end of the buffer included, is for `parse_frame`.
    """
    word, op = (b"MSG", int(Op.MSG)) if side is Side.SERVER else (b"PUB", int(Op.PUB))
    with_sid = side is Side.SERVER
    least = 3 + with_sid
    line_max, size_max = limits.line_bytes_max + len(CRLF), limits.payload_bytes_max
    find = data.find
    rows: list[tuple[int, ...]] = []
    while len(rows) < rows_max:
        line_end = find(CRLF, start, start + line_max)
        line = data[start:line_end]
        tokens = line.split()
        count = len(tokens)
        if line_end < 0 or not least <= count <= least + 1 or tokens[0] != word or line.count(b" ") != count - 1:
            return rows
        size = tokens[-1]
        if len(size) > PLAIN_DIGITS_MAX or not size.isdigit():
            return rows
        body = line_end + 2
        payload_end = body + int(size)
        subject_end = start + 4 + len(tokens[1])
        sid_end = subject_end + 1 + len(tokens[2]) if with_sid else subject_end
        reply_end = sid_end + 1 + len(tokens[-2]) if count > least else sid_end
        # Other blanks than single spaces would put the size elsewhere.
        if (
            reply_end + 1 + len(size) != line_end
            or payload_end - body > size_max
            or data[payload_end : payload_end + 2] != CRLF
        ):
            return rows
        sid = (subject_end + 1, sid_end) if with_sid else (0, 0)
        reply = (sid_end + 1, reply_end) if count > least else (0, 0)
        rows.append((op, start + 4, subject_end, *reply, *sid, body, body, payload_end, payload_end + 2))
        start = payload_end + 2
    return rows


def _word(data: bytes, start: int) -> tuple[bytes, int]:
    word = data[start : start + WORD_BYTES_MAX + 1]
    word = word.partition(b" ")[0]
    if word not in WORDS:
        for blank in (b"\r", b"\t", b"\n"):
            word = word.partition(blank)[0]
    return word.upper(), start + len(word)


def _unfinished(data: bytes, start: int, side: Side, limit: int) -> Incomplete:
    """Tell a line that may still become one from a line that never will."""
    piece = data[start : start + WORD_BYTES_MAX + 1].upper()
    words = [word for word in OPS_OF[side] if piece.startswith(word) or word.startswith(piece)]
    if not any(len(piece) <= len(word) or piece[len(word)] in BLANKS for word in words):
        raise MalformedFrame(f"unknown operation {shown(data[start:])}")
    have = len(data) - start
    if have >= limit + len(CRLF):
        raise LineTooLong(limit)
    return Incomplete(have + 1 if have <= WORD_BYTES_MAX else limit + len(CRLF), in_line=True)


def _tokens(data: bytes, start: int, end: int) -> list[_Token]:
    found = []
    position = start
    for token in data[start:end].replace(b"\t", b" ").split(b" "):
        if not token:
            continue
        position = data.index(token, position)
        found.append(_Token(position, position + len(token)))
        position += len(token)
    return found


def _size(data: bytes, token: _Token) -> int:
    text = data[token.start : token.end]
    if not text.isdigit():
        raise MalformedFrame(f"{shown(text)} is not a size")
    # A number nobody can send needs no exact value, and a long one would take quadratic time to read.
    digits = text.lstrip(b"0")[: SIZE_DIGITS_MAX + 1]
    return int(digits or b"0")


def _message(data: bytes, op: Op, tokens: list[_Token], line_end: int, limits: WireLimits) -> Row | int:
    """Return the frame, or where it will end."""
    with_headers = op in (Op.HMSG, Op.HPUB)
    with_sid = op in (Op.MSG, Op.HMSG)
    least = 2 + with_headers + with_sid
    if len(tokens) not in (least, least + 1):
        raise MalformedFrame(f"{op.name} takes {least} or {least + 1} arguments, not {len(tokens)}")
    size = _size(data, tokens[-1])
    header_size = _size(data, tokens[-2]) if with_headers else 0
    if size > limits.payload_bytes_max:
        raise PayloadTooLarge(size, limits.payload_bytes_max)
    if header_size > size:
        raise MalformedFrame(f"headers of {header_size:,} bytes in a frame of {size:,}")
    body = line_end + len(CRLF)
    end = body + size + len(CRLF)
    # A wrong terminator is told as soon as its bytes are there, and not before: splits must not change the answer.
    if len(data) < end:
        return end
    if data[end - 2 : end] != CRLF:
        raise MalformedFrame(f"the payload of {size:,} bytes does not end with CR LF")
    reply = tokens[1 + with_sid] if len(tokens) > least else _NONE
    sid = tokens[1] if with_sid else _NONE
    return Row(op, *tokens[0], *reply, *sid, body, body + header_size, end - 2, end)


def _subscription(op: Op, tokens: list[_Token], line_end: int) -> Row:
    after = line_end + len(CRLF)
    if op is Op.SUB and len(tokens) in (2, 3):
        group = tokens[1] if len(tokens) > 2 else _NONE  # noqa: PLR2004 - subject, group, sid
        return Row(op, *tokens[0], *group, *tokens[-1], line_end, line_end, line_end, after)
    if op is Op.UNSUB and len(tokens) in (1, 2):
        count = tokens[1] if len(tokens) > 1 else _Token(line_end, line_end)
        return Row(op, *_NONE, *_NONE, *tokens[0], count.start, *count, after)
    raise MalformedFrame(f"{op.name} does not take {len(tokens)} arguments")


def _argument(data: bytes, op: Op, start: int, line_end: int) -> Row:
    text = data[start:line_end]
    start += len(text) - len(text.lstrip())
    if start >= line_end and op is not Op.ERR:
        raise MalformedFrame(f"{op.name} without its argument")
    return _control(op, start, start + len(text.strip()), line_end)


def _control(op: Op, start: int, end: int, line_end: int) -> Row:
    return Row(op, 0, 0, 0, 0, 0, 0, start, start, end, line_end + len(CRLF))
