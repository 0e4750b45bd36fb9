"""The consumers of one account: created, updated, found, deleted, and stored across restarts.

Invariants: a consumer whose creation was confirmed exists after a crash, and one whose deletion was confirmed does not;
consumers are removed before their stream. Removals of messages are durable with the stream's next barrier.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from strandline.broker.api.error_text import for_clients, for_log
from strandline.broker.api.times import ZERO_TIME_NS
from strandline.broker.consumers.consumer import Consumer
from strandline.broker.consumers.files import NAME_BYTES_MAX, ConsumerFiles, ConsumerRecord
from strandline.broker.consumers.filter_history import History, extend_history, skip_history
from strandline.broker.consumers.interest import reconcile, release, release_copied, update_interest
from strandline.broker.consumers.loader import DELETED, SHUTDOWN, ConsumerLoader
from strandline.broker.consumers.state import ConsumerState, memory_state, open_state
from strandline.broker.consumers.stream_events import StreamEvents
from strandline.broker.routes import Routes
from strandline.broker.streams.arrays import Words
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.storage import Ticket
from strandline.broker.streams.stream import Stream
from strandline.broker.thread_runner import Post
from strandline.errors import StrandlineError
from strandline.gather import InlineExecutor

_NAME_LENGTH = 8
IDLE_CHECK_MIN_NS, IDLE_CHECK_MAX_NS = 20_000_000, 500_000_000
logger = logging.getLogger("strandline.broker")


@dataclass(slots=True)
class RegisteredConsumer:
    """A consumer and its stored form; `config` is the stored one, which the consumer itself follows."""

    consumer: Consumer
    config: ConsumerConfig
    created_ns: int
    state: ConsumerState
    is_kept: bool

    def close(self, reason: str) -> None:
        """Close the consumer and its files; an error is logged and keeps no other consumer from closing."""
        try:
            with contextlib.closing(self.state):
                self.consumer.close(reason)
        except Exception as error:  # noqa: BLE001 - of any kind
            _log_close_error(self.consumer.name, error)


def _log_close_error(name: str, error: Exception) -> None:
    trace = None if isinstance(error, StrandlineError) else error
    logger.error("consumer %s could not be closed: %s", name, for_log(error), exc_info=trace)


class IdleSchedule:
    """When to check for consumers past their inactivity threshold.

    Invariants: checks come several times within the shortest threshold, and not at all where no consumer has one. Pure.
    """

    def __init__(self) -> None:
        self.next_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """Tell whether a check is due."""
        return self.next_ns is not None and now_ns >= self.next_ns

    def note(self, threshold_ns: int, now_ns: int) -> None:
        """Take the threshold of a consumer into account; 0 means none."""
        if threshold_ns > 0:
            due_ns = now_ns + min(max(IDLE_CHECK_MIN_NS, threshold_ns // 4), IDLE_CHECK_MAX_NS)
            self.next_ns = due_ns if self.next_ns is None else min(due_ns, self.next_ns)

    def begin(self) -> None:
        """Begin a check: it notes the thresholds of the remaining consumers anew."""
        self.next_ns = None


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
        self.entries: dict[str, dict[str, RegisteredConsumer]] = {}
        self.restoring: set[str] = set()
        """Streams that are being restored, whose consumers may be incomplete."""
        self._idle = IdleSchedule()
        self.loader = ConsumerLoader(self)
        self.ended: Callable[[Consumer], None] = lambda _: None
        """Called with a consumer that has ended."""
        self.when_settled: Callable[[str, Ticket, Callable[[], None]], None] = self._when_settled
        """Called with a stream, a promise of it, and the action to run when that is settled."""
        streams.consumers = StreamEvents(self)
        streams.consumer_count = self.count

    # Opening and closing.

    def open_all(self) -> None:
        """Open the consumers of every stream that is open."""
        self.loader.open_all()

    def begin(self, stream: Stream) -> None:
        """Register a stream without consumers."""
        name = stream.config.name
        self.entries[name] = {}
        stream.on_abandoned(
            lambda batch, reason: self.tell(BatchAbandoned(name, batch.decode(errors="replace"), reason))
        )

    def close(self) -> None:
        """Close every consumer; they are there when the service is opened again."""
        for entries in self.entries.values():
            for entry in entries.values():
                entry.close(SHUTDOWN)
        self.entries.clear()

    def end_pulls(self) -> None:
        """End waiting pulls with the status of a shutdown, while their clients are connected."""
        for entries in self.entries.values():
            for entry in entries.values():
                entry.consumer.end_pulls()

    @property
    def unreadable(self) -> dict[tuple[str, str], str]:
        """The reasons of offline consumers by stream and name; an empty name stands for all of a stream."""
        return self.loader.offline.reasons

    # Lookup.

    def find(self, stream: str, name: str) -> Consumer | None:
        """Return a consumer, or None."""
        entry = self.entries.get(stream, {}).get(name)
        return None if entry is None else entry.consumer

    def of(self, stream: str) -> list[Consumer]:
        """Return every consumer of a stream."""
        return [entry.consumer for entry in self.entries.get(stream, {}).values()]

    def count(self, stream: str) -> int:
        """Return the number of consumers of a stream, without those of mirrors and sources."""
        return sum(not entry.config.direct for entry in self.entries.get(stream, {}).values())

    def entry(self, stream: str, name: str) -> RegisteredConsumer:
        """Return a registered consumer; `ApiError` if there is none."""
        self.streams.find(stream)
        try:
            return self.entries[stream][name]
        except KeyError:
            if (lost := self.unreadable.get((stream, name))) is not None:
                raise codes.CONSUMER_OFFLINE_REASON.with_text(err=for_clients(lost)) from None
            raise codes.CONSUMER_NOT_FOUND.error() from None

    def shown(self, stream: str) -> list[str]:
        """Return the sorted names of a stream's consumers, without those of mirrors and sources."""
        self.streams.find(stream)
        return sorted(name for name, entry in self.entries.get(stream, {}).items() if not entry.config.direct)

    def info(self, entry: RegisteredConsumer, now_ns: int, *, listed: bool = False) -> ConsumerInfo:
        """Return the info of a consumer, for an INFO response or (`listed`) a LIST response."""
        return replace(entry.consumer.info(now_ns), config=entry.config if listed else entry.config.with_server())

    # Creating and updating.

    def create(
        self, stream_name: str, config: ConsumerConfig, action: Action, now_ns: int, *, pedantic: bool = False
    ) -> RegisteredConsumer:
        """Create a consumer, or update the existing one, as far as the action allows it."""
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

    def _make(self, stream: Stream, config: ConsumerConfig, now_ns: int) -> RegisteredConsumer:
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
            entry.consumer.history = extend_history((), state.delivered_stream, None)
        if files is not None:
            try:
                files.write(name, ConsumerRecord(now_ns, config, entry.consumer.history, state.begins))
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

    def _change(
        self, stream: Stream, entry: RegisteredConsumer, config: ConsumerConfig, action: Action, now_ns: int
    ) -> RegisteredConsumer:
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
                history = extend_history(history, entry.consumer.position - 1, old.filters)
            self.keep(stream, entry, config, history)
            entry.consumer.update(config, now_ns)
            self._idle.note(config.inactive_threshold, now_ns)
            if config.filters != old.filters:
                self.settle(stream)
        return entry

    def keep(self, stream: Stream, entry: RegisteredConsumer, config: ConsumerConfig, history: History) -> None:
        """Store a configuration and a history of a consumer."""
        files = self.files_of(stream)
        if entry.is_kept and files is not None:
            files.write(entry.consumer.name, ConsumerRecord(entry.created_ns, config, history, entry.state.begins))
        entry.config, entry.consumer.history = config, history

    def pause(self, stream_name: str, name: str, until_ns: int, now_ns: int) -> bool:
        """Pause a consumer until a time, or resume it; return whether it is paused now."""
        entry = self.entry(stream_name, name)
        until = None if until_ns == ZERO_TIME_NS else until_ns
        config = replace(entry.config, pause_until=until).with_level()
        self.keep(self.streams.find(stream_name), entry, config, entry.consumer.history)
        entry.consumer.pause(until_ns, now_ns)
        return until_ns > now_ns

    def reset(self, stream_name: str, name: str, sequence: int) -> int:
        """Reset a consumer; return its new position. Skipped messages stay in a work queue."""
        entry, stream = self.entry(stream_name, name), self.streams.find(stream_name)
        position = entry.consumer.resets_to(sequence)
        if stream.config.retention is Retention.WORK_QUEUE:
            history = skip_history(entry.consumer.history, entry.state.decided, entry.config.filters, position)
            self.keep(stream, entry, entry.config, history)
        entry.consumer.reset(position)
        return position

    # Deleting.

    def delete(self, stream_name: str, name: str) -> None:
        """Delete a consumer; if its files cannot be removed, it is loaded again."""
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
                self.loader.note(stream_name, name, error)
                raise
        self.loader.offline.forget(stream_name, name)
        self.settle(stream)

    def drop(self, entry: RegisteredConsumer, reason: str) -> None:
        """Unregister and close a consumer; its files stay as they are."""
        consumer = entry.consumer
        self.entries.get(consumer.stream.config.name, {}).pop(consumer.name, None)
        consumer.close(reason)
        consumer.on_done = None  # it refers to the consumer
        self.ended(consumer)

    def end(self, stream_name: str, entry: RegisteredConsumer) -> None:
        """Close a consumer that is deleted, and publish the advisory."""
        self.drop(entry, DELETED)
        with contextlib.suppress(StrandlineError):  # a failing disk may be the reason for the deletion
            entry.state.close()
        if not entry.config.direct:
            self.tell(ConsumerAction(stream_name, entry.consumer.name, "delete"))

    def tick(self, now_ns: int) -> None:
        """Load failed consumers again, and delete those past their inactivity threshold."""
        self.loader.tick(now_ns)
        if not self._idle.is_due(now_ns):
            return
        self._idle.begin()
        for stream_name, entries in self.entries.items():
            for name, entry in list(entries.items()):
                threshold, idle_ns = entry.config.inactive_threshold, entry.consumer.idle_since_ns
                is_idle = idle_ns is not None and 0 < threshold <= now_ns - idle_ns
                if is_idle and stream_name not in self.restoring:
                    with contextlib.suppress(StrandlineError):  # it is loaded again
                        self.delete(stream_name, name)
                else:
                    self._idle.note(threshold, now_ns)

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` is due, None if nothing is scheduled."""
        due = (self._idle.next_ns, self.loader.offline.next_ns)
        return min((time_ns for time_ns in due if time_ns is not None), default=None)

    # Parts.

    def files_of(self, stream: Stream) -> ConsumerFiles | None:
        """Return the files of a stream's consumers, None for memory storage."""
        if self.streams.folder is None or stream.config.storage is not Storage.FILE:
            return None
        return ConsumerFiles(self.streams.disk, self.streams.folder / stream.config.name)

    def open_state(self, folder: Path) -> ConsumerState:
        """Open the stored state of a consumer, or an empty one."""
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
    ) -> RegisteredConsumer:
        """Register a consumer."""
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
        entry = RegisteredConsumer(consumer, config, created_ns, state, is_kept)
        self.entries[stream.config.name][consumer.name] = entry
        self._idle.note(config.inactive_threshold, now_ns)
        return entry

    def follow(self, stream: Stream, consumer: Consumer) -> None:
        """Release messages that a consumer is done with, where the retention policy says so."""
        if stream.config.retention is Retention.LIMITS:
            consumer.on_done = None
            return

        def on_done(sequences: Words) -> None:
            others = (other for other in self.of(stream.config.name) if other is not consumer)
            if not self._has_lost(stream):
                release(stream, sequences, others)

        consumer.on_done = on_done

    def settle(self, stream: Stream) -> None:
        """Recompute the interest of consumers: what is stored, and what is removed."""
        self.follow_all(stream)
        if not self._has_lost(stream):
            reconcile(stream, self.of(stream.config.name))

    def follow_all(self, stream: Stream) -> None:
        """Recompute the interest of consumers: what is stored."""
        if self._has_lost(stream):
            stream.set_interest(None)
        else:
            update_interest(stream, self.of(stream.config.name))

    def copied(self, stream: Stream, held: Words) -> None:
        """Release messages that a copy holds now and no consumer wants; without messages, recompute the interest."""
        if not len(held):
            self.follow_all(stream)
        elif not self._has_lost(stream):
            release_copied(stream, held, self.of(stream.config.name))

    def _has_lost(self, stream: Stream) -> bool:
        here = stream.config.name
        return here in self.restoring or any(name == here for name, _ in self.unreadable)
