"""The bytes that a WebSocket client sends."""

KEY = "dGhlIHNhbXBsZSBub25jZQ=="

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

MASK = bytes((7, 90, 200, 255))


def request(**fields: str) -> bytes:
    """Return the request of a browser, some of whose fields are others; an empty one is left out."""
    known = {
        "Host": "localhost:8080",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    told = known | {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"{name}: {value}\r\n" for name, value in told.items() if value]
    return f"GET / HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def frame(payload: bytes, code: int = BINARY, *, final: bool = True, masked: bool = True) -> bytes:
    """Return a frame of a client."""
    size = len(payload)
    mark = 0x80 if masked else 0
    head = bytes((code | (0x80 if final else 0),))
    if size < 126:
        head += bytes((mark | size,))
    elif size < 1 << 16:
        head += bytes((mark | 126,)) + size.to_bytes(2, "big")
    else:
        head += bytes((mark | 127,)) + size.to_bytes(8, "big")
    if not masked:
        return head + payload
    return head + MASK + bytes(octet ^ MASK[at % 4] for at, octet in enumerate(payload))
