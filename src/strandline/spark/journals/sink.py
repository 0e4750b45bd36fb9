"""A journal as the log of a sink: commits run under its lock, and its batches carry the time that their intent names.

    <journal>.spark/sink                           the state: last commits, and the intent (`sink_state`)
    <journal>.spark/staged/<writer>/<name>.arrow   staged rows (`records`)

Invariants: a commit is as few atomic batches as possible; one, up to 64 MiB of rows that lack the same columns. It
never happened if it died before its first batch; if it died later, the next commit of any writer finishes it from its
staged rows. Its batches are recognised by place and time: they stand at the offset of the intent and carry its time,
which no other writer's can, because the lock is held from before the time is read.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa

from strandline.errors import FormatError, Locked, OffsetBelowRetained, OffsetsLost
from strandline.files import OsDisk, read_file, replace_file, storage_errors
from strandline.journal import WRITTEN, Journal
from strandline.spark.errors import SinkUnsure
from strandline.spark.journals.records import check_writable, pieces, records_of, staged_schema
from strandline.spark.journals.sink_state import ANONYMOUS, STATE_NAME, Intent, SinkState, format_state, parse_state
from strandline.spark.sink.commits import Commit, Committed, PendingCommit, Progress
from strandline.spark.sink.staging import sync_staged

LOCK_WAIT_S = 60.0
_LOCK_PAUSE_S = 0.02


class IntentClock:
    """A clock that shows the time of an intent while its batches are appended."""

    def __init__(self) -> None:
        self.fixed_ns: int | None = None

    def now_ns(self) -> int:
        """Return the fixed time, or the wall time."""
        return time.time_ns() if self.fixed_ns is None else self.fixed_ns


@dataclass(frozen=True, slots=True)
class JournalSink:
    """The sink of the journal in a folder."""

    path: str

    def check(self, schema: pa.Schema) -> None:
        """Raise `InvalidInput` unless rows of the schema can be records."""
        check_writable(schema)

    def staged_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of staged files."""
        return staged_schema(schema)

    def convert(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows as records."""
        return records_of(batch, schema)

    def staging_folder(self, name: str) -> Path:
        """Return a folder beside the journal."""
        return home_of(self.path) / "staged" / name

    def unnamed_writer(self, name: str) -> str:  # noqa: ARG002 - one intent at a time, so no name is needed
        """Return the writer whose commits leave no trace."""
        return ANONYMOUS

    @contextmanager
    def open(self, commit: Commit) -> Iterator["JournalLog"]:  # noqa: ARG002 - the lock serves all writers
        """Open the journal for writing, and wait for its lock: its holder may be a commit that is about to end."""
        clock, deadline = IntentClock(), time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                journal = Journal.open(self.path, clock=clock)
                break
            except Locked as locked:
                if time.monotonic() >= deadline:
                    locked.add_note("a journal has one writer; close the other one, or let the rows go through it")
                    raise
                time.sleep(_LOCK_PAUSE_S)
        with journal:
            yield JournalLog(journal, clock, load_state(self.path, journal.identity))

    def files_in_use(self, commit: Commit) -> Sequence[Path]:  # noqa: ARG002 - one intent at a time
        """Return the staged files of the intent."""
        state = _read_state(self.path)
        intent = None if state is None else state.intent
        return [] if intent is None else [home_of(self.path) / name for name in intent.files]


class JournalLog:
    """A journal under its lock, and the state of its sink."""

    def __init__(self, journal: Journal, clock: IntentClock, state: SinkState) -> None:
        self._journal = journal
        self._path = str(journal.path)
        self._home = home_of(self._path)
        self._clock = clock
        self._state = state
        self._pieces: Iterator[pa.RecordBatch] | None = None

    def pending(self) -> PendingCommit | None:
        """Return the commit of the intent, of any writer."""
        intent = self._state.intent
        if intent is None:
            return None
        return PendingCommit(
            intent.commit, intent.rows, intent.bytes, tuple(self._home / name for name in intent.files)
        )

    def last(self, writer: str) -> Committed | None:
        """Return the last commit of a writer."""
        done = self._state.commits.get(writer)
        return None if done is None else Committed(*done[:3])

    def begin(self, commit: PendingCommit) -> None:
        """Store the intent: the place and the time of the batches to come."""
        names = tuple(str(file.relative_to(self._home)) for file in commit.files)
        intent = Intent(
            commit.commit, commit.rows, commit.bytes, 0, self._journal.next_offset, self._clock.now_ns(), names
        )
        rest = pieces(commit.files)
        head = list(islice(rest, 2))
        if len(head) > 1:  # it can be cut in the middle, and is then finished from these files
            sync_staged(commit.files)
        self._pieces = chain(head, rest)
        self._store(self._state.intending(intent))

    def resume(self, commit: PendingCommit, replay: Sequence[Path] | None) -> Progress | None:  # noqa: ARG002
        """Count the appended rows, and store where the rest goes; a replay may have its rows in another order."""
        intent = self._intent()
        there = intent.before + _appended(self._journal, intent)
        if not there:
            return None
        if there < intent.rows:
            missing = commit.missing_file()
            if missing is not None:
                raise self.unsure(
                    f"{there:,} of the {intent.rows:,} rows of {intent.commit} are there, and {missing} is not",
                    "restore the staged file, or append the rest yourself and remove the state",
                )
            # The rest may stand elsewhere, behind batches that others appended meanwhile, and may be cut short as well.
            rest = intent._replace(before=there, first_offset=self._journal.next_offset, stamp_ns=self._clock.now_ns())
            self._store(self._state.intending(rest))
        return Progress(commit.files, range(there))

    def append(self, files: Sequence[Path], there: Collection[int]) -> None:
        """Append pieces one after another, each with the next time, and make them durable together."""
        stamp_ns, parts = self._intent().stamp_ns, self._pieces or pieces(files, skip=len(there))
        self._pieces = None
        for number, part in enumerate(parts):
            self._clock.fixed_ns = stamp_ns + number
            times = _column(part, "timestamp")
            self._journal.append(
                part.column("value"),
                keys=_column(part, "key"),
                headers=_column(part, "headers"),
                timestamps=None if times is None else times.to_numpy(),
                durability=WRITTEN,
            )
        self._journal.sync()
        self._clock.fixed_ns = None

    def finish(self) -> None:
        """Store the commit as its writer's last."""
        self._store(self._state.settled(self._journal.next_offset))

    def forget(self) -> None:
        """Remove the intent."""
        self._store(self._state.settled(None))

    def unsure(self, problem: str, hint: str) -> SinkUnsure:
        """Return the error for a commit whose outcome cannot be told."""
        return SinkUnsure(self._path, problem, hint)

    def _store(self, state: SinkState) -> None:
        store_state(self._path, state)
        self._state = state

    def _intent(self) -> Intent:
        if self._state.intent is None:
            raise AssertionError("rows are appended under an intent")
        return self._state.intent


def home_of(path: str) -> Path:
    """Return the folder beside a journal for the state and the staged rows of its sink."""
    journal = Path(path)
    return journal.with_name(journal.name + ".spark")


def load_state(path: str, identity: bytes) -> SinkState:
    """Return the state of the sink of a journal; refuse that of another journal in the same folder."""
    state = _read_state(path)
    if state is None:
        return SinkState(identity, {})
    if state.identity != identity:
        file = home_of(path) / STATE_NAME
        hint = f"the journal was replaced; remove {file.parent} if queries shall write into the new one"
        error = FormatError(str(file), "this is the state of commits to another journal", hint=hint)
        error.add_note(hint)
        raise error
    return state


def store_state(path: str, state: SinkState) -> None:
    """Replace the state durably."""
    folder = home_of(path)
    with storage_errors(folder):
        OsDisk().make_folder(folder)
        replace_file(OsDisk(), folder / STATE_NAME, format_state(state))


def _read_state(path: str) -> SinkState | None:
    file = home_of(path) / STATE_NAME
    with storage_errors(file):
        data = read_file(OsDisk(), file)
    return None if data is None else parse_state(data, str(file))


def _appended(journal: Journal, intent: Intent) -> int:
    """Return how many rows of an intent are in the journal."""
    rows = 0
    if intent.first_offset >= journal.next_offset:
        return rows
    try:
        for number, batch in enumerate(journal.scan(intent.first_offset)):
            if batch.append_ns != intent.stamp_ns + number or rows == intent.rows - intent.before:
                break
            rows += len(batch)
    except (OffsetBelowRetained, OffsetsLost) as gone:
        problem = f"whether {intent.commit} was appended at offset {intent.first_offset} is unknown: {gone}"
        raise SinkUnsure(str(journal.path), problem, "look for its rows, then remove the intent") from gone
    return rows


def _column(part: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column, or None where the rows lack it."""
    if name not in part.schema.names or part.column(name).null_count:
        return None
    return part.column(name)
