"""What a NATS server, or the way to it, refuses, and why; part of the one tree of `strandline.errors`.

    InvalidInput
    ├── StreamNotFound           there is no such stream                      10059
    └── RecordTooLarge           the message is larger than the stream takes  10054
    Conflict
    └── PositionExpired          the stream no longer holds what follows the reader's position
        ├── StreamReplaced       it is another stream of the same name
        └── StreamPurged         everything the reader knew of was removed
    Unavailable
    ├── ConnectionDropped        the connection was lost; nothing was done
    ├── Unreachable              no server answers at the addresses
    ├── NoAnswer                 no answer came in time; nothing was changed
    ├── DeliveryBroken           a consumer stopped delivering; readers make another
    ├── StreamFull               the stream is full and discards new messages 10077
    ├── AccessRefused            the credentials do not allow this
    │   └── LoginRefused         the server does not accept these credentials
    ├── TlsRefused               no trust, or no encryption, between the two
    ├── JetStreamDisabled        the server or the account has no JetStream   10039, 10076
    └── ServerRefused            the server refused, with a code of its own

Invariants: a class or a code decides, never a text. No message holds a payload or a secret.
"""

from typing import ClassVar

from strandline.errors import Conflict, InvalidInput, RecordTooLarge, StrandlineError, Unavailable


class StreamNotFound(InvalidInput, LookupError):
    """There is no such stream."""

    code: ClassVar[int] = 10059

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} does not exist", hint="check its name, the server and the account")
        self.stream = stream


class PositionExpired(Conflict):
    """Messages after the reader's position were removed before they were read."""

    def __init__(self, stream: str, sequence: int, first: int, last: int) -> None:
        super().__init__(
            f"stream {stream!r} holds sequences {first} to {last}; the reader stands at {sequence}",
            hint=f"read again from sequence {first}, or restore what was removed",
        )
        self.stream = stream
        self.sequence = sequence
        self.first = first
        self.last = last


class StreamReplaced(PositionExpired):
    """The stream is another one of the same name: sequences of the old one mean nothing in it."""


class StreamPurged(PositionExpired):
    """The stream never evicts and yet is empty: it was purged as a whole."""


class ConnectionDropped(Unavailable):
    """The connection was lost before the request was sent, or the request changes nothing; nothing was done."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("the connection was dropped", hint="try again; watches resume by themselves")


class Unreachable(Unavailable):
    """No server answers at the addresses; nothing was done."""

    def __init__(self, addresses: str, problem: str = "no connection") -> None:
        super().__init__(
            f"no server answers at {addresses}: {problem}", hint="check the addresses, and whether the server runs"
        )
        self.addresses = addresses
        self.problem = problem


class NoAnswer(Unavailable):
    """A request that changes nothing was not answered in time."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(
            f"{what} was not answered within {seconds:g} s",
            hint="try again; if it stays so, check the server's load, the stream's leader and your permissions",
        )
        self.what = what
        self.seconds = seconds


class AccessRefused(Unavailable):
    """The credentials do not allow this; nothing was done."""

    retryable = False

    def __init__(self, problem: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"access was refused: {problem}",
            hint=hint or "reading takes $JS.API.>, writing $KV.<bucket>.>, and answers come to _INBOX.>",
        )
        self.problem = problem


class LoginRefused(AccessRefused):
    """The server refuses these credentials, or requires some; nothing was done."""

    def __init__(self, addresses: str) -> None:
        super().__init__(
            f"the server at {addresses} refused the login",
            hint="give creds, creds_file, or user:password@ in the URL; they may also have expired",
        )
        self.addresses = addresses


class TlsRefused(Unavailable):
    """The two sides do not trust each other's certificates, or one of them does not speak TLS."""

    retryable = False

    def __init__(self, addresses: str, problem: str) -> None:
        super().__init__(
            f"no TLS with the server at {addresses}: {problem}",
            hint="give tls_ca for its authority, tls_cert and tls_key if it asks for one, tls:// if it has TLS",
        )
        self.addresses = addresses
        self.problem = problem


class JetStreamDisabled(Unavailable):
    """The server, or the account, has no JetStream."""

    retryable = False
    code: ClassVar[int] = 10076

    def __init__(self) -> None:
        super().__init__(
            "JetStream is not enabled for this account", hint="enable it on the server, or give the right domain"
        )


class ServerRefused(Unavailable):
    """The server refused with a code that has no class of its own; `code` is its error code."""

    def __init__(self, code: int, description: str) -> None:
        hint = _HINTS.get(code, "see the server's list of error codes")
        super().__init__(f"the server refused: {description} ({code})", hint=hint)
        self.code = code
        self.description = description


class DeliveryBroken(Unavailable):
    """A consumer stopped delivering; the reader makes another."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the delivery of a stream broke: {problem}", hint="a reader resumes by itself")
        self.problem = problem


class StreamFull(Unavailable):
    """The stream is at its limit and refuses new messages; nothing was written."""

    code: ClassVar[int] = 10077

    def __init__(self, stream: str, limit: str) -> None:
        super().__init__(f"stream {stream!r} is full: {limit}", hint="purge messages, or raise the limit")
        self.stream = stream
        self.limit = limit


NOT_FOUND_CODES = frozenset({10059})
DISABLED_CODES = frozenset({10039, 10076})
FULL_CODES = frozenset({10077})
TOO_LARGE_CODES = frozenset({10054})
ELECTING_CODES = frozenset({10004, 10008, 10009, 10118})
"""Incomplete, temporarily unavailable, not the leader, offline: servers that have not elected a leader yet."""

_HINTS = {
    10005: "the cluster has too few servers for the replicas",
    10008: "try again: the servers are electing a leader",
    10023: "the server is short of memory, storage or peers",
    10028: "the account's storage is used up",
    10047: "the server's storage has no room for another stream of this size; set a limit in bytes",
    10052: "the settings contradict each other, or this server does not know them",
    10074: "replicas need a cluster",
    10109: "the stream is sealed",
    10113: "the account requires a limit in bytes",
    10122: "set a smaller limit in bytes",
    10163: "try again: an earlier write to the subject is in flight",
    10167: "try again: writes come faster than the stream takes them",
}


def stream_error(code: int, description: str, stream: str, *, size: int = 0) -> StrandlineError:
    """Return the error of a server's error code; the description is shown and decides nothing."""
    if code in NOT_FOUND_CODES:
        return StreamNotFound(stream)
    if code in DISABLED_CODES:
        return JetStreamDisabled()
    if code in FULL_CODES:
        return StreamFull(stream, description)
    if code in TOO_LARGE_CODES:
        return RecordTooLarge(size, size - 1, "message")
    return ServerRefused(code, description)
