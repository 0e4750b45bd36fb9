"""What the tests of consumers share: routes that write down what they are given, and a stream with its consumers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np

from strandline.broker.api.advisories import Advisory
from strandline.broker.api.checks import check_create
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.consumers import Consumer, ConsumerState, memory_state
from strandline.broker.consumers.state import GROUP
from strandline.broker.routes import Cancel, Deliveries, Inbound, Origin, Sink
from strandline.broker.streams import PublishBatch, Stream
from strandline.clock import ManualClock
from strandline.gather import InlineExecutor
from strandline.groups import GroupConfig, Recorder
from strandline.sim import SimDisk
from strandline.wire import FrameParser, Side, parse_ack

SECOND = 1_000_000_000
MILLI = 1_000_000
STREAM_FOLDER = Path("/sim/S")
CONSUMERS = Path("/sim/consumers")
Value: TypeAlias = Any
"""A value of a configuration."""
ORIGIN = Origin(1, "$G")


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that went out: to whom, and what it says."""

    to: str
    subject: str
    payload: str
    reply: str
    headers: str

    @property
    def status(self) -> str:
        """The status line, without the version; empty for a message."""
        line = self.headers.split("\r\n")[0]
        return line.removeprefix("NATS/1.0").strip()

    @property
    def sequence(self) -> int:
        """The stream sequence, from the ack subject."""
        found = parse_ack(self.reply.encode())
        assert found is not None
        return found.stream_sequence

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """Deliveries, stream sequence, consumer sequence, and how many are left."""
        found = parse_ack(self.reply.encode())
        assert found is not None
        return found.delivered, found.stream_sequence, found.consumer_sequence, found.pending

    def header(self, name: str) -> str:
        """Return the value of a header, empty if there is none."""
        for line in self.headers.split("\r\n"):
            if line.startswith(name + ": "):
                return line[len(name) + 2 :]
        return ""


@dataclass
class RecordingRoutes:
    """Routes of one account whose clients listen to what `listening` says."""

    listening: dict[bytes, int | None] = field(default_factory=dict)
    """Subjects, and how many more messages each listener takes; None for any number."""
    queues: dict[bytes, bytes] = field(default_factory=dict)
    rooms: dict[bytes, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    watchers: list[tuple[bytes, Callable[[], None]]] = field(default_factory=list)
    waiting: list[tuple[bytes, Callable[[], None]]] = field(default_factory=list)

    def listen(self, subject: str, limit: int | None = None, queue: str = "") -> None:
        """Let a client listen on a subject."""
        self.listening[subject.encode()] = limit
        if queue:
            self.queues[subject.encode()] = queue.encode()
        self._tell(subject.encode())

    def leave(self, subject: str) -> None:
        """Let nobody listen on a subject."""
        self.listening.pop(subject.encode(), None)
        self._tell(subject.encode())

    def _tell(self, subject: bytes) -> None:
        for watched, changed in list(self.watchers):
            if watched == subject:
                changed()

    def give_room(self, subject: str, room: int) -> None:
        """Let there be so much room for a subject."""
        self.rooms[subject.encode()] = room
        waiting, self.waiting = self.waiting, []
        for where, go_on in waiting:
            if where == subject.encode():
                go_on()
            else:
                self.waiting.append((where, go_on))

    def take(self) -> list[Sent]:
        """Return what was sent since the last time."""
        sent, self.sent = self.sent, []
        return sent

    # Routes

    def subscribe(self, pattern: bytes | Sequence[bytes], sink: Sink) -> Cancel:
        raise NotImplementedError

    def has_interest(self, subject: bytes, queue: bytes = b"") -> bool:
        return subject in self.listening and (not queue or self.queues.get(subject) == queue)

    def has_subscription(self, subject: bytes, queue: bytes = b"") -> bool:
        return self.has_interest(subject, queue)

    def watch_interest(self, subject: bytes, changed: Callable[[], None]) -> Cancel:
        watcher = (subject, changed)
        self.watchers.append(watcher)
        return lambda: self.watchers.remove(watcher) if watcher in self.watchers else None

    def room(self, subject: bytes) -> int:
        return self.rooms.get(subject, 8 << 20)

    def when_room(self, subject: bytes, go_on: Callable[[], None]) -> None:
        self.waiting.append((subject, go_on))

    def send(self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> bool:
        return bool(self.deliver(subject, Deliveries([subject], [payload], [reply], [headers])))

    def send_many(self, messages: Deliveries) -> None:
        for at, subject in enumerate(messages.subjects):
            self.send(subject, messages.payloads[at])

    def deliver(self, to: bytes, messages: Deliveries, queue: bytes = b"") -> int:
        if not self.has_interest(to, queue):
            return 0
        limit = self.listening[to]
        count = len(messages) if limit is None else min(limit, len(messages))
        for at in range(count):
            self.sent.append(
                Sent(
                    to.decode(),
                    messages.subjects[at].decode(),
                    messages.payloads[at].decode(),
                    messages.replies[at].decode() if messages.replies is not None else "",
                    messages.headers[at].decode() if messages.headers is not None else "",
                )
            )
        if limit is not None:
            self.listening[to] = limit - count
            if limit == count:
                self.leave(to.decode())
        return count

    def no_responders(self, messages: Inbound, rows: list[int]) -> None:
        raise NotImplementedError


def inbound(rows: list[tuple[str, str, str]]) -> Inbound:
    """Return messages as a client sends them: subject, payload, reply."""
    parser = FrameParser(Side.CLIENT)
    data = b"".join(
        b"PUB %s %s%d\r\n%s\r\n"
        % (subject.encode(), reply.encode() + b" " if reply else b"", len(payload.encode()), payload.encode())
        for subject, payload, reply in rows
    )
    frames = parser.feed(data)
    return Inbound(frames, [row[0].encode() for row in rows], ORIGIN)


class StreamWithConsumers:
    """A stream, its consumers, what they told, and a clock that moves when told."""

    def __init__(self, *, on_disk: bool = False, executor: InlineExecutor | None = None, **options: Value) -> None:
        self.disk = SimDisk()
        self.clock = ManualClock(1_700_000_000 * SECOND)
        self.routes = RecordingRoutes()
        self.told: list[Advisory] = []
        self.due: dict[str, Consumer] = {}
        self.consumers: dict[str, Consumer] = {}
        options.setdefault("subjects", ("s.>",))
        storage = Storage.FILE if on_disk else Storage.MEMORY
        config = check_create(StreamConfig(name="S", storage=storage, **options), Neighbours())
        folder = STREAM_FOLDER if on_disk else None
        executor = executor or InlineExecutor()
        self.stream = Stream.create(folder, config, disk=self.disk, clock=self.clock, executor=executor)

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns()

    def publish(self, *rows: str | tuple[str, str]) -> None:
        """Store messages: a subject and a payload, or only a payload."""
        pairs = [row if isinstance(row, tuple) else ("s.a", row) for row in rows]
        batch = PublishBatch([subject.encode() for subject, _ in pairs], [payload.encode() for _, payload in pairs])
        self.stream.publish(batch, self.now_ns)
        for consumer in self.consumers.values():
            consumer.note_stored()
        self.run()

    def state(self, name: str, config: GroupConfig | None = None) -> ConsumerState:
        """Open the durable state of a consumer."""
        recorder = Recorder.open(
            self.disk, CONSUMERS / name, GROUP, clock=self.clock, executor=InlineExecutor(), config=config
        )
        return ConsumerState(recorder)

    def consumer(self, name: str = "C", *, state: ConsumerState | None = None, **options: Value) -> Consumer:
        """Make a consumer with the defaults that a server fills in."""
        made = self._make(name, with_defaults(ConsumerConfig(name=name, **options)), state or memory_state())
        self.run()
        return made

    def _make(self, name: str, config: ConsumerConfig, state: ConsumerState) -> Consumer:
        made = Consumer(
            name,
            config,
            self.now_ns,
            self.stream,
            self.routes,
            state,
            self.told.append,
            self._request,
            now_ns=self.now_ns,
        )
        self.consumers[name] = made
        self.stream.add_listener(made.note_removed)
        return made

    def reopen(self, random: Random | None = None) -> None:
        """Die, with everything that was written or, given a source of chance, as a machine does; and come back."""
        if random is None:
            self.disk.kill()
        else:
            self.disk.crash(random)
        self.due.clear()
        self.stream = Stream.open(STREAM_FOLDER, disk=self.disk, clock=self.clock, executor=InlineExecutor())
        before, self.consumers = self.consumers, {}
        for name, consumer in before.items():
            self._make(name, consumer.config, self.state(name))
        self.run()

    def idle_since(self, consumer: Consumer) -> int | None:
        """Return since when a consumer is idle."""
        return consumer.idle_since_ns

    def _request(self, consumer: Consumer) -> None:
        self.due[consumer.name] = consumer

    def run(self) -> None:
        """Let every consumer that asked for it have its turns."""
        while self.due:
            _, consumer = self.due.popitem()
            if consumer.step(self.now_ns):
                self.due[consumer.name] = consumer

    def wait(self, seconds: float) -> None:
        """Let time pass, ticking whenever something is due."""
        end_ns = self.now_ns + int(seconds * SECOND)
        ticks = 0
        while True:
            due = [c.next_due_ns for c in self.consumers.values()]
            next_ns = min((time_ns for time_ns in due if time_ns is not None), default=end_ns + 1)
            if next_ns > end_ns:
                break
            ticks = 0 if next_ns > self.now_ns else ticks + 1
            assert ticks < 10, "a consumer is due again and again"
            self.move_to(max(next_ns, self.now_ns))
            for consumer in self.consumers.values():
                consumer.tick(self.now_ns)
            self.run()
        self.move_to(end_ns)

    def move_to(self, time_ns: int) -> None:
        """Let it be a certain time."""
        self.clock.advance((time_ns - self.now_ns + 0.5) / SECOND)

    def pull(self, consumer: Consumer, payload: str = "", inbox: str = "_INBOX.1", headers: str = "") -> list[Sent]:
        """Ask for messages; return everything that was sent."""
        self.routes.listening.setdefault(inbox.encode(), None)
        consumer.take_pulls([(inbox.encode(), payload.encode(), headers.encode())])
        self.run()
        return self.routes.take()

    def answer(self, consumer: Consumer, *sent: Sent, payload: str = "+ACK", reply: str = "") -> list[Sent]:
        """Answer deliveries; return everything that was sent."""
        if reply:
            self.routes.listening.setdefault(reply.encode(), None)
        consumer.take_acks(inbound([(one.reply, payload, reply) for one in sent]))
        self.run()
        return self.routes.take()


def with_defaults(config: ConsumerConfig) -> ConsumerConfig:
    """Fill in what a server fills in."""
    changes: dict[str, object] = {}
    if config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        changes["ack_wait"] = config.backoff[0] if config.backoff else config.ack_wait or 30 * SECOND
    if config.ack_policy is not AckPolicy.NONE and not config.max_ack_pending:
        changes["max_ack_pending"] = 1000
    if not config.max_deliver:
        changes["max_deliver"] = -1
    if not config.is_push and not config.max_waiting:
        changes["max_waiting"] = 512
    return replace(config, **changes)  # type: ignore[arg-type]


def sequences(sent: list[Sent]) -> list[int]:
    """Return the stream sequences of messages, leaving statuses out."""
    return [one.sequence for one in sent if one.reply.startswith("$JS.ACK.")]


def statuses(sent: list[Sent]) -> list[str]:
    """Return the statuses among what was sent."""
    return [one.status for one in sent if one.headers and one.status]


def words(*numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return sequences as an array."""
    return np.array(numbers, np.uint64)
