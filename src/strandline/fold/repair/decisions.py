"""What a fold does when it starts, or has lost its place: resume, begin anew, pass a harmless gap, repair; pure.

Invariants: every decision is one of `strandline.protocol`; this only fetches their arguments from a bucket's retention
and a fold's cursor. A bucket that cannot tell its retention is `None` here, and what follows errs towards a repair.
"""

from enum import Enum
from typing import NamedTuple

from strandline.fold.cursor import UNKNOWN, FoldCursor
from strandline.kv import Retention
from strandline.protocol import fold_modes, repairs, windows
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairMode, RepairPlan


class Course(Enum):
    """How a fold goes on."""

    FORGET = "forget the cursor, which is of another log, and decide again"
    RESUME = "go on after the cursor"
    SKIP_GAP = "go on where the log begins"
    ANEW = "begin with the state"
    REPAIR = "repair"


class Basis(NamedTuple):
    """What a listing goes by: if the bucket says that it evicts, None if it is mute; if it was seen to; the mode."""

    evicts: bool | None
    seen: bool
    mode: FoldMode = FoldMode.UNKNOWN


class Decision(NamedTuple):
    """The course, why, and for a listing what it goes by; `plan` is there for a repair."""

    course: Course
    reason: str
    basis: Basis
    plan: RepairPlan | None = None


def decide(
    cursor: FoldCursor,
    retention: Retention | None,
    mode: RepairMode,
    now_ns: int,
    *,
    has_data: bool,
    can_restore: bool = False,
) -> Decision:
    """Return how a fold goes on that stands at `cursor`, whose mode is decided; `can_restore`: there is a restorer."""
    foreign = foreign_reason(cursor, retention)
    basis = basis_of(cursor, retention)
    if foreign is not None:
        return Decision(Course.FORGET, foreign, basis)
    if not cursor.revision:
        return _decide_without_cursor(basis, retention, mode, has_data=has_data, can_restore=can_restore)
    if retention is None:
        return Decision(Course.RESUME, "the bucket does not tell how far it reaches back", basis)
    evicts = retention.evicts_current_values
    if repairs.was_emptied(retention.updates, evicts=evicts, has_data=has_data):
        return decide_repair(cursor, retention, mode, "the bucket holds nothing any more: it was purged")
    if not windows.resume_window_ok(cursor.revision, retention.first_revision):
        return decide_expired(cursor, retention, mode, now_ns)
    return _decide_within(cursor, retention, basis, mode, has_data=has_data)


def basis_of(cursor: FoldCursor, retention: Retention | None) -> Basis:
    """Return what a listing goes by now."""
    evicts = None if retention is None else retention.evicts_current_values
    return Basis(evicts, cursor.seen_evicting, cursor.mode)


def _decide_within(
    cursor: FoldCursor, retention: Retention, basis: Basis, mode: RepairMode, *, has_data: bool
) -> Decision:
    """Return how a fold goes on that the log reaches back to; one that holds nothing of what was read is suspect."""
    evicts, keeps_read = retention.evicts_current_values, retention.first_revision <= cursor.revision
    if repairs.was_emptied(retention.updates, evicts=evicts, has_data=has_data, keeps_read=keeps_read):
        reason = "the bucket holds nothing any more of what the fold has read: it was purged, or all was overwritten"
        decision = decide_repair(cursor, retention, mode, reason)
        if decision.plan in (RepairPlan.RELIST, RepairPlan.RELIST_ONLY):  # a mere suspicion is not worth a refusal
            return decision
    return Decision(Course.RESUME, f"the log reaches back to revision {cursor.revision}", basis)


def decide_expired(cursor: FoldCursor, retention: Retention | None, mode: RepairMode, now_ns: int) -> Decision:
    """Return how a fold goes on whose cursor has fallen out of the log."""
    basis = basis_of(cursor, retention)
    if retention is None:
        reason = f"the log no longer reaches back to revision {cursor.revision}"
    else:
        reason = f"the log begins at revision {retention.first_revision}, the fold stands at {cursor.revision}"
        if is_young(cursor, retention, now_ns):
            return Decision(Course.SKIP_GAP, f"{reason}, which is too young for more than overwritten values", basis)
    return Decision(Course.REPAIR, reason, basis, repairs.plan_repair(mode, truth(basis, retention)))


def decide_repair(cursor: FoldCursor, retention: Retention | None, mode: RepairMode, reason: str) -> Decision:
    """Return the repair of an explicit request, whatever the cursor."""
    basis = basis_of(cursor, retention)
    return Decision(Course.REPAIR, reason, basis, repairs.plan_repair(mode, truth(basis, retention)))


def may_list(basis: Basis, retention: Retention | None, mode: RepairMode, plan: RepairPlan | None) -> bool:
    """Return whether a listing still counts after it was read: the bucket may have begun to evict meanwhile.

    A first copy counts whatever it lacks, unless an artifact is all that will do.
    """
    if basis.evicts is not None and retention is not None:
        basis = basis._replace(evicts=basis.evicts or retention.evicts_current_values)
    known = truth(basis, retention)
    if plan is None:
        return not repairs.cursorless_start_needs_repair(mode, known, has_data=False, can_restore=False)
    return repairs.plan_repair(mode, known) == plan


def truth(basis: Basis, retention: Retention | None) -> bool | None:
    """Return whether "not listed" means "not in the fold", None if that is not known."""
    if basis.evicts is None or retention is None:
        known = repairs.listing_truth(seen=basis.seen)
    else:
        known = repairs.listing_is_truth(floor(retention), evicts=basis.evicts, seen=basis.seen)
    return fold_modes.listing_counts(basis.mode, known)


def floor(retention: Retention) -> int:
    """Return the beginning of the log that a listing may be judged by."""
    return repairs.listing_floor(retention.first_revision, retention.removed, in_order=retention.in_order)


def complete_from(retention: Retention | None) -> int:
    """Return from which revision on a first copy is complete that was made until now, 0 if that is not known."""
    if retention is None:
        return 0
    return fold_modes.first_copy_is_complete_from(
        retention.first_revision,
        retention.last_revision,
        evicts=retention.evicts_current_values,
        in_order=retention.in_order,
        removed=retention.removed,
    )


def is_same_bucket(cursor: FoldCursor, retention: Retention) -> bool:
    """Return whether a cursor is of this bucket and of none before it under the name, as far as they tell."""
    return not retention.identity or cursor.identity in (UNKNOWN, retention.identity)


def foreign_reason(cursor: FoldCursor, retention: Retention | None) -> str | None:
    """Return why a cursor is not of this log, None if it is: another identity, or a log that ends before it."""
    if retention is None:
        return None
    last = retention.last_revision
    same_identity = is_same_bucket(cursor, retention)
    if not windows.is_other_log(cursor.revision, last, same_identity=same_identity):
        return None
    if same_identity:
        return f"the log ends at revision {last}, before the fold's {cursor.revision}"
    return "the bucket was made anew under the same name"


def is_young(cursor: FoldCursor, retention: Retention, now_ns: int) -> bool:
    """Return whether what the log lost after the cursor can only be overwritten values."""
    if not cursor.since_ns or now_ns < cursor.since_ns:
        return False
    age_ns = now_ns - cursor.since_ns
    return windows.gap_holds_no_eviction(retention.age_max_ns, age_ns, age_only=retention.age_only)


def _decide_without_cursor(
    basis: Basis, retention: Retention | None, mode: RepairMode, *, has_data: bool, can_restore: bool
) -> Decision:
    known = truth(basis, retention)
    if not repairs.cursorless_start_needs_repair(mode, known, has_data=has_data, can_restore=can_restore):
        return Decision(Course.ANEW, "the fold has no cursor", basis)
    reason = "the fold has data but no cursor" if has_data else "the fold is empty, and the bucket has evicted"
    return Decision(Course.REPAIR, reason, basis, repairs.plan_repair(mode, known))
