"""What all parts of one watched fold share: the bucket, the choices of its owner, and the way to the store."""

import asyncio
from dataclasses import dataclass

from strandline.events import Event
from strandline.fold.repairing.policy import RepairPolicy
from strandline.fold.scopes import Scope
from strandline.fold.watching.batching import Batching
from strandline.fold.watching.exports import Exports
from strandline.fold.watching.flushing import Flusher
from strandline.fold.watching.keeper import StoreKeeper
from strandline.fold.watching.looking import Look, look_at
from strandline.fold.watching.settings import Hooks
from strandline.kv import KvReader, KvStore, KvWatcher
from strandline.protocol.fold_modes import FoldMode


@dataclass(slots=True)
class Context:
    """One watched fold."""

    bucket: KvStore
    watcher: KvWatcher
    scope: Scope
    policy: RepairPolicy
    batching: Batching
    hooks: Hooks
    exports: Exports
    stop: asyncio.Event
    keeper: StoreKeeper
    flusher: Flusher
    until_current: bool = False
    is_forced: bool = False
    mode: FoldMode = FoldMode.UNKNOWN
    """What the fold is to its bucket, decided when a watch begins."""

    @property
    def reader(self) -> KvReader:
        """Return the bucket's reader."""
        return self.bucket.reader()

    @property
    def name(self) -> str:
        """Return the bucket's name."""
        return self.bucket.name

    async def look(self) -> Look:
        """Ask the bucket for what it keeps."""
        return await look_at(self.watcher, self.policy.clock)

    def emit(self, event: Event) -> None:
        """Tell the listeners."""
        self.hooks.events.emit(event)
