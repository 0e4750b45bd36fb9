"""A fold that is repaired step by step while its bucket goes on, and crashes anywhere.

The log keeps the last message of each key. A bucket that keeps its current values loses only delete markers, from the
beginning; one that evicts loses whatever is oldest, and others export artifacts that are right. Updates pass a channel
and a batch before they are stored, which a crash may tear: then the store has data ahead of its cursor. What a repair
does next, and with each key, is decided by `strandline.protocol.repairs`.

What must hold: a stored cursor names only what is stored; a repair takes no live key's value; a cursor never moves
back; and while it watches the fold is right, or what makes it right is to come, or the guard will trip.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from strandline.protocol import flushes, repairs, windows
from strandline.protocol.repairs import Held, KeyRepair, RepairMode, RepairPlan, RepairStep
from strandline.protocol.shards import Code
from strandline.sim.explore import Step

ValueT = TypeVar("ValueT")


class OrderBounds(NamedTuple):
    """How large the world is, and whether the bucket evicts current values."""

    evicts: bool
    revisions: int = 4
    keys: int = 2
    channel_max: int = 1
    batch_max: int = 1
    crashes: int = 1


class Cell(NamedTuple):
    """The last message of a key, and whether the log still has it."""

    revision: int = 0
    is_put: bool = False
    is_kept: bool = False

    @property
    def value(self) -> int:
        """What is true of the key: the revision of its value, 0 if it has none."""
        return self.revision if self.is_put else 0


class Change(NamedTuple):
    """An update on its way to the store."""

    revision: int
    key: int
    value: int

    def __str__(self) -> str:
        return f"{'+' if self.value else '-'}{'abcd'[self.key]}{self.revision}"


class Phase(Code):
    """What the fold's process does."""

    STOPPED = 0
    WATCHING = 1
    EXPIRED = 2


class Artifact(NamedTuple):
    """An exported fold."""

    cursor: int
    values: tuple[int, ...]


class Repair(NamedTuple):
    """A repair that has begun: its plan, what was listed and up to where, what it restores, and what is left."""

    plan: RepairPlan
    listed: tuple[bool, ...]
    position: int
    artifact: Artifact | None
    left: tuple[int, ...]
    uncommitted: bool


class OrderState(NamedTuple):
    """The bucket, the store, and the process."""

    log: tuple[Cell, ...]
    last: int
    artifact: Artifact | None
    stored: tuple[int, ...]
    cursor: int
    phase: Phase
    read: int = 0
    frontier: int = 0
    channel: tuple[Change, ...] = ()
    batch: tuple[Change, ...] = ()
    repair: Repair | None = None
    crashes: int = 0

    @property
    def truth(self) -> tuple[int, ...]:
        """Every write minus every delete."""
        return tuple(cell.value for cell in self.log)

    @property
    def first(self) -> int:
        """Where the log begins."""
        return min((cell.revision for cell in self.log if cell.is_kept), default=self.last + 1)


class RepairOrderModel:
    """The model."""

    def __init__(self, bounds: OrderBounds) -> None:
        self.bounds = bounds

    def initial(self) -> list[OrderState]:
        """Return an empty bucket that is watched."""
        keys = self.bounds.keys
        return [OrderState((Cell(),) * keys, 0, None, (0,) * keys, 0, Phase.WATCHING)]

    def place(self, state: OrderState) -> OrderState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: OrderState) -> Iterator[Step[OrderState]]:
        """Yield what the bucket and the process can do."""
        yield from self._bucket(state)
        for action, after in self._process(state):
            yield action, after, self._broken_step(state, after)

    def broken(self, state: OrderState) -> str | None:
        """Return whether the cursor, or the quiet, says more than is true."""
        for stored, cell in zip(state.stored, state.log, strict=True):
            if stored != cell.value and cell.revision <= state.cursor:
                return "the cursor names what is not stored"
        if state.phase != Phase.WATCHING or state.repair or not self._is_sound(state):
            return None
        for key, cell in enumerate(state.log):
            if state.stored[key] != cell.value and not self._is_coming(state, key):
                return "the fold is wrong, and nothing is to come"
        return None

    def show(self, state: OrderState) -> str:
        """Return the log, the store and the process."""
        cells = " ".join(
            f"{'+' if cell.is_put else '-'}{'abcd'[key]}{cell.revision}"
            for key, cell in enumerate(state.log)
            if cell.is_kept
        )
        waiting = " ".join(map(str, (*state.batch, "|", *state.channel)))
        repair = "" if state.repair is None else f", {state.repair.plan.name.lower()} left {state.repair.left}"
        return (
            f"log [{cells}] from {state.first}, truth {state.truth}, stored {state.stored} at {state.cursor}, "
            f"waiting {waiting}, {state.phase.name.lower()}{repair}"
        )

    def is_done(self, state: OrderState) -> bool:
        """Return whether everything was written and the fold is right, with nothing left to do."""
        quiet = state.phase == Phase.WATCHING and not (state.repair or state.channel or state.batch)
        return state.last == self.bounds.revisions and quiet and state.stored == state.truth

    # What can happen

    def _bucket(self, state: OrderState) -> Iterator[Step[OrderState]]:
        if state.last < self.bounds.revisions:
            for key, cell in enumerate(state.log):
                for is_put in (True, False) if cell.is_put else (True,):
                    written = Cell(state.last + 1, is_put, is_kept=True)
                    log = _put(state.log, key, written)
                    name = f"write {Change(written.revision, key, written.value)}"
                    yield name, state._replace(log=log, last=written.revision), None
        for key, cell in enumerate(state.log):
            if cell.is_kept and cell.revision == state.first and (self.bounds.evicts or not cell.is_put):
                log = _put(state.log, key, cell._replace(is_kept=False))
                yield f"evict {Change(cell.revision, key, cell.value)}", state._replace(log=log), None
        if self.bounds.evicts and state.last and (state.artifact is None or state.artifact.cursor < state.last):
            yield f"export at {state.last}", state._replace(artifact=Artifact(state.last, state.truth)), None

    def _process(self, state: OrderState) -> Iterator[tuple[str, OrderState]]:
        if state.crashes < self.bounds.crashes and state.phase != Phase.STOPPED:
            crashed = OrderState(*state[:5], Phase.STOPPED, crashes=state.crashes + 1)
            yield "crash", crashed
            if state.batch:
                yield "crash with the batch stored, but not its cursor", crashed._replace(stored=_flushed(state).stored)
        match state.phase:
            case Phase.STOPPED:
                yield "start", self._resumed(state, state.cursor)
            case Phase.EXPIRED:
                yield from self._repair(state)
            case Phase.WATCHING:
                yield from self._watch(state)
                if state.repair is not None:
                    yield from self._repair_on(state, state.repair)

    def _watch(self, state: OrderState) -> Iterator[tuple[str, OrderState]]:
        if not self._is_sound(state):
            yield "backstop: expired", _expired(state)
        key = self._next(state)
        if key is not None and len(state.channel) < self.bounds.channel_max:
            cell = state.log[key]
            change = Change(cell.revision, key, cell.value)
            if windows.is_gapped(state.frontier, cell.revision) and not self._is_sound(state):
                yield f"send {change}: expired", _expired(state)
            else:
                frontier = max(state.frontier, cell.revision)
                channel = (*state.channel, change)
                yield f"send {change}", state._replace(read=cell.revision, frontier=frontier, channel=channel)
        if state.channel and len(state.batch) < self.bounds.batch_max:
            yield "receive", _received(state)
        if state.batch:
            yield "flush", _flushed(state)

    def _next(self, state: OrderState) -> int | None:
        kept = [
            (cell.revision, key) for key, cell in enumerate(state.log) if cell.is_kept and cell.revision > state.read
        ]
        return min(kept)[1] if kept else None

    def _repair(self, state: OrderState) -> Iterator[tuple[str, OrderState]]:
        repair = state.repair
        step = repairs.next_repair_step(
            undrained=bool(state.channel),
            unflushed=bool(state.batch),
            undiffed=repair is None or bool(repair.left),
            uncommitted=repair is None or repair.uncommitted,
        )
        if step == RepairStep.DRAIN:
            yield "drain", _received(state)
        elif step == RepairStep.FLUSH:
            yield "flush", _flushed(state)
        elif repair is None:
            if (planned := self._planned(state)) is not None:
                yield f"plan to {planned.plan.name.lower()}", state._replace(repair=planned)
        elif step == RepairStep.RESUME:
            yield "resume", self._after_repair(state, repair)
        else:
            yield from self._repair_on(state, repair, step)

    def _repair_on(
        self, state: OrderState, repair: Repair, step: RepairStep | None = None
    ) -> Iterator[tuple[str, OrderState]]:
        if repair.left and step != RepairStep.COMMIT:
            key, *left = repair.left
            stored = _put(state.stored, key, self._diffed(state, repair, key))
            after = repair._replace(left=tuple(left))
            yield f"diff {'abcd'[key]}", state._replace(stored=stored, repair=_unless_done(state, after))
        elif repair.uncommitted and repair.artifact is not None:
            after = repair._replace(uncommitted=False)
            yield "commit", state._replace(cursor=repair.artifact.cursor, repair=_unless_done(state, after))

    def _planned(self, state: OrderState) -> Repair | None:
        truth = repairs.listing_is_truth(state.first, evicts=self.bounds.evicts, seen=self.bounds.evicts)
        plan = repairs.plan_repair(RepairMode.AUTO, truth)
        listed = tuple(cell.is_kept and cell.is_put for cell in state.log)
        left = tuple(range(self.bounds.keys))
        if plan == RepairPlan.RELIST:
            return Repair(plan, listed, state.last, None, left, uncommitted=False)
        found = state.artifact
        if found is None or not repairs.restore_allowed(found.cursor, state.cursor, state.first):
            return None
        return Repair(plan, listed, found.cursor, found, left, uncommitted=True)

    def _diffed(self, state: OrderState, repair: Repair, key: int) -> int:
        local, listed = state.stored[key], repair.listed[key]
        if repair.artifact is None:
            return local if listed else 0
        value = repair.artifact.values[key]
        decided = repairs.restore_key(_held(local), _held(value), identical=local == value, listed=listed)
        return {KeyRepair.KEEP: local, KeyRepair.TAKE: value, KeyRepair.DELETE: 0}[decided]

    def _after_repair(self, state: OrderState, repair: Repair) -> OrderState:
        rest = repair if repair.left or repair.uncommitted else None
        if repair.artifact is not None:
            return self._resumed(state._replace(repair=rest), repair.artifact.cursor)
        return state._replace(phase=Phase.WATCHING, read=0, frontier=repair.position, repair=rest)

    def _resumed(self, state: OrderState, cursor: int) -> OrderState:
        if not windows.resume_window_ok(cursor, state.first):
            return state._replace(phase=Phase.EXPIRED, repair=None)
        return state._replace(phase=Phase.WATCHING, read=cursor, frontier=cursor)

    # What must hold

    def _broken_step(self, before: OrderState, after: OrderState) -> str | None:
        if after.cursor < before.cursor:
            return "the cursor went back"
        if before.repair is None or before.batch != after.batch:
            return None
        for old, new, true in zip(before.stored, after.stored, before.truth, strict=True):
            if old and old == true != new:
                return "a repair took a live key's value"
        return None

    def _is_sound(self, state: OrderState) -> bool:
        return windows.resume_window_ok(state.frontier, state.first)

    def _is_coming(self, state: OrderState, key: int) -> bool:
        cell = state.log[key]
        waiting = [change.value for change in (*state.batch, *state.channel) if change.key == key]
        return (cell.is_kept and cell.revision > state.read) or (bool(waiting) and waiting[-1] == cell.value)


def _put(values: tuple[ValueT, ...], key: int, value: ValueT) -> tuple[ValueT, ...]:
    return (*values[:key], value, *values[key + 1 :])


def _held(value: int) -> Held | None:
    return Held(value) if value else None


def _expired(state: OrderState) -> OrderState:
    return state._replace(phase=Phase.EXPIRED, read=0, frontier=0, repair=None)


def _received(state: OrderState) -> OrderState:
    return state._replace(channel=state.channel[1:], batch=(*state.batch, state.channel[0]))


def _flushed(state: OrderState) -> OrderState:
    stored, cursor = state.stored, state.cursor
    for change in state.batch:
        stored = _put(stored, change.key, change.value)
        cursor = flushes.batch_high(cursor, change.revision)
    return state._replace(stored=stored, cursor=cursor, batch=())


def _unless_done(state: OrderState, repair: Repair) -> Repair | None:
    """Return the repair; None if the fold watches already and nothing of it is left."""
    is_done = state.phase == Phase.WATCHING and not (repair.left or repair.uncommitted)
    return None if is_done else repair
