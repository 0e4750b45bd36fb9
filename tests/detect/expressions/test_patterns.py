"""An expression that can read a text in very many ways is not left to `re`."""

import pytest
from hypothesis import given

from strandline.detect.errors import RegexInvalid
from strandline.detect.expressions.linear import Work
from strandline.detect.expressions.nodes import Node
from strandline.detect.expressions.patterns import WAYS_MAX, Pattern, ways
from strandline.detect.expressions.syntax import parse
from strandline.detect.matching.matcher import split_lead
from strandline.detect.rules.gitleaks import load_builtin
from strandline.detect.rules.rule import parse_regex
from tests.detect.expressions.trees import spans_by_re, texts, trees
from tests.effort import examples

BYTES = 16_384


@pytest.mark.parametrize(
    "regex",
    [
        "(a+)+b",
        "(a*)*b",
        "(a|a)*b",
        "(a|ab)*c",
        "(?:a+b?)+c",
        "(x+x+)+y",
        ".*.*.*x",
        r"\w*\w*\d",
        "(.*)(.*)(.*)=",
        "((a{1,9}){1,9}){1,9}b",
        "(?:[a-z]+)*!",
    ],
)
def test_ambiguous_repeats_are_many_ways(regex: str) -> None:
    assert ways(parse(regex), BYTES) > WAYS_MAX
    assert not Pattern("rule", parse(regex), BYTES).is_quick


@pytest.mark.parametrize(
    "regex",
    [
        "a*b",
        r"(?:\w+\.)+com",
        "(?:ab?)*c",
        "(?:a|b)*c",
        "(?:foo|bar)+!",
        r"(?:[0-9a-f]{2}:)+x",
        r"\s*=\s*\w+",
        r"[\s\S]*?-----END",
        r"(?i)(?:key|token)[ \w.-]{0,24}['\"]{0,3}[ \t]{0,4}(?:=|:)[ \t]{0,4}([\w-]{16,64})(?:[^\w]|$)",
    ],
)
def test_determined_repeats_are_few_ways(regex: str) -> None:
    assert Pattern("rule", parse(regex), BYTES).is_quick


def test_all_of_our_own_rules_are_quick() -> None:
    for rule in load_builtin().rules:
        for regex in filter(None, (rule.regex, rule.path)):
            _, _, node = split_lead(parse_regex(rule.id, regex))
            assert Pattern(rule.id, node, BYTES).is_quick, rule.id


@examples(100)
@given(node=trees(), text=texts(30))
def test_either_matcher_finds_the_same(node: Node, text: bytes) -> None:
    pattern = Pattern("rule", node, 30)
    found = [spans[0] for spans in pattern.finditer(text, 0, len(text), Work(10_000_000))]
    assert found == [spans[0] for spans in spans_by_re(node, text)]
    assert pattern.is_in(text, Work(10_000_000)) is bool(found)


def test_used_up_work_is_no_match() -> None:
    pattern = Pattern("rule", parse("(a+)+b"), BYTES)
    assert pattern.is_in(b"aab", Work(1_000))
    assert not pattern.is_in(b"aab", Work(2))


def test_an_expression_that_is_too_much_for_either_is_refused() -> None:
    with pytest.raises(RegexInvalid, match=r"rule: .* repeats are too many"):
        Pattern("rule", parse("(((a|aa){1,100}){100}){100}b"), BYTES)
