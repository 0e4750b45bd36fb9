"""The format `strandline` for Spark: what its options name decides whether it is a journal, stream, bucket or fold.

Invariants: exactly one of `path`, `stream`, `bucket` and `fold` is given; each kind has doors, columns and options of
its own, and one that a kind does not have is refused with what it has.
"""

import gc
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Literal

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from strandline.errors import InvalidInput
from strandline.spark.errors import invalid_input
from strandline.spark.folds import reader as folds
from strandline.spark.journals.source import FORMAT, JournalSource
from strandline.spark.streams import columns, options, writers
from strandline.spark.streams import source as streams

KINDS = ("path", "stream", "bucket", "fold")
FOLD_DDL = "key BINARY NOT NULL, revision BIGINT, version BINARY NOT NULL, value BINARY NOT NULL"
_PLANNER = "pyspark.daemon"


class StrandlineSource(DataSource):
    """A journal, stream, bucket or fold as a DataFrame, by `read`, `readStream`, `write` and `writeStream`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options; the door that is used parses them."""
        super().__init__(options)
        self.options = dict(options)
        freeze_planner_heap()

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return all columns; give `.schema("sequence BIGINT, data BINARY")` to read fewer."""
        match kind_of(self.options):
            case "path":
                return self._journal().schema()
            case "fold":
                return FOLD_DDL
            case kind:
                return columns.DDL[kind]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a bounded reader of the schema's columns."""
        match kind_of(self.options):
            case "path":
                return self._journal().reader(schema)
            case "fold":
                return FoldReader(folds.parse_fold_options(self.options), _arrow(schema))
            case kind:
                return streams.StreamBatchReader(options.parse_batch_options(self.options, kind), _arrow(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a streaming reader of the schema's columns."""
        match kind_of(self.options):
            case "path":
                return self._journal().streamReader(schema)
            case "fold":
                raise _not_for_folds("read as a stream", "read the bucket that it follows")
            case kind:
                return streams.StreamStreamReader(options.parse_stream_options(self.options, kind), _arrow(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's signature
        """Return a writer of a bounded DataFrame."""
        match kind_of(self.options):
            case "path":
                return self._journal().writer(schema, overwrite)
            case "fold":
                raise _not_for_folds("written to", "write to the bucket, or use fold_build of strandline.spark")
            case kind:
                parsed = options.parse_publish_options(self.options, kind, is_stream=False)
                return writers.PublishBatchWriter(parsed, _arrow(schema), overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark gives it by position to write and by name to commit
    ) -> DataSourceStreamArrowWriter:
        """Return a writer of micro-batches."""
        match kind_of(self.options):
            case "path":
                return self._journal().streamWriter(schema, overwrite)
            case "fold":
                raise _not_for_folds("written to", "use keep_current of strandline.spark")
            case kind:
                parsed = options.parse_publish_options(self.options, kind, is_stream=True)
                return writers.PublishStreamWriter(parsed, _arrow(schema), overwrite)

    def _journal(self) -> JournalSource:
        return JournalSource(self.options)


class FoldReader(DataSourceReader):
    """Reads a fold in one task, which sees the state at one moment: the moment when it begins."""

    def __init__(self, options: folds.FoldOptions, schema: pa.Schema) -> None:
        folds.COLUMNS.check(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Check that the fold exists; there is one partition."""
        folds.open_reader(self._options.path).close()
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """Yield the entries."""
        return folds.read_entries(self._options, self._schema)


def kind_of(given: Mapping[str, str]) -> Literal["path", "stream", "bucket", "fold"]:
    """Return what the options name; nothing at all is a journal without a path, which says so itself."""
    names = {name.lower() for name, value in given.items() if value}
    if len(names & set(KINDS)) > 1:
        both = ", ".join(sorted(names & set(KINDS)))
        raise invalid_input(
            f"options {both} name more than one thing to read", "give one of path, stream, bucket and fold"
        )
    if "stream" in names:
        return "stream"
    if "bucket" in names:
        return "bucket"
    return "fold" if "fold" in names else "path"


def _not_for_folds(what: str, hint: str) -> InvalidInput:
    return invalid_input(f"a fold cannot be {what}", hint)


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def freeze_planner_heap() -> None:
    """Hide a planner's loaded modules from the garbage collector, once; in any other process do nothing.

    Spark collects garbage after every call of a planner, and with pyarrow and pandas loaded that takes longer than most
    calls. Our own `daemon` forks the workers of tasks and does the same for them; PySpark's daemon forks the planners,
    whatever the settings say. Objects made later are collected as ever.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _PLANNER and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
