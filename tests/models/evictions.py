"""What leaves a bucket, and what leaves a fold that watches it: retention, a time to live, deletes and a purge of all.

The log keeps the last message of each key; the fold receives one after the other and stores it. Now and then it looks
at the bucket, and later, perhaps after more has happened, it removes what `fold_modes` says has left. The time moves
once: values with a time to live that were written before expire then, all at once, and leave markers if the bucket is
so set.

What must hold: a mirror never lacks a key that the bucket lists and the fold held or had reached; after it acted on a
look that is still right it holds what the bucket lists. An archive never lacks what was not deleted, and after the same
it holds nothing that a purge deleted, where that can be told from retention.

What is taken for granted: a value that expires has been received before, or, of a mirror, leaves a marker (`unread`);
and the cursor is within the log; what happens otherwise is the subject of `repair_planning`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from strandline.protocol import fold_modes, windows
from strandline.protocol.fold_modes import FoldMode
from strandline.sim.explore import Step

GONE, STAYS, VANISHED = "a live key is gone", "a key that left stays", "a key that is there vanished"
DEADLINE = 1


class EvictionBounds(NamedTuple):
    """How large the world is, and what the bucket does: drop the oldest, expire single values, leave markers then."""

    mode: FoldMode
    drops: bool = False
    expires: bool = False
    marks: bool = False
    unread: bool = False
    """Whether a value may expire before the fold has received it."""
    revisions: int = 4
    keys: int = 2


class Message(NamedTuple):
    """The last message of a key; `deleted` is whether it was deleted, `expiry` that it marks an expired one."""

    revision: int = 0
    is_put: bool = False
    is_kept: bool = False
    expires: int = 0
    deleted: bool = True
    expiry: bool = False


class FoldedKey(NamedTuple):
    """What the fold holds of a key; revision 0 is nothing."""

    revision: int = 0
    expires: int = 0


class Looked(NamedTuple):
    """What a look at the bucket said."""

    first: int
    last: int
    now: int


class EvictionState(NamedTuple):
    """The bucket, the fold, and its last look."""

    log: tuple[Message, ...]
    stored: tuple[FoldedKey, ...]
    last: int = 0
    now: int = 0
    cursor: int = 0
    look: Looked | None = None

    @property
    def first(self) -> int:
        """Where the log begins."""
        return min((message.revision for message in self.log if message.is_kept), default=self.last + 1)

    @property
    def seen(self) -> Looked:
        """What a look says now."""
        return Looked(self.first, self.last, self.now)


class EvictionModel:
    """The model."""

    def __init__(self, bounds: EvictionBounds) -> None:
        self.bounds = bounds

    def initial(self) -> list[EvictionState]:
        """Return an empty bucket and an empty fold that watches it."""
        keys = self.bounds.keys
        return [EvictionState((Message(),) * keys, (FoldedKey(),) * keys)]

    def place(self, state: EvictionState) -> EvictionState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: EvictionState) -> Iterator[Step[EvictionState]]:
        """Yield what writers, retention, time, operators and the fold can do."""
        for action, after in (*self._written(state), *self._left(state)):
            yield action, after, None
        if windows.resume_window_ok(state.cursor, state.first):
            if (received := self._received(state)) is not None:
                yield "receive", received, None
            if state.look != state.seen:
                yield "look", state._replace(look=state.seen), None
            if state.look is not None and fold_modes.is_settled(state.cursor, state.look.last):
                yield self._swept(state, state.look)

    def broken(self, state: EvictionState) -> str | None:
        """Return whether the fold lacks what its cursor names."""
        for message, entry in zip(state.log, state.stored, strict=True):
            if message.revision > state.cursor or entry.revision == message.revision:
                continue
            if (
                self.bounds.mode is FoldMode.MIRROR
                and message.is_put
                and message.is_kept
                and not _is_over(state, message)
            ):
                return GONE
            if self.bounds.mode is FoldMode.ARCHIVE and not message.deleted and not entry.revision:
                return GONE
        return None

    def show(self, state: EvictionState) -> str:
        """Return the bucket and the fold."""
        cells = " ".join(
            f"{'+' if message.is_put else '-'}{'abcd'[key]}{message.revision}"
            f"{' expires' if message.expires else ''}{'' if message.is_kept else ' gone'}"
            for key, message in enumerate(state.log)
            if message.revision
        )
        held = " ".join(f"{'abcd'[key]}{entry.revision}" for key, entry in enumerate(state.stored) if entry.revision)
        return f"[{cells}] from {state.first} at {state.now}, fold [{held}] at {state.cursor}, look {state.look}"

    # What can happen

    def _written(self, state: EvictionState) -> Iterator[tuple[str, EvictionState]]:
        if state.last >= self.bounds.revisions:
            return
        for key, message in enumerate(state.log):
            name, revision = "abcd"[key], state.last + 1
            put = Message(revision, is_put=True, is_kept=True, deleted=False)
            yield f"put {name}", _with(state, key, put)
            if self.bounds.expires and not state.now:
                yield f"put {name} for a while", _with(state, key, put._replace(expires=DEADLINE))
            if message.is_put:
                yield f"delete {name}", _with(state, key, Message(revision, is_kept=True))

    def _left(self, state: EvictionState) -> Iterator[tuple[str, EvictionState]]:
        for key, message in enumerate(state.log):
            is_first = message.is_kept and message.revision == state.first
            if is_first and (self.bounds.drops or (not message.is_put and message.revision <= state.cursor)):
                yield f"{'abcd'[key]} is dropped", _with(state, key, message._replace(is_kept=False), state.last)
        if any(message.is_kept for message in state.log):
            yield "purge", state._replace(log=tuple(_purged(message) for message in state.log))
        if self.bounds.expires and not state.now:
            expiring = [message for message in state.log if message.is_kept and message.expires]
            is_read = all(message.revision <= state.cursor for message in expiring)
            is_told = self.bounds.marks and self.bounds.mode is FoldMode.MIRROR
            if is_read or is_told or self.bounds.unread:
                yield "time passes", self._expired(state)

    def _expired(self, state: EvictionState) -> EvictionState:
        state = state._replace(now=DEADLINE)
        for key, message in enumerate(state.log):
            if message.is_kept and message.expires:
                if self.bounds.marks:
                    marker = Message(state.last + 1, is_kept=True, deleted=message.deleted, expiry=True)
                    state = _with(state, key, marker)
                else:
                    state = _with(state, key, message._replace(is_kept=False), state.last)
        return state

    def _received(self, state: EvictionState) -> EvictionState | None:
        coming = [(message.revision, key) for key, message in enumerate(state.log) if message.is_kept]
        found = min((each for each in coming if each[0] > state.cursor), default=None)
        if found is None:
            return None if state.cursor == state.last else state._replace(cursor=state.last)
        revision, key = found
        message, entry = state.log[key], state.stored[key]
        if message.is_put:
            entry = FoldedKey(revision, message.expires)
        elif not message.expiry or fold_modes.follows_expiry(self.bounds.mode):
            entry = FoldedKey()
        return state._replace(stored=_put(state.stored, key, entry), cursor=revision)

    def _swept(self, state: EvictionState, look: Looked) -> Step[EvictionState]:
        stored = tuple(FoldedKey() if self._has_left(entry, look) else entry for entry in state.stored)
        after = state._replace(stored=stored, look=None)
        return "sweep", after, self._wrong(state, after, look)

    def _has_left(self, entry: FoldedKey, look: Looked) -> bool:
        bounds = self.bounds
        return bool(entry.revision) and fold_modes.has_left(
            bounds.mode, entry.revision, entry.expires, first=look.first, now_ns=look.now, drops=bounds.drops
        )

    def _wrong(self, before: EvictionState, after: EvictionState, look: Looked) -> str | None:
        is_fresh = look == before.seen
        for message, old, entry in zip(after.log, before.stored, after.stored, strict=True):
            is_listed = message.is_put and message.is_kept and not _is_over(after, message)
            is_removed = bool(old.revision) and not entry.revision and message.revision <= look.last
            if self.bounds.mode is FoldMode.MIRROR:
                if is_listed and is_removed:
                    return VANISHED
                if is_fresh and entry.revision and not is_listed:
                    return STAYS
            elif not message.deleted and is_removed:
                return GONE
            elif is_fresh and message.deleted and entry.revision and not (self.bounds.drops or entry.expires):
                return STAYS
        return None


def _is_over(state: EvictionState, message: Message) -> bool:
    return 0 < message.expires <= state.now


def _purged(message: Message) -> Message:
    """What a purge of the stream leaves: it deletes what was there, and markers go with it."""
    return message._replace(is_kept=False, deleted=message.deleted or (message.is_kept and message.is_put))


def _with(state: EvictionState, key: int, message: Message, last: int | None = None) -> EvictionState:
    log = (*state.log[:key], message, *state.log[key + 1 :])
    return state._replace(log=log, last=message.revision if last is None else last)


def _put(stored: tuple[FoldedKey, ...], key: int, entry: FoldedKey) -> tuple[FoldedKey, ...]:
    return (*stored[:key], entry, *stored[key + 1 :])
