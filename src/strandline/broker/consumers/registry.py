"""The consumers of one account: made, changed, found, forgotten, and kept across restarts.

Invariants: a consumer whose making was answered is there after a crash, and one whose removal was answered is not;
consumers go before their stream does. What lets messages go is durable with the stream's next barrier.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from strandline.broker.api import codes
from strandline.broker.api.advisories import Advisory, BatchAbandoned, ConsumerAction, Paused, new_id
from strandline.broker.api.config import Retention, Storage
from strandline.broker.api.consumer_answers import ConsumerInfo
from strandline.broker.api.consumer_checks import (
    INACTIVE_DEFAULT,
    check_changed_consumer,
    check_consumer,
    check_new_consumer,
    check_unique,
    for_origin,
)
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.consumer_requests import Action
from strandline.broker.api.reasons import for_clients, for_log
from strandline.broker.api.times import ZERO_TIME_NS
from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.entry import Entry
from strandline.broker.consumers.files import NAME_BYTES_MAX, ConsumerFiles, Kept
from strandline.broker.consumers.history import History, cut, skipped, turned
from strandline.broker.consumers.idle import IdleWatch
from strandline.broker.consumers.interest import follow_interest, reconcile, release
from strandline.broker.consumers.state import ConsumerState, Saved, memory_state, open_state
from strandline.broker.routes import Routes
from strandline.broker.streams.arrays import Words
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.stream import Stream
from strandline.errors import StrandlineError
from strandline.gather import InlineExecutor

logger = logging.getLogger("strandline.broker")
Post = Callable[[Callable[[], None]], object]
DELETED, SHUTDOWN = "Consumer Deleted", "Server Shutdown"
_NAME_LENGTH = 8


class Registry:
    """The consumers of every stream of an account, by name."""

    def __init__(
        self,
        streams: StreamService,
        routes: Routes,
        *,
        tell: Callable[[Advisory], None],
        request_turn: Callable[[Consumer], None],
        post: Post,
    ) -> None:
        self.streams = streams
        self._routes = routes
        self._tell = tell
        self._request_turn = request_turn
        self._post = post
        self._entries: dict[str, dict[str, Entry]] = {}
        self._idle = IdleWatch()
        self.unreadable: dict[tuple[str, str], str] = {}
        """Streams and consumers that could not be opened, or failed, and why; nothing goes that they may want."""
        self.ended: Callable[[Consumer], None] = lambda _: None
        """Called with a consumer that has no more to do."""

    # Beginning and ending.

    def open_all(self) -> None:
        """Open the consumers of every stream that is open."""
        for name, stream in self.streams.streams.items():
            self._begin(stream)
            try:
                self._open(stream)
            except StrandlineError as error:
                self._lose(name, "", error)

    def _open(self, stream: Stream) -> None:
        name, files = stream.config.name, self._files(stream)
        if files is None:
            return
        now_ns = self.streams.clock.now_ns()
        for consumer_name, kept in files.read_all().items():
            try:
                if isinstance(kept, StrandlineError):
                    raise kept
                state = self._open_state(files.place(consumer_name))
                entry = self._add(stream, kept.config, kept.created_ns, state, now_ns, is_kept=True, name=consumer_name)
                history = entry.consumer.history = cut(kept.history, state.delivered_stream, stream.first_seq)
                if history != kept.history:
                    self._keep(stream, entry, kept.config, history)
            except StrandlineError as error:
                self._lose(name, consumer_name, error)
        if self._entries[name]:
            self._settle(stream)
        else:
            self._follow_all(stream)

    def _begin(self, stream: Stream) -> None:
        name = stream.config.name
        self._entries[name] = {}
        stream.on_abandoned(
            lambda batch, reason: self._tell(BatchAbandoned(name, batch.decode(errors="replace"), reason))
        )

    def _lose(self, stream: str, consumer: str, error: StrandlineError) -> None:
        self.unreadable[stream, consumer] = str(error)
        advice = "restore its folder from a backup and restart the server, or delete the consumer to begin anew"
        logger.error("consumer %s of stream %s cannot be opened: %s", consumer, stream, for_log(error, advice))

    def close(self) -> None:
        """Let go of every consumer; they are there when the service is opened again."""
        for entries in self._entries.values():
            for entry in entries.values():
                entry.let_go(SHUTDOWN)
        self._entries.clear()

    # Finding.

    def find(self, stream: str, name: str) -> Consumer | None:
        """Return a consumer, or None."""
        entry = self._entries.get(stream, {}).get(name)
        return None if entry is None else entry.consumer

    def of(self, stream: str) -> list[Consumer]:
        """Return every consumer of a stream."""
        return [entry.consumer for entry in self._entries.get(stream, {}).values()]

    def count(self, stream: str) -> int:
        """Return how many consumers a stream has; those of mirrors and sources do not count."""
        return sum(not entry.config.direct for entry in self._entries.get(stream, {}).values())

    def entry(self, stream: str, name: str) -> Entry:
        """Return a consumer and how it is kept; `ApiError` if there is none."""
        self.streams.find(stream)
        try:
            return self._entries[stream][name]
        except KeyError:
            if (lost := self.unreadable.get((stream, name))) is not None:
                raise codes.CONSUMER_OFFLINE_REASON.with_text(err=for_clients(lost)) from None
            raise codes.CONSUMER_NOT_FOUND.error() from None

    def shown(self, stream: str) -> list[str]:
        """Return the names of a stream's consumers, in order; those of mirrors and sources are not shown."""
        self.streams.find(stream)
        return sorted(name for name, entry in self._entries.get(stream, {}).items() if not entry.config.direct)

    def info(self, entry: Entry, now_ns: int, *, listed: bool = False) -> ConsumerInfo:
        """Return a consumer as it is shown to one who asks for it, or in a list."""
        return replace(entry.consumer.info(now_ns), config=entry.config if listed else entry.config.with_server())

    # Making and changing.

    def create(
        self, stream_name: str, config: ConsumerConfig, action: Action, now_ns: int, *, pedantic: bool = False
    ) -> Entry:
        """Make a consumer, or change the one that is there, as far as the action allows it."""
        stream = self.streams.find(stream_name)
        entries = self._entries.setdefault(stream_name, {})
        config = for_origin(config, stream.config, new_id(_NAME_LENGTH))
        existing = entries.get(config.name)
        if existing is not None:
            config = replace(config, pause_until=existing.config.pause_until)
        limits = self.streams.limits
        config = check_consumer(config.with_level(), stream.config, limits, pedantic=pedantic)
        if existing is not None:
            return self._change(stream, existing, config, action, now_ns)
        if action is Action.UPDATE:
            raise codes.CONSUMER_DOES_NOT_EXIST.error()
        lost = self.unreadable.get((stream_name, config.name))
        if lost is not None:
            raise codes.CONSUMER_OFFLINE_REASON.with_text(err=for_clients(lost))
        others = {name: entry.config for name, entry in entries.items()}
        config = check_new_consumer(config, stream.config, limits, others, count=self.count(stream_name))
        return self._make(stream, config, now_ns)

    def _make(self, stream: Stream, config: ConsumerConfig, now_ns: int, where: Saved | None = None) -> Entry:
        stream_name = stream.config.name
        name = config.name or self._new_name(stream_name)
        if len(name.encode()) > NAME_BYTES_MAX:
            raise codes.CONSUMER_CREATE.with_text(err="error creating store for consumer")
        files = self._files(stream)
        if config.mem_storage or config.direct:
            files = None
        state = memory_state() if files is None else self._open_state(files.prepare(name))
        if where is not None:
            try:
                state.adopt(where)
            except BaseException:
                state.close()
                raise
        entry = self._add(stream, config, now_ns, state, now_ns, is_kept=files is not None, name=name)
        if stream.config.retention is Retention.WORK_QUEUE and state.delivered_stream >= stream.first_seq:
            entry.consumer.history = turned((), state.delivered_stream, None)
        if files is not None:
            try:
                # Its position is on stable storage since it has one.
                files.write(name, Kept(now_ns, config, entry.consumer.history))
            except StrandlineError:
                del self._entries[stream_name][name]
                entry.consumer.close(DELETED)
                with contextlib.suppress(StrandlineError):
                    state.close()
                raise
        self._follow_all(stream)
        if not config.direct:
            self._tell(ConsumerAction(stream_name, name, "create"))
        if config.paused_until_ns() > now_ns:
            self._tell(Paused(stream_name, name, paused=True, pause_until=config.paused_until_ns()))
        return entry

    def restore(self, stream: Stream, name: str, config: ConsumerConfig, where: Saved, now_ns: int) -> None:
        """Make a consumer that goes on where another one was."""
        config = check_consumer(replace(config, name=config.name or name), stream.config, self.streams.limits)
        if config.name in self._entries[stream.config.name]:
            raise codes.CONSUMER_ALREADY_EXISTS.error()
        if not config.is_durable and config.inactive_threshold <= 0:
            config = replace(config, inactive_threshold=INACTIVE_DEFAULT)
        self._make(stream, config.with_level(), now_ns, where)

    def _new_name(self, stream_name: str) -> str:
        while (name := new_id(_NAME_LENGTH)) in self._entries[stream_name]:
            pass
        return name

    def _change(self, stream: Stream, entry: Entry, config: ConsumerConfig, action: Action, now_ns: int) -> Entry:
        old = entry.config
        if action is Action.CREATE:
            if config != old:
                raise codes.CONSUMER_ALREADY_EXISTS.error()
            return entry
        if stream.config.retention is Retention.WORK_QUEUE:
            others = self._entries[stream.config.name]
            check_unique(config, {name: other.config for name, other in others.items()})
        bound = old.is_push and self._routes.has_interest(old.deliver_subject.encode(), old.deliver_group.encode())
        config = check_changed_consumer(old, config, is_bound=bound)
        if config != old:
            history = entry.consumer.history
            if stream.config.retention is Retention.WORK_QUEUE and config.filters != old.filters:
                history = turned(history, entry.consumer.position - 1, old.filters)
            self._keep(stream, entry, config, history)
            entry.consumer.update(config, now_ns)
            self._idle.note(config.inactive_threshold, now_ns)
            if config.filters != old.filters:
                self._settle(stream)
        return entry

    def _keep(self, stream: Stream, entry: Entry, config: ConsumerConfig, history: History) -> None:
        files = self._files(stream)
        if entry.is_kept and files is not None:
            files.write(entry.consumer.name, Kept(entry.created_ns, config, history))
        entry.config, entry.consumer.history = config, history

    def pause(self, stream_name: str, name: str, until_ns: int, now_ns: int) -> bool:
        """Pause a consumer until a time, or let it go on; return whether it is paused now."""
        entry = self.entry(stream_name, name)
        until = None if until_ns == ZERO_TIME_NS else until_ns
        config = replace(entry.config, pause_until=until).with_level()
        self._keep(self.streams.find(stream_name), entry, config, entry.consumer.history)
        entry.consumer.pause(until_ns, now_ns)
        return until_ns > now_ns

    def reset(self, stream_name: str, name: str, sequence: int) -> int:
        """Let a consumer begin anew; return where. What it skips is not its own, and stays in a work queue."""
        entry, stream = self.entry(stream_name, name), self.streams.find(stream_name)
        position = entry.consumer.resets_to(sequence)
        if stream.config.retention is Retention.WORK_QUEUE:
            history = skipped(entry.consumer.history, entry.state.decided, entry.config.filters, position)
            self._keep(stream, entry, entry.config, history)
        entry.consumer.reset(position)
        return position

    # Removing.

    def delete(self, stream_name: str, name: str) -> None:
        """Forget a consumer."""
        stream = self.streams.find(stream_name)
        files = self._files(stream)
        is_kept = (stream_name, name) in self.unreadable
        if not is_kept:
            entry = self.entry(stream_name, name)
            is_kept = entry.is_kept
            del self._entries[stream_name][name]
            self._end(stream_name, entry)
        if is_kept and files is not None:
            files.remove(name)
        self.unreadable.pop((stream_name, name), None)
        self._settle(stream)

    def _end(self, stream_name: str, entry: Entry) -> None:
        entry.consumer.close(DELETED)
        entry.consumer.on_done = None  # which holds it
        self.ended(entry.consumer)
        entry.state.close()
        if not entry.config.direct:
            self._tell(ConsumerAction(stream_name, entry.consumer.name, "delete"))

    def tick(self, now_ns: int) -> None:
        """Forget consumers that nobody has used for as long as they say."""
        if not self._idle.is_due(now_ns):
            return
        self._idle.begin()
        for stream_name, entries in self._entries.items():
            for name, entry in list(entries.items()):
                threshold, idle_ns = entry.config.inactive_threshold, entry.consumer.idle_since_ns
                if idle_ns is not None and 0 < threshold <= now_ns - idle_ns:
                    self.delete(stream_name, name)
                else:
                    self._idle.note(threshold, now_ns)

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` has something to do, None if nothing is known of."""
        return self._idle.next_ns

    # The parts.

    def _files(self, stream: Stream) -> ConsumerFiles | None:
        if self.streams.folder is None or stream.config.storage is not Storage.FILE:
            return None
        return ConsumerFiles(self.streams.disk, self.streams.folder / stream.config.name)

    def _open_state(self, folder: Path) -> ConsumerState:
        streams = self.streams
        return open_state(
            streams.disk,
            folder,
            clock=streams.clock,
            executor=streams.executor or InlineExecutor(),
            post=self._later,
            durability=streams.durability,
        )

    def _later(self, call: Callable[[], None]) -> None:
        self._post(call)

    def _add(
        self,
        stream: Stream,
        config: ConsumerConfig,
        created_ns: int,
        state: ConsumerState,
        now_ns: int,
        *,
        is_kept: bool,
        name: str,
    ) -> Entry:
        consumer = Consumer(
            name,
            config,
            created_ns,
            stream,
            self._routes,
            state,
            self._tell,
            self._request_turn,
            now_ns=now_ns,
        )
        self._follow(stream, consumer)
        entry = Entry(consumer, config, created_ns, state, is_kept)
        self._entries[stream.config.name][consumer.name] = entry
        self._idle.note(config.inactive_threshold, now_ns)
        return entry

    def _follow(self, stream: Stream, consumer: Consumer) -> None:
        """Hear of what a consumer is done with, where that matters."""
        if stream.config.retention is Retention.LIMITS:
            consumer.on_done = None
            return

        def on_done(sequences: Words) -> None:
            others = (other for other in self.of(stream.config.name) if other is not consumer)
            if not self._has_lost(stream):
                release(stream, sequences, others)

        consumer.on_done = on_done

    def _settle(self, stream: Stream) -> None:
        """Let interest decide anew what is stored and what stays."""
        self._follow_all(stream)
        if not self._has_lost(stream):
            reconcile(stream, self.of(stream.config.name))

    def _follow_all(self, stream: Stream) -> None:
        if self._has_lost(stream):
            stream.set_interest(None)
        else:
            follow_interest(stream, self.of(stream.config.name))

    def _has_lost(self, stream: Stream) -> bool:
        return any(name == stream.config.name for name, _ in self.unreadable)
