"""Errors of SQLite, mapped to ours. Its messages name files, tables and columns, never a value."""

from strandline.errors import (
    CommitFailed,
    Damaged,
    FormatError,
    InvalidInput,
    StorageRefused,
    StrandlineError,
    Unavailable,
)
from strandline.extras import needs
from strandline.pipeline.sql.migrations import not_migrated

with needs("sqlite"):
    import apsw

_REFUSED: dict[type[apsw.Error], tuple[str, str]] = {
    apsw.FullError: ("no space is left", "free some space, then try again; nothing acknowledged is lost"),
    apsw.ReadOnlyError: ("it is read-only", "check the permissions of the file and of its folder, and the mount"),
    apsw.PermissionsError: ("access is denied", "check who owns the file and its folder"),
    apsw.AuthError: ("access is denied", "check who owns the file and its folder"),
    apsw.CantOpenError: (
        "it cannot be opened",
        "`strandline pipeline init` makes it, in a folder that exists and may be written to",
    ),
    apsw.IOError: ("the device or file system failed", "check the device before trusting it again"),
}


def sqlite_error(path: str, error: apsw.Error) -> StrandlineError:  # noqa: PLR0911 - a return for each kind
    """Return the typed form of an error before the commit: nothing was done."""
    for kind, (reason, hint) in _REFUSED.items():
        if isinstance(error, kind):
            return StorageRefused(path, reason, _code(error), hint=hint)
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"{path}: another writer holds it for too long", hint="try again")
        case apsw.NotADBError():
            return FormatError(path, "is not an SQLite database", hint="give the path of the pipeline's database")
        case apsw.CorruptError():
            return Damaged(path, f"the database is malformed ({_code(error)})", safe="restore a backup")
        case apsw.SQLError() if "no such table" in str(error) or "no such column" in str(error):
            return not_migrated(path)
        case apsw.ConstraintError() | apsw.MismatchError() | apsw.TooBigError():
            return InvalidInput(f"{path}: a row breaks a rule of its table: {error}")
        case apsw.NoMemError():
            return Unavailable(f"{path}: no memory is left")
        case _:
            return StrandlineError(f"{path}: SQLite failed: {error}")


def sqlite_commit_error(path: str, error: apsw.Error) -> StrandlineError:
    """Return the typed form of an error of the commit itself, which the next opening may yet find done."""
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.ConstraintError):
        return sqlite_error(path, error)
    refused = sqlite_error(path, error)
    return CommitFailed(path, f"{error} ({_code(error)})", hint=refused.hint)


def _code(error: apsw.Error) -> str:
    number = getattr(error, "extendedresult", -1)
    name = apsw.mapping_extended_result_codes.get(number) or apsw.mapping_result_codes.get(number)
    return str(name or type(error).__name__)
