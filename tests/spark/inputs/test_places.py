"""Names are found wherever they stand, and quickly where they stand in the same order."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from strandline.spark.inputs.places import Places

NAMES = st.lists(st.sampled_from([b"%02d" % number for number in range(40)]), max_size=30)


def column(names: list[bytes]) -> pa.Array:
    return pa.array(names, pa.binary())


@given(NAMES.map(lambda names: list(dict.fromkeys(names))), st.lists(NAMES, max_size=6))
def test_every_name_is_found_where_it_stands(names: list[bytes], asked: list[list[bytes]]) -> None:
    places = Places(column(names))
    for batch in asked:
        assert places.find(column(batch)).to_pylist() == [names.index(one) if one in names else None for one in batch]


@given(st.lists(st.binary(max_size=4), unique=True, max_size=60), st.integers(1, 20), st.sets(st.integers(0, 60)))
def test_a_listing_with_gaps_and_news_is_found_in_order(names: list[bytes], size: int, changed: set[int]) -> None:
    now = [b"new" + name if number in changed else name for number, name in enumerate(names)]
    places = Places(column(names))
    found = [place for at in range(0, len(now), size) for place in places.find(column(now[at : at + size])).to_pylist()]
    assert found == [None if name not in names else names.index(name) for name in now]


def test_names_in_the_same_order_need_no_index() -> None:
    names = [b"%d" % number for number in range(100)]
    places = Places(column(names))
    for at in range(0, 100, 10):
        assert places.find(column(names[at : at + 10])).to_pylist() == list(range(at, at + 10))
    assert "_index" not in vars(places)
