"""Overlaps of many patterns: the same answers as pattern by pattern, in time that does not grow with their square."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.wire import PatternIndex, TooManySteps, first_overlap, patterns_overlap

TOKENS = st.sampled_from(["a", "b", "c", "*"])
PATTERNS = st.builds(
    lambda tokens, rest: ".".join([*tokens, ">"] if rest else tokens),
    st.lists(TOKENS, min_size=1, max_size=4),
    st.booleans(),
) | st.just(">")


@given(st.lists(PATTERNS, max_size=12), PATTERNS)
def test_an_index_finds_what_comparing_one_by_one_finds(kept: list[str], asked: str) -> None:
    index: PatternIndex[int] = PatternIndex()
    for number, pattern in enumerate(kept):
        index.add(pattern, number)
    found = set(index.overlapping(asked))
    assert found == {number for number, pattern in enumerate(kept) if patterns_overlap(pattern, asked)}


@given(st.lists(PATTERNS, max_size=12), PATTERNS, st.data())
def test_what_is_removed_is_found_no_more_and_the_rest_is(kept: list[str], asked: str, data: st.DataObject) -> None:
    index: PatternIndex[int] = PatternIndex()
    for number, pattern in enumerate(kept):
        index.add(pattern, number)
    removed = data.draw(st.sets(st.integers(0, 11)))
    for number, pattern in enumerate(kept):
        if number in removed:
            index.remove(pattern, number)
    left = {number for number, pattern in enumerate(kept) if number not in removed}
    assert set(index.overlapping(asked)) == {number for number in left if patterns_overlap(kept[number], asked)}


@given(st.lists(PATTERNS, max_size=8))
def test_the_first_overlap_is_the_first_in_order(patterns: list[str]) -> None:
    expected = next(
        (
            (one, other)
            for one in range(len(patterns))
            for other in range(len(patterns))
            if one != other and patterns_overlap(patterns[one], patterns[other])
        ),
        None,
    )
    assert first_overlap(patterns) == expected


def test_wildcards_that_would_compare_everything_with_everything_are_stopped() -> None:
    crossing = [f"a{number}.*.left" for number in range(400)] + [f"*.b{number}.right" for number in range(400)]
    with pytest.raises(TooManySteps):
        first_overlap(crossing, steps=10_000)
    assert first_overlap([f"a{number}.b" for number in range(10_000)], steps=0) is None
