"""Recovery of streams whose storage has failed: first for reading, then, when the disk works, for writing.

Invariants: a failed stream shows what was known to be durable before the failure. It accepts nothing before its files
were read again, as after a crash, and their content was written to stable storage again: a failed fsync may have lost
what the page cache still shows. Attempts repeat after pauses that double up to a bound, whenever the disk passes a
probe. They delay nothing else, and the stream can be read until its successor is open. A stream is not removed while a
thread uses its files.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

from strandline.broker.consumers.loader import SHUTDOWN
from strandline.broker.consumers.registry import Registry
from strandline.broker.jetstream.completion_queue import CompletionQueue
from strandline.broker.streams import Stream
from strandline.broker.streams.registry import Streams
from strandline.broker.thread_runner import Post, ThreadRunner
from strandline.broker.timers import Timers
from strandline.clock import NS_PER_S, Clock
from strandline.errors import StrandlineError, Unavailable

logger = logging.getLogger("strandline.broker")
RETRY_MIN_NS, RETRY_MAX_NS = NS_PER_S, 16 * NS_PER_S
"""How long after a failure, at least and at most, it is tried again."""
Outcome = Stream | Exception | None
PATIENCE_S = 0.1
"""How long the removal of a stream waits for a thread that uses its files."""


class StreamRecovery:
    """Recovers streams; `replaced` receives the successor of a failed stream, `recovered` a name when all is well."""

    def __init__(
        self,
        streams: Streams,
        timers: Timers,
        completions: CompletionQueue,
        *,
        clock: Clock,
        post: Post,
        executor: Executor | None,
        replaced: Callable[[Stream], None],
        recovered: Callable[[str], None],
    ) -> None:
        self._streams = streams
        self._timers = timers
        self._completions = completions
        self._clock = clock
        self._runner = ThreadRunner(executor, post)
        self._replaced = replaced
        self._recovered = recovered
        self._pauses_ns: dict[str, int] = {}
        self._unsalvaged: dict[str, Stream] = {}
        """Failed streams whose durable content is not known yet."""
        streams.vacate = self.vacate

    def begin(self, name: str) -> None:
        """Begin with a stream that failed, unless that was begun already."""
        stream = self._streams.streams.get(name)
        if stream is None or name in self._pauses_ns or not stream.is_on_disk:
            return
        self._pauses_ns[name] = RETRY_MIN_NS
        self._wait(name)
        if stream.failure is not None:
            self._unsalvaged[name] = stream
            self._completions.after([stream.last_ticket], lambda _: self._salvage(stream))

    def vacate(self, name: str) -> None:
        """Leave a stream's files alone until the next attempt; `Unavailable` if that cannot be done at once."""
        if not self._runner.cancel(name, PATIENCE_S):
            raise Unavailable(f"stream {name} is being opened again", hint="try again in a moment")
        if name in self._pauses_ns:
            self._unsalvaged.pop(name, None)
            self._wait(name)

    def end(self, name: str) -> None:
        """Leave a stream alone that is well, or gone."""
        self._pauses_ns.pop(name, None)
        self._unsalvaged.pop(name, None)
        self._timers.set(("mending", name), None, lambda _: None)

    def close(self) -> None:
        """Leave every stream alone, for good."""
        self._runner.close()

    def _wait(self, name: str) -> None:
        pause_ns = self._pauses_ns[name]
        self._pauses_ns[name] = min(2 * pause_ns, RETRY_MAX_NS)
        self._timers.set(("mending", name), self._clock.now_ns() + pause_ns, lambda _: self._look(name))

    def _is_current(self, stream: Stream) -> bool:
        name = stream.config.name
        return self._streams.streams.get(name) is stream and name in self._pauses_ns

    # To be read.

    def _salvage(self, failed: Stream) -> None:
        name = failed.config.name
        if self._unsalvaged.get(name) is failed:
            self._runner.run(failed.salvage, partial(self._salvaged, failed), key=name)

    def _salvaged(self, failed: Stream, found: Outcome) -> None:
        self._unsalvaged.pop(failed.config.name, None)
        if not isinstance(found, Stream):
            logger.error("stream %s cannot be read until it is opened again: %s", failed.config.name, found)
        elif self._is_current(failed):
            self._replaced(found)

    # To be written.

    def _look(self, name: str) -> None:
        stream = self._streams.streams.get(name)
        if stream is None or name not in self._pauses_ns:
            return
        if name in self._unsalvaged:
            self._wait(name)
        else:
            self._runner.run(stream.probe, partial(self._probed, stream), key=name)

    def _probed(self, stream: Stream, problem: Outcome) -> None:
        name = stream.config.name
        if not self._is_current(stream) or problem is not None or not stream.last_ticket.done():
            self._go_on_waiting(name)
        elif stream.refusal is None:
            self._compact(stream)
        else:
            reopened = partial(self._reopened, stream)
            self._runner.run(partial(self._streams.reopen, stream), reopened, key=name, drop=_close)

    def _compact(self, stream: Stream) -> None:
        """Resume a stream that still accepts everything, and whose compaction has failed."""
        try:
            stream.compact_step()
        except StrandlineError as error:
            self._not_yet(stream, error)
        else:
            self._well(stream)

    def _reopened(self, old: Stream, opened: Outcome) -> None:
        if not isinstance(opened, Stream):
            self._not_yet(old, opened)
        elif not self._is_current(old):
            _close(opened)
            self._go_on_waiting(old.config.name)
        else:
            self._replaced(opened)
            _close(old)
            self._well(opened)

    def _well(self, stream: Stream) -> None:
        self.end(stream.config.name)
        self._recovered(stream.config.name)

    def _not_yet(self, stream: Stream, problem: Outcome) -> None:
        logger.warning("opening stream %s again failed, will retry: %s", stream.config.name, problem)
        self._go_on_waiting(stream.config.name)

    def _go_on_waiting(self, name: str) -> None:
        if name in self._pauses_ns:
            self._wait(name)


def _close(stream: Outcome) -> None:
    """Close a stream that is not used any more."""
    if isinstance(stream, Stream):
        with suppress(StrandlineError):
            stream.close(keep_index=False)


def resume_consumers(consumers: Registry, stream: Stream) -> None:
    """Resume the consumers of a stream that was opened again, as after a restart of the server.

    A consumer resumes at its position, or at the end of the stream, if that is before. Its state stays in memory, so
    its files need not be read. Waiting pulls are ended, so that clients pull again.
    """
    name, now_ns = stream.config.name, consumers.streams.clock.now_ns()
    entries = consumers.entries.get(name, {})
    consumers.begin(stream)
    for entry in entries.values():
        old, state = entry.consumer, entry.state
        consumers.drop(entry, SHUTDOWN)
        state.take_back()
        try:
            new = consumers.add(
                stream, entry.config, entry.created_ns, state, now_ns, is_kept=entry.is_kept, name=old.name
            )
        except StrandlineError as error:
            consumers.entries[name][old.name] = entry  # where `lose` looks for it
            consumers.loader.lose(old, error)
        else:
            new.consumer.history = old.history
    consumers.settle(stream)
