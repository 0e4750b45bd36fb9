"""The format `strandline` for Spark: its options name a journal, a stream, a bucket, a fold, an artifact or a replica.

Invariants: exactly one of `path`, `stream`, `bucket`, `fold`, `artifact` and `replica` is given; each kind has its own
doors, columns and options, and a door or option that a kind does not have is refused with those that it has.
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
from strandline.spark.journals import columns as journal_columns
from strandline.spark.journals import options as journal_options
from strandline.spark.journals.log import JournalSource
from strandline.spark.journals.sink import JournalSink
from strandline.spark.logs.readers import LogBatchReader, LogSource, LogStreamReader
from strandline.spark.sink.commits import Sink
from strandline.spark.sink.writers import SinkBatchWriter, SinkStreamWriter
from strandline.spark.streams import columns as stream_columns
from strandline.spark.streams import options as stream_options
from strandline.spark.streams.log import StreamSource
from strandline.spark.streams.sink import StreamSink

FORMAT = "strandline"
Kind = Literal["path", "stream", "bucket", "fold", "artifact", "replica"]
KINDS: tuple[Kind, ...] = ("path", "stream", "bucket", "fold", "artifact", "replica")
FOLD_DDL = "key BINARY NOT NULL, revision BIGINT, version BINARY NOT NULL, value BINARY NOT NULL"
_PLANNER = "pyspark.daemon"
_is_heap_frozen = False


class StrandlineSource(DataSource):
    """A journal, stream, bucket, fold, artifact or replica as a DataFrame, by each of Spark's four doors."""

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
                return journal_columns.DDL
            case "fold" | "artifact":
                return FOLD_DDL
            case "replica":
                from strandline.spark.replicas.source import replica_ddl  # noqa: PLC0415 - an extra

                return replica_ddl(self.options)
            case kind:
                return stream_columns.DDL[kind]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a bounded reader of the schema's columns."""
        freeze_planner_heap()
        source: LogSource
        match kind_of(self.options):
            case "path":
                source = JournalSource(journal_options.parse_batch_options(self.options))
            case "fold":
                return FoldReader(folds.parse_fold_options(self.options), _arrow(schema))
            case "artifact":
                from strandline.spark.folds.artifact_source import ArtifactReader  # noqa: PLC0415 - few read one

                return ArtifactReader(self.options, _arrow(schema))
            case "replica":
                from strandline.spark.replicas.source import ReplicaReader  # noqa: PLC0415 - an extra

                return ReplicaReader(self.options, _arrow(schema))
            case kind:
                source = StreamSource(stream_options.parse_batch_options(self.options, kind))
        return LogBatchReader(source, _arrow(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a streaming reader of the schema's columns."""
        freeze_planner_heap()
        source: LogSource
        match kind_of(self.options):
            case "path":
                source = JournalSource(journal_options.parse_stream_options(self.options))
            case "fold":
                raise _not_for_folds("read as a stream", "read the bucket that it follows")
            case "artifact":
                raise invalid_input("an artifact cannot be read as a stream", "read the bucket that it is of")
            case "replica":
                raise _not_for_replicas("read as a stream", "read it again at a later txid")
            case kind:
                source = StreamSource(stream_options.parse_stream_options(self.options, kind))
        return LogStreamReader(source, _arrow(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's signature
        """Return a writer of a bounded DataFrame."""
        sink, commit_id = self._sink(overwrite=overwrite, is_stream=False)
        return SinkBatchWriter(sink, _arrow(schema), commit_id)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark gives it by position to write and by name to commit
    ) -> DataSourceStreamArrowWriter:
        """Return a writer of micro-batches."""
        sink, _ = self._sink(overwrite=overwrite, is_stream=True)
        return SinkStreamWriter(sink, _arrow(schema))

    def _sink(self, *, overwrite: bool, is_stream: bool) -> tuple[Sink, str | None]:
        """Return the sink that the options name, and the name of a bounded write."""
        freeze_planner_heap()
        kind = kind_of(self.options)
        if kind == "fold":
            function = "keep_current" if is_stream else "fold_build"
            raise _not_for_folds("written to", f"write to its bucket, or use {function} of strandline.spark")
        if kind == "artifact":
            raise invalid_input("an artifact cannot be written to", "use fold_build(…, publish=…) of strandline.spark")
        if kind == "replica":
            raise _not_for_replicas("written to", "write to the database that it is a replica of")
        if overwrite:
            what = "journal" if kind == "path" else kind
            raise invalid_input(f"a {what} is not overwritten", f"use mode append, or another {what}")
        if kind == "path":
            journal = journal_options.parse_write_options(self.options, is_stream=is_stream)
            return JournalSink(journal.path), journal.commit_id
        stream = stream_options.parse_publish_options(self.options, kind, is_stream=is_stream)
        if is_stream and stream.staging is None:
            raise invalid_input(
                "rows wait in the checkpoint's folder to be published, and the checkpoint is in no folder",
                "set option stagingPath to a folder that the driver and all executors see",
            )
        return StreamSink(stream), stream.commit_id


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


def kind_of(given: Mapping[str, str]) -> Kind:
    """Return the kind that the options name; without any it is a journal, whose missing path is refused later."""
    names = {name.lower() for name, value in given.items() if value}
    named = [kind for kind in KINDS if kind in names]
    if len(named) > 1:
        both = ", ".join(sorted(named))
        raise invalid_input(
            f"options {both} name more than one thing to read",
            "give one of path, stream, bucket, fold, artifact and replica",
        )
    return named[0] if named else "path"


def _not_for_folds(what: str, hint: str) -> InvalidInput:
    return invalid_input(f"a fold cannot be {what}", hint)


def _not_for_replicas(what: str, hint: str) -> InvalidInput:
    return invalid_input(f"a replica cannot be {what}", hint)


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def freeze_planner_heap() -> None:
    """Hide a planner's loaded modules from the garbage collector, once; in any other process do nothing.

    A planner unpickles the source, which calls no `__init__`; so each of its calls begins with this one.

    Spark collects garbage after every call of a planner, and with pyarrow and pandas loaded that takes longer than most
    calls. Our own `daemon` forks the workers of tasks and does the same for them; PySpark's daemon forks the planners,
    whatever the settings say. Objects made later are collected as ever.
    """
    global _is_heap_frozen  # noqa: PLW0603 - once in a process
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _PLANNER and not _is_heap_frozen:
        _is_heap_frozen = True
        gc.collect()
        gc.freeze()
