"""Watching a bucket into a store: `watch_applied`, and its two bounded forms.

Invariants: those of the package. The stored cursor decides where a watch begins, whatever `on_applied` received. The
store is closed at the end, after its last operation.
"""

import asyncio
from collections.abc import Callable

from strandline.errors import StrandlineError
from strandline.fold.cursor import FoldCursor
from strandline.fold.repair.policy import RepairPolicy
from strandline.fold.scopes import Scope
from strandline.fold.store import SnapshotStore
from strandline.fold.watch.context import Context
from strandline.fold.watch.exports import Exports
from strandline.fold.watch.flusher import Flusher
from strandline.fold.watch.hooks import Hooks
from strandline.fold.watch.outage import Outage
from strandline.fold.watch.pending_updates import Batching
from strandline.fold.watch.session import Outcome, Session
from strandline.fold.watch.start import WatchStart
from strandline.fold.watch.store_worker import StoreMoved, StoreWorker
from strandline.kv import CursorExpired, KvStore, NotSupported

OpenStore = Callable[[], SnapshotStore]
"""Opens the fold's store; called at the start, and again after the store has failed."""

DEFAULT_POLICY = RepairPolicy()
DEFAULT_BATCHING = Batching()


async def watch_applied(
    bucket: KvStore,
    scope: Scope,
    open_store: OpenStore,
    *,
    policy: RepairPolicy = DEFAULT_POLICY,
    batching: Batching = DEFAULT_BATCHING,
    hooks: Hooks | None = None,
    exports: Exports | None = None,
    stop: asyncio.Event | None = None,
) -> FoldCursor:
    """Keep a fold of a bucket up to date until `stop` is set or the watch is closed; return the cursor that is stored.

    The promise is the package's: the store's cursor never names what is not in the store. Raises errors that
    retries do not solve: `StoreKeptFailing`, `RepairRefused`, `ScopeChanged`, a failed listing, a bucket that is gone.
    After any error, a new watch with the same store continues at its cursor.

    A removal from the middle of the log before the fold has read the entry goes undetected: see
    `strandline.fold.repair`.
    """
    context = _context(bucket, scope, open_store, policy, batching, hooks)
    context.exports = exports or context.exports
    context.stop = stop or context.stop
    return await run(context)


async def catch_up(
    bucket: KvStore,
    scope: Scope,
    open_store: OpenStore,
    *,
    policy: RepairPolicy = DEFAULT_POLICY,
    batching: Batching = DEFAULT_BATCHING,
    hooks: Hooks | None = None,
) -> FoldCursor:
    """Watch until the fold holds the bucket's state as of the start; return the stored cursor."""
    context = _context(bucket, scope, open_store, policy, batching, hooks)
    context.until_current = True
    return await run(context)


async def repair_fold(
    bucket: KvStore,
    scope: Scope,
    open_store: OpenStore,
    *,
    policy: RepairPolicy = DEFAULT_POLICY,
    batching: Batching = DEFAULT_BATCHING,
    hooks: Hooks | None = None,
) -> FoldCursor:
    """Repair a fold, whatever its cursor, change its scope if it is another, and catch up; return the cursor.

    It is refused like any repair. `preview_repair` shows its changes.
    """
    context = _context(bucket, scope, open_store, policy, batching, hooks)
    context.until_current = context.is_forced = True
    return await run(context)


async def run(context: Context) -> FoldCursor:
    """Start watches, one after the other, until there is a reason to end."""
    keeper, attaching, outage = context.keeper, WatchStart(context), Outage(context)
    try:
        await keeper.refresh()
        expired: CursorExpired | None = None
        while not context.stop.is_set():
            try:
                attached = await attaching.attach(expired)
                outage.end()
                session = Session(context, *attached)
                outcome = await session.run()
            except StoreMoved:
                context.flusher.drop()
                expired = None
                continue
            except StrandlineError as error:
                context.flusher.drop()
                expired = None
                await outage.sit_out(error)
                continue
            if outcome in (Outcome.STOPPED, Outcome.CURRENT, Outcome.CLOSED):
                break
            attaching.lost(outcome, made_progress=session.made_progress)
            expired = session.expired
        return keeper.cursor
    finally:
        context.exports.close()
        await keeper.close()


def _context(
    bucket: KvStore, scope: Scope, open_store: OpenStore, policy: RepairPolicy, batching: Batching, hooks: Hooks | None
) -> Context:
    watcher = bucket.watcher(overrun=policy.overrun)
    if watcher is None:
        raise NotSupported(f"watching bucket {bucket.name!r}")
    hooks = hooks or Hooks()
    keeper = StoreWorker(open_store, hooks.events)
    flusher = Flusher(keeper, hooks)
    return Context(bucket, watcher, scope, policy, batching, hooks, Exports(), asyncio.Event(), keeper, flusher)
