"""One client's socket: bytes between it and its session, through TLS and WebSocket where they are used.

Invariants: a session's output is written once per turn, in order; no plaintext is written once a TLS handshake has
begun. A client that does not read is disconnected when more than `max_pending` bytes are queued, or when it has taken
nothing for `write_deadline_s`. Control records of TLS and WebSocket count too. A session is closed once.
"""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING, Any

from strandline.broker.core.close_reasons import (
    CLIENT_CLOSED,
    PROTOCOL_VIOLATION,
    SLOW_CONSUMER,
    SLOW_WRITE,
    TLS_FAILURE,
)
from strandline.broker.core.connection_log import log_closed, log_created, log_handshake_error, log_slow_consumer
from strandline.broker.core.session import Session
from strandline.broker.settings import TlsSettings, WebsocketSettings
from strandline.broker.sockets.read_size import ReadSizer
from strandline.broker.sockets.tls import HANDSHAKE, TlsFailed, TlsLayer
from strandline.broker.sockets.websocket import WebsocketFailed, WebsocketLayer
from strandline.clock import NS_PER_S

if TYPE_CHECKING:
    from strandline.broker.server import Server

logger = logging.getLogger("strandline.broker")
TLS_HANDSHAKE, WEBSOCKET = "TLS handshake", "Websocket"


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """TLS and WebSocket options of one listening port."""

    tls: TlsSettings | None = None
    context: ssl.SSLContext | None = None
    allow_non_tls: bool = False
    websocket: WebsocketSettings | None = None


class Connection(asyncio.BufferedProtocol):
    """The socket of one client."""

    def __init__(self, server: "Server", listener: ListenerOptions, address: tuple[Any, ...]) -> None:
        self._server = server
        self._listener = listener
        self._address = address
        self._is_refused = server.is_full
        self._cycle = server.cycle
        self._buffer = server.read_buffer
        self._view = memoryview(self._buffer)
        self._read_sizer = ReadSizer()
        self._transport: asyncio.Transport
        self.session: Session
        self._tls: TlsLayer | None = None
        self._websocket: WebsocketLayer | None = None
        self._awaits_first_byte = False
        self._is_plain = False
        self._is_greeted = False
        self._is_noted = False
        self._is_over = False
        self._pauses: set[str] = set()
        self._sent = 0
        self._seen = -1
        self._is_watched = False

    # Opening.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send INFO, or wait for the handshake that comes before it."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio types less than it guarantees
        self._transport = transport
        listener = self._listener
        host, port, *_ = self._address
        self.session = self._server.open_session(self, host, port, is_websocket=listener.websocket is not None)
        self.session.on_deferred = self._defer
        # At this level the session has room; asyncio reports it only after the buffer was above it.
        transport.set_write_buffer_limits(self.session.room_again, self.session.room_again // 4)
        log_created(self.session)
        if listener.websocket is not None:
            self._websocket = WebsocketLayer(listener.websocket, is_tls=listener.tls is not None)
            if listener.context is not None:
                self._tls = TlsLayer(listener.context)
            self._set_handshake_deadline(listener.websocket.handshake_timeout_s)
        elif listener.tls is None or listener.context is None:
            self._greet()
        elif not listener.tls.handshake_first:
            self._awaits_first_byte = True
            self._greet()
            self._set_handshake_deadline(listener.tls.timeout_s)
        else:
            self._awaits_first_byte = True
            self._set_handshake_deadline(listener.tls.timeout_s)
            if listener.tls.handshake_first_fallback_s is not None:
                self._cycle.at(
                    (self, "greet"),
                    self._server.clock.now_ns() + int(listener.tls.handshake_first_fallback_s * NS_PER_S),
                    lambda _: self._greet(),
                )

    def _set_handshake_deadline(self, seconds: float) -> None:
        """Close the connection if its handshake is not done within some time."""
        self._cycle.at((self, "begin"), self._server.clock.now_ns() + int(seconds * NS_PER_S), self._handshake_timeout)

    def _handshake_timeout(self, now_ns: int) -> None:
        del now_ns
        if self._is_plain or self._is_over:
            return
        is_tls = self._awaits_first_byte or (self._tls is not None and not self._tls.is_ready)
        log_handshake_error(self.session, TLS_HANDSHAKE if is_tls else WEBSOCKET, "timeout")
        self.abort(TLS_FAILURE if is_tls else PROTOCOL_VIOLATION)

    def _greet(self) -> None:
        if self._is_greeted or self._is_over:
            return
        self._is_greeted = True
        if self._tls is None and self._websocket is None and not self._awaits_first_byte:
            self._start_frames()
        self.session.write(self.session.greeting())
        if self._is_refused:
            self.session.fail("maximum connections exceeded", "Maximum Connections Exceeded")

    def _start_frames(self) -> None:
        """Handle everything from here on as NATS frames."""
        self._is_plain = self._tls is None and self._websocket is None
        self._cycle.at((self, "begin"), None, self._handshake_timeout)

    # Input.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the read buffer, shared by all connections: input is copied at once."""
        del sizehint
        return self._view[: self._read_sizer.next_size(self._cycle.run_s_per_byte)]

    def buffer_updated(self, nbytes: int) -> None:
        """Process what was read."""
        began_s = thread_time()
        self._take(nbytes)
        # A turn that ran with the read also did work for other connections.
        self._read_sizer.record(nbytes, max(0.0, thread_time() - began_s - self._cycle.bounded_s))

    def _take(self, nbytes: int) -> None:
        data = self._view[:nbytes].tobytes()
        if not self._is_plain:
            data = self._decode(data)
            if not data:
                return
        cycle = self._cycle
        cycle.begin_read()
        try:
            self.session.feed(data)
        finally:
            cycle.end_read(nbytes)

    def _defer(self) -> None:
        """Pause reading, and resume the deferred frames in the next cycle of the loop."""
        self.pause("share")
        self._server.loop.call_soon(self._resume_deferred)

    def _resume_deferred(self) -> None:
        cycle = self._cycle
        cycle.begin_read()
        try:
            self.session.resume()
        except Exception:
            logger.exception("frames of a client could not be applied")
            self.abort(PROTOCOL_VIOLATION)  # later frames would wait for ever
            return
        finally:
            cycle.end_read()
        if not self.session.is_deferred:
            self.resume("share")

    def _decode(self, data: bytes) -> bytes:
        """Return the NATS bytes within what was read."""
        if self._awaits_first_byte:
            self._awaits_first_byte = False
            self._cycle.at((self, "greet"), None, lambda _: None)
            if data[0] == HANDSHAKE or not self._listener.allow_non_tls:
                assert self._listener.context is not None  # noqa: S101 - only TLS listeners wait for the first byte
                self._tls = TlsLayer(self._listener.context)
            else:
                self._greet()
                self._start_frames()
                return data
        try:
            if self._tls is not None:
                data = self._through_tls(data)
            if self._websocket is not None and (self._tls is None or self._tls.is_ready):
                data = self._through_websocket(data)
        except (TlsFailed, WebsocketFailed) as error:
            log_handshake_error(self.session, TLS_HANDSHAKE if isinstance(error, TlsFailed) else WEBSOCKET, error)
            self._fail()
            return b""
        return data

    def _through_tls(self, data: bytes) -> bytes:
        tls = self._tls
        assert tls is not None  # noqa: S101 - the caller checked
        was_ready = tls.is_ready
        data = tls.receive(data)
        self._send_control(tls.output())
        if tls.is_ready and not was_ready:
            self.session.tls = (tls.subject, *tls.describe())
        if tls.is_ready and not was_ready and self._websocket is None:
            self._start_frames()
            self._greet()
        if tls.has_ended:
            self.end(CLIENT_CLOSED)
        return data

    def _through_websocket(self, data: bytes) -> bytes:
        websocket = self._websocket
        assert websocket is not None  # noqa: S101 - the caller checked
        was_ready = websocket.is_ready
        data = websocket.receive(data)
        if websocket.is_ready and not was_ready:
            self._start_frames()
            self._write_websocket()
            self._greet()
        else:
            self._write_websocket()
        if websocket.has_ended:
            self.end(CLIENT_CLOSED)
        return data

    def _write_websocket(self) -> None:
        out = self._websocket.output() if self._websocket is not None else b""
        if out:
            self._send_control(self._tls.send(out) if self._tls is not None else out)

    def _fail(self) -> None:
        if self._tls is not None and not self._tls.is_ready:
            self._send_control(self._tls.output())
            self.end(TLS_FAILURE)
            return
        self._write_websocket()
        self.end(PROTOCOL_VIOLATION)

    def eof_received(self) -> bool:
        """Close after the peer has closed its direction."""
        return False

    # Output.

    def note_output(self) -> None:
        """Have the session's output written at the end of the turn."""
        if not self._is_noted and not self._is_over:
            self._is_noted = True
            self._cycle.write(self)

    def write_out(self) -> None:
        """Write the session's output."""
        self._is_noted = False
        session = self.session
        if self._is_over:
            return
        if session.aborted:
            self.abort(session.closing or "")
            return
        parts = session.take_output()
        if parts:
            self._write(parts[0] if len(parts) == 1 else b"".join(parts))
        if session.closing is not None:
            self.end(session.closing)

    def _write(self, data: bytes) -> None:
        if self._websocket is not None:
            data = self._websocket.send(data)
        if self._tls is not None:
            data = self._tls.send(data)
        self._send(data)

    def _send_control(self, data: bytes) -> None:
        """Send control records, which the session does not count."""
        if not data or self._is_over:
            return
        self._send(data)
        if self.session.buffered > self.session.server_info.max_pending:
            self.abort(SLOW_CONSUMER)

    def _send(self, data: bytes) -> None:
        transport = self._transport
        transport.write(data)
        self._sent += len(data)
        unsent = transport.get_write_buffer_size()
        if unsent or self.session.buffered or self.session.when_room:
            self.session.note_buffered(unsent)
        if unsent and not self._is_watched:
            self._is_watched = True
            self._watch(self._server.clock.now_ns())

    def _watch(self, now_ns: int) -> None:
        """Disconnect the client if it has taken nothing since the last check; check again while it is behind."""
        unsent = 0 if self._is_over else self._transport.get_write_buffer_size()
        if not unsent:
            self._is_watched, self._seen = False, -1
            return
        if self._sent - unsent == self._seen:
            self.abort(SLOW_WRITE)
            return
        self._seen = self._sent - unsent
        self._cycle.at((self, "write"), now_ns + int(self._server.settings.write_deadline_s * NS_PER_S), self._watch)

    def resume_writing(self) -> None:
        """Update the session's unsent bytes when the socket has drained."""
        self.session.note_buffered(self._transport.get_write_buffer_size())

    # Reading is paused while there is at least one reason.

    def pause(self, reason: str) -> None:
        """Pause reading until every reason is removed."""
        if not self._pauses and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pauses.add(reason)

    def resume(self, reason: str) -> None:
        """Remove a reason, and resume reading if it was the last."""
        self._pauses.discard(reason)
        if not self._pauses and not self._transport.is_closing():
            self._transport.resume_reading()

    # Closing.

    def end(self, reason: str) -> None:
        """Write the remaining output, as far as the client reads it in time, and close."""
        if self._is_over:
            return
        parts = self.session.take_output()
        if parts and self._is_greeted and (self._tls is None or self._tls.is_ready):
            self._write(b"".join(parts))
        self._send_close()
        self._is_over = True
        self.session.close(reason)
        self._transport.close()
        if self._transport.get_write_buffer_size():
            deadline_ns = self._server.clock.now_ns() + int(self._server.settings.write_deadline_s * NS_PER_S)
            self._cycle.at((self, "write"), deadline_ns, lambda _: self._transport.abort())

    def _send_close(self) -> None:
        out = self._websocket.end() if self._websocket is not None else b""
        if self._tls is not None and self._tls.is_ready:
            out = (self._tls.send(out) if out else b"") + self._tls.end()
        if out:
            self._send(out)

    def abort(self, reason: str) -> None:
        """Close at once, without writing the remaining output."""
        if not self._is_over:
            self._is_over = True
            self.session.close(reason)
            if reason in (SLOW_CONSUMER, SLOW_WRITE):
                log_slow_consumer(self.session, reason, self._server.settings.write_deadline_s)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything."""
        del exc
        self._is_over = True
        for what in ("begin", "greet", "write"):
            self._cycle.at((self, what), None, self._handshake_timeout)
        self.session.close(CLIENT_CLOSED)
        log_closed(self.session)
        self._server.forget(self)
