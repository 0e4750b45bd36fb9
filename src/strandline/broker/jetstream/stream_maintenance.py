"""Expiry and compaction of streams.

Invariants: a stream is checked when one of its messages may have expired, never later. Dead records are compacted in
small steps between cycles, and only while there are some. A stream whose storage has failed is not touched.
"""

from collections.abc import Callable, Container

from strandline.broker.jetstream.stream_sink import StreamSink
from strandline.broker.streams import Published
from strandline.broker.timers import Timers
from strandline.errors import StrandlineError

CHORE_NS, CHORE_AGAIN_NS = 100_000_000, 2_000_000
"""When a stream that was written to is looked at for dead records, and when again while there are some."""


class StreamMaintenance:
    """Schedules expiry and compaction; `stored` receives the delete markers of a stream, `fail` its errors."""

    def __init__(
        self,
        timers: Timers,
        failures: Container[str],
        *,
        stored: Callable[[str, Published], None],
        fail: Callable[[str, BaseException], None],
    ) -> None:
        self._timers = timers
        self._failures = failures
        self._stored = stored
        self._fail = fail

    def changed(self, sink: StreamSink, now_ns: int) -> None:
        """Schedule the maintenance of a stream whose configuration may have changed."""
        sink.has_expiry = False
        self.touch(sink, now_ns)

    def touch(self, sink: StreamSink, now_ns: int) -> None:
        """Look after a stream in which something has changed."""
        config = sink.stream.config
        of_its_own = config.allow_msg_ttl or config.allow_atomic or config.allow_msg_schedules
        sink.expires = config.max_age > 0 or of_its_own
        if not sink.has_expiry or of_its_own:
            due_ns = sink.stream.next_expiry_ns
            sink.has_expiry = due_ns is not None
            self._timers.set(("expiry", sink.name), due_ns, lambda now_ns: self._expire(sink, now_ns))
        if not sink.has_chores:
            sink.has_chores = True
            self._timers.set(("chores", sink.name), now_ns + CHORE_NS, lambda now_ns: self._chores(sink, now_ns))

    def end(self, name: str) -> None:
        """Look at a stream no more."""
        for what in ("expiry", "chores"):
            self._timers.set((what, name), None, lambda _: None)

    def _expire(self, sink: StreamSink, now_ns: int) -> None:
        sink.has_expiry = False
        if sink.is_gone or sink.name in self._failures:
            return
        try:
            self._stored(sink.name, sink.stream.expire(now_ns))
        except StrandlineError as error:
            self._fail(sink.name, error)

    def _chores(self, sink: StreamSink, now_ns: int) -> None:
        sink.has_chores = False
        if sink.is_gone or sink.name in self._failures:
            return
        try:
            more = sink.stream.compact_step()
        except StrandlineError as error:
            self._fail(sink.name, error)
            return
        if more:
            sink.has_chores = True
            self._timers.set(("chores", sink.name), now_ns + CHORE_AGAIN_NS, lambda now_ns: self._chores(sink, now_ns))
