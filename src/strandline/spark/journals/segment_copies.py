"""Parquet copies of a journal's sealed segments: which copy stands for which segment, and whether it still does.

    <folder>/copies                                 which copies there are: a line of check, then JSON
    <folder>/<base, 20 digits>-<digest>.parquet     the records of one segment, with all columns
    <folder>/lock                                   held by the process that makes and removes copies

    strandline-copies 1 crc32c=0a1b2c3d
    {"journal": "…32 hex…", "copies": [[base, end, "…digest…", bytes, [size, modified, changed] or null], …]}

Invariants: a copy is derived and never the truth. It is named by a digest of the journal's identity, the segment's
offsets and the checksum of each of its batches. It stands for a segment while the segment's file has the size and the
times that it had when it was read, or else while its batches still come to that digest; so never for one that was
repaired, written again or made by another journal. A file that was written within two seconds of being read is not
known by its times, which may not tell a later write apart. An index that is missing or damaged names no copies.
"""

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from strandline.checksums import crc32c
from strandline.errors import Damaged, FormatError, OffsetBelowRetained, OffsetsLost
from strandline.files import OsDisk, read_file, replace_file, storage_errors
from strandline.journal import Batch, JournalReader, SealedSegment
from strandline.spark.errors import RecordsMissing
from strandline.spark.journals.log import open_journal

INDEX_NAME = "copies"
COPY_LOCK_NAME = "lock"
COPIES_VERSION = 1
SETTLED_NS = 2_000_000_000
_FIRST_WORD = "strandline-copies"
_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{32})\.parquet")
_BATCH = struct.Struct("<QQI")
_READ_AGAIN = "read the journal again: a DataFrame over copies is of the journal as it was when it was made"


class Stamp(NamedTuple):
    """What the file system says of a file: one that was written, replaced or restored says something else."""

    bytes: int
    modified_ns: int
    changed_ns: int


class SegmentCopy(NamedTuple):
    """The copy of records [base_offset, end_offset); `stamp` None where the segment's times do not identify it."""

    base_offset: int
    end_offset: int
    digest: str
    bytes: int
    stamp: Stamp | None

    @property
    def name(self) -> str:
        """The name of its file."""
        return format_copy_name(self.base_offset, self.digest)


def format_copy_name(base_offset: int, digest: str) -> str:
    """Return the file name of a copy; names sort as offsets do."""
    return f"{base_offset:020d}-{digest}.parquet"


def parse_copy_name(name: str) -> tuple[int, str] | None:
    """Return the base offset and the digest in a copy's file name, or None where it is another file's."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def copies_folder(path: Path, folder: Path | None) -> Path:
    """Return the folder of a journal's copies: beside the journal, or of its own within the folder that was named."""
    if folder is None:
        return path.with_name(path.name + ".copies")
    return folder / f"{path.name}-{zlib.crc32(str(path).encode()):08x}"


class SegmentDigest:
    """The digest of a segment, batch by batch."""

    def __init__(self, identity: bytes, segment: SealedSegment) -> None:
        head = struct.pack("<16sQQI", identity, segment.base_offset, segment.end_offset, COPIES_VERSION)
        self._hash = hashlib.blake2b(head, digest_size=16)

    def add(self, batch: Batch) -> None:
        """Take the next batch."""
        self._hash.update(_BATCH.pack(batch.base_offset, batch.next_offset, batch.checksum))

    def hex(self) -> str:
        """Return the digest of what was taken."""
        return self._hash.hexdigest()


def format_copies(identity: bytes, copies: Iterable[SegmentCopy]) -> bytes:
    """Return the content of the index."""
    body = json.dumps({"journal": identity.hex(), "copies": list(copies)}).encode()
    return f"{_FIRST_WORD} {COPIES_VERSION} crc32c={crc32c(body):08x}\n".encode() + body + b"\n"


def parse_copies(data: bytes, path: str, identity: bytes) -> tuple[SegmentCopy, ...]:
    """Return the copies of a journal; none where the index is damaged or another journal's."""
    first, _, body = data.partition(b"\n")
    words = first.decode("ascii", "replace").split(" ")
    version = words[1] if len(words) > 1 else ""
    body = body.removesuffix(b"\n")
    if words != [_FIRST_WORD, version, f"crc32c={crc32c(body):08x}"]:
        return ()
    if version != str(COPIES_VERSION):
        hint = "use a later Strandline, or name another folder for the copies"
        raise FormatError(path, f"version {version} of copies is not known here", hint=hint)
    try:
        fields = json.loads(body)
        if fields["journal"] != identity.hex():
            return ()
        return tuple(_parse_copy(row) for row in fields["copies"])
    except (KeyError, TypeError, ValueError):
        return ()


def _parse_copy(row: list[Any]) -> SegmentCopy:
    base, end, digest, size, stamp = row
    copy = SegmentCopy(int(base), int(end), digest, int(size), None if stamp is None else Stamp(*map(int, stamp)))
    if parse_copy_name(copy.name) is None:
        raise ValueError(copy.name)
    return copy


def load_copies(folder: Path, identity: bytes) -> tuple[SegmentCopy, ...]:
    """Return the copies that a folder has of a journal, those alone whose files are there as a whole."""
    path = folder / INDEX_NAME
    with storage_errors(path):
        data = read_file(OsDisk(), path)
        copies = () if data is None else parse_copies(data, str(path), identity)
        return tuple(copy for copy in copies if _size(folder / copy.name) == copy.bytes)


def store_copies(folder: Path, identity: bytes, copies: Iterable[SegmentCopy]) -> None:
    """Replace the index, durably."""
    replace_file(OsDisk(), folder / INDEX_NAME, format_copies(identity, copies))


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def read_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a segment's file; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def settled(stamp: Stamp | None, now_ns: int) -> Stamp | None:
    """Return a stamp that was read at `now_ns`, or None where a write after it might leave it as it is."""
    if stamp is None or max(stamp.modified_ns, stamp.changed_ns) > now_ns - SETTLED_NS:
        return None
    return stamp


def stands_for(copy: SegmentCopy, segment: SealedSegment, reader: JournalReader) -> bool:
    """Whether a copy still has the records of a segment; the segment is read where its stamp does not tell."""
    if (copy.base_offset, copy.end_offset) != segment[1:]:
        return False
    if copy.stamp is not None and copy.stamp == read_stamp(segment.path):
        return True
    digest = SegmentDigest(reader.identity, segment)
    try:
        for batch in reader.scan(segment.base_offset, stop=segment.end_offset):
            digest.add(batch)
    except (Damaged, FormatError, OffsetsLost, OffsetBelowRetained):
        return False  # a plain read of the segment says what is wrong with it
    return digest.hex() == copy.digest


@dataclass(frozen=True, slots=True)
class CopiesInUse:
    """The copies that a DataFrame reads, from offset `start` on; it pickles, for the task that checks them."""

    path: str
    identity: bytes
    start: int
    copies: tuple[SegmentCopy, ...]

    def check(self) -> None:
        """Raise `RecordsMissing` unless the journal still holds what the copies were made of."""
        with open_journal(self.path) as reader:
            if reader.identity != self.identity:
                raise self._missing("the journal was replaced by another since the DataFrame was made")
            if reader.first_offset > self.start:
                raise self._missing(f"offsets [{self.start}, {reader.first_offset}) were removed by retention")
            segments = {segment.base_offset: segment for segment in reader.sealed_segments()}
            for copy in self.copies:
                segment = segments.get(copy.base_offset)
                if segment is None or not stands_for(copy, segment, reader):
                    where = f"offsets [{copy.base_offset}, {copy.end_offset})"
                    raise self._missing(f"the segment with {where} changed since the DataFrame was made")

    def _missing(self, problem: str) -> RecordsMissing:
        return RecordsMissing(self.path, problem, _READ_AGAIN)
