"""Many frames over the buffer they came in: spans as columns, bytes only when asked for.

Invariants: a batch never changes, and its views stay valid as long as they are held (they hold the buffer). Rows are in
the order of the stream. A missing part of a frame is empty. A few rows stay tuples until columns are
requested, whose setup takes longer than reading such a batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strandline.wire.acks import AckColumns, parse_acks
from strandline.wire.columns import Flags, Ints, Words, decimals, gather, gathered_bytes, words_at
from strandline.wire.errors import ProtocolViolation
from strandline.wire.headers import Headers, parse_headers
from strandline.wire.lines import Row
from strandline.wire.ops import Op

_FIELDS = {name: number for number, name in enumerate(Row._fields)}
_SUBJECT_START, _SUBJECT_END = _FIELDS["subject_start"], _FIELDS["subject_end"]
_HEADER_START, _PAYLOAD_END = _FIELDS["header_start"], _FIELDS["payload_end"]
_REPLY_START, _REPLY_END = _FIELDS["reply_start"], _FIELDS["reply_end"]
_WITH_HEADERS = frozenset((int(Op.HPUB), int(Op.HMSG)))
_MESSAGES = frozenset(map(int, (Op.MSG, Op.HMSG, Op.PUB, Op.HPUB)))
_IS_MESSAGE = np.isin(np.arange(max(Op) + 1), list(_MESSAGES))


class Frame(NamedTuple):
    """One frame; `reply` is the queue group of a SUB, `payload` the argument of a control line."""

    op: Op
    subject: bytes
    reply: bytes
    sid: bytes
    headers: memoryview
    payload: memoryview


class FrameBatch:
    """Frames of one buffer; `problem` is the violation that follows the last of them, if there is one."""

    __slots__ = ("_alike", "_columns", "_message_bytes", "_stride", "_tuples", "data", "is_tidy", "problem")

    def __init__(
        self,
        data: bytes,
        rows: Ints | list[tuple[int, ...]],
        problem: ProtocolViolation | None = None,
        *,
        is_tidy: bool = True,
        stride: int = 0,
        alike: int = 0,
    ) -> None:
        self.data = data
        self._stride = stride
        self._alike = alike
        """How many frames at the beginning have one shape, and how far apart they are."""
        self.problem = problem
        self.is_tidy = is_tidy
        """The lines of messages have single spaces and end with CR LF."""
        self._tuples: list[tuple[int, ...]] | None = rows if isinstance(rows, list) else None
        self._columns: Ints | None = None if isinstance(rows, list) else rows
        self._message_bytes: int | None = None

    @property
    def rows(self) -> Ints:
        """Return a column for each field of `Row`."""
        if self._columns is None:
            self._columns = columns_of(self._tuples or ())
        return self._columns

    @staticmethod
    def empty() -> "FrameBatch":
        """Return a batch without frames."""
        return FrameBatch(b"", [])

    def __len__(self) -> int:
        return len(self._tuples) if self._tuples is not None else int(self.rows.shape[1])

    def __iter__(self) -> Iterator[Frame]:
        view = memoryview(self.data)
        return (_frame(self.data, view, Row(*row)) for row in self.tuples())

    def __getitem__(self, number: int) -> Frame:
        row = self._tuples[number] if self._tuples is not None else self.rows[:, number].tolist()
        return _frame(self.data, memoryview(self.data), Row(*row))

    def tuples(self) -> Sequence[Sequence[int]]:
        """Return the fields of `Row` for each frame."""
        if self._tuples is not None:
            return self._tuples
        rows: list[list[int]] = self.rows.T.tolist()
        return rows

    def spans(self, *names: str) -> Iterable[tuple[int, ...]]:
        """Return some fields of `Row`, two or more, for each frame."""
        if self._tuples is not None:
            return map(itemgetter(*(_FIELDS[name] for name in names)), self._tuples)
        return zip(*(self.column(name).tolist() for name in names), strict=True)

    @property
    def ops(self) -> Ints:
        """Return the operation of each frame, as a number of `Op`."""
        return self.column("op")

    def select(self, chosen: Flags | Ints) -> "FrameBatch":
        """Return the chosen frames over the same buffer."""
        return FrameBatch(self.data, self.rows[:, chosen], self.problem, is_tidy=self.is_tidy)

    def pick(self, numbers: Sequence[int]) -> "FrameBatch":
        """Return the frames of some numbers over the same buffer; cheaper than `select` for a few of a few."""
        if isinstance(numbers, range) and numbers.step == 1:
            return self.part(numbers.start, numbers.stop)
        if self._tuples is None:
            return self.select(np.array(numbers, np.int64))
        rows = self._tuples
        return FrameBatch(self.data, [rows[number] for number in numbers], self.problem, is_tidy=self.is_tidy)

    def part(self, first: int, end: int) -> "FrameBatch":
        """Return the frames from one number to before another, over the same buffer."""
        rows = self.rows[:, first:end] if self._tuples is None else self._tuples[first:end]
        alike = max(min(self._alike, end) - first, 0)
        return FrameBatch(self.data, rows, self.problem, is_tidy=self.is_tidy, stride=self._stride, alike=alike)

    def messages(self) -> "FrameBatch":
        """Return the frames that carry a message: MSG, HMSG, PUB, HPUB."""
        chosen = _IS_MESSAGE[self.ops]
        return self if chosen.all() else self.select(chosen)

    def others(self) -> "FrameBatch":
        """Return the frames that carry none, in order."""
        return self.select(~_IS_MESSAGE[self.ops])

    def control_numbers(self) -> list[int]:
        """Return the numbers of the frames that carry no message."""
        if self._tuples is not None:
            return [number for number, row in enumerate(self._tuples) if row[0] not in _MESSAGES]
        numbers: list[int] = np.flatnonzero(~_IS_MESSAGE[self.ops]).tolist()
        return numbers

    def column(self, name: str) -> Ints:
        """Return a field of `Row` for every frame."""
        values: Ints = self.rows[_FIELDS[name]]
        return values

    def subjects(self, skip: int = 0) -> list[str]:
        """Return the subject of each message, without its first `skip` bytes; bytes that are not UTF-8 are escaped."""
        starts, ends = self.column("subject_start") + skip, self.column("subject_end")
        # The byte after a subject is nearly always the one space that can be split at.
        text = gathered_bytes(gather(self.data, starts, ends + 1)).decode(errors="surrogateescape")
        if text.count(" ") == len(self):
            return text[:-1].split(" ") if text else []
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return [self.data[start:end].decode(errors="surrogateescape") for start, end in spans]

    def subject_list(self) -> list[bytes]:
        """Return the subject of each message as it is."""
        data = self.data
        if self._tuples is not None:
            return [data[row[_SUBJECT_START] : row[_SUBJECT_END]] for row in self._tuples]
        if 2 * self._alike > len(self):
            return self._pieces("subject_start", "subject_end")
        text = gathered_bytes(gather(data, self.column("subject_start"), self.column("subject_end") + 1))
        first, _, _ = text.partition(b" ")
        if len(text) == (len(first) + 1) * len(self) and text == (first + b" ") * len(self):
            return [first] * len(self)
        subjects = text.split(b" ")
        return subjects[:-1] if len(subjects) == len(self) + 1 else self._pieces("subject_start", "subject_end")

    def subject_at(self, number: int) -> bytes:
        """Return the subject of one frame, empty if it has none."""
        row = self._tuples[number] if self._tuples is not None else self.rows[:, number]
        return self.data[row[_SUBJECT_START] : row[_SUBJECT_END]]

    def subject_array(self, skip: int = 0) -> pa.BinaryArray:
        """Return the subject of each message as an Arrow column, without its first `skip` bytes."""
        return gather(self.data, self.column("subject_start") + skip, self.column("subject_end"))

    def sids(self) -> Words:
        """Return the subscription of each MSG or HMSG, 0 if it is not a number."""
        ends = self.column("sid_end")
        return decimals(self.data, ends, ends - self.column("sid_start"))[0]

    def message_bytes(self) -> int:
        """Return the size of all payloads and header blocks; it is counted once."""
        size = self._message_bytes
        if size is None:
            if self._tuples is not None:
                size = sum([row[_PAYLOAD_END] - row[_HEADER_START] for row in self._tuples])
            else:
                size = int((self.column("payload_end") - self.column("header_start")).sum())
            self._message_bytes = size
        return size

    def may_have_header(self, name: bytes) -> bool:
        """Tell whether some header block may hold a name; a payload that holds it says yes as well."""
        if not self.has_headers():
            return False
        if self._tuples is not None:
            start, end = self._tuples[0][_HEADER_START], self._tuples[-1][_PAYLOAD_END]
        else:
            starts = self.column("header_start")
            if int((self.column("payload_start") - starts).max()) <= len(name):
                return False
            start, end = int(starts[0]), int(self.column("payload_end")[-1])
        return self.data.find(name, start, end) >= 0

    def has_headers(self) -> bool:
        """Tell whether some frame is one with headers."""
        if self._tuples is not None:
            return not _WITH_HEADERS.isdisjoint([row[0] for row in self._tuples])
        ops = self.ops
        return bool(((ops == Op.HPUB) | (ops == Op.HMSG)).any())

    def has_replies(self) -> bool:
        """Tell whether some message has a reply subject, or a SUB a queue group."""
        if self._tuples is not None:
            return any(row[_REPLY_END] for row in self._tuples)
        return bool(self.column("reply_end").any())

    def any_reply_starts(self, prefixes: tuple[bytes, ...]) -> bool:
        """Tell whether some reply subject begins with one of some prefixes of four bytes or more."""
        data = self.data
        if self._tuples is not None:
            return any(row[_REPLY_END] and data.startswith(prefixes, row[_REPLY_START]) for row in self._tuples)
        starts = self.column("reply_start")
        words = words_at(data, "<u4", starts)
        likely = np.logical_or.reduce([words == int.from_bytes(prefix[:4], "little") for prefix in prefixes])
        return bool(likely.any()) and any(data.startswith(prefixes, start) for start in starts[likely].tolist())

    def replies_ending(self, suffix: bytes) -> list[int]:
        """Return the numbers of the messages whose reply subject ends so."""
        data = self.data
        if self._tuples is not None:
            rows = enumerate(self._tuples)
            return [number for number, row in rows if data.endswith(suffix, row[_REPLY_START], row[_REPLY_END])]
        starts, ends = self.column("reply_start"), self.column("reply_end")
        likely = np.flatnonzero((ends > starts) & (np.frombuffer(data, np.uint8)[ends - 1] == suffix[-1]))
        return [each for each in likely.tolist() if data.endswith(suffix, int(starts[each]), int(ends[each]))]

    def replies(self) -> list[bytes]:
        """Return the reply subject of each message, empty if there is none."""
        return self._pieces("reply_start", "reply_end")

    def payloads(self) -> list[bytes]:
        """Return a copy of each payload."""
        return self._pieces("payload_start", "payload_end")

    def payload_array(self) -> pa.BinaryArray:
        """Return the payload of each message as an Arrow column."""
        return gather(self.data, self.column("payload_start"), self.column("payload_end"))

    def header_array(self) -> pa.BinaryArray:
        """Return the header block of each message as an Arrow column, empty where there is none."""
        return gather(self.data, self.column("header_start"), self.column("payload_start"))

    def with_headers(self) -> Flags:
        """Tell which frames have a header block."""
        return self.column("payload_start") > self.column("header_start")

    def headers(self, number: int) -> Headers:
        """Return the headers of one frame, parsed now; `MalformedHeaders` if they are none."""
        start, end = int(self.column("header_start")[number]), int(self.column("payload_start")[number])
        return parse_headers(self.data[start:end])

    def acks(self, *, times: bool = True) -> AckColumns:
        """Return what the reply subject of each message tells about its place in a stream; without `times`, faster."""
        return parse_acks(self.data, self.column("reply_start"), self.column("reply_end"), times=times)

    def _pieces(self, start: str, end: str) -> list[bytes]:
        data = self.data
        if self._tuples is not None:
            first, last = _FIELDS[start], _FIELDS[end]
            return [data[row[first] : row[last]] for row in self._tuples]
        starts, ends, alike = self.column(start), self.column(end), self._alike
        if alike:
            spans = zip(starts[alike:].tolist(), ends[alike:].tolist(), strict=True)
            return self._alike_pieces(int(starts[0]), int(ends[0])) + [data[a:b] for a, b in spans]
        return [data[a:b] for a, b in zip(self.column(start).tolist(), self.column(end).tolist(), strict=True)]

    def _alike_pieces(self, start: int, end: int) -> list[bytes]:
        """Return what stands between two places of the first frame, and at the same places of the others."""
        count, stride, length = self._alike, self._stride, end - start
        if not length:
            return [b""] * count
        first = int(self.column("end")[0]) - stride
        octets = np.frombuffer(self.data, np.uint8, count * stride, first).reshape(count, stride)
        pieces = octets[:, start - first : end - first].tobytes()
        if pieces == pieces[:length] * count:
            return [pieces[:length]] * count
        rows: list[bytes] = np.frombuffer(pieces, f"V{length}").tolist()
        return rows


def _frame(data: bytes, view: memoryview, row: Row) -> Frame:
    return Frame(
        Op(row.op),
        data[row.subject_start : row.subject_end],
        data[row.reply_start : row.reply_end],
        data[row.sid_start : row.sid_end],
        view[row.header_start : row.payload_start],
        view[row.payload_start : row.payload_end],
    )


def columns_of(rows: Sequence[tuple[int, ...]]) -> Ints:
    """Return a column for each field of `Row`."""
    fields = len(Row._fields)
    return np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * fields).reshape(len(rows), fields).T
