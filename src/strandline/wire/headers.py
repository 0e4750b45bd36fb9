"""The header block of HPUB and HMSG: `NATS/1.0[ code[ description]]`, lines of `Key: value`, an empty line.

Invariants: keys keep their case and their order; a key may repeat. Parsing happens on demand.
"""

from collections.abc import Iterable
from typing import NamedTuple

from strandline.errors import InvalidInput
from strandline.wire.errors import MalformedHeaders, shown

VERSION = b"NATS/1.0"
CRLF = b"\r\n"
STATUS_DIGITS = 3


class Headers(NamedTuple):
    """A parsed block: the status (0 if there is none), its description, and the pairs in order."""

    status: int
    description: str
    pairs: tuple[tuple[str, str], ...]

    def get(self, key: str) -> str | None:
        """Return the first value of a key, None if it is absent; the case of the key counts."""
        return next((value for name, value in self.pairs if name == key), None)

    def get_all(self, key: str) -> list[str]:
        """Return every value of a key, in order."""
        return [value for name, value in self.pairs if name == key]


NO_HEADERS = Headers(0, "", ())


def format_headers(pairs: Iterable[tuple[str, str]] = (), *, status: int = 0, description: str = "") -> bytes:
    """Return a header block; `InvalidInput` if a key or value would break its line."""
    words = [VERSION.decode()]
    if status:
        words.append(f"{status:03d}")
        words += [description] if description else []
    lines = [" ".join(words)]
    for key, value in pairs:
        if not key or ":" in key or key != key.strip() or "\r" in key + value or "\n" in key + value:
            raise InvalidInput(f"header {key!r} cannot be written", hint="a key has no colon; neither has line breaks")
        lines.append(f"{key}: {value}")
    if "\r" in lines[0] or "\n" in lines[0]:
        raise InvalidInput("a description cannot have line breaks")
    return ("\r\n".join(lines) + "\r\n\r\n").encode(errors="surrogateescape")


def parse_headers(block: bytes) -> Headers:
    """Return a block's status and pairs; no block is `NO_HEADERS`, anything else that is not one `MalformedHeaders`."""
    if not block:
        return NO_HEADERS
    if not block.startswith(VERSION) or not block.endswith(CRLF + CRLF):
        raise MalformedHeaders(f"headers begin with {shown(block)} or do not end with an empty line")
    first, *lines = block[: -2 * len(CRLF)].decode(errors="surrogateescape").split("\r\n")
    status, description = _status(first)
    return Headers(status, description, tuple(_pair(line) for line in lines if line))


def _status(line: str) -> tuple[int, str]:
    rest = line[len(VERSION) :]
    if not rest.strip():
        return 0, ""
    code, _, description = rest.strip().partition(" ")
    if rest[0] not in " \t" or len(code) != STATUS_DIGITS or not (code.isascii() and code.isdigit()):
        raise MalformedHeaders(f"status line {shown(line.encode(errors='surrogateescape'))}")
    return int(code), description.strip()


def _pair(line: str) -> tuple[str, str]:
    key, colon, value = line.partition(":")
    if not colon or not key.strip():
        raise MalformedHeaders(f"header line {shown(line.encode(errors='surrogateescape'))}")
    return key.strip(), value.strip()
