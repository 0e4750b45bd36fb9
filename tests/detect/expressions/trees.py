"""Trees of regular expressions and texts that they may match, for property tests."""

import re
from collections.abc import Iterator

from hypothesis import strategies as st

from strandline.detect.expressions.nodes import (
    Alt,
    At,
    Chars,
    Group,
    Node,
    Place,
    Repeat,
    Seq,
    to_python,
    width,
)

ALPHABET = b"ab-1 \n"


def texts(max_size: int = 120) -> st.SearchStrategy[bytes]:
    """Return texts of few different bytes, so that expressions match them often."""
    return st.lists(st.sampled_from(list(ALPHABET)), max_size=max_size).map(bytes)


def trees() -> st.SearchStrategy[Node]:
    """Return expressions that match no empty text and whose repeats repeat something."""
    chars = st.sets(st.sampled_from(list(ALPHABET)), min_size=1, max_size=4).map(
        lambda s: Chars(sum(1 << value for value in s))
    )
    places = st.sampled_from(list(Place)).map(At)
    inner = st.recursive(chars | places, _larger, max_leaves=8)
    return inner.filter(lambda node: width(node)[0] > 0).map(numbered)


def _larger(node: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    sequences = st.lists(node, min_size=1, max_size=4).map(lambda items: Seq(tuple(items)))
    options = st.lists(node, min_size=1, max_size=3).map(lambda items: Alt(tuple(items)))
    counts = st.tuples(st.integers(0, 3), st.none() | st.integers(0, 4))
    repeats = st.builds(
        lambda item, count, greedy: Repeat(item, count[0], None if count[1] is None else sum(count), greedy),
        node.filter(lambda item: width(item)[0] > 0),
        counts,
        st.booleans(),
    )
    return sequences | options | repeats | node.map(lambda item: Group(item, 0))


def numbered(node: Node) -> Node:
    """Return a tree whose groups are numbered as they are read."""
    return _numbered(node, iter(range(1, 1000)))


def _numbered(node: Node, numbers: Iterator[int]) -> Node:
    match node:
        case Group(item=item):
            index = next(numbers)
            return Group(_numbered(item, numbers), index)
        case Seq(items=items):
            return Seq(tuple(_numbered(item, numbers) for item in items))
        case Alt(options=options):
            return Alt(tuple(_numbered(option, numbers) for option in options))
        case Repeat(item=item):
            return Repeat(_numbered(item, numbers), node.low, node.high, node.greedy)
        case _:
            return node


def spans_by_re(node: Node, text: bytes) -> list[tuple[tuple[int, int], ...]]:
    """Return what Python finds in the whole text."""
    return [found.regs for found in re.compile(to_python(node)).finditer(text)]
