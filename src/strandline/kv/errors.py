"""What a bucket refuses, and why; part of the one tree of `strandline.errors`.

    InvalidInput
    ├── InvalidKey               no bucket takes such a key or prefix
    ├── InvalidBucket            no bucket can have such a name
    ├── BucketNotFound           there is no such bucket                      10059
    ├── NotSupported             the bucket or its backend cannot do it       10165, 10166
    └── RecordTooLarge           the value is larger than the bucket takes    10054
    Conflict
    ├── RevisionMismatch         the key has another version                  10071, 10164
    │   └── AlreadyExists        the key has a value; `create` wants none
    ├── BucketExists             it exists with other settings                10058
    └── CursorExpired            the bucket does not reach back to the cursor
        ├── BucketReplaced       it is another bucket of the same name
        └── BucketPurged         everything the cursor knew of was removed
    Unavailable
    ├── NotConnected             connect first, or again
    ├── ConnectionDropped        the connection was lost; nothing was done
    ├── Unreachable              no server answers at the addresses
    ├── NoAnswer                 it was asked, and nothing came in time; nothing was changed
    ├── BucketFull               the bucket is full and discards new values   10077
    ├── AccessRefused            the credentials do not allow this
    │   └── LoginRefused         the server does not know these credentials
    ├── TlsRefused               no trust, or no encryption, between the two
    ├── JetStreamDisabled        the server or the account keeps no buckets   10039, 10076
    └── ServerRefused            the server said no, with a code of its own
    UnknownOutcome
    └── AnswerLost               the write was sent and its answer never came

Invariants: what decides is a class or a code, never a text. No message holds a value, or a secret.
"""

from collections.abc import Callable
from typing import ClassVar

from strandline.errors import Conflict, InvalidInput, RecordTooLarge, StrandlineError, Unavailable, UnknownOutcome


class InvalidKey(InvalidInput):
    """A key or prefix that no bucket takes."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(
            f"key {key!r} {problem}",
            hint="tokens are separated by single dots; a prefix ends with one",
        )
        self.key = key
        self.problem = problem


class InvalidBucket(InvalidInput):
    """A name that no bucket can have."""

    def __init__(self, bucket: str) -> None:
        super().__init__(
            f"{bucket!r} cannot be the name of a bucket", hint="letters of ASCII, digits, - and _, at most 200 of them"
        )
        self.bucket = bucket


class BucketNotFound(InvalidInput, LookupError):
    """There is no such bucket."""

    code: ClassVar[int] = 10059

    def __init__(self, bucket: str) -> None:
        super().__init__(f"bucket {bucket!r} does not exist", hint="create it, or give a StoreConfig to create it with")
        self.bucket = bucket


class NotSupported(InvalidInput):
    """The bucket's settings, or its backend, leave this out."""

    code: ClassVar[int] = 10166

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(f"{what} is not supported here", hint=hint or "look at the connection's capabilities first")
        self.what = what


class RevisionMismatch(Conflict):
    """The key's version is not the expected one; nothing was written."""

    code: ClassVar[int] = 10071

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} has another version", hint="read the entry again and decide anew")
        self.key = key


class AlreadyExists(RevisionMismatch):
    """The key has a value already; nothing was written."""


class BucketExists(Conflict):
    """A bucket of this name exists with other settings; `differences` names them."""

    code: ClassVar[int] = 10058

    def __init__(self, bucket: str, differences: str = "") -> None:
        told = f": {differences}" if differences else ""
        super().__init__(f"bucket {bucket!r} exists with other settings{told}", hint="open it without settings")
        self.bucket = bucket
        self.differences = differences


class CursorExpired(Conflict):
    """Updates after the cursor were removed before they were read, deletes perhaps among them."""

    def __init__(self, bucket: str, revision: int, first_revision: int, last_revision: int) -> None:
        super().__init__(
            f"bucket {bucket!r} holds revisions {first_revision} to {last_revision}; the cursor stands at {revision}",
            hint="repair from a listing, if that is the truth here, or from an artifact; then watch again",
        )
        self.bucket = bucket
        self.revision = revision
        self.first_revision = first_revision
        self.last_revision = last_revision


class BucketReplaced(CursorExpired):
    """The bucket is another one of the same name: revisions and cursors of the old one mean nothing in it."""


class BucketPurged(CursorExpired):
    """The bucket never evicts and yet holds nothing any more: it was purged as a whole, and no update said so."""


class NotConnected(Unavailable):
    """The connection is new or was shut down; nothing was done."""

    def __init__(self, state: str) -> None:
        super().__init__(f"the connection is {state}", hint="await connect() first")
        self.state = state


class ConnectionDropped(Unavailable):
    """The connection was lost before the request was sent, or the request changes nothing; nothing was done."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("the connection was dropped", hint="try again; watches go on by themselves")


class Unreachable(Unavailable):
    """No server answers at the addresses; nothing was done."""

    def __init__(self, addresses: str, problem: str = "nobody listens") -> None:
        super().__init__(
            f"no server answers at {addresses}: {problem}", hint="look at the addresses, and whether the server runs"
        )
        self.addresses = addresses
        self.problem = problem


class NoAnswer(Unavailable):
    """A request that changes nothing was not answered in time."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(
            f"{what} was not answered within {seconds:g} s",
            hint="try again; if it stays so, look at the server's load, the bucket's leader, and your permissions",
        )
        self.what = what
        self.seconds = seconds


class BucketFull(Unavailable):
    """The bucket is at its limit and refuses new values; nothing was written."""

    code: ClassVar[int] = 10077

    def __init__(self, bucket: str, limit: str) -> None:
        super().__init__(f"bucket {bucket!r} is full: {limit}", hint="purge keys, or raise the limit")
        self.bucket = bucket
        self.limit = limit


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
    """The server does not take these credentials, or wants some; nothing was done."""

    def __init__(self, addresses: str) -> None:
        super().__init__(
            f"the server at {addresses} does not take the login",
            hint="give creds, creds_file, or user:password@ in the URL; they may also have expired",
        )
        self.addresses = addresses


class TlsRefused(Unavailable):
    """The two sides do not trust each other's certificates, or one of them does not speak TLS."""

    retryable = False

    def __init__(self, addresses: str, problem: str) -> None:
        super().__init__(
            f"no TLS with the server at {addresses}: {problem}",
            hint="give tls_ca for its authority, tls_cert and tls_key if it wants to know yours, tls:// if it has TLS",
        )
        self.addresses = addresses
        self.problem = problem


class JetStreamDisabled(Unavailable):
    """The server, or the account, has no JetStream, which keeps the buckets."""

    retryable = False
    code: ClassVar[int] = 10076

    def __init__(self) -> None:
        super().__init__(
            "JetStream is not enabled for this account", hint="start the server with it, or name the right domain"
        )


class ServerRefused(Unavailable):
    """The server refused with a code that has no class of its own; `code` is its error code."""

    def __init__(self, code: int, description: str) -> None:
        hint = _HINTS.get(code, "look the code up in the server's list")
        super().__init__(f"the server refused: {description} ({code})", hint=hint)
        self.code = code
        self.description = description


class AnswerLost(UnknownOutcome):
    """The write was sent, and the connection or time was lost before its answer: it may or may not be done."""

    def __init__(self, key: str, what: str = "key") -> None:
        super().__init__(f"nobody knows whether {what} {key!r} was written", hint="read the entry to see")
        self.key = key


MISMATCH_CODES = frozenset({10071, 10164})
FULL_CODES = frozenset({10077})
NOT_FOUND_CODES = frozenset({10059})
ELECTING_CODES = frozenset({10004, 10008, 10009, 10118})
"""Incomplete, temporarily unavailable, not the leader, offline: answers of servers that have not elected yet."""

EXISTS_CODES = frozenset({10058})
NOT_SUPPORTED_CODES = frozenset({10165, 10166})
DISABLED_CODES = frozenset({10039, 10076})
TOO_LARGE_CODES = frozenset({10054})

_HINTS = {
    10005: "the cluster has not enough servers for the replicas",
    10008: "try again: the servers are choosing who leads",
    10023: "the server is short of memory, storage or peers",
    10028: "the account's storage is used up",
    10047: "the server's storage does not hold another bucket of this size; give bytes_max",
    10052: "the settings contradict each other, or this server does not know them",
    10074: "replicas need a cluster",
    10109: "the bucket is sealed",
    10113: "the account wants bytes_max",
    10122: "give a smaller bytes_max",
    10163: "try again: an earlier write of the key is on its way",
    10167: "try again: the bucket is written faster than it takes",
}


def error_from_code(code: int, description: str, *, bucket: str, key: str = "", size: int = 0) -> StrandlineError:
    """Return the error of a server's error code; the description is only shown, it decides nothing."""
    errors: tuple[tuple[frozenset[int], Callable[[], StrandlineError]], ...] = (
        (MISMATCH_CODES, lambda: RevisionMismatch(key)),
        (FULL_CODES, lambda: BucketFull(bucket, description)),
        (NOT_FOUND_CODES, lambda: BucketNotFound(bucket)),
        (EXISTS_CODES, lambda: BucketExists(bucket)),
        (NOT_SUPPORTED_CODES, lambda: NotSupported("a time to live of this kind", hint=description)),
        (DISABLED_CODES, JetStreamDisabled),
        (TOO_LARGE_CODES, lambda: RecordTooLarge(size, size - 1, "value")),
    )
    return next((make() for codes, make in errors if code in codes), ServerRefused(code, description))
