"""What goes over a queue's socket: frames of JSON with the bytes behind it.

    0  u32  length of what follows, big-endian
    4  u32  length of the JSON text
    8       JSON, in which {"$bytes": n} stands for the next n bytes of the rest
            the bytes, one after another, in the order of the text

A connection begins with `["hello", {"protocol": "strandline-queue", "version": 1, "session": "…"}]`. A request is
`[operation, arguments]`; its answer is `{"ok": result}` or `{"error": {"type": …, "args": […], "fields": {…}}}`.

Invariants: a frame is whole or an error; an error of the tree in `strandline.errors` arrives as the class that it was.
"""

import inspect
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

from strandline import errors
from strandline.errors import FormatError, StrandlineError, UnknownOutcome

PROTOCOL = "strandline-queue"
VERSION = 1
FRAME_BYTES_MAX = 2**31 - 1
_LENGTHS = struct.Struct(">II")
_LENGTH_BYTES = 4
_PLACEHOLDER = "$bytes"
_ERRORS: dict[str, type[StrandlineError]] = {
    name: found for name, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, StrandlineError)
}


def format_frame(body: object) -> bytes:
    """Return a frame; tuples become lists, and bytes keep their place."""
    pieces: list[bytes] = []

    def set_aside(data: object) -> dict[str, int]:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"{type(data).__name__} cannot be sent")
        pieces.append(bytes(data))
        return {_PLACEHOLDER: len(pieces[-1])}

    text = json.dumps(body, default=set_aside, separators=(",", ":")).encode()
    size = _LENGTH_BYTES + len(text) + sum(map(len, pieces))
    if size > FRAME_BYTES_MAX:
        raise errors.RecordTooLarge(size, FRAME_BYTES_MAX, "frame")
    return b"".join([_LENGTHS.pack(size, len(text)), text, *pieces])


def parse_frame(data: bytes) -> Any:  # noqa: ANN401 - what was sent, as JSON tells it
    """Return the body of a frame from its bytes after the first length; `FormatError` where it is not one."""
    text_end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
    rest = memoryview(data)[text_end:]
    at = 0

    def bring_back(found: dict[str, Any]) -> object:
        nonlocal at
        if len(found) != 1 or _PLACEHOLDER not in found:
            return found
        size = found[_PLACEHOLDER]
        if not isinstance(size, int):
            raise TypeError(f"{size!r} is no number of bytes")
        begin, at = at, at + size
        if not begin <= at <= len(rest):
            raise ValueError("bytes are missing")
        return bytes(rest[begin:at])

    try:
        return json.loads(data[_LENGTH_BYTES:text_end], object_hook=bring_back)
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError("a frame", f"not one of a queue: {error}", hint="is this the socket of a queue?") from error


def parse_request(body: object) -> tuple[str, dict[str, Any]]:
    """Return what is asked for, and its arguments; `FormatError` where it is not a request."""
    match body:
        case [str(operation), dict(arguments)]:
            return operation, arguments
        case _:
            raise FormatError("a frame", "it is not a request", hint="is this a client of a queue?")


def send_frame(connection: socket.socket, body: object) -> None:
    """Send one frame whole."""
    connection.sendall(format_frame(body))


def receive_frame(connection: socket.socket) -> Any:  # noqa: ANN401 - what was sent, as JSON tells it
    """Return the body of the next frame; `EOFError` where the other side has ended."""
    size = int.from_bytes(_receive(connection, _LENGTH_BYTES), "big")
    if not _LENGTH_BYTES <= size <= FRAME_BYTES_MAX:
        raise FormatError("a frame", f"its length of {size:,} is not possible", hint="is this the socket of a queue?")
    return parse_frame(_receive(connection, size))


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise EOFError("the other side has ended the connection")
        data += chunk
    return bytes(data)


def format_error(error: Exception, operation: str) -> dict[str, object]:
    """Return an error as it is sent: as its own class of the tree, or as an unknown outcome."""
    if not isinstance(error, StrandlineError):
        problem = f"{operation} failed in the process that owns the queue: {type(error).__name__}: {error}"
        error = UnknownOutcome(problem, hint="look at the queue before you do it again")
    name = next(kind.__name__ for kind in _ancestors(type(error)) if kind.__name__ in _ERRORS)
    return {"type": name, "args": [str(arg) for arg in error.args], "fields": _plain(error.__dict__)}


def parse_error(sent: dict[str, Any]) -> StrandlineError:
    """Return the error that was sent."""
    kind = _ERRORS.get(str(sent["type"]), UnknownOutcome)
    error = kind.__new__(kind)
    error.args = tuple(sent["args"])
    error.__dict__.update({"hint": None, **sent["fields"]})
    return error


def _ancestors(kind: type) -> Iterator[type]:
    return (found for found in kind.__mro__ if issubclass(found, StrandlineError))


def _plain(fields: dict[str, Any]) -> dict[str, object]:
    """Return fields with what JSON has no word for as text."""
    return {
        name: value if isinstance(value, str | int | float | None) else str(value) for name, value in fields.items()
    }
