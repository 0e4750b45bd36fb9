"""The file of lost offsets: which offsets repairs have marked as lost, so that a journal need not be read whole.

One line of check, then JSON that a person can read:

    strandline-lost 1 crc32c=0a1b2c3d
    {"identity": "…32 hex…", "ranges": [[first, end], …]}

Invariants: a repair writes it before it marks anything, so no mark is missing from it. It is only a hint of where to
look: the batches in the segments say what is lost, and a repair that was interrupted may have named too much.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from strandline.checksums import crc32c
from strandline.files import Disk, read_file, replace_file

LOST_NAME = "lost"
LOST_VERSION = 1
_FIRST_WORD = "strandline-lost"
Range = tuple[int, int]


def format_lost_file(identity: bytes, ranges: Iterable[Range]) -> bytes:
    """Return the content of the file."""
    body = json.dumps({"identity": identity.hex(), "ranges": [list(each) for each in ranges]}).encode()
    return f"{_FIRST_WORD} {LOST_VERSION} crc32c={crc32c(body):08x}\n".encode() + body + b"\n"


def parse_lost_file(data: bytes, identity: bytes) -> list[Range] | None:
    """Return the ranges; None where the file is damaged, of another journal or of a later version."""
    first, _, body = data.partition(b"\n")
    body = body.removesuffix(b"\n")
    if first != f"{_FIRST_WORD} {LOST_VERSION} crc32c={crc32c(body):08x}".encode():
        return None
    fields = json.loads(body)
    return [(first, end) for first, end in fields["ranges"]] if fields["identity"] == identity.hex() else None


def read_lost_file(disk: Disk, folder: Path, identity: bytes) -> list[Range] | None:
    """Return the ranges that a journal's file names; None where there is no file that says so."""
    data = read_file(disk, folder / LOST_NAME)
    return None if data is None else parse_lost_file(data, identity)


def note_lost(disk: Disk, folder: Path, identity: bytes, ranges: Iterable[Range]) -> None:
    """Add ranges to the file, durably."""
    known = read_lost_file(disk, folder, identity) or []
    replace_file(disk, folder / LOST_NAME, format_lost_file(identity, sorted({*known, *ranges})))
