"""A watcher that falls behind a log which evicts: of all keys, or of some with or without a sentinel.

The log keeps the last messages of each key until they are evicted, oldest first. A server reads for each consumer and
sends; what is sent arrives later, even if it is evicted by then. The watcher looks at the log's beginning when a
revision is skipped (in band) and from time to time (backstop), with the functions of `strandline.protocol.windows`;
when something may be lost it is repaired, in one step here (`RepairOrderModel` has the steps).

A watcher of some keys cannot tell revisions of others from evicted ones of its own. A sentinel reads the heads of all
messages, in a consumer of its own which may be quicker or slower; the frontier is what both prove together. A cheaper
one probes: it reads where the log ends, then that nothing waits for the watcher, then that the window is still open;
so nothing of the watcher's lies up to that end. Others' evictions between two probes may look like a loss to it.

What must hold: for each key the fold is right, or what makes it right is still to come, or the guard will trip. And a
watcher that has everything is never repaired when nothing happens: that is what the sentinel is for.
"""

from collections.abc import Iterator
from typing import NamedTuple

from strandline.protocol import windows
from strandline.sim.explore import Step


class LiveBounds(NamedTuple):
    """How large the world is; keys are numbered, and the watcher's own are the first."""

    revisions: int = 5
    keys: int = 2
    own: int = 2
    history: int = 1
    guarded: bool = True
    sentinel: bool = False
    probes: bool = False
    """Whether, instead of a sentinel, the watcher asks from time to time where the log ends and what waits for it."""
    marker_purges: bool = False
    """Whether delete markers can go from the middle of the log, which no beginning tells."""


class Message(NamedTuple):
    """A put or a delete of a key."""

    revision: int
    key: int
    is_put: bool

    def __str__(self) -> str:
        return f"{'+' if self.is_put else '-'}{'abcd'[self.key]}{self.revision}"


class Reader(NamedTuple):
    """A consumer: what the server has read for it, what is on the way, and what it has."""

    read: int = 0
    sent: Message | None = None
    has: int = 0


class LiveState(NamedTuple):
    """The log, the watcher's fold, its consumer and its sentinel.

    `own_last` is the last revision of the watcher's keys, `awaited` what of them only the sentinel has seen.
    """

    log: tuple[Message, ...]
    last: int
    own_last: int
    truth: tuple[int, ...]
    fold: tuple[int, ...]
    reader: Reader
    sentinel: Reader
    awaited: tuple[int, ...]

    @property
    def first(self) -> int:
        """Where the log begins."""
        return self.log[0].revision if self.log else self.last + 1

    @property
    def frontier(self) -> int:
        """Up to where nothing is missed."""
        return windows.proven_frontier(self.reader.has, self.sentinel.has, min(self.awaited, default=None))


class LiveWatchModel:
    """The model."""

    def __init__(self, bounds: LiveBounds | None = None) -> None:
        self.bounds = bounds or LiveBounds()

    def initial(self) -> list[LiveState]:
        """Return an empty log that is watched."""
        empty = (0,) * self.bounds.keys
        return [LiveState((), 0, 0, empty, empty, Reader(), Reader(), ())]

    def place(self, state: LiveState) -> LiveState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: LiveState) -> Iterator[Step[LiveState]]:
        """Yield what writers, retention, the server and the watcher can do."""
        yield from self._bucket(state)
        yield from self._read(state)
        yield from self._arrive(state)
        if self.bounds.probes:
            yield from self._probe(state)
        if self.bounds.guarded:
            if not self._is_sound(state):
                idle = "a watcher that has everything was repaired" if self._has_everything(state) else None
                yield "backstop: repaired", _repaired(state), idle
            yield "restart", self._restarted(state), None

    def broken(self, state: LiveState) -> str | None:
        """Return whether the fold is wrong about a key, nothing is to come, and nobody will notice."""
        if self.bounds.guarded and not self._is_sound(state):
            return None
        for key in range(self.bounds.own):
            if state.fold[key] != state.truth[key] and not self._is_coming(state, key):
                return "a loss went unnoticed"
        return None

    def show(self, state: LiveState) -> str:
        """Return the log, the fold and the positions."""
        log = " ".join(map(str, state.log))
        sentinel = f", sentinel at {state.sentinel.has}" if self.bounds.sentinel else ""
        on_the_way = f", {state.reader.sent} on its way" if state.reader.sent else ""
        return f"log [{log}] to {state.last}, fold {state.fold} at {state.reader.has}{on_the_way}{sentinel}"

    def _bucket(self, state: LiveState) -> Iterator[Step[LiveState]]:
        if state.last < self.bounds.revisions:
            for key in range(self.bounds.keys):
                for is_put in (True, False) if state.truth[key] else (True,):
                    after = self._written(state, Message(state.last + 1, key, is_put))
                    yield f"write {after.log[-1]}", after, None
        if state.log:
            yield f"evict {state.log[0]}", state._replace(log=state.log[1:]), None
        if self.bounds.marker_purges:
            for index, message in enumerate(state.log):
                if not message.is_put:
                    yield f"purge {message}", state._replace(log=state.log[:index] + state.log[index + 1 :]), None

    def _written(self, state: LiveState, message: Message) -> LiveState:
        older = [found for found in state.log if found.key == message.key]
        gone = older[: len(older) + 1 - self.bounds.history]
        log = (*(found for found in state.log if found not in gone), message)
        own_last = message.revision if message.key < self.bounds.own else state.own_last
        truth = _with(state.truth, message)
        return state._replace(log=log, last=message.revision, own_last=own_last, truth=truth)

    def _read(self, state: LiveState) -> Iterator[Step[LiveState]]:
        if message := self._next(state.log, state.reader, self.bounds.own):
            reader = state.reader._replace(read=message.revision, sent=message)
            yield f"send {message}", state._replace(reader=reader), None
        if self.bounds.sentinel and (message := self._next(state.log, state.sentinel, self.bounds.keys)):
            sentinel = state.sentinel._replace(read=message.revision, sent=message)
            yield f"send {message} to the sentinel", state._replace(sentinel=sentinel), None

    def _next(self, log: tuple[Message, ...], reader: Reader, keys: int) -> Message | None:
        """Return what the server sends next; it starts silently where the log does."""
        if reader.sent is not None:
            return None
        start = windows.resume_start_sequence(reader.read)
        return next(
            (found for found in log if start is not None and found.revision >= start and found.key < keys), None
        )

    def _arrive(self, state: LiveState) -> Iterator[Step[LiveState]]:
        if (message := state.reader.sent) is not None:
            if self._trips(state, message):
                yield f"{message} arrives: repaired", _repaired(state), None
            else:
                reader = state.reader._replace(sent=None, has=message.revision)
                awaited = tuple(found for found in state.awaited if found > message.revision)
                fold = _with(state.fold, message)
                yield f"{message} arrives", state._replace(reader=reader, fold=fold, awaited=awaited), None
        if (message := state.sentinel.sent) is not None:
            if self._trips(state, message):
                yield f"the sentinel has {message}: repaired", _repaired(state), None
            else:
                is_awaited = message.key < self.bounds.own and message.revision > state.reader.has
                awaited = (*state.awaited, message.revision) if is_awaited else state.awaited
                sentinel = state.sentinel._replace(sent=None, has=message.revision)
                yield f"the sentinel has {message}", state._replace(sentinel=sentinel, awaited=awaited), None

    def _probe(self, state: LiveState) -> Iterator[Step[LiveState]]:
        yield "probe begins", state._replace(sentinel=state.sentinel._replace(read=state.last)), None
        waits = state.reader.sent is not None or any(
            found.key < self.bounds.own and found.revision > state.reader.has for found in state.log
        )
        if not waits and windows.resume_window_ok(state.frontier, state.first):
            yield "probe ends", state._replace(sentinel=state.sentinel._replace(has=state.sentinel.read)), None

    def _trips(self, state: LiveState, message: Message) -> bool:
        if not self.bounds.guarded or not windows.is_gapped(state.frontier, message.revision):
            return False
        return not self._is_sound(state)

    def _is_sound(self, state: LiveState) -> bool:
        return windows.resume_window_ok(state.frontier, state.first)

    def _is_coming(self, state: LiveState, key: int) -> bool:
        sent = state.reader.sent
        return any(found.key == key and found.revision > state.reader.has for found in state.log) or (
            sent is not None and sent.key == key and _with(state.fold, sent)[key] == state.truth[key]
        )

    def _has_everything(self, state: LiveState) -> bool:
        has_sentinel = self.bounds.sentinel or self.bounds.probes
        return state.reader.has >= state.own_last and (not has_sentinel or state.sentinel.has == state.last)

    def _restarted(self, state: LiveState) -> LiveState:
        """The fold's cursor is the frontier: what is proven is worth keeping."""
        if not self._is_sound(state):
            return _repaired(state)
        reader = Reader(state.frontier, None, state.frontier)
        return state._replace(reader=reader, sentinel=reader, awaited=())


def _repaired(state: LiveState) -> LiveState:
    reader = Reader(state.last, None, state.last)
    return state._replace(fold=state.truth, reader=reader, sentinel=reader, awaited=())


def _with(values: tuple[int, ...], message: Message) -> tuple[int, ...]:
    value = message.revision if message.is_put else 0
    return (*values[: message.key], value, *values[message.key + 1 :])
