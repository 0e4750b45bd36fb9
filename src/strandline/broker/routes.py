"""The interface between JetStream and core NATS: messages in by `Sink`, messages out by `Routes`.

Invariants: subjects are bytes; everything comes and goes in batches that keep their order; nothing here blocks, and all
of it is called on the server's own thread. The caller of `Routes` sends no message before its promise is durable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from strandline.wire import FrameBatch

if TYPE_CHECKING:
    from strandline.broker.core.message_trace import MessageTrace


@dataclass(frozen=True, slots=True)
class Origin:
    """The client that sent a message, as advisories show it."""

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
    """Messages to send, in columns; `headers` is None if no message has any, otherwise empty for one without."""

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
"""Ends a subscription; calling it twice is harmless."""


class Routes(Protocol):
    """Where the messages of one account go."""

    def subscribe(self, pattern: bytes | Sequence[bytes], sink: Sink) -> Cancel:
        """Send what clients publish on subjects of a pattern to a sink; it gets nothing of `send` and `deliver`.

        Of several patterns, no two may overlap.
        """

    def has_interest(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether a client listens on a subject; with a queue, whether one does so in that queue group."""

    def has_subscription(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether a client has subscribed to a subject itself, by no wildcard, in that queue group or in none."""

    def watch_interest(self, subject: bytes, changed: Callable[[], None]) -> Cancel:
        """Call a function, soon, whenever a client begins or ends to listen on subjects that a subject matches."""

    def room(self, subject: bytes) -> int:
        """Return how many bytes may be sent now to the listener with most room; at most 8 MiB."""

    def when_room(self, subject: bytes, go_on: Callable[[], None]) -> None:
        """Call a function once, soon, when a subject has room again, or no listener any more."""

    def send(self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> bool:
        """Send one message to the listeners of its subject; return whether there are any."""

    def send_many(self, messages: Deliveries) -> None:
        """Send messages, each to the listeners of its own subject; such as answers to many requests."""

    def deliver(self, to: bytes, messages: Deliveries, queue: bytes = b"") -> int:
        """Send messages, whatever their subjects, to the listeners of one subject, as a consumer does.

        With a queue only while that queue group has a listener. Return how many were sent: the rest has no listener,
        because a subscription ended after its maximum of messages.
        """

    def no_responders(self, messages: Inbound, rows: list[int]) -> None:
        """Send the no-responders status to the senders of some messages."""
