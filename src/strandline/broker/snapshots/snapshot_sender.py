"""Sends one snapshot to a client in chunks, with at most the client's window unacknowledged.

A client may subscribe to the subject of the chunks after the answer to its request, as the `nats` command does, while
its inbox for answers may match that subject long before. So sending begins when a client has subscribed to exactly this
subject, or after two seconds, as in nats-server.

Invariants: nothing is read from the stream before there is room to send it. Only durable messages are sent; messages
that are removed meanwhile may be missing. The snapshot ends when the client stops acknowledging or listening.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from strandline.broker.api.advisories import ClientInfo, SnapshotCompleted
from strandline.broker.api.error_text import for_clients
from strandline.broker.api.requests import SnapshotRequest
from strandline.broker.routes import Inbound, Routes
from strandline.broker.snapshots.archive import END, MAGIC, Archived, format_entry, format_messages
from strandline.broker.snapshots.s2 import BEGIN, format_chunks
from strandline.broker.streams.headers import parse_number
from strandline.broker.streams.stream import Stream
from strandline.broker.thread_runner import Post
from strandline.errors import StrandlineError

CHUNK_DEFAULT, CHUNK_MIN, CHUNK_MAX = 128 << 10, 1 << 10, 1 << 20
WINDOW_DEFAULT, WINDOW_MIN, WINDOW_MAX = 8 << 20, 1 << 10, 32 << 20
READ_BYTES = 128 << 10
"""How much is read from the stream at a time, about."""
TURN_BYTES = 256 << 10
PATIENCE_NS = 5_000_000_000
SUBSCRIBE_NS = 2_000_000_000
"""So long it is waited for a subscription."""
DONE = b"NATS/1.0 204\r\n\r\n"
NO_FLOW = b"NATS/1.0 408 No Flow Response\r\n\r\n"


def pieces(stream: Stream, entries: Iterable[Archived], mean_bytes: int) -> Iterator[bytes]:
    """Yield a packed archive in pieces: the state of the stream, then its durable messages."""
    last_seq, count = stream.durable_seq, max(1, READ_BYTES // max(1, mean_bytes))

    def each() -> Iterator[bytes]:
        yield BEGIN + format_chunks(MAGIC)
        for entry in entries:
            yield format_chunks(format_entry(entry))
        everything, at = stream.filter(()), 0
        while at <= last_seq:
            found = stream.next_sequences(everything, at, count)
            found = found[found <= np.uint64(last_seq)]
            if not len(found):
                break
            yield format_chunks(format_messages(stream.read(found)))
            at = int(found[-1]) + 1
        yield format_chunks(END)

    return each()


class SnapshotSender:
    """One snapshot under way; a sink for the acknowledgements of its chunks."""

    def __init__(  # noqa: PLR0913 - everything that it stands between
        self,
        name: str,
        request: SnapshotRequest,
        content: Iterator[bytes],
        routes: Routes,
        post: Post,
        *,
        identity: str,
        now_ns: int,
        client: ClientInfo,
        ended: "Callable[[SnapshotSender, SnapshotCompleted], None]",
    ) -> None:
        self._name = name
        self._to = request.deliver_subject.encode()
        self._chunk = min(max(request.chunk_size or CHUNK_DEFAULT, CHUNK_MIN), CHUNK_MAX)
        window = min(max(request.window_size or WINDOW_DEFAULT, WINDOW_MIN), WINDOW_MAX)
        self._window = max(window, self._chunk)
        self._content = content
        self._routes = routes
        self._post = post
        self._client = client
        self._ended = ended
        self._answers = f"$JS.SNAPSHOT.ACK.{name}.{identity}"
        self._cancels = [
            routes.subscribe(f"{self._answers}.>".encode(), self),
            routes.watch_interest(self._to, self.pump),
        ]
        self._is_waiting = True
        self._rest = bytearray()
        self._count = 0
        self._outstanding = 0
        self._is_over = False
        self._all_read = False
        self.start_ns = now_ns
        self.heard_ns = now_ns

    def take(self, messages: Inbound) -> None:
        """Take acknowledgements of chunks; the subject has the size of the chunk."""
        for subject in messages.subjects:
            self._outstanding = max(0, self._outstanding - (parse_number(subject.rsplit(b".", 2)[-2]) or 0))
        self.heard_ns = 0
        self._post(self.pump)

    def pump(self) -> None:
        """Send as much as there is room for."""
        if self._is_waiting and not self._routes.has_subscription(self._to):
            return
        self._is_waiting = False
        budget = TURN_BYTES
        while not self._is_over:
            if not self._routes.has_interest(self._to):
                self._end(None)
            elif self._outstanding and self._outstanding + self._chunk > self._window:
                return
            elif self._routes.room(self._to) <= 0:
                self._routes.when_room(self._to, self.pump)
                return
            elif budget <= 0:
                self._post(self.pump)
                return
            else:
                budget -= self._send_chunk()

    def _send_chunk(self) -> int:
        try:
            while len(self._rest) < self._chunk and not self._all_read:
                piece = next(self._content, None)
                self._all_read = piece is None
                self._rest += piece or b""
        except StrandlineError as error:
            self._end(b"NATS/1.0 500 %s\r\n\r\n" % for_clients(error).replace("\r\n", " ").encode())
            return 0
        if len(self._rest) < self._chunk:
            if self._rest:
                self._routes.send(self._to, bytes(self._rest))
            self._end(DONE if self._count else b"")
            return 0
        chunk = bytes(self._rest[: self._chunk])
        del self._rest[: self._chunk]
        self._count += 1
        self._outstanding += len(chunk)
        self._routes.send(self._to, chunk, reply=f"{self._answers}.{len(chunk)}.{self._count}".encode())
        return len(chunk)

    def tick(self, now_ns: int) -> None:
        """Begin without a subscription, or give up on a client that does not answer."""
        if self._is_waiting:
            self._is_waiting = now_ns - self.start_ns < SUBSCRIBE_NS
            self.heard_ns = now_ns
            self.pump()
        elif not self.heard_ns or not self._outstanding:
            self.heard_ns = now_ns
        elif now_ns - self.heard_ns >= PATIENCE_NS:
            self._end(NO_FLOW)

    def _end(self, headers: bytes | None) -> None:
        """End the snapshot; None if no client listens for the reason."""
        self.stop()
        if headers is not None:
            self._routes.send(self._to, b"", headers=headers)
        self._ended(self, SnapshotCompleted(self._name, self.start_ns, self.start_ns, self._client))

    def stop(self) -> None:
        """Stop at once."""
        if not self._is_over:
            self._is_over = True
            for cancel in self._cancels:
                cancel()
