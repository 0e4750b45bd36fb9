"""Tar files, read header by header: the span of each member.

The reader knows the old form, ustar, and the long names of GNU and pax. Invariants: any bytes give entries or none,
never an error; an entry's span lies within the file.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = 512
_FILES = frozenset(b"\x00\x30\x37\x53")
_LONG_NAME, _PAX = ord("L"), ord("x")
_PAX_RECORD = re.compile(rb"(\d{1,9}) ([^=\n]{1,256})=")
_META_BYTES_MAX = 64 << 10


class TarEntry(NamedTuple):
    """A member: its name and its span; `is_whole` is false if the file ends within it."""

    name: str
    start: int
    end: int
    is_whole: bool


def is_header(block: bytes) -> bool:
    """Return whether a block is a member's header, by its checksum."""
    if len(block) < BLOCK:
        return False
    stated = _number(block[148:156])
    return stated is not None and stated == sum(block[:148]) + sum(block[156:BLOCK]) + 8 * 32 and any(block[:148])


def tar_entries(data: bytes) -> Iterator[TarEntry | None]:
    """Yield the regular files; None, once and last, if bytes follow that are no entry of the archive."""
    at = 0
    name: bytes | None = None
    size_given: int | None = None
    while at + BLOCK <= len(data):
        block = data[at : at + BLOCK]
        if not any(block):
            return
        size = _number(block[124:136])
        if not is_header(block) or size is None:
            yield None
            return
        size = size if size_given is None else size_given
        start, kind = at + BLOCK, block[156]
        at = start + -(-size // BLOCK) * BLOCK
        meta = data[start : start + min(size, _META_BYTES_MAX)]
        if kind == _LONG_NAME:
            name = meta.rstrip(b"\0")
        elif kind == _PAX:
            name, size_given = _pax(meta, name)
        else:
            if kind in _FILES:
                is_whole = start + size <= len(data)
                yield TarEntry(_text(name or _name(block)), start, min(start + size, len(data)), is_whole)
            name, size_given = None, None
    if at < len(data) or name is not None or size_given is not None:
        yield None


def _number(field: bytes) -> int | None:
    """Return a number of a header: octal digits, or binary for large values."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else None  # noqa: PLR2004
    digits = field.strip(b" \0")
    if not digits:
        return 0
    return int(digits, 8) if re.fullmatch(rb"[0-7]+", digits) else None


def _name(block: bytes) -> bytes:
    name = block[:100].split(b"\0")[0]
    prefix = block[345:500].split(b"\0")[0] if block[257:262] == b"ustar" else b""
    return prefix + b"/" + name if prefix else name


def _pax(records: bytes, name: bytes | None) -> tuple[bytes | None, int | None]:
    """Return the name and the size that pax records set for the next member."""
    size: int | None = None
    at = 0
    while (found := _PAX_RECORD.match(records, at)) is not None:
        end = at + int(found[1])
        value = records[found.end() : end - 1]
        if found[2] == b"path":
            name = value
        elif found[2] == b"size" and re.fullmatch(rb"\d{1,18}", value):
            size = int(value)
        if end <= found.end():
            break
        at = end
    return name, size


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
