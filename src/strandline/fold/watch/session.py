"""One watch from start to end: updates gather while a batch is stored, and one step runs at a time.

Invariants: each turn runs the first step that has work: stop, window, repair, export, receive. So a flood of updates
never delays a stop. Everything that the watch delivered is stored before its end is handled.
The cursor of a start does not move before its listing is validated (`Listing.held_back`): the data is stored under the
old one, and the new one follows when the whole state is stored and the bucket was observed again.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from enum import Enum
from typing import Any, NamedTuple

from strandline.errors import Closed, StrandlineError, Unavailable
from strandline.fold.cursor import FoldCursor
from strandline.fold.events import CaughtUp, EntriesLeft, EvictingSeen, LagMeasured
from strandline.fold.records import FoldEntry
from strandline.fold.repair.decisions import Basis, complete_from, may_list
from strandline.fold.repair.from_listing import deletes, puts_of, stale_keys
from strandline.fold.watch import observation
from strandline.fold.watch.context import Context
from strandline.fold.watch.exports import ExportRequest
from strandline.fold.watch.observation import Observation, is_same_log, is_worth_noting, remembered, sighted
from strandline.fold.watch.pending_updates import PendingUpdates
from strandline.fold.watch.store_worker import TRANSIENT
from strandline.fold.watch.sweeper import PAUSE_FACTOR, Limits, Scanned, Sweeper, leaving, scan
from strandline.kv import CursorExpired, KvEntry, UpdateBatch, Watch
from strandline.protocol import flushes, fold_modes, repairs
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import RepairPlan, RepairStep

IDLE_S = 0.02
NS = 1_000_000_000


class Outcome(Enum):
    """The end of a session; in each case everything received is stored."""

    STOPPED = "it was stopped"
    CURRENT = "the fold holds the bucket's state"
    CLOSED = "the watch was closed"
    EXPIRED = "updates were missed"
    IN_VAIN = "the listing of the start is not valid"


class Listing(NamedTuple):
    """A start from a listing: the facts that judge it, its repair if any, and whether the cursor waits for it.

    `first` is the log's first revision before the listing, 0 if unknown. A `whole` one replaces what may be of another
    log: a key that was listed and expired before the watch began is not delivered, and must not keep its old value.
    """

    basis: Basis
    plan: RepairPlan | None
    held_back: bool
    first: int
    whole: bool = False


class Session:
    """The loop over one watch."""

    def __init__(
        self, context: Context, watch: Watch, before: Observation, look: Observation, listing: Listing | None
    ) -> None:
        self._context = context
        self._watch = watch
        self._listing = listing
        self._before = before
        self._look = look
        self._gathered = PendingUpdates()
        self._high = context.keeper.cursor.revision
        self._received = 0
        self._stored = 0
        self._complete_at: int | None = None
        self._due_at = 0.0
        self._ended: StrandlineError | None = None
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._receiving: asyncio.Task[UpdateBatch] | None = None
        self._flushing: asyncio.Task[bool] | None = None
        self._sweeper = Sweeper(context.keeper.cursor, context.mode)
        self._scanning: asyncio.Task[Scanned] | None = None
        self._scan_limits = Limits(0, 0)
        self._scan_began = self._scan_after = 0.0
        self._complete_from = 0
        self._looking = self._task(self._look_now_and_then())
        self._fresh_look: Observation | None = None
        self._is_caught_up = False
        self._delivered: set[bytes] = set()
        """The keys that the watch of a `whole` listing has delivered."""
        self.expired: CursorExpired | None = None
        self.made_progress = False

    async def run(self) -> Outcome:
        """Run until there is a reason to end; then everything received is stored, unless the store failed."""
        stopping = self._task(self._context.stop.wait())
        self._context.exports.attach(self._wake.set)
        try:
            while True:
                self._wake.clear()
                outcome = await self._turn()
                if isinstance(outcome, Outcome):
                    return outcome
                if not outcome:
                    await self._wake.wait()
        finally:
            await self._end(stopping)

    # One turn: the first step that has work

    async def _turn(self) -> Outcome | bool:
        self._settle_flush()
        if self._context.stop.is_set():
            return await self._finish(Outcome.STOPPED)
        if self._is_flush_due():
            self._start_flush()
            return True
        if self._ended is not None:
            return await self._wind_up(self._ended)
        if request := self._context.exports.next():
            await self._export(request)
            return True
        if self._take_received() or await self._take_look() or await self._sweep():
            return True
        return await self._catch_up()

    async def _finish(self, outcome: Outcome) -> Outcome:
        """Store the batch that was handed out."""
        if self._receiving is not None and self._has_received():
            task, self._receiving = self._receiving, None
            if task.exception() is None:
                self._gather(task.result())
        await self._flush_all()
        return outcome

    async def _wind_up(self, ended: StrandlineError) -> Outcome | bool:
        """Store everything delivered before the end, then return the kind of the end."""
        step = repairs.next_repair_step(
            undrained=self._has_received(), unflushed=not self._is_idle(), undiffed=True, uncommitted=True
        )
        if step is RepairStep.DRAIN:
            return self._take_received()
        if step is RepairStep.FLUSH:
            await self._flush_all()
            return True
        if isinstance(ended, CursorExpired):
            self.expired = ended
            return Outcome.EXPIRED
        if isinstance(ended, Closed):
            return Outcome.CLOSED
        raise ended

    async def _export(self, request: ExportRequest) -> None:
        """Serve one request; an error goes to its caller, unless the store has failed for good."""
        keeper = self._context.keeper
        try:
            await self._flush_all()
            answer = await keeper.run(request.exporter, keeper.store, keeper.cursor)
        except Exception as error:
            if not request.reply.done():
                request.reply.set_exception(error)
            if self._context.flusher.unstored:
                raise
        else:
            if not request.reply.done():
                request.reply.set_result(answer)

    # Receiving

    def _take_received(self) -> bool:
        """Take received updates, and receive more while there is room; return whether there were any."""
        task, took = self._receiving, False
        if task is not None and task.done():
            self._receiving = None
            if task.exception() is None:
                self._gather(task.result())
            else:
                self._end_with(task)
            took = True
        if self._receiving is None and self._ended is None and self._has_room():
            self._receiving = self._task(self._watch.batch(self._context.batching.updates_max))
        return took

    def _end_with(self, task: asyncio.Task[Any]) -> None:
        """Note the reason why updates end; errors of other parts are raised at once."""
        try:
            task.result()
        except StrandlineError as error:
            self._ended = error

    def _gather(self, batch: UpdateBatch) -> None:
        if not self._gathered:
            self._due_at = max(self._due_at, self._loop.time() + self._context.batching.window_s)
            self._wake_at(self._due_at)
        self._gathered.add(self._followed(batch))
        if self._listing is not None and self._listing.whole:
            self._delivered.update(batch.key_bytes)
        self._received += len(batch)
        self._high = flushes.batch_high(self._high, batch.high or None)
        self._note_current()

    def _followed(self, batch: UpdateBatch) -> UpdateBatch:
        """Return the updates that the fold follows: for an archive, the marker of an expired value is no delete."""
        expired = batch.is_expiry
        follows = fold_modes.follows_expiry(self._context.mode)
        return batch if follows or not expired.any() else batch.select(~expired)

    def _has_room(self) -> bool:
        """Return whether to receive more: one batch gathers while another is stored, or waits to be."""
        batching = self._context.batching
        if self._context.keeper.failures:
            return not self._context.flusher.unstored.before(self._gathered).is_full(batching)
        return not self._gathered.is_full(batching)

    # Storing

    def _is_flush_due(self) -> bool:
        if self._flushing is not None:
            return False
        is_due = self._loop.time() >= self._due_at
        if self._context.flusher.unstored or not self._gathered:
            return is_due and bool(self._context.flusher.unstored)
        is_last = self._context.until_current and self._complete_at is not None
        return is_due or is_last or self._gathered.is_full(self._context.batching)

    def _start_flush(self) -> None:
        self._flushing = self._task(self._flush())

    async def _flush(self) -> bool:
        gathered, self._gathered = self._gathered, PendingUpdates()
        for batch in gathered.batches:
            self._sweeper.note(batch)
        received, cursor = self._received, self._mark_at(self._high)
        flusher = self._context.flusher
        durable = await (
            flusher.flush(UpdateBatch.concat(gathered.batches), cursor) if gathered else flusher.store(cursor)
        )
        if durable:
            self._stored, self.made_progress = received, True
        return durable

    def _settle_flush(self) -> None:
        """Take the result of the batch that was being stored; after a failure, pause."""
        if self._flushing is not None and self._flushing.done():
            task, self._flushing = self._flushing, None
            if not task.result():
                self._due_at = self._loop.time() + self._context.flusher.retry_s
                self._wake_at(self._due_at)

    async def _flush_all(self) -> None:
        """Store everything that was received."""
        if self._flushing is not None:
            task, self._flushing = self._flushing, None
            await task
        while self._gathered or self._context.flusher.unstored:
            if not await self._flush():
                await asyncio.sleep(self._context.flusher.retry_s)

    def _mark_at(self, high: int) -> FoldCursor:
        """Return the cursor to store with everything up to a revision."""
        cursor = remembered(self._context.keeper.cursor, self._look, self._context.scope, self._context.mode)
        floor = self._sweeper.floor if self._context.mode is FoldMode.MIRROR else self._complete_from
        cursor = cursor._replace(
            floor=max(cursor.floor, floor), has_deadlines=cursor.has_deadlines or self._sweeper.has_deadlines
        )
        if self._listing is None or not self._listing.held_back:
            cursor = cursor._replace(revision=max(cursor.revision, high))
        return sighted(cursor, self._look)

    # Looking

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._look_s())
            with contextlib.suppress(Unavailable):
                self._fresh_look = await self._context.look()
                self._wake.set()

    def _look_s(self) -> float:
        """Return the pause before the next observation: shorter if a value expires before."""
        deadline_ns, retention = self._sweeper.next_deadline_ns, self._look.retention
        if deadline_ns is None or retention is None:
            return observation.LOOK_S
        ahead_ns = retention.now_ns - self._look.at_ns if retention.now_ns else 0
        left_s = (deadline_ns - self._context.policy.clock.now_ns() - ahead_ns) / NS
        return min(observation.LOOK_S, max(left_s, observation.LOOK_S_MIN))

    async def _take_look(self) -> bool:
        """Apply an observation of the bucket, and store the facts that must be durable."""
        if self._looking.done() and self._ended is None:
            self._end_with(self._looking)
            return True
        look, self._fresh_look = self._fresh_look, None
        if look is None:
            return False
        if not is_same_log(look, self._look):
            self._lose_log(look)
            return True
        self._look = look
        if look.retention is not None:
            self._context.emit(LagMeasured(self._context.keeper.cursor.revision, look.retention.last_revision))
        if self._is_idle():
            await self._note_quietly(look)
        return True

    def _lose_log(self, look: Observation) -> None:
        """Note that the bucket was created again: the watch belongs to a deleted log."""
        first, last = (look.retention.first_revision, look.retention.last_revision) if look.retention else (0, 0)
        self._ended = self._ended or CursorExpired(self._context.name, self._high, first, last)

    async def _note_quietly(self, look: Observation) -> None:
        """Store a cursor without updates: a bucket that was seen evicting, a frontier that moved, a time renewed.

        Only in a turn without received updates: the frontier counts everything handed out.
        """
        stored = self._context.keeper.cursor
        self._high = max(self._high, self._watch.frontier)
        cursor = self._mark_at(self._high)
        if cursor.seen_evicting and not stored.seen_evicting:
            self._context.emit(EvictingSeen(cursor.revision))
        elif cursor.revision == stored.revision and not is_worth_noting(cursor, stored, look):
            return
        await self._context.flusher.store_fully(cursor)

    # Sweeping

    async def _sweep(self) -> bool:
        """Remove entries that have left the bucket, if everything before the last observation is stored."""
        if self._scanning is not None:
            return await self._end_scan() if self._scanning.done() else False
        if self._listing is not None or self._ended is not None:
            return False
        limits = next((found for look in (self._look, self._before) if (found := self._settled(look))), None)
        if limits is None:
            return False
        if self._sweeper.needs_scan(limits):
            return self._begin_scan(limits)
        await self._remove(self._sweeper.take(limits), limits)
        return True

    def _settled(self, look: Observation) -> Limits | None:
        """Return the limits below which entries have left, or None: nothing new, or not all of it is stored.

        A current watch has delivered everything from before its start, wherever its frontier is.
        """
        limits = self._sweeper.limits(look, self._context.keeper.cursor)
        if limits is None or look.retention is None:
            return None
        is_told = look is self._before and self._complete_at is not None and self._stored >= self._complete_at
        return limits if is_told or fold_modes.is_settled(self._stands_at(), look.retention.last_revision) else None

    def _stands_at(self) -> int:
        """Return the revision up to which everything is stored: the frontier too, if no update is in flight."""
        stored = self._context.keeper.cursor.revision
        return max(stored, self._watch.frontier) if self._is_idle() and not self._has_received() else stored

    def _begin_scan(self, limits: Limits) -> bool:
        if not self._context.keeper.has_data:
            self._sweeper.swept(limits)
            return False
        self._scan_began = self._loop.time()
        if self._scan_began < self._scan_after:
            return False
        self._scan_limits = limits
        self._sweeper.begin_scan()
        self._scanning = self._task(self._context.keeper.scan(lambda store: scan(store, limits)))
        return False

    async def _end_scan(self) -> bool:
        """Remove the entries that a scan found; the scan is repeated if the store failed meanwhile."""
        assert self._scanning is not None  # noqa: S101 - it has ended
        task, self._scanning = self._scanning, None
        now = self._loop.time()
        self._scan_after = now + PAUSE_FACTOR * (now - self._scan_began)
        failure = task.exception()
        if failure is not None:
            self._sweeper.end_scan(None)
            if not isinstance(failure, (Closed, *TRANSIENT)):
                raise failure
            return False
        await self._remove(self._sweeper.end_scan(task.result()), self._scan_limits)
        return True

    async def _remove(self, keys: list[bytes], limits: Limits) -> None:
        """Remove the keys that have left; updates in flight to the store go first."""
        await self._flush_all()
        context = self._context
        drops = context.keeper.cursor.seen_dropping or self._drops()
        found: list[FoldEntry | None] = await context.keeper.run(context.keeper.store.multi_get, keys) if keys else []
        left = list(leaving(found, context.mode, limits, drops=drops))
        back, gone = await self._earlier_values(left, limits)
        if gone:
            context.emit(EntriesLeft(len(gone), limits.first))
        chunks = [*back, *deletes(gone)]
        for chunk in chunks[:-1]:
            await self._store_now(chunk)
        self._sweeper.swept(limits)  # stored with the last of them: after a crash before it, the scan is repeated
        for chunk in chunks[-1:]:
            await self._store_now(chunk)

    async def _store_now(self, chunk: UpdateBatch) -> None:
        self._sweeper.note(chunk)
        await self._context.flusher.flush_fully(chunk, self._mark_at(self._high))

    def _drops(self) -> bool:
        return self._look.retention is None or self._look.retention.drops_current_values

    async def _earlier_values(self, left: list[FoldEntry], limits: Limits) -> tuple[list[UpdateBatch], list[bytes]]:
        """Return the bucket's entries of keys whose last value expired, and the keys without an entry.

        Where a bucket keeps a history, the value before an expired one is the current one again. Keys that the
        bucket still has are checked again: servers remove values a little late.
        """
        retention = self._look.retention
        if retention is None or retention.history == 1:
            return [], [entry.key for entry in left]
        back: list[KvEntry] = []
        gone: list[bytes] = []
        late: list[bytes] = []
        for entry in left:
            held = None
            if entry.expires_ns:
                held = await self._context.reader.get(entry.key.decode(errors="surrogateescape"))
            if held is None:
                gone.append(entry.key)
            elif held.version != entry.version:
                back.append(held)
            else:
                late.append(entry.key)
        self._sweeper.put_back(late, limits)
        return [puts_of(back)] if back else [], gone

    # Being current

    def _note_current(self) -> None:
        if self._complete_at is None and self._watch.is_current:
            self._complete_at = self._received

    async def _catch_up(self) -> Outcome | bool:
        """Notice, once, that the state is complete and stored; then validate the listing."""
        if not self._has_received():
            self._note_current()
        if self._complete_at is None:
            self._wake_at(self._loop.time() + IDLE_S)
        if self._is_caught_up or self._complete_at is None or self._stored < self._complete_at:
            return False
        if self._scanning is not None:
            return False
        context, self._is_caught_up = self._context, True
        if (listing := self._listing) is not None:
            look = await context.look()
            if not is_same_log(look, self._look):
                self._lose_log(look)
                return True
            self._look = look
            if not may_list(listing.basis, look.retention, context.policy.mode, listing.plan):
                return await self._finish(Outcome.IN_VAIN)
            if listing.whole:
                await self._delete_undelivered()
            self._listing = None
            self._note_listed(listing)
            if listing.held_back:
                await self._flush_all()  # updates in flight carry the old cursor
                await context.flusher.store_fully(self._mark_at(self._high))
        self.made_progress = True
        context.emit(CaughtUp(context.keeper.cursor.revision))
        return await self._finish(Outcome.CURRENT) if context.until_current else True

    async def _delete_undelivered(self) -> None:
        """Delete the keys that the watch has not delivered, under the old cursor."""
        await self._flush_all()
        keeper, scope, delivered = self._context.keeper, self._context.scope, self._delivered
        stale = await keeper.run(lambda: stale_keys(keeper.store, scope, delivered, whole=True))
        for chunk in deletes(stale):
            await self._context.flusher.flush_fully(chunk, self._mark_at(self._high))
        self._delivered = set()

    def _note_listed(self, listing: Listing) -> None:
        """Note the facts that a valid listing proves: where a mirror begins, from where on an archive is complete."""
        if self._context.mode is FoldMode.MIRROR:
            self._sweeper.swept(Limits(listing.first, 0))
        elif listing.plan is None:
            self._complete_from = complete_from(self._look.retention)

    # Waiting

    def _is_idle(self) -> bool:
        """Return whether everything that was taken is stored."""
        return self._flushing is None and not self._gathered and not self._context.flusher.unstored

    def _has_received(self) -> bool:
        return self._receiving is not None and self._receiving.done()

    def _task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._wake.set())
        return task

    def _wake_at(self, when: float) -> None:
        """Schedule a turn at a time, unless an earlier one is scheduled."""
        if self._timer is not None:
            if self._loop.time() < self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._wake.set)

    async def _end(self, stopping: asyncio.Task[Any]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._context.exports.attach(lambda: None)
        tasks = [task for task in (stopping, self._looking, self._receiving, self._scanning) if task is not None]
        for task in tasks:
            task.cancel()
        if self._flushing is not None:
            tasks.append(self._flushing)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._watch.stop()
