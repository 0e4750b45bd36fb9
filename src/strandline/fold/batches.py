"""Many changes of a fold as columns, checked as columns, and what is left of them when the last write per key wins.

Invariants: a `FoldBatch` that was made has columns of one length, of bytes within every limit of every store, so that a
store either takes all of it or fails for a reason of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from strandline.errors import InvalidInput, RecordTooLarge
from strandline.fold.records import CURSOR_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX
from strandline.kv import NO_CURSOR, UNKNOWN_VERSION, VERSION_BYTES_MAX, UpdateBatch, UpdateKind, WatchCursor


class Puts(NamedTuple):
    """Columns of keys that get a value."""

    keys: Sequence[bytes]
    values: Sequence[bytes]
    versions: Sequence[bytes]


class Deletes(NamedTuple):
    """Columns of keys that go away."""

    keys: Sequence[bytes]
    versions: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class FoldBatch:
    """Changes in the order they happened: `kinds` holds an `UpdateKind` per row, or is None if all of them are puts."""

    keys: Sequence[bytes] = ()
    values: Sequence[bytes] = ()
    versions: Sequence[bytes] = ()
    kinds: NDArray[np.uint8] | None = None
    _last: tuple[Puts, Deletes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lengths = {len(self.keys), len(self.values), len(self.versions)}
        if self.kinds is not None:
            lengths.add(len(self.kinds))
        if len(lengths) > 1:
            raise InvalidInput(f"columns of one batch have different lengths: {sorted(lengths)}")
        _check("key", self.keys, 1, KEY_BYTES_MAX)
        _check("value", self.values, 0, VALUE_BYTES_MAX)
        _check("version", self.versions, 0, VERSION_BYTES_MAX)
        if self.kinds is not None and len(self.kinds) and int(self.kinds.max()) > max(UpdateKind):
            raise InvalidInput(f"there is no update of kind {int(self.kinds.max())}")
        object.__setattr__(self, "_last", _last_writes(self))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def puts(self) -> Puts:
        """Return the rows that put, where a key has no later row."""
        return self._last[0]

    @property
    def deletes(self) -> Deletes:
        """Return the rows that delete or purge, where a key has no later row."""
        return self._last[1]

    @staticmethod
    def from_updates(updates: UpdateBatch) -> "FoldBatch":
        """Return a bucket's updates as changes of a fold: keys as UTF-8, values copied out of their buffer."""
        versions: list[bytes] = updates.versions.astype(">u8").view("V8").tolist()
        if len(versions) and not updates.versions.all():
            known = updates.versions.tolist()
            versions = [token if at else UNKNOWN_VERSION for token, at in zip(versions, known, strict=True)]
        values = [value if type(value) is bytes else bytes(value) for value in updates.values]
        return FoldBatch([key.encode() for key in updates.keys], values, versions, updates.kinds)


def check_cursor(cursor: WatchCursor) -> None:
    """Raise `InvalidInput` for what is not a cursor; `NO_CURSOR` is one."""
    if type(cursor) is not bytes or len(cursor) > CURSOR_BYTES_MAX:
        raise InvalidInput(f"a cursor is at most {CURSOR_BYTES_MAX} bytes, not {cursor!r:.80}")


def cursor_or(cursor: WatchCursor, before: WatchCursor) -> WatchCursor:
    """Return the cursor after a batch: `NO_CURSOR` leaves it where it was."""
    return before if cursor == NO_CURSOR else cursor


def _check(what: str, column: Iterable[bytes], least: int, most: int) -> None:
    if not set(map(type, column)) <= {bytes}:
        raise InvalidInput(f"a {what} is bytes, and nothing else is taken for it")
    longest = max(map(len, column), default=0)
    if longest > most:
        raise RecordTooLarge(longest, most, what)
    if least and min(map(len, column), default=least) < least:
        raise InvalidInput(f"a {what} has at least {least} byte")


def _last_writes(batch: FoldBatch) -> tuple[Puts, Deletes]:
    keys, values, versions, kinds = batch.keys, batch.values, batch.versions, batch.kinds
    last = dict(zip(keys, range(len(keys)), strict=True))
    if len(last) < len(keys):
        rows = sorted(last.values())
        keys, values, versions = ([column[row] for row in rows] for column in (keys, values, versions))
        kinds = None if kinds is None else kinds[rows]
    if kinds is None or not kinds.any():
        return Puts(keys, values, versions), Deletes((), ())
    put, gone = (kinds == UpdateKind.PUT).tolist(), (kinds != UpdateKind.PUT).tolist()
    puts = Puts(*(list(compress(column, put)) for column in (keys, values, versions)))
    return puts, Deletes(list(compress(keys, gone)), list(compress(versions, gone)))
