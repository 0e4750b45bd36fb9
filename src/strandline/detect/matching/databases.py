"""Hyperscan databases in block mode: compile, load, save and scan.

A `FixedDatabase` has expressions of the code itself, not of rules; an engine that is saved has those too.

Invariants: a scan reports the end of every match, or of the first one for an expression flagged `FIRST_ONLY`; a
database of another kind of machine does not load; threads may share a database. hyperscan is imported when the first
database is made.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from strandline.lazy_imports import deferred

if TYPE_CHECKING:
    import hyperscan
else:
    hyperscan = deferred("hyperscan", "scan")

FIRST_ONLY = 8
"""`HS_FLAG_SINGLEMATCH`, for an expression whose first match is enough; a literal, so that no import is needed."""


class Database:
    """Compiled expressions; each thread has its own scratch memory."""

    def __init__(self, database: "hyperscan.Database") -> None:
        self._database = database
        self._local = threading.local()

    @classmethod
    def compiled(cls, expressions: Sequence[bytes], flags: Sequence[int]) -> Self | None:
        """Return a database of expressions, numbered from 0, or None if hyperscan refuses one of them."""
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        try:
            database.compile(expressions=expressions, ids=list(range(len(expressions))), flags=flags)
        except hyperscan.error:
            return None
        return cls(database)

    @classmethod
    def loaded(cls, data: bytes) -> Self | None:
        """Return a saved database, or None if another kind of machine compiled it."""
        try:
            return cls(hyperscan.loadb(data, hyperscan.HS_MODE_BLOCK))
        except hyperscan.error:
            return None

    def dumped(self) -> bytes:
        """Return the bytes that `loaded` takes."""
        return hyperscan.dumpb(self._database)

    def found(self, data: bytes | memoryview) -> list[tuple[int, int]]:
        """Return the end and the expression's number of each match, sorted by end."""
        scratch = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = hyperscan.Scratch(self._database)
        found: list[tuple[int, int]] = []
        # hyperscan's stubs know no buffers and no contexts.
        self._database.scan(data, match_event_handler=_keep, context=found, scratch=scratch)  # type: ignore[type-var, arg-type]
        found.sort()
        return found


class FixedDatabase:
    """A database that is the same for all rules, compiled at first use unless another process saved it."""

    def __init__(self, name: str, expressions: Sequence[bytes]) -> None:
        self._expressions = expressions
        self._saved = b""
        self._database: Database | None = None
        _fixed[name] = self

    def found(self, data: bytes | memoryview) -> list[tuple[int, int]]:
        """Return what `Database.found` does."""
        return self._made().found(data)

    def dumped(self) -> bytes:
        """Return the bytes that `keep` takes, for this kind of machine."""
        database = self._made()
        return self._saved or database.dumped()

    def keep(self, saved: bytes) -> None:
        """Use a database that another process with the same code saved."""
        self._saved = saved

    def _made(self) -> Database:
        if self._database is None:
            self._database = Database.loaded(self._saved) if self._saved else None
        if self._database is None:
            self._saved = b""  # of another kind of machine, if there was one
            self._database = Database.compiled(self._expressions, [0] * len(self._expressions))
        assert self._database is not None  # noqa: S101
        return self._database


_fixed: dict[str, FixedDatabase] = {}


def dumped_fixed() -> tuple[tuple[str, bytes], ...]:
    """Return all fixed databases, each with its name."""
    return tuple((name, database.dumped()) for name, database in sorted(_fixed.items()))


def keep_fixed(dumped: Iterable[tuple[str, bytes]]) -> None:
    """Use fixed databases that another process with the same code saved."""
    for name, saved in dumped:
        _fixed[name].keep(saved)


def _keep(number: int, _start: int, end: int, _flags: int, found: list[tuple[int, int]]) -> None:
    found.append((end, number))
