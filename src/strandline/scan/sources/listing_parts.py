"""Parts of a listing: ranges that different processes list, one after another the whole listing.

    folder of files     ranges of paths, cut at folders, and at names within a large folder
    any other source    one part, the whole

Invariants: the parts of a source, in their order, cover its listing, each item once, whenever they are cut: a bound is
only a place in the order of items, and need not exist. So parts of an older cut stay usable when items come and go.
"""

from collections.abc import Iterator, Sequence
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


WHOLE = ListingPart()


@runtime_checkable
class PartedSource(Protocol):
    """A source whose listing can be cut."""

    def listing_parts(self, count: int) -> Sequence[ListingPart]:
        """Return parts of about equal work, in order, about so many; without reading or stating items."""
        ...

    def list_part(self, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the items of a part, as `list_items` does those of the whole."""
        ...


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
    cuts = [bound for bound in bounds if bound]
    return [ListingPart(start, end) for start, end in zip([b"", *cuts], [*cuts, None], strict=True)]
