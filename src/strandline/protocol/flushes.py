"""The cursor of a fold and its stored data: the highest revision of a batch, requeueing, and giving up.

Invariant: a stored cursor names only revisions whose data is stored with it or before it. So a batch that was not
stored is stored before anything newer. A fold resumes from the cursor that its store holds; no other is kept.
"""

from collections.abc import Sequence
from typing import TypeVar

from strandline.protocol.shards import Code

FAILURES_MAX = 16

UpdateT = TypeVar("UpdateT")


class Reopened(Code):
    """The state of a failed batch in its store after the store was opened again."""

    AGAIN = 0
    STORED = 1
    MOVED = 2


def batch_high(high: int, revision: int | None) -> int:
    """Return the highest revision after one more update; one of unknown revision moves nothing.

    It protects against a cursor without data, and against one that moves back while old values are listed again.
    """
    return high if revision is None else max(high, revision)


def requeue(failed: Sequence[UpdateT], pending: Sequence[UpdateT]) -> tuple[UpdateT, ...]:
    """Return the updates to store after a failed batch: that batch, and then the pending updates.

    It protects against a hole under a later cursor, and against old values that overwrite new ones.
    """
    return (*failed, *pending)


def after_reopening(found: int, before: int, attempted: int) -> Reopened:
    """Return the state of a failed batch, from the cursors found, before the batch, and of the batch.

    If it is there after all, storing it again would begin with older values, and a crash in the middle would leave
    them under a cursor that is past them. If the store stands elsewhere, only the log can tell what it lacks. It
    protects against both.
    """
    if found == before:
        return Reopened.AGAIN
    return Reopened.STORED if found == attempted else Reopened.MOVED


def gives_up(failures: int, failures_max: int = FAILURES_MAX) -> bool:
    """Return whether so many failures in a row end the watch. It protects memory, and reports a store that is down."""
    return failures >= failures_max
