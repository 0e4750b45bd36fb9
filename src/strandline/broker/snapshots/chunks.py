"""Where the chunks of a restore arrive: in order, whoever sends them.

Invariants: what came waits until it was unpacked; an empty chunk is the end.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from strandline.broker.api.advisories import ClientInfo
from strandline.broker.routes import Cancel, Inbound
from strandline.broker.snapshots.restore import Restoring


class Chunk(NamedTuple):
    """A piece of a restore; without data its end."""

    data: bytes
    reply: bytes
    client_id: int


class RestoreSink:
    """Takes the chunks of one restore."""

    def __init__(self, restoring: Restoring, client: ClientInfo, came: "Callable[[RestoreSink, Chunk], None]") -> None:
        self.restoring = restoring
        self.client = client
        self._came = came
        self.key = ""
        self.cancel: Cancel = lambda: None
        self.is_ending = False
        self.is_coming = False
        """Whether its stream is among those that are coming."""
        self.is_working = False
        """Whether somebody unpacks what waits."""
        self.waiting: deque[Chunk] = deque()
        self.problem: Exception | None = None
        """What is wrong with what came so far; it is told at the end."""

    def take(self, messages: Inbound) -> None:
        """Take chunks, in order."""
        frames, client_id = messages.frames, messages.origin.client_id
        for payload, reply in zip(frames.payloads(), frames.replies(), strict=True):
            self._came(self, Chunk(payload, reply, client_id))
