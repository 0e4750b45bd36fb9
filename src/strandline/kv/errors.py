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
    └── BucketFull               the bucket is full and discards new values   10077
    UnknownOutcome
    └── AnswerLost               the write was sent and no answer came

A bucket on a NATS server also raises the errors of the connection (`strandline.nats.errors`): `ConnectionDropped`,
`Unreachable`, `NoAnswer`, `AccessRefused`, `LoginRefused`, `TlsRefused`, `JetStreamDisabled`, `ServerRefused`.

Invariants: a class or a code decides, never a text. No message holds a value, or a secret.
"""

from collections.abc import Callable
from typing import ClassVar

from strandline.errors import Conflict, InvalidInput, RecordTooLarge, StrandlineError, Unavailable, UnknownOutcome
from strandline.nats.errors import FULL_CODES, NOT_FOUND_CODES, TOO_LARGE_CODES, stream_error


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
            f"{bucket!r} cannot be the name of a bucket", hint="at most 200 ASCII letters, digits, - and _"
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
        super().__init__(f"{what} is not supported here", hint=hint or "check the connection's capabilities first")
        self.what = what


class RevisionMismatch(Conflict):
    """The key's version is not the expected one; nothing was written."""

    code: ClassVar[int] = 10071

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} has another version", hint="read the entry again, then decide")
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
            f"bucket {bucket!r} holds revisions {first_revision} to {last_revision}; the cursor is at {revision}",
            hint="repair from a listing, if it is complete, or from an artifact; then watch again",
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


class BucketFull(Unavailable):
    """The bucket is at its limit and refuses new values; nothing was written."""

    code: ClassVar[int] = 10077

    def __init__(self, bucket: str, limit: str) -> None:
        super().__init__(f"bucket {bucket!r} is full: {limit}", hint="purge keys, or raise the limit")
        self.bucket = bucket
        self.limit = limit


class AnswerLost(UnknownOutcome):
    """The write was sent, and no answer came in time: it may or may not be done."""

    def __init__(self, key: str, what: str = "key") -> None:
        super().__init__(f"it is unknown whether {what} {key!r} was written", hint="read the entry to find out")
        self.key = key


MISMATCH_CODES = frozenset({10071, 10164})
EXISTS_CODES = frozenset({10058})
NOT_SUPPORTED_CODES = frozenset({10165, 10166})


def error_from_code(code: int, description: str, *, bucket: str, key: str = "", size: int = 0) -> StrandlineError:
    """Return the error of a server's error code; the description is shown and decides nothing."""
    errors: tuple[tuple[frozenset[int], Callable[[], StrandlineError]], ...] = (
        (MISMATCH_CODES, lambda: RevisionMismatch(key)),
        (FULL_CODES, lambda: BucketFull(bucket, description)),
        (NOT_FOUND_CODES, lambda: BucketNotFound(bucket)),
        (EXISTS_CODES, lambda: BucketExists(bucket)),
        (NOT_SUPPORTED_CODES, lambda: NotSupported("a time to live of this kind", hint=description)),
        (TOO_LARGE_CODES, lambda: RecordTooLarge(size, size - 1, "value")),
    )
    found = next((make() for codes, make in errors if code in codes), None)
    return found or stream_error(code, description, bucket)
