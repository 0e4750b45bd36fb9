"""The parts of a server that the JetStream of every account uses.

Invariants: everything is called on the loop's thread, and calls back there; only `post` may be called on any thread.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from strandline.broker.streams.shared_limits import SharedLimits
from strandline.broker.thread_runner import Post
from strandline.files import Disk, OsDisk
from strandline.wire import WireLimits


def _ignore(client_id: int) -> None:
    del client_id


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What a server offers to an account.

    `wake` asks for a commit cycle soon; `post` calls a function soon. Between `pause` and `resume` the server reads
    nothing from a client.
    """

    wake: Callable[[], None]
    post: Post
    pause: Callable[[int], None] = _ignore
    resume: Callable[[int], None] = _ignore
    limits: Callable[[], WireLimits] = WireLimits
    """Limits of what clients publish; a reload of the settings may change them."""
    executor: Executor | None = None
    disk: Disk = field(default_factory=OsDisk)
    server_name: str = ""
    shared_limits: SharedLimits = field(default_factory=SharedLimits)
    """Room and batches that all accounts of the server share."""
