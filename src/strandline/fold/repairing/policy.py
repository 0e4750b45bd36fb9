"""What a fold's owner chooses: from what it may be repaired."""

import math
from dataclasses import dataclass, field
from typing import Protocol

from strandline.clock import Clock, SystemClock
from strandline.fold.scopes import Scope
from strandline.fold.store import FoldReader
from strandline.kv import Overrun
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairMode


class Restorer(Protocol):
    """Somebody who has folds of the same bucket: artifacts in a store of objects, a copy on another disk."""

    async def newest(self, scope: Scope) -> FoldReader | None:
        """Return the newest fold that holds at least this scope, with the mark that it was stored with; None if none.

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
