"""The connection of a client to the proxy: requests in, answers out, each within its time.

Invariants: a request that is not well formed, too large in its head, or too slow is answered with its error and never
forwarded; after an answer that a client may have misread, or before a whole request was read, the connection closes.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from strandline.extras import needs
from strandline.replica.routing.answers import PlainAnswer, answer, reason_of
from strandline.replica.routing.headers import body_size
from strandline.replica.routing.limits import RoutingLimits
from strandline.replica.routing.upstream import CHUNK_BYTES, ClientFailed

with needs("replica"):
    import h11

HEAD_READ_BYTES = 16 << 10


class RequestRefused(Exception):
    """A request that is answered with its error; the connection closes then."""

    def __init__(self, refusal: PlainAnswer) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


@dataclass
class Client:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    limits: RoutingLimits
    is_idle: bool = True
    sent: int = 0

    def __post_init__(self) -> None:
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=self.limits.head_bytes)

    @property
    def host(self) -> str:
        """Return the address of the client."""
        return str((self.writer.get_extra_info("peername") or ("unknown",))[0])

    def is_here(self) -> bool:
        """Return whether the client still waits for its answer, as far as that can be seen."""
        return not self.reader.at_eof() and not self.writer.is_closing()

    async def next_request(self) -> "h11.Request | None":
        """Return the head of the next request; None where the client wants no more."""
        self.is_idle, self.sent = True, 0
        if not self.http.trailing_data[0]:
            try:
                async with asyncio.timeout(self.limits.idle_s):
                    data = await self.reader.read(HEAD_READ_BYTES)
            except TimeoutError:
                return None
            if not data:
                return None
            self.http.receive_data(data)
        self.is_idle = False
        try:
            async with asyncio.timeout(self.limits.head_s):
                while (event := self._event()) is h11.NEED_DATA:
                    self.http.receive_data(await self.reader.read(HEAD_READ_BYTES))
        except TimeoutError:
            raise RequestRefused(answer(408, "the head of the request did not come in time")) from None
        if not isinstance(event, h11.Request):
            return None
        if body_size(list(event.headers)) == 0:
            self.http.next_event()  # its end, which is here already
        return event

    def is_read(self) -> bool:
        """Return whether the request was read to its end."""
        return self.http.their_state is not h11.SEND_BODY

    async def read_body(self) -> bytes:
        """Return the next chunk of the body, and nothing at its end."""
        while True:
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError as error:
                raise ClientFailed(f"the body of the request is malformed: {error}", 400) from error
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if event is not h11.NEED_DATA:
                return b""
            if self.http.they_are_waiting_for_100_continue:
                self.write(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
            try:
                async with asyncio.timeout(self.limits.idle_s):
                    data = await self.reader.read(CHUNK_BYTES)
            except TimeoutError:
                raise ClientFailed("the body of the request did not come in time", 408) from None
            except OSError as error:
                raise ClientFailed(str(error)) from error
            if not data:
                raise ClientFailed("the client went away within its body")
            self.http.receive_data(data)

    def write(self, event: "h11.Event") -> None:
        """Write a part of an answer; `ClientFailed` where the client is gone."""
        try:
            data = self.http.send(event)
        except h11.LocalProtocolError as error:
            raise ClientFailed(f"the answer cannot be sent: {error}") from error
        if data:
            self.writer.write(data)

    async def flush(self) -> None:
        """Wait until the client has taken what was written, or nearly."""
        try:
            async with asyncio.timeout(self.limits.idle_s):
                await self.writer.drain()
        except (TimeoutError, OSError) as error:
            raise ClientFailed("the client does not read its answer") from error

    async def send_chunk(self, chunk: bytes) -> None:
        """Write a part of the body of an answer."""
        self.write(h11.Data(data=chunk))
        self.sent += len(chunk)
        await self.flush()

    async def send_plain(self, plain: PlainAnswer, *, closes: bool, is_head: bool = False) -> None:
        """Write a whole answer."""
        headers = [*plain.headers, (b"connection", b"close")] if closes else plain.headers
        self.write(h11.Response(status_code=plain.status, headers=headers, reason=reason_of(plain.status)))
        if not is_head:
            self.write(h11.Data(data=plain.body))
        self.write(h11.EndOfMessage())
        await self.flush()

    def is_reusable(self) -> bool:
        """Return whether another request may follow, and begin to expect it."""
        if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
            return True
        return False

    async def close(self) -> None:
        """Close the connection; what was written is sent first, and what comes meanwhile is dropped for a moment."""
        with contextlib.suppress(OSError, TimeoutError):
            if self.writer.can_write_eof() and not self.writer.is_closing() and not self.reader.at_eof():
                self.writer.write_eof()
                async with asyncio.timeout(1.0):  # an unread request would reset the connection, and with it the answer
                    while await self.reader.read(CHUNK_BYTES):
                        pass
        self.writer.close()

    def abort(self) -> None:
        """Cut the connection, so that no client takes a part of an answer for the whole."""
        self.writer.transport.abort()

    def _event(self) -> "type[h11.NEED_DATA | h11.PAUSED] | h11.Event":
        try:
            return self.http.next_event()
        except h11.RemoteProtocolError as error:
            refusal = answer(error.error_status_hint, f"the request is malformed: {error}", outcome="not-done")
            raise RequestRefused(refusal) from error
