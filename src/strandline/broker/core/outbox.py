"""The output queue of one connection: whole frames in order, and the bytes that the socket has not sent yet.

Invariants: `wake` is called when the queue becomes non-empty and when the connection is to be closed; the writer takes
all of it. A client that does not read is disconnected before more than `pending_max` bytes are queued. Once `closing`
has a reason, nothing more is queued.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.broker.core.close_reasons import CLIENT_CLOSED, SLOW_CONSUMER

if TYPE_CHECKING:
    from strandline.broker.core.protocol_trace import ProtocolTracer

ROOM_BYTES_MAX = 8 << 20
ROOM_AGAIN_BYTES = 1 << 20
"""At most this many unsent bytes count as room again: more than zero, so that a client never runs dry."""


class Outbox:
    """The output queue of one connection."""

    def __init__(self, wake: Callable[[], None], pending_max: int) -> None:
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.buffered = 0
        self.out_msgs = self.out_msg_bytes = 0
        """Messages sent, and the bytes of their headers and payloads; the rest of the protocol is not counted."""
        self.closing: str | None = None
        self.tracer: ProtocolTracer | None = None
        """Set while the protocol is traced."""
        self.aborted = False
        """The client does not read: close without writing `out`."""
        self.when_room: dict[Callable[[], None], Callable[[], None]] = {}
        """Callbacks for room, keyed by their owner: a consumer asks again in every turn and is kept once."""
        self._wake = wake
        self._pending_max = pending_max
        # With a small limit, producers that wait for room leave half of it to those that do not.
        self._room_max = min(ROOM_BYTES_MAX, pending_max // 2)
        self.room_again = min(ROOM_AGAIN_BYTES, pending_max // 4)
        """The unsent bytes at which waiting producers are called."""

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes are queued or unsent."""
        return self.out_bytes + self.buffered

    @property
    def room(self) -> int:
        """Return how many bytes a producer that can wait may queue now."""
        return max(0, self._room_max - self.out_bytes - self.buffered)

    @property
    def has_room(self) -> bool:
        """Tell whether waiting producers may go on."""
        return self.out_bytes + self.buffered <= self.room_again

    def write(self, data: bytes, messages: int = 0, message_bytes: int = 0) -> bool:
        """Queue whole frames; return False if the connection is closing.

        `messages` and `message_bytes` (headers and payloads) are added to the counters.
        """
        if self.closing is not None:
            return False
        if self.tracer is not None:
            self.tracer.sent(data)
        if not self.out:
            self._wake()
        self.out.append(data)
        self.out_bytes += len(data)
        self.out_msgs += messages
        self.out_msg_bytes += message_bytes
        if self.out_bytes + self.buffered > self._pending_max:
            self.aborted = True
            self.close(SLOW_CONSUMER)
        return True

    def take_output(self) -> list[bytes]:
        """Return the queued frames; the writer calls `note_buffered` afterwards."""
        out, self.out, self.out_bytes = self.out, [], 0
        return out

    def note_buffered(self, size: int) -> None:
        """Set how many written bytes the socket has not sent; called after each write and when the socket drains."""
        self.buffered = size
        if self.has_room:
            self.call_for_room()

    def call_for_room(self) -> None:
        """Call the producers that wait for room."""
        if self.when_room:
            waiting, self.when_room = self.when_room, {}
            for call in waiting.values():
                call()

    def close(self, reason: str = CLIENT_CLOSED) -> None:
        """Queue nothing more; `out` may still be written. Idempotent."""
        if self.closing is None:
            self.closing = reason
            self._wake()
