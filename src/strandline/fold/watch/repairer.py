"""Repairs, carried out: what a diff finds goes the way of all updates, through the hooks into the store.

Invariants: when a repair begins, everything received is stored. Diffs are stored in chunks under the old cursor; after
the last, the cursor of an artifact is. So a crash in the middle leaves a fold that is repaired again. The order is the
one of `repairs.next_repair_step`, and of nothing else.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from time import perf_counter

from strandline.errors import Closed
from strandline.fold.cursor import FoldCursor
from strandline.fold.errors import RepairRefused
from strandline.fold.events import RepairBegan, RepairEnded
from strandline.fold.records import FoldEntry
from strandline.fold.repair.decisions import Decision, may_list
from strandline.fold.repair.from_artifact import checked_mark, for_each_taken, vanished_keys
from strandline.fold.repair.from_listing import deletes, list_keys, stale_keys
from strandline.fold.store import FoldReader
from strandline.fold.watch.context import Context
from strandline.fold.watch.observation import Observation, is_same_log, remembered
from strandline.kv import UpdateBatch
from strandline.protocol import repairs, windows
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairPlan, RepairStep

Work = Callable[[], Awaitable[object]]
NO_RESTORER = (
    "give a restorer; or, if it may lack what was evicted and keep what was deleted, use RepairMode.NONE; "
    "or begin anew at another path"
)


class Repairer:
    """The repairs of one watched fold."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def refused(self, decision: Decision) -> RepairRefused:
        """Return the reason against a repair from a listing."""
        reason = f"{decision.reason}, and the bucket has evicted values, so its listing is incomplete"
        return RepairRefused(self._context.name, reason, hint=NO_RESTORER)

    async def relist(self, decision: Decision) -> int | None:
        """Delete keys that the bucket does not list; return a revision that the listing includes, if known.

        None if the listing turned out to be incomplete: then nothing was deleted. A fold without a cursor may have had
        another scope, so all of its keys are checked.
        """
        context, started = self._context, perf_counter()
        context.emit(RepairBegan(RepairPlan.RELIST, decision.reason))
        before = (await context.look()).retention
        listed = await list_keys(context.reader, context.scope)
        after = (await context.look()).retention
        if not may_list(decision.basis, after, context.policy.mode, RepairPlan.RELIST):
            return None
        whole = not context.keeper.cursor.revision
        stale = await context.keeper.run(lambda: stale_keys(context.keeper.store, context.scope, listed, whole=whole))
        await self._in_order(self._deleting(stale, context.keeper.cursor))
        context.emit(RepairEnded(RepairPlan.RELIST, 0, len(stale), perf_counter() - started))
        return windows.REVISION_MAX if before is None else before.last_revision

    async def restore(self, decision: Decision, look: Observation) -> bool:
        """Restore the fold from the newest artifact, its cursor last; do nothing if the bucket was created again.

        False if there is no artifact and the fold may begin with the bucket's state.
        """
        context = self._context
        if context.policy.restorer is None:
            raise self.refused(decision)
        artifact = await context.policy.restorer.newest(context.scope)
        if artifact is None:
            if self._may_begin():
                return False
            raise RepairRefused(context.name, f"{decision.reason}, and there is no artifact", hint=NO_RESTORER)
        try:
            await self._restore_from(artifact, decision, look)
        finally:
            await asyncio.to_thread(artifact.close)
        return True

    def _may_begin(self) -> bool:
        """Return whether the fold is empty, and may lack values that the bucket evicted before the first copy."""
        keeper, mode = self._context.keeper, self._context.policy.mode
        needs = repairs.cursorless_start_needs_repair(mode, False, has_data=keeper.has_data, can_restore=False)  # noqa: FBT003 - a row of a table
        return not keeper.cursor.revision and not needs

    async def _restore_from(self, artifact: FoldReader, decision: Decision, decided_by: Observation) -> None:
        context, started = self._context, perf_counter()
        local, look = context.keeper.cursor, await context.look()
        if not is_same_log(decided_by, look):
            return
        theirs = checked_mark(artifact, context.name, context.scope, local, look.retention, context.mode)
        context.emit(RepairBegan(RepairPlan.RESTORE, decision.reason))
        listed = await list_keys(context.reader, context.scope)
        scope, whole = context.scope, not local.revision
        gone = await asyncio.to_thread(
            lambda: vanished_keys(artifact, context.keeper.store, scope, listed, whole=whole)
        )
        cursor = _restored_mark(remembered(local, look, scope, context.mode), theirs)
        taken = 0

        async def take() -> None:
            nonlocal taken
            taken = await self._take(artifact, local)

        await self._in_order(chain([take], self._deleting(gone, local)), partial(context.flusher.store_fully, cursor))
        context.emit(RepairEnded(RepairPlan.RESTORE, taken, len(gone), perf_counter() - started))

    def _deleting(self, keys: Sequence[bytes], cursor: FoldCursor) -> Iterator[Work]:
        return (partial(self._context.flusher.flush_fully, chunk, cursor) for chunk in deletes(keys))

    async def _in_order(self, diffs: Iterator[Work], commit: Work | None = None) -> None:
        """Store the parts of a diff, then the cursor that completes it, by `next_repair_step`."""
        flusher, diff = self._context.flusher, next(diffs, None)
        while True:
            step = repairs.next_repair_step(
                undrained=False,  # nothing is watched now
                unflushed=bool(flusher.unstored),
                undiffed=diff is not None,
                uncommitted=commit is not None,
            )
            if step is RepairStep.FLUSH:
                await flusher.store_fully(self._context.keeper.cursor)
            elif step is RepairStep.DIFF and diff is not None:
                await diff()
                diff = next(diffs, None)
            elif step is RepairStep.COMMIT and commit is not None:
                await commit()
                commit = None
            else:
                return

    async def _take(self, artifact: FoldReader, local: FoldCursor) -> int:
        """Store the artifact's entries; a thread reads them and waits until each chunk is stored."""
        flusher, keeper, loop = self._context.flusher, self._context.keeper, asyncio.get_running_loop()
        is_over = threading.Event()

        def take(chunk: UpdateBatch) -> None:
            if is_over.is_set():
                raise Closed("the repair")
            asyncio.run_coroutine_threadsafe(flusher.flush_fully(chunk, local), loop).result()

        def multi_get(keys: Sequence[bytes]) -> list[FoldEntry | None]:
            return keeper.store.multi_get(keys)

        comparable = bool(local.revision)
        reading = asyncio.ensure_future(
            asyncio.to_thread(
                lambda: for_each_taken(artifact, multi_get, self._context.scope, take, comparable=comparable)
            )
        )
        try:
            return await asyncio.shield(reading)
        finally:
            # A cancelled repair must stop before its owner closes the store.
            is_over.set()
            await asyncio.wait([reading])


def _restored_mark(local: FoldCursor, theirs: FoldCursor) -> FoldCursor:
    """Return the cursor of a fold restored from an artifact: the facts that either cursor has."""
    return local._replace(
        revision=theirs.revision,
        seen_evicting=local.seen_evicting or theirs.seen_evicting,
        since_ns=0,
        floor=theirs.floor if local.mode is FoldMode.ARCHIVE else 0,
        seen_dropping=local.seen_dropping or theirs.seen_dropping,
        has_deadlines=local.has_deadlines or theirs.has_deadlines,
    )
