"""Buckets that keep, age, expire or overflow, with settings that are edited; and from what a fold may be repaired.

A repair is one step here, but for the moment between its plan and its listing. Others export artifacts that are right.
The fold starts without a cursor, or torn at its first checkpoint; it remembers whether its bucket was ever seen to
evict. All decisions are those of `strandline.protocol.repairs`.

What must hold: the truth is every write minus every real delete; a cursor names nothing that the fold has otherwise,
and while it watches the fold is right, or what makes it right is to come, or the guard will trip.

What is taken for granted: settings are not edited back before the fold has looked at them once (`unseen_edits`); an
empty fold starts only when its bucket tells its retention (`mute_at_first`); and a time to live, which leaves no trace
in the log's beginning, does not end before every cursor and the newest artifact have the message.
"""

from collections.abc import Iterator
from typing import NamedTuple

from strandline.protocol import repairs, windows
from strandline.protocol.repairs import Held, KeyRepair, RepairMode, RepairPlan
from strandline.protocol.shards import Code
from strandline.sim.explore import Step
from tests.models.repair_order import Artifact, Cell

NO_CURSOR = -1


class Retention(Code):
    """How a bucket forgets: markers only; the oldest by age; any by its time to live; the oldest when it is full."""

    KEEPS = 0
    AGES = 1
    EXPIRES = 2
    OVERFLOWS = 3


class PlanBounds(NamedTuple):
    """How large the world is: the settings that the bucket may have, the first at first, and what may go wrong."""

    settings: tuple[Retention, ...]
    mode: RepairMode = RepairMode.AUTO
    fresh: bool = True
    """Whether the fold has no cursor at first, and may start late; otherwise it watches from the first write."""
    mute: bool = False
    """Whether the bucket may fail to tell its retention; for `RELIST` only after it was seen to evict."""
    mute_at_first: bool = False
    """Whether it may do so even when an empty fold starts."""
    unseen_edits: bool = False
    rechecks: bool = True
    """Whether the log's beginning is read again after the listing."""
    revisions: int = 3
    keys: int = 2
    full: int = 1
    edits: int = 1


class Phase(Code):
    """What the fold's process does; when it lists, its plan is made."""

    STOPPED = 0
    WATCHING = 1
    LISTING = 2


class Basis(NamedTuple):
    """What was known when a plan to list was made: whether the bucket told that it evicts, and what was remembered.

    `anew`: there is nothing to repair, the listing is only the beginning of a watch.
    """

    evicts: bool | None
    seen: bool
    anew: bool = False


class PlanState(NamedTuple):
    """The bucket, others' artifact, and the fold; `basis` is what the plan to list went by."""

    log: tuple[Cell, ...]
    last: int
    retention: Retention
    artifact: Artifact | None
    stored: tuple[int, ...]
    cursor: int
    phase: Phase
    seen: bool = False
    looked: bool = False
    edits: int = 0
    basis: Basis | None = None

    @property
    def truth(self) -> tuple[int, ...]:
        """Every write minus every real delete."""
        return tuple(cell.value for cell in self.log)

    @property
    def first(self) -> int:
        """Where the log begins."""
        return min((cell.revision for cell in self.log if cell.is_kept), default=self.last + 1)

    @property
    def evicts(self) -> bool:
        """Whether current values can go."""
        return self.retention != Retention.KEEPS

    @property
    def floor(self) -> int:
        """The beginning that the listing may be judged by."""
        removed = self.last + 1 - self.first - sum(cell.is_kept for cell in self.log)
        return repairs.listing_floor(self.first, removed, in_order=self.retention != Retention.EXPIRES)

    @property
    def listed(self) -> tuple[int, ...]:
        """What a listing shows."""
        return tuple(cell.value if cell.is_kept else 0 for cell in self.log)


class RepairPlanModel:
    """The model."""

    def __init__(self, bounds: PlanBounds) -> None:
        self.bounds = bounds

    def initial(self) -> list[PlanState]:
        """Return an empty bucket and a fold that has not started, or watches from the first write."""
        keys, setting = self.bounds.keys, self.bounds.settings[0]
        empty = PlanState((Cell(),) * keys, 0, setting, None, (0,) * keys, NO_CURSOR, Phase.STOPPED)
        return [empty if self.bounds.fresh else empty._replace(cursor=0, phase=Phase.WATCHING)]

    def place(self, state: PlanState) -> PlanState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: PlanState) -> Iterator[Step[PlanState]]:
        """Yield what the bucket, its owner, others and the fold can do."""
        for action, after in (*self._bucket(state), *self._owner(state), *self._fold(state)):
            yield action, after, None

    def broken(self, state: PlanState) -> str | None:
        """Return whether the cursor, or the quiet, says more than is true."""
        for stored, cell in zip(state.stored, state.log, strict=True):
            if stored == cell.value:
                continue
            if cell.revision <= state.cursor:
                return "a live key is gone" if cell.is_put else "a deleted key is there"
            is_sound = windows.resume_window_ok(state.cursor, state.first)
            if state.phase == Phase.WATCHING and is_sound and not cell.is_kept:
                return "the fold is wrong, and nothing is to come"
        return None

    def show(self, state: PlanState) -> str:
        """Return the bucket and the fold."""
        cells = " ".join(
            f"{'+' if cell.is_put else '-'}{'abcd'[key]}{cell.revision}{'' if cell.is_kept else ' gone'}"
            for key, cell in enumerate(state.log)
            if cell.revision
        )
        cursor = "no cursor" if state.cursor == NO_CURSOR else f"at {state.cursor}"
        seen = ", seen evicting" if state.seen else ""
        return (
            f"{state.retention.name.lower()} [{cells}] from {state.first}, fold {state.stored} {cursor}, "
            f"{state.phase.name.lower()}{seen}"
        )

    def is_done(self, state: PlanState) -> bool:
        """Return whether everything was written and the fold is right."""
        return state.last == self.bounds.revisions and state.phase == Phase.WATCHING and state.stored == state.truth

    # What can happen

    def _bucket(self, state: PlanState) -> Iterator[tuple[str, PlanState]]:
        if state.last < self.bounds.revisions:
            for key, cell in enumerate(state.log):
                for is_put in (True, False) if cell.is_put else (True,):
                    written = Cell(state.last + 1, is_put, is_kept=True)
                    log = (*state.log[:key], written, *state.log[key + 1 :])
                    after = state._replace(log=log, last=written.revision)
                    is_full = sum(found.is_kept for found in log) > self.bounds.full
                    if state.retention == Retention.OVERFLOWS and is_full:
                        after = _forget(
                            after, next(index for index, found in enumerate(log) if _is_first(after, found))
                        )
                    yield f"{'put' if is_put else 'delete'} {'abcd'[key]}", after
        for key, cell in enumerate(state.log):
            if cell.is_kept and self._may_go(state, cell):
                yield f"{'abcd'[key]} goes", _forget(state, key)

    def _may_go(self, state: PlanState, cell: Cell) -> bool:
        match state.retention:
            case Retention.KEEPS:
                return not cell.is_put and _is_first(state, cell)
            case Retention.AGES:
                return _is_first(state, cell)
            case Retention.EXPIRES:
                artifact = state.last if state.artifact is None else state.artifact.cursor
                return cell.revision <= artifact and (state.cursor == NO_CURSOR or cell.revision <= state.cursor)
            case Retention.OVERFLOWS:
                return False

    def _owner(self, state: PlanState) -> Iterator[tuple[str, PlanState]]:
        if state.edits < self.bounds.edits and (state.looked or self.bounds.unseen_edits):
            for setting in self.bounds.settings:
                if setting != state.retention:
                    after = state._replace(retention=setting, edits=state.edits + 1, looked=False)
                    yield f"set to {setting.name.lower()}", after
        if state.last and (state.artifact is None or state.artifact.cursor < state.last):
            yield "export", state._replace(artifact=Artifact(state.last, state.truth))

    def _fold(self, state: PlanState) -> Iterator[tuple[str, PlanState]]:
        match state.phase:
            case Phase.STOPPED:
                yield from self._start(state)
            case Phase.LISTING:
                if state.basis is not None:
                    yield from self._list(state, state.basis)
            case Phase.WATCHING:
                yield from self._watch(state)

    def _start(self, state: PlanState) -> Iterator[tuple[str, PlanState]]:
        looked = _looked(state)
        for basis in self._bases(state):
            truth = _truth(state, basis)
            if state.cursor == NO_CURSOR:
                has_data = any(state.stored)
                if repairs.cursorless_start_needs_repair(self.bounds.mode, truth, has_data=has_data, can_restore=True):
                    yield from self._repair(state, basis)
                else:
                    yield "start anew", looked._replace(phase=Phase.LISTING, basis=basis._replace(anew=True))
            elif windows.resume_window_ok(state.cursor, state.first):
                yield "resume", looked._replace(phase=Phase.WATCHING)
            else:
                yield from self._repair(state, basis)

    def _bases(self, state: PlanState) -> Iterator[Basis]:
        """Yield what may be known of the bucket."""
        yield Basis(state.evicts, state.seen)
        is_first = state.cursor == NO_CURSOR and not any(state.stored)
        may_be_mute = self.bounds.mute_at_first if is_first else self.bounds.mute
        if may_be_mute and (state.seen or self.bounds.mode != RepairMode.RELIST):
            yield Basis(None, state.seen)

    def _repair(self, state: PlanState, basis: Basis) -> Iterator[tuple[str, PlanState]]:
        looked = _looked(state)
        match repairs.plan_repair(self.bounds.mode, _truth(state, basis)):
            case RepairPlan.RELIST_ONLY:
                yield "relist only", looked._replace(stored=_taken(state), cursor=state.last, phase=Phase.WATCHING)
            case RepairPlan.RELIST:
                yield "plan to list", looked._replace(phase=Phase.LISTING, basis=basis)
            case RepairPlan.RESTORE:
                found = state.artifact
                if found and repairs.restore_allowed(found.cursor, max(state.cursor, 0), state.first):
                    stored = _restored(state, found)
                    yield "restore", looked._replace(stored=stored, cursor=found.cursor, phase=Phase.WATCHING)
            case RepairPlan.REFUSE_RELIST:
                yield "refuse", looked._replace(phase=Phase.STOPPED)

    def _list(self, state: PlanState, basis: Basis) -> Iterator[tuple[str, PlanState]]:
        after = _looked(state)._replace(phase=Phase.STOPPED, basis=None)
        again = basis if basis.evicts is None else basis._replace(evicts=basis.evicts or state.evicts)
        if self.bounds.rechecks and not self._may_list(state, again):
            yield "list in vain", after
            return
        stored = _taken(state) if basis.anew else state.listed
        yield "list", after._replace(stored=stored, cursor=state.last, phase=Phase.WATCHING)
        if basis.anew:
            yield "list, and crash before the first checkpoint", after._replace(stored=(*stored[:1], *state.stored[1:]))

    def _may_list(self, state: PlanState, basis: Basis) -> bool:
        mode, truth = self.bounds.mode, _truth(state, basis)
        if basis.anew:
            return not repairs.cursorless_start_needs_repair(mode, truth, has_data=any(state.stored), can_restore=True)
        return repairs.plan_repair(mode, truth) == RepairPlan.RELIST

    def _watch(self, state: PlanState) -> Iterator[tuple[str, PlanState]]:
        yield "look", _looked(state)
        yield "stop", state._replace(phase=Phase.STOPPED)
        if not windows.resume_window_ok(state.cursor, state.first):
            yield "expired", state._replace(phase=Phase.STOPPED)
            return
        coming = [(cell.revision, key) for key, cell in enumerate(state.log) if cell.is_kept]
        if found := min((each for each in coming if each[0] > state.cursor), default=None):
            revision, key = found
            stored = (*state.stored[:key], state.log[key].value, *state.stored[key + 1 :])
            yield f"{'abcd'[key]} arrives", state._replace(stored=stored, cursor=revision)


def _truth(state: PlanState, basis: Basis) -> bool | None:
    if basis.evicts is None:
        return repairs.listing_truth(seen=basis.seen)
    return repairs.listing_is_truth(state.floor, evicts=basis.evicts, seen=basis.seen)


def _is_first(state: PlanState, cell: Cell) -> bool:
    return cell.is_kept and cell.revision == state.first


def _forget(state: PlanState, key: int) -> PlanState:
    log = (*state.log[:key], state.log[key]._replace(is_kept=False), *state.log[key + 1 :])
    return state._replace(log=log)


def _looked(state: PlanState) -> PlanState:
    return state._replace(seen=repairs.remember_evicting(seen=state.seen, evicts=state.evicts), looked=True)


def _taken(state: PlanState) -> tuple[int, ...]:
    """What a watch from the beginning leaves: every value and marker that is there, and the rest as it was."""
    return tuple(cell.value if cell.is_kept else old for cell, old in zip(state.log, state.stored, strict=True))


def _restored(state: PlanState, artifact: Artifact) -> tuple[int, ...]:
    stored = []
    for local, value, listed in zip(state.stored, artifact.values, state.listed, strict=True):
        # Without a cursor nobody knows of which log the fold's revisions are.
        held = Held(local if state.cursor != NO_CURSOR else None) if local else None
        other = Held(value) if value else None
        decided = repairs.restore_key(held, other, identical=local == value, listed=bool(listed))
        stored.append({KeyRepair.KEEP: local, KeyRepair.TAKE: value, KeyRepair.DELETE: 0}[decided])
    return tuple(stored)
