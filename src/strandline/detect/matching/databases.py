"""Hyperscan databases in block mode: compiled, loaded again, and asked for all that they find.

Invariants: every match's end is reported, or the first of an expression that asks for one; a database of another
kind of machine is no database; threads may share one.
"""

import threading
from collections.abc import Sequence
from typing import Self

from strandline.extras import needs

with needs("scan"):
    import hyperscan


FIRST_ONLY = int(hyperscan.HS_FLAG_SINGLEMATCH)
"""The flag of an expression of which one match is enough."""


class Database:
    """Expressions, compiled; each thread has working memory of its own."""

    def __init__(self, database: hyperscan.Database) -> None:
        self._database = database
        self._local = threading.local()

    @classmethod
    def compiled(cls, expressions: Sequence[bytes], flags: Sequence[int]) -> Self | None:
        """Return a database of expressions, numbered from 0, or None if hyperscan does not take one of them."""
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        try:
            database.compile(expressions=expressions, ids=list(range(len(expressions))), flags=flags)
        except hyperscan.error:
            return None
        return cls(database)

    @classmethod
    def loaded(cls, data: bytes) -> Self | None:
        """Return a database that was compiled before, or None if it is that of another kind of machine."""
        try:
            return cls(hyperscan.loadb(data, hyperscan.HS_MODE_BLOCK))
        except hyperscan.error:
            return None

    def dumped(self) -> bytes:
        """Return the bytes that `loaded` takes."""
        return hyperscan.dumpb(self._database)

    def found(self, data: bytes | memoryview) -> list[tuple[int, int]]:
        """Return the end and the number of all that is found, in the order of the ends."""
        scratch = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = hyperscan.Scratch(self._database)
        found: list[tuple[int, int]] = []
        # The stubs of hyperscan do not know buffers and contexts.
        self._database.scan(data, match_event_handler=_keep, context=found, scratch=scratch)  # type: ignore[type-var, arg-type]
        found.sort()
        return found


def _keep(number: int, _start: int, end: int, _flags: int, found: list[tuple[int, int]]) -> None:
    found.append((end, number))
