"""What the tests of the format share: small journals, their readers as Spark would call them, and their records."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types

from strandline.clock import ManualClock
from strandline.files import OsDisk
from strandline.journal import Journal, JournalConfig, JournalReader, Record, apply_repair, plan_repair
from strandline.spark.journals.columns import DDL
from strandline.spark.logs.readers import LogBatchReader, LogStreamReader
from strandline.spark.source import StrandlineSource

SMALL = JournalConfig(segment_bytes_max=4096, reserve_bytes_max=0)
"""A few hundred records fill a segment."""
KINDS: dict[str, type[types.DataType]] = {
    "BIGINT": types.LongType,
    "BINARY": types.BinaryType,
    "TIMESTAMP": types.TimestampType,
    "STRING": types.StringType,
}


def numbered(begin: int, end: int) -> list[bytes]:
    """Return values that tell their own number."""
    return [b"value %d" % number for number in range(begin, end)]


def fill(path: Path, count: int, *, batch: int = 100, config: JournalConfig = SMALL) -> bytes:
    """Append numbered values in batches; return the journal's identity."""
    with Journal.open(path, config) as journal:
        begin = journal.next_offset
        for at in range(begin, begin + count, batch):
            journal.append(numbered(at, min(at + batch, begin + count)))
        return journal.identity


def fill_at(path: Path, times_ns: Iterable[int]) -> None:
    """Append one batch of ten records at each of these times."""
    clock = ManualClock()
    with Journal.open(path, SMALL, clock=clock) as journal:
        for time_ns in times_ns:
            clock.advance((time_ns - clock.now_ns()) / 1e9)
            journal.append(numbered(journal.next_offset, journal.next_offset + 10))


def trim(path: Path, offset: int) -> int:
    """Remove what retention may remove below an offset; return where the journal begins then."""
    with Journal.open(path, SMALL) as journal:
        journal.remove_below(offset)
        return journal.first_offset


def damage(path: Path, segment: int, at: int = 500) -> None:
    """Change a byte of a segment, and repair the journal."""
    with JournalReader.open(path) as reader:
        file = reader.sealed_segments()[segment].path
    with file.open("r+b") as out:
        out.seek(at)
        (byte,) = out.read(1)
        out.seek(at)
        out.write(bytes([byte ^ 1]))
    apply_repair(OsDisk(), path, plan_repair(OsDisk(), path))


def records(path: Path) -> list[Record]:
    """Read all records back, without the format."""
    with JournalReader.open(path) as reader:
        return [record for batch in reader.scan(reader.first_offset) for record in batch.records()]


def values(path: Path) -> list[bytes]:
    """Read all values back, without the format."""
    return [record.value for record in records(path)]


def schema(ddl: str = DDL) -> types.StructType:
    """Return a schema as Spark hands it over; a session would be needed to parse DDL in full."""
    columns = [column.split() for column in ddl.split(",")]
    return types.StructType([types.StructField(name, KINDS[kind](), not rest) for name, kind, *rest in columns])


def batch_reader(path: Path, ddl: str = DDL, **options: object) -> LogBatchReader:
    """Return a bounded reader as a planner makes it."""
    return cast("LogBatchReader", _source(path, options).reader(schema(ddl)))


def stream_reader(path: Path, ddl: str = DDL, **options: object) -> LogStreamReader:
    """Return a streaming reader as the runner makes it."""
    return cast("LogStreamReader", _source(path, options).streamReader(schema(ddl)))


def _source(path: Path, options: Mapping[str, object]) -> StrandlineSource:
    return StrandlineSource({"path": str(path), **{name.lower(): str(value) for name, value in options.items()}})


def rows_of(reader: LogBatchReader | LogStreamReader, parts: Sequence[Any]) -> pa.Table:
    """Read partitions one after another, as executors would."""
    batches = [batch for part in parts for batch in reader.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def offsets_of(reader: LogBatchReader | LogStreamReader, parts: Sequence[Any]) -> list[int]:
    """Return the offsets that partitions yield, in order."""
    table = rows_of(reader, parts)
    return cast("list[int]", table["offset"].to_pylist()) if table.num_columns else []
