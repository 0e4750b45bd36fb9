"""Spark's writers over the sink: tasks stage, and the driver's side commits, each in any process that Spark chooses.

Invariants: nothing is remembered between `write` and `commit` but the messages; a streaming commit is named by the
query's id, which lives in the checkpoint, and its batch: a new checkpoint is a new query and never taken for an old
one's replay. Rows reach the log by the commit alone, so that tasks may be retried, run twice and die.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from strandline.spark.errors import hints_as_notes, invalid_input
from strandline.spark.sink.commits import Commit, Sink, commit_rows, drop_staged
from strandline.spark.sink.staging import StagedFile, remove_staged, stage

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """The staged rows of a task, and their writer."""

    writer: str
    file: StagedFile


class SinkBatchWriter(DataSourceArrowWriter):
    """Commits the rows of a bounded write, once where a `commitId` names it."""

    def __init__(self, sink: Sink, schema: pa.Schema, commit_id: str | None = None) -> None:
        sink.check(schema)
        name = f"write-{uuid.uuid4().hex}"
        self._sink = sink
        self._schema = sink.staged_schema(schema)
        self._folder = sink.staging_folder(name)
        self._commit = Commit(sink.unnamed_writer(name) if commit_id is None else f"commit/{commit_id}", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition."""
        return Staged(self._commit.writer, stage(self._folder, iterator, self._schema, self._sink.convert))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the staged rows, in the order of the partitions."""
        with hints_as_notes():
            commit_rows(self._sink, self._commit, [one.file for one in _staged(messages)])
        remove_staged(self._folder)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Drop the staged rows, unless the commit was cut short: then the next one finishes it."""
        drop_staged(self._sink, self._commit, [self._folder])


class SinkStreamWriter(DataSourceStreamArrowWriter):
    """Commits every micro-batch of a query once."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        sink.check(schema)
        self._sink = sink
        self._schema = sink.staged_schema(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition, under the name of the query and its batch."""
        context = TaskContext.get()
        query, batch = (context and context.getLocalProperty(name) for name in (QUERY_PROPERTY, BATCH_PROPERTY))
        if not query or not batch:
            raise invalid_input(
                "the task does not tell its query and batch", "write with writeStream, on Spark 4.3 or later"
            )
        folder = self._sink.staging_folder(f"{query}-{batch}")
        return Staged(f"query/{query}", stage(folder, iterator, self._schema, self._sink.convert))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the staged rows, unless this is a replay of a batch that was committed."""
        staged = _staged(messages)
        if staged:
            with hints_as_notes():
                commit_rows(self._sink, Commit(staged[0].writer, batchId), [one.file for one in staged])
            remove_staged(staged[0].file.path.parent)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Drop the staged rows of these tasks; a commit that was cut short, now or earlier, keeps its own."""
        staged = _staged(messages)
        if staged:
            drop_staged(self._sink, Commit(staged[0].writer, batchId), [one.file.path for one in staged])


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]
