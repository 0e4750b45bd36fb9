"""The format `strandline` for Spark: a thin skin over the range reader, the stream's decisions and the sink.

Invariants: nothing here remembers anything between two calls but the options and an AvailableNow target, because Spark
makes these objects anew as it likes; there is no `pushFilters`, since filters that Spark pushes for one query stay for
the next one on the same DataFrame.
"""

import os
from collections.abc import Iterator, MutableMapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from strandline.spark.journals.columns import COLUMNS
from strandline.spark.journals.offsets import StreamOffset, format_offset, parse_offset
from strandline.spark.journals.options import (
    ReadOptions,
    parse_batch_options,
    parse_stream_options,
    parse_write_options,
)
from strandline.spark.journals.ranges import Range, open_journal, read_range, resolve_range, split_range
from strandline.spark.journals.stream import first_position, next_position, planned_range
from strandline.spark.journals.writers import JournalBatchWriter, JournalStreamWriter

FORMAT = "strandline"
COLUMNS_DDL = "offset BIGINT NOT NULL, key BINARY, value BINARY NOT NULL, headers BINARY, timestamp TIMESTAMP NOT NULL"


class JournalSource(DataSource):
    """A journal as a DataFrame, by `read`, `readStream`, `write` and `writeStream` of format `strandline`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options; the door that is used parses them."""
        super().__init__(options)
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return all columns; give `.schema("offset BIGINT, value BINARY")` to read fewer."""
        return COLUMNS_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a bounded reader of the schema's columns."""
        return JournalBatchReader(parse_batch_options(self.options), _arrow(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a streaming reader of the schema's columns."""
        return JournalStreamReader(parse_stream_options(self.options), _arrow(schema))

    def writer(self, schema: StructType, overwrite: bool) -> JournalBatchWriter:  # noqa: FBT001 - Spark's signature
        """Return a writer that appends all rows or none."""
        return JournalBatchWriter(parse_write_options(self.options, is_stream=False), _arrow(schema), overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark gives it by position to write and by name to commit
    ) -> JournalStreamWriter:
        """Return a writer that appends each micro-batch once."""
        return JournalStreamWriter(parse_write_options(self.options, is_stream=True), _arrow(schema), overwrite)


class JournalPartition(InputPartition):
    """A part of a range."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


class JournalBatchReader(DataSourceReader):
    """Reads the range that the options name."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        COLUMNS.check(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Resolve the range by what the journal holds now, and cut it."""
        return _partitions(self._options, resolve_range(self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a part; Spark hands a partition of its own making where there are none."""
        return _read(self._options, partition, self._schema)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a journal as it grows. Its lag is `latestOffset` less `endOffset` in the query's progress."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        COLUMNS.check(schema)
        self._options = options
        self._schema = schema
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the query begins, a constant: Spark asks again when it replays the first batch."""
        with open_journal(self._options.path) as reader:
            return format_offset(first_position(reader, self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many records a batch has at most."""
        return ReadMaxRows(self._options.records_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix where the run ends."""
        with open_journal(self._options.path) as reader:
            self._target = reader.next_offset

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with open_journal(self._options.path) as reader:
            end = next_position(reader, self._options, parse_offset(start), rows_max, self._target)
            return format_offset(end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the journal, by which the lag is seen."""
        with open_journal(self._options.path) as reader:
            return format_offset(StreamOffset(reader.identity, reader.next_offset))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut the range between two positions."""
        with open_journal(self._options.path) as reader:
            planned = planned_range(reader, self._options, parse_offset(start), parse_offset(end))
        return _partitions(self._options, planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a part."""
        return _read(self._options, partition, self._schema)


def _partitions(options: ReadOptions, wanted: Range) -> list[InputPartition]:
    parts_max = options.partitions or len(os.sched_getaffinity(0))
    return [JournalPartition(part) for part in split_range(wanted, parts_max, options.rows_per_batch)]


def _read(options: ReadOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return read_range(options, partition.part, schema) if isinstance(partition, JournalPartition) else iter(())


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
