"""The consumers of one account: made, changed, found, forgotten, and kept across restarts.

Invariants: a consumer whose making was answered is there after a crash, and one whose removal was answered is not;
consumers go before their stream does. What lets messages go is durable with the stream's next barrier.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from strandline.broker.api import codes
from strandline.broker.api.advisories import Advisory, BatchAbandoned, ConsumerAction, Paused, new_id
from strandline.broker.api.config import Retention, Storage
from strandline.broker.api.consumer_checks import (
    check_changed_consumer,
    check_consumer,
    check_new_consumer,
    check_unique,
    for_origin,
)
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.consumer_requests import Action
from strandline.broker.api.consumer_responses import ConsumerInfo
from strandline.broker.api.error_text import for_clients
from strandline.broker.api.times import ZERO_TIME_NS
from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.entry import Entry
from strandline.broker.consumers.files import NAME_BYTES_MAX, ConsumerFiles, Kept
from strandline.broker.consumers.filter_history import History, skipped, turned
from strandline.broker.consumers.idle import IdleWatch
from strandline.broker.consumers.interest import follow_interest, reconcile, release, release_copied
from strandline.broker.consumers.loader import DELETED, SHUTDOWN, Loading
from strandline.broker.consumers.state import ConsumerState, memory_state, open_state
from strandline.broker.consumers.stream_events import Following
from strandline.broker.routes import Routes
from strandline.broker.streams.arrays import Words
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.storage import Ticket
from strandline.broker.streams.stream import Stream
from strandline.broker.thread_runner import Post
from strandline.errors import StrandlineError
from strandline.gather import InlineExecutor

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
        self.tell = tell
        self._request_turn = request_turn
        self.post = post
        self.entries: dict[str, dict[str, Entry]] = {}
        self.arriving: set[str] = set()
        """Streams that come back with their consumers, of which some may be missing yet."""
        self._idle = IdleWatch()
        self.loading = Loading(self)
        self.ended: Callable[[Consumer], None] = lambda _: None
        """Called with a consumer that has no more to do."""
        self.when_settled: Callable[[str, Ticket, Callable[[], None]], None] = self._when_settled
        """Called with a stream, a ticket of it, and what to do when that is settled."""
        streams.consumers = Following(self)
        streams.consumer_count = self.count

    # Beginning and ending.

    def open_all(self) -> None:
        """Open the consumers of every stream that is open."""
        self.loading.open_all()

    def begin(self, stream: Stream) -> None:
        """Have no consumers of a stream yet."""
        name = stream.config.name
        self.entries[name] = {}
        stream.on_abandoned(
            lambda batch, reason: self.tell(BatchAbandoned(name, batch.decode(errors="replace"), reason))
        )

    def close(self) -> None:
        """Let go of every consumer; they are there when the service is opened again."""
        for entries in self.entries.values():
            for entry in entries.values():
                entry.let_go(SHUTDOWN)
        self.entries.clear()

    def end_pulls(self) -> None:
        """Tell pulls that wait, while their clients are still there, that the server ends."""
        for entries in self.entries.values():
            for entry in entries.values():
                entry.consumer.end_pulls()

    @property
    def unreadable(self) -> dict[tuple[str, str], str]:
        """Consumers that are offline, by stream and name, and why; without a name, those of a whole stream."""
        return self.loading.offline.reasons

    # Finding.

    def find(self, stream: str, name: str) -> Consumer | None:
        """Return a consumer, or None."""
        entry = self.entries.get(stream, {}).get(name)
        return None if entry is None else entry.consumer

    def of(self, stream: str) -> list[Consumer]:
        """Return every consumer of a stream."""
        return [entry.consumer for entry in self.entries.get(stream, {}).values()]

    def count(self, stream: str) -> int:
        """Return how many consumers a stream has; those of mirrors and sources do not count."""
        return sum(not entry.config.direct for entry in self.entries.get(stream, {}).values())

    def entry(self, stream: str, name: str) -> Entry:
        """Return a consumer and how it is kept; `ApiError` if there is none."""
        self.streams.find(stream)
        try:
            return self.entries[stream][name]
        except KeyError:
            if (lost := self.unreadable.get((stream, name))) is not None:
                raise codes.CONSUMER_OFFLINE_REASON.with_text(err=for_clients(lost)) from None
            raise codes.CONSUMER_NOT_FOUND.error() from None

    def shown(self, stream: str) -> list[str]:
        """Return the names of a stream's consumers, in order; those of mirrors and sources are not shown."""
        self.streams.find(stream)
        return sorted(name for name, entry in self.entries.get(stream, {}).items() if not entry.config.direct)

    def info(self, entry: Entry, now_ns: int, *, listed: bool = False) -> ConsumerInfo:
        """Return a consumer as it is shown to one who asks for it, or in a list."""
        return replace(entry.consumer.info(now_ns), config=entry.config if listed else entry.config.with_server())

    # Making and changing.

    def create(
        self, stream_name: str, config: ConsumerConfig, action: Action, now_ns: int, *, pedantic: bool = False
    ) -> Entry:
        """Make a consumer, or change the one that is there, as far as the action allows it."""
        stream = self.streams.find(stream_name)
        entries = self.entries.setdefault(stream_name, {})
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

    def _make(self, stream: Stream, config: ConsumerConfig, now_ns: int) -> Entry:
        stream_name = stream.config.name
        name = config.name or self._new_name(stream_name)
        if len(name.encode()) > NAME_BYTES_MAX:
            raise codes.CONSUMER_CREATE.with_text(err="error creating store for consumer")
        files = self.files_of(stream)
        if config.mem_storage or config.direct:
            files = None
        state = memory_state() if files is None else self.open_state(files.prepare(name))
        entry = self.add(stream, config, now_ns, state, now_ns, is_kept=files is not None, name=name)
        if stream.config.retention is Retention.WORK_QUEUE and state.delivered_stream >= stream.first_seq:
            entry.consumer.history = turned((), state.delivered_stream, None)
        if files is not None:
            try:
                files.write(name, Kept(now_ns, config, entry.consumer.history, state.begins))
            except StrandlineError:
                self.drop(entry, DELETED)
                with contextlib.suppress(StrandlineError):
                    state.close()
                raise
        self.follow_all(stream)
        if not config.direct:
            self.tell(ConsumerAction(stream_name, name, "create"))
        if config.paused_until_ns() > now_ns:
            self.tell(Paused(stream_name, name, paused=True, pause_until=config.paused_until_ns()))
        return entry

    def _new_name(self, stream_name: str) -> str:
        while (name := new_id(_NAME_LENGTH)) in self.entries[stream_name]:
            pass
        return name

    def _change(self, stream: Stream, entry: Entry, config: ConsumerConfig, action: Action, now_ns: int) -> Entry:
        old = entry.config
        if action is Action.CREATE:
            if config != old:
                raise codes.CONSUMER_ALREADY_EXISTS.error()
            return entry
        if stream.config.retention is Retention.WORK_QUEUE:
            others = self.entries[stream.config.name]
            check_unique(config, {name: other.config for name, other in others.items()})
        bound = old.is_push and self._routes.has_subscription(old.deliver_subject.encode(), old.deliver_group.encode())
        config = check_changed_consumer(old, config, is_bound=bound)
        if config != old:
            history = entry.consumer.history
            if stream.config.retention is Retention.WORK_QUEUE and config.filters != old.filters:
                history = turned(history, entry.consumer.position - 1, old.filters)
            self.keep(stream, entry, config, history)
            entry.consumer.update(config, now_ns)
            self._idle.note(config.inactive_threshold, now_ns)
            if config.filters != old.filters:
                self.settle(stream)
        return entry

    def keep(self, stream: Stream, entry: Entry, config: ConsumerConfig, history: History) -> None:
        """Let a consumer have a configuration, and a history, that it keeps."""
        files = self.files_of(stream)
        if entry.is_kept and files is not None:
            files.write(entry.consumer.name, Kept(entry.created_ns, config, history, entry.state.begins))
        entry.config, entry.consumer.history = config, history

    def pause(self, stream_name: str, name: str, until_ns: int, now_ns: int) -> bool:
        """Pause a consumer until a time, or let it go on; return whether it is paused now."""
        entry = self.entry(stream_name, name)
        until = None if until_ns == ZERO_TIME_NS else until_ns
        config = replace(entry.config, pause_until=until).with_level()
        self.keep(self.streams.find(stream_name), entry, config, entry.consumer.history)
        entry.consumer.pause(until_ns, now_ns)
        return until_ns > now_ns

    def reset(self, stream_name: str, name: str, sequence: int) -> int:
        """Let a consumer begin anew; return where. What it skips is not its own, and stays in a work queue."""
        entry, stream = self.entry(stream_name, name), self.streams.find(stream_name)
        position = entry.consumer.resets_to(sequence)
        if stream.config.retention is Retention.WORK_QUEUE:
            history = skipped(entry.consumer.history, entry.state.decided, entry.config.filters, position)
            self.keep(stream, entry, entry.config, history)
        entry.consumer.reset(position)
        return position

    # Removing.

    def delete(self, stream_name: str, name: str) -> None:
        """Forget a consumer; one whose files cannot be removed is loaded again, if it is still there."""
        stream = self.streams.find(stream_name)
        files = self.files_of(stream)
        is_kept = (stream_name, name) in self.unreadable
        if not is_kept:
            entry = self.entry(stream_name, name)
            is_kept = entry.is_kept
            self.end(stream_name, entry)
        if is_kept and files is not None:
            try:
                files.remove(name)
            except StrandlineError as error:
                self.loading.note(stream_name, name, error)
                raise
        self.loading.offline.forget(stream_name, name)
        self.settle(stream)

    def drop(self, entry: Entry, reason: str) -> None:
        """Have a consumer no more; what is kept of it is as it was."""
        consumer = entry.consumer
        self.entries.get(consumer.stream.config.name, {}).pop(consumer.name, None)
        consumer.close(reason)
        consumer.on_done = None  # which holds it
        self.ended(consumer)

    def end(self, stream_name: str, entry: Entry) -> None:
        """Let go of a consumer that is removed."""
        self.drop(entry, DELETED)
        with contextlib.suppress(StrandlineError):  # a disk that fails may be why it is removed
            entry.state.close()
        if not entry.config.direct:
            self.tell(ConsumerAction(stream_name, entry.consumer.name, "delete"))

    def tick(self, now_ns: int) -> None:
        """Load consumers again that failed, and forget those that nobody has used for as long as they say."""
        self.loading.tick(now_ns)
        if not self._idle.is_due(now_ns):
            return
        self._idle.begin()
        for stream_name, entries in self.entries.items():
            for name, entry in list(entries.items()):
                threshold, idle_ns = entry.config.inactive_threshold, entry.consumer.idle_since_ns
                is_idle = idle_ns is not None and 0 < threshold <= now_ns - idle_ns
                if is_idle and stream_name not in self.arriving:
                    with contextlib.suppress(StrandlineError):  # it is loaded again
                        self.delete(stream_name, name)
                else:
                    self._idle.note(threshold, now_ns)

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` has something to do, None if nothing is known of."""
        due = (self._idle.next_ns, self.loading.offline.next_ns)
        return min((time_ns for time_ns in due if time_ns is not None), default=None)

    # The parts.

    def files_of(self, stream: Stream) -> ConsumerFiles | None:
        """Return the files of a stream's consumers, None where nothing is kept."""
        if self.streams.folder is None or stream.config.storage is not Storage.FILE:
            return None
        return ConsumerFiles(self.streams.disk, self.streams.folder / stream.config.name)

    def open_state(self, folder: Path) -> ConsumerState:
        """Open what is kept of a consumer's place, or begin with nothing."""
        streams = self.streams
        return open_state(
            streams.disk,
            folder,
            clock=streams.clock,
            executor=streams.executor or InlineExecutor(),
            post=self._later,
            durability=streams.durability,
        )

    def _when_settled(self, stream: str, ticket: Ticket, action: Callable[[], None]) -> None:
        del stream
        ticket.add_done_callback(lambda _: self.post(action))

    def _later(self, call: Callable[[], None]) -> None:
        self.post(call)

    def add(
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
        """Have a consumer."""
        consumer = Consumer(
            name,
            config,
            created_ns,
            stream,
            self._routes,
            state,
            self.tell,
            self._request_turn,
            now_ns=now_ns,
            when_settled=lambda ticket, action: self.when_settled(stream.config.name, ticket, action),
        )
        self.follow(stream, consumer)
        entry = Entry(consumer, config, created_ns, state, is_kept)
        self.entries[stream.config.name][consumer.name] = entry
        self._idle.note(config.inactive_threshold, now_ns)
        return entry

    def follow(self, stream: Stream, consumer: Consumer) -> None:
        """Hear of what a consumer is done with, where that matters."""
        if stream.config.retention is Retention.LIMITS:
            consumer.on_done = None
            return

        def on_done(sequences: Words) -> None:
            others = (other for other in self.of(stream.config.name) if other is not consumer)
            if not self._has_lost(stream):
                release(stream, sequences, others)

        consumer.on_done = on_done

    def settle(self, stream: Stream) -> None:
        """Let interest decide anew what is stored and what stays."""
        self.follow_all(stream)
        if not self._has_lost(stream):
            reconcile(stream, self.of(stream.config.name))

    def follow_all(self, stream: Stream) -> None:
        """Let interest decide anew what is stored."""
        if self._has_lost(stream):
            stream.set_interest(None)
        else:
            follow_interest(stream, self.of(stream.config.name))

    def copied(self, stream: Stream, held: Words) -> None:
        """Let go of what a copy holds now, unless somebody wants it or may; without any, follow what copies want."""
        if not len(held):
            self.follow_all(stream)
        elif not self._has_lost(stream):
            release_copied(stream, held, self.of(stream.config.name))

    def _has_lost(self, stream: Stream) -> bool:
        here = stream.config.name
        return here in self.arriving or any(name == here for name, _ in self.unreadable)
