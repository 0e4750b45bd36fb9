"""Writes of buckets, gathered: those of one iteration of the server's loop are stored, and synced, together.

Invariants: on the server's thread alone, but for who waits. Writes keep their order; each is answered once, when it is
as durable as asked, with what a client would hear.
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
    from strandline.broker.buckets.server_link import Host


class Write(NamedTuple):
    """A message to be stored, and who waits for the answer."""

    subject: str
    payload: bytes
    headers: bytes
    answer: "Future[bytes]"


class Writes:
    """What is to be stored with the next flush."""

    def __init__(self, host: "Host") -> None:
        self._host = host
        self._gathered: list[Write] = []

    def add(self, write: Write) -> None:
        """Take a write in; it is stored in the loop's next iteration."""
        if not self._gathered:
            self._host.post(self.flush)
        self._gathered.append(write)

    def flush(self) -> None:
        """Store what was gathered."""
        gathered, self._gathered = self._gathered, []
        home = self._host.home
        now_ns = home.clock.now_ns()
        home.publish_gathered(now_ns)
        for stream, part in groupby(gathered, lambda write: self._listening(write.subject)):
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
        self._host.home.stored(stream.config.name, published)
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

    def _listening(self, subject: str) -> Stream | None:
        streams = self._host.home.streams.streams
        own = streams.get(stream_name(subject.split(".", 2)[1])) if subject.startswith(SUBJECT_PREFIX) else None
        for stream in (own, *streams.values()) if own is not None else streams.values():
            if any(subject_matches(pattern, subject) for pattern in stream.config.subjects):
                return stream
        return None


def _fail(writes: list[Write], error: BaseException) -> None:
    for write in writes:
        write.answer.set_exception(error)
