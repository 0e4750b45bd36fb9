"""What tasks of a large scan are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.scan.inventory import InventoryPart
from strandline.scan.parted.part_tasks import KnownParts
from strandline.scan.sources.listing_parts import WHOLE, ListingPart

PLACES = st.lists(st.binary(min_size=1, max_size=2), max_size=8).map(sorted)
"""Bounds that rise, some of them twice: a part between equal ones is empty."""


def stored(source: int | None, number: int, part: ListingPart) -> InventoryPart:
    return InventoryPart(source, part.start.hex(), None if part.end is None else part.end.hex(), 1, 7, number, 1)


@given(places=PLACES, cut=PLACES, others=PLACES)
def test_known_parts_are_those_with_items_that_a_part_may_have(
    places: list[bytes], cut: list[bytes], others: list[bytes]
) -> None:
    before = WHOLE.cut_at(places)
    mine = [stored(1, number, part) for number, part in enumerate(before)]
    known = KnownParts([*(stored(0, 99, part) for part in WHOLE.cut_at(others)), *mine])
    for part in WHOLE.cut_at(cut):
        overlapping = tuple(one for bounds, one in zip(before, mine, strict=True) if bounds.overlaps(part))
        assert known.of(1, part) == overlapping
        assert known.of(1, part, are_like=False) == tuple(mine)
        assert known.of(2, part) == ()


def test_a_part_with_the_rows_of_all_sources_is_known_of_each() -> None:
    whole = stored(None, 0, WHOLE)
    assert KnownParts([whole]).of(3, ListingPart(b"a", b"b")) == (whole,)


def test_a_part_is_found_without_a_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand parts are those of a billion items: a look at each pair of them would take minutes."""
    parts = WHOLE.cut_at([b"%06d" % at for at in range(10_000)])
    known = KnownParts([stored(0, number, part) for number, part in enumerate(parts)])
    overlaps, looked = ListingPart.overlaps, list[ListingPart]()

    def counted(self: ListingPart, other: ListingPart) -> bool:
        looked.append(self)
        return overlaps(self, other)

    monkeypatch.setattr(ListingPart, "overlaps", counted)
    asked = parts[::100]
    assert all(len(known.of(0, part)) == 1 for part in asked)
    assert len(looked) <= 2 * len(asked)
