"""Whom snapshots and restores speak with.

Invariants: everything here is called, and may call back, on the server's own thread; only `post` may be called on any.
"""

from collections.abc import Callable
from dataclasses import dataclass

from strandline.broker.api.advisories import Advisory, ClientInfo
from strandline.broker.routes import Origin, Routes
from strandline.broker.thread_runner import Post
from strandline.wire import WireLimits


@dataclass(frozen=True, slots=True)
class SnapshotSurroundings:
    """Whom snapshots speak with.

    `restored` is called with the name of a stream that came back; between `pause` and `resume`, which are counted,
    nothing is read from a client; `limits` are those of what is published.
    """

    routes: Routes
    tell: Callable[[Advisory], None]
    post: Post
    client: Callable[[Origin], ClientInfo]
    restored: Callable[[str], None]
    pause: Callable[[int], None]
    resume: Callable[[int], None]
    limits: Callable[[], WireLimits]
