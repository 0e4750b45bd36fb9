"""The decision of a fold that starts or whose cursor has expired: resume, begin, pass a harmless gap, or repair; pure.

Invariants: every decision is one of `strandline.protocol`; this module takes their arguments from a bucket's retention
and a fold's cursor. An unknown retention is `None` here, and then the decision prefers a repair.
"""

from enum import Enum
from typing import NamedTuple

from strandline.fold.cursor import UNKNOWN, FoldCursor
from strandline.kv import Retention
from strandline.protocol import fold_modes, repairs, windows
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairMode, RepairPlan


class Course(Enum):
    """The next step of a fold."""

    FORGET = "forget the cursor, which is of another log, and decide again"
    RESUME = "go on after the cursor"
    SKIP_GAP = "go on where the log begins"
    ANEW = "begin with the state"
    REPAIR = "repair"


class Basis(NamedTuple):
    """The facts that judge a listing: eviction by settings (None: unknown), observed eviction, and the mode."""

    evicts: bool | None
    seen: bool
    mode: FoldMode = FoldMode.UNKNOWN


class Decision(NamedTuple):
    """The step, its reason, and the facts that judge a listing; `plan` is set for a repair."""

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
    """Return the next step of a fold at `cursor` with a decided mode; `can_restore`: there is a restorer."""
    foreign = foreign_reason(cursor, retention)
    basis = basis_of(cursor, retention)
    if foreign is not None:
        return Decision(Course.FORGET, foreign, basis)
    if not cursor.revision:
        return _decide_without_cursor(basis, retention, mode, has_data=has_data, can_restore=can_restore)
    if retention is None:
        return Decision(Course.RESUME, "the bucket does not report its retention", basis)
    evicts = retention.evicts_current_values
    if repairs.was_emptied(retention.updates, evicts=evicts, has_data=has_data):
        return decide_repair(cursor, retention, mode, "the bucket is empty: it was purged")
    if not windows.resume_window_ok(cursor.revision, retention.first_revision):
        return decide_expired(cursor, retention, mode, now_ns)
    return _decide_within(cursor, retention, basis, mode, has_data=has_data)


def basis_of(cursor: FoldCursor, retention: Retention | None) -> Basis:
    """Return the facts that judge a listing now."""
    evicts = None if retention is None else retention.evicts_current_values
    return Basis(evicts, cursor.seen_evicting, cursor.mode)


def _decide_within(
    cursor: FoldCursor, retention: Retention, basis: Basis, mode: RepairMode, *, has_data: bool
) -> Decision:
    """Return the next step of a fold whose cursor the log covers; an empty log is suspect."""
    evicts, keeps_read = retention.evicts_current_values, retention.first_revision <= cursor.revision
    if repairs.was_emptied(retention.updates, evicts=evicts, has_data=has_data, keeps_read=keeps_read):
        reason = "the bucket holds none of the entries that the fold has read: it was purged, or all were overwritten"
        decision = decide_repair(cursor, retention, mode, reason)
        if decision.plan in (RepairPlan.RELIST, RepairPlan.RELIST_ONLY):  # a suspicion does not justify a refusal
            return decision
    return Decision(Course.RESUME, f"the log reaches back to revision {cursor.revision}", basis)


def decide_expired(cursor: FoldCursor, retention: Retention | None, mode: RepairMode, now_ns: int) -> Decision:
    """Return the next step of a fold whose cursor has expired."""
    basis = basis_of(cursor, retention)
    if retention is None:
        reason = f"the log no longer reaches back to revision {cursor.revision}"
    else:
        reason = f"the log begins at revision {retention.first_revision}, the fold stands at {cursor.revision}"
        if is_young(cursor, retention, now_ns):
            return Decision(
                Course.SKIP_GAP, f"{reason}, and the gap is too recent for anything but overwritten values", basis
            )
    return Decision(Course.REPAIR, reason, basis, repairs.plan_repair(mode, truth(basis, retention)))


def decide_repair(cursor: FoldCursor, retention: Retention | None, mode: RepairMode, reason: str) -> Decision:
    """Return the repair for an explicit request, independent of the cursor."""
    basis = basis_of(cursor, retention)
    return Decision(Course.REPAIR, reason, basis, repairs.plan_repair(mode, truth(basis, retention)))


def may_list(basis: Basis, retention: Retention | None, mode: RepairMode, plan: RepairPlan | None) -> bool:
    """Return whether a listing is still valid after it was read: the bucket may have begun to evict meanwhile.

    A first copy is always valid, unless the mode requires an artifact.
    """
    if basis.evicts is not None and retention is not None:
        basis = basis._replace(evicts=basis.evicts or retention.evicts_current_values)
    known = truth(basis, retention)
    if plan is None:
        return not repairs.cursorless_start_needs_repair(mode, known, has_data=False, can_restore=False)
    return repairs.plan_repair(mode, known) == plan


def truth(basis: Basis, retention: Retention | None) -> bool | None:
    """Return whether an unlisted key must leave the fold; None if unknown."""
    if basis.evicts is None or retention is None:
        known = repairs.listing_truth(seen=basis.seen)
    else:
        known = repairs.listing_is_truth(floor(retention), evicts=basis.evicts, seen=basis.seen)
    return fold_modes.listing_counts(basis.mode, known)


def floor(retention: Retention) -> int:
    """Return the first revision of the log that judges a listing."""
    return repairs.listing_floor(retention.first_revision, retention.removed, in_order=retention.in_order)


def complete_from(retention: Retention | None) -> int:
    """Return the revision from which a new first copy is complete, 0 if unknown."""
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
    """Return whether a cursor belongs to this bucket and not to an earlier one of the same name, as far as known."""
    return not retention.identity or cursor.identity in (UNKNOWN, retention.identity)


def foreign_reason(cursor: FoldCursor, retention: Retention | None) -> str | None:
    """Return the reason why a cursor is not of this log, or None: another identity, or a log that ends before it."""
    if retention is None:
        return None
    last = retention.last_revision
    same_identity = is_same_bucket(cursor, retention)
    if not windows.is_other_log(cursor.revision, last, same_identity=same_identity):
        return None
    if same_identity:
        return f"the log ends at revision {last}, before the fold's {cursor.revision}"
    return "the bucket was created again under the same name"


def is_young(cursor: FoldCursor, retention: Retention, now_ns: int) -> bool:
    """Return whether the log has lost only overwritten values after the cursor."""
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
