"""The settings of a fold's owner: the source of repairs, and the fold's mode."""

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
        """Return the newest fold that covers this scope, with its cursor, or None.

        The caller only reads it, and closes it.
        """
        ...


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """Handling of outages of the bucket, and of missed updates.

    `fold_mode` is the mode of the fold; None keeps its mode, which is a mirror for a new fold.

    `overrun` is how a watch of prefixes detects missed updates, and `clock` gives the age of a cursor. A bucket that
    was watched once may be unreachable for `outage_s_max`; then its error ends the watch. A first failure always does.
    """

    mode: RepairMode = RepairMode.AUTO
    restorer: Restorer | None = None
    overrun: Overrun = Overrun.PROBE
    outage_s_max: float = math.inf
    clock: Clock = field(default_factory=SystemClock)
    fold_mode: FoldMode | None = None


def decided_mode(cursor: FoldCursor, bucket: str, wanted: FoldMode | None, *, asked: bool) -> FoldMode:
    """Return the mode of a fold; `ModeChanged` if it cannot change to the wanted one.

    `asked`: the owner asked for a repair, which may turn an archive into a mirror.
    """
    if not fold_modes.may_change_mode(cursor.mode, wanted, asked=asked):
        raise ModeChanged(bucket, cursor.mode.name.lower())
    if wanted is not None and wanted is not FoldMode.UNKNOWN:
        return wanted
    return fold_modes.chosen_mode(cursor.mode, wanted, seen_evicting=cursor.seen_evicting)
