"""Go's expressions are read as Go means them, over bytes, or refused with their position."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.detect.expressions.classes import Unsupported, utf8_sequences
from strandline.detect.expressions.nodes import Node, first, groups, literal, members, to_python, width
from strandline.detect.expressions.syntax import parse
from tests.detect.expressions.trees import texts, trees
from tests.effort import examples


def found(regex: str, text: str) -> list[bytes]:
    return [match[0] for match in re.finditer(to_python(parse(regex)), text.encode())]


@pytest.mark.parametrize(
    ("regex", "text", "expected"),
    [
        ("a(?i)b(?-i)c", "abc aBc aBC Abc", ["abc", "aBc"]),
        ("(?i:ab)c", "ABc abC", ["ABc"]),
        ("x(?i)|y", "x X y Y", ["x", "y", "Y"]),
        ("(?s)a.b", "a\nb", ["a\nb"]),
        ("a.b", "a\nb a.b", ["a.b"]),
        ("(?s:.)b", "\nb", ["\nb"]),
        ("(?m)^x$", "x\nax\nx", ["x", "x"]),
        ("x$", "x\n", []),
        (r"x\z", "xx", ["x"]),
        (r"\Ax", "xx", ["x"]),
        ("(?U)a+", "aaa", ["a", "a", "a"]),
        ("(?U)a+?", "aaa", ["aaa"]),
        ("a+?", "aa", ["a", "a"]),
        ("[[:alnum:]_]+", "ab_1-c", ["ab_1", "c"]),
        ("[[:^alpha:]]", "a1", ["1"]),
        ("[[:xdigit:][:punct:]]+", "fF0!?g", ["fF0!?"]),
        (r"[\d\-x]+", "1-x y", ["1-x"]),
        (r"[^\w\s]", "a !", ["!"]),
        ("[]a]+", "]a[", ["]a"]),
        ("[^]a]", "]ab", ["b"]),
        ("[a-]+", "a-b", ["a-"]),
        (r"\x41\x{42}\103", "ABC", ["ABC"]),
        (r"\x{e9}é", "éé", ["éé"]),
        ("[à-ü]+", "éàz", ["éà"]),
        ("(?i)É", "éÉ", ["é", "É"]),
        ("[^é]", "éa", ["a"]),
        ("[^\\x{0}-\\x{10ffff}é]|a", "éa", []),
        (r"\Qa.b\E+", "a.bbb a.b", ["a.bbb", "a.b"]),
        (r"\\Q", "\\Q", ["\\Q"]),
        (r"\.\*\_\-", ".*_-", [".*_-"]),
        ("a{2}b{1,}c{0,1}", "aabbc", ["aabbc"]),
        ("a{,2}", "a{,2}", ["a{,2}"]),
        ("a{x}", "a{x}", ["a{x}"]),
        (r"\bfoo\b", "foo food", ["foo"]),
        (r"o\B", "oo o", ["o"]),
        (r"\a\f\t\n\r\v", "\a\f\t\n\r\v", ["\a\f\t\n\r\v"]),
        ("(?P<name>a)(?<other>b)", "ab", ["ab"]),
    ],
)
def test_an_expression_means_what_go_means(regex: str, text: str, expected: list[str]) -> None:
    if "10ffff" in regex:
        with pytest.raises(Unsupported, match="without a member"):
            parse(regex)
        return
    assert found(regex, text) == [each.encode() for each in expected]


@pytest.mark.parametrize(
    ("regex", "problem", "position"),
    [
        ("a++", "repeat of a repeat", 2),
        ("a**", "repeat of a repeat", 2),
        ("a{2}{3}", "repeat of a repeat", 4),
        ("(?=a)", "look-around", 0),
        ("x(?!a)", "look-around", 1),
        ("(?<=a)", "look-around", 0),
        ("(?<!a)", "look-around", 0),
        (r"(a)\1", "back-references", 3),
        (r"(?P<q>a)(?P=q)", "back-references", 8),
        ("(a", "not closed", 0),
        ("a)", "closes nothing", 1),
        ("b[a", "not closed", 1),
        (r"\pL", "Unicode", 0),
        (r"[\p{Greek}]", "Unicode", 1),
        ("*a", "repeat of nothing", 0),
        ("a|*", "repeat of nothing", 2),
        ("a{3,1}", "out of order", 0),
        ("a{1001}", "over 1000", 0),
        (r"a\Z", "unknown escape", 1),
        (r"\y", "unknown escape", 0),
        ("(?P<n", "name", 0),
        ("(?P<n>", "not closed", 0),
        ("(?#a)", "kind of group", 0),
        ("(?>a)", "kind of group", 0),
        ("[b-a]", "out of order", 4),
        ("[[:foo:]]", "class of characters", 3),
        (r"\x{zz}", "hexadecimal", 0),
        (r"\x{110000}", "hexadecimal", 0),
        (r"\x4", "hexadecimal", 0),
        (r"\x{d800}", "surrogate", 0),
        ("a\\", "ends inside", 2),
        ("(?i-)", "flags", 5),
        ("(?)", "flags", 0),
        ("(" * 101, "deeper", 100),
    ],
)
def test_what_go_refuses_is_refused_with_its_position(regex: str, problem: str, position: int) -> None:
    with pytest.raises(Unsupported, match=problem) as caught:
        parse(regex)
    assert caught.value.position == position


def test_an_expression_is_read_once_and_refused_each_time() -> None:
    assert parse("once_[a-z]{3}") is parse("once_[a-z]{3}")
    long = "a" * 2_000
    assert parse(long) == parse(long)
    for _ in range(2):
        with pytest.raises(Unsupported):
            parse("once_[a-z")


def test_a_class_that_stands_twice_is_read_the_same_and_refused_where_it_stands() -> None:
    for before in ("", "x", "xyz(?:", "(?i)", "x(?i:"):
        for broken, position in (("[b-a]", 4), (r"[ab\y]", 3), (r"[a\x4]", 2)):
            with pytest.raises(Unsupported) as caught:
                parse(before + broken)
            assert caught.value.position == len(before) + position
    assert parse("[ab]") == parse("[ab]") == parse("(?i)(?-i:[ab])")
    assert parse("(?i)[ab]") == parse("[abAB]") != parse("[ab]")
    assert parse("[^]a]") == parse(r"[^a\]]")
    assert parse("(?i)k") == parse("[kK]") != parse("k")


@examples(100)
@given(text=st.text(alphabet="ab1(){}[]|*+?.^$\\:-,<>=!?PQEiUmsxpdwb é\ud7ff", max_size=24))
@example("(?")
@example("[")
@example("\\")
@example("{")
@example("[[:")
@example("\\x{")
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        node = parse(text)
    except Unsupported:
        return
    re.compile(to_python(node))


@examples(100)
@given(node=trees(), text=texts(40))
def test_what_is_known_of_an_expression_holds_for_its_matches(node: Node, text: bytes) -> None:
    least, most = width(node)
    begin = set(members(first(node)))
    for match in re.finditer(to_python(node), text):
        assert least <= len(match[0]) <= (len(text) if most is None else most)
        assert literal(node) <= len(match[0])
        assert match.start() == len(text) or text[match.start()] in begin


@given(low=st.integers(0x80, 0x10FFFF), size=st.integers(0, 3_000), probe=st.integers(0x80, 0x10FFFF))
@example(low=0xD7FF, size=0x900, probe=0xE000)
@example(low=0x7F0, size=0x20, probe=0x800)
def test_a_range_of_characters_is_the_sequences_of_its_members(low: int, size: int, probe: int) -> None:
    high = min(low + size, 0x10FFFF)
    for char in {low, high, (low + high) // 2, probe} - set(range(0xD800, 0xE000)):
        encoded = chr(char).encode()
        inside = any(
            len(parts) == len(encoded) and all(a <= byte <= b for byte, (a, b) in zip(encoded, parts, strict=True))
            for parts in utf8_sequences(low, high)
        )
        assert inside is (low <= char <= high)


def test_groups_are_numbered_by_their_parentheses() -> None:
    node = parse("(a(?:b)(c))(?P<last>d)")
    assert [(group.index, group.name) for group in groups(node)] == [(1, None), (2, None), (3, "last")]
    match = re.compile(to_python(node)).match(b"abcd")
    assert match is not None
    assert match.groups() == (b"abc", b"c", b"d")
