"""The sink: staged rows become records of a journal, once for every commit, whatever is killed and started again.

A commit runs under the journal's lock:

    settle    finish or forget what an earlier commit left behind
    known?    the writer's last commit again is a replay: its rows are dropped
    intent    written durably: which commit, how many rows, from which offset on, and the time its batches will carry
    append    as few atomic batches as possible; one, up to 64 MiB of rows that lack the same columns
    done      written durably in place of the intent

Invariants: a commit that died before its first batch never happened; one that died later is finished from its staged
rows by the next commit, whosever it is. How far it came is told by the batches themselves: they stand where the intent
said and carry the time it named, which no other writer's can, because the lock was held since before the time was read.
A replay that has other rows than were committed is refused, since dropping them would lose them.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa

from strandline.errors import FormatError, Locked, OffsetBelowRetained, OffsetsLost
from strandline.files import OsDisk, read_file, replace_file, storage_errors
from strandline.journal import WRITTEN, Journal
from strandline.spark.errors import SinkUnsure
from strandline.spark.journals.sink_state import (
    STATE_NAME,
    Commit,
    Done,
    Intent,
    SinkState,
    format_state,
    parse_state,
)
from strandline.spark.journals.staging import StagedFile, home_of, pieces, remove_staged, sync_staged

LOCK_WAIT_S = 60.0
_LOCK_PAUSE_S = 0.02


class Stamp:
    """A clock that shows the time that an intent named."""

    def __init__(self) -> None:
        self.fixed_ns: int | None = None

    def now_ns(self) -> int:
        """Return the time named, or the wall time."""
        return time.time_ns() if self.fixed_ns is None else self.fixed_ns


def commit_rows(path: str, commit: Commit, staged: Sequence[StagedFile]) -> Done | None:
    """Append the rows of a commit, unless that happened already; return where they are, or None if it has none."""
    stamp = Stamp()
    with _opened(path, stamp) as journal:
        state = _settle(journal, stamp, load_state(path, journal.identity))
        rows, size = sum(one.rows for one in staged), sum(one.bytes for one in staged)
        last = state.commits.get(commit.writer)
        if last is not None and commit.number <= last.number:
            return _replayed(path, commit, last, rows, size)
        if not rows:
            return None
        files = [one.path for one in staged if one.rows]
        relative = tuple(str(file.relative_to(home_of(path))) for file in files)
        intent = Intent(commit, rows, size, 0, journal.next_offset, stamp.now_ns(), relative)
        parts = pieces(files)
        head = list(islice(parts, 2))
        if len(head) > 1:  # it can be cut in the middle, and is then finished from these files
            sync_staged(files)
        store_state(path, state.intending(intent))
        _append(journal, stamp, chain(head, parts), intent.stamp_ns)
        store_state(path, state.intending(intent).settled(journal.next_offset))
        return Done(commit.number, rows, size, intent.first_offset, journal.next_offset)


def drop_staged(path: str, staged: Iterable[Path]) -> None:
    """Remove staged files, or folders of them, but for those that a commit which was cut short is finished from."""
    state = _read_state(path)
    intended = state.intent.files if state is not None and state.intent is not None else ()
    needed = [home_of(path) / name for name in intended]
    for one in staged:
        if not any(file.is_relative_to(one) for file in needed):
            remove_staged(one)


def load_state(path: str, identity: bytes) -> SinkState:
    """Return what is known of commits to a journal; refuse what is known of another that stood here."""
    state = _read_state(path)
    if state is None:
        return SinkState(identity, {})
    if state.identity != identity:
        file = home_of(path) / STATE_NAME
        hint = f"the journal was replaced; remove {file.parent} if queries shall write into the new one"
        error = FormatError(str(file), "this is what was committed to another journal", hint=hint)
        error.add_note(hint)
        raise error
    return state


def store_state(path: str, state: SinkState) -> None:
    """Replace what is known, durably."""
    folder = home_of(path)
    with storage_errors(folder):
        OsDisk().make_folder(folder)
        replace_file(OsDisk(), folder / STATE_NAME, format_state(state))


def _read_state(path: str) -> SinkState | None:
    file = home_of(path) / STATE_NAME
    with storage_errors(file):
        data = read_file(OsDisk(), file)
    return None if data is None else parse_state(data, str(file))


def _replayed(path: str, commit: Commit, last: Done, rows: int, size: int) -> Done:
    """Return the commit that this one repeats; refuse what is not its repetition, which would be lost if dropped."""
    if last[:3] == (commit.number, rows, size):
        return last
    raise SinkUnsure(
        path,
        f"{commit.writer} has committed number {last.number} with {last.rows:,} rows of {last.bytes:,} bytes, and "
        f"comes again with number {commit.number}, {rows:,} rows and {size:,} bytes",
        "the checkpoint lost its last batches, or the query gives other rows each time; start it with a new "
        "checkpoint after what it has written, or use a new commitId",
    )


@contextmanager
def _opened(path: str, stamp: Stamp) -> Iterator[Journal]:
    """Open the journal for writing, waiting for its lock: the other holder may be a commit that is about to end."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            journal = Journal.open(path, clock=stamp)
            break
        except Locked as locked:
            if time.monotonic() >= deadline:
                locked.add_note("a journal has one writer; close the other one, or let the rows go through it")
                raise
            time.sleep(_LOCK_PAUSE_S)
    with journal:
        yield journal


def _settle(journal: Journal, stamp: Stamp, state: SinkState) -> SinkState:
    """Return the state without an intent: finished where some of its rows were appended, forgotten where none were."""
    intent = state.intent
    if intent is None:
        return state
    path = str(journal.path)
    there = intent.before + _appended(journal, intent)
    if 0 < there < intent.rows:
        files = [home_of(path) / name for name in intent.files]
        missing = [str(file) for file in files if not file.exists()]
        if missing:
            problem = f"{there:,} of the {intent.rows:,} rows of {intent.commit} are there, and {missing[0]} is not"
            raise SinkUnsure(path, problem, "restore the staged file, or append the rest yourself and remove the state")
        # The rest may stand elsewhere, behind what others appended meanwhile, and may be cut short as well.
        rest = intent._replace(before=there, first_offset=journal.next_offset, stamp_ns=stamp.now_ns())
        state = state.intending(rest)
        store_state(path, state)
        _append(journal, stamp, pieces(files, skip=there), rest.stamp_ns)
    state = state.settled(journal.next_offset if there else None)
    store_state(path, state)
    return state


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
        problem = f"whether {intent.commit} was appended at offset {intent.first_offset} cannot be told: {gone}"
        raise SinkUnsure(str(journal.path), problem, "look for its rows, then remove the intent") from gone
    return rows


def _append(journal: Journal, stamp: Stamp, parts: Iterator[pa.RecordBatch], stamp_ns: int) -> None:
    """Append pieces one after another, each with the next time, and make them durable together."""
    for number, part in enumerate(parts):
        stamp.fixed_ns = stamp_ns + number
        journal.append(
            part.column("value"),
            keys=_column(part, "key"),
            headers=_column(part, "headers"),
            timestamps=None if (times := _column(part, "timestamp")) is None else times.to_numpy(),
            durability=WRITTEN,
        )
    journal.sync()
    stamp.fixed_ns = None


def _column(part: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column, or None where the rows lack it."""
    if name not in part.schema.names or part.column(name).null_count:
        return None
    return part.column(name)
