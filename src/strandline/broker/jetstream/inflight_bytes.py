"""Bytes of each client that are on their way to the disk, so that memory stays bounded when the disk is slow.

Invariants: a client beyond its share is paused before its next read, and so is every publisher while all clients
together are beyond theirs. A pause ends when half of the bytes are durable.
"""

from collections.abc import Callable, Iterable

from strandline.broker.routes import Inbound

CLIENT_BYTES_MAX = 8 << 20
ALL_BYTES_MAX = 32 << 20


class ClientPauses:
    """Counts the reasons to pause each client; reading resumes when the last reason is gone."""

    def __init__(self, pause: Callable[[int], None], resume: Callable[[int], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._counts: dict[int, int] = {}

    def begin(self, client_id: int) -> None:
        """Read nothing more from a client."""
        self._counts[client_id] = self._counts.get(client_id, 0) + 1
        if self._counts[client_id] == 1:
            self._pause(client_id)

    def end(self, client_id: int) -> None:
        """Remove one reason."""
        self._counts[client_id] -= 1
        if not self._counts[client_id]:
            del self._counts[client_id]
            self._resume(client_id)


class InflightBytes:
    """Bytes in flight, by client; `pause` and `resume` stop and restart the reading from one."""

    def __init__(self, pause: Callable[[int], None], resume: Callable[[int], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._bytes: dict[int, int] = {}
        self._paused: set[int] = set()
        self.total = 0

    def add(self, gathered: Iterable[Inbound]) -> list[tuple[int, int]]:
        """Count messages in flight; return the argument for `remove`."""
        noted = []
        for messages in gathered:
            client, size = messages.origin.client_id, len(messages.frames.data)
            held = self._bytes.get(client, 0) + size
            self._bytes[client] = held
            self.total += size
            noted.append((client, size))
            if client not in self._paused and (held > CLIENT_BYTES_MAX or self.total > ALL_BYTES_MAX):
                self._paused.add(client)
                self._pause(client)
        return noted

    def remove(self, noted: list[tuple[int, int]]) -> None:
        """Count messages that are durable, or have failed."""
        for client, size in noted:
            held = self._bytes[client] - size
            self.total -= size
            if held:
                self._bytes[client] = held
            else:
                del self._bytes[client]
        if self._paused and self.total <= ALL_BYTES_MAX // 2:
            rested = [client for client in self._paused if self._bytes.get(client, 0) <= CLIENT_BYTES_MAX // 2]
            self._paused.difference_update(rested)
            for client in rested:
                self._resume(client)
