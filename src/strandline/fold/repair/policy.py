"""The choices of a fold's owner: what it may be repaired from, and the mode it is kept in."""

import math
from dataclasses import dataclass, field
from typing import Protocol

from strandline.clock import Clock, SystemClock
from strandline.fold.cursor import FoldCursor
from strandline.fold.errors import ModeChanged
from strandline.fold.scopes import Scope
from strandline.fold.store import FoldReader
from strandline.kv import Overrun
from strandline.protocol import fold_modes
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairMode


class Restorer(Protocol):
    """A store of folds of the same bucket: artifacts in a store of objects, a copy on another disk."""

    async def newest(self, scope: Scope) -> FoldReader | None:
        """Return the newest fold that holds at least this scope, with the cursor that it was stored with; None if none.

        It is only read, and closed after.
        """
        ...


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """What is done when the bucket is away, and how a fold is repaired when it has missed updates.

    `fold_mode` is what the fold is to its bucket, None for what it is already, and for a new one a mirror.

    `overrun` is how a watch of prefixes notices that it has, and `clock` tells how old a cursor is. A bucket that was
    watched once may be away for `outage_s_max`; then its error ends the watch. A first failure always does.
    """

    mode: RepairMode = RepairMode.AUTO
    restorer: Restorer | None = None
    overrun: Overrun = Overrun.PROBE
    outage_s_max: float = math.inf
    clock: Clock = field(default_factory=SystemClock)
    fold_mode: FoldMode | None = None


def decided_mode(cursor: FoldCursor, bucket: str, wanted: FoldMode | None, *, asked: bool) -> FoldMode:
    """Return the mode that a fold is kept in; `ModeChanged` if it cannot be the wanted one.

    `asked` is whether the owner asked for a repair, which may make an archive a mirror.
    """
    if not fold_modes.may_change_mode(cursor.mode, wanted, asked=asked):
        raise ModeChanged(bucket, cursor.mode.name.lower())
    if wanted is not None and wanted is not FoldMode.UNKNOWN:
        return wanted
    return fold_modes.chosen_mode(cursor.mode, wanted, seen_evicting=cursor.seen_evicting)
