"""Looks at a bucket: what it keeps, when that was, and what a fold learns from it.

Invariant: the time of a look is taken before the bucket is asked, so that whatever lies after its `last_revision` was
written later than that.
"""

from typing import NamedTuple

from strandline.clock import Clock
from strandline.fold.marks import Mark
from strandline.fold.scopes import Scope
from strandline.kv import KvWatcher, NotSupported, Retention
from strandline.protocol import repairs
from strandline.protocol.fold_modes import FoldMode

LOOK_S = 5.0
"""How often a watched bucket is looked at."""
LOOK_S_MIN = 0.5
"""How often at the most, where values expire."""
_REFRESHES = 8
"""How often the time in a mark is renewed within the time that messages live."""


class Look(NamedTuple):
    """What a bucket said of itself, None if it cannot, and when."""

    retention: Retention | None
    at_ns: int


async def look_at(watcher: KvWatcher, clock: Clock) -> Look:
    """Ask a bucket for what it keeps."""
    at_ns = clock.now_ns()
    try:
        return Look(await watcher.retention(), at_ns)
    except NotSupported:
        return Look(None, at_ns)


def remembered(mark: Mark, look: Look, scope: Scope, mode: FoldMode) -> Mark:
    """Return a mark that knows its mode and what the look has shown of the bucket; where it stands is the same."""
    mark = mark._replace(scope=scope, mode=mode)
    if look.retention is None:
        return mark
    seen = repairs.remember_evicting(seen=mark.seen_evicting, evicts=look.retention.evicts_current_values)
    dropping = repairs.remember_evicting(seen=mark.seen_dropping, evicts=look.retention.drops_current_values)
    identity = look.retention.identity or mark.identity
    return mark._replace(seen_evicting=seen, seen_dropping=dropping, identity=identity)


def is_same_log(look: Look, other: Look) -> bool:
    """Return whether two looks were at the same bucket, as far as it tells."""
    if look.retention is None or other.retention is None:
        return True
    one, two = look.retention.identity, other.retention.identity
    return one == two or not (one and two)


def sighted(mark: Mark, look: Look) -> Mark:
    """Return a mark that knows since when it has had everything, if the look says so and age alone evicts.

    A bucket that was seen to evict otherwise, or not at all, has no such time: its settings were edited since.
    """
    if look.retention is None:
        return mark
    if not look.retention.age_only:
        return mark._replace(since_ns=0)
    if mark.revision < look.retention.last_revision:
        return mark
    return mark._replace(since_ns=max(mark.since_ns, look.at_ns))


def is_worth_noting(mark: Mark, stored: Mark, look: Look) -> bool:
    """Return whether a mark that differs by its time alone should be stored: now and then, where age evicts."""
    if look.retention is None or not look.retention.age_only:
        return False
    return mark.since_ns - stored.since_ns > look.retention.age_max_ns // _REFRESHES
