"""Errors of PostgreSQL and its driver, mapped to ours.

Invariants: no message holds a password, nor a value of a row: the server's `DETAIL` lines, which quote keys, are left
out, and so is the driver's error as a cause where it has one.
"""

from typing import TYPE_CHECKING

from strandline.errors import (
    CommitFailed,
    Damaged,
    InvalidInput,
    StorageRefused,
    StrandlineError,
    Unavailable,
)
from strandline.lazy_imports import deferred
from strandline.pipeline.errors import AccessRefused
from strandline.pipeline.sql.migrations import not_migrated

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = deferred("psycopg", "postgres")

RETRIED = ("40001", "40P01")

_REFUSED = {
    "25006": "it takes no writes: connect to the primary, or end its read-only mode",
    "53100": "free some space on the server, then try again; nothing acknowledged is lost",
    "58": "the server's disk failed: check it before trusting it again",
}
_TLS, _SERVICE = "TLS", "service"
_NO_ACCESS = {
    "28": "check user, password and `pg_hba.conf`",
    "3D000": "create the database, or name another one",
    "42501": "grant the user its rights on the schema and its tables",
    _TLS: "check sslmode and the certificates of both sides",
    _SERVICE: "check the name of the service, and the service file of this machine (PGSERVICEFILE)",
}
_NOT_MIGRATED = ("42P01", "42703", "3F000")
# The driver does not tell the code of an error while connecting; the words are all there is. Those of the server come
# after FATAL, and the rest are libpq's own, which refuses by itself what the server or the parameters ask for.
_WORDS_OF_SERVER = {
    "authentication": "28000",
    "pg_hba.conf": "28000",
    "role ": "28000",
    "does not exist": "3D000",
    "permission denied for database": "42501",
}
_WORDS_OF_LIBPQ = {
    "no password supplied": "28000",
    "authentication method requirement": "28000",
    "channel binding": "28000",
    "SSL was required": _TLS,
    "certificate": _TLS,
    "private key file": _TLS,
    "definition of service": _SERVICE,
    "service file": _SERVICE,
}


def postgres_error(where: str, error: "psycopg.Error") -> StrandlineError:  # noqa: PLR0911 - a return for each kind
    """Return the typed form of an error before the commit: nothing was done."""
    state = error.sqlstate or _state_while_connecting(error)
    for kind, hints in ((StorageRefused, _REFUSED), (AccessRefused, _NO_ACCESS)):
        hint = next((hint for prefix, hint in hints.items() if state.startswith(prefix)), None)
        if hint is not None:
            return kind(where, _reason(error), state, hint=hint)
    if state in _NOT_MIGRATED:
        return not_migrated(where)
    match state[:2]:
        case "22" | "23":
            rule = error.diag.constraint_name or error.diag.column_name or error.diag.message_primary
            return InvalidInput(f"{where}: a row breaks a rule of its table: {rule}")
        case "XX" if state in ("XX001", "XX002"):
            return Damaged(where, f"the database is malformed ({state})", safe="restore a backup")
        case "08" | "40" | "53" | "55" | "57":
            return Unavailable(f"{where}: {_reason(error)} ({state})", hint="try again")
        case "" if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Unavailable(f"{where}: {_reason(error)}", hint="is the server running? Then try again")
        case "" if isinstance(error, psycopg.DataError):
            return InvalidInput(f"{where}: a value does not fit its column")
        case _:
            return StrandlineError(f"{where}: PostgreSQL failed: {_reason(error)} ({state or type(error).__name__})")


def postgres_commit_error(where: str, error: "psycopg.Error") -> StrandlineError:
    """Return the typed form of an error of the commit itself: refused by the server, or of unknown outcome."""
    state = error.sqlstate or ""
    if state.startswith(("23", "40")) and state != "40003":
        return postgres_error(where, error)
    return CommitFailed(
        where,
        _reason(error),
        hint="check whether the rows are stored before sending them again; merges may be repeated",
    )


def cause_of(error: "psycopg.Error") -> "psycopg.Error | None":
    """Return the error as a cause to show, unless it quotes values of a row."""
    return None if (error.sqlstate or "")[:2] in ("22", "23") or error.diag.message_detail else error


def bad_dsn() -> InvalidInput:
    """Return the error for a connection string that cannot be read; the driver's message would quote it."""
    return InvalidInput("the connection string cannot be read", hint="write it like postgresql://user@host/database")


def _state_while_connecting(error: "psycopg.Error") -> str:
    text = str(error)
    words = _WORDS_OF_LIBPQ | (_WORDS_OF_SERVER if "FATAL:" in text else {})
    return next((state for word, state in words.items() if word in text), "")


def _reason(error: "psycopg.Error") -> str:
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return " ".join(text.split())
