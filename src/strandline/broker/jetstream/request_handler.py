"""Requests to the JetStream API: it hands each to the service that answers it, and sends the answer when it is durable.

Invariants: a request sees everything that was published before it. A request for an unknown consumer, or a direct get
without a stream, gets a no-responders status at once; any other unknown request gets no answer, as in nats-server.
Nothing is read for an answer without a listener, and reads share the loop with everything else (see `WorkQueue`).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from strandline.broker.api import codes
from strandline.broker.api.error_text import for_clients
from strandline.broker.api.json_text import read_json, write_json
from strandline.broker.consumers.service import ConsumerService
from strandline.broker.jetstream.stream_sink import headers_of
from strandline.broker.routes import Deliveries, Inbound, Origin
from strandline.broker.streams import Reply, Stream, Ticket
from strandline.broker.streams.messages import STORAGE_FAILED
from strandline.broker.streams.service import OF_ALL
from strandline.broker.streams.storage import is_passed
from strandline.broker.work_queue import WorkQueue
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.broker.jetstream.account import JetStream

logger = logging.getLogger("strandline.broker")
API = "$JS.API."
DIRECT, CONSUMER, NEXT, DURABLE = "DIRECT.GET.", "CONSUMER.", "CONSUMER.MSG.NEXT.", "CONSUMER.DURABLE."
DELETE = "STREAM.DELETE."
CHANGES = ("STREAM.CREATE.", "STREAM.UPDATE.", "STREAM.DELETE.", "STREAM.RESTORE.")
MOVES = ("STREAM.SNAPSHOT.", "STREAM.RESTORE.")
READS = (DIRECT, "STREAM.INFO.", "STREAM.MSG.GET.", "CONSUMER.INFO.", "CONSUMER.LIST.", "CONSUMER.NAMES.")
"""Requests that change nothing: they may wait, and show the state when they run."""
AUDIT = b"$JS.EVENT.ADVISORY.API"
NO_RESPONDER = "no responder"
Answer = bytes | list[Reply] | str | None
_NEXT_WORDS = 5
GETS_MIN = 4
"""From so many direct gets in a row on they are answered together."""
GETS_MAX = 128
_GET_WORDS, _DIRECT_HEAD = 6, b"$JS.API.DIRECT.GET."


class _Row(NamedTuple):
    """One request: its messages, its row in them, and its content."""

    messages: Inbound
    at: int
    asked: str
    headers: bytes
    payload: bytes
    reply: bytes


class RequestHandler:
    """Takes requests below `$JS.API.`."""

    pattern = b"$JS.API.>"
    is_ordered = True
    """A request takes effect after all input before it, and before all input after it; `READS` are the exception."""

    def __init__(self, owner: "JetStream", reads: WorkQueue) -> None:
        self._owner = owner
        self._reads = reads
        self._consumers = ConsumerService(owner.consumers)

    def take(self, messages: Inbound) -> None:
        """Answer requests, in order."""
        owner = self._owner
        owner.publish_gathered(owner.clock.now_ns())
        frames = messages.frames
        if len(messages) >= GETS_MIN and self._gets(messages):
            return
        headers = headers_of(frames) or [b""] * len(messages)
        rows = zip(messages.subjects, headers, frames.payloads(), frames.replies(), strict=True)
        for at, (subject, block, payload, reply) in enumerate(rows):
            asked = subject.decode(errors="surrogateescape").removeprefix(API)
            row = _Row(messages, at, asked, block, payload, reply)
            if asked.startswith(READS) or asked in OF_ALL:
                self._reads.do(messages.origin.client_id, partial(self._read, row))
            else:
                self._answer(row)

    def _read(self, row: _Row) -> None:
        """Answer a request that changes nothing, if the answer has a listener."""
        if self._is_heard(row.reply):
            self._answer(row)

    def _is_heard(self, reply: bytes) -> bool:
        has_interest = self._owner.routes.has_interest
        return (bool(reply) and has_interest(reply)) or has_interest(AUDIT)

    def _answer(self, row: _Row) -> None:
        owner, messages, asked = self._owner, row.messages, row.asked
        try:
            answer = self._one(asked, row.headers, row.payload, row.reply, messages.origin, owner.clock.now_ns())
        except Exception:
            logger.exception("request failed: %s", asked)
            return
        if answer is NO_RESPONDER:
            owner.routes.no_responders(messages, [row.at])
        elif isinstance(answer, list):
            self._send(asked, row.reply, answer)
        elif isinstance(answer, bytes):
            subject = messages.subjects[row.at]
            self._tell(asked, row.reply, answer, partial(owner.audit, subject, row.payload, origin=messages.origin))

    def _gets(self, messages: Inbound) -> bool:
        """Answer direct gets together if all are of the last message on a subject of one stream; else do nothing."""
        words = messages.subjects[0].split(b".", 5)
        head = b".".join(words[:5]) + b"."
        stream = (
            self._owner.streams.streams.get(words[4].decode(errors="replace")) if len(words) == _GET_WORDS else None
        )
        if stream is None or not stream.config.allow_direct or not head.startswith(_DIRECT_HEAD):
            return False
        size, frames = len(head), messages.frames
        subjects = [subject[size:] for subject in messages.subjects if subject[:size] == head]
        text = b".".join(subjects)
        if (
            len(subjects) < len(messages)
            or b"*" in text
            or b">" in text
            or frames.has_headers()
            or any(frames.payloads())
        ):
            return False
        replies, client_id = frames.replies(), messages.origin.client_id
        for at in range(0, len(subjects), GETS_MAX):
            part = slice(at, at + GETS_MAX)
            self._reads.do(client_id, partial(self._get_lasts, stream, subjects[part], replies[part]))
        return True

    def _get_lasts(self, stream: Stream, subjects: list[bytes], replies: list[bytes]) -> None:
        if not self._is_heard(replies[0]):
            heard = [at for at, reply in enumerate(replies) if self._is_heard(reply)]
            subjects, replies = [subjects[at] for at in heard], [replies[at] for at in heard]
        lost = [STORAGE_FAILED] * len(subjects)
        try:
            found = stream.direct_lasts(subjects) if subjects else []
        except StrandlineError:
            found = lost
        send, ticket = self._owner.routes.send_many, stream.barrier()
        self._owner.completions.after(
            [ticket], lambda error: send(_deliveries(replies, found if error is None else lost))
        )

    def _one(self, asked: str, headers: bytes, payload: bytes, reply: bytes, origin: Origin, now_ns: int) -> Answer:
        owner = self._owner
        if asked.startswith(NEXT):
            return self._pull(asked, headers, payload, reply)
        if not asked.startswith(DIRECT):
            owner.let_consumers_go_on(now_ns)
        if asked.startswith(CONSUMER):
            return self._consumers.request(API + asked, headers, payload, reply, origin, now_ns)
        if asked.startswith(MOVES):
            return owner.snapshots.request(API + asked, headers, payload, origin, now_ns)
        answer = owner.streams.request(API + asked, headers, payload, now_ns)
        if answer is None and asked.startswith(DIRECT):
            return NO_RESPONDER
        if asked.startswith(CHANGES):
            owner.follow(asked.rpartition(".")[2])
        return answer

    def _pull(self, asked: str, headers: bytes, payload: bytes, reply: bytes) -> Answer:
        words = asked.split(".")
        consumer = self._owner.consumers.find(words[3], words[4]) if len(words) == _NEXT_WORDS else None
        if consumer is None:
            return NO_RESPONDER
        consumer.take_pulls([(reply, payload, headers)])
        return None

    def _send(self, asked: str, reply: bytes, answer: list[Reply]) -> None:
        if not reply:
            return

        def told(error: BaseException | None) -> None:
            parts = answer if error is None else [STORAGE_FAILED]
            self._owner.routes.send_many(_deliveries([reply] * len(parts), parts))

        self._owner.completions.after(self._barriers(asked), told)

    def _tell(self, asked: str, reply: bytes, answer: bytes, audit: Callable[[bytes], None]) -> None:
        """Send an answer, and its audit advisory."""

        def told(error: BaseException | None) -> None:
            text = answer if error is None else _failed(answer, error)
            if reply:
                self._owner.routes.send(reply, text)
            audit(text)

        self._owner.completions.after(self._barriers(asked), told)

    def _barriers(self, asked: str) -> list[Ticket]:
        """Return the tickets that an answer waits for: that of the requested stream, otherwise of all streams."""
        streams = self._owner.streams
        if asked in OF_ALL:
            return streams.barrier()
        if asked.startswith(DELETE):
            return []  # the removal was synced before there was an answer
        words = asked.replace(DURABLE, CONSUMER, 1).split(".")
        name = words[2] if asked.startswith((DIRECT, CONSUMER)) and len(words) > 2 else words[-1]  # noqa: PLR2004
        stream = streams.streams.get(name)
        if stream is None:
            return streams.barrier()
        ticket = stream.barrier()
        return [] if is_passed(ticket) else [ticket]


def _deliveries(replies: list[bytes], parts: list[Reply]) -> Deliveries:
    return Deliveries(replies, [part.payload for part in parts], None, [part.headers for part in parts])


def _failed(answer: bytes, error: BaseException) -> bytes:
    """Return the error that replaces an answer whose change could not be stored."""
    refusal = codes.STREAM_GENERAL_ERROR.with_text(err=for_clients(error))
    told = {"code": refusal.code, "err_code": refusal.err_code, "description": refusal.description}
    return write_json({"type": read_json(answer).get("type", ""), "error": told})
