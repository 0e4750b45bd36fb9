"""What a fold refuses, and why; part of the one tree of `strandline.errors`.

    Conflict
    ├── ScopeChanged             the fold was made of other keys of the bucket
    ├── ModeChanged              the fold is a mirror and was asked to be an archive, or the other way round
    ├── AnotherSource            the fold was made of another bucket, or of another log under its name
    ├── RepairRefused            nothing here may say what became of the keys that were missed
    └── BucketOutruns            the bucket forgets faster than it can be read
    Unavailable
    ├── StoreKeptFailing         the store failed too often in a row
    └── NotYet                   the fold did not get there in time

Invariant: when one of these is raised, the store's cursor names only what is in the store, as ever.
"""

from strandline.errors import Conflict, Unavailable


class ScopeChanged(Conflict):
    """The fold holds other keys of the bucket than those that are asked for; nothing was changed."""

    def __init__(self, bucket: str, scope: str) -> None:
        super().__init__(
            f"the fold was not made of {scope} of bucket {bucket!r}",
            hint="give this scope a path of its own, or let `repair_fold` (strandline fold repair) make it anew",
        )
        self.bucket = bucket
        self.scope = scope


class ModeChanged(Conflict):
    """The fold is kept in the other mode; nothing was changed."""

    def __init__(self, bucket: str, mode: str) -> None:
        hint = "leave the mode out to keep it as it is; " + (
            "`repair_fold` with FoldMode.MIRROR makes it a mirror, and drops what the bucket no longer has"
            if mode == "archive"
            else "what a mirror dropped is not in it, so begin an archive at a path of its own"
        )
        super().__init__(f"the fold of bucket {bucket!r} is a {mode}".replace("a archive", "an archive"), hint=hint)
        self.bucket = bucket
        self.mode = mode


class AnotherSource(Conflict):
    """The fold was not made of the log that this bucket has now; nothing was compared."""

    def __init__(self, bucket: str, reason: str) -> None:
        super().__init__(
            f"the fold is not of bucket {bucket!r} as it is now: {reason}",
            hint="check the bucket's name and server; `strandline fold repair` makes the fold anew",
        )
        self.bucket = bucket
        self.reason = reason


class RepairRefused(Conflict):
    """Updates were missed, and what is at hand cannot tell which keys they deleted; nothing was changed."""

    def __init__(self, bucket: str, reason: str, *, hint: str) -> None:
        super().__init__(f"the fold of bucket {bucket!r} cannot be repaired: {reason}", hint=hint)
        self.bucket = bucket
        self.reason = reason


class BucketOutruns(Conflict):
    """Repair after repair, the bucket had forgotten updates again before the watch was there."""

    retryable = True

    def __init__(self, bucket: str, repairs: int) -> None:
        super().__init__(
            f"bucket {bucket!r} forgot updates during each of {repairs} repairs in a row",
            hint="let the bucket keep more (history, max_age, size), or read it from nearer",
        )
        self.bucket = bucket
        self.repairs = repairs


class StoreKeptFailing(Unavailable):
    """The store failed so many times in a row that the watch ended; everything since its cursor is told again."""

    def __init__(self, failures: int, reason: str) -> None:
        super().__init__(
            f"the store failed {failures} times in a row: {reason}",
            hint="mend the cause (space, permissions, device), then start again; nothing is lost",
        )
        self.failures = failures
        self.reason = reason


class NotYet(Unavailable, TimeoutError):
    """The fold did not get where it was waited for in the time that was given."""

    def __init__(self, waited_for: str, seconds: float, revision: int, trouble: str | None = None) -> None:
        because = f"; {trouble}" if trouble else ""
        super().__init__(
            f"the fold is not {waited_for} after {seconds:g} s: it stands at revision {revision}{because}",
            hint="wait longer, or look at status()",
        )
        self.waited_for = waited_for
        self.seconds = seconds
        self.revision = revision
        self.trouble = trouble
