"""Archives: what is packed in a buffer, within bounds of entries, bytes and ratio.

    zip, tar          their members, one by one
    gzip, bzip2, xz, zstd    what they hold, one member without a name
    7z, rar           known, and not read

Invariants: any bytes give members or none, never an error; what a bound, a password, an unknown method or damage
left out is counted in `Unpacking.skipped`, and the part of it that could be read is given; a member's way back is
exact where its bytes stand in the archive as they are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from strandline.detect.archives.streams import unpacked
from strandline.detect.archives.tars import BLOCK, is_header, tar_entries
from strandline.detect.archives.zips import zip_entries
from strandline.detect.frames import Locate, shifted
from strandline.detect.limits import Limits

NAME_CHARACTERS_MAX = 512
_MAGIC = {
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x1f\x8b\x08": "gzip",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
}
MAGIC = re.compile(b"(?:%s)|BZh[1-9](?:1AY&SY|\x17rE8P\x90)" % b"|".join(map(re.escape, _MAGIC)))
MAGIC_BEGINS = frozenset(magic[:2] for magic in (*_MAGIC, b"BZ"))
"""How archives begin, all but tar; and the first two bytes of that."""
_OCTAL = frozenset(b" 01234567")


class Member(NamedTuple):
    """What is packed: its name, its bytes, and the way back."""

    name: str
    data: bytes
    locate: Locate

    def __repr__(self) -> str:
        return f"Member({self.name!r}, {len(self.data)} bytes)"


@dataclass
class Unpacking:
    """What may still be unpacked of an item; archives inside archives share it."""

    limits: Limits
    entries_left: int
    bytes_left: int
    skipped: int = 0

    @classmethod
    def of(cls, limits: Limits) -> "Unpacking":
        """Return what may be unpacked of an item."""
        return cls(limits, limits.archive_entries_max, limits.archive_bytes_max)

    def takes_entry(self) -> bool:
        """Return whether one more entry may be looked at, and count it either way."""
        if not self.entries_left or not self.bytes_left:
            self.skipped += 1
            return False
        self.entries_left -= 1
        return True

    def stream(self, kind: str, data: memoryview) -> bytes:
        """Return what a stream holds, as far as the bounds allow."""
        bytes_max = min(self.limits.entry_bytes_max, self.bytes_left)
        out, is_whole = unpacked(kind, data, bytes_max, self.limits.archive_ratio_max, self.limits.archive_entries_max)
        self.bytes_left -= len(out)
        self.skipped += not is_whole
        return out

    def slice(self, data: bytes, start: int, end: int) -> bytes:
        """Return bytes that stand in the archive as they are, as far as the bounds allow."""
        stop = min(end, start + min(self.limits.entry_bytes_max, self.bytes_left))
        self.bytes_left -= stop - start
        self.skipped += stop < end
        return data[start:stop]


def kind_of(data: bytes) -> str | None:
    """Return what kind of archive a buffer is, by its first bytes."""
    begins = MAGIC.match(data)
    if begins is not None:
        return _MAGIC.get(begins[0], "bzip2")
    if len(data) >= BLOCK and _OCTAL.issuperset(data[148:154]) and is_header(data[:BLOCK]):
        return "tar"
    return None


def members(kind: str, data: bytes, unpacking: Unpacking) -> Iterator[Member]:
    """Yield what is packed in a buffer of a kind."""
    match kind:
        case "zip":
            yield from _zip_members(data, unpacking)
        case "tar":
            yield from _tar_members(data, unpacking)
        case "gzip" | "bzip2" | "xz" | "zstd":
            if unpacking.takes_entry():
                yield Member("", unpacking.stream(kind, memoryview(data)), packed(0, len(data)))
        case _:
            unpacking.skipped += 1


def packed(start: int, end: int) -> Locate:
    """Return the way back of what is packed: every byte of it comes from all of the packed ones."""
    return lambda _first, _last: (start, end)


def _zip_members(data: bytes, unpacking: Unpacking) -> Iterator[Member]:
    for entry in zip_entries(data):
        if entry is None or entry.method is None:
            unpacking.skipped += 1
        elif unpacking.takes_entry():
            name = _clean(entry.name)
            if entry.method == "stored":
                yield Member(name, unpacking.slice(data, entry.start, entry.end), shifted(entry.start))
            else:
                out = unpacking.stream(entry.method, memoryview(data)[entry.start : entry.end])
                yield Member(name, out, packed(entry.start, entry.end))


def _tar_members(data: bytes, unpacking: Unpacking) -> Iterator[Member]:
    for entry in tar_entries(data):
        if entry is None:
            unpacking.skipped += 1
        elif unpacking.takes_entry():
            unpacking.skipped += not entry.is_whole
            yield Member(_clean(entry.name), unpacking.slice(data, entry.start, entry.end), shifted(entry.start))


def _clean(name: str) -> str:
    """Return a member's name as it may be shown: of bounded length, without control characters."""
    text = "".join(char if char.isprintable() else "\ufffd" for char in name)
    return text[-NAME_CHARACTERS_MAX:] or "?"
