"""Lists that are told a page at a time, as nats-server cuts them."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Page(NamedTuple):
    """What an answer says of a page, beside what is on it."""

    total: int
    offset: int
    limit: int


def page_of(found: Sequence[T], offset: int, limit: int) -> tuple[Page, Sequence[T]]:
    """Return what there is from an offset on, as far as it goes onto a page, and which page that is."""
    offset = min(max(0, offset), len(found))
    return Page(len(found), offset, limit), found[offset : offset + limit]
