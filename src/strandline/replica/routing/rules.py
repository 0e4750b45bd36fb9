"""Where a request goes, and what follows a failed attempt: decisions over values, without I/O.

Invariants: a write is served by the leader alone; a request that was forwarded to a node as the leader is never
forwarded by it; a write that may have been executed is sent again only if it carries an idempotency key.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from strandline.errors import InvalidInput
from strandline.replica.roles import Role
from strandline.replica.routing.positions import COOKIE, ReadPosition, check_cookie_name

ATTEMPTS_MAX = 3
"""How often a request is sent again whose connection was lost, if it may be."""


class Kind(Enum):
    """What a request is to the router."""

    READ = "read"
    WRITE = "write"
    LOCAL = "local"


@dataclass(frozen=True)
class RoutingRules:
    """Which requests are reads, which are writes, and which are never routed.

    A path stands for itself and everything below it. `write_paths` makes writes of reads, such as a `GET` that logs a
    session out; `local_paths` are served where they arrive, such as a health check. `cookie` is the name of the cookie
    that carries the position of a write: all nodes and proxies of one application use the same name, and applications
    on one host use different names.
    """

    read_methods: frozenset[str] = frozenset({"GET", "HEAD", "OPTIONS"})
    write_paths: tuple[str, ...] = ()
    local_paths: tuple[str, ...] = ()
    cookie: str = COOKIE

    def __post_init__(self) -> None:
        check_cookie_name(self.cookie)
        for path in (*self.write_paths, *self.local_paths):
            if not path.startswith("/"):
                raise InvalidInput(f"{path!r} is not a path", hint="paths begin with '/'")

    def kind_of(self, method: str, path: str) -> Kind:
        """Return what a request is."""
        if any(_is_below(path, local) for local in self.local_paths):
            return Kind.LOCAL
        if method in self.read_methods and not any(_is_below(path, write) for write in self.write_paths):
            return Kind.READ
        return Kind.WRITE


class Decision(Enum):
    """What a node does with a request."""

    SERVE = "serve"
    WAIT = "wait"
    """Wait until the position that the client has seen is here, then serve; forward to the leader after the limit."""
    FORWARD = "forward"
    HOLD = "hold"
    """Wait until it is clear who leads."""
    MISDIRECTED = "misdirected"
    """Answer that this node does not lead, so that the forwarder looks again."""


def decide(kind: Kind, role: Role, *, wanted: ReadPosition, position: int, expects_leader: bool) -> Decision:
    """Return what a node does with a request; `expects_leader` if a forwarder took it for the leader."""
    if kind is Kind.LOCAL or role is Role.LEADER:
        return Decision.SERVE
    if kind is Kind.WRITE or expects_leader or wanted.at_leader:
        if role is Role.CHANGING:
            return Decision.HOLD
        return Decision.MISDIRECTED if expects_leader else Decision.FORWARD
    return Decision.WAIT if wanted.txid > position else Decision.SERVE


class Failure(Enum):
    """How an attempt to forward a request failed."""

    NO_LEADER = "no leader is known"
    NOT_SENT = "no connection was made"
    NOT_LEADER = "the node does not lead"
    LOST = "the connection was lost before an answer"
    TIMED_OUT = "no answer came in time"

    @property
    def is_unknown(self) -> bool:
        """Return whether the request may have been executed."""
        return self in (Failure.LOST, Failure.TIMED_OUT)


class Next(Enum):
    """What follows a failed attempt."""

    AGAIN = "again"
    NOT_DONE = "not done"
    """Give up; the request was not executed."""
    UNKNOWN = "unknown"
    """Give up; the request may have been executed."""
    FAILED = "failed"
    """Give up on a read, which changed nothing whether or not it was executed."""


class Forwarding(NamedTuple):
    """What a decision after a failure looks at."""

    kind: Kind
    has_idempotency_key: bool
    is_replayable: bool
    """Whether every byte of the body that was read can be sent once more."""
    attempts: int
    remaining_s: float


def after_failure(failure: Failure, forwarding: Forwarding) -> Next:
    """Return whether a request is sent again."""
    may_go_on = forwarding.is_replayable and forwarding.remaining_s > 0
    if not failure.is_unknown:
        return Next.AGAIN if may_go_on else Next.NOT_DONE
    is_repeatable = forwarding.kind is Kind.READ or forwarding.has_idempotency_key
    if failure is Failure.LOST and is_repeatable and may_go_on and forwarding.attempts < ATTEMPTS_MAX:
        return Next.AGAIN
    return Next.FAILED if forwarding.kind is Kind.READ else Next.UNKNOWN


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")
