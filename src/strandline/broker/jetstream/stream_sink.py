"""Publishes to one stream: gathered from all clients of a commit cycle, stored together, answered together.

Invariants: rows keep their order of arrival. A row that asked for an answer gets one, after its ticket and in order; a
stream without acks answers nothing.
"""

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from strandline.broker.api import codes
from strandline.broker.api.error_text import for_clients
from strandline.broker.api.json_text import write_json
from strandline.broker.api.responses import PubAck
from strandline.broker.api.schema import to_json
from strandline.broker.jetstream.completion_queue import CompletionLine
from strandline.broker.routes import Cancel, Deliveries, Inbound, Routes
from strandline.broker.streams import PublishBatch, Published, Stream
from strandline.broker.streams.headers import EXPECTED_LAST_SEQ, EXPECTED_LAST_SUBJECT_SEQ
from strandline.wire import FrameBatch, matcher
from strandline.wire.lines import Row

if TYPE_CHECKING:
    from strandline.broker.core.message_trace import MessageTrace

FAST_INGEST = b".$FI"
"""How the reply subject of a message ends that belongs to a batch of fast ingest."""
LISTENERS_MAX = 10_000
"""How many subjects `StreamSinks` remembers."""
BATCH_BYTES_MAX = 16 << 20
"""Bytes that one append stores at most."""
_REPLY, _REPLY_END = Row._fields.index("reply_start"), Row._fields.index("reply_end")
_HEADER, _PAYLOAD, _END = (Row._fields.index(name) for name in ("header_start", "payload_start", "payload_end"))


Traces = list[tuple[int, "MessageTrace"]]
"""Rows of a batch that are traced."""


class StreamSink:
    """Gathers the messages on a stream's subjects; `note` is called when there are some."""

    is_stream = True
    """It stores messages, and reports the result of a traced one."""

    def __init__(
        self,
        name: str,
        stream: Stream,
        line: CompletionLine,
        note: Callable[["StreamSink"], None],
        late: Callable[[Inbound], None],
        refuse: Callable[[Deliveries], None],
        domain: str = "",
    ) -> None:
        self.name = name
        self.stream = stream
        self.line = line
        self.subjects: tuple[str, ...] = ()
        self.matches = matcher(())
        self.cancel: Cancel = _nothing
        self.gathered: list[Inbound] = []
        self.is_gone = False
        self.has_expiry = False
        self.has_chores = False
        self.expires = False
        self._note = note
        self._late = late
        self._refuse = refuse
        self._plain = to_json(PubAck(stream=name)).removesuffix(b"0}")
        self._head = self._plain.decode()
        self._has_domain = bool(domain)
        if domain:
            self._head = self._head.removesuffix('"seq":') + f'"domain":{write_json(domain).decode()},"seq":'

    def listen(self, subjects: tuple[str, ...], routes: Routes) -> None:
        """Subscribe to some subjects in the place of the former ones."""
        self.cancel()
        self.subjects, self.matches = subjects, matcher(subjects)
        self.cancel = routes.subscribe([each.encode() for each in subjects], self)

    def take(self, messages: Inbound) -> None:
        """Gather messages until the end of the cycle."""
        if self.is_gone:
            self._late(messages)
            return
        fast = messages.frames.replies_ending(FAST_INGEST)
        if fast:
            messages = self._without_fast(messages, set(fast))
            if not len(messages):
                return
        if not self.gathered:
            self._note(self)
        self.gathered.append(messages)

    def _without_fast(self, messages: Inbound, fast: set[int]) -> Inbound:
        """Refuse messages of fast ingest, which is not served, and return the others."""
        refused, kept = messages.frames.pick(sorted(fast)), [row for row in range(len(messages)) if row not in fast]
        refusal = codes.BATCH_PUBLISH_DISABLED.error()
        answer = to_json(PubAck(error=refusal, stream=self.name))
        self._refuse(Deliveries(refused.replies(), [answer] * len(fast)))
        if messages.trace is not None:
            messages.trace.note_stream(self.name, refusal.description)
        return Inbound(messages.frames.pick(kept), [messages.subjects[row] for row in kept], messages.origin)

    def let_go(self) -> list[Inbound]:
        """Return the gathered messages in their order."""
        gathered, self.gathered = self.gathered, []
        return gathered

    def taken(self) -> "Iterable[tuple[PublishBatch, list[bytes], list[Inbound]]]":
        """Return the gathered messages in batches to store, with the reply subjects."""
        gathered = self.let_go()
        if len(gathered) == 1:
            batch, replies = columns_of(gathered[0])
            return ((batch, replies, gathered),)
        return _joined(gathered)

    def tell_traces(self, traces: Traces, replies: list[bytes], answers: dict[int, bytes]) -> None:
        """Report the result of traced messages; a message that is only traced has an answer if it failed."""
        for row, trace in traces:
            answer = answers.get(row)
            if trace.only and answer is None:
                replies[row] = b""
            trace.note_stream(self.name, _problem(answer, trace))

    def acks(self, published: Published, replies: list[bytes]) -> Deliveries:
        """Return the answers to the messages that asked for one."""
        head, sequences, answers = self._head, published.sequences.tolist(), published.answers
        if len(sequences) == 1:
            texts = [answers[0] if answers else f"{head}{sequences[0]}}}".encode()]
        else:
            texts = (head + ("}\n" + head).join(map(str, sequences)) + "}").encode().split(b"\n")
            for row, text in answers.items():
                texts[row] = text
        if answers and self._has_domain:
            own, plain = self._head.encode(), self._plain
            texts = [own + text.removeprefix(plain) if text.startswith(plain) else text for text in texts]
        return _asked(replies, texts)

    def refusals(self, replies: list[bytes], error: BaseException) -> Deliveries:
        """Return the answers to messages that could not be stored."""
        refusal = codes.STREAM_STORE_FAILED.with_text(err=for_clients(error))
        return _asked(replies, [to_json(PubAck(error=refusal, stream=self.name))] * len(replies))


def _nothing() -> None:
    """Cancel nothing."""


class StreamSinks(dict[str, StreamSink]):
    """The sinks of an account by stream, and which of them keep a subject.

    The memory of subjects is bounded, and is cleared when a stream is created, changed or removed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[bytes, list[StreamSink]] = {}

    def listening(self, subject: bytes) -> list[StreamSink]:
        """Return the sinks that keep a subject."""
        found = self._listeners.get(subject)
        if found is None:
            if len(self._listeners) >= LISTENERS_MAX:
                self._listeners.clear()
            text = subject.decode(errors="surrogateescape")
            found = [sink for sink in self.values() if sink.matches(text)]
            self._listeners[subject] = found
        return found

    def changed(self) -> None:
        """Forget which sink keeps which subject."""
        self._listeners.clear()


def traces_of(gathered: list[Inbound]) -> Traces:
    """Return the traced rows of gathered messages."""
    traces: Traces = []
    row = 0
    for messages in gathered:
        if messages.trace is not None:
            traces.append((row, messages.trace))
        row += len(messages)
    return traces


def columns_of(messages: Inbound) -> tuple[PublishBatch, list[bytes]]:
    """Return the messages of one client, and their reply subjects."""
    frames = messages.frames
    if len(messages) == 1:
        row, data = frames.tuples()[0], frames.data
        header, payload = row[_HEADER], row[_PAYLOAD]
        headers = [data[header:payload]] if payload > header else None
        return (
            PublishBatch(messages.subjects, [data[payload : row[_END]]], headers),
            [data[row[_REPLY] : row[_REPLY_END]]],
        )
    return PublishBatch(messages.subjects, frames.payloads(), headers_of(frames)), frames.replies()


def headers_of(frames: FrameBatch) -> list[bytes] | None:
    """Return the header block of each frame, empty where there is none; None if none has any."""
    if not frames.has_headers():
        return None
    data = frames.data
    return [data[start:end] for start, end in frames.spans("header_start", "payload_start")]


def _joined(gathered: list[Inbound]) -> "Iterable[tuple[PublishBatch, list[bytes], list[Inbound]]]":
    part: list[Inbound] = []
    size = 0
    for messages in gathered:
        part.append(messages)
        size += len(messages.frames.data)
        if size >= BATCH_BYTES_MAX:
            yield (*_one(part), part)
            part, size = [], 0
    if part:
        yield (*_one(part), part)


def _one(gathered: list[Inbound]) -> tuple[PublishBatch, list[bytes]]:
    subjects: list[bytes] = []
    payloads: list[bytes] = []
    replies: list[bytes] = []
    headers: list[bytes] | None = None
    for messages in gathered:
        batch, asked = columns_of(messages)
        if batch.headers is not None and headers is None:
            headers = [b""] * len(subjects)
        if headers is not None:
            headers += batch.headers if batch.headers is not None else [b""] * len(batch)
        subjects += batch.subjects
        payloads += batch.payloads
        replies += asked
    return PublishBatch(subjects, payloads, headers), replies


def _problem(answer: bytes | None, trace: "MessageTrace") -> str:
    """Return why a message was not stored, in the words of a trace, by the answer to it; empty if it was."""
    told = json.loads(answer) if answer else {}
    if told.get("duplicate"):
        return "msgid is duplicate"
    error = told.get("error", {})
    text = str(error.get("description", ""))
    if error.get("err_code") == codes.STREAM_WRONG_LAST_SEQUENCE.err_code:
        seen = text.rpartition(" ")[2]
        for name, what in (
            (EXPECTED_LAST_SUBJECT_SEQ, "last sequence by subject"),
            (EXPECTED_LAST_SEQ, "last sequence"),
        ):
            expected = trace.header(name)
            if expected:
                return f"{what} mismatch: {expected} vs {seen}"
    return text


def _asked(replies: list[bytes], texts: list[bytes]) -> Deliveries:
    if b"" not in replies:
        return Deliveries(replies, texts)
    chosen = [row for row, reply in enumerate(replies) if reply]
    return Deliveries([replies[row] for row in chosen], [texts[row] for row in chosen])
