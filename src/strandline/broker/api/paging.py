"""Pages of list responses, with nats-server's limits."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Page(NamedTuple):
    """The paging fields of a response."""

    total: int
    offset: int
    limit: int


def page_of(found: Sequence[T], offset: int, limit: int) -> tuple[Page, Sequence[T]]:
    """Return the paging fields and the items of the page at an offset."""
    offset = min(max(0, offset), len(found))
    return Page(len(found), offset, limit), found[offset : offset + limit]
