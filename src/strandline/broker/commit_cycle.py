"""The commit cycle of a server: it stores, answers and writes the input of all sockets together.

Invariants: one cycle serves all requests for a cycle since the last one. Within it, storing comes before writing, so
answers that need not wait for the disk leave with it. Timers run at most one cycle late. Everything runs on the loop's
thread.

A cycle runs after all ready sockets have been read. While only one socket is ready at a time, there is nothing to wait
for: the cycle then runs at the end of that read. Every now and then a cycle waits, to find out whether more sockets are
ready.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Hashable
from time import thread_time
from typing import Protocol

from strandline.broker.timers import Timers
from strandline.clock import NS_PER_S, Clock

ALONE_TURNS = 32
"""How many cycles run at the end of their read after a cycle that had a single read."""
logger = logging.getLogger("strandline.broker")


class CyclePart(Protocol):
    """A part of the server that gathers work for the cycle, and has timers of its own."""

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` has something to do, None if nothing is known of."""
        ...

    @property
    def bounded_s(self) -> float:
        """Processor time that the last `flush` took for work with a limit of its own, however much was read."""
        ...

    def flush(self, now_ns: int) -> None:
        """Do the gathered work."""
        ...

    def tick(self, now_ns: int) -> None:
        """Run the timers that are due."""
        ...


class CycleWriter(Protocol):
    """An object that has output."""

    def write_out(self) -> None:
        """Write it."""
        ...


class CommitCycle:
    """Gathers the work of the next cycle, and runs it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._context = contextvars.copy_context()
        """The context in which all callbacks run, whichever context asked for them: it names the server for its log
        lines.
        """
        self._is_asked = False
        self._is_reading = False
        self._reads = 0
        self._read_bytes = 0
        self._alone = 0
        self.run_s_per_byte = 0.0
        """Processor time per byte read, in the last cycle that ran after the reads.

        Work with a limit of its own does not count: it may be for a client that was not read at all.
        """
        self.bounded_s = 0.0
        """Processor time of such work, in a cycle that ran at the end of its read, or in the last cycle after the
        reads.
        """
        self._flushed: list[CyclePart] = []
        self._written: list[CycleWriter] = []
        self._timers = Timers()
        self._armed_ns: int | None = None
        self._armed: asyncio.TimerHandle | None = None
        self._parts: list[CyclePart] = []

    def add(self, part: CyclePart) -> Callable[[], None]:
        """Add a part; return the function by which it asks for a flush in the next cycle."""
        self._parts.append(part)

        def wake() -> None:
            if part not in self._flushed:
                self._flushed.append(part)
            if not self._is_asked:
                self._ask()

        return wake

    def _ask(self) -> None:
        self._is_asked = True
        if not self._is_reading:
            self._loop.call_soon(self.run, context=self._context)

    def begin_read(self) -> None:
        """Note that the input of one socket is being handled."""
        self._is_reading = not self._is_asked
        self.bounded_s = 0.0

    def end_read(self, read_bytes: int = 0) -> None:
        """Note that it was handled; the cycle that it asked for runs now or soon."""
        self._reads += 1
        self._read_bytes += read_bytes
        if not self._is_reading:
            return
        self._is_reading = False
        if not self._is_asked:
            return
        if self._alone:
            self._alone -= 1
            self.run_s_per_byte = 0.0  # it counts as part of the read
            self._run()
        else:
            self._loop.call_soon(self.run, context=self._context)

    def write(self, part: CycleWriter) -> None:
        """Let an object write its output in the next cycle; call it once until then."""
        self._written.append(part)
        if not self._is_asked:
            self._ask()

    def at(self, owner: Hashable, due_ns: int | None, call: Callable[[int], None]) -> None:
        """Set the timer of an owner, in place of its earlier one; None clears it."""
        self._timers.set(owner, due_ns, call)
        if due_ns is not None and (self._armed_ns is None or due_ns < self._armed_ns):
            self._arm(due_ns)

    def run(self) -> None:
        """Store, then write, when all that was ready has been read."""
        if self._reads == 1:
            self._alone = ALONE_TURNS
        read_bytes = self._read_bytes
        began_s = thread_time()
        self._run()
        spent_s = thread_time() - began_s - self.bounded_s
        self.run_s_per_byte = max(0.0, spent_s) / read_bytes if read_bytes else 0.0

    def _run(self) -> None:
        self._reads = self._read_bytes = 0
        self.bounded_s = 0.0
        now_ns = self._clock.now_ns()
        flushed, self._flushed = self._flushed, []
        for part in flushed:
            try:
                part.flush(now_ns)
            except Exception:
                logger.exception("a commit cycle failed")
            self.bounded_s += part.bounded_s
            due_ns = part.next_due_ns
            if due_ns is not None and (self._armed_ns is None or due_ns < self._armed_ns):
                self._arm(due_ns)
        written, self._written = self._written, []
        for each in written:
            try:
                each.write_out()
            except Exception:
                logger.exception("writing to a client failed")
        self._is_asked = bool(self._flushed or self._written)
        if self._is_asked:
            self._loop.call_soon(self.run, context=self._context)

    def _arm(self, due_ns: int) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_ns = due_ns
        delay_s = max(0.0, (due_ns - self._clock.now_ns()) / NS_PER_S)
        self._armed = self._loop.call_later(delay_s, self._tick, context=self._context)

    def _tick(self) -> None:
        self._armed_ns = self._armed = None
        now_ns = self._clock.now_ns()
        self._timers.run(now_ns)
        for part in self._parts:
            try:
                part.tick(now_ns)
            except Exception:
                logger.exception("timer callback failed")
        known = [self._timers.next_ns, *(part.next_due_ns for part in self._parts)]
        due = [due_ns for due_ns in known if due_ns is not None]
        if due:
            self._arm(min(due))

    def close(self) -> None:
        """Call no timers any more."""
        if self._armed is not None:
            self._armed.cancel()
        self._parts.clear()
