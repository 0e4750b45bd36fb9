"""Observations of a bucket: its retention at a time, and the parts that a fold's cursor stores.

Invariant: the time of an observation is taken before the bucket is asked, so that every update
after its `last_revision` was written later than that.
"""

from typing import NamedTuple

from strandline.clock import Clock
from strandline.fold.cursor import FoldCursor
from strandline.fold.scopes import Scope
from strandline.kv import KvWatcher, NotSupported, Retention
from strandline.protocol import repairs
from strandline.protocol.fold_modes import FoldMode

LOOK_S = 5.0
"""Interval of observations of a watched bucket."""
LOOK_S_MIN = 0.5
"""Minimum interval of observations if values expire."""
_REFRESHES = 8
"""Number of renewals of a cursor's time within the lifetime of messages."""


class Observation(NamedTuple):
    """The retention of a bucket (None: unknown) at a time."""

    retention: Retention | None
    at_ns: int


async def observe(watcher: KvWatcher, clock: Clock) -> Observation:
    """Ask a bucket for its retention."""
    at_ns = clock.now_ns()
    try:
        return Observation(await watcher.retention(), at_ns)
    except NotSupported:
        return Observation(None, at_ns)


def remembered(cursor: FoldCursor, look: Observation, scope: Scope, mode: FoldMode) -> FoldCursor:
    """Return the cursor with its mode and the facts of an observation; its position stays."""
    cursor = cursor._replace(scope=scope, mode=mode)
    if look.retention is None:
        return cursor
    seen = repairs.remember_evicting(seen=cursor.seen_evicting, evicts=look.retention.evicts_current_values)
    dropping = repairs.remember_evicting(seen=cursor.seen_dropping, evicts=look.retention.drops_current_values)
    identity = look.retention.identity or cursor.identity
    return cursor._replace(seen_evicting=seen, seen_dropping=dropping, identity=identity)


def is_same_log(look: Observation, other: Observation) -> bool:
    """Return whether two observations are of the same bucket, as far as known."""
    if look.retention is None or other.retention is None:
        return True
    one, two = look.retention.identity, other.retention.identity
    return one == two or not (one and two)


def sighted(cursor: FoldCursor, look: Observation) -> FoldCursor:
    """Return the cursor with the time since which it is complete, if only age evicts and the observation proves it.

    A bucket with another eviction, or none, has no such time: its settings were edited.
    """
    if look.retention is None:
        return cursor
    if not look.retention.age_only:
        return cursor._replace(since_ns=0)
    if cursor.revision < look.retention.last_revision:
        return cursor
    return cursor._replace(since_ns=max(cursor.since_ns, look.at_ns))


def is_worth_noting(cursor: FoldCursor, stored: FoldCursor, look: Observation) -> bool:
    """Return whether to store a cursor that differs only in its time: now and then, if age evicts."""
    if look.retention is None or not look.retention.age_only:
        return False
    return cursor.since_ns - stored.since_ns > look.retention.age_max_ns // _REFRESHES
