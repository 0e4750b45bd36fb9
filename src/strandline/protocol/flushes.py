"""How a fold's cursor follows what is stored: the highest revision of a batch, requeueing, and giving up.

Invariant: a stored cursor names only revisions whose data is stored with it or before it. So a batch that was not
stored is stored before anything newer. A fold resumes from the cursor that its store holds; no other is kept.
"""

from collections.abc import Sequence
from typing import TypeVar

from strandline.protocol.shards import Code

FAILURES_MAX = 16

UpdateT = TypeVar("UpdateT")


class Reopened(Code):
    """What a store that failed and was opened again says of the batch that it failed with."""

    AGAIN = 0
    STORED = 1
    MOVED = 2


def batch_high(high: int, revision: int | None) -> int:
    """Return the highest revision after one more update; one of unknown revision moves nothing.

    It protects against a cursor that is made up, or that moves back while old values are listed again.
    """
    return high if revision is None else max(high, revision)


def requeue(failed: Sequence[UpdateT], pending: Sequence[UpdateT]) -> tuple[UpdateT, ...]:
    """Return what is stored next after a batch could not be: that batch, and then what has come since.

    It protects against a hole under a later cursor, and against old values that overwrite new ones.
    """
    return (*failed, *pending)


def after_reopening(found: int, before: int, attempted: int) -> Reopened:
    """Return what becomes of a batch that failed, by the cursors: that found, that before, and that of the batch.

    If it is there after all, storing it again would begin with older values, and a crash in the middle would leave
    them under a cursor that is past them. If the store stands elsewhere, only the log can tell what it lacks. It
    protects against both.
    """
    if found == before:
        return Reopened.AGAIN
    return Reopened.STORED if found == attempted else Reopened.MOVED


def gives_up(failures: int, failures_max: int = FAILURES_MAX) -> bool:
    """Return whether so many failures in a row end the watch. It protects memory, and people who wait for nothing."""
    return failures >= failures_max
