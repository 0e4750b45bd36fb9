"""The parser of one frame at a position of a buffer, byte by byte.

This is the reference that the batch parser must agree with; it also parses what that one leaves out: operations in
lower case, tabs and repeated spaces, control lines, small buffers.

Invariants: a frame is returned whole, or `Incomplete` says how many bytes are needed at least, or it is a
`ProtocolViolation`; the same bytes give the same answer however they were split. A line ends with CR LF and so does a
payload; from clients a line may also end with LF alone, as nats-server has it. Sizes are decimal digits only.
"""

import re
import sys
from typing import NamedTuple

from strandline.wire.errors import LineTooLong, MalformedFrame, PayloadTooLarge, WrongArguments, shown
from strandline.wire.ops import OPS_OF, WORDS, Op, Side, WireLimits

WORD_BYTES_MAX = 7
SIZE_DIGITS_MAX = 18
CRLF = b"\r\n"
_CR = 13
_PUB, _HPUB, _SUB, _HMSG = int(Op.PUB), int(Op.HPUB), int(Op.SUB), int(Op.HMSG)
CLIENT_DIGITS_MAX = 9
"""A client's size of more digits is none, as nats-server has it, whatever they are."""

_PLAIN_PUB = re.compile(rb"PUB (\S+) (?:(\S+) )?(\d{1,9})\r\n")
_PLAIN_HPUB = re.compile(rb"HPUB (\S+) (?:(\S+) )?(\d{1,9}) (\d{1,9})\r\n")
_PLAIN_SUB = re.compile(rb"SUB (\S+) (?:(\S+) )?(\S+)\r\n")
_PLAIN_HMSG = re.compile(rb"HMSG (\S+) (\S+) (?:(\S+) )?(\d{1,9}) (\d{1,9})\r\n")
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
    after = data.find(b"\n", start, start + limit + len(CRLF)) + 1
    if not after:
        return _unfinished(data, start, side, limit)
    line_end = after - 1 - (data[max(after - 2, start)] == _CR)
    if op is None:
        raise MalformedFrame(f"unknown operation {shown(data[start:line_end])}")
    if line_end - start > limit:
        raise LineTooLong(limit)
    if data.find(b"\r", word_end, line_end) >= 0 or (side is Side.SERVER and line_end == after - 1):
        raise MalformedFrame(f"a line break that is not CR LF in {shown(data[start:line_end])}")
    match op:
        case Op.MSG | Op.HMSG | Op.PUB | Op.HPUB:
            tokens = _arguments(data, op, word_end, line_end)
            found = _message(data, op, tokens, after, limits)
            return found if isinstance(found, Row) else Incomplete(found - start, in_line=False)
        case Op.SUB | Op.UNSUB:
            return _subscription(op, _arguments(data, op, word_end, line_end), line_end, after)
        case Op.PING | Op.PONG | Op.OK:
            if side is Side.SERVER and _tokens(data, word_end, line_end):
                raise MalformedFrame(f"{word.decode()} takes no argument")
            return _control(op, line_end, line_end, after)
        case Op.INFO | Op.CONNECT | Op.ERR:
            return _argument(data, op, word_end, line_end, after)


def parse_plain(
    data: bytes, start: int, side: Side, limits: WireLimits, rows_max: int = sys.maxsize
) -> list[tuple[int, ...]]:
    """Return the frames from a position on as long as they are plain: messages or SUB, with single spaces and CR LF.

    Each is a tuple of the fields of `Row`. What stops it, the end of the buffer included, is for `parse_frame`.
    """
    return (_plain_msgs if side is Side.SERVER else _plain_pubs)(data, start, limits, rows_max)


def is_plain(data: bytes, start: int, row: Row) -> bool:
    """Tell whether the line of a message that begins at a position is one that `parse_plain` could have read."""
    line = data[start : row.header_start]
    single = b"  " not in line and b"\t" not in line and line.endswith(CRLF) and not line.endswith(b" \r\n")
    return single and (row.op not in (Op.HPUB, Op.HMSG) or row.payload_start > row.header_start)


def _plain_pubs(data: bytes, start: int, limits: WireLimits, rows_max: int) -> list[tuple[int, ...]]:
    line_max, size_max = limits.line_bytes_max + len(CRLF), limits.payload_bytes_max
    pub, hpub, sub = _PLAIN_PUB.match, _PLAIN_HPUB.match, _PLAIN_SUB.match
    rows: list[tuple[int, ...]] = []
    while len(rows) < rows_max:
        found = pub(data, start)
        if found is not None:
            op = _PUB
            (_, body), (subject, subject_end), (reply, reply_end), (size, size_end) = found.regs
            payload = body
        else:
            found = hpub(data, start)
            if found is None:
                found = sub(data, start)
                if found is None or found.end() - start > line_max:
                    return rows
                (_, after), subject_span, (group, group_end), sid_span = found.regs
                place = after - len(CRLF)
                queue_span = (group, group_end) if group >= 0 else (0, 0)
                rows.append((_SUB, *subject_span, *queue_span, *sid_span, place, place, place, after))
                start = after
                continue
            op = _HPUB
            (_, body), (subject, subject_end), (reply, reply_end), header, (size, size_end) = found.regs
            payload = body + int(data[header[0] : header[1]])
        payload_end = body + int(data[size:size_end])
        end = payload_end + 2
        if reply < 0:
            reply = reply_end = 0
        # A header block of no bytes is no header block: such a frame is not passed on as it is.
        if (
            payload_end - body > size_max
            or body - start > line_max
            or data[payload_end:end] != CRLF
            or payload > payload_end
            or (op == _HPUB and payload == body)
        ):
            return rows
        rows.append((op, subject, subject_end, reply, reply_end, 0, 0, body, payload, payload_end, end))
        start = end
    return rows


def _plain_msgs(data: bytes, start: int, limits: WireLimits, rows_max: int) -> list[tuple[int, ...]]:
    line_max, size_max = limits.line_bytes_max + len(CRLF), limits.payload_bytes_max
    find, op = data.find, int(Op.MSG)
    rows: list[tuple[int, ...]] = []
    while len(rows) < rows_max:
        line_end = find(CRLF, start, start + line_max)
        line = data[start:line_end]
        tokens = line.split()
        count = len(tokens)
        if line_end < 0 or not 4 <= count <= 5 or tokens[0] != b"MSG" or line.count(b" ") != count - 1:  # noqa: PLR2004
            row = _plain_hmsg(data, start, line_max, limits.payload_bytes_max)
            if row is None:
                return rows
            rows.append(row)
            start = row[-1]
            continue
        size = tokens[-1]
        if len(size) > CLIENT_DIGITS_MAX or not size.isdigit():
            return rows
        body = line_end + 2
        payload_end = body + int(size)
        subject_end = start + 4 + len(tokens[1])
        sid_end = subject_end + 1 + len(tokens[2])
        reply_end = sid_end + 1 + len(tokens[-2]) if count > 4 else sid_end  # noqa: PLR2004 - with a reply
        # Other blanks than single spaces would put the size elsewhere.
        if (
            reply_end + 1 + len(size) != line_end
            or payload_end - body > size_max
            or data[payload_end : payload_end + 2] != CRLF
        ):
            return rows
        reply = (sid_end + 1, reply_end) if reply_end > sid_end else (0, 0)
        end = payload_end + 2
        rows.append((op, start + 4, subject_end, *reply, subject_end + 1, sid_end, body, body, payload_end, end))
        start = end
    return rows


def _plain_hmsg(data: bytes, start: int, line_max: int, size_max: int) -> tuple[int, ...] | None:
    found = _PLAIN_HMSG.match(data, start)
    if found is None:
        return None
    (_, body), subject, sid, (reply, reply_end), header, size = found.regs
    payload = body + int(data[header[0] : header[1]])
    payload_end = body + int(data[size[0] : size[1]])
    end = payload_end + 2
    if (
        payload_end - body > size_max
        or body - start > line_max
        or data[payload_end:end] != CRLF
        # A header block of no bytes is no header block, as with HPUB.
        or not body < payload <= payload_end
    ):
        return None
    replies = (reply, reply_end) if reply >= 0 else (0, 0)
    return (_HMSG, *subject, *replies, *sid, body, payload, payload_end, end)


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


def _arguments(data: bytes, op: Op, start: int, end: int) -> list[_Token]:
    if start == end:
        raise MalformedFrame(f"{op.name} without arguments")
    return _tokens(data, start, end)


def _size(data: bytes, op: Op, token: _Token) -> int:
    text = data[token.start : token.end]
    if not text.isdigit() or (op in (Op.PUB, Op.HPUB) and len(text) > CLIENT_DIGITS_MAX):
        raise WrongArguments(f"{shown(text)} is not a size")
    # An impossible number needs no exact value, and a long one would take quadratic time to parse.
    digits = text.lstrip(b"0")[: SIZE_DIGITS_MAX + 1]
    return int(digits or b"0")


def _message(data: bytes, op: Op, tokens: list[_Token], body: int, limits: WireLimits) -> Row | int:
    """Return the frame, or where it will end."""
    with_headers = op in (Op.HMSG, Op.HPUB)
    with_sid = op in (Op.MSG, Op.HMSG)
    least = 2 + with_headers + with_sid
    if len(tokens) not in (least, least + 1):
        raise WrongArguments(f"{op.name} takes {least} or {least + 1} arguments, not {len(tokens)}")
    size = _size(data, op, tokens[-1])
    header_size = _size(data, op, tokens[-2]) if with_headers else 0
    if size > limits.payload_bytes_max:
        raise PayloadTooLarge(size, limits.payload_bytes_max)
    if header_size > size:
        raise WrongArguments(f"headers of {header_size:,} bytes in a frame of {size:,}")
    end = body + size + len(CRLF)
    # A wrong terminator is reported when its bytes are there, not before: splits must not change the result.
    if len(data) < end:
        return end
    if data[end - 2 : end] != CRLF:
        raise MalformedFrame(f"the payload of {size:,} bytes does not end with CR LF")
    reply = tokens[1 + with_sid] if len(tokens) > least else _NONE
    sid = tokens[1] if with_sid else _NONE
    return Row(op, *tokens[0], *reply, *sid, body, body + header_size, end - 2, end)


def _subscription(op: Op, tokens: list[_Token], line_end: int, after: int) -> Row:
    if op is Op.SUB and len(tokens) in (2, 3):
        group = tokens[1] if len(tokens) > 2 else _NONE  # noqa: PLR2004 - subject, group, sid
        return Row(op, *tokens[0], *group, *tokens[-1], line_end, line_end, line_end, after)
    if op is Op.UNSUB and len(tokens) in (1, 2):
        count = tokens[1] if len(tokens) > 1 else _Token(line_end, line_end)
        return Row(op, *_NONE, *_NONE, *tokens[0], count.start, *count, after)
    raise WrongArguments(f"{op.name} does not take {len(tokens)} arguments")


def _argument(data: bytes, op: Op, start: int, line_end: int, after: int) -> Row:
    text = data[start:line_end]
    start += len(text) - len(text.lstrip())
    if start >= line_end and op is not Op.ERR:
        raise WrongArguments(f"{op.name} without its argument")
    return _control(op, start, start + len(text.strip()), after)


def _control(op: Op, start: int, end: int, after: int) -> Row:
    return Row(op, 0, 0, 0, 0, 0, 0, start, start, end, after)
