"""Errors of sources and items, and their codes in the ledger.

    StrandlineError
    ├── InvalidInput
    │   ├── InputMissing        the source does not exist
    │   └── InputUnusable       the source is of another kind, or a tool is missing
    ├── Unavailable
    │   └── InputRefused        the source cannot be read now
    └── ItemProblem             one item; the scan continues
        ├── ItemSkipped         skipped on purpose
        └── ItemFailed          could not be read
            └── ItemUnsettled   could not be read; a retry may succeed

Invariants: an error of a source ends the listing, an error of an item never does; a message names paths, never
content; an unreadable item has a weak version, derived from its listing.
"""

import errno
from enum import StrEnum

from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.pipeline.identity import VersionKind

UNKNOWN_VERSION = b"none"


class Problem(StrEnum):
    """The reason why an item was not scanned."""

    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNREADABLE_FOLDER = "UNREADABLE_FOLDER"
    VANISHED = "VANISHED"
    CHANGED_WHILE_READ = "CHANGED_WHILE_READ"
    IO_ERROR = "IO_ERROR"
    TOO_LARGE = "TOO_LARGE"
    NOT_A_FILE = "NOT_A_FILE"
    SYMLINK = "SYMLINK"
    BROKEN_TABLE = "BROKEN_TABLE"
    DAMAGED = "DAMAGED"
    NOT_FETCHED = "NOT_FETCHED"
    BAD_NAME = "BAD_NAME"

    @property
    def is_skipped(self) -> bool:
        """Whether the item was skipped on purpose."""
        return self in _SKIPPED

    @property
    def is_retryable(self) -> bool:
        """Whether a retry may succeed."""
        return self in _RETRYABLE

    def error(self, version: bytes = UNKNOWN_VERSION) -> "ItemProblem":
        """Return the error of this problem."""
        kind = ItemSkipped if self.is_skipped else ItemUnsettled if self.is_retryable else ItemFailed
        return kind(self, version)


_SKIPPED = frozenset({Problem.TOO_LARGE, Problem.NOT_A_FILE, Problem.SYMLINK})
_RETRYABLE = frozenset({Problem.CHANGED_WHILE_READ, Problem.IO_ERROR, Problem.VANISHED})
_PROBLEM_OF_ERRNO = {
    errno.EACCES: Problem.PERMISSION_DENIED,
    errno.EPERM: Problem.PERMISSION_DENIED,
    errno.ENOENT: Problem.VANISHED,
    errno.ENOTDIR: Problem.VANISHED,
    errno.ESTALE: Problem.VANISHED,
    errno.ELOOP: Problem.SYMLINK,  # the error of O_NOFOLLOW for a link
    errno.ENXIO: Problem.NOT_A_FILE,
    errno.ENODEV: Problem.NOT_A_FILE,
}


def problem_of(error: OSError) -> Problem:
    """Return the problem of an item for an error of the operating system."""
    return _PROBLEM_OF_ERRNO.get(error.errno or 0, Problem.IO_ERROR)


def stat_version(stat: bytes | None) -> bytes:
    """Return the weak version of an unread item, from its listing."""
    return UNKNOWN_VERSION if stat is None else b"stat:" + stat


class InputMissing(InvalidInput):
    """The source does not exist."""

    def __init__(self, path: str, what: str = "file or folder") -> None:
        super().__init__(f"{path}: there is no such {what}", hint="check the path, and the folder you are in")
        self.path = path


class InputUnusable(InvalidInput):
    """The source is of another kind than requested, or a tool for it is missing."""

    def __init__(self, path: str, problem: str, *, hint: str) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = path
        self.problem = problem


class InputRefused(Unavailable):
    """The source exists and cannot be read now."""

    def __init__(self, path: str, reason: str, *, hint: str) -> None:
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class ItemProblem(StrandlineError):
    """One item was not scanned; `version` is derived from its listing, and `kind` says that it is weak."""

    kind = VersionKind.WEAK

    def __init__(self, code: Problem, version: bytes = UNKNOWN_VERSION) -> None:
        super().__init__(f"the item was not scanned: {code}")
        self.code = code
        self.version = version


class ItemSkipped(ItemProblem):
    """The item was skipped on purpose."""


class ItemFailed(ItemProblem):
    """The item could not be read."""


class ItemUnsettled(ItemFailed):
    """The item could not be read this time."""

    retryable = True
