"""One commit of staged rows to a log, for every log.

    settle    finish or forget a commit that was cut short
    replay?   the writer's last commit again is a replay: its rows are dropped
    intent    stored durably: which commit, how many rows, which staged files
    append    the rows, in the order of the partitions
    done      stored durably in place of the intent

Invariants: rows are appended only under an intent that this process stored. A commit that was cut short is settled
before the next one begins, from the rows that the log holds and the files that the intent names. A replay with other
rows than were committed is refused, because dropping them would lose them. Numbers of a writer only rise.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from strandline.spark.errors import SinkUnsure
from strandline.spark.sink.staging import StagedFile, remove_staged


class Commit(NamedTuple):
    """A commit of a writer: a batch of a streaming query, or a bounded write."""

    writer: str
    number: int


class Committed(NamedTuple):
    """The last commit of a writer that is done."""

    number: int
    rows: int
    bytes: int


class PendingCommit(NamedTuple):
    """A commit that has an intent and is not done; its rows are in `files`."""

    commit: Commit
    rows: int
    bytes: int
    files: tuple[Path, ...]

    def missing_file(self) -> Path | None:
        """Return the first staged file that is gone; None if all are there."""
        return next((file for file in self.files if not file.exists()), None)


class Progress(NamedTuple):
    """How far a commit came: the numbers of its rows that the log holds, and the files with all of its rows."""

    files: Sequence[Path]
    there: Collection[int]


class SinkLog(Protocol):
    """A log that is open for one commit, with the state of its sink, which no other process changes unnoticed."""

    def pending(self) -> PendingCommit | None:
        """Return the commit that must be settled before this one; None if there is none."""

    def last(self, writer: str) -> Committed | None:
        """Return the last commit of a writer; None if it has none."""

    def begin(self, commit: PendingCommit) -> None:
        """Check that the log takes the rows, and store the intent."""

    def resume(self, commit: PendingCommit, replay: Sequence[Path] | None) -> Progress | None:
        """Return how far a pending commit came, and fence the process that began it; None if it never happened.

        `replay` are the files of a repetition with as many rows and bytes, None if this commit is not one.
        """

    def append(self, files: Sequence[Path], there: Collection[int]) -> None:
        """Append the rows whose numbers are not there, and make them durable."""

    def finish(self) -> None:
        """Store that the pending commit is done."""

    def forget(self) -> None:
        """Remove the intent of a commit that never happened."""

    def unsure(self, problem: str, hint: str) -> SinkUnsure:
        """Return the error for a commit whose outcome cannot be told."""


class Sink(Protocol):
    """Where the rows of a write go; it pickles, and connects to nothing before `open`."""

    def check(self, schema: pa.Schema) -> None:
        """Raise `InvalidInput` unless rows of the schema can be written."""

    def staged_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of staged files."""

    def convert(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows as they are staged; `InvalidInput` for a row that the log cannot take."""

    def staging_folder(self, name: str) -> Path:
        """Return the folder for the staged files of a write."""

    def unnamed_writer(self, name: str) -> str:
        """Return the writer of a bounded write that has no `commitId`."""

    def open(self, commit: Commit) -> AbstractContextManager[SinkLog]:
        """Open the log for a commit."""

    def files_in_use(self, commit: Commit) -> Sequence[Path]:
        """Return the staged files that an aborted commit is finished from later."""


def commit_rows(sink: Sink, commit: Commit, staged: Sequence[StagedFile]) -> None:
    """Append the rows of a commit to the log, unless it holds them already."""
    files = tuple(one.path for one in staged if one.rows)
    wanted = PendingCommit(commit, sum(one.rows for one in staged), sum(one.bytes for one in staged), files)
    with sink.open(commit) as log:
        _settle(log, wanted)
        last = log.last(commit.writer)
        if last is not None and commit.number <= last.number:
            _check_replay(log, wanted, last)
        elif wanted.rows:
            log.begin(wanted)
            log.append(files, ())
            log.finish()


def drop_staged(sink: Sink, commit: Commit, staged: Iterable[Path]) -> None:
    """Remove staged files, or folders of them, but for those that a commit is finished from later."""
    needed = sink.files_in_use(commit)
    for one in staged:
        if not any(file.is_relative_to(one) for file in needed):
            remove_staged(one)


def _settle(log: SinkLog, wanted: PendingCommit) -> None:
    """Finish a commit that was cut short, or forget it where the log holds none of its rows."""
    pending = log.pending()
    if pending is None:
        return
    is_replay = pending[:3] == wanted[:3]
    progress = log.resume(pending, wanted.files if is_replay else None)
    if progress is None:
        log.forget()
        return
    if len(progress.there) < pending.rows:
        log.append(progress.files, progress.there)
    log.finish()


def _check_replay(log: SinkLog, wanted: PendingCommit, last: Committed) -> None:
    """Refuse a commit that is not the repetition of the writer's last one: its rows would be lost."""
    if last == (wanted.commit.number, wanted.rows, wanted.bytes):
        return
    raise log.unsure(
        f"{wanted.commit.writer} has committed number {last.number} with {last.rows:,} rows of {last.bytes:,} bytes, "
        f"and comes again with number {wanted.commit.number}, {wanted.rows:,} rows and {wanted.bytes:,} bytes",
        "the checkpoint lost its last batches, or the query gives other rows each time; start it with a new "
        "checkpoint after what it has written, or use a new commitId",
    )
