"""Spark's writers over the sink: tasks stage, the driver's side commits, each in whatever process Spark chooses.

Invariants: nothing is remembered between `write` and `commit` but what the messages carry; a streaming commit is named
by the query's id, which lives in the checkpoint, and its batch: a new checkpoint is a new query and never taken for an
old one's replay. Rows are published by the commit alone, so that tasks may be tried again, run twice and die.
"""

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from strandline.spark.errors import hints_as_notes, invalid_input
from strandline.spark.journals.staging import remove_staged
from strandline.spark.journals.writers import BATCH_PROPERTY, QUERY_PROPERTY
from strandline.spark.streams.options import PublishOptions
from strandline.spark.streams.sink import commit_rows, drop_staged
from strandline.spark.streams.sink_state import Commit
from strandline.spark.streams.staging import StagedFile, check_writable, stage


@dataclass
class Staged(WriterCommitMessage):
    """What a task staged, and for whom."""

    writer: str
    file: StagedFile


class PublishBatchWriter(DataSourceArrowWriter):
    """Publishes the rows of a bounded write: each of them once, where a `commitId` names the write."""

    def __init__(self, options: PublishOptions, schema: pa.Schema, overwrite: bool) -> None:  # noqa: FBT001 - Spark's
        _check(options, schema, overwrite=overwrite)
        self._options = options
        self._name = f"write-{uuid.uuid4().hex}"
        self._folder = Path(options.staging or tempfile.gettempdir()) / self._name
        named = options.commit_id is not None
        self._commit = Commit(f"commit/{options.commit_id}" if named else f"write/{self._name}", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition."""
        return Staged(self._commit.writer, stage(self._folder, self._options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what was staged, in the order of the partitions."""
        with hints_as_notes():
            commit_rows(self._options, self._commit, _files(messages), forget=self._options.commit_id is None)
        remove_staged(self._folder)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Drop what was staged, unless the commit failed on its way: then the next one finishes it."""
        drop_staged(self._options, self._commit, [self._folder], forget=self._options.commit_id is None)


class PublishStreamWriter(DataSourceStreamArrowWriter):
    """Publishes every micro-batch of a query once."""

    def __init__(self, options: PublishOptions, schema: pa.Schema, overwrite: bool) -> None:  # noqa: FBT001 - Spark's
        _check(options, schema, overwrite=overwrite)
        if options.staging is None:
            raise invalid_input(
                "rows wait in the checkpoint's folder to be published, and the checkpoint is in no folder",
                "set option stagingPath to a folder that the driver and all executors see",
            )
        self._options = options
        self._staging = Path(options.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition, under the name of the query and its batch."""
        context = TaskContext.get()
        query, batch = (context and context.getLocalProperty(name) for name in (QUERY_PROPERTY, BATCH_PROPERTY))
        if not query or not batch:
            raise invalid_input(
                "the task does not tell its query and batch", "write with writeStream, on Spark 4.3 or later"
            )
        return Staged(f"query/{query}", stage(self._staging / f"{query}-{batch}", self._options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish what was staged, unless this is a replay of a batch that was published already."""
        staged = _staged(messages)
        if staged:
            with hints_as_notes():
                commit_rows(self._options, Commit(staged[0].writer, batchId), _files(messages))
            remove_staged(staged[0].file.path.parent)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Drop what was staged by these tasks; a commit that was cut short, now or earlier, needs its own."""
        staged = _staged(messages)
        if staged:
            commit = Commit(staged[0].writer, batchId)
            drop_staged(self._options, commit, [one.file.path for one in staged])


def _check(options: PublishOptions, schema: pa.Schema, *, overwrite: bool) -> None:
    if overwrite:
        raise invalid_input(f"a {options.target.kind} is not overwritten", "use mode append, or another one")
    check_writable(options, schema)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [one.file for one in _staged(messages)]
