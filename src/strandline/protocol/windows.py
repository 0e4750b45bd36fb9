"""The window of a log: whether a reader may resume from a revision, and whether it missed something.

A log begins at its first revision that is kept. A server does not refuse a reader that begins below: it silently
starts at the first revision it has. So the reader checks before it attaches, after, and whenever a revision is skipped.

Invariants: nothing wraps at the last revision of 64 bits; a doubtful case counts as expired, which only costs a repair.

These checks cannot see a removal in the middle that leaves the beginning of the log where it was. An overwritten value
is no loss, for the value that replaced it follows; a delete marker that is purged, or that has a time to live, is one.
"""

REVISION_MAX = (1 << 64) - 1


def resume_window_ok(revision: int, first: int) -> bool:
    """Return whether a reader that has everything up to a revision misses nothing of a log that begins at `first`.

    It protects against the hole between a cursor and a log that was cut above it: deletes in there are lost.
    """
    return first <= min(revision + 1, REVISION_MAX)


def resume_start_sequence(revision: int) -> int | None:
    """Return the revision from which a reader resumes; None after the last possible one.

    It protects against a start that wraps to 0, which would read everything again as if it were new.
    """
    return revision + 1 if revision < REVISION_MAX else None


def gap_holds_no_eviction(age_max_ns: int, cursor_age_ns: int, *, age_only: bool) -> bool:
    """Return whether the hole after a cursor can only be overwritten values, because all in it is too young to expire.

    True only if age alone evicts, and the cursor is at most half as old as what expires: the other half is for clocks
    that disagree. It protects a young fold of a bucket that evicts from a repair that it does not need.
    """
    return age_only and age_max_ns > 0 and 2 * cursor_age_ns <= age_max_ns


def is_other_log(revision: int, last: int, *, same_identity: bool) -> bool:
    """Return whether a cursor is not one of this log: the log was made anew, or ends before it.

    Such a cursor is forgotten first, durably; then the fold is one without. It protects against a log that grows past
    the old cursor, which would look as if nothing had happened.
    """
    return not same_identity or revision > last


def is_gapped(frontier: int, revision: int) -> bool:
    """Return whether revisions were skipped before this one, so that the log's beginning must be looked at first.

    It protects the evidence: a reader that goes on past a hole has afterwards a frontier that looks sound.
    """
    return revision > min(frontier + 1, REVISION_MAX)


def proven_frontier(delivered: int, sentinel: int, awaited: int | None) -> int:
    """Return the revision up to which a reader of some subjects misses nothing, by a sentinel that reads all heads.

    `delivered` is the reader's last revision, `sentinel` the sentinel's, `awaited` the first revision of the reader's
    subjects that the sentinel has seen and the reader has not. Revisions of others do not hold the frontier back, so
    that a quiet reader does not look overrun; one of its own does, until it comes.
    """
    return max(delivered, sentinel if awaited is None else awaited - 1)
