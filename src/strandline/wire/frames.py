"""Many frames over the buffer they came in: spans as columns, bytes only when asked for.

Invariants: a batch never changes, and its views stay valid as long as they are held (they hold the buffer). Rows are in
the order of the stream. A part that a frame does not have is empty.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strandline.wire.acks import AckColumns, parse_acks
from strandline.wire.columns import Flags, Ints, Words, decimals, gather, gathered_bytes
from strandline.wire.errors import ProtocolViolation
from strandline.wire.headers import Headers, parse_headers
from strandline.wire.lines import Row
from strandline.wire.ops import Op

_FIELDS = {name: number for number, name in enumerate(Row._fields)}
_IS_MESSAGE = np.isin(np.arange(max(Op) + 1), (Op.MSG, Op.HMSG, Op.PUB, Op.HPUB))


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

    __slots__ = ("data", "problem", "rows")

    def __init__(self, data: bytes, rows: Ints, problem: ProtocolViolation | None = None) -> None:
        self.data = data
        self.rows = rows
        self.problem = problem

    @staticmethod
    def empty() -> "FrameBatch":
        """Return a batch without frames."""
        return FrameBatch(b"", np.empty((len(Row._fields), 0), np.int64))

    def __len__(self) -> int:
        return int(self.rows.shape[1])

    def __iter__(self) -> Iterator[Frame]:
        view = memoryview(self.data)
        return (_frame(self.data, view, Row(*row)) for row in self.rows.T.tolist())

    def __getitem__(self, number: int) -> Frame:
        return _frame(self.data, memoryview(self.data), Row(*self.rows[:, number].tolist()))

    @property
    def ops(self) -> Ints:
        """Return the operation of each frame, as a number of `Op`."""
        return self.column("op")

    def select(self, chosen: Flags | Ints) -> "FrameBatch":
        """Return the chosen frames over the same buffer."""
        return FrameBatch(self.data, self.rows[:, chosen], self.problem)

    def messages(self) -> "FrameBatch":
        """Return the frames that carry a message: MSG, HMSG, PUB, HPUB."""
        chosen = _IS_MESSAGE[self.ops]
        return self if chosen.all() else self.select(chosen)

    def others(self) -> "FrameBatch":
        """Return the frames that carry none, in order."""
        return self.select(~_IS_MESSAGE[self.ops])

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

    def subject_array(self, skip: int = 0) -> pa.BinaryArray:
        """Return the subject of each message as an Arrow column, without its first `skip` bytes."""
        return gather(self.data, self.column("subject_start") + skip, self.column("subject_end"))

    def sids(self) -> Words:
        """Return the subscription of each MSG or HMSG, 0 if it is not a number."""
        ends = self.column("sid_end")
        return decimals(self.data, ends, ends - self.column("sid_start"))[0]

    def replies(self) -> list[bytes]:
        """Return the reply subject of each message, empty if there is none."""
        return self._pieces("reply_start", "reply_end")

    def payloads(self) -> list[bytes]:
        """Return a copy of each payload."""
        return self._pieces("payload_start", "payload_end")

    def payload_views(self) -> list[memoryview]:
        """Return each payload as a view, which holds the buffer."""
        view = memoryview(self.data)
        spans = zip(self.column("payload_start").tolist(), self.column("payload_end").tolist(), strict=True)
        return [view[start:end] for start, end in spans]

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
        return [data[a:b] for a, b in zip(self.column(start).tolist(), self.column(end).tolist(), strict=True)]


def _frame(data: bytes, view: memoryview, row: Row) -> Frame:
    return Frame(
        Op(row.op),
        data[row.subject_start : row.subject_end],
        data[row.reply_start : row.reply_end],
        data[row.sid_start : row.sid_end],
        view[row.header_start : row.payload_start],
        view[row.payload_start : row.payload_end],
    )
