"""Requests of `strandline.kv.nats.bucket_api`, answered by the server in this process.

Invariants: a request is answered as a client's would be, in the order in which they come, after everything that clients
published before it.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future

from strandline.broker.buckets.server_link import Host, durable
from strandline.broker.buckets.write_queue import Write, Writes
from strandline.broker.streams import Ticket
from strandline.broker.streams.headers import with_headers
from strandline.broker.streams.storage import DONE
from strandline.nats.requests import NoListener
from strandline.nats.settings import NatsSettings

API = "$JS.API."
CREATE = "STREAM.CREATE."


class EmbeddedTransport:
    """Carries requests to a server without a socket."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.settings = NatsSettings()
        self._writes = Writes(host)
        self.is_over = False

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        limit_s: float | None = None,
    ) -> bytes:
        """Return the answer's payload; `NoListener` if nobody answers such a subject."""
        del limit_s  # there is nothing in between that could be lost
        block = (
            with_headers(b"", [(key.encode(), value.encode()) for key, value in headers.items()]) if headers else b""
        )
        if not subject.startswith(API):
            return await self._publish(subject, payload, block)
        answer, ticket = await self.host.call(lambda: self._ask(subject, payload, block))
        await durable(ticket)
        return answer

    async def _publish(self, subject: str, payload: bytes, headers: bytes) -> bytes:
        answer: Future[bytes] = Future()
        answer.set_running_or_notify_cancel()  # who stops to wait does not take the write back
        await self.host.call(lambda: self._writes.add(Write(subject, payload, headers, answer)))
        return await asyncio.wrap_future(answer)

    def _ask(self, subject: str, payload: bytes, headers: bytes) -> tuple[bytes, Ticket]:
        home = self.host.home
        now_ns = home.clock.now_ns()
        home.publish_gathered(now_ns)
        answer = home.streams.request(subject, headers, payload, now_ns)
        if not isinstance(answer, bytes):
            raise NoListener
        name = subject.rpartition(".")[2]
        if subject.startswith(API + CREATE):
            home.follow(name)
        stream = home.streams.streams.get(name)
        return answer, DONE if stream is None else stream.barrier()

    async def answers(self) -> bool:
        """Tell whether the server is there."""
        return self.host.is_there

    async def close(self) -> None:
        """Let go of nothing: the server is somebody else's."""
        self.is_over = True
