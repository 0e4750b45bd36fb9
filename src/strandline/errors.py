"""One tree of errors; every class says what happened, whether to retry, and what to do next.

    StrandlineError
    ├── InvalidInput             the caller's argument is wrong; nothing was done
    │   ├── RecordTooLarge
    │   └── WrongType            it has the wrong type; also a TypeError
    ├── OffsetError              the offset asked for cannot be read
    │   ├── OffsetBelowRetained  retention removed it
    │   ├── OffsetBeyondEnd      it is not written yet
    │   └── OffsetsLost          damage was repaired around it
    ├── FormatError              the bytes are not ours, or of a later version
    ├── Damaged                  the bytes were ours and are no longer whole
    ├── Unavailable              not possible now; nothing was done
    │   ├── Locked               another writer holds it
    │   ├── StorageRefused       the file system refused: full, read-only, denied
    │   ├── Poisoned             an earlier write failed; reopen
    │   └── Closed
    ├── MissingExtra             a package that an extra installs is missing; also a ModuleNotFoundError
    ├── Conflict                 another caller was first; nothing was done
    │   └── StaleDelivery
    └── UnknownOutcome           it may or may not have happened; reopen and check
        └── CommitFailed

Invariants: `str(error)` is derived from the fields; every error pickles (Spark workers send them); `retryable` means
the same call may succeed later without a change of the call.
"""

from typing import Any, ClassVar


def _rebuild(cls: type["StrandlineError"], args: tuple[Any, ...], fields: dict[str, Any]) -> "StrandlineError":
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


class StrandlineError(Exception):
    """The root of all errors that Strandline raises on purpose."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class InvalidInput(StrandlineError, ValueError):
    """An argument that can never work, refused before anything was done."""


class RecordTooLarge(InvalidInput):
    """One record, or one append, is larger than the configuration allows."""

    def __init__(self, size: int, limit: int, what: str = "record") -> None:
        super().__init__(
            f"{what} of {size:,} bytes is larger than the limit of {limit:,}",
            hint="split it, or store the bytes elsewhere and append a reference to them",
        )
        self.size = size
        self.limit = limit
        self.what = what


class WrongType(InvalidInput, TypeError):
    """An argument of a type that can never work, such as text where bytes belong."""


class OffsetError(StrandlineError, LookupError):
    """The offset asked for cannot be read; `first` and `next` tell what can."""

    def __init__(self, message: str, offset: int, first: int, next_: int, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.offset = offset
        self.first = first
        self.next = next_


class OffsetBelowRetained(OffsetError):
    """Retention has removed the offset."""

    def __init__(self, offset: int, first: int, next_: int) -> None:
        message = f"offset {offset} is below the retained range [{first}, {next_})"
        super().__init__(message, offset, first, next_, hint=f"start at {first}, or restore what was removed")


class OffsetBeyondEnd(OffsetError):
    """The offset is not written yet, or not yet as durable as the reader asked."""

    retryable = True

    def __init__(self, offset: int, first: int, next_: int) -> None:
        message = f"offset {offset} is beyond the readable range [{first}, {next_})"
        super().__init__(message, offset, first, next_, hint="wait for it with follow()")


class OffsetsLost(OffsetError):
    """The offset stood in damaged bytes that a repair moved aside; reading goes on at `resume_at`."""

    def __init__(self, offset: int, resume_at: int, first: int, next_: int) -> None:
        message = f"offsets [{offset}, {resume_at}) were lost to damage and moved aside by a repair"
        super().__init__(message, offset, first, next_, hint=f"go on at offset {resume_at}")
        self.resume_at = resume_at


class FormatError(StrandlineError):
    """A file that is not ours, or that a later version wrote; it was left alone."""

    def __init__(self, path: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = path
        self.problem = problem


class Damaged(StrandlineError):
    """Durable bytes are no longer what was written; nothing was changed, and `safe` says what may be done."""

    def __init__(self, path: str, problem: str, *, safe: str) -> None:
        super().__init__(f"{path}: {problem}", hint=safe)
        self.path = path
        self.problem = problem
        self.safe = safe


class Unavailable(StrandlineError):
    """It cannot be done now, and nothing was done."""

    retryable = True


class Locked(Unavailable):
    """Another writer, in this process or another, holds the folder."""

    def __init__(self, path: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"{path} is locked by another writer",
            hint=hint or "close the other writer; readers need no lock (JournalReader.open)",
        )
        self.path = path


class StorageRefused(Unavailable):
    """The file system refused: no space, read-only, permission denied, or an I/O error while reading."""

    def __init__(self, path: str, reason: str, code: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {reason} ({code})", hint=hint)
        self.path = path
        self.reason = reason
        self.code = code


class Poisoned(Unavailable):
    """An earlier write or fsync failed, so nothing more is accepted until it is reopened; this call wrote nothing."""

    retryable = False

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(
            f"{path} is poisoned by an earlier failure: {cause}",
            hint="close it, fix the cause, and open it again; recovery keeps everything acknowledged",
        )
        self.path = path
        self.cause = cause


class Closed(Unavailable):
    """The object was closed; this call did nothing."""

    retryable = False

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed", hint="open it again")
        self.what = what


class MissingExtra(StrandlineError, ModuleNotFoundError):
    """A part of Strandline was imported whose extra is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"the package {package} is not installed; the extra {extra!r} brings it",
            hint=f'pip install "strandline[{extra}]"',
        )
        self.package = package
        self.extra = extra
        self.name = package

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"name": self.name}


class Conflict(StrandlineError):
    """Another caller was first; nothing was done."""


class StaleDelivery(Conflict):
    """The delivery has expired and the message was given to another taker, or it is already acknowledged."""

    def __init__(self, offset: int, epoch: int) -> None:
        super().__init__(
            f"delivery {epoch} of offset {offset} is no longer the current one",
            hint="stop working on it; ask for a longer visibility, or extend it in time",
        )
        self.offset = offset
        self.epoch = epoch


class UnknownOutcome(StrandlineError):
    """It may or may not have happened; only looking again can tell."""


class CommitFailed(UnknownOutcome):
    """A write or fsync failed under this call: not acknowledged, and after reopening it may or may not be there."""

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"{path}: commit failed: {reason}",
            hint=hint or "open it again to see whether the records are there before sending them again",
        )
        self.path = path
        self.reason = reason
