"""A publisher of many messages with few waits: a window is one write, and its answers are counted and checked.

Invariants: a window is sent only when every message of the one before was acknowledged, so that a crash leaves whole
windows and a part of one in the stream. The rows of a window follow from the rows alone: at most `WINDOW_ROWS` and
`WINDOW_BYTES`, and no subject more often than the stream keeps messages of it, so that no message of a window evicts
another. Every message carries the id of its row; an answer is judged by its code.
"""

import json
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import RecordTooLarge
from strandline.nats.errors import NoAnswer, ServerRefused, stream_error
from strandline.nats.socket import NatsSocket, new_inbox
from strandline.nats.streams import StreamState
from strandline.spark.errors import invalid_input
from strandline.wire import FrameBatch, binary_list, matcher

WINDOW_ROWS = 8_192
WINDOW_BYTES = 4 * 1024 * 1024
ID_HEADER = "Nats-Msg-Id"
_ROOM = 512
"""Bytes that the first line and the id of a header block may take."""
_ANSWER_S = 30.0


class Window(NamedTuple):
    """Rows that are published together; `first` is the number of the first of them in its commit."""

    first: int
    subjects: list[bytes]
    heads: list[bytes]
    datas: list[bytes]

    def __len__(self) -> int:
        return len(self.subjects)


def windows(batches: Iterator[pa.RecordBatch], per_subject_max: int, rows_max: int) -> Iterator[Window]:
    """Yield rows in windows; `per_subject_max` 0 is no limit."""
    first = 0
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        for part in _cut(batch, rows_max):
            if held and (count + part.num_rows > rows_max or size + part.nbytes > WINDOW_BYTES):
                first = yield from _cut_by_subject(held, first, per_subject_max)
                held, count, size = [], 0, 0
            held.append(part)
            count, size = count + part.num_rows, size + part.nbytes
    if held:
        yield from _cut_by_subject(held, first, per_subject_max)


def _cut(batch: pa.RecordBatch, rows_max: int) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    step = max(1, min(rows_max, rows * WINDOW_BYTES // max(batch.nbytes, 1)))
    yield from (batch.slice(at, step) for at in range(0, rows, step))


def _cut_by_subject(held: list[pa.RecordBatch], first: int, per_subject_max: int) -> Generator[Window, None, int]:
    """Yield the rows as one window or, where subjects repeat too often, several; return the number after the last."""
    subjects, heads, datas = (
        [row for batch in held for row in binary_list(batch.column(name))] for name in ("subject", "head", "data")
    )
    for begin, end in _spans(subjects, per_subject_max):
        yield Window(first + begin, subjects[begin:end], heads[begin:end], datas[begin:end])
    return first + len(subjects)


def _spans(subjects: list[bytes], per_subject_max: int) -> Iterator[tuple[int, int]]:
    begin = 0
    if per_subject_max and len(set(subjects)) < len(subjects):
        counts: Counter[bytes] = Counter()
        for number, subject in enumerate(subjects):
            if counts[subject] == per_subject_max:
                yield begin, number
                begin = number
                counts.clear()
            counts[subject] += 1
    yield begin, len(subjects)


def check_messages(state: StreamState, payload_max: int, batch: pa.RecordBatch) -> None:
    """Raise `InvalidInput` for a subject of another stream, and `RecordTooLarge` for a message over the limit."""
    known = matcher(state.subjects)
    for subject in binary_list(batch.column("subject").unique()):
        if state.subjects and not known(subject.decode()):
            raise invalid_input(
                f"subject {subject.decode()} is not one of stream {state.name}",
                f"it takes {', '.join(state.subjects)}",
            )
    limit = min(payload_max, state.message_bytes_max or payload_max) - _ROOM
    sizes = pc.add(pc.binary_length(batch.column("data")), pc.binary_length(batch.column("head")))
    if len(sizes) and (largest := pc.max(sizes).as_py()) > limit:
        raise RecordTooLarge(largest, limit, "message")


class Publisher:
    """Publishes windows over a connection of its own: `format`, `send`, then `collect` before the next is sent."""

    def __init__(self, connection: NatsSocket, stream: str, id_prefix: str) -> None:
        self._socket = connection
        self._id = f"NATS/1.0\r\n{ID_HEADER}: {id_prefix}".encode()
        self._stored = f'{{"stream":{json.dumps(stream)},'.encode()
        self._inbox = new_inbox().encode()
        self._socket.subscribe(f"{self._inbox.decode()}.*")
        self._open_rows = 0
        self.highest = 0
        """The highest sequence that was given to a message, as far as it is known."""

    def send(self, frames: bytes, rows: int) -> None:
        """Send a window; every answer to the one before was collected."""
        self._open_rows += rows
        self._socket.send(frames)

    def collect(self) -> None:
        """Wait for the answers to the messages that were sent.

        Raises the error of the first row that the server refused; the others may be stored.
        """
        problem: Exception | None = None
        while self._open_rows:
            answers = self._socket.receive(_ANSWER_S)
            if not len(answers):
                self._socket.raise_refusal()
                raise NoAnswer(f"{self._open_rows} published messages", _ANSWER_S)
            self._open_rows -= len(answers)
            problem = problem or self._problem(answers)
            self.highest = max(self.highest, self._highest(answers))
        if problem is not None:
            raise problem

    def format(self, window: Window, chosen: Sequence[int]) -> bytes:
        """Return some rows of a window as frames."""
        start, inbox, first = self._id, self._inbox, window.first
        subjects, heads, datas = window.subjects, window.heads, window.datas
        parts = []
        for row in chosen:
            block = b"%s%d\r\n%s\r\n" % (start, first + row, heads[row])
            data = datas[row]
            size = len(block)
            sizes = (size, size + len(data))
            parts.append(b"HPUB %s %s.%d %d %d\r\n%s%s\r\n" % (subjects[row], inbox, row, *sizes, block, data))
        return b"".join(parts)

    def _problem(self, answers: FrameBatch) -> Exception | None:
        """Return the first error among answers, None if all were stored, or were there already, in our stream."""
        payloads = answers.payload_array()
        stored = pc.starts_with(payloads, self._stored).to_numpy(zero_copy_only=False)
        for number in np.flatnonzero(~stored).tolist():
            status = answers.headers(number).status
            payload = bytes(answers[number].payload)
            return _error(status, payload)
        errors = pc.match_substring(payloads, b'"error"').to_numpy(zero_copy_only=False)
        for number in np.flatnonzero(errors).tolist():
            return _error(0, bytes(answers[number].payload))
        return None

    @staticmethod
    def _highest(answers: FrameBatch) -> int:
        try:
            return int(json.loads(bytes(answers[len(answers) - 1].payload)).get("seq", 0))
        except (ValueError, AttributeError):
            return 0


def _error(status: int, payload: bytes) -> Exception:
    try:
        answer = json.loads(payload) if payload else {}
    except ValueError:
        answer = {}
    error = answer.get("error")
    if error:
        code = int(error.get("err_code", error.get("code", 0)))
        return stream_error(code, str(error.get("description", "")), str(answer.get("stream", "")))
    if answer.get("stream"):
        return invalid_input(f"a message went into stream {answer['stream']}", "its subject belongs to that stream")
    return ServerRefused(status or 503, "no stream took a message")
