"""Parts of a listing: ranges that different processes list, one after another the whole listing.

    folder of files     ranges of paths, cut at folders, and at names within a large folder
    Parquet files       the same
    bucket              ranges of keys, cut at sampled places or at folders (`key_ranges`)
    S3 Inventory        the data files of its manifest
    journal, stream     ranges of blocks
    any other source    one part, the whole, for the reason that its `cut` says

A source whose parts can be cut again (`SplitSource`) ends one that is large while it is listed, and cuts what is left.

Invariants: the parts of a source, in their order, cover its listing, each item once, whenever they are cut: a bound is
only a place in the order of items, and need not exist. So parts of an older cut stay usable when items come and go.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from strandline.scan.sources.source import Source, Tell


class ListingPart(NamedTuple):
    """The items from `start` on and before `end`, in the source's own order; None is the end of the listing."""

    start: bytes = b""
    end: bytes | None = None

    def overlaps(self, other: "ListingPart") -> bool:
        """Return whether an item can be in both."""
        begins_before_end = other.end is None or self.start < other.end
        return begins_before_end and (self.end is None or other.start < self.end)

    def has(self, place: bytes) -> bool:
        """Return whether a place is in the part."""
        return self.start <= place and (self.end is None or place < self.end)

    def cut_at(self, bounds: Sequence[bytes]) -> "list[ListingPart]":
        """Return the parts between bounds within it, which rise."""
        return [ListingPart(begin, end) for begin, end in zip([self.start, *bounds], [*bounds, self.end], strict=True)]


WHOLE = ListingPart()
UNCUT = "one part"
BLOCKS_MIN = 10_000
"""Fewer blocks of a journal or stream are not worth a part."""
_REST = b"strandline.rest"


@runtime_checkable
class PartedSource(Protocol):
    """A source whose listing can be cut."""

    def listing_parts(self, count: int) -> Sequence[ListingPart]:
        """Return parts of about equal work, in order, about so many; without reading or stating items."""
        ...

    def list_part(self, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the items of a part, as `list_items` does those of the whole."""
        ...


@runtime_checkable
class SplitSource(PartedSource, Protocol):
    """A source whose parts can be cut again while they are listed."""

    def split(self, part: ListingPart, count: int) -> Sequence[ListingPart]:
        """Return parts of a part, in order, about so many."""
        ...

    def list_some(self, part: ListingPart, tell: Tell, items_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the items of a part; behind so many it may end, and the last batch says where (`rest_of`)."""
        ...


def ending_at(batch: pa.RecordBatch, rest: bytes | None) -> pa.RecordBatch:
    """Return the last batch of a part, with the bound from which on nothing was listed."""
    return batch if rest is None else batch.replace_schema_metadata({**(batch.schema.metadata or {}), _REST: rest})


def rest_of(batch: pa.RecordBatch) -> bytes | None:
    """Return the bound from which on a part was not listed; None if it was, or more batches follow."""
    found: bytes | None = (batch.schema.metadata or {}).get(_REST)
    return found


@runtime_checkable
class ReshapedSource(PartedSource, Protocol):
    """A source that is not always cut in the same way, so that bounds of an older cut may say nothing of its items."""

    def fits(self, parts: Sequence[ListingPart]) -> bool:
        """Return whether parts of an older cut are parts of this listing."""
        ...


def fit_together(source: Source, parts: Sequence[ListingPart]) -> bool:
    """Return whether parts of an older cut are parts of a source as it is listed now."""
    return not isinstance(source, ReshapedSource) or source.fits(parts)


def cut_of(source: Source) -> str:
    """Return how the listing of a source is cut, or why it is not."""
    found: str = getattr(source, "cut", UNCUT)
    return found


def block_parts(first: int, end: int, count: int, format_block: Callable[[int], bytes]) -> list[ListingPart]:
    """Return ranges of numbered blocks, of which there are those from `first` on and before `end`."""
    step = max(BLOCKS_MIN, -(-(end - first) // count))
    return parts_at([format_block(block) for block in range(first + step, end, step)])


def blocks_in(part: ListingPart, first: int, end: int, parse_block: Callable[[bytes], int]) -> range:
    """Return the numbers of the blocks of a part."""
    begin = max(first, parse_block(part.start)) if part.start else first
    return range(begin, end if part.end is None else min(end, parse_block(part.end)))


def listing_parts(source: Source, count: int) -> Sequence[ListingPart]:
    """Return the parts of a source; the whole if it cannot be cut."""
    return source.listing_parts(count) if isinstance(source, PartedSource) else (WHOLE,)


def list_part(source: Source, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
    """Yield the items of a part of a source."""
    if part == WHOLE:
        return source.list_items(tell)
    if not isinstance(source, PartedSource):
        raise TypeError("a part of a source that cannot be cut")
    return source.list_part(part, tell)


def parts_at(bounds: Sequence[bytes]) -> list[ListingPart]:
    """Return the parts between bounds, which rise; the first begins before, the last ends after all of them."""
    return WHOLE.cut_at([bound for bound in bounds if bound])
