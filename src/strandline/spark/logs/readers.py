"""Spark's readers of a log: a bounded one and a streaming one, over the planner's decisions and a range reader.

Invariants: a reader remembers nothing between two calls but its source and an AvailableNow target, because Spark makes
these objects anew as it likes; a connection is never pickled. There is no `pushFilters`: filters that Spark pushes for
one query stay for the next one on the same DataFrame.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from strandline.spark.errors import hints_as_notes
from strandline.spark.logs.columns import Columns
from strandline.spark.logs.options import ReadOptions
from strandline.spark.logs.positions import Position, PositionFormat
from strandline.spark.logs.ranges import (
    Log,
    Range,
    first_position,
    next_position,
    planned_range,
    resolve_range,
    split_range,
)

T = TypeVar("T")


class LogSource(Protocol):
    """A log as a source; it pickles."""

    @property
    def options(self) -> ReadOptions:
        """Return the options of the read."""

    @property
    def columns(self) -> Columns:
        """Return the columns of the log."""

    @property
    def positions(self) -> PositionFormat:
        """Return the format of its positions."""

    @property
    def rows_per_part(self) -> int:
        """Return how many records outweigh the cost of a task."""

    def ask(self, question: Callable[[Log[Any]], T]) -> T:
        """Open the log, or use the open one, and return the answer to a question."""

    def read(self, part: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - a range of this log
        """Yield all records of a range with the columns of `schema`."""

    def close(self) -> None:
        """Disconnect; a second call does nothing."""


class LogPartition(InputPartition):
    """A part of a range."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


class LogBatchReader(DataSourceReader):
    """Reads the range that the options name."""

    def __init__(self, source: LogSource, schema: pa.Schema) -> None:
        source.columns.check(schema)
        self._source = source
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Resolve the range by the present bounds of the log, and cut it."""
        try:
            with hints_as_notes():
                return _partitions(self._source, self._source.ask(lambda log: resolve_range(log, self._source.options)))
        finally:
            self._source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a part; Spark hands a partition of its own making where there are none."""
        return _read(self._source, partition, self._schema)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a log as it grows. Its lag is `latestOffset` less `endOffset` in the query's progress."""

    def __init__(self, source: LogSource, schema: pa.Schema) -> None:
        source.columns.check(schema)
        self._source = source
        self._schema = schema
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the query begins, a constant: Spark asks again when it replays the first batch."""
        return self._format(self._ask(lambda log: first_position(log, self._source.options)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many records a batch has at most."""
        return ReadMaxRows(self._source.options.records_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix where the run ends."""
        self._target = self._ask(lambda log: log.bounds().end)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin, options = self._source.positions.parse(start), self._source.options
        return self._format(self._ask(lambda log: next_position(log, options, begin, rows_max, self._target)))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the log, by which the lag is seen."""
        bounds = self._ask(lambda log: log.bounds())
        return self._format(Position(bounds.identity, bounds.end))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut the range between two positions."""
        begin, stop = self._source.positions.parse(start), self._source.positions.parse(end)
        return _partitions(self._source, self._ask(lambda log: planned_range(log, self._source.options, begin, stop)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a part."""
        return _read(self._source, partition, self._schema)

    def stop(self) -> None:
        """Disconnect."""
        self._source.close()

    def _ask(self, question: Callable[[Log[Any]], T]) -> T:
        with hints_as_notes():
            return self._source.ask(question)

    def _format(self, position: Position) -> dict[str, Any]:
        return self._source.positions.format(position)


def _partitions(source: LogSource, wanted: Range) -> list[InputPartition]:
    parts_max = source.options.partitions or len(os.sched_getaffinity(0))
    return [LogPartition(part) for part in split_range(wanted, parts_max, source.rows_per_part)]


def _read(source: LogSource, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, LogPartition):
        with hints_as_notes():
            yield from source.read(partition.part, schema)
