"""A journal as one DataFrame: sealed segments from their Parquet copies, the rest by the format's own reader.

Spark reads Parquet with its own vectorised reader: columns that a query does not use are not read, and filters on
offsets and times skip row groups. Rows of a Python source cost it about twice as much.

Invariants: the range is fixed when the DataFrame is made, and each record of it comes once: from the copy of its
segment, or from the journal. Whenever the DataFrame is run, its first task checks that the copies still stand for the
segments, and refuses with `RecordsMissing` where one does not.
"""

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import Locked
from strandline.journal import JournalReader
from strandline.spark.errors import hints_as_notes
from strandline.spark.journals.columns import COLUMNS, DDL
from strandline.spark.journals.copy_builder import copy_segments
from strandline.spark.journals.log import JournalLog, open_journal
from strandline.spark.journals.options import JournalOptions
from strandline.spark.journals.segment_copies import CopiesInUse, SegmentCopy, copies_folder, load_copies, stands_for
from strandline.spark.logs.options import absolute
from strandline.spark.logs.ranges import Range, resolve_range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARQUET = {
    "parquet.page.verify-checksum.enabled": "true",
    # Times before 1900 mean what they say.
    "datetimeRebaseMode": "CORRECTED",
}


def journal_dataframe(
    spark: "SparkSession",
    path: str | os.PathLike[str],
    copies: str | os.PathLike[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    start: int | None = None,
    stop: int | None = None,
) -> "DataFrame":
    """Return a journal's records, sealed segments from their Parquet copies, which are made where they are missing.

    `copies` names the folder of the copies, see `copy_segments`; they take as much space as the segments do. Rows come
    in no order. A query that runs after a segment was repaired, removed or replaced fails with `RecordsMissing`.
    """
    journal = Path(absolute(os.fspath(path)))
    home = copies_folder(journal, None if copies is None else Path(absolute(os.fspath(copies))))
    options = JournalOptions(
        str(journal), starting="earliest" if start is None else start, ending="latest" if stop is None else stop
    )
    names = COLUMNS.chosen(columns).names
    with suppress(Locked):  # another process makes them; those that are there will do
        copy_segments(journal, copies)
    with open_journal(options.path) as reader:
        wanted = resolve_range(JournalLog(reader), options)
        usable = tuple(_usable(reader, home, wanted))
        in_use = CopiesInUse(options.path, reader.identity, wanted.start, usable)
    parts = [_checked(spark, in_use, names)] if usable else []
    parts += _parts(spark, home, in_use, wanted.stop, names)
    return reduce(lambda one, other: one.unionAll(other), parts)


def _usable(reader: JournalReader, home: Path, wanted: Range) -> Iterator[SegmentCopy]:
    """Yield the copies that have records of a range, in the order of their offsets."""
    copies = {copy.base_offset: copy for copy in load_copies(home, reader.identity)}
    for segment in reader.sealed_segments():
        copy = copies.get(segment.base_offset)
        is_wanted = segment.base_offset < wanted.stop and segment.end_offset > wanted.start
        if is_wanted and copy is not None and stands_for(copy, segment, reader):
            yield copy


def _parts(
    spark: "SparkSession", home: Path, in_use: CopiesInUse, stop: int, names: Sequence[str]
) -> "Iterator[DataFrame]":
    """Yield a DataFrame of each run of copies, and of each stretch without any."""
    at, run = in_use.start, list[SegmentCopy]()
    for copy in in_use.copies:
        if copy.base_offset > at:
            if run:
                yield _from_copies(spark, home, run, in_use.start, stop, names)
            yield _from_journal(spark, in_use.path, at, copy.base_offset, names)
            run = []
        run.append(copy)
        at = copy.end_offset
    if run:
        yield _from_copies(spark, home, run, in_use.start, stop, names)
    if at < stop or not run:
        yield _from_journal(spark, in_use.path, at, stop, names)


def _from_copies(
    spark: "SparkSession", home: Path, run: Sequence[SegmentCopy], start: int, stop: int, names: Sequence[str]
) -> "DataFrame":
    frame = spark.read.schema(DDL).options(**_PARQUET).parquet(*(_exact(home / copy.name) for copy in run))
    if run[0].base_offset < start:
        frame = frame.where(f"offset >= {start}")
    if run[-1].end_offset > stop:
        frame = frame.where(f"offset < {stop}")
    return frame.select(*names)


def _from_journal(spark: "SparkSession", path: str, start: int, stop: int, names: Sequence[str]) -> "DataFrame":
    reading = spark.read.format("strandline").schema(_ddl(names))
    return reading.option("startingOffset", start).option("endingOffset", stop).load(path)


def _checked(spark: "SparkSession", in_use: CopiesInUse, names: Sequence[str]) -> "DataFrame":
    """Return a DataFrame without rows, whose one task checks the copies."""
    return spark.range(0, 1, 1, 1).mapInArrow(partial(_check, in_use), _ddl(names))


def _check(in_use: CopiesInUse, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with hints_as_notes():
        in_use.check()
    # Spark ends a worker that leaves some of its input, and starts the next from nothing.
    deque(batches, maxlen=0)
    yield from ()


def _exact(path: Path) -> str:
    """Return a local path for Spark, which would take it for a pattern otherwise."""
    return "file:" + re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path))


def _ddl(names: Sequence[str]) -> str:
    types = {column.split()[0]: column for column in DDL.split(", ")}
    return ", ".join(types[name] for name in names)
