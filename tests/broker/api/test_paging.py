"""Lists are cut into pages that lie within them, whatever is asked for."""

import pytest

from strandline.broker.api.paging import page_of


@pytest.mark.parametrize(
    ("asked", "offset", "names"),
    [(0, 0, ["a", "b"]), (1, 1, ["b", "c"]), (2, 2, ["c"]), (3, 3, []), (9, 3, []), (-5, 0, ["a", "b"])],
)
def test_a_page_lies_within_its_list(asked: int, offset: int, names: list[str]) -> None:
    assert page_of(["a", "b", "c"], asked, 2) == ((3, offset, 2), names)
