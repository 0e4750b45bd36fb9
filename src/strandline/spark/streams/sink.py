"""A stream as the log of a sink: rows are published in windows, and recognised by their ids.

Each message carries the id of its commit and the number of its row. The rows that a commit published before it was cut
short are read from the stream itself, behind the sequence that its intent names. So nothing depends on how long the
server remembers ids (`duplicate_window`, two minutes by default): within that time the server drops a message that
comes twice, and after it the sink finds the message in the stream.

Invariants: rows are published only under an intent that this process wrote, and the intent is read again before a
window if more than a quarter of the duplicate window has passed. So a process that was given up for dead, and returns,
publishes at most messages that its successor published within that window, which the server drops.
"""

import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import FormatError
from strandline.kv.errors import RevisionMismatch
from strandline.kv.nats.layout import write_prefix
from strandline.spark.errors import SinkUnsure, invalid_input
from strandline.spark.sink.commits import Commit, Committed, PendingCommit, Progress
from strandline.spark.sink.staging import read_staged, sync_staged
from strandline.spark.streams import publisher as publisher_module
from strandline.spark.streams.messages import STAGED, check_writable, messages_of
from strandline.spark.streams.options import PublishOptions
from strandline.spark.streams.publisher import ID_HEADER, Publisher, check_messages, windows
from strandline.spark.streams.pull_consumer import Session, fetch
from strandline.spark.streams.sink_state import Entry, SinkStates, format_id_prefix, key_of
from strandline.wire import Times

DUPLICATE_WINDOW_NS_MIN = 10 * 1_000_000_000
_NS = 1_000_000_000
_UNNAMED = "write/"


@dataclass(frozen=True, slots=True)
class StreamSink:
    """The sink of a stream or a bucket."""

    options: PublishOptions

    def check(self, schema: pa.Schema) -> None:
        """Raise `InvalidInput` unless rows of the schema can be messages."""
        check_writable(self.options, schema)

    def staged_schema(self, schema: pa.Schema) -> pa.Schema:  # noqa: ARG002 - it is always the same
        """Return the schema of staged files."""
        return STAGED

    def convert(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:  # noqa: ARG002 - it is always the same
        """Return rows as messages."""
        return messages_of(self.options, batch)

    def staging_folder(self, name: str) -> Path:
        """Return a folder in the staging path, or in the folder for temporary files."""
        return Path(self.options.staging or tempfile.gettempdir()) / name

    def unnamed_writer(self, name: str) -> str:
        """Return a writer of its own, whose entry is removed after the commit."""
        return _UNNAMED + name

    @contextmanager
    def open(self, commit: Commit) -> Iterator["StreamLog"]:
        """Connect to the server."""
        with self._session() as session:
            yield StreamLog(session, self.options, commit.writer)

    def files_in_use(self, commit: Commit) -> Sequence[Path]:
        """Return the staged files of the writer's intent; an unnamed writer's is removed: no commit would finish it."""
        key = key_of(self.options.target.stream, commit.writer)
        with self._session() as session:
            states = SinkStates(session, self.options.state_bucket, 1)
            entry, revision = states.read(key)
            if entry is not None and commit.writer.startswith(_UNNAMED):
                states.remove(key, revision)
                return []
            return [Path(file) for file in entry.files] if entry is not None and entry.next is None else []

    def _session(self) -> Session:
        return Session(self.options.settings, self.options.target.stream, str(self.options.target))


class StreamLog:
    """A stream, and the entry of one writer in the bucket of the sink's state."""

    def __init__(self, session: Session, options: PublishOptions, writer: str) -> None:
        self._session = session
        self._options = options
        self._writer = writer
        self._stream = session.state()
        self._key = key_of(options.target.stream, writer)
        self._states = SinkStates(session, options.state_bucket, self._stream.replicas)
        self._check_stream()
        self._entry, self._revision = self._states.read(self._key)
        self._highest = 0
        if self._entry is not None and self._entry.created != self._stream.created:
            key = f"key {self._key} of bucket {options.state_bucket}"
            hint = f"it was made again; delete {key} to write into the new one"
            error = FormatError(str(options.target), "the entry of this writer is of another stream", hint=hint)
            error.add_note(hint)
            raise error

    def pending(self) -> PendingCommit | None:
        """Return the commit of this writer's intent."""
        entry = self._entry
        if entry is None or entry.next is not None:
            return None
        files = tuple(Path(file) for file in entry.files)
        return PendingCommit(Commit(self._writer, entry.number), entry.rows, entry.bytes, files)

    def last(self, writer: str) -> Committed | None:  # noqa: ARG002 - the log is open for one writer
        """Return the last commit of the writer."""
        entry = self._entry
        return None if entry is None else Committed(entry.number, entry.rows, entry.bytes)

    def begin(self, commit: PendingCommit) -> None:
        """Check the messages, make the staged files durable, and write the intent."""
        for batch in read_staged(commit.files):
            check_messages(self._stream, self._session.socket.info.payload_bytes_max, batch)
        sync_staged(commit.files)
        created, first, window = self._stream.created, self._stream.last + 1, publisher_module.WINDOW_ROWS
        files = tuple(map(str, commit.files))
        self._write(Entry(created, commit.commit.number, commit.rows, commit.bytes, first, None, window, files))

    def resume(self, commit: PendingCommit, replay: Sequence[Path] | None) -> Progress | None:
        """Write the intent again, which fences its first writer, and read the ids behind its sequence."""
        entry, missing = self._intent(), commit.missing_file()
        files = commit.files if missing is None else replay
        if files is None:
            raise self.unsure(
                f"commit {entry.number} was cut short, and {missing} is not there to finish it from",
                "restore the staged rows, or look which of its rows are there and delete the entry",
            )
        self._write(entry._replace(files=tuple(map(str, files))))
        return Progress(files, self._published(entry))

    def append(self, files: Sequence[Path], there: Collection[int]) -> None:
        """Publish the rows that are not there, window after window."""
        entry, limit = self._intent(), self._stream.per_subject_max
        # Rows that a later window pushed out are not found, but a window is sent only when the one before is whole.
        newest = max(there, default=-1) if there and limit else -1
        confirmed = time.monotonic()
        patience_s = self._stream.duplicate_window_ns / _NS / 4
        with self._session.another() as connection:
            publisher = Publisher(connection.socket, self._stream.name, self._id_prefix(entry))
            for window in windows(read_staged(files), limit, entry.window):
                if window.first + len(window) <= newest:
                    continue
                rows = [row for row in range(len(window)) if window.first + row not in there]
                frames = publisher.format(window, rows)  # while the server works on the window before
                publisher.collect()
                if time.monotonic() - confirmed > patience_s:
                    self._confirm()
                    confirmed = time.monotonic()
                publisher.send(frames, len(rows))
            publisher.collect()
        self._highest = publisher.highest

    def finish(self) -> None:
        """Write that the commit is done; the entry of an unnamed writer is removed."""
        entry = self._intent()
        if self._writer.startswith(_UNNAMED):
            self.forget()
        else:
            self._write(entry._replace(next=max(self._highest, entry.first - 1) + 1, files=()))

    def forget(self) -> None:
        """Remove the entry."""
        self._states.remove(self._key, self._revision)
        self._entry = None

    def unsure(self, problem: str, hint: str) -> SinkUnsure:
        """Return the error for a commit whose outcome cannot be told."""
        where = f"{hint} (key {self._key} of bucket {self._options.state_bucket})"
        return SinkUnsure(str(self._options.target), problem, where)

    def _published(self, entry: Entry) -> set[int]:
        """Return the numbers of a commit's rows that are in the stream."""
        state = self._session.state()
        if state.first > entry.first and not state.per_subject_max:
            raise self.unsure(
                f"commit {entry.number} was cut short, and the stream behind sequence {entry.first} is partly gone",
                "look which of its rows are there, then delete the entry",
            )
        prefix = f"{ID_HEADER}: {self._id_prefix(entry)}".encode()
        found: set[int] = set()
        if state.last >= max(entry.first, state.first):
            with self._session.another() as connection:
                for delivered in fetch(connection, entry.first, state.last, times=Times.NONE):
                    if delivered.headers is not None:
                        found.update(_numbers(delivered.headers, prefix))
        return found

    def _id_prefix(self, entry: Entry) -> str:
        return format_id_prefix(Commit(self._writer, entry.number))

    def _write(self, entry: Entry) -> None:
        try:
            self._revision = self._states.write(self._key, entry, self._revision)
        except RevisionMismatch as other:
            raise self.unsure(
                f"another commit of {self._writer} is at work", "let one run at a time; then start this again"
            ) from other
        self._entry = entry

    def _confirm(self) -> None:
        """Raise unless this process still holds the intent."""
        _, revision = self._states.read(self._key)
        if revision != self._revision:
            raise self.unsure(f"another process has taken over {self._writer}", "let that one go on")

    def _intent(self) -> Entry:
        if self._entry is None or self._entry.next is not None:
            raise AssertionError("rows are published under an intent")
        return self._entry

    def _check_stream(self) -> None:
        target = self._options.target
        if target.kind == "bucket" and write_prefix(self._stream) != f"$KV.{target.name}.":
            raise invalid_input(f"{target} is a copy of another bucket", "write to that one")
        if self._stream.duplicate_window_ns < DUPLICATE_WINDOW_NS_MIN:
            raise invalid_input(
                f"{target} remembers ids of messages for "
                f"{self._stream.duplicate_window_ns / _NS:g} s only, too short to write once",
                "set its duplicate window to 10 s or more",
            )


def _numbers(blocks: pa.BinaryArray, prefix: bytes) -> Iterator[int]:
    """Yield the row numbers of the ids with a prefix."""
    having = pc.match_substring(blocks, prefix).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(having).tolist():
        block = blocks[row].as_py()
        number = block[block.index(prefix) + len(prefix) :].partition(b"\r\n")[0]
        if number.isdigit():
            yield int(number)
