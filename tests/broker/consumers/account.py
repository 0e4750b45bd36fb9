"""An account with one stream and its consumers on a simulated disk, without a server around it."""

from pathlib import Path

from strandline.broker.api.advisories import Advisory
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.consumer_config import AckPolicy, ConsumerConfig
from strandline.broker.api.consumer_requests import Action
from strandline.broker.consumers import Consumer
from strandline.broker.consumers.registry import Registry
from strandline.broker.streams import PublishBatch, Removed, Stream, stream_exists
from strandline.broker.streams.service import StreamService
from strandline.clock import ManualClock
from strandline.sim import SimDisk
from tests.broker.consumers.helpers import SECOND, RecordingRoutes, Sent, inbound
from tests.waiting import PATIENCE_S

FOLDER = Path("/sim")


class Account:
    """An account whose disk can lose power."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.clock = ManualClock(1_794_000_000 * SECOND)
        self.routes = RecordingRoutes()
        self.told: list[Advisory] = []
        self._due: list[Consumer] = []
        self.streams = StreamService(folder=FOLDER, disk=self.disk, clock=self.clock)
        self.service = Registry(
            self.streams,
            self.routes,
            tell=self.told.append,
            request_turn=self._due.append,
            post=lambda call: call(),
        )
        self.disk.make_folder(FOLDER)
        if stream_exists(self.disk, FOLDER / "S"):
            self.streams.streams["S"] = Stream.open(FOLDER / "S", disk=self.disk, clock=self.clock)
            self.service.open_all()
            self.stream.add_listener(self._forget)

    def _forget(self, removed: Removed) -> None:
        for consumer in self.service.of("S"):
            consumer.note_removed(removed)

    def make(self, **options: object) -> None:
        """Make the stream."""
        config = StreamConfig(name="S", subjects=("s.>",), **options)  # type: ignore[arg-type]
        self.streams.create(config)
        self.stream.add_listener(self._forget)

    @property
    def stream(self) -> Stream:
        return self.streams.streams["S"]

    def consumer(self, name: str, **options: object) -> Consumer:
        """Make a durable consumer, or change it."""
        options.setdefault("ack_policy", AckPolicy.EXPLICIT)
        config = ConsumerConfig(name=name, durable_name=name, **options)  # type: ignore[arg-type]
        return self.service.create("S", config, Action.EITHER, self.clock.now_ns()).consumer

    def publish(self, *subjects: str) -> None:
        """Store a message on each subject."""
        batch = PublishBatch([subject.encode() for subject in subjects], [b"x"] * len(subjects))
        self.stream.publish(batch, self.clock.now_ns()).ticket.result(PATIENCE_S)
        for consumer in self.service.of("S"):
            consumer.note_stored()
        self.run()

    def run(self) -> None:
        """Let consumers have their turns."""
        while self._due:
            consumer = self._due.pop()
            if consumer.step(self.clock.now_ns()):
                self._due.append(consumer)

    def pull(self, consumer: Consumer, count: int) -> list[Sent]:
        """Return messages that a consumer delivers."""
        self.routes.listen("_INBOX.1")
        consumer.take_pulls([(b"_INBOX.1", b'{"batch":%d,"no_wait":true}' % count, b"")])
        self.run()
        return [sent for sent in self.routes.take() if sent.reply]

    def ack(self, consumer: Consumer, *sent: Sent, payload: str = "+ACK") -> None:
        """Acknowledge messages."""
        consumer.take_acks(inbound([(one.reply, payload, "") for one in sent]))
        self.run()

    def left(self) -> list[int]:
        """Return the sequences that are still there."""
        found: list[int] = self.stream.next_sequences(self.stream.filter(()), 0, 100).tolist()
        return found
