"""The ledger's rows of a page, as its builder makes them: those of clean items as columns, others one by one.

Most items are clean: scanned completely, nothing found. Of such a row the page says everything but three columns, so a
store that writes columns needs no object for each.

Invariants: rows are valid from the beginning, and never change; they are those of their scope, and of no other; in a
sequence they are in the order of the items.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import NamedTuple, overload

from strandline.errors import InvalidInput
from strandline.pipeline.errors import BATCH_ROWS_MAX, BatchTooLarge
from strandline.pipeline.identity import DIGEST_BYTES, OvidHash
from strandline.pipeline.ledger import I64_MAX, DoneStatus, LedgerRecord, validate_all
from strandline.pipeline.scope import CommitScope


class CleanRows(NamedTuple):
    """Rows of clean items at strong versions: their keys, the numbers of the items in their lease, bytes."""

    ovids: Sequence[OvidHash]
    numbers: Sequence[int]
    bytes_seen: Sequence[int]


class PageRows(Sequence[LedgerRecord]):
    """The rows of one page: `clean` ones, and `others`, which stand for numbers that `clean` leaves out."""

    def __init__(self, scope: CommitScope, clean: CleanRows, others: Sequence[LedgerRecord]) -> None:
        if len(clean.ovids) + len(others) > BATCH_ROWS_MAX:
            raise BatchTooLarge(len(clean.ovids) + len(others))
        if not set(map(len, clean.ovids)) <= {DIGEST_BYTES}:
            raise InvalidInput(f"a ledger row's ovid is not {DIGEST_BYTES} bytes")
        if clean.bytes_seen and not 0 <= min(clean.bytes_seen) <= max(clean.bytes_seen) <= I64_MAX:
            raise InvalidInput(f"a ledger row's bytes_seen is not a number in [0, {I64_MAX}]")
        validate_all(others)
        self.scope = scope
        self.clean = clean
        self.others = others

    @cached_property
    def _rows(self) -> tuple[LedgerRecord, ...]:
        tenant, policy, *writer = self.scope.context
        ovids, numbers, bytes_seen = self.clean
        same = (repeat(tenant), repeat(policy), ovids, repeat(False), repeat(DoneStatus.SCANNED_CLEAN), bytes_seen)  # noqa: FBT003
        times = (map((2).__mul__, numbers), map(finished_at, numbers), repeat(None))
        columns = zip(*same, *repeat(repeat(0), 4), *map(repeat, writer), *times, strict=False)
        rows = [*map(LedgerRecord._make, columns), *self.others]
        return tuple(sorted(rows, key=_finished_at)) if self.others else tuple(rows)

    def __len__(self) -> int:
        return len(self.clean.ovids) + len(self.others)

    def __iter__(self) -> Iterator[LedgerRecord]:
        return iter(self._rows)

    @overload
    def __getitem__(self, at: int) -> LedgerRecord: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[LedgerRecord]: ...
    def __getitem__(self, at: int | slice) -> LedgerRecord | Sequence[LedgerRecord]:
        return self._rows[at]

    def __repr__(self) -> str:
        return f"PageRows({len(self.clean.ovids)} clean, {len(self.others)} others)"


def finished_at(number: int) -> int:
    """Return the logical time at which the n-th item of a lease was finished."""
    return 2 * number + 1


def _finished_at(row: LedgerRecord) -> int:
    return row.finished_at
