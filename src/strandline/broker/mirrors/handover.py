"""Hand-over of a stream: it publishes the stream into a stream of another server, which needs no access to this one.

A nats-server cannot mirror a server that it cannot connect to. So this reads a stream with a consumer, as a mirror
does, and publishes its messages. Either server may be ours or a nats-server.

Invariants: the header of the target's last message has the position. Each message is stored only directly after the one
before it, so no message is stored twice or left out, and a message of another publisher in between is a `Conflict`.
(Expecting the previous sequence is not enough: after a foreign message took one place, the message after the refused
one would fit again.) A header that would make the target treat a message as a duplicate, or as conditional, is renamed
or dropped.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass

from strandline.broker.api.config import StreamSource
from strandline.broker.mirrors.copy_plan import Start, plan_of
from strandline.broker.mirrors.nats_origin import NatsOrigin, OriginEnded
from strandline.broker.streams import OriginBatch, Position, part_of
from strandline.broker.streams.headers import (
    EXPECTED_LAST_ID,
    EXPECTED_LAST_SEQ,
    MSG_ID,
    STREAM_SOURCE,
    special_headers,
    with_headers,
    without_header,
)
from strandline.broker.streams.source_header import format_source, parse_source
from strandline.errors import Conflict
from strandline.nats import CancelToken, JetStreamApi, NatsSettings, NatsSocket
from strandline.nats.streams import parse_header_values
from strandline.wire import format_pubs

ORIGIN, ORIGINAL_ID = b"Strandline-Stream-Source", b"Strandline-Msg-Id"
Row = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, headers, payload."""
CONDITIONS = (b"Nats-Expected-", b"Nats-Batch-", STREAM_SOURCE, MSG_ID, ORIGIN)
CHUNK = 512
Progress = Callable[[int, int], None]
"""Receives the number of published messages, and the number that wait behind them."""


class NotOurs(Conflict):
    """The target stream has messages of another publisher."""

    def __init__(self, stream: str, problem: str) -> None:
        super().__init__(
            f"stream {stream!r} cannot be handed over to: {problem}",
            hint="give it a subject of its own (prefix=), and let the final stream source from it",
        )


@dataclass(frozen=True)
class HandOver:
    """Source and target: `stream` at `origin` is published into `into` at `target`, below a prefix if one is given."""

    origin: NatsSettings
    stream: str
    target: NatsSettings
    into: str
    prefix: str = ""

    def run(self, *, follow: bool = False, cancel: CancelToken | None = None, progress: Progress | None = None) -> int:
        """Publish the missing messages, and return their number; with `follow`, continue until it is cancelled.

        `OriginEnded` if the delivery breaks: call it again, and it resumes. `Closed` when it is cancelled.
        """
        cancel = cancel or CancelToken()
        plan = plan_of(StreamSource(name=self.stream), mirror=False)
        with (
            NatsSocket.connect(self.target, cancel=cancel) as connection,
            NatsOrigin(self.origin, plan, self.into, cancel) as origin,
        ):
            target = _Target(connection, self, plan.name)
            count = 0
            for received in origin.follow(target.start):
                if received.batch is not None:
                    target.publish(received.batch)
                    count += len(received.batch)
                if progress is not None:
                    progress(count, received.pending)
                if not follow and not received.pending:
                    return count
        return count


class _Target:
    """The target stream, and its position."""

    def __init__(self, connection: NatsSocket, plan: HandOver, name: bytes) -> None:
        self._connection = connection
        self._plan = plan
        self._name = name
        self._last_seq = 0

    def start(self, identity: bytes) -> Start:
        """Return where to resume, by the target's last message."""
        api, into = JetStreamApi(self._connection, self._plan.target.api_prefix), self._plan.into
        self._last_seq = int(api.call(f"STREAM.INFO.{into}", None, into)["state"]["last_seq"])
        if not self._last_seq:
            return Start()
        message = api.call(f"STREAM.MSG.GET.{into}", {"seq": self._last_seq}, into)["message"]
        told = parse_header_values(base64.b64decode(message.get("hdrs", ""))).get(ORIGIN.decode(), "")
        found = parse_source(told.encode())
        if found is None or found[0] != self._name:
            raise NotOurs(into, "its last message came from another publisher")
        position: Position = found[1]
        if position.identity != identity:
            raise NotOurs(into, "it is the copy of another stream of the same name")
        return Start(position.sequence + 1)

    def publish(self, batch: OriginBatch) -> None:
        """Publish messages; they are stored when this returns."""
        for start in range(0, len(batch), CHUNK):
            rows = self._rows(part_of(batch, start, start + CHUNK))
            self._send(rows[:1])
            self._send(rows[1:])

    def _rows(self, batch: OriginBatch) -> list[Row]:
        """Return messages to publish: the first expects a sequence, each other one the message before it."""
        prefix = f"{self._plan.prefix}.".encode() if self._plan.prefix else b""
        condition = (EXPECTED_LAST_SEQ, b"%d" % self._last_seq)
        rows = []
        for at, subject in enumerate(batch.subjects):
            source = format_source(self._name, int(batch.sequences[at]), subject, batch.identity)
            rows.append((prefix + subject, b"", _headers(batch.headers[at], source, condition), batch.payloads[at]))
            condition = (EXPECTED_LAST_ID, source)
        return rows

    def _send(self, rows: list[Row]) -> None:
        """Publish a batch; the answer to its last message covers all, as each is stored only after the one before."""
        if not rows:
            return
        self._connection.send(format_pubs(rows[:-1]))
        subject, _, headers, payload = rows[-1]
        reply = self._connection.request(subject.decode(errors="surrogateescape"), payload, headers)
        answer = json.loads(reply.payload)
        self._last_seq += len(rows)
        if answer.get("seq") != self._last_seq or answer.get("stream") != self._plan.into:
            raise NotOurs(self._plan.into, str(answer.get("error", {}).get("description", "other publishers use it")))


def _headers(block: bytes, source: bytes, condition: tuple[bytes, bytes]) -> bytes:
    identifier = special_headers(block).get(MSG_ID, b"")
    for name in CONDITIONS:
        block = without_header(block, name)
    pairs = [(ORIGIN, source), (MSG_ID, source), condition]
    return with_headers(block, [*pairs, (ORIGINAL_ID, identifier)] if identifier else pairs)


__all__ = ["HandOver", "NotOurs", "OriginEnded"]
