"""Folds and retention: a mirror follows its bucket, an archive keeps the values that the bucket drops.

A mirror's truth is the bucket: its listing is always right, and whatever left the bucket leaves the fold. An archive's
truth is every write minus every real delete: age, size and count are not deletes, and a purge of the stream is one only
where it cannot be mistaken for them.

Invariants: retention removes from the front of a log, and so does a purge of a whole stream. So an entry below the
log's first revision is no longer in it, whatever removed it; no clock is asked. Only a time to live of single values
removes from the middle, and for that an entry has a deadline. Nothing is removed before the fold holds everything up to
where the log ended when its beginning was read: until then a newer value of the key may be on its way.
"""

from strandline.protocol import windows
from strandline.protocol.shards import Code


class FoldMode(Code):
    """A fold's relation to its bucket; folds older than modes are `UNKNOWN`, and treated as archives."""

    UNKNOWN = 0
    MIRROR = 1
    ARCHIVE = 2


def chosen_mode(stored: FoldMode, wanted: FoldMode | None, *, seen_evicting: bool) -> FoldMode:
    """Return the mode of a fold: the stored one, else the wanted one, else a mirror.

    A fold older than modes was kept as an archive. If its bucket was seen to evict it stays one, because a mirror would
    drop the evicted values; else both modes hold the same. It protects the only copy of evicted values.
    """
    if stored is not FoldMode.UNKNOWN:
        return stored
    if wanted is not None and wanted is not FoldMode.UNKNOWN:
        return wanted
    return FoldMode.ARCHIVE if seen_evicting else FoldMode.MIRROR


def may_change_mode(stored: FoldMode, wanted: FoldMode | None, *, asked: bool) -> bool:
    """Return whether a fold may be kept in the wanted mode; `asked` is whether its owner asked for a repair.

    An archive becomes a mirror by a repair, which drops what the bucket lacks. A mirror never becomes an archive: what
    it dropped is not in it. It protects archived values against a flag, and archives against holes.
    """
    if wanted in (None, FoldMode.UNKNOWN, stored) or stored is FoldMode.UNKNOWN:
        return True
    return asked and wanted is FoldMode.MIRROR


def listing_counts(mode: FoldMode, truth: bool | None) -> bool | None:  # noqa: FBT001 - three values
    """Return whether "not listed" means "not in the fold"; `truth` is whether it means "deleted" (`listing_is_truth`).

    A mirror follows the bucket, however a key was removed. It protects archives only.
    """
    return True if mode is FoldMode.MIRROR else truth


def is_settled(cursor: int, last: int) -> bool:
    """Return whether a fold at `cursor` holds everything up to the end of the log at the last check.

    It protects readers of the fold against keys that vanish for a moment, because a newer value is on its way.
    """
    return cursor >= last


def has_left(mode: FoldMode, revision: int, expires_ns: int, *, first: int, now_ns: int, drops: bool) -> bool:
    """Return whether an entry of a settled fold has left the bucket in a way that the fold follows.

    `drops` is whether the bucket removes current values by age, size or count, or was ever seen to. An entry of unknown
    revision (0) stays. Of an archive only a purge of the stream removes entries, and only where nothing else can have:
    not in a bucket that drops, and not what has a time to live. It protects mirrors against keys that stay for ever,
    and archives against retention.
    """
    is_below = 0 < revision < first
    if mode is FoldMode.MIRROR:
        return is_below or 0 < expires_ns <= now_ns
    return is_below and not drops and not expires_ns


def follows_expiry(mode: FoldMode) -> bool:
    """Return whether a server's marker of an expired value removes it from the fold.

    Such a marker tells of retention, and not of a delete. It protects archives.
    """
    return mode is FoldMode.MIRROR


def first_copy_is_complete_from(first: int, last: int, *, evicts: bool, in_order: bool, removed: int) -> int:
    """Return the first revision from which a first copy has every write that was not deleted since.

    Everything, where the bucket never evicts, or has removed nothing yet. What is removed in order is missing before
    the log's beginning; expiry in the middle of it is not known, so nothing up to its end counts as complete. It
    protects queries of an archive about the past.
    """
    if not evicts or (windows.resume_window_ok(0, first) and (in_order or not removed)):
        return 1
    return first if in_order else last + 1
