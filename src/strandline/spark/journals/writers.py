"""Spark's writers over the sink: tasks stage, the driver's side commits, each in whatever process Spark chooses.

Invariants: nothing is remembered between `write` and `commit` but what the messages carry; a streaming commit is named
by the query's id, which lives in the checkpoint, and its batch: a new checkpoint is a new query and never taken for an
old one's replay.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from strandline.spark.errors import invalid_input
from strandline.spark.journals.options import WriteOptions
from strandline.spark.journals.sink import commit_rows, drop_staged
from strandline.spark.journals.sink_state import ANONYMOUS, Commit
from strandline.spark.journals.staging import StagedFile, check_writable, remove_staged, stage, staged_folder

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """What a task staged, and for whom."""

    writer: str
    file: StagedFile


class JournalBatchWriter(DataSourceArrowWriter):
    """Appends the rows of a bounded write: all of them or none, and once where a `commitId` names the write."""

    def __init__(self, options: WriteOptions, schema: pa.Schema, overwrite: bool) -> None:  # noqa: FBT001 - Spark's
        _refuse_overwrite(overwrite=overwrite)
        check_writable(schema)
        self._path = options.path
        self._schema = schema
        self._commit_id = options.commit_id
        self._name = f"write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition."""
        return _stage(self._path, self._name, self._name, iterator, self._schema)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what was staged, in the order of the partitions."""
        writer = ANONYMOUS if self._commit_id is None else f"commit/{self._commit_id}"
        _commit(self._path, Commit(writer, 0), messages)
        remove_staged(staged_folder(self._path, self._name))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Drop what was staged, unless the commit failed on its way: then the next one finishes it."""
        drop_staged(self._path, [staged_folder(self._path, self._name)])


class JournalStreamWriter(DataSourceStreamArrowWriter):
    """Appends every micro-batch of a query once."""

    def __init__(self, options: WriteOptions, schema: pa.Schema, overwrite: bool) -> None:  # noqa: FBT001 - Spark's
        _refuse_overwrite(overwrite=overwrite)
        check_writable(schema)
        self._path = options.path
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition, under the name of the query and its batch."""
        context = TaskContext.get()
        query, batch = (context and context.getLocalProperty(name) for name in (QUERY_PROPERTY, BATCH_PROPERTY))
        if not query or not batch:
            raise invalid_input(
                "the task does not tell its query and batch", "write with writeStream, on Spark 4.3 or later"
            )
        return _stage(self._path, f"query/{query}", f"{query}-{batch}", iterator, self._schema)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append what was staged, unless this is a replay of a batch that was appended already."""
        staged = _staged(messages)
        if staged:
            _commit(self._path, Commit(staged[0].writer, batchId), messages)
            remove_staged(staged[0].file.path.parent)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Drop what was staged by these tasks; a commit that was cut short, now or earlier, needs its own."""
        drop_staged(self._path, [one.file.path for one in _staged(messages)])


def _refuse_overwrite(*, overwrite: bool) -> None:
    if overwrite:
        raise invalid_input("a journal is not overwritten", "use mode append, or another folder")


def _stage(path: str, writer: str, name: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Staged:
    return Staged(writer, stage(staged_folder(path, name), batches, schema))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _commit(path: str, commit: Commit, messages: Sequence[WriterCommitMessage | None]) -> None:
    commit_rows(path, commit, [one.file for one in _staged(messages)])
