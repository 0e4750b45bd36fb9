"""The deliveries of a consumer as columns, and its control messages.

Invariants: rows are in the order of the stream. The columns hold copies: they stay as they are, whatever the
connection does next.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.errors import FormatError
from strandline.nats.receive_buffer import ReceiveBuffer
from strandline.nats.socket import NatsSocket
from strandline.wire import (
    Ack,
    Frame,
    FrameBatch,
    FrameParser,
    ProtocolViolation,
    Side,
    Times,
    find_deliveries,
    parse_ack,
)
from strandline.wire.columns import Flags

FEW = 100
PASS_BYTES_MIN = 1 << 13
"""Below this, reading frame by frame is as fast."""

CONTROL = 100
"""The status of heartbeats and flow control."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivered:
    """Messages of a stream as columns of one length; subjects are without the plan's prefix.

    `headers` are raw header blocks, empty where a message has none, or None if no message of the batch has any;
    `times_ns` are there if they were asked for. `pending` is how many messages waited behind the last one.
    """

    subjects: pa.BinaryArray
    sequences: NDArray[np.uint64]
    payloads: pa.BinaryArray
    headers: pa.BinaryArray | None
    times_ns: NDArray[np.int64] | None
    pending: int

    def __len__(self) -> int:
        return len(self.sequences)

    def select(self, chosen: Flags) -> "Delivered":
        """Return the chosen rows; what waited behind the last row is as before."""
        rows = pa.array(chosen)
        return Delivered(
            self.subjects.filter(rows),
            self.sequences[chosen],
            self.payloads.filter(rows),
            None if self.headers is None else self.headers.filter(rows),
            None if self.times_ns is None else self.times_ns[chosen],
            self.pending,
        )

    def slice(self, start: int, stop: int) -> "Delivered":
        """Return the rows from `start` to before `stop`; those behind them are pending too."""
        count = max(stop - start, 0)
        return Delivered(
            self.subjects.slice(start, count),
            self.sequences[start:stop],
            self.payloads.slice(start, count),
            None if self.headers is None else self.headers.slice(start, count),
            None if self.times_ns is None else self.times_ns[start:stop],
            self.pending + max(len(self) - stop, 0),
        )


class Control(NamedTuple):
    """What a push consumer says beside messages: the last number it gave, and where it wants an answer."""

    last_consumer: int = 0
    answer_to: tuple[bytes, ...] = ()
    problem: str = ""
    """What came that is neither a delivery nor a control message."""


class Taken(NamedTuple):
    """A buffer's worth of deliveries: the columns (None if there are none), their numbers, and the other messages.

    `is_unbroken` says that the consumer's numbers follow each other.
    """

    delivered: Delivered | None
    first_number: int
    last_number: int
    is_unbroken: bool
    others: FrameBatch | None

    def follows(self, number: int) -> bool:
        """Tell whether the consumer's numbers go on after one without a gap."""
        return self.is_unbroken and self.first_number == number + 1


def receive_deliveries(
    connection: NatsSocket,
    subject_prefix: bytes,
    *,
    times: Times,
    timeout_s: float,
    linger_s: float = 0.0,
    sid: int | None = None,
) -> Taken | None:
    """Take what has come, or what comes within a time; None if nothing does.

    With `sid`, messages of other subscriptions are dropped.
    """
    inbound = connection.inbound
    while True:
        if inbound.is_promising:
            taken = None
            if inbound.size >= PASS_BYTES_MIN:
                taken = take_pass(inbound, subject_prefix, times=times, sid=sid)
            if taken is None and len(messages := _of(connection.take_messages(), sid)):
                taken = take_messages(messages, subject_prefix, times=times)
            if taken is not None:
                return taken
        if not connection.fill(timeout_s, linger_s=linger_s):
            return None


def _of(messages: FrameBatch, sid: int | None) -> FrameBatch:
    if sid is None or not len(messages):
        return messages
    ours = messages.sids() == sid
    return messages if ours.all() else messages.select(ours)


def take_pass(inbound: ReceiveBuffer, subject_prefix: bytes, *, times: Times, sid: int | None = None) -> Taken | None:
    """Take a run of deliveries in one pass; None, and nothing is taken, if what has come is too little or unusual."""
    found = find_deliveries(inbound.data, inbound.size, inbound.limits, subject_prefix=subject_prefix, times=times)
    if found is None or (sid is not None and found.sid != b"%d" % sid):
        return None
    others = None
    if found.others:
        frames = _frames(inbound, found.others)
        if frames is None or frames.acks(times=False).known.any():
            return None
        others = _of(frames, sid)
    inbound.drop_run(found.end)
    times_ns = None if found.timestamps_ns is None else found.timestamps_ns.view(np.int64)
    delivered = Delivered(
        found.subjects, found.stream_sequences, found.payloads, found.headers, times_ns, found.pending
    )
    return _taken(delivered, found.consumer_sequences, others)


def _frames(inbound: ReceiveBuffer, spans: list[tuple[int, int]]) -> FrameBatch | None:
    """Return the messages at some spans; None if one of them cannot be read."""
    parser = FrameParser(Side.SERVER, inbound.limits)
    try:
        batch = parser.feed(b"".join(bytes(inbound.data[start:end]) for start, end in spans))
    except ProtocolViolation:
        return None
    return batch if len(batch) == len(spans) else None


def take_messages(messages: FrameBatch, subject_prefix: bytes, *, times: Times) -> Taken:
    """Return messages of a consumer as columns, whatever they look like."""
    if len(messages) < FEW:
        return _take_few(messages, subject_prefix, times=times is not Times.NONE)
    wanted = times.wanted(bool(messages.with_headers().any()))
    acks = messages.acks(times=wanted)
    others = None
    if not acks.known.all():
        others = messages.select(~acks.known)
        messages = messages.select(acks.known)
        acks = messages.acks(times=wanted)
    if not len(messages):
        return Taken(None, 0, 0, True, others)  # noqa: FBT003 - a row of a table
    subjects = messages.subject_array()
    if subject_prefix:
        if not pc.all(pc.starts_with(subjects, pattern=subject_prefix)).as_py():
            raise _foreign_subject()
        subjects = messages.subject_array(len(subject_prefix))
    delivered = Delivered(
        subjects,
        acks.stream_sequence,
        messages.payload_array(),
        messages.header_array() if messages.with_headers().any() else None,
        acks.timestamp_ns.view(np.int64) if wanted else None,
        int(acks.pending[-1]),
    )
    return _taken(delivered, acks.consumer_sequence, others)


def _take_few(messages: FrameBatch, subject_prefix: bytes, *, times: bool) -> Taken:
    """As `take_messages`, one by one: for few, that is faster."""
    skip = len(subject_prefix)
    rows: list[tuple[Ack, Frame]] = []
    unknown: list[int] = []
    for number, frame in enumerate(messages):
        ack = parse_ack(frame.reply)
        if ack is None:
            unknown.append(number)
        elif not frame.subject.startswith(subject_prefix):
            raise _foreign_subject()
        else:
            rows.append((ack, frame))
    others = messages.select(np.array(unknown)) if unknown else None
    if not rows:
        return Taken(None, 0, 0, True, others)  # noqa: FBT003 - a row of a table
    headers = [bytes(frame.headers) for _, frame in rows]
    delivered = Delivered(
        pa.array([frame.subject[skip:] for _, frame in rows], pa.binary()),
        np.array([ack.stream_sequence for ack, _ in rows], np.uint64),
        pa.array([frame.payload for _, frame in rows], pa.binary()),
        pa.array(headers, pa.binary()) if any(headers) else None,
        np.array([ack.timestamp_ns for ack, _ in rows], np.int64) if times else None,
        rows[-1][0].pending,
    )
    return _taken(delivered, np.array([ack.consumer_sequence for ack, _ in rows], np.uint64), others)


def _foreign_subject() -> FormatError:
    return FormatError("JetStream", "a delivered subject does not begin as all of the stream's do")


def _taken(delivered: Delivered, numbers: NDArray[np.uint64], others: FrameBatch | None) -> Taken:
    is_unbroken = bool((np.diff(numbers) == 1).all())
    return Taken(delivered, int(numbers[0]), int(numbers[-1]), is_unbroken, others)


def control_of(messages: FrameBatch) -> Control:
    """Return what messages that are no deliveries say."""
    last, problem = 0, ""
    answers: list[bytes] = []
    for number, frame in enumerate(messages):
        headers = messages.headers(number)
        if headers.status != CONTROL:
            problem = f"status {headers.status}" if headers.status else "a message without a place in the stream"
            continue
        told = headers.get("Nats-Last-Consumer") or ""
        last = max(last, int(told) if told.isdecimal() else 0)
        stalled = headers.get("Nats-Consumer-Stalled")
        answers += [frame.reply] if frame.reply else []
        answers += [stalled.encode(errors="surrogateescape")] if stalled else []
    return Control(last, tuple(dict.fromkeys(answers)), problem)
