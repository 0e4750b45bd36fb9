"""Spark's readers of a stream or a bucket: a thin skin over the range reader and the stream's decisions.

Invariants: nothing here remembers anything between two calls but the options, an AvailableNow target and a connection,
because Spark makes these objects anew as it likes; a connection is never pickled. There is no `pushFilters`, since
filters that Spark pushes for one query stay for the next one on the same DataFrame.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from strandline.nats.errors import ConnectionDropped
from strandline.spark.errors import hints_as_notes
from strandline.spark.streams.columns import COLUMNS
from strandline.spark.streams.fetching import Session
from strandline.spark.streams.offsets import format_position, parse_position, position_in
from strandline.spark.streams.options import StreamOptions
from strandline.spark.streams.ranges import Range, open_session, read_range, resolve_range, split_range
from strandline.spark.streams.stream import first_position, next_position, planned_range

T = TypeVar("T")


class StreamPartition(InputPartition):
    """A part of a range."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


class StreamBatchReader(DataSourceReader):
    """Reads the range that the options name."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        COLUMNS[options.target.kind].check(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Resolve the range by what the stream holds now, and cut it."""
        with hints_as_notes(), open_session(self._options) as session:
            return _partitions(self._options, resolve_range(session, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part; Spark hands a partition of its own making where there are none."""
        return _read(self._options, partition, self._schema)


class StreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream as it grows. Its lag is `latestOffset` less `endOffset` in the query's progress."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        COLUMNS[options.target.kind].check(schema)
        self._options = options
        self._schema = schema
        self._target: int | None = None
        self._session: Session | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the query begins, a constant: Spark asks again when it replays the first batch."""
        return format_position(self._ask(lambda session: first_position(session, self._options)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many messages a batch has at most."""
        return ReadMaxRows(self._options.records_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix where the run ends."""
        self._target = self._ask(lambda session: session.state().last + 1)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = parse_position(start)
        end = self._ask(lambda session: next_position(session, self._options, begin, rows_max, self._target))
        return format_position(end)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the stream, by which the lag is seen."""
        state = self._ask(Session.state)
        return format_position(position_in(state, state.last + 1))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut the range between two positions."""
        begin, stop = parse_position(start), parse_position(end)
        return _partitions(self._options, planned_range(self._ask(Session.state), self._options, begin, stop))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part."""
        return _read(self._options, partition, self._schema)

    def stop(self) -> None:
        """Disconnect."""
        if self._session is not None:
            self._session.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def _ask(self, question: Callable[[Session], T]) -> T:
        """Ask over the connection that is kept; one that was lost meanwhile is made again."""
        if self._session is None:
            self._session = open_session(self._options)
        with hints_as_notes():
            try:
                return question(self._session)
            except ConnectionDropped:
                self._session.close()
                return question(self._session)


def _partitions(options: StreamOptions, wanted: Range) -> list[InputPartition]:
    parts_max = options.partitions or len(os.sched_getaffinity(0))
    return [StreamPartition(part) for part in split_range(wanted, parts_max)]


def _read(options: StreamOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, StreamPartition):
        with hints_as_notes():
            yield from read_range(options, partition.part, schema)
