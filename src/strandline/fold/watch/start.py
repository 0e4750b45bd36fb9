"""The start of a watch: the store's cursor, the bucket's retention, and a repair if updates in between are gone.

Invariants: the facts of an observation are durable before they are used. A cursor of another log is deleted, durably,
before its fold is repaired. After a repair the watch begins with the bucket's state, or where the artifact
ends, and the log must cover the revision of the repair's source; otherwise the repair is repeated.
"""

import asyncio
from typing import NamedTuple

from strandline.fold.cursor import FoldCursor
from strandline.fold.errors import BucketOutruns, ScopeChanged
from strandline.fold.events import CursorFellOut, EvictingSeen, GapPassed, StaleKeysPossible, WatchBegan
from strandline.fold.repair.decisions import Course, Decision, decide, decide_expired, decide_repair, is_same_bucket
from strandline.fold.repair.policy import decided_mode
from strandline.fold.scopes import start_watch
from strandline.fold.watch.context import Context
from strandline.fold.watch.observation import Observation, is_same_log, remembered
from strandline.fold.watch.repairer import Repairer
from strandline.fold.watch.session import Listing, Outcome
from strandline.kv import NO_CURSOR, BucketPurged, CursorExpired, Watch, WatchCursor, format_cursor
from strandline.protocol import flushes, windows
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairPlan

PAUSE_S_MAX = 1.0


class StartedWatch(NamedTuple):
    """A watch, the observations before and after its start, and the listing to validate, if any."""

    watch: Watch
    before: Observation
    look: Observation
    listing: Listing | None


class WatchStart:
    """Starts watches, one after the other, and counts those without progress."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._mending = Repairer(context)
        self._in_vain = 0
        self._is_forced = context.is_forced
        self._is_unlisted = False

    def lost(self, outcome: Outcome, *, made_progress: bool) -> None:
        """Note that a watch ended because it missed updates, or its listing was not valid."""
        self._in_vain = 0 if made_progress and outcome is Outcome.EXPIRED else self._in_vain + 1
        self._is_unlisted = outcome is Outcome.IN_VAIN

    async def attach(self, expired: CursorExpired | None) -> StartedWatch:
        """Start a watch at the store's cursor, after a repair if needed; `expired` is the end of the last watch."""
        while True:
            await self._pause()
            look = await self._context.look()
            await self._context.keeper.refresh()
            decision = self._decide(look, expired)
            await self._remember(look, decision)
            try:
                attached = await self._follow(decision, look)
            except CursorExpired as error:
                expired, attached = error, None
            if attached is not None:
                self._is_forced = self._is_unlisted = False
                return attached
            self._in_vain += decision.course is not Course.FORGET

    async def _pause(self) -> None:
        if flushes.gives_up(self._in_vain):
            raise BucketOutruns(self._context.name, self._in_vain)
        if self._in_vain > 1:
            await asyncio.sleep(min(0.01 * 2.0**self._in_vain, PAUSE_S_MAX))

    def _decide(self, look: Observation, expired: CursorExpired | None) -> Decision:
        context, cursor, retention = self._context, self._context.keeper.cursor, look.retention
        policy, now_ns = context.policy, look.at_ns
        mode, can_restore = policy.mode, policy.restorer is not None
        context.mode = decided_mode(cursor, context.name, policy.fold_mode, asked=self._is_forced)
        cursor = cursor._replace(mode=context.mode)
        decision = decide(cursor, retention, mode, now_ns, has_data=context.keeper.has_data, can_restore=can_restore)
        if not context.scope.is_stored_as(cursor.scope):
            if not self._is_forced:
                raise ScopeChanged(context.name, str(context.scope))
            return decision._replace(course=Course.FORGET, reason="the scope of the fold has changed")
        if self._is_forced and decision.course is not Course.FORGET:
            return decide_repair(cursor, retention, mode, "a repair was requested")
        if decision.course is not Course.RESUME:
            return decision
        if isinstance(expired, BucketPurged) or self._is_unlisted:
            return decide_repair(cursor, retention, mode, str(expired or "the state was evicted while it was read"))
        # A watch may report this once against the bucket's retention; the second report is believed.
        if expired is not None and (retention is None or self._in_vain):
            return decide_expired(cursor, retention, mode, now_ns)
        return decision

    async def _remember(self, look: Observation, decision: Decision) -> None:
        """Store the facts of an observation: that the bucket evicts, or that the cursor is of another log."""
        context, stored = self._context, self._context.keeper.cursor
        if decision.course is Course.FORGET:
            context.emit(CursorFellOut(stored.revision, decision.reason))
            is_same = look.retention is None or is_same_bucket(stored, look.retention)
            stored = FoldCursor(
                seen_evicting=is_same and stored.seen_evicting,
                identity=stored.identity,
                mode=stored.mode,
                seen_dropping=is_same and stored.seen_dropping,
                has_deadlines=stored.has_deadlines,
            )
        cursor = remembered(stored, look, context.scope, context.mode)
        is_other_mode = stored.mode not in (FoldMode.UNKNOWN, cursor.mode)
        if is_other_mode:
            cursor = cursor._replace(floor=0)
        if decision.course is Course.FORGET or is_other_mode or _seen(cursor) != _seen(stored):
            await context.flusher.store_fully(cursor)
            if cursor.seen_evicting and not stored.seen_evicting:
                context.emit(EvictingSeen(cursor.revision))

    async def _follow(self, decision: Decision, look: Observation) -> StartedWatch | None:
        """Carry out a decision; None if it must be made again."""
        cursor = self._context.keeper.cursor
        match decision.course:
            case Course.FORGET:
                return None
            case Course.RESUME:
                return await self._begin(cursor.watch_cursor, look, None)
            case Course.SKIP_GAP:
                return await self._pass_gap(look)
            case Course.ANEW:
                return await self._begin(NO_CURSOR, look, self._listing(decision, look))
            case Course.REPAIR:
                self._context.emit(CursorFellOut(cursor.revision, decision.reason))
                return await self._repair(decision, look)

    async def _pass_gap(self, look: Observation) -> StartedWatch | None:
        first = 1 if look.retention is None else look.retention.first_revision
        attached = await self._begin(format_cursor(first - 1), look, None)
        if attached is None:
            return None
        cursor = self._context.keeper.cursor
        self._context.emit(GapPassed(cursor.revision, first))
        try:
            await self._context.flusher.store_fully(cursor._replace(revision=first - 1))
        except BaseException:
            await attached.watch.stop()
            raise
        return attached

    async def _repair(self, decision: Decision, look: Observation) -> StartedWatch | None:
        match decision.plan:
            case RepairPlan.RELIST_ONLY:
                self._context.emit(StaleKeysPossible(self._context.keeper.cursor.revision))
                return await self._begin(NO_CURSOR, look, None)
            case RepairPlan.RELIST:
                position = await self._mending.relist(decision)
                if position is None:
                    return None
                attached = await self._begin(NO_CURSOR, look, self._listing(decision, look))
                return await self._checked(attached, position)
            case RepairPlan.RESTORE:
                if not await self._mending.restore(decision, look):
                    return await self._begin(NO_CURSOR, look, self._listing(decision._replace(plan=None), look))
                return await self._begin(self._context.keeper.cursor.watch_cursor, look, None)
            case RepairPlan.REFUSE_RELIST | None:
                raise self._mending.refused(decision)

    async def _checked(self, attached: StartedWatch | None, position: int) -> StartedWatch | None:
        """Return the watch if the log covered the listing at its start; otherwise it has missed deletes."""
        retention = None if attached is None else attached.look.retention
        if attached is None or retention is None or windows.resume_window_ok(position, retention.first_revision):
            return attached
        await attached.watch.stop()
        return None

    async def _begin(
        self, watch_cursor: WatchCursor, look: Observation, listing: Listing | None
    ) -> StartedWatch | None:
        """Start the watch and observe again; None if the bucket was created again meanwhile."""
        context = self._context
        watch = await start_watch(context.watcher, context.scope, watch_cursor)
        try:
            again = await context.look()
        except BaseException:
            await watch.stop()
            raise
        if not is_same_log(look, again):
            await watch.stop()
            return None
        context.emit(WatchBegan(context.name, context.keeper.cursor.revision, anew=watch_cursor == NO_CURSOR))
        return StartedWatch(watch, look, again, listing)

    def _listing(self, decision: Decision, look: Observation) -> Listing:
        """Return the facts that judge a listing; the cursor waits for it if current values may leave."""
        keeps = look.retention is not None and not look.retention.evicts_current_values
        is_archive = self._context.mode is not FoldMode.MIRROR
        first = 0 if look.retention is None else look.retention.first_revision
        whole = decision.plan is RepairPlan.RELIST and not self._context.keeper.cursor.revision
        return Listing(
            decision.basis, decision.plan, held_back=whole or (is_archive and not keeps), first=first, whole=whole
        )


def _seen(cursor: FoldCursor) -> tuple[bool, bool]:
    return cursor.seen_evicting, cursor.seen_dropping
