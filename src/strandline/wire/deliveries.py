"""Deliveries of one consumer, parsed from a buffer in one pass: message frames whose reply is an ack subject.

How: each line that begins with MSG or HMSG is a candidate; numbers are read backwards from the line's end, as words of
eight bytes; everything else of a line, from the subject to the first number of the reply, is the same for all messages
of a consumer and is compared as such. Payloads are never read, except for line ends.

Invariants: no function loops over rows in Python. A returned row equals the results of `lines.parse_frame` and
`acks.parse_ack`; an unusual frame ends the pass, and is left to them.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.wire.acks import PREFIX, SHORT_TOKENS, Times, parse_ack
from strandline.wire.columns import Flags, Ints, Words, gather, gathered_bytes, gathered_view, positions_of
from strandline.wire.ops import WireLimits

ROWS_MIN = 32
LARGE_FRAME_BYTES = 4096
"""Frames of this size are read one by one: looking for ends of lines in their payloads takes longer."""

BUFFER_BYTES_MAX = 1 << 31
_CR, _LF, _SPACE, _DOT = 13, 10, 32, 46
_PLAIN, _HEADERED = (int.from_bytes(word, "little") for word in (b"MSG ", b"HMSG"))
_TIME_DIGITS = 19
_WORD = 8
_LOOKED_AT = 4
_WORDS_OF_DELIVERY = 4
_FEW_WORDS = 2
_ZEROS, _LOW7, _NINES, _TOPS, _LOW = (
    np.uint64(int.from_bytes(bytes([byte]) * 8, "little")) for byte in (0x30, 0x7F, 0x76, 0x80, 0x0F)
)
_ONE, _SEVEN, _EIGHT = np.uint64(1), np.uint64(7), np.uint64(8)
_TEN, _HUNDRED, _MYRIAD = np.uint64(10), np.uint64(100), np.uint64(10_000)
_PAIRS, _QUADS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_SIXTEEN, _THIRTY_TWO = np.uint64(16), np.uint64(32)
_EIGHT_DIGITS = np.uint64(100_000_000)

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class DeliveryPass:
    """A run of frames from the start of a buffer, as columns that hold copies.

    `subjects` are without the prefix; `headers` is None if no frame has any. `pending` is how many messages waited
    behind the last of them, `others` are the spans of messages that are no deliveries, `end` is where the run ends.
    All deliveries are of the subscription `sid`.
    """

    subjects: pa.BinaryArray
    payloads: pa.BinaryArray
    headers: pa.BinaryArray | None
    stream_sequences: Words
    consumer_sequences: Words
    timestamps_ns: Words | None
    pending: int
    others: list[tuple[int, int]]
    end: int
    sid: bytes

    def __len__(self) -> int:
        return len(self.stream_sequences)


def find_deliveries(
    data: Bytes, size: int, limits: WireLimits, *, subject_prefix: bytes = b"", times: Times = Times.NONE
) -> DeliveryPass | None:
    """Return the run of whole message frames at the start of a buffer's first `size` bytes.

    Deliveries are of one consumer, with subjects that begin with a prefix. None if there are only few, or if the buffer
    does not begin with such a frame.
    """
    if size < ROWS_MIN * _WORD or size > BUFFER_BYTES_MAX:
        return None
    if _first_frame_bytes(data, size) > LARGE_FRAME_BYTES:
        return None
    octets = np.frombuffer(data, np.uint8, size)
    lines = _message_lines(data, octets)
    if lines is None or lines.starts[0]:
        return None
    framed = _framed(data, octets, lines, limits)
    count = len(framed.starts)
    if count < ROWS_MIN:
        return None
    constant = _constant_of(data, framed)
    if constant is None:
        return None
    wanted = times.wanted(bool(framed.headered.any()))
    return _deliveries(data, octets, framed, constant, subject_prefix, times=wanted)


def _first_frame_bytes(data: Bytes, size: int) -> int:
    """Return the declared size of the first frame, 0 if it cannot be read."""
    line = bytes(data[: min(size, LARGE_FRAME_BYTES)]).partition(b"\r\n")[0]
    digits = line.rpartition(b" ")[2]
    return len(line) + int(digits) if digits.isdigit() and len(digits) <= _TIME_DIGITS else 0


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines of messages: where each begins, where its CR is, and whether it has headers."""

    starts: Ints
    returns: Ints
    headered: Flags


@dataclass(frozen=True, slots=True)
class _Framed:
    """Frames that follow each other: `replies` is where the space after the reply is."""

    starts: Ints
    replies: Ints
    headered: Flags
    header_starts: Ints
    payload_starts: Ints
    ends: Ints


def _message_lines(data: Bytes, octets: NDArray[np.uint8]) -> _Lines | None:
    feeds = positions_of(octets, _LF)
    feeds = feeds[octets[np.maximum(feeds - 1, 0)] == _CR]
    if len(feeds) < ROWS_MIN:
        return None
    starts = np.empty_like(feeds)
    starts[0] = 0
    np.add(feeds[:-1], 1, starts[1:])
    words = _words(data, len(octets), "<u4")[np.minimum(starts, len(octets) - 4)]
    headered = words == _HEADERED
    chosen = np.flatnonzero((words == _PLAIN) | headered)
    if len(chosen) < ROWS_MIN:
        return None
    return _Lines(starts[chosen], feeds[chosen] - 1, headered[chosen])


def _framed(data: Bytes, octets: NDArray[np.uint8], lines: _Lines, limits: WireLimits) -> _Framed:
    """Return the frames from the first on, as far as each ends where the next begins."""
    words = _words(data, len(octets), "<u8")
    starts, returns, headered = lines.starts, lines.returns, lines.headered
    sizes, digits, good = _numbers(words, returns)
    good &= sizes <= limits.payload_bytes_max
    good &= returns - starts <= limits.line_bytes_max
    good &= octets[starts + 3 + headered] == _SPACE
    replies = returns - digits - 1
    good &= octets[replies] == _SPACE
    payload_starts = returns + 2
    header_starts = payload_starts
    if headered.any():
        rows = np.flatnonzero(headered)
        header_sizes, digits, known = _numbers(words, replies[rows])
        header_sizes *= known & (header_sizes <= sizes[rows])
        good[rows] &= known & (header_sizes > 0)
        replies[rows] -= digits + 1
        good[rows] &= octets[replies[rows]] == _SPACE
        payload_starts = payload_starts.copy()
        payload_starts[rows] += header_sizes.view(np.int64)
    ends = returns + 4
    sizes *= good
    ends += sizes.view(np.int64)
    good &= ends <= len(octets)
    kept = _linked(octets, starts, ends, good)
    return _Framed(
        starts[kept], replies[kept], headered[kept], header_starts[kept], payload_starts[kept], ends[kept] - 2
    )


def _linked(octets: NDArray[np.uint8], starts: Ints, ends: Ints, good: Flags) -> slice | Ints:
    """Return which frames form the run from the first."""
    kept: slice | Ints = slice(len(starts))
    follows = ends[:-1] == starts[1:]
    follows &= good[:-1]
    run = int(np.argmin(follows)) + 1 if not follows.all() else len(starts)
    if run < len(starts) and good[run - 1]:
        # Lines within a payload look like frames; what lies within an earlier frame is none.
        reach = np.maximum.accumulate(np.where(good, ends, 0))
        chosen = np.flatnonzero(np.concatenate(([True], starts[1:] >= reach[:-1])))
        follows = (ends[chosen][:-1] == starts[chosen][1:]) & good[chosen][:-1]
        run = int(np.argmin(follows)) + 1 if not follows.all() else len(chosen)
        kept = chosen
        last = int(chosen[run - 1])
    else:
        last = run - 1
    # Each frame but the last ends where a line begins, so its CR LF was seen.
    end = int(ends[last])
    if not good[last] or octets[end - 2] != _CR or octets[end - 1] != _LF:
        run -= 1
    return slice(run) if isinstance(kept, slice) else kept[:run]


def _constant_of(data: Bytes, framed: _Framed) -> bytes | None:
    """Return what stands between subject and sequence in every delivery: the sid and the beginning of the ack."""
    for row in range(min(len(framed.starts), _LOOKED_AT)):
        words = bytes(data[int(framed.starts[row]) : int(framed.replies[row])]).split(b" ")
        if len(words) != _WORDS_OF_DELIVERY or min(b"".join(words)) <= _SPACE:
            continue
        *_, sid, reply = words
        tokens = reply.split(b".")
        if reply.startswith(PREFIX) and len(tokens) == SHORT_TOKENS and parse_ack(reply) is not None:
            return b" %s %s." % (sid, b".".join(tokens[:5]))
    return None


def _deliveries(
    data: Bytes,
    octets: NDArray[np.uint8],
    framed: _Framed,
    constant: bytes,
    subject_prefix: bytes,
    *,
    times: bool,
) -> DeliveryPass | None:
    words = _words(data, len(octets), "<u8")
    _, digits, good = _numbers(words, framed.replies, values=False)
    at = framed.replies - digits - 1
    good &= octets[at] == _DOT
    time_end = at
    at = at - _TIME_DIGITS - 1
    good &= octets[at] == _DOT
    consumer_sequences, digits, known = _numbers(words, at)
    good &= known
    at = at - digits - 1
    good &= octets[at] == _DOT
    stream_sequences, digits, known = _numbers(words, at)
    good &= known
    at = at - digits
    subject_ends = at - len(constant)
    subject_starts = framed.starts + 4
    subject_starts += framed.headered
    good &= subject_ends > subject_starts + len(subject_prefix)
    good = _holds(data, at, constant, good)
    if subject_prefix:
        good = _holds(data, subject_starts + len(subject_prefix), subject_prefix, good)
    timestamps = None
    if times:
        timestamps, known = _long_numbers(words, time_end)
        good &= known
    others: list[tuple[int, int]] = []
    chosen: slice | Ints = slice(None)
    if not good.all():
        chosen = np.flatnonzero(good)
        wrong = np.flatnonzero(~good)
        others = list(zip(framed.starts[wrong].tolist(), (framed.ends[wrong] + 2).tolist(), strict=True))
    subjects = gather(data, subject_starts[chosen] + len(subject_prefix), subject_ends[chosen])
    if not len(subjects) or int(np.frombuffer(gathered_view(subjects), np.uint8).min()) <= _SPACE:
        return None
    with_headers = bool(framed.headered[chosen].any())
    return DeliveryPass(
        subjects,
        gather(data, framed.payload_starts[chosen], framed.ends[chosen]),
        gather(data, framed.header_starts[chosen], framed.payload_starts[chosen]) if with_headers else None,
        stream_sequences[chosen],
        consumer_sequences[chosen],
        None if timestamps is None else timestamps[chosen],
        _pending(data, int(framed.replies[chosen][-1])),
        others,
        int(framed.ends[-1]) + 2,
        constant.split(b" ")[1],
    )


def _pending(data: Bytes, reply_end: int) -> int:
    return int(bytes(data[reply_end - _TIME_DIGITS - 1 : reply_end]).rpartition(b".")[2])


def _words(data: Bytes, size: int, dtype: str) -> NDArray[np.unsignedinteger]:
    """Return the unaligned words of a buffer by the position of their first byte."""
    found: NDArray[np.unsignedinteger] = np.ndarray((size - np.dtype(dtype).itemsize + 1,), dtype, data, 0, (1,))
    return found


def _numbers(words: Words, ends: Ints, *, values: bool = True) -> tuple[Words, Ints, Flags]:
    """Return the number of at most 15 digits before each end, how many digits it has, and whether it is one."""
    number, digits, good = _eight(words, ends, values=values)
    full = digits == _WORD
    if full.any():
        rows = np.flatnonzero(full)
        high, more, _ = _eight(words, ends[rows] - _WORD, values=values)
        good[rows] = more < _WORD
        digits[rows] += more
        number[rows] += high * _EIGHT_DIGITS
    return number, digits, good


def _eight(words: Words, ends: Ints, *, values: bool) -> tuple[Words, Ints, Flags]:
    """Return the number in the digits before each end, eight at most, and how many they are; none is not good."""
    word: Words = words[np.maximum(ends - _WORD, 0)]
    swapped = word.byteswap()
    swapped ^= _ZEROS
    other = swapped & _LOW7
    other += _NINES
    other |= swapped
    other &= _TOPS
    # The lowest byte that is no digit is the last before the number; below it, all bits are digits.
    other &= ~other + _ONE
    other >>= _SEVEN
    other -= _ONE
    digits = (np.bitwise_count(other) >> 3).astype(np.int64)
    good = digits > 0
    if not values:
        return word, digits, good
    swapped &= other
    # The first digit is now the highest byte: pairs, fours and eights of digits are put together from there.
    number = swapped & _LOW
    number = ((number >> _EIGHT) & _PAIRS) * _TEN + (number & _PAIRS)
    number = ((number >> _SIXTEEN) & _QUADS) * _HUNDRED + (number & _QUADS)
    number = (number >> _THIRTY_TWO) * _MYRIAD + (number & np.uint64(0xFFFFFFFF))
    return number, digits, good


def _long_numbers(words: Words, ends: Ints) -> tuple[Words, Flags]:
    """Return the numbers of exactly nineteen digits before each end."""
    low, first, _ = _eight(words, ends, values=True)
    middle, second, _ = _eight(words, ends - _WORD, values=True)
    high, third, _ = _eight(words, ends - 2 * _WORD, values=True)
    good = (first == _WORD) & (second == _WORD) & (third == _TIME_DIGITS - 2 * _WORD)
    return (high * _EIGHT_DIGITS + middle) * _EIGHT_DIGITS + low, good


def _holds_few(data: Bytes, ends: Ints, wanted: bytes) -> Flags:
    """As `_holds`, word by word."""
    words: Words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, 0, (1,))
    held = np.ones(len(ends), np.bool_)
    for start in range(0, len(wanted), _WORD):
        part = wanted[start : start + _WORD]
        word = words[np.maximum(ends - (len(wanted) - start), 0)]
        if len(part) < _WORD:
            word &= np.uint64((1 << 8 * len(part)) - 1)
        held &= word == int.from_bytes(part, "little")
    return held


def _holds(data: Bytes, ends: Ints, wanted: bytes, good: Flags) -> Flags:
    """Tell for rows that are good so far whether the bytes before their end are the wanted ones."""
    if len(wanted) <= _FEW_WORDS * _WORD:
        return good & _holds_few(data, ends, wanted)
    rows = np.flatnonzero(good)
    count = len(rows)
    stops = ends if count == len(ends) else ends[rows]
    text = gathered_bytes(gather(data, stops - len(wanted), stops))
    if text == wanted * count:
        return good
    same = (np.frombuffer(text, np.uint8).reshape(count, len(wanted)) == np.frombuffer(wanted, np.uint8)).all(axis=1)
    held = np.zeros(len(ends), np.bool_)
    held[rows] = same
    return held
