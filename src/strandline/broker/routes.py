"""What JetStream and core NATS want of each other: messages in by `Sink`, messages out by `Routes`.

Invariants: subjects are bytes; everything comes and goes in batches that keep their order; nothing here blocks, and all
of it is called on the server's own thread. A message is told to nobody before what it promises is durable: that is for
the caller of `Routes` to see to.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from strandline.wire import FrameBatch

if TYPE_CHECKING:
    from strandline.broker.core.message_trace import MessageTrace


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sent something, as advisories tell it."""

    client_id: int
    account: str
    user: str = ""
    name: str = ""
    host: str = ""
    language: str = ""
    version: str = ""
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class Inbound:
    """Messages that one client sent in a row, all of them for one sink; `subjects` are those of `frames`.

    A message that is traced comes alone.
    """

    frames: FrameBatch
    subjects: list[bytes]
    origin: Origin
    trace: "MessageTrace | None" = None

    def __len__(self) -> int:
        return len(self.subjects)


@dataclass(slots=True)
class Deliveries:
    """Messages on their way out, in columns; `headers` is None where none has any, else empty where one has none."""

    subjects: list[bytes]
    payloads: list[bytes]
    replies: list[bytes] | None = None
    headers: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.subjects)

    @property
    def message_bytes(self) -> int:
        """The size of all payloads and header blocks."""
        return sum(map(len, self.payloads)) + (sum(map(len, self.headers)) if self.headers is not None else 0)


class Sink(Protocol):
    """A subscriber inside the server."""

    def take(self, messages: Inbound) -> None:
        """Take messages that came on subjects of the sink's pattern; answers come later, or never."""


Cancel = Callable[[], None]
"""Ends what it was returned for; calling it twice is harmless."""


class Routes(Protocol):
    """Where the messages of one account go."""

    def subscribe(self, pattern: bytes, sink: Sink) -> Cancel:
        """Let a sink hear what clients publish on subjects of a pattern. It is not fed by `send` and `deliver`."""

    def has_interest(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether some client listens on a subject; with a queue, whether one does so in that queue group."""

    def has_subscription(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether a client has subscribed to a subject itself, by no wildcard, in that queue group or in none."""

    def watch_interest(self, subject: bytes, changed: Callable[[], None]) -> Cancel:
        """Call somebody, soon, whenever a client begins or ends to listen on subjects that a subject matches."""

    def room(self, subject: bytes) -> int:
        """Return how many bytes may be sent now to who has most room of those who listen; at most 8 MiB."""

    def when_room(self, subject: bytes, go_on: Callable[[], None]) -> None:
        """Call somebody once, soon, when there is room for a subject again or nobody listens on it any more."""

    def send(self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> bool:
        """Send one message to whoever listens on its subject; return whether somebody does."""

    def send_many(self, messages: Deliveries) -> None:
        """Send messages, each to whoever listens on its own subject; such as answers to many requests."""

    def deliver(self, to: bytes, messages: Deliveries, queue: bytes = b"") -> int:
        """Send messages, whatever their subjects, to whoever listens on one subject, as a consumer does.

        With a queue only while somebody listens in that queue group. Return how many were taken: the rest found
        nobody, as a subscription that had asked for so many messages has ended.
        """

    def no_responders(self, messages: Inbound, rows: list[int]) -> None:
        """Tell the senders of some messages that nobody is there to answer them."""
