"""Queued writes of buckets: those of one iteration of the server's loop are stored and synced together.

Invariants: used on the server's thread alone; callers wait on another. Writes keep their order; each is answered once,
when it is as durable as configured, with the response that a client would get.
"""

from concurrent.futures import Future
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from strandline.broker.api.responses import PubAck
from strandline.broker.api.schema import to_json
from strandline.broker.streams import PublishBatch, Stream
from strandline.errors import StrandlineError
from strandline.kv.nats.layout import SUBJECT_PREFIX, stream_name
from strandline.nats.requests import NoListener
from strandline.wire import subject_matches

if TYPE_CHECKING:
    from strandline.broker.buckets.server_link import ServerLink


class Write(NamedTuple):
    """A message to be stored, and the future of its response."""

    subject: str
    payload: bytes
    headers: bytes
    answer: "Future[bytes]"


class WriteQueue:
    """The writes of the next flush."""

    def __init__(self, server: "ServerLink") -> None:
        self._server = server
        self._queued: list[Write] = []

    def add(self, write: Write) -> None:
        """Queue a write for the loop's next iteration."""
        if not self._queued:
            self._server.post(self.flush)
        self._queued.append(write)

    def flush(self) -> None:
        """Store the queued writes."""
        queued, self._queued = self._queued, []
        jetstream = self._server.jetstream
        now_ns = jetstream.clock.now_ns()
        jetstream.publish_gathered(now_ns)
        for stream, part in groupby(queued, lambda write: self._stream_of(write.subject)):
            self._store(stream, list(part), now_ns)

    def _store(self, stream: Stream | None, writes: list[Write], now_ns: int) -> None:
        if stream is None:
            _fail(writes, NoListener())
            return
        headers = [write.headers for write in writes]
        subjects = [write.subject.encode(errors="surrogateescape") for write in writes]
        batch = PublishBatch(subjects, [write.payload for write in writes], headers if any(headers) else None)
        try:
            published = stream.publish(batch, now_ns)
        except StrandlineError as error:
            _fail(writes, error)
            return
        self._server.jetstream.stored(stream.config.name, published)
        head = to_json(PubAck(stream=stream.config.name)).removesuffix(b"0}")
        texts = [b"%b%d}" % (head, sequence) for sequence in published.sequences.tolist()]
        for row, text in published.answers.items():
            texts[row] = text

        def answer(ticket: "Future[None]") -> None:
            error = ticket.exception()
            if error is not None:
                _fail(writes, error)
                return
            for write, text in zip(writes, texts, strict=True):
                write.answer.set_result(text)

        published.ticket.add_done_callback(answer)

    def _stream_of(self, subject: str) -> Stream | None:
        streams = self._server.jetstream.streams.streams
        own = streams.get(stream_name(subject.split(".", 2)[1])) if subject.startswith(SUBJECT_PREFIX) else None
        for stream in (own, *streams.values()) if own is not None else streams.values():
            if any(subject_matches(pattern, subject) for pattern in stream.config.subjects):
                return stream
        return None


def _fail(writes: list[Write], error: BaseException) -> None:
    for write in writes:
        write.answer.set_exception(error)
