"""A fold's batches: stored, refused for a moment, torn, or stored with the answer lost; and crashes anywhere.

Updates come in order, each of one of two keys, some of them without a revision that can be read. What is received is
stored with the highest revision, and a fold resumes at the cursor that is stored. All decisions are those of
`strandline.protocol.flushes`.

What must hold: a stored cursor names only updates that are stored, the latest of each key last; it never moves back;
and from everywhere the store can still come to hold everything.

That holds if a batch is stored whole or not at all, or if a store that says no has stored nothing. Where both fail, the
store must be opened again before the batch is stored again, to see whether it is there. Else the batch begins with
older values, and a crash in it leaves one of them under a cursor that is already past it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from strandline.protocol import flushes, windows
from strandline.protocol.flushes import Reopened
from strandline.sim.explore import Step

KEYS = 2


class CursorBounds(NamedTuple):
    """How large the world is."""

    revisions: int = 4
    pending_max: int = 3
    failures_max: int = 2
    crashes: int = 2
    torn: bool = False
    """Whether a crash can leave a part of a batch stored, without its cursor."""
    lost_answers: bool = True
    """Whether a batch can be stored although the store says that it was not."""
    reopens: bool = True
    """Whether a store that said no is opened again and asked where it stands."""


class Update(NamedTuple):
    """An update; its revision may be unreadable, but the log's order is what it is."""

    revision: int
    is_known: bool = True

    def __str__(self) -> str:
        return f"{self.revision}" if self.is_known else f"{self.revision}?"


class CursorState(NamedTuple):
    """What is stored, and the process: what it received and could not store."""

    stored: tuple[int, ...] = (0,) * KEYS
    cursor: int = 0
    received: int = 0
    failed: tuple[Update, ...] = ()
    pending: tuple[Update, ...] = ()
    failures: int = 0
    crashes: int = 0


class CursorModel:
    """The model."""

    def __init__(self, bounds: CursorBounds | None = None) -> None:
        self.bounds = bounds or CursorBounds()

    def initial(self) -> list[CursorState]:
        """Return an empty fold that has just begun to watch."""
        return [CursorState()]

    def place(self, state: CursorState) -> CursorState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: CursorState) -> Iterator[Step[CursorState]]:
        """Yield what the log, the store and the process can do."""
        yield from self._receive(state)
        if state.failed or state.pending:
            yield from self._flush(state)
        if state.crashes < self.bounds.crashes:
            yield "crashes and resumes", self._resumed(state), None

    def broken(self, state: CursorState) -> str | None:
        """Return whether the stored cursor names something that is not stored."""
        for key, revision in enumerate(state.stored):
            if revision < _latest(key, state.cursor):
                return "the cursor names an update that is not stored"
        return None

    def show(self, state: CursorState) -> str:
        """Return what is stored and what is not."""
        waiting = " ".join(map(str, (*state.failed, "|", *state.pending)))
        return f"stored {state.stored} at {state.cursor}, received {state.received}, waiting {waiting}"

    def is_done(self, state: CursorState) -> bool:
        """Return whether the latest of every key is stored."""
        return state.stored == tuple(_latest(key, self.bounds.revisions) for key in range(KEYS))

    def _receive(self, state: CursorState) -> Iterator[Step[CursorState]]:
        revision = windows.resume_start_sequence(state.received)
        if revision is None or revision > self.bounds.revisions or len(state.pending) == self.bounds.pending_max:
            return
        for update in (Update(revision), Update(revision, is_known=False)):
            after = state._replace(received=revision, pending=(*state.pending, update))
            yield f"receives {update}", after, None

    def _flush(self, state: CursorState) -> Iterator[Step[CursorState]]:
        batch = flushes.requeue(state.failed, state.pending) if state.failed else state.pending
        cursor = state.cursor
        for update in batch:
            cursor = flushes.batch_high(cursor, update.revision if update.is_known else None)
        held = _put(state.stored, batch)
        went_back = "the cursor went back" if cursor < state.cursor else None
        reported = state._replace(failed=(), pending=(), failures=0)
        yield "stores", reported._replace(stored=held, cursor=cursor), went_back
        again = reported._replace(failed=batch, failures=state.failures + 1)
        yield "cannot store", self._failed(again), None
        if self.bounds.lost_answers:
            lost = again._replace(stored=held, cursor=cursor)
            if self.bounds.reopens:
                lost = _reopened(lost, before=state.cursor, attempted=cursor)
            yield "stores, the answer is lost", self._failed(lost), went_back
        if self.bounds.torn:
            for count in range(1, len(batch) + 1):
                yield (
                    f"stores {count} of the batch",
                    self._failed(again._replace(stored=_put(state.stored, batch[:count]))),
                    None,
                )
        if self.bounds.torn and state.crashes < self.bounds.crashes:
            for count in range(1, len(batch) + 1):
                torn = reported._replace(stored=_put(state.stored, batch[:count]))
                yield f"crashes with {count} of the batch stored", self._resumed(torn), None

    def _failed(self, state: CursorState) -> CursorState:
        # A watch that gives up is started again by somebody; that alone is no crash to be counted.
        if flushes.gives_up(state.failures, self.bounds.failures_max):
            return self._resumed(state)._replace(crashes=state.crashes)
        return state

    def _resumed(self, state: CursorState) -> CursorState:
        return CursorState(state.stored, state.cursor, state.cursor, crashes=state.crashes + 1)


def _reopened(state: CursorState, before: int, attempted: int) -> CursorState:
    """Return what is left to store after the store was opened again."""
    if flushes.after_reopening(state.cursor, before, attempted) == Reopened.STORED:
        return state._replace(failed=(), failures=0)
    return state


def _latest(key: int, revision: int) -> int:
    """Return the last revision of a key up to one; keys take turns."""
    return revision - (revision - key) % KEYS if revision > 0 else 0


def _put(stored: tuple[int, ...], batch: tuple[Update, ...]) -> tuple[int, ...]:
    held = list(stored)
    for update in batch:
        held[update.revision % KEYS] = update.revision
    return tuple(held)
