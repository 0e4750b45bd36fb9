"""What is to be sent to one client: whole frames in order, and how much of it the client has not taken yet.

Invariants: the hook is called when there is something to write where there was nothing, and when the connection is to
be closed; whoever writes takes all of it. A client that takes nothing is cut off before it holds more than
`pending_max` bytes. Once `closing` says why, nothing more is taken in.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.broker.core.close_reasons import CLIENT_CLOSED, SLOW_CONSUMER

if TYPE_CHECKING:
    from strandline.broker.core.protocol_trace import Tracer

ROOM_BYTES_MAX = 8 << 20
ROOM_AGAIN_BYTES = 1 << 20
"""So little unsent is room again: more than nothing, so that a client never runs dry."""


class Outbox:
    """The way out of one connection."""

    def __init__(self, wake: Callable[[], None], pending_max: int) -> None:
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.buffered = 0
        self.out_msgs = self.out_msg_bytes = 0
        """Messages that were sent, and their headers and payloads; the rest of the protocol is not counted."""
        self.closing: str | None = None
        self.tracer: Tracer | None = None
        """Who is told what is said; None unless the protocol is traced."""
        self.aborted = False
        """What is in `out` can no longer be read by the client: close without writing it."""
        self.when_room: dict[Callable[[], None], Callable[[], None]] = {}
        """What to call, by who waits: one entry each, as a consumer asks again in every turn."""
        self._wake = wake
        self._pending_max = pending_max
        # Where little may be pending, what waits for room leaves half of it to what does not.
        self._room_max = min(ROOM_BYTES_MAX, pending_max // 2)
        self.room_again = min(ROOM_AGAIN_BYTES, pending_max // 4)
        """No more unsent than this is room for those who wait."""

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes have not left yet."""
        return self.out_bytes + self.buffered

    @property
    def room(self) -> int:
        """Return how many bytes may come from those who can wait."""
        return max(0, self._room_max - self.out_bytes - self.buffered)

    @property
    def has_room(self) -> bool:
        """Tell whether so little is unsent that more may come."""
        return self.out_bytes + self.buffered <= self.room_again

    def write(self, data: bytes, messages: int = 0, message_bytes: int = 0) -> bool:
        """Append whole frames to what is to be sent; return False if the client is on its way out.

        Counted are so many messages, with so many bytes of headers and payloads.
        """
        if self.closing is not None:
            return False
        if self.tracer is not None:
            self.tracer.said(data)
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
        """Return what is to be written now; `note_buffered` follows."""
        out, self.out, self.out_bytes = self.out, [], 0
        return out

    def note_buffered(self, size: int) -> None:
        """Note how many bytes that were taken from `out` have not left yet; call it after writing and when they go."""
        self.buffered = size
        if self.has_room:
            self.call_for_room()

    def call_for_room(self) -> None:
        """Call whoever waits for room."""
        if self.when_room:
            waiting, self.when_room = self.when_room, {}
            for call in waiting.values():
                call()

    def close(self, reason: str = CLIENT_CLOSED) -> None:
        """Take nothing more in; what is in `out` may still be written. Harmless if it was done before."""
        if self.closing is None:
            self.closing = reason
            self._wake()
