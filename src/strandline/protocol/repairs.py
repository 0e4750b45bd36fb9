"""The repair of a fold whose cursor has fallen out of the log: its source, its steps, and the decision for each key.

For a mirror the listing is the truth (`fold_modes`). For an archive the truth is every write minus every real delete.
Where a bucket evicts current values (by age, by a time to live, because it is full), a key that is not listed may
merely have aged out; then the folds are the only full copies, and a repair comes from one of them, as an artifact.

Invariants: nothing is deleted on the word of a listing that is not the truth; a fold never moves back; what a repair
did not finish is repeated, because the cursor that calls it complete is written last (`next_repair_step`).
"""

from typing import NamedTuple

from strandline.protocol import windows
from strandline.protocol.shards import Code


class RepairMode(Code):
    """The source of a repair; `AUTO` takes the listing where it is the truth, and an artifact elsewhere."""

    NONE = 0
    RELIST = 1
    RESTORE = 2
    AUTO = 3


class RepairPlan(Code):
    """The kind of repair: list again without a diff, diff with the listing, diff with an artifact, or refuse."""

    RELIST_ONLY = 0
    RELIST = 1
    RESTORE = 2
    REFUSE_RELIST = 3


class KeyRepair(Code):
    """The repair of one key of the fold."""

    KEEP = 0
    TAKE = 1
    DELETE = 2


class RepairStep(Code):
    """The steps of a repair, in their order."""

    DRAIN = 0
    FLUSH = 1
    DIFF = 2
    COMMIT = 3
    RESUME = 4


class Held(NamedTuple):
    """A key that is there, and its revision; None if that is unknown."""

    revision: int | None


def listing_is_truth(first: int, *, evicts: bool, seen: bool) -> bool:
    """Return whether "not listed" means "deleted".

    It does if the bucket never evicts current values, and has not been seen to (settings can be edited back: `seen`);
    or if it could, but its log still begins with its first revision. It protects live keys that have aged out. The
    last clause holds for evictions from the beginning of a log only (`listing_floor`), and only if the beginning is
    read again after the listing.
    """
    return not seen and (not evicts or windows.resume_window_ok(0, first))


def listing_truth(*, seen: bool) -> bool | None:
    """Return the same for a source that cannot tell its retention: False if it was seen to evict, else unknown.

    It protects a fold that remembers against a source that has forgotten how to say.
    """
    return False if seen else None


def listing_floor(first: int, removed: int, *, in_order: bool) -> int:
    """Return the beginning of the log that `listing_is_truth` may go by; `removed` counts the revisions missing in it.

    Evictions in order move the log's beginning. A time to live of single messages does not: it takes from the middle,
    and the beginning looks untouched. It protects keys that went that way; an overwritten value looks the same, and
    only sends a repair to an artifact.
    """
    return first if in_order or not removed else max(first, 2)


def was_emptied(updates: int | None, *, evicts: bool, has_data: bool, keeps_read: bool = True) -> bool:
    """Return whether a log was purged: it never evicts current values, and holds none, though the fold has some.

    A purge leaves no markers, and if the fold had read everything before, no hole after its cursor either. If the log
    holds updates again, but none that the fold has read (`keeps_read`), it was purged, or every key was overwritten:
    that costs a repair of about what has to be read anyhow. It protects against keys that stay for ever.
    """
    return (updates == 0 or not keeps_read) and not evicts and has_data


def remember_evicting(*, seen: bool, evicts: bool) -> bool:
    """Return whether a fold remembers its bucket as evicting, after a read of the bucket's settings, for ever.

    Whatever evicts now may have evicted when it is looked at again, with other settings. It protects against those.
    """
    return seen or evicts


def plan_repair(mode: RepairMode, truth: bool | None) -> RepairPlan:  # noqa: FBT001 - three values, and the second of two
    """Return how an expired fold is repaired; `truth` is whether the listing is, None if unknown.

    It protects live keys against a diff with a listing that lacks them; where the truth is unknown, a caller may still
    choose `RELIST`.
    """
    match mode:
        case RepairMode.NONE:
            return RepairPlan.RELIST_ONLY
        case RepairMode.RELIST:
            return RepairPlan.REFUSE_RELIST if truth is False else RepairPlan.RELIST
        case RepairMode.RESTORE:
            return RepairPlan.RESTORE
        case RepairMode.AUTO:
            return RepairPlan.RELIST if truth else RepairPlan.RESTORE


def cursorless_start_needs_repair(mode: RepairMode, truth: bool | None, *, has_data: bool, can_restore: bool) -> bool:  # noqa: FBT001 - as above
    """Return whether a fold without a cursor must be repaired before it watches.

    One with data was torn at its first checkpoint, and a listing never removes what it does not name. An empty one of
    a bucket that has evicted is restored where there may be an artifact (`can_restore`), or where nothing else will do;
    without, it begins with what is there, and remembers from where on it is complete. It protects both.
    """
    if mode == RepairMode.NONE:
        return False
    seeds = mode == RepairMode.RESTORE or (mode == RepairMode.AUTO and can_restore)
    return has_data or (seeds and truth is False)


def restore_ahead(artifact: int, local: int) -> bool:
    """Return whether an artifact is newer than the fold, by their cursors. It protects a fold against moving back."""
    return artifact > local


def restore_allowed(artifact: int, local: int, first: int) -> bool:
    """Return whether a fold may be restored from an artifact: it is ahead, and the log goes on where it ends.

    It protects against a hole between the artifact and the log, which nothing could fill.
    """
    return restore_ahead(artifact, local) and windows.resume_window_ok(artifact, first)


def restore_key(local: Held | None, artifact: Held | None, *, identical: bool, listed: bool) -> KeyRepair:
    """Return the decision of a restore for a key that the fold or the artifact has.

    The newer revision wins; without both, what is not identical is taken. What only the fold has is deleted, unless
    the bucket lists it: then it was written after the artifact, and will be delivered. It protects readers of the
    fold against values that go back and keys that vanish for a moment.
    """
    if artifact is None:
        return KeyRepair.KEEP if local is None or listed else KeyRepair.DELETE
    if local is None:
        return KeyRepair.TAKE
    if local.revision is not None and artifact.revision is not None and local.revision != artifact.revision:
        return KeyRepair.KEEP if local.revision > artifact.revision else KeyRepair.TAKE
    return KeyRepair.KEEP if identical else KeyRepair.TAKE


def next_repair_step(*, undrained: bool, unflushed: bool, undiffed: bool, uncommitted: bool) -> RepairStep:
    """Return the next step of a repair, from the work left: updates to receive, updates to store, keys, the cursor.

    An update that is stored after the diff would bring back what the diff removed; a cursor before the diff would call
    half a diff complete; a watch before the diff would deliver what the diff then removes.
    """
    if undrained:
        return RepairStep.DRAIN
    if unflushed:
        return RepairStep.FLUSH
    if undiffed:
        return RepairStep.DIFF
    return RepairStep.COMMIT if uncommitted else RepairStep.RESUME
