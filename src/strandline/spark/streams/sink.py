"""The sink: staged rows become messages of a stream, once for every commit, whatever is killed and started again.

A commit, in one process, one after the other:

    settle    finish what an earlier commit of the same writer left behind
    known?    the writer's last commit again is a replay: its rows are dropped
    intent    written to the sink's bucket: which commit, how many rows, and where the stream ended before it
    publish   window after window, each row with the id of its commit and its number
    done      written in place of the intent

How far a commit came that was cut short is read from the stream itself: the ids of its messages stand behind the place
that the intent names. So nothing depends on how long the server remembers ids (`duplicate_window`, two minutes unless
set otherwise): within that time the server drops what comes twice, after it the look at the stream does.

Invariants: rows are published only under an intent that this process wrote, and looked up again before a window if more
than a quarter of the duplicate window has passed; so a commit that was given up for dead, and comes back, publishes at
most what its successor has published within that window, which the server drops. A replay that has other rows than
were committed is refused, since dropping them would lose them.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import FormatError
from strandline.kv.errors import RevisionMismatch
from strandline.kv.nats.layout import write_prefix
from strandline.spark.errors import SinkUnsure, invalid_input
from strandline.spark.journals.staging import remove_staged, sync_staged
from strandline.spark.streams import publishing
from strandline.spark.streams.fetching import Session, fetch
from strandline.spark.streams.options import PublishOptions
from strandline.spark.streams.publishing import ID_HEADER, Publisher, check_messages, windows
from strandline.spark.streams.sink_state import Commit, Entry, SinkStates, key_of
from strandline.spark.streams.staging import StagedFile, read_staged
from strandline.wire.columns import gather

DUPLICATE_WINDOW_NS_MIN = 10 * 1_000_000_000
_NS = 1_000_000_000


def commit_rows(options: PublishOptions, commit: Commit, staged: Sequence[StagedFile], *, forget: bool = False) -> None:
    """Publish the rows of a commit, unless that happened already; `forget` a writer that will not come again."""
    with Session(options.settings, options.target.stream, str(options.target)) as session:
        sink = SinkWork(session, options, commit)
        sink.settle(staged)
        if not sink.is_known(staged):
            sink.publish(staged)
        if forget:
            sink.forget()


def drop_staged(options: PublishOptions, commit: Commit, staged: Sequence[Path], *, forget: bool = False) -> None:
    """Remove staged files, or folders of them, but for those that a commit which was cut short is finished from.

    A writer to `forget` will not come again: its commit cannot be finished.
    """
    key, needed = key_of(options.target.stream, commit.writer), []
    with Session(options.settings, options.target.stream, str(options.target)) as session:
        states = SinkStates(session, options.state_bucket, 1)
        entry, revision = states.read(key)
        if entry is not None and forget:
            states.remove(key, revision)
        elif entry is not None and entry.next is None:
            needed = [Path(file) for file in entry.files]
    for one in staged:
        if not any(file.is_relative_to(one) for file in needed):
            remove_staged(one)


class SinkWork:
    """One commit at work; `entry` is what is known of its writer."""

    def __init__(self, session: Session, options: PublishOptions, commit: Commit) -> None:
        self._session = session
        self._options = options
        self._commit = commit
        self._stream = session.state()
        self._key = key_of(options.target.stream, commit.writer)
        self._states = SinkStates(session, options.state_bucket, self._stream.replicas)
        self._check_stream()
        self.entry, self._revision = self._states.read(self._key)
        if self.entry is not None and self.entry.created != self._stream.created:
            key = f"key {self._key} of bucket {options.state_bucket}"
            hint = f"it was made again; delete {key} to write into the new one"
            error = FormatError(str(options.target), "what is known of this writer is of another stream", hint=hint)
            error.add_note(hint)
            raise error

    def settle(self, staged: Sequence[StagedFile]) -> None:
        """Finish a commit that was cut short, from the rows it staged or, if they are gone, of its replay."""
        entry = self.entry
        if entry is None or entry.next is not None:
            return
        files = [Path(file) for file in entry.files]
        if not all(file.exists() for file in files):
            if (entry.number, entry.rows, entry.bytes) != (self._commit.number, *_totals(staged)):
                raise self._unsure(
                    f"commit {entry.number} was cut short, and {entry.files[0]} is not there to finish it from",
                    "restore the staged rows, or look which of its rows are there and delete the entry",
                )
            files = [one.path for one in staged if one.rows]
        self._write(entry._replace(files=tuple(map(str, files))))  # whoever wrote the intent is shut out from here on
        there = self._published(entry)
        self._publish(files, entry, there)

    def is_known(self, staged: Sequence[StagedFile]) -> bool:
        """Tell whether this commit is the writer's last; refuse what is not its repetition, which would be lost."""
        entry, (rows, size) = self.entry, _totals(staged)
        if entry is None or self._commit.number > entry.number:
            return not rows
        if (entry.number, entry.rows, entry.bytes) == (self._commit.number, rows, size):
            return True
        raise self._unsure(
            f"{self._commit.writer} has committed number {entry.number} with {entry.rows:,} rows of {entry.bytes:,} "
            f"bytes, and comes again with number {self._commit.number}, {rows:,} rows and {size:,} bytes",
            "the checkpoint lost its last batches, or the query gives other rows each time; start it with a new "
            "checkpoint after what it has written, or use a new commitId",
        )

    def publish(self, staged: Sequence[StagedFile]) -> None:
        """Publish under an intent, and note that it is done."""
        files = [one.path for one in staged if one.rows]
        for batch in read_staged(files):
            check_messages(self._stream, self._session.socket.info.payload_bytes_max, batch)
        sync_staged(files)
        rows, size = _totals(staged)
        created, first = self._stream.created, self._stream.last + 1
        intent = Entry(
            created, self._commit.number, rows, size, first, None, publishing.WINDOW_ROWS, tuple(map(str, files))
        )
        self._write(intent)
        self._publish(files, intent, None)

    def forget(self) -> None:
        """Remove what is known of the writer."""
        if self._revision and self.entry is not None:
            self._states.remove(self._key, self._revision)

    def _publish(self, files: Sequence[Path], entry: Entry, there: set[int] | None) -> None:
        """Publish the rows that are not there yet; None where none can be."""
        commit = self._commit._replace(number=entry.number)
        limit = self._stream.per_subject_max
        # Rows that a later window pushed out are not found, but a window is sent only when the one before is whole.
        newest = max(there, default=-1) if there and limit else -1
        confirmed = time.monotonic()
        patience_s = self._stream.duplicate_window_ns / _NS / 4
        with self._session.another() as connection:
            publisher = Publisher(connection.socket, self._stream.name, commit.id_prefix)
            for window in windows(read_staged(files), limit, entry.window):
                if window.first + len(window) <= newest:
                    continue
                rows = [row for row in range(len(window)) if not there or window.first + row not in there]
                frames = publisher.format(window, rows)  # while the server works on the window before
                publisher.collect()
                if time.monotonic() - confirmed > patience_s:
                    self._confirm()
                    confirmed = time.monotonic()
                publisher.send(frames, len(rows))
            publisher.collect()
        self._write(entry._replace(next=max(publisher.highest, entry.first - 1) + 1, files=()))

    def _published(self, entry: Entry) -> set[int]:
        """Return the numbers of a commit's rows that are in the stream."""
        state = self._session.state()
        if state.first > entry.first and not state.per_subject_max:
            raise self._unsure(
                f"commit {entry.number} was cut short, and what stood behind sequence {entry.first} is partly gone",
                "look which of its rows are there, then delete the entry",
            )
        prefix = f"{ID_HEADER}: {self._commit._replace(number=entry.number).id_prefix}".encode()
        found: set[int] = set()
        if state.last >= max(entry.first, state.first):
            with self._session.another() as connection:
                for frames, _ in fetch(connection, entry.first, state.last):
                    blocks = gather(frames.data, frames.column("header_start"), frames.column("payload_start"))
                    found.update(_numbers(blocks, prefix))
        return found

    def _write(self, entry: Entry) -> None:
        try:
            self._revision = self._states.write(self._key, entry, self._revision)
        except RevisionMismatch as other:
            raise self._unsure(
                f"another commit of {self._commit.writer} is at work", "let one run at a time; then start this again"
            ) from other
        self.entry = entry

    def _confirm(self) -> None:
        """Make sure that nobody else has taken the commit over."""
        _, revision = self._states.read(self._key)
        if revision != self._revision:
            raise self._unsure(f"another process has taken over {self._commit.writer}", "let that one go on")

    def _check_stream(self) -> None:
        target = self._options.target
        if target.kind == "bucket" and write_prefix(self._stream) != f"$KV.{target.name}.":
            raise invalid_input(f"{target} is a copy of another bucket", "write to that one")
        if self._stream.duplicate_window_ns < DUPLICATE_WINDOW_NS_MIN:
            raise invalid_input(
                f"{self._options.target} remembers ids of messages for "
                f"{self._stream.duplicate_window_ns / _NS:g} s only, too short to write once",
                "set its duplicate window to 10 s or more",
            )

    def _unsure(self, problem: str, hint: str) -> SinkUnsure:
        where = f"{hint} (key {self._key} of bucket {self._options.state_bucket})"
        return SinkUnsure(str(self._options.target), problem, where)


def _totals(staged: Sequence[StagedFile]) -> tuple[int, int]:
    return sum(one.rows for one in staged), sum(one.bytes for one in staged)


def _numbers(blocks: pa.BinaryArray, prefix: bytes) -> Iterator[int]:
    """Yield the row numbers of the ids with a prefix."""
    having = pc.match_substring(blocks, prefix).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(having).tolist():
        block = blocks[row].as_py()
        number = block[block.index(prefix) + len(prefix) :].partition(b"\r\n")[0]
        if number.isdigit():
            yield int(number)
