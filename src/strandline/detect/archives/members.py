"""Members of archives, unpacked within bounds of entries, bytes and ratio.

    zip, tar          their members, one by one
    gzip, bzip2, xz, zstd    one member without a name
    7z, rar           recognised, not read

Invariants: any bytes give members or none, never an error; `UnpackBudget.skipped` counts members that a bound, a
password, an unknown method or damage left out in whole or in part, and the readable part of them is scanned; a
member's location is exact if the archive stores its bytes uncompressed.
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
"""Magic bytes of all archives but tar; and their first two bytes."""
_OCTAL = frozenset(b" 01234567")


class Member(NamedTuple):
    """A member: its name, its bytes, and the function that maps its spans to the archive's."""

    name: str
    data: bytes
    locate: Locate

    def __repr__(self) -> str:
        return f"Member({self.name!r}, {len(self.data)} bytes)"


@dataclass
class UnpackBudget:
    """Entries and bytes that may still be unpacked of an item; nested archives share it."""

    limits: Limits
    entries_left: int
    bytes_left: int
    skipped: int = 0

    @classmethod
    def of(cls, limits: Limits) -> "UnpackBudget":
        """Return the budget of a new item."""
        return cls(limits, limits.archive_entries_max, limits.archive_bytes_max)

    def takes_entry(self) -> bool:
        """Return whether one more entry may be unpacked, and count it either way."""
        if not self.entries_left or not self.bytes_left:
            self.skipped += 1
            return False
        self.entries_left -= 1
        return True

    def stream(self, kind: str, data: memoryview) -> bytes:
        """Return a stream's content, as far as the bounds allow."""
        bytes_max = min(self.limits.entry_bytes_max, self.bytes_left)
        out, is_whole = unpacked(kind, data, bytes_max, self.limits.archive_ratio_max, self.limits.archive_entries_max)
        self.bytes_left -= len(out)
        self.skipped += not is_whole
        return out

    def slice(self, data: bytes, start: int, end: int) -> bytes:
        """Return bytes that the archive stores uncompressed, as far as the bounds allow."""
        stop = min(end, start + min(self.limits.entry_bytes_max, self.bytes_left))
        self.bytes_left -= stop - start
        self.skipped += stop < end
        return data[start:stop]


def kind_of(data: bytes) -> str | None:
    """Return the kind of an archive by its first bytes; None if a buffer is no archive."""
    begins = MAGIC.match(data)
    if begins is not None:
        return _MAGIC.get(begins[0], "bzip2")
    if len(data) >= BLOCK and _OCTAL.issuperset(data[148:154]) and is_header(data[:BLOCK]):
        return "tar"
    return None


def members(kind: str, data: bytes, budget: UnpackBudget) -> Iterator[Member]:
    """Yield the members of an archive."""
    match kind:
        case "zip":
            yield from _zip_members(data, budget)
        case "tar":
            yield from _tar_members(data, budget)
        case "gzip" | "bzip2" | "xz" | "zstd":
            if budget.takes_entry():
                yield Member("", budget.stream(kind, memoryview(data)), packed(0, len(data)))
        case _:
            budget.skipped += 1


def packed(start: int, end: int) -> Locate:
    """Return the mapping of compressed bytes: each unpacked byte maps to the whole packed span."""
    return lambda _first, _last: (start, end)


def _zip_members(data: bytes, budget: UnpackBudget) -> Iterator[Member]:
    for entry in zip_entries(data):
        if entry is None or entry.method is None:
            budget.skipped += 1
        elif budget.takes_entry():
            name = _clean(entry.name)
            if entry.method == "stored":
                yield Member(name, budget.slice(data, entry.start, entry.end), shifted(entry.start))
            else:
                out = budget.stream(entry.method, memoryview(data)[entry.start : entry.end])
                yield Member(name, out, packed(entry.start, entry.end))


def _tar_members(data: bytes, budget: UnpackBudget) -> Iterator[Member]:
    for entry in tar_entries(data):
        if entry is None:
            budget.skipped += 1
        elif budget.takes_entry():
            budget.skipped += not entry.is_whole
            yield Member(_clean(entry.name), budget.slice(data, entry.start, entry.end), shifted(entry.start))


def _clean(name: str) -> str:
    """Return a member's name for display: of bounded length, without control characters."""
    text = "".join(char if char.isprintable() else "\ufffd" for char in name)
    return text[-NAME_CHARACTERS_MAX:] or "?"
