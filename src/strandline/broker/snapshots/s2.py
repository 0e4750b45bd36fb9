"""S2 streams, the container of snapshots: it reads all of S2, and writes the part that is Snappy.

Invariants: pure. A block whose checksum does not match, or whose size exceeds the limit, is `Corrupt`; memory is
bounded by one block. A reader accepts bytes in pieces of any size, in time that grows with their number. A few bytes
may hold megabytes, so it yields after each block, and within long ones. Every reader of S2 reads the output
(docs/decisions/0019): blocks of Snappy, plain where compression saves less than an eighth.
"""

from collections.abc import Generator, Iterator

import pyarrow as pa

from strandline.checksums import crc32c
from strandline.errors import StrandlineError

_S2, _SNAPPY = b"S2sTwO", b"sNaPpY"
_STREAM, _COMPRESSED, _PLAIN = 0xFF, 0x00, 0x01
_SKIPPABLE = 0x80
_HEAD = 4
_CRC = 4
PLAIN_MAX = 65_536
"""How much a plain chunk of Snappy holds."""
BLOCK_MAX = 4 << 20
STEPS_MAX = 4096
"""So many literals and copies are read at once."""
_CHUNK_MAX = BLOCK_MAX + (BLOCK_MAX >> 3) + 64
_MASK = 0xFFFFFFFF
_LITERAL, _COPY_1, _COPY_2 = 0, 1, 2
_SHORT_LITERAL = 60
_LONG_REPEATS = {5: (1, 0), 6: (2, 1 << 8), 7: (3, 1 << 16)}
"""Lengths of repeats that do not fit their tag: number of bytes that follow, and the constant to add."""
BEGIN = bytes([_STREAM, 6, 0, 0]) + _SNAPPY
_CODEC = pa.Codec("snappy")


class Corrupt(StrandlineError):
    """The input is damaged."""

    def __init__(self) -> None:
        super().__init__("s2: corrupt input", hint="take the snapshot again")


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK


def format_chunks(data: bytes) -> bytes:
    """Return data as chunks of a stream that `BEGIN` has begun."""
    parts: list[bytes] = []
    for at in range(0, len(data), PLAIN_MAX):
        piece = data[at : at + PLAIN_MAX]
        kind, body = _COMPRESSED, _CODEC.compress(piece, asbytes=True)
        if len(body) > len(piece) - len(piece) // 8:
            kind, body = _PLAIN, piece
        parts += (bytes([kind]), (len(body) + _CRC).to_bytes(3, "little"), _masked(piece).to_bytes(4, "little"), body)
    return b"".join(parts)


class S2Reader:
    """Reads a stream piece by piece."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._magic = b""

    @property
    def held_bytes(self) -> int:
        """How much is kept of a chunk that is not all there."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the blocks that a further piece completes; yield an empty piece after a while without one."""
        rest = self._rest
        rest += data
        while len(rest) >= _HEAD:
            kind, size = rest[0], int.from_bytes(rest[1:_HEAD], "little")
            if size > _CHUNK_MAX or not (self._magic or kind == _STREAM):
                raise Corrupt
            if len(rest) - _HEAD < size:
                break
            body = bytes(rest[_HEAD : _HEAD + size])
            del rest[: _HEAD + size]
            yield (yield from self._chunk(kind, body))

    def close(self) -> None:
        """End the input; `Corrupt` if it is incomplete."""
        if self._rest or not self._magic:
            raise Corrupt

    def _chunk(self, kind: int, body: bytes) -> Generator[bytes, None, bytes]:
        if kind == _STREAM:
            if body not in (_S2, _SNAPPY):
                raise Corrupt
            self._magic = body
            return b""
        if kind not in (_COMPRESSED, _PLAIN):
            if kind < _SKIPPABLE:
                raise Corrupt
            return b""
        plain = body[_CRC:]
        if kind == _COMPRESSED:
            plain = _decode_snappy(plain) if self._magic == _SNAPPY else (yield from decode_block(plain))
        if len(body) < _CRC or _masked(plain) != int.from_bytes(body[:_CRC], "little"):
            raise Corrupt
        return plain


def _decode_snappy(source: bytes) -> bytes:
    """Return the content of a Snappy block."""
    try:
        size, _ = _varint(source)
        if size > BLOCK_MAX:
            raise Corrupt
        found: bytes = _CODEC.decompress(source, size, asbytes=True)
    except (IndexError, OSError, ValueError):
        raise Corrupt from None
    return found


def decode_block(source: bytes) -> Generator[bytes, None, bytes]:
    """Return the content of a compressed block; yield after a while of work."""
    try:
        size, at = _varint(source)
        if size > BLOCK_MAX:
            raise Corrupt
        found = yield from _decode(source, at, size)
    except IndexError:
        raise Corrupt from None
    if len(found) != size:
        raise Corrupt
    return bytes(found)


def _varint(source: bytes) -> tuple[int, int]:
    value = at = 0
    while True:
        byte = source[at]
        value |= (byte & 0x7F) << 7 * at
        at += 1
        if byte < 0x80:  # noqa: PLR2004 - the bit for another byte
            return value, at
        if at > 5:  # noqa: PLR2004 - no length needs more bytes
            raise Corrupt


def _decode(source: bytes, at: int, size: int) -> Generator[bytes, None, bytearray]:
    found = bytearray()
    offset = steps = 0
    while at < len(source):
        steps += 1
        if not steps % STEPS_MAX:
            yield b""
        tag = source[at]
        if tag & 3 == _LITERAL:
            at, stop = _literal(source, at)
            found += source[at:stop]
            at = stop
            continue
        if tag & 3 == _COPY_1:
            at, length, new = _short_copy(source, at)
            offset = new or offset
        else:
            width = 2 if tag & 3 == _COPY_2 else 4
            length, offset = (tag >> 2) + 1, int.from_bytes(source[at + 1 : at + 1 + width], "little")
            at += 1 + width
        start = len(found) - offset
        if offset == 0 or start < 0 or len(found) + length > size:
            raise Corrupt
        if offset >= length:
            found += found[start : start + length]
        else:
            found += (bytes(found[start:]) * (length // offset + 1))[:length]
    return found


def _literal(source: bytes, at: int) -> tuple[int, int]:
    """Return where a literal begins and ends."""
    length = source[at] >> 2
    at += 1
    if length >= _SHORT_LITERAL:
        width = length - _SHORT_LITERAL + 1
        length = int.from_bytes(source[at : at + width], "little")
        at += width
    stop = at + length + 1
    if stop > len(source):
        raise Corrupt
    return at, stop


def _short_copy(source: bytes, at: int) -> tuple[int, int, int]:
    """Return where a short copy ends, its length, and its offset, which is 0 if it is that of the copy before."""
    tag = source[at]
    length, offset = tag >> 2 & 7, (tag & 0xE0) << 3 | source[at + 1]
    at += 2
    if not offset and length in _LONG_REPEATS:
        width, extra = _LONG_REPEATS[length]
        length = int.from_bytes(source[at : at + width], "little") + extra + (4 if length == 5 else 0)  # noqa: PLR2004
        at += width
    return at, length + 4, offset
