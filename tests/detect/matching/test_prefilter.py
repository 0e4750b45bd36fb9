"""The prefilter loses no match: what is confirmed in its windows is what `re` finds in the whole text."""

import re
from collections import defaultdict
from itertools import combinations, pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from strandline.detect.expressions.nodes import Node, to_hyperscan, to_python, width
from strandline.detect.expressions.syntax import parse
from strandline.detect.limits import Limits
from strandline.detect.matching import prefilter
from strandline.detect.matching.prefilter import (
    PERCENT,
    RUN,
    Prefilter,
    loosened,
    plan,
    stripped,
    trimmed_head,
    trimmed_tail,
)
from strandline.detect.matching.saved_engine import Layout, SavedEngine
from strandline.detect.rules.rule import Rule
from tests.detect.expressions.trees import spans_by_re, texts, trees
from tests.effort import examples

LIMITS = Limits()


def windows_of(rules: list[Rule], data: bytes) -> dict[int, list[tuple[int, int]]]:
    found = defaultdict(list)
    for rule, start, end in Prefilter(rules, LIMITS).sweep(data).windows():
        found[rule].append((start, end))
    return found


@examples(100)
@given(node=trees(), text=texts(300), chunk=st.sampled_from([4, 16, 64, 1 << 20]))
@example(node=parse("a{0,3}b"), text=b"  aaab aab", chunk=1 << 20)
@example(node=parse("ab1-{2}a"), text=b"   ab1--a  ab1--a", chunk=8)
@example(node=parse("ab(?:-|$)"), text=b"ab1 ab- ab", chunk=4)
@example(node=parse("ab?1{0,4}"), text=b"a1111 ab1111 a", chunk=4)
def test_every_match_lies_in_a_window_and_is_found_there(node: Node, text: bytes, chunk: int) -> None:
    rule = Rule("r", "unused")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefilter, "CHUNK_BYTES", chunk)
        patch.setattr(prefilter, "_tree", lambda _: stripped(node))
        windows = windows_of([rule], text)[0]
    assert all(before[1] < after[0] for before, after in pairwise(windows))
    pattern, found = re.compile(to_python(node)), []
    for start, end in windows:
        found += [match.regs for match in pattern.finditer(text, start, min(len(text), end + 1))]
    assert found == spans_by_re(node, text)


@pytest.mark.parametrize(
    ("regex", "word"),
    [
        (r"(?:cloudflare|cf)[a-z]{0,12}key[0-9]", b"cfkey1"),
        (r"(?:(?:cloudflare|cf)[a-z]{0,12}key|(?:gitlab|gl)[a-z_]{0,12}token)[0-9]", b"gltoken1"),
        (r"(?:(?:cloudflare|cf)[a-z]{0,12}key|[ ]?(?:gitlab|gl)[a-z_]{0,12}token)[0-9]", b"gltoken1"),
        (r"(?:(?:cloudflare|cf)[a-z]{0,12}key|(?:gitlab|gl)[a-z_]{0,12}token)+[0-9]", b"gltoken1"),
    ],
)
def test_a_short_name_before_a_gap_is_found_wherever_it_stands(regex: str, word: bytes) -> None:
    swept = Prefilter([Rule("r", regex)], LIMITS)
    for distance in range(100):
        data = b" " * distance + word
        assert any(end == len(data) for _, _, end in swept.sweep(data).windows()), distance


@examples(100)
@given(node=trees(), text=texts(40))
def test_what_is_left_of_a_trimmed_expression_is_in_every_match(node: Node, text: bytes) -> None:
    core = trimmed_head(trimmed_tail(stripped(node)))
    assume(width(core)[0])
    for spans in spans_by_re(node, text):
        start, end = spans[0]
        parts = combinations(range(start, end + 1), 2)
        assert any(re.compile(to_python(core)).fullmatch(text, first, last) for first, last in parts)


@given(node=trees(), text=texts(40))
@examples(100)
def test_a_loosened_expression_matches_all_that_it_did(node: Node, text: bytes) -> None:
    loose = re.compile(to_python(loosened(stripped(node))), re.DOTALL)
    for spans in spans_by_re(node, text):
        start, end = spans[0]
        assert any(loose.match(text, start, stop) for stop in (end, len(text)))


def test_runs_in_optional_parts_lose_their_upper_bound() -> None:
    assert to_hyperscan(loosened(parse("a{1,3}(?:b{1,3}c{2}|d{0,4})?e"))) == b"a{1,3}(?:b+c{2}|d*)?e"


def test_the_tail_and_the_head_are_trimmed_and_a_wide_gap_is_cut() -> None:
    core = trimmed_head(trimmed_tail(stripped(parse(r"[\w.-]{0,50}?key=([a-z]{8,40})(?:;|$)"))))
    assert to_hyperscan(core) == b"key=[a-z]{8}"
    rule = Rule("pem", r"-----BEGIN KEY-----[\s\S]{64,}?-----END KEY-----")
    probe = plan(rule, 0, stripped(parse(rule.regex or "")), LIMITS)
    assert probe is not None
    assert probe.expression == b"\\x2d\\x2d\\x2d\\x2d\\x2dBEGIN\\x20KEY\\x2d\\x2d\\x2d\\x2d\\x2d"
    assert probe.before == 19
    assert probe.after == LIMITS.match_bytes_max - 19


def test_a_rule_without_a_literal_is_looked_for_around_its_keywords() -> None:
    rules = [Rule("weak", r"\b[0-9a-f]{32}\b", keywords=("mailchimp",))]
    secret = b"0123456789abcdef" * 2
    assert not windows_of(rules, b"x = " + secret)
    near = windows_of(rules, b"MailChimp: " + secret)
    assert near[0][0][0] == 0
    assert not windows_of(rules, b"mailchimp: nothing like it")


@pytest.mark.parametrize(
    ("regex", "keywords", "is_worded"),
    [
        (r"(?:cohere|co)[\w.-]{0,40}api[\w.-]{0,20}[0-9a-f]{40}", ("cohere",), True),
        (r"(?:cohere|co)[\w.-]{0,40}api[\w.-]{0,20}[0-9a-f]{40}", ("cohere", "co_"), False),
        (r"(?:cohere|co)[\w.-]{0,40}api[\w.-]{0,900}[0-9a-f]{40}", ("cohere",), False),
        (r"cohere[\w.-]{0,40}api[\w.-]{0,20}[0-9a-f]{40}", ("cohere",), False),
        (r"(?:cohere|co)[\w.-]{0,40}api[\w.-]{0,20}[0-9a-f]{40}", (), False),
    ],
)
def test_a_rule_of_short_literals_is_looked_for_by_keywords_that_are_twice_as_long(
    regex: str, keywords: tuple[str, ...], is_worded: bool
) -> None:
    rules = [Rule("cohere", regex, keywords=keywords)]
    assert Prefilter(rules, LIMITS).layout.worded == ({0} if is_worded else set())
    text = b"# api\nco_api_key = nothing\ncohere_api_" + b"0123456789" * 4
    assert windows_of(rules, text)[0][0][0] == 0


@pytest.mark.parametrize("huge", ["(?:a[bc]{1,900}d[ef]{1,900}g){50,900}token", r"\b\Btoken[a-z]{4}"])
def test_a_rule_that_is_too_much_falls_back_and_says_so(huge: str) -> None:
    with_word = Prefilter([Rule("worded", huge, keywords=("token",))], LIMITS)
    assert with_word.layout.notes == (
        "rule 'worded': its expression is too large for the prefilter, so it is matched around its keywords",
    )
    without = Prefilter([Rule("bare", huge), Rule("fine", "tok_[a-z]{8}")], LIMITS)
    assert without.layout.notes == (
        "rule 'bare': its expression is too large for the prefilter, so it is matched everywhere, which is slow",
    )
    text = b"... tok_abcdefgh ..."
    assert {rule for rule, _, _ in without.sweep(text).windows()} == {0, 1}


def test_what_a_rule_costs_is_noted() -> None:
    rules = [Rule("weak", "[a-z]{40}"), Rule("empty", "(foo)?"), Rule("fine", "tok_[a-z]{8}")]
    assert Prefilter(rules, LIMITS).layout.notes == (
        "rule 'weak': its expression has no selective literal, which slows every scan",
        "rule 'empty': its expression can match nothing, so it is matched everywhere, which is slow",
    )


@pytest.mark.parametrize(
    ("regex", "is_cut"), [(r"password\s*=\s*(\w+)", False), (r"password.*=(\w+)", True), (r"key.*=(\w+)", False)]
)
def test_a_gap_of_anything_behind_a_telling_literal_is_cut(regex: str, is_cut: bool) -> None:
    probe = plan(Rule("r", regex), 0, stripped(parse(regex)), LIMITS)
    assert probe is not None
    assert (b"=" not in probe.expression) is is_cut


def test_a_saved_database_is_as_good_as_a_compiled_one() -> None:
    rules = [Rule("a", "tok_[a-z]{8}"), Rule("weak", "[0-9a-f]{32}", keywords=("mail",))]
    first = Prefilter(rules, LIMITS)
    second = Prefilter(rules, LIMITS, SavedEngine(b"", first.dumped(), first.layout, ()))
    text = b"tok_abcdefgh mail " + b"0123456789abcdef" * 2
    assert list(first.sweep(text).windows()) == list(second.sweep(text).windows()) != []


def test_the_check_of_a_keyword_window_is_loaded_and_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [Rule("weak", "[0-9a-f]{32}", keywords=("mail",))]
    first = Prefilter(rules, LIMITS)
    checks = first.dumped_checks()
    second = Prefilter(rules, LIMITS, SavedEngine(b"", first.dumped(), first.layout, (), checks=checks))
    strange = Prefilter(rules, LIMITS, SavedEngine(b"", first.dumped(), first.layout, (), checks=((0, b"no" * 99),)))
    texts = [b"mail " + b"0123456789abcdef" * 2, b"mail 0123456789abcdef"]
    expected = [list(first.sweep(text).windows()) for text in texts]
    assert [len(windows) for windows in expected] == [1, 0]
    assert [list(strange.sweep(text).windows()) for text in texts] == expected

    def compiles(_: object) -> None:
        raise AssertionError("a check was compiled")

    monkeypatch.setattr(prefilter, "_check", compiles)
    assert [list(second.sweep(text).windows()) for text in texts] == expected


def test_a_rule_that_hyperscan_refuses_has_no_check_after_loading_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefilter, "_check", lambda _: None)
    rules = [Rule("weak", "[0-9a-f]{32}", keywords=("mail",))]
    first = Prefilter(rules, LIMITS)
    saved = SavedEngine(b"", first.dumped(), first.layout, (), checks=((0, b""),))
    assert first.dumped_checks() == saved.checks
    monkeypatch.undo()
    assert len(list(Prefilter(rules, LIMITS, saved).sweep(b"mail 0123").windows())) == 1


def test_a_database_of_another_machine_is_compiled_anew() -> None:
    rules = [Rule("a", "tok_[a-z]{8}")]
    first = Prefilter(rules, LIMITS)
    second = Prefilter(rules, LIMITS, SavedEngine(b"", b"not a database" * 10, Layout((), (), frozenset(), ()), ()))
    assert second.layout == first.layout
    assert list(second.sweep(b"tok_abcdefgh").windows())


@pytest.mark.parametrize(
    ("text", "marks"),
    [(b"plain text", {}), (b"A" * 31, {}), (b"x " + b"aB3_" * 8, {RUN: 34}), (b"a%2Fb", {PERCENT: 4}), (b"%zz", {})],
)
def test_marks_say_which_views_to_look_for(text: bytes, marks: dict[int, int]) -> None:
    sweep = Prefilter([Rule("a", "tok_[a-z]{8}")], LIMITS).sweep(text)
    assert not list(sweep.windows())
    assert sweep.marks == marks
