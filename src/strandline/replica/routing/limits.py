"""The limits of a router: time, numbers and bytes."""

from dataclasses import dataclass

from strandline.errors import InvalidInput


@dataclass(frozen=True)
class RoutingLimits:
    """How long, how many and how much; every one of them ends in an answer that says so."""

    hold_s: float = 15.0
    """How long a request waits for a leader; longer than a lease lasts, or a crash costs writes."""
    held_max: int = 256
    """How many requests wait for a leader at once."""
    replay_bytes: int = 1 << 20
    """How much of a body is kept to be sent once more."""
    replay_bytes_total: int = 64 << 20
    """The same, for all requests together."""
    wait_s: float = 2.0
    """How long a follower waits for a position before it forwards a read to the leader."""
    waiting_max: int = 32
    """How many reads wait for a position at once; others are forwarded."""
    durable_s: float = 10.0
    """How long the answer to a write waits for the object store."""
    connect_s: float = 2.0
    answer_s: float = 60.0
    """How long a server may be silent."""
    idle_s: float = 30.0
    """How long a client may be silent within a request, or may leave an answer unread."""
    tunnel_idle_s: float = 300.0
    """How long both sides of a tunnel (WebSocket) may be silent."""
    head_s: float = 10.0
    """How long a client may take for the head of a request."""
    head_bytes: int = 32 << 10

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0:
                raise InvalidInput(f"{name} is {value}", hint="limits are not negative")
