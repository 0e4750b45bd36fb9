"""The server side of WebSocket (RFC 6455) as a function of bytes: one HTTP request, then frames.

Invariants: payload bytes are passed on as they arrive, however large the frame is, and never buffered. An unmasked
frame, a text frame, a misplaced fragment or an oversized control frame closes the connection with the right code.
Compression is never negotiated.
"""

import base64
import hashlib
from urllib.parse import urlsplit

from strandline.broker.settings import WebsocketSettings

REQUEST_BYTES_MAX = 16 << 10
CONTROL_BYTES_MAX = 125
_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
NORMAL, GOING_AWAY, PROTOCOL_ERROR, POLICY = 1000, 1001, 1002, 1008
_SHORT_MAX, _TWO, _EIGHT = 125, 126, 127


class WebsocketFailed(Exception):
    """The client violated the protocol; `output` already holds the answer."""


class WebsocketLayer:
    """The server side of one WebSocket connection; `is_tls` tells whether it runs over TLS."""

    def __init__(self, settings: WebsocketSettings, *, is_tls: bool) -> None:
        self._settings = settings
        self._is_tls = is_tls
        self._kept = b""
        self._out: list[bytes] = []
        self._left = 0
        self._mask = b"\0\0\0\0"
        self._code = _BINARY
        self._control = b""
        self._in_message = False
        self.is_ready = False
        """Whether the HTTP request was answered."""
        self.has_ended = False

    def receive(self, data: bytes) -> bytes:
        """Return the payload bytes; `output` may have something to send afterwards."""
        data, self._kept = self._kept + data, b""
        if not self.is_ready:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._kept = data
                if len(data) > REQUEST_BYTES_MAX:
                    raise self._refusal(431, "Request Header Fields Too Large")
                return b""
            self._upgrade(data[:end])
            data = data[end + 4 :]
        return self._frames(data)

    # The HTTP request.

    def _upgrade(self, request: bytes) -> None:
        first, *lines = request.decode("latin-1").split("\r\n")
        fields = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        words = first.split(" ")
        if words[0] != "GET":
            raise self._refusal(405, "Method Not Allowed")
        if (
            "websocket" not in fields.get("upgrade", "").lower()
            or "upgrade" not in fields.get("connection", "").lower()
        ):
            raise self._refusal(400, "Bad Request")
        if fields.get("sec-websocket-version") != "13" or not fields.get("sec-websocket-key"):
            raise self._refusal(400, "Bad Request")
        if not self._allows(fields.get("origin", ""), fields.get("host", "")):
            raise self._refusal(403, "Forbidden")
        digest = hashlib.sha1(fields["sec-websocket-key"].encode() + _KEY).digest()  # noqa: S324 - RFC 6455 says so
        self._out.append(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
        )
        self.is_ready = True

    def _allows(self, origin: str, host: str) -> bool:
        """Tell whether pages of an origin may connect; a client without one is not a browser."""
        settings = self._settings
        if not origin or not (settings.same_origin or settings.allowed_origins):
            return True
        try:
            given, own = _origin(urlsplit(origin)), _origin(urlsplit(f"{'https' if self._is_tls else 'http'}://{host}"))
            allowed = {_origin(urlsplit(each)) for each in settings.allowed_origins}
        except ValueError:
            return False
        return not (settings.same_origin and given[1:] != own[1:]) and not (allowed and given not in allowed)

    def _refusal(self, status: int, text: str) -> WebsocketFailed:
        body = f"{status} {text}\n".encode()
        head = f"HTTP/1.1 {status} {text}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        self._out.append(head.encode() + body)
        self.has_ended = True
        return WebsocketFailed(text)

    # Frames.

    def _frames(self, data: bytes) -> bytes:
        said: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.has_ended:
            if not self._left:
                head = self._parse_header(data, at)
                if head is None:
                    self._kept = data[at:]
                    break
                at += head
                if not self._left:
                    self._end_frame()
                continue
            part = data[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            plain = _masked(part, self._mask)
            turn = len(part) % 4
            self._mask = self._mask[turn:] + self._mask[:turn]
            if self._code >= _CLOSE:
                self._control += plain
            else:
                said.append(plain)
            if not self._left:
                self._end_frame()
        return said[0] if len(said) == 1 else b"".join(said)

    def _parse_header(self, data: bytes, at: int) -> int | None:
        """Parse a frame header; return its length, None if it is incomplete."""
        if len(data) - at < 2:  # noqa: PLR2004 - flags and length
            return None
        flags, size = data[at], data[at + 1] & 0x7F
        more = 2 if size == _TWO else 8 if size == _EIGHT else 0
        length = 2 + more + 4
        self._check(flags, size, is_masked=bool(data[at + 1] & 0x80))
        if len(data) - at < length:
            return None
        self._left = int.from_bytes(data[at + 2 : at + 2 + more], "big") if more else size
        self._mask = data[at + length - 4 : at + length]
        self._code = flags & 0x0F
        self._control = b""
        if self._code < _CLOSE:
            self._in_message = not flags & 0x80
        return length

    def _check(self, flags: int, size: int, *, is_masked: bool) -> None:
        code, is_final = flags & 0x0F, bool(flags & 0x80)
        if not is_masked or flags & 0x70:
            raise self._violation("client frames must be masked and have no extensions")
        if code >= _CLOSE:
            if code > _PONG or not is_final or size > CONTROL_BYTES_MAX:
                raise self._violation("control frames must be short and unfragmented")
        elif (code == _CONTINUATION) != self._in_message or code > _BINARY:
            raise self._violation("misplaced fragment")
        elif code == _TEXT:
            raise self._violation("messages must be binary")

    def _violation(self, text: str) -> WebsocketFailed:
        self._out.append(_frame(_CLOSE, PROTOCOL_ERROR.to_bytes(2, "big") + text.encode()))
        self.has_ended = True
        return WebsocketFailed(text)

    def _end_frame(self) -> None:
        if self._code == _PING:
            self._out.append(_frame(_PONG, self._control))
        elif self._code == _CLOSE:
            self._out.append(_frame(_CLOSE, self._control[:2]))
            self.has_ended = True

    # Out.

    def send(self, data: bytes) -> bytes:
        """Return some bytes as one binary frame."""
        return _frame(_BINARY, data)

    def output(self) -> bytes:
        """Return pending control frames, and the HTTP response."""
        out, self._out = self._out, []
        return b"".join(out)

    def end(self, code: int = NORMAL) -> bytes:
        """Return the close frame."""
        if self.has_ended or not self.is_ready:
            return b""
        self.has_ended = True
        return _frame(_CLOSE, code.to_bytes(2, "big"))


def _origin(url: "object") -> tuple[str, str | None, int | None]:
    scheme, host, port = url.scheme, url.hostname, url.port  # type: ignore[attr-defined]
    return scheme, host, port or {"http": 80, "https": 443}.get(scheme)


def _frame(code: int, payload: bytes) -> bytes:
    size = len(payload)
    if size <= _SHORT_MAX:
        return bytes((0x80 | code, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | code, _TWO)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | code, _EIGHT)) + size.to_bytes(8, "big") + payload


def _masked(data: bytes, mask: bytes) -> bytes:
    """Return data XORed with its mask; as one big integer, much faster than byte by byte."""
    size = len(data)
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(whole, "little")).to_bytes(size, "little")
