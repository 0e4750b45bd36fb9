"""Requests of `strandline.kv.nats.bucket_api`, answered by the server in this process.

Invariants: a request is answered as one of a client, in the order of arrival, after everything that clients published
before it.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future

from strandline.broker.buckets.server_link import ServerLink, durable
from strandline.broker.buckets.write_queue import Write, WriteQueue
from strandline.broker.streams import Ticket
from strandline.broker.streams.headers import with_headers
from strandline.broker.streams.storage import DONE
from strandline.nats.requests import NoListener
from strandline.nats.settings import NatsSettings

API = "$JS.API."
CREATE = "STREAM.CREATE."


class EmbeddedTransport:
    """The transport of requests to a server in this process."""

    def __init__(self, server: ServerLink) -> None:
        self.server = server
        self.settings = NatsSettings()
        self._write_queue = WriteQueue(server)
        self.is_over = False

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        limit_s: float | None = None,
    ) -> bytes:
        """Return the payload of the response; `NoListener` if no service answers the subject."""
        del limit_s  # nothing can be lost in between
        block = (
            with_headers(b"", [(key.encode(), value.encode()) for key, value in headers.items()]) if headers else b""
        )
        if not subject.startswith(API):
            return await self._publish(subject, payload, block)
        answer, ticket = await self.server.call(lambda: self._ask(subject, payload, block))
        await durable(ticket)
        return answer

    async def _publish(self, subject: str, payload: bytes, headers: bytes) -> bytes:
        answer: Future[bytes] = Future()
        answer.set_running_or_notify_cancel()  # a cancelled caller does not withdraw the write
        await self.server.call(lambda: self._write_queue.add(Write(subject, payload, headers, answer)))
        return await asyncio.wrap_future(answer)

    def _ask(self, subject: str, payload: bytes, headers: bytes) -> tuple[bytes, Ticket]:
        jetstream = self.server.jetstream
        now_ns = jetstream.clock.now_ns()
        jetstream.publish_gathered(now_ns)
        answer = jetstream.streams.request(subject, headers, payload, now_ns)
        if not isinstance(answer, bytes):
            raise NoListener
        name = subject.rpartition(".")[2]
        if subject.startswith(API + CREATE):
            jetstream.follow(name)
        stream = jetstream.streams.streams.get(name)
        return answer, DONE if stream is None else stream.barrier()

    async def answers(self) -> bool:
        """Tell whether the server is running."""
        return self.server.is_running

    async def close(self) -> None:
        """Mark the transport as closed; the server is not its own."""
        self.is_over = True
