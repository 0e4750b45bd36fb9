"""The archive inside a snapshot, as nats-server 2.15 writes it: state, consumers and messages of a stream.

    8s   magic "NATSARC1"
    then entries, each of them:
         uvarint  length of the name or subject
         varint   time, nanoseconds since 1970 (zig-zag)
         uvarint  sequence; 0 if it is not a message
         uvarint  length of the headers
         uvarint  length of the payload
         …        name or subject, headers, payload
    at the end an entry of zeros

Entries that are not messages come first: `state.json`, and `consumers/<name>` for each consumer.

Invariants: pure. A reader accepts bytes in pieces of any size, in time that grows with their number, and keeps at most
one entry of them; nothing may follow the end.
"""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from strandline.broker.streams.arrays import Words
from strandline.broker.streams.messages import Messages
from strandline.errors import StrandlineError

MAGIC = b"NATSARC1"
STATE_NAME = b"state.json"
CONSUMER_PREFIX = b"consumers/"
END = bytes(5)
ENTRY_MAX = 8 << 20
"""How large an entry may be that is no message: a consumer that waits for 100,000 answers."""
BATCH = 512
"""So many entries are read at once."""
_VARINT_MAX = 10


class BadArchive(StrandlineError):
    """The input is not an archive that can be restored."""


class Archived(NamedTuple):
    """An entry; `sequence` is 0 if it is no message."""

    name: bytes
    time_ns: int
    sequence: int
    headers: bytes
    payload: bytes


def format_uvarint(value: int) -> bytes:
    """Return a number, seven bits a byte, lowest first."""
    parts = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - as much as a byte holds
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_SHORT = [format_uvarint(size) for size in range(1024)]


def format_entry(entry: Archived) -> bytes:
    """Return an entry as it is written."""
    name, time_ns, sequence, headers, payload = entry
    numbers = (len(name), time_ns << 1 ^ time_ns >> 63, sequence, len(headers), len(payload))
    return b"".join([*map(format_uvarint, numbers), name, headers, payload])


def format_messages(messages: Messages) -> bytes:
    """Return the entries of some messages."""
    times = messages.times.astype(np.int64)
    columns = (
        _lengths(messages.subjects),
        _uvarints((times << 1 ^ times >> 63).view(np.uint64)),
        _uvarints(messages.sequences.astype(np.uint64)),
        _lengths(messages.headers),
        _lengths(messages.payloads),
        messages.subjects,
        messages.headers,
        messages.payloads,
    )
    return b"".join(chain.from_iterable(zip(*columns, strict=True)))


def _lengths(parts: list[bytes]) -> list[bytes]:
    return [_SHORT[size] if size < len(_SHORT) else format_uvarint(size) for size in map(len, parts)]


def _uvarints(values: Words) -> list[bytes]:
    """Return numbers, all at once if they have one length, as neighbours mostly have."""
    if not len(values):
        return []
    size = len(format_uvarint(int(values.min())))
    if size != len(format_uvarint(int(values.max()))):
        return list(map(format_uvarint, values.tolist()))
    shifts = np.arange(0, 7 * size, 7, dtype=np.uint64)
    table = (values[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    table[:, :-1] |= 0x80
    data = table.tobytes()
    return [data[at : at + size] for at in range(0, len(data), size)]


class ArchiveReader:
    """Reads an archive piece by piece; a message may have so many bytes, its subject and headers among them."""

    def __init__(self, message_max: int) -> None:
        self._message_max = message_max
        self._rest = bytearray()
        self._needed = len(MAGIC)
        self._begun = False
        self.ended = False

    @property
    def held_bytes(self) -> int:
        """How much is kept of an entry that is not all there."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[list[Archived]]:
        """Yield the entries that a further piece completes, some at a time."""
        self._rest += data
        if len(self._rest) < self._needed and not self.ended:
            return
        known, at = bytes(self._rest), 0
        self._rest.clear()
        if not self._begun:
            if not known.startswith(MAGIC):
                raise BadArchive("unknown snapshot format", hint="take the snapshot with nats-server 2.15 or later")
            self._begun, at = True, len(MAGIC)
        found: list[Archived] = []
        while not self.ended and (entry := self._entry(known, at)) is not None:
            archived, at = entry
            self.ended = archived == (b"", 0, 0, b"", b"")
            if not self.ended:
                found.append(archived)
            if len(found) >= BATCH:
                yield found
                found = []
        if found:
            yield found
        if self.ended and at < len(known):
            raise BadArchive("data after the end of the archive", hint="take the snapshot again")
        self._rest += known[at:]

    def close(self) -> None:
        """End the input; `BadArchive` if the archive is incomplete."""
        if not self.ended:
            raise BadArchive("unexpected EOF", hint="take the snapshot again")

    def _entry(self, data: bytes, at: int) -> tuple[Archived, int] | None:
        """Return the entry at an offset and the next offset; None, and note its size, if it is incomplete."""
        head = _numbers(data, at)
        if head is None:
            self._needed = len(data) - at + 1
            return None
        (name_size, time_code, sequence, headers_size, payload_size), name_at = head
        size = name_size + headers_size + payload_size
        if size > (self._message_max if sequence else ENTRY_MAX):
            raise BadArchive("an entry is too large", hint="raise max_payload")
        stop = name_at + size
        if stop > len(data):
            self._needed = stop - at
            return None
        headers_at = name_at + name_size
        payload_at = headers_at + headers_size
        time_ns = time_code >> 1 ^ -(time_code & 1)
        parts = data[name_at:headers_at], time_ns, sequence, data[headers_at:payload_at], data[payload_at:stop]
        return Archived(*parts), stop


def _numbers(data: bytes, at: int) -> tuple[list[int], int] | None:
    """Return the numbers that an entry begins with and where they end, None if they are not all there."""
    numbers = []
    for _ in range(5):
        value = shift = 0
        while True:
            if at >= len(data):
                return None
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 - the bit for another byte
                break
            if shift >= 7 * _VARINT_MAX:
                raise BadArchive("a number is too large")
        numbers.append(value)
    return numbers, at
