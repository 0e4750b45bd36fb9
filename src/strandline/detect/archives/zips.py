"""Zip files, read from their central directory: the span and the compression method of each member.

Invariants: any bytes give entries or none, never an error; an entry's span lies within the file; the directory is
read once.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END_BYTES, _LOCATOR_BYTES, _COMMENT_MAX = 22, 20, 0xFFFF
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_BIG = 0xFFFFFFFF
_LARGE = 1
ENCRYPTED, UTF8_NAME = 0x1, 0x800
METHODS = {0: "stored", 8: "deflate", 12: "bzip2", 93: "zstd", 95: "xz"}


class ZipEntry(NamedTuple):
    """A member: its name, its method (None if it is not supported), and the span of its packed bytes."""

    name: str
    method: str | None
    start: int
    end: int


def zip_entries(data: bytes) -> Iterator[ZipEntry | None]:
    """Yield the members of a file, without folders; None, once and last, if its directory is incomplete."""
    directory = _directory(data)
    if directory is None:
        yield None
        return
    at, end, shift = directory
    while at + _ENTRY.size <= end:
        fields = _ENTRY.unpack_from(data, at)
        if fields[0] != b"PK\x01\x02":
            break
        name_size, extra_size, comment_size = fields[10:13]
        name = data[at + _ENTRY.size : at + _ENTRY.size + name_size]
        extra_at = at + _ENTRY.size + name_size
        at = extra_at + extra_size + comment_size
        if not name.endswith(b"/"):
            sizes = _sizes(fields, data[extra_at : extra_at + extra_size])
            yield _entry(data, fields, name, sizes, shift)
    if at != end or shift:
        yield None


def _directory(data: bytes) -> tuple[int, int, int] | None:
    """Return the span of the directory, and the number of bytes that precede the archive in the file."""
    at = data.rfind(_END, max(0, len(data) - _END_BYTES - _COMMENT_MAX))
    if at < 0 or at + _END_BYTES > len(data):
        return None
    size, offset = struct.unpack_from("<2L", data, at + 12)
    end = at
    locator = at - _LOCATOR_BYTES
    if locator >= 0 and data.startswith(_LOCATOR64, locator):
        end = data.rfind(_END64, 0, locator)
        if end < 0 or end + 56 > len(data):
            return None
        size, offset = struct.unpack_from("<2Q", data, end + 40)
    start = end - size
    return (start, end, start - offset) if start >= 0 else None


def _sizes(fields: tuple[int, ...], extra: bytes) -> tuple[int, int]:
    """Return the packed size and the offset, from the ZIP64 extra field if they do not fit the entry."""
    numbers = {"plain": fields[9], "packed": fields[8], "offset": fields[16]}
    at = 0
    while at + 4 <= len(extra):
        tag, size = struct.unpack_from("<2H", extra, at)
        if tag == _LARGE:
            large = [number for (number,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + size // 8 * 8])]
            for name in [name for name, number in numbers.items() if number == _BIG]:
                numbers[name] = large.pop(0) if large else 0
            break
        at += 4 + size
    return numbers["packed"], numbers["offset"]


def _entry(data: bytes, fields: tuple[int, ...], name: bytes, sizes: tuple[int, int], shift: int) -> ZipEntry:
    flags, method = fields[3], fields[4]
    text = name.decode("utf-8" if flags & UTF8_NAME else "cp437", "replace")
    packed, offset = sizes
    local = offset + shift
    if not 0 <= local <= len(data) - _LOCAL.size or not data.startswith(b"PK\x03\x04", local):
        return ZipEntry(text, None, 0, 0)
    name_size, extra_size = struct.unpack_from("<2H", data, local + 26)
    start = local + _LOCAL.size + name_size + extra_size
    if start + packed > len(data) or flags & ENCRYPTED:
        return ZipEntry(text, None, 0, 0)
    return ZipEntry(text, METHODS.get(method), start, start + packed)
