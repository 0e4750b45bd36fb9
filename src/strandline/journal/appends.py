"""Queued appends, and their receipts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from strandline.gather import CommitRequest
from strandline.journal.batch import HEADER_BYTES
from strandline.journal.columns import Columns
from strandline.journal.config import Durability


@dataclass(frozen=True, slots=True)
class Appended:
    """The receipt of an append: its records are [base_offset, base_offset + count)."""

    base_offset: int
    count: int

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.count


class Append(CommitRequest[Appended]):
    """A queued append."""

    __slots__ = ("columns", "durability")

    def __init__(self, columns: Columns, durability: Durability) -> None:
        super().__init__(HEADER_BYTES + columns.size)
        self.columns = columns
        self.durability = durability


def alike(appends: Sequence[Append]) -> list[list[Columns]]:
    """Group neighbours that can share a batch because they have the same columns."""
    if len(appends) == 1:
        return [[appends[0].columns]]
    return [
        [append.columns for append in group] for _, group in groupby(appends, key=lambda append: append.columns.present)
    ]


def settle(appends: Sequence[Append], receipts: Sequence[Appended], durability: Durability) -> None:
    """Answer the appends that asked for this durability."""
    for append, receipt in zip(appends, receipts, strict=True):
        if append.durability is durability:
            append.settle(receipt)
