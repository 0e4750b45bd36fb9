"""What JetStream has of the server around it."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from strandline.broker.streams.sharing import Sharing
from strandline.broker.thread_runner import Post
from strandline.files import Disk, OsDisk
from strandline.wire import WireLimits


def _ignore(client_id: int) -> None:
    del client_id


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`wake` asks for a flush soon, `post` calls something on its thread, soon."""

    wake: Callable[[], None]
    post: Post
    pause: Callable[[int], None] = _ignore
    resume: Callable[[int], None] = _ignore
    limits: Callable[[], WireLimits] = WireLimits
    executor: Executor | None = None
    disk: Disk = field(default_factory=OsDisk)
    server_name: str = ""
    sharing: Sharing = field(default_factory=Sharing)
    """What the accounts of the server have together."""
