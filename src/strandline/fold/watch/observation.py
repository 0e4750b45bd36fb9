"""Observations of a bucket: its retention at a time, and what a fold's cursor remembers of it.

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
"""How often a watched bucket is looked at."""
LOOK_S_MIN = 0.5
"""How often at the most, where values expire."""
_REFRESHES = 8
"""How often the time in a cursor is renewed within the time that messages live."""


class Observation(NamedTuple):
    """What a bucket said of itself, None if it cannot, and when."""

    retention: Retention | None
    at_ns: int


async def observe(watcher: KvWatcher, clock: Clock) -> Observation:
    """Ask a bucket for what it keeps."""
    at_ns = clock.now_ns()
    try:
        return Observation(await watcher.retention(), at_ns)
    except NotSupported:
        return Observation(None, at_ns)


def remembered(cursor: FoldCursor, look: Observation, scope: Scope, mode: FoldMode) -> FoldCursor:
    """Return a cursor that knows its mode and what the look has shown of the bucket; where it stands is the same."""
    cursor = cursor._replace(scope=scope, mode=mode)
    if look.retention is None:
        return cursor
    seen = repairs.remember_evicting(seen=cursor.seen_evicting, evicts=look.retention.evicts_current_values)
    dropping = repairs.remember_evicting(seen=cursor.seen_dropping, evicts=look.retention.drops_current_values)
    identity = look.retention.identity or cursor.identity
    return cursor._replace(seen_evicting=seen, seen_dropping=dropping, identity=identity)


def is_same_log(look: Observation, other: Observation) -> bool:
    """Return whether two looks were at the same bucket, as far as it tells."""
    if look.retention is None or other.retention is None:
        return True
    one, two = look.retention.identity, other.retention.identity
    return one == two or not (one and two)


def sighted(cursor: FoldCursor, look: Observation) -> FoldCursor:
    """Return a cursor that knows since when it has had everything, if the look says so and age alone evicts.

    A bucket that was seen to evict otherwise, or not at all, has no such time: its settings were edited since.
    """
    if look.retention is None:
        return cursor
    if not look.retention.age_only:
        return cursor._replace(since_ns=0)
    if cursor.revision < look.retention.last_revision:
        return cursor
    return cursor._replace(since_ns=max(cursor.since_ns, look.at_ns))


def is_worth_noting(cursor: FoldCursor, stored: FoldCursor, look: Observation) -> bool:
    """Return whether a cursor that differs by its time alone should be stored: now and then, where age evicts."""
    if look.retention is None or not look.retention.age_only:
        return False
    return cursor.since_ns - stored.since_ns > look.retention.age_max_ns // _REFRESHES
