"""What a bucket refuses, and why; part of the one tree of `strandline.errors`.

    InvalidInput
    ├── InvalidKey               no bucket takes such a key or prefix
    ├── BucketNotFound           there is no such bucket                      10059
    └── NotSupported             the bucket or its backend cannot do it       10166
    Conflict
    ├── RevisionMismatch         the key has another version                  10071, 10164
    │   └── AlreadyExists        the key has a value; `create` wants none
    ├── BucketExists             it exists with other settings                10058
    └── CursorExpired            the bucket does not reach back to the cursor
    Unavailable
    ├── NotConnected             connect first, or again
    ├── ConnectionDropped        the connection was lost; nothing was done
    ├── BucketFull               the bucket is full and discards new values   10077
    └── ServerRefused            the server said no, with a code of its own
    UnknownOutcome
    └── AnswerLost               the write was sent and its answer never came

Invariants: what decides is a class or a code, never a text. No message holds a value.
"""

from typing import ClassVar

from strandline.errors import Conflict, InvalidInput, StrandlineError, Unavailable, UnknownOutcome


class InvalidKey(InvalidInput):
    """A key or prefix that no bucket takes."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(
            f"key {key!r} {problem}",
            hint="tokens are separated by single dots; a prefix ends with one",
        )
        self.key = key
        self.problem = problem


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
    """A bucket of this name exists with other settings."""

    code: ClassVar[int] = 10058

    def __init__(self, bucket: str) -> None:
        super().__init__(f"bucket {bucket!r} exists with other settings", hint="open it without settings")
        self.bucket = bucket


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


class NotConnected(Unavailable):
    """The connection is new or was shut down; nothing was done."""

    def __init__(self, state: str) -> None:
        super().__init__(f"the connection is {state}", hint="await connect() first")
        self.state = state


class ConnectionDropped(Unavailable):
    """The connection was lost before the request was sent; nothing was done."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("the connection was dropped", hint="try again; watches go on by themselves")


class BucketFull(Unavailable):
    """The bucket is at its limit and refuses new values; nothing was written."""

    code: ClassVar[int] = 10077

    def __init__(self, bucket: str, limit: str) -> None:
        super().__init__(f"bucket {bucket!r} is full: {limit}", hint="purge keys, or raise the limit")
        self.bucket = bucket
        self.limit = limit


class ServerRefused(Unavailable):
    """The server refused with a code that has no class of its own; `code` is its error code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"the server refused: {description} ({code})", hint="look the code up in the server's list")
        self.code = code
        self.description = description


class AnswerLost(UnknownOutcome):
    """The write was sent, and the connection was lost before its answer: it may or may not be in the bucket."""

    def __init__(self, key: str) -> None:
        super().__init__(f"nobody knows whether key {key!r} was written", hint="read the entry to see")
        self.key = key


MISMATCH_CODES = frozenset({10071, 10164})
FULL_CODES = frozenset({10077})
NOT_FOUND_CODES = frozenset({10059})
EXISTS_CODES = frozenset({10058})
NOT_SUPPORTED_CODES = frozenset({10165, 10166})


def error_from_code(code: int, description: str, *, bucket: str, key: str = "") -> StrandlineError:
    """Return the error of a server's error code; the description is only shown, it decides nothing."""
    if code in MISMATCH_CODES:
        return RevisionMismatch(key)
    if code in FULL_CODES:
        return BucketFull(bucket, description)
    if code in NOT_FOUND_CODES:
        return BucketNotFound(bucket)
    if code in EXISTS_CODES:
        return BucketExists(bucket)
    if code in NOT_SUPPORTED_CODES:
        return NotSupported("a time to live of this kind", hint=description)
    return ServerRefused(code, description)
