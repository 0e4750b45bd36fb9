"""What can go wrong with something to scan, and the codes under which the ledger keeps it.

    StrandlineError
    ├── InvalidInput
    │   ├── InputMissing        what was to be scanned is not there
    │   └── InputUnusable       it is there, and is not what it was said to be
    ├── Unavailable
    │   └── InputRefused        it is there, and cannot be read now
    └── ItemProblem             one item; the rest goes on
        ├── ItemSkipped         not looked at, on purpose
        └── ItemFailed          could not be looked at
            └── ItemUnsettled   the same, and the next try may find it well

Invariants: an input's error ends the listing, an item's never does; a message names paths, never content; the version
of an item that could not be read is made of what is known of it, and is weak.
"""

import errno
from enum import StrEnum

from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.pipeline.identity import VersionKind

UNKNOWN_VERSION = b"none"


class Problem(StrEnum):
    """Why an item was not looked at."""

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

    @property
    def is_skipped(self) -> bool:
        """Whether it was left alone on purpose."""
        return self in _SKIPPED

    @property
    def is_retryable(self) -> bool:
        """Whether the same try may succeed later."""
        return self in _RETRYABLE

    def error(self, version: bytes = UNKNOWN_VERSION) -> "ItemProblem":
        """Return the error that says so."""
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
    errno.ELOOP: Problem.SYMLINK,  # what O_NOFOLLOW says of a link
    errno.ENXIO: Problem.NOT_A_FILE,
    errno.ENODEV: Problem.NOT_A_FILE,
}


def problem_of(error: OSError) -> Problem:
    """Return what an error of the operating system means for an item."""
    return _PROBLEM_OF_ERRNO.get(error.errno or 0, Problem.IO_ERROR)


def stat_version(stat: bytes | None) -> bytes:
    """Return the weak version of an item that was not read, from what was seen of it."""
    return UNKNOWN_VERSION if stat is None else b"stat:" + stat


class InputMissing(InvalidInput):
    """What was to be scanned is not there."""

    def __init__(self, path: str, what: str = "file or folder") -> None:
        super().__init__(f"{path}: there is no such {what}", hint="check the path, and the folder you are in")
        self.path = path


class InputUnusable(InvalidInput):
    """What was to be scanned is not of the kind that was asked for, or a tool for it is missing."""

    def __init__(self, path: str, problem: str, *, hint: str) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = path
        self.problem = problem


class InputRefused(Unavailable):
    """What was to be scanned is there and cannot be read now."""

    def __init__(self, path: str, reason: str, *, hint: str) -> None:
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class ItemProblem(StrandlineError):
    """One item was not looked at; `version` is what is known of it, and `kind` says that this is not its content."""

    kind = VersionKind.WEAK

    def __init__(self, code: Problem, version: bytes = UNKNOWN_VERSION) -> None:
        super().__init__(f"the item was not looked at: {code}")
        self.code = code
        self.version = version


class ItemSkipped(ItemProblem):
    """The item was left alone on purpose."""


class ItemFailed(ItemProblem):
    """The item could not be looked at."""


class ItemUnsettled(ItemFailed):
    """The item could not be looked at this time."""

    retryable = True
