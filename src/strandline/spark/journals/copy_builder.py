"""Makes Parquet copies of sealed segments, and removes those of segments that changed or are gone.

Invariants: one process at a time does it, by lock; a copy gets its name when all of it is on stable storage, and is
used once the index names it; what the index does not name is removed. A segment that cannot be read as a whole gets no
copy: its records are left to the plain reader, which says what is wrong. The journal itself is only read.
"""

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import Damaged, FormatError, OffsetBelowRetained, OffsetsLost
from strandline.files import TEMP_SUFFIX, OsDisk, remove_if_there, storage_errors
from strandline.journal import Batch, JournalReader, SealedSegment
from strandline.spark.journals.columns import SCHEMA, project
from strandline.spark.journals.log import open_journal
from strandline.spark.journals.segment_copies import (
    COPY_LOCK_NAME,
    SegmentCopy,
    SegmentDigest,
    Stamp,
    copies_folder,
    load_copies,
    parse_copy_name,
    read_stamp,
    settled,
    stands_for,
    store_copies,
)
from strandline.spark.logs.options import absolute

ROW_GROUP_BYTES = 1024 * 1024
_ENCODING = {"offset": "DELTA_BINARY_PACKED", "timestamp": "PLAIN"}


class CopiedSegments(NamedTuple):
    """The copies of a journal's segments after a call, and what the call did."""

    folder: Path
    copies: tuple[SegmentCopy, ...]
    made: int
    removed: int
    """Files that stood for no segment any more."""


def copy_segments(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> CopiedSegments:
    """Make the Parquet copies that are missing of a journal's sealed segments, and remove those that are stale.

    They are beside the journal, in `<journal>.copies`, or in a folder of the journal's own within `folder`. Raises
    `Locked` where another process is doing the same.
    """
    journal = Path(absolute(os.fspath(path)))
    home = copies_folder(journal, None if folder is None else Path(absolute(os.fspath(folder))))
    with storage_errors(home), open_journal(str(journal)) as reader:
        OsDisk().make_folder(home)
        with closing(_Released(home)):
            return _copy_missing(reader, home)


class _Released:
    """The lock of a folder of copies."""

    def __init__(self, folder: Path) -> None:
        self._lock = OsDisk().lock(folder / COPY_LOCK_NAME)

    def close(self) -> None:
        """Release it."""
        self._lock.release()


def _copy_missing(reader: JournalReader, home: Path) -> CopiedSegments:
    segments = reader.sealed_segments()
    known = {copy.base_offset: copy for copy in load_copies(home, reader.identity)}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        found = list(threads.map(lambda segment: _kept_or_made(reader, segment, known, home), segments))
    copies = tuple(copy for copy in found if copy is not None)
    if copies != tuple(known.values()):
        store_copies(home, reader.identity, copies)
    made = {copy.name for copy in copies} - {copy.name for copy in known.values()}
    return CopiedSegments(home, copies, len(made), _sweep(home, copies))


def _kept_or_made(
    reader: JournalReader, segment: SealedSegment, known: dict[int, SegmentCopy], home: Path
) -> SegmentCopy | None:
    """Return the copy that stands for a segment; None where the segment cannot be read as a whole."""
    stamp = settled(read_stamp(segment.path), time.time_ns())
    copy = known.get(segment.base_offset)
    if copy is not None and stands_for(copy, segment, reader):
        return copy._replace(stamp=_unchanged(segment, stamp))
    try:
        return _make(reader, segment, stamp, home)
    except (Damaged, FormatError, OffsetsLost, OffsetBelowRetained):
        return None


def _make(reader: JournalReader, segment: SealedSegment, stamp: Stamp | None, home: Path) -> SegmentCopy:
    temporary = home / f"{segment.base_offset:020d}{TEMP_SUFFIX}"
    digest = SegmentDigest(reader.identity, segment)
    try:
        remove_if_there(OsDisk(), temporary)
        _write(temporary, _row_groups(_added(reader, segment, digest)))
        with closing(OsDisk().open(temporary, "write")) as file:
            file.sync()
            size = file.size()
        copy = SegmentCopy(segment.base_offset, segment.end_offset, digest.hex(), size, _unchanged(segment, stamp))
        OsDisk().rename(temporary, home / copy.name)
    finally:
        remove_if_there(OsDisk(), temporary)
    OsDisk().sync_folder(home)
    return copy


def _unchanged(segment: SealedSegment, stamp: Stamp | None) -> Stamp | None:
    """Return the stamp from before a read, or None where the file was touched meanwhile."""
    return stamp if read_stamp(segment.path) == stamp else None


def _added(reader: JournalReader, segment: SealedSegment, digest: SegmentDigest) -> Iterator[Batch]:
    for batch in reader.scan(segment.base_offset, stop=segment.end_offset):
        digest.add(batch)
        yield batch


def _row_groups(batches: Iterable[Batch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(project(batch, SCHEMA))
        size += batch.stored_bytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _write(path: Path, tables: Iterable[pa.Table]) -> None:
    writer = pq.ParquetWriter(
        path,
        SCHEMA,
        compression="none",
        use_dictionary=False,
        column_encoding=_ENCODING,
        write_statistics=["offset", "timestamp"],
        write_page_checksum=True,
    )
    with writer:
        for table in tables:
            writer.write_table(table, row_group_size=table.num_rows)


def _sweep(home: Path, copies: Iterable[SegmentCopy]) -> int:
    """Remove the files of copies that the index does not name, and what interrupted calls left."""
    kept = {copy.name for copy in copies}
    gone = [
        name
        for name in OsDisk().names(home)
        if name not in kept and (parse_copy_name(name) is not None or name.endswith(TEMP_SUFFIX))
    ]
    for name in gone:
        remove_if_there(OsDisk(), home / name)
    return len(gone)
