"""Watches of a bucket in this process: a tap on its stream, and the queue of its owner.

Invariants: a tap lives on the server's thread and is called for every durable message, so it knows which updates it has
delivered. It reads ahead of its owner up to a bound. An update that was replaced before it was read is skipped,
because the key's next one follows; one removed without a successor raises `CursorExpired` at once. A tap ends with its
owner, even if the owner is cancelled during `begin`, and with its server, which fails the watch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

import numpy as np

from strandline.broker.buckets.reader import filters_of
from strandline.broker.buckets.server_link import ServerLink
from strandline.broker.buckets.update_columns import updates_of
from strandline.broker.routes import Cancel
from strandline.broker.streams import Removed, Stream
from strandline.broker.streams.arrays import among
from strandline.errors import Closed, StrandlineError
from strandline.kv.entries import UpdateBatch
from strandline.kv.errors import BucketNotFound, BucketPurged, BucketReplaced, CursorExpired
from strandline.kv.nats.layout import bucket_name, read_prefix
from strandline.kv.watch_forms import IterableWatch
from strandline.nats.streams import StreamState
from strandline.protocol.windows import resume_window_ok

UPDATES_MAX = 4_096
AHEAD_MAX = 65_536
"""How many updates a tap may read ahead of its owner."""


class WatchStep(NamedTuple):
    """A batch of updates or none, and the position after it."""

    batch: UpdateBatch | None
    is_current: bool
    frontier: int


class StreamTap:
    """Reads a bucket's stream for one watch; `give` and `fail` are called on the server's thread."""

    def __init__(
        self,
        server: ServerLink,
        info: StreamState,
        prefixes: Sequence[str],
        give: Callable[[WatchStep], None],
        fail: Callable[[StrandlineError], None],
    ) -> None:
        self._server = server
        self._info = info
        self._patterns = filters_of(read_prefix(info), prefixes)
        self._prefix_bytes = len(read_prefix(info).encode(errors="surrogateescape"))
        self._give = give
        self._fail = fail
        self._stream: Stream
        self._cancels: list[Cancel] = []
        self._initial = np.zeros(0, np.uint64)
        self._position = 0
        self._start = 0
        self._ahead = 0
        self._is_over = False

    def begin(self, after: int | None) -> WatchStep:
        """Attach after a revision, or before the last update of each key; return the position."""
        jetstream = self._server.jetstream
        jetstream.publish_gathered(jetstream.clock.now_ns())
        stream = jetstream.streams.streams.get(self._info.name)
        if stream is None:
            raise BucketNotFound(bucket_name(self._info.name))
        if stream.failure is not None:
            raise stream.failure
        self._stream, self._start = stream, stream.durable_seq
        if after is None:
            self._position = self._start
            self._initial = stream.last_per_subject(stream.filter(self._patterns), self._start)
        else:
            if not resume_window_ok(after, stream.first_seq) or after > stream.last_seq:
                raise CursorExpired(bucket_name(self._info.name), after, stream.first_seq, stream.last_seq)
            self._position = after
        jetstream.shutdown.add(self._server_closed)
        self._cancels = [jetstream.listeners.add(self._info.name, self.pump), stream.add_listener(self._removed)]
        return WatchStep(None, self._is_current, self._frontier)

    @property
    def _is_current(self) -> bool:
        if len(self._initial):
            return False
        if self._position >= self._start:
            return True
        matching = self._stream.filter(self._patterns)
        return not self._stream.pending(matching, self._position + 1, self._start)

    @property
    def _frontier(self) -> int:
        return 0 if len(self._initial) else self._position

    def pump(self) -> None:
        """Deliver available updates, up to the bound."""
        while not self._is_over and self._ahead < AHEAD_MAX:
            try:
                self._follow()
                step = self._next()
            except StrandlineError as error:
                self._end(error)
                return
            if step is None:
                return
            self._ahead += len(step.batch or ())
            self._give(step)

    def _follow(self) -> None:
        """Continue with the current stream, also after it was reopened; raise if it was replaced or deleted."""
        before, stream = self._stream, self._server.jetstream.streams.streams.get(self._info.name)
        if stream is before:
            return
        if stream is None:
            raise BucketNotFound(bucket_name(self._info.name))
        bounds = (bucket_name(self._info.name), self._position, stream.first_seq, stream.last_seq)
        if stream.created_ns != before.created_ns:
            raise BucketReplaced(*bounds)
        if stream.first_seq > max(before.first_seq, self._position + 1) or stream.last_seq < self._position:
            raise CursorExpired(*bounds)
        self._cancels.pop()()
        self._cancels.append(stream.add_listener(self._removed))
        self._stream = stream

    def _next(self) -> WatchStep | None:
        stream = self._stream
        if len(self._initial):
            chosen, self._initial = self._initial[:UPDATES_MAX], self._initial[UPDATES_MAX:]
        else:
            up_to = stream.durable_seq
            if up_to <= self._position:
                return None
            chosen = stream.next_sequences(stream.filter(self._patterns), self._position + 1, UPDATES_MAX)
            chosen = chosen[chosen <= up_to]
            self._position = int(chosen[-1]) if len(chosen) == UPDATES_MAX else up_to
        batch = updates_of(stream.read(chosen), self._prefix_bytes)
        return WatchStep(batch if len(batch) else None, self._is_current, self._frontier)

    def _removed(self, removed: Removed) -> None:
        """Check removed messages: one that was not delivered yet must have a successor on its subject."""
        if self._is_over:
            return
        stream, info = self._stream, self._info
        bounds = (bucket_name(info.name), self._position, stream.first_seq, stream.last_seq)
        if stream.first_seq > stream.last_seq and not info.evicts_current_values:
            self._end(BucketPurged(*bounds))
            return
        unseen = removed.subjects[removed.sequences > self._position]
        if len(unseen):
            matching = stream.filter(self._patterns)
            unseen = unseen[matching.matches(unseen)]
            if not among(unseen, matching.numbers()).all():
                self._end(CursorExpired(*bounds))

    def taken(self, count: int) -> None:
        """Note that the owner took `count` updates."""
        self._ahead -= count
        self.pump()

    def _server_closed(self) -> None:
        self._end(Closed("the server"))

    def _end(self, error: StrandlineError) -> None:
        self.close()
        self._fail(error)

    def close(self) -> None:
        """Detach from the stream."""
        self._is_over = True
        self._server.jetstream.shutdown.discard(self._server_closed)
        while self._cancels:
            self._cancels.pop()()


class EmbeddedWatch(IterableWatch):
    """A watch over some keys of a bucket; it belongs to the loop that created it."""

    def __init__(
        self,
        server: ServerLink,
        info: StreamState,
        prefixes: Sequence[str],
        forget: Callable[["EmbeddedWatch"], None],
    ) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._tap = StreamTap(server, info, prefixes, self._given, self._failed)
        self._forget = forget
        self._queue: deque[WatchStep] = deque()
        self._rest: UpdateBatch | None = None
        self._step = self._next = WatchStep(None, False, 0)  # noqa: FBT003 - a row of a table
        self._failure: StrandlineError | None = None
        self._wake = asyncio.Event()

    async def begin(self, after: int | None) -> Self:
        """Attach; on an error or cancellation nothing is left behind."""
        try:
            self._step = self._next = await self._server.call(lambda: self._tap.begin(after))
            await self._server.call(self._tap.pump)
        except BaseException:
            await self.close(Closed("the watch"))
            raise
        return self

    @property
    def is_current(self) -> bool:
        """Tell whether every update that existed at the start was delivered."""
        return self._now().is_current

    @property
    def frontier(self) -> int:
        """Return the revision up to which every watched update was delivered, 0 if unknown; it never decreases."""
        return self._now().frontier

    def _now(self) -> WatchStep:
        while self._rest is None and self._queue and self._queue[0].batch is None:
            self._step = self._queue.popleft()
        return self._step

    async def batch(self, updates_max: int = UPDATES_MAX) -> UpdateBatch:
        """Wait for updates and return at least one; `Closed` after `stop`."""
        while self._rest is None:
            self._now()
            if self._queue:
                self._next = self._queue.popleft()
                self._rest = self._next.batch
            elif self._failure is not None:
                raise self._failure
            else:
                self._wake.clear()
                await self._wake.wait()
        batch = self._rest
        taken = batch if len(batch) <= updates_max else batch.slice(0, updates_max)
        self._rest = batch.slice(updates_max, len(batch)) if len(batch) > updates_max else None
        if self._rest is None:
            self._step = self._next
        if self._failure is None:
            self._post(lambda: self._tap.taken(len(taken)))
        return taken

    async def stop(self) -> None:
        """Stop the watch; idempotent."""
        self._queue.clear()
        self._rest = None
        await self.close(Closed("the watch"))

    async def close(self, reason: Closed) -> None:
        """Stop the watch; queued updates are delivered, then the reason is raised."""
        self._fail(reason)
        self._forget(self)
        self._post(self._tap.close)

    def _post(self, work: Callable[[], None]) -> None:
        with suppress(Closed):  # the tap ended with the server
            self._server.post(work)

    # From the server's thread.

    def _given(self, step: WatchStep) -> None:
        self._run_in_loop(lambda: self._take(step))

    def _failed(self, error: StrandlineError) -> None:
        self._run_in_loop(lambda: self._fail(error))

    def _run_in_loop(self, work: Callable[[], None]) -> None:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            work()
            return
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:  # the owner's loop is closed
            self._tap.close()

    def _take(self, step: WatchStep) -> None:
        if self._failure is None:
            self._queue.append(step)
            self._wake.set()

    def _fail(self, error: StrandlineError) -> None:
        self._failure = self._failure or error
        self._wake.set()
