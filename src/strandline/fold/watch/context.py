"""The context that all parts of one watched fold share: the bucket, the settings of its owner, and the store."""

import asyncio
from dataclasses import dataclass

from strandline.events import Event
from strandline.fold.repair.policy import RepairPolicy
from strandline.fold.scopes import Scope
from strandline.fold.watch.exports import Exports
from strandline.fold.watch.flusher import Flusher
from strandline.fold.watch.hooks import Hooks
from strandline.fold.watch.observation import Observation, observe
from strandline.fold.watch.pending_updates import Batching
from strandline.fold.watch.store_worker import StoreWorker
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
    keeper: StoreWorker
    flusher: Flusher
    until_current: bool = False
    is_forced: bool = False
    mode: FoldMode = FoldMode.UNKNOWN
    """The mode of the fold, decided at the start of a watch."""

    @property
    def reader(self) -> KvReader:
        """Return the bucket's reader."""
        return self.bucket.reader()

    @property
    def name(self) -> str:
        """Return the bucket's name."""
        return self.bucket.name

    async def look(self) -> Observation:
        """Ask the bucket for its retention."""
        return await observe(self.watcher, self.policy.clock)

    def emit(self, event: Event) -> None:
        """Tell the listeners."""
        self.hooks.events.emit(event)
