"""A journal as a source: aligned blocks of offsets are items, and values, keys and headers of records are parts.

    locator     u64 number of the block, big-endian; block n holds the offsets [1024 n, 1024 (n + 1))
    version     "blk:first:next:identity": the offsets that can be read, of which journal

A block that grew, or that retention trimmed, has another version, and is scanned again.

Invariants: offsets that a repair marked as lost are counted; a block that is damaged in part, or trimmed during the
read, is a problem as a whole; a journal that was created again is another journal.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from strandline.detect.locations import shown
from strandline.errors import Damaged, OffsetError, OffsetsLost, StrandlineError
from strandline.lazy_imports import deferred
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.sources.errors import InputMissing, InputUnusable, ItemProblem, Problem
from strandline.scan.sources.listing_parts import WHOLE, ListingPart, block_parts, blocks_in
from strandline.scan.sources.source import Content, ItemReader, Part, Row, Tell, batches, path_text

if TYPE_CHECKING:
    from strandline import journal
    from strandline.journal import Batch, JournalReader, segment
else:
    journal, segment = deferred("strandline.journal"), deferred("strandline.journal.segment")

BLOCK_OFFSETS = 1024
_FIELDS = ("", "key", "headers")
_U64 = struct.Struct(">Q")


def format_block(block: int) -> bytes:
    """Return the locator of a block."""
    return _U64.pack(block)


def parse_block(locator: bytes) -> int:
    """Return the number of a block."""
    (block,) = _U64.unpack(locator)
    return int(block)


@dataclass(frozen=True)
class JournalSource:
    """A journal's folder; make it with `JournalSource.at`."""

    folder: bytes
    identity: bytes
    name: str
    instance: ConnectorInstanceId

    tag = "journal"
    cut = "ranges of blocks of offsets"
    is_part = False

    @classmethod
    def at(cls, path: str | bytes | os.PathLike[str], *, name: str = "") -> Self:
        """Return a journal; `FormatError` if the folder holds none."""
        folder = os.path.realpath(os.fsencode(path))
        if not os.path.isdir(folder):  # noqa: PTH112 - pathlib does not take bytes
            raise InputMissing(shown(path_text(os.fsencode(path))), "folder")
        with journal.JournalReader.open(os.fsdecode(folder)) as reader:
            identity = reader.identity
        instance = connector_instance_id(b"journal\0" + (name.encode() or identity))
        return cls(folder, identity, name or path_text(folder), instance)

    def plain(self) -> Plain:
        """Return the settings that decide the listing."""
        return {
            "kind": self.tag,
            "instance": self.instance.hex(),
            "folder": shown(path_text(self.folder)),
            "identity": self.identity.hex(),
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the blocks that can be read now, in the order of offsets; a size is estimated from the segments."""
        return self.list_part(WHOLE, tell)

    def listing_parts(self, count: int) -> Sequence[ListingPart]:
        """Return ranges of blocks."""
        first, next_ = self._offsets()
        return block_parts(first // BLOCK_OFFSETS, -(-next_ // BLOCK_OFFSETS), count, format_block)

    def list_part(self, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of a range."""
        return batches(self._rows(*self._offsets(), part), tell, {})

    def _offsets(self) -> tuple[int, int]:
        """Return the offsets that can be read now."""
        with journal.JournalReader.open(os.fsdecode(self.folder)) as reader:
            identity, first, next_ = reader.identity, reader.first_offset, reader.next_offset
        if identity != self.identity:
            hint = "give the source a new name: the offsets of the new journal are others"
            raise InputUnusable(shown(path_text(self.folder)), "the folder holds another journal now", hint=hint)
        return first, next_

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader of blocks."""
        return closing(BlockReader(self))

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the number is enough
        """Return the journal's name and the block's first offset."""
        return f"{self.path}@{parse_block(locator) * BLOCK_OFFSETS}"

    @property
    def path(self) -> str:
        """The path for rules: the folder's name."""
        return path_text(os.path.basename(self.folder))  # noqa: PTH119 - pathlib does not take bytes

    def version(self, first: int, next_: int) -> bytes:
        """Return the version of a block from its readable offsets."""
        return b"blk:%d:%d:%s" % (first, next_, self.identity.hex().encode())

    def _rows(self, first: int, next_: int, part: ListingPart) -> Iterator[Row]:
        each = _stored_bytes(self.folder) // max(1, next_ - first)
        for block in blocks_in(part, first // BLOCK_OFFSETS, -(-next_ // BLOCK_OFFSETS), parse_block):
            begin, end = _within(block, first, next_)
            yield format_block(block), self.version(begin, end), each * (end - begin), None, None, None


class BlockReader:
    """Reads blocks of a journal, which may grow and be trimmed meanwhile."""

    def __init__(self, source: JournalSource) -> None:
        self._source = source
        self._reader: JournalReader | None = None

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002 - the number is enough
        """Return the readable records of a block."""
        try:
            reader = self._opened()
            begin, end = _within(parse_block(locator), reader.first_offset, reader.next_offset)
        except StrandlineError as error:
            raise _problem(error) from error
        if begin >= end:
            raise Problem.VANISHED.error()
        return Content(self._source.version(begin, end), self._parts(reader, begin, end), end - begin)

    def close(self) -> None:
        """Close the journal."""
        if self._reader is not None:
            self._reader.close()

    def _opened(self) -> "JournalReader":
        if self._reader is None:
            reader = journal.JournalReader.open(os.fsdecode(self._source.folder))
            if reader.identity != self._source.identity:
                reader.close()
                raise Problem.VANISHED.error()
            self._reader = reader
        return self._reader

    def _parts(self, reader: "JournalReader", begin: int, end: int) -> Iterator[Part]:
        path, at = self._source.path, begin
        while at < end:
            try:
                for batch in reader.scan(at, stop=end):
                    yield from _cells(batch, path)
                    at = batch.next_offset
            except OffsetsLost as lost:
                at = min(lost.resume_at, end)
                yield Part(b"", path, _address(lost.offset, 0), row=str(lost.offset), lost=at - lost.offset)
            except StrandlineError as error:
                raise _problem(error) from error


def _cells(batch: "Batch", path: str) -> Iterator[Part]:
    for column, values in enumerate((batch.values(), batch.keys(), batch.headers())):
        for offset, value in enumerate(values or (), batch.base_offset):
            if value:
                yield Part(value, path, _address(offset, column), row=str(offset), field=_FIELDS[column])


def _address(offset: int, column: int) -> int:
    return offset % BLOCK_OFFSETS * len(_FIELDS) + column


def _within(block: int, first: int, next_: int) -> tuple[int, int]:
    return max(first, block * BLOCK_OFFSETS), min(next_, (block + 1) * BLOCK_OFFSETS)


def _problem(error: StrandlineError) -> ItemProblem:
    match error:
        case ItemProblem():
            return error
        case OffsetError():
            return Problem.CHANGED_WHILE_READ.error()
        case Damaged():
            return Problem.DAMAGED.error()
        case _ if error.retryable:
            return Problem.IO_ERROR.error()
        case _:  # the folder holds another journal now, or none
            return Problem.VANISHED.error()


def _stored_bytes(folder: bytes) -> int:
    with os.scandir(folder) as entries:
        names = [entry for entry in entries if segment.parse_segment_name(os.fsdecode(entry.name)) is not None]
        return sum(entry.stat(follow_symlinks=False).st_size for entry in names)
