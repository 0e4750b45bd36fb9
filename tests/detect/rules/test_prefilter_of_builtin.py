"""The prefilter of the built-in rules against `re`: what an expression matches lies in a window, wherever it stands.

The texts are made from the expressions themselves. Hyperscan has missed matches that stand behind the first vector of a
text (16 bytes), so that each text stands at several distances from the beginning.
"""

import random
import re
from functools import cache

import pytest

from strandline.detect import Limits, load_builtin
from strandline.detect.expressions.nodes import Alt, At, Chars, Group, Node, Repeat, Seq, members, to_python
from strandline.detect.matching.prefilter import Prefilter, keyword_forms
from strandline.detect.rules.rule import Rule, parse_regex

LIMITS = Limits()
RULES = load_builtin().rules
SEARCHED = [number for number, rule in enumerate(RULES) if rule.regex and not rule.is_for_named_files]
DISTANCES = (0, 1, 14, 15, 16, 17, 31, 33, 64, 200)
REPEATS_MAX = 300


@cache
def prefilter() -> Prefilter:
    return Prefilter(RULES, LIMITS)


def text_of(node: Node, chosen: random.Random) -> bytes:
    """Return a text that an expression matches, if its assertions hold."""
    match node:
        case Chars(mask=mask):
            shown = [byte for byte in members(mask) if 0x20 <= byte < 0x7F] or list(members(mask))
            return bytes([chosen.choice(shown)])
        case Seq(items=items):
            return b"".join(text_of(item, chosen) for item in items)
        case Alt(options=options):
            return text_of(chosen.choice(options), chosen)
        case Group(item=item):
            return text_of(item, chosen)
        case Repeat(item=item, low=low, high=high):
            most = max(low, min(low + 12 if high is None else high, REPEATS_MAX))
            times = chosen.choice((low, chosen.randint(low, most)))
            return b"".join(text_of(item, chosen) for _ in range(times))
        case At():
            return b""


def missed(number: int, rounds: int) -> list[tuple[int, bytes]]:
    """Return the distances and the texts whose match is in no window of the rule."""
    rule: Rule = RULES[number]
    tree = parse_regex(rule.id, rule.regex or "")
    pattern = re.compile(to_python(tree))
    chosen = random.Random(number)
    lost = []
    for _ in range(rounds):
        text = text_of(tree, chosen)
        keyword = b" " + rule.keywords[0].encode() if rule.keywords else b""
        for distance in DISTANCES:
            data = b"\n" * distance + text + b"\n" + keyword
            found = pattern.search(data)
            if found is None or found.end() - found.start() > LIMITS.match_bytes_max:
                continue
            windows = [each for each in prefilter().sweep(data).windows() if each.rule == number]
            if not any(each.start <= found.start() and found.end() <= each.end for each in windows):
                lost.append((distance, text))
    return lost


def test_what_an_expression_matches_is_in_a_window_wherever_it_stands() -> None:
    lost = {RULES[number].id: missed(number, rounds=6) for number in SEARCHED}
    assert {rule: places[:3] for rule, places in lost.items() if places} == {}


def missed_by_keywords(number: int) -> list[bytes]:
    """Return the texts whose match, with a keyword near it, is in no window of the rule."""
    rule, chosen = RULES[number], random.Random(number)
    tree = parse_regex(rule.id, rule.regex or "")
    pattern, lost = re.compile(to_python(tree)), []
    for _ in range(10):
        text, word = text_of(tree, chosen), chosen.choice(keyword_forms(rule.keywords)).encode()
        for distance in (1, LIMITS.keyword_radius - len(word)):
            before, behind, far = word + b"\n" * distance, b"\n" * distance + word, b"\n" * 5_000
            for data in (before + text, far + before + text + far, text + behind, far + text + behind):
                found = pattern.search(data)
                if found is None or found[0].strip() not in text or len(found[0]) > LIMITS.match_bytes_max:
                    continue
                windows = [each for each in prefilter().sweep(data).windows() if each.rule == number]
                if not any(each.start <= found.start() and found.end() <= each.end for each in windows):
                    lost.append(data.strip())
    return lost


def test_a_rule_of_keywords_is_looked_for_wherever_one_of_them_is_near() -> None:
    """A keyword counts before and behind a match, up to `keyword_radius` bytes from it."""
    worded = prefilter().layout.worded
    assert len(worded) > 10
    lost = {RULES[number].id: missed_by_keywords(number) for number in sorted(worded)}
    assert {rule: texts[:3] for rule, texts in lost.items() if texts} == {}


@pytest.mark.parametrize(
    ("rule_id", "text"),
    [
        ("cloudflare-global-key", b"cfkey = 36e414b3d3312096439ae30a2b5f30f2e0203"),
        ("facebook-app-secret", b"fbsecret = eb2d109f9ca0540e8fa9da84899d1db2"),
        ("backblaze-application-key", b"b2key = K0077wleeiuZ3t2LKG8BsDddRggSokh"),
    ],
)
def test_a_short_name_of_a_provider_is_found_far_from_the_beginning(rule_id: str, text: bytes) -> None:
    number = next(number for number in SEARCHED if RULES[number].id == rule_id)
    for distance in range(100):
        windows = [each.rule for each in prefilter().sweep(b"\n" * distance + text + b"\n").windows()]
        assert number in windows, distance
