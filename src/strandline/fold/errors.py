"""What a fold refuses, and why; part of the one tree of `strandline.errors`.

    Conflict
    ├── ScopeChanged             the fold was made of other keys of the bucket
    ├── ModeChanged              the fold is a mirror and was asked to be an archive, or the other way round
    ├── AnotherSource            the fold was made of another bucket, or of another log under its name
    ├── RepairRefused            no source can tell which keys were deleted by missed updates
    └── BucketOutruns            the bucket removes updates faster than they are read
    Unavailable
    ├── StoreKeptFailing         the store failed too often in a row
    └── NotYet                   the fold did not reach a revision in time

Invariant: whichever is raised, the store's cursor names only what is in the store.
"""

from strandline.errors import Conflict, Unavailable


class ScopeChanged(Conflict):
    """The fold holds other keys of the bucket than those that are asked for; nothing was changed."""

    def __init__(self, bucket: str, scope: str) -> None:
        super().__init__(
            f"the fold has another scope than {scope} of bucket {bucket!r}",
            hint="give this scope a path of its own, or rebuild the fold with `repair_fold` (strandline fold repair)",
        )
        self.bucket = bucket
        self.scope = scope


class ModeChanged(Conflict):
    """The fold is kept in the other mode; nothing was changed."""

    def __init__(self, bucket: str, mode: str) -> None:
        hint = "leave the mode out to keep it as it is; " + (
            "`repair_fold` with FoldMode.MIRROR turns it into a mirror, and removes keys that the bucket no longer has"
            if mode == "archive"
            else "a mirror lacks evicted values, so begin an archive at a path of its own"
        )
        super().__init__(f"the fold of bucket {bucket!r} is a {mode}".replace("a archive", "an archive"), hint=hint)
        self.bucket = bucket
        self.mode = mode


class AnotherSource(Conflict):
    """The fold was not made of the log that this bucket has now; nothing was compared."""

    def __init__(self, bucket: str, reason: str) -> None:
        super().__init__(
            f"the fold is not of bucket {bucket!r} as it is now: {reason}",
            hint="check the bucket's name and server; `strandline fold repair` rebuilds the fold",
        )
        self.bucket = bucket
        self.reason = reason


class RepairRefused(Conflict):
    """Updates were missed, and no source can tell which keys they deleted; nothing was changed."""

    def __init__(self, bucket: str, reason: str, *, hint: str) -> None:
        super().__init__(f"the fold of bucket {bucket!r} cannot be repaired: {reason}", hint=hint)
        self.bucket = bucket
        self.reason = reason


class BucketOutruns(Conflict):
    """During each of several repairs the bucket removed more updates before the watch had started."""

    retryable = True

    def __init__(self, bucket: str, repairs: int) -> None:
        super().__init__(
            f"bucket {bucket!r} removed unread updates during each of {repairs} repairs in a row",
            hint="raise the bucket's limits (history, age, size), or run the fold closer to the server",
        )
        self.bucket = bucket
        self.repairs = repairs


class StoreKeptFailing(Unavailable):
    """The store failed so many times in a row that the watch ended; updates after its cursor are delivered again."""

    def __init__(self, failures: int, reason: str) -> None:
        super().__init__(
            f"the store failed {failures} times in a row: {reason}",
            hint="fix the cause (space, permissions, device), then start again; nothing is lost",
        )
        self.failures = failures
        self.reason = reason


class NotYet(Unavailable, TimeoutError):
    """The fold did not reach the awaited revision in time."""

    def __init__(self, waited_for: str, seconds: float, revision: int, trouble: str | None = None) -> None:
        because = f"; {trouble}" if trouble else ""
        super().__init__(
            f"the fold is not {waited_for} after {seconds:g} s: it is at revision {revision}{because}",
            hint="wait longer, or check status()",
        )
        self.waited_for = waited_for
        self.seconds = seconds
        self.revision = revision
        self.trouble = trouble
