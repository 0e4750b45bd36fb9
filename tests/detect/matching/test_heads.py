"""The head of an expression: matches are looked for where it stands, and they are those of a look everywhere."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.detect import load_builtin
from strandline.detect.expressions.linear import Work
from strandline.detect.expressions.patterns import Pattern
from strandline.detect.matching.heads import WINDOWS_MIN, Head, head_of
from strandline.detect.matching.matcher import split_lead
from strandline.detect.rules.rule import parse_regex
from strandline.detect.tokens.examples import expand
from tests.effort import examples

WORDS = rb"pass pwd _pwd .pass password passwd key token Token secret api_key API_KEY access-token credentials psk"
PIECES = [*WORDS.split(), *rb""" = : := " ' ( ) { } -> <!>x abcdefgh 0123456789 value prod _1 Xpass aPass""".split()]
PIECES += [b" ", b"\n", b"\0", b"\xff", b"x" * 30, b"= 'Zx81kdLs93kdPq20'", b': "hunter2hunter2",']
WORK = Work(10_000_000)


def built_in() -> Iterator[tuple[str, Pattern, Head]]:
    for rule in load_builtin().rules:
        if rule.regex is not None:
            _, _, tree = split_lead(parse_regex(rule.id, rule.regex))
            pattern, head = Pattern(rule.id, tree, 16_384), head_of(tree)
            if head is not None and pattern.is_quick:
                yield rule.id, pattern, head


HEADED = list(built_in())


def plain(pattern: Pattern, data: bytes, start: int, end: int) -> list[object]:
    return list(pattern.finditer(data, start, end, WORK))


def by_head(pattern: Pattern, head: Head, data: bytes, start: int, end: int) -> list[object]:
    head.windows_left = 0
    starts = head.starts(data, start, end)
    assert starts is not None
    return list(pattern.at_starts(data, starts, end))


def test_the_rules_that_take_most_windows_have_a_head() -> None:
    assert {"generic-api-key", "generic-password"} <= {name for name, _, _ in HEADED}


@pytest.mark.parametrize("name", [name for name, _, _ in HEADED])
def test_matches_at_the_head_are_those_of_a_look_everywhere(name: str) -> None:
    pattern, head = next((pattern, head) for other, pattern, head in HEADED if other == name)
    secrets = [expand(each, name).encode() for each in load_builtin().by_id[name].examples]
    assert any(plain(pattern, secret, 0, len(secret)) for secret in secrets)

    @given(
        st.lists(st.sampled_from([*PIECES, *secrets]), max_size=30).map(b"".join), st.integers(0, 8), st.integers(0, 8)
    )
    @examples(60)
    def check(text: bytes, before: int, after: int) -> None:
        start, end = min(before, len(text)), max(0, len(text) - after)
        assert by_head(pattern, head, text, start, end) == plain(pattern, text, start, end)

    check()
    for secret in secrets:
        assert by_head(pattern, head, secret, 0, len(secret)) == plain(pattern, secret, 0, len(secret))


EDGES = (
    r"(?:\b[.]psk|\Bpw|^word|key\b|[_.]pass(?:word|phrase|code|wort)?|secret_{0,3}(?:one|two|three)|token|salt)[0-9]{2}"
)


@given(st.text("pw_.0129 \nwordkeyassphrcitlneuhok", max_size=60), st.integers(0, 5), st.integers(0, 5))
@example("a.psk12 apw34", 1, 0)
@example("apw12", 1, 0)
@example("secretone12 secret___two34", 0, 0)
@examples(200)
def test_assertions_at_the_edges_of_a_window_see_the_byte_before_it(text: str, before: int, after: int) -> None:
    tree = parse_regex("edges", EDGES)
    pattern, head = Pattern("edges", tree, 16_384), head_of(tree)
    assert head is not None
    data = text.encode()
    start, end = min(before, len(data)), max(0, len(data) - after)
    assert by_head(pattern, head, data, start, end) == plain(pattern, data, start, end)


@pytest.mark.parametrize(
    ("regex", "word"),
    [
        (r"(?i:(?:cloudflare|cf)[a-z]{0,12}key|(?:gitlab|gl)[a-z_]{0,12}token)[0-9]", b"gltoken1"),
        (r"(?i:(?:cloudflare|cf)[a-z]{0,12}key|[ ]?(?:gitlab|gl)[a-z_]{0,12}token)[0-9]", b"gltoken1"),
        (r"(?:cloudflare[a-z]{0,12}|cf|key|pass|token|secret|apikey)[0-9]{0,3}", b"cf"),
    ],
)
def test_a_short_name_is_found_wherever_it_stands(regex: str, word: bytes) -> None:
    tree = parse_regex("short", regex)
    pattern, head = Pattern("short", tree, 16_384), head_of(tree)
    assert head is not None
    for distance in range(100):
        data = b" " * distance + word
        assert by_head(pattern, head, data, 0, len(data)) == plain(pattern, data, 0, len(data)), distance


def test_matches_do_not_overlap() -> None:
    tree = parse_regex("twice", r"(?:password|passphrase|passcode|token|secret)[a-z]{0,40}")
    pattern, head = Pattern("twice", tree, 16_384), head_of(tree)
    assert head is not None
    data = b"passwordtokensecret passcode"
    assert by_head(pattern, head, data, 0, len(data)) == [((0, 19),), ((20, 28),)]


@pytest.mark.parametrize("regex", ["abc", r"(?:a|b)*x", r"[a-z]{0,100}(?:key|token)", r"(?:key.*|token)=1"])
def test_an_expression_whose_beginning_is_no_narrow_choice_of_words_has_none(regex: str) -> None:
    assert head_of(parse_regex("none", regex)) is None


def test_work_is_linear_in_a_window_full_of_heads() -> None:
    _, pattern, head = next(one for one in HEADED if one[0] == "generic-password")

    def seconds(size: int) -> float:
        data = b"_pass_pwd" * size
        begin = time.process_time()
        assert not by_head(pattern, head, data, 0, len(data))
        return time.process_time() - begin

    seconds(10)
    assert seconds(8_000) < 20 * max(seconds(1_000), 0.001)


def test_the_first_windows_of_a_rule_are_looked_at_without_its_head() -> None:
    head = head_of(parse_regex("few", r"(?:password|passphrase|passcode|token|secret)[a-z]{0,40}"))
    assert head is not None
    looks = [head.starts(b"a token", 0, 7) for _ in range(WINDOWS_MIN + 1)]
    assert looks[:-1] == [None] * WINDOWS_MIN
    assert looks[-1] is not None
    assert list(looks[-1]) == [2]
