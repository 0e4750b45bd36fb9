"""The start of a watch: the store's cursor, the bucket's retention, and a repair if updates in between are gone.

Invariants: what a look has shown is durable before anything is done on its word. A cursor of another log is forgotten,
durably, before its fold is repaired. After a repair the watch begins with the bucket's state, or where the artifact
ends, and the log must reach back to what the repair went by; if it does not, all of it is done again.
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
    """A watch, the looks before and after it began, and the listing it begins with, if that has to count."""

    watch: Watch
    before: Observation
    look: Observation
    listing: Listing | None


class WatchStart:
    """Begins watches, one after the other, and counts those that got nowhere."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._mending = Repairer(context)
        self._in_vain = 0
        self._is_forced = context.is_forced
        self._is_unlisted = False

    def lost(self, outcome: Outcome, *, made_progress: bool) -> None:
        """Note that a watch ended because updates were missed, or its listing did not count."""
        self._in_vain = 0 if made_progress and outcome is Outcome.EXPIRED else self._in_vain + 1
        self._is_unlisted = outcome is Outcome.IN_VAIN

    async def attach(self, expired: CursorExpired | None) -> StartedWatch:
        """Begin a watch where the store stands, after a repair if it takes one; `expired` is how the last one ended."""
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
            return decision._replace(course=Course.FORGET, reason="the fold is made of other keys now")
        if self._is_forced and decision.course is not Course.FORGET:
            return decide_repair(cursor, retention, mode, "its owner asked for it")
        if decision.course is not Course.RESUME:
            return decision
        if isinstance(expired, BucketPurged) or self._is_unlisted:
            return decide_repair(cursor, retention, mode, str(expired or "the state was evicted while it was read"))
        # Another may say so although the bucket does not, once; if it does again, it is believed.
        if expired is not None and (retention is None or self._in_vain):
            return decide_expired(cursor, retention, mode, now_ns)
        return decision

    async def _remember(self, look: Observation, decision: Decision) -> None:
        """Make durable what the look has shown: that the bucket evicts, or that the cursor is of another log."""
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
        """Do what was decided; None if it has to be decided again."""
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
        """Return the watch if the log still reached back to the listing when it began; else it has missed deletes."""
        retention = None if attached is None else attached.look.retention
        if attached is None or retention is None or windows.resume_window_ok(position, retention.first_revision):
            return attached
        await attached.watch.stop()
        return None

    async def _begin(
        self, watch_cursor: WatchCursor, look: Observation, listing: Listing | None
    ) -> StartedWatch | None:
        """Attach, and look again: None if the bucket was made anew meanwhile, for then it is another log's watch."""
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
        """Return what a listing goes by; the cursor waits for it wherever current values can go."""
        keeps = look.retention is not None and not look.retention.evicts_current_values
        is_archive = self._context.mode is not FoldMode.MIRROR
        first = 0 if look.retention is None else look.retention.first_revision
        return Listing(decision.basis, decision.plan, held_back=is_archive and not keeps, first=first)


def _seen(cursor: FoldCursor) -> tuple[bool, bool]:
    return cursor.seen_evicting, cursor.seen_dropping
