"""The matcher that never backtracks finds what `re` finds, and stops when its work is used up."""

import time

import pytest
from hypothesis import given

from strandline.detect.expressions.linear import Exhausted, Program, TooLarge, Work
from strandline.detect.expressions.nodes import Node, groups
from strandline.detect.expressions.syntax import parse
from tests.detect.expressions.trees import spans_by_re, texts, trees
from tests.effort import examples


def program(node: Node) -> Program:
    return Program(node, sum(1 for _ in groups(node)))


@examples(100)
@given(node=trees(), text=texts(60))
def test_it_finds_what_re_finds_with_the_same_match_spans(node: Node, text: bytes) -> None:
    found = program(node).finditer(text, 0, len(text), Work(10_000_000))
    assert [spans[0] for spans in found] == [spans[0] for spans in spans_by_re(node, text)]


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        (r"(a+)(b*)c", b"aabbc ac"),
        (r"(?i)key=([a-z0-9]{2,5}?)(;|$)", b"KEY=abc; key=12345"),
        (r"(\w+)@(\w+)", b"me@here, you@there"),
        (r"(?:(a)|(b))+", b"abab"),
        (r"(?m)^x(.*)$", b"x1\nyx2\nx3"),
        (r"\b(\d{3,})\b", b"a123 456 7890b 12"),
        (r"(a{2,4}?)(a*)", b"aaaaaaa"),
    ],
)
def test_groups_are_captured_as_re_captures_them(regex: str, text: bytes) -> None:
    node = parse(regex)
    assert list(program(node).finditer(text, 0, len(text), Work(10_000))) == spans_by_re(node, text)


def test_a_window_is_searched_with_the_places_of_the_whole_text() -> None:
    node = parse(r"\bab")
    assert not list(program(node).finditer(b"xab ab", 1, 3, Work(1_000)))
    assert [spans[0] for spans in program(node).finditer(b"xab ab", 1, 6, Work(1_000))] == [(4, 6)]


def test_an_expression_that_explodes_takes_linear_time() -> None:
    node = parse(r"(a+)+b")
    work = Work(10_000_000)
    begin = time.process_time()
    assert not list(program(node).finditer(b"a" * 2_000, 0, 2_000, work))
    assert time.process_time() - begin < 20
    assert work.steps_left > 9_900_000


def test_used_up_work_ends_the_search() -> None:
    with pytest.raises(Exhausted):
        list(program(parse("(a+)+b")).finditer(b"a" * 2_000, 0, 2_000, Work(500)))


def test_repeats_of_repeats_are_bounded() -> None:
    with pytest.raises(TooLarge):
        program(parse("((a{100}){100}){100}"))
