"""An explanation finds what a scan finds, and names the check that dismissed each other match."""

import base64

import pytest

from strandline.detect import Engine, Found, Limits, load_builtin
from strandline.detect.explanation import DISMISSED_MAX, Dismissed
from strandline.pipeline.identity import TenantSecretKey
from tests.detect.fakes import engine_of, rule_examples

KEY = TenantSecretKey(b"k" * 32)


@pytest.fixture(scope="module")
def builtin() -> Engine:
    return Engine(load_builtin(), Limits(), key=KEY)


def test_the_verdict_on_every_example_of_every_rule_is_the_scans(builtin: Engine) -> None:
    named = 0
    for rule in load_builtin().rules:
        for is_example, texts in ((True, rule.examples), (False, rule.counterexamples)):
            for text in rule_examples(rule.id, texts):
                data = text.encode()
                path = rule.example_path or "file.txt"
                explained = builtin.explain(data, path)
                assert explained.result == builtin.scan(data, path)
                ids = {found.rule_id for found in explained.result.findings}
                if is_example and not rule.skip_report:
                    assert rule.id in ids, text
                else:
                    named += rule.id in {one.rule_id for one in explained.dismissed} - ids
                assert not any(text_of(found) in _places(explained.dismissed) for found in explained.result.findings)
    assert named > 20, "counterexamples are matches that a check refused, or no match at all"


def text_of(found: Found) -> tuple[str, int, int, tuple[str, ...]]:
    return found.rule_id, found.line, found.column, found.via


def _places(dismissed: tuple[Dismissed, ...]) -> set[tuple[str, int, int, tuple[str, ...]]]:
    return {(one.rule_id, one.line, one.column, one.via) for one in dismissed}


RULES = """
[[allowlists]]
description = "vendors' own"
paths = ['''^vendor/''']
[[allowlists]]
description = "of tests"
regexes = ['''7{8}''']
[[rules]]
id = "alpha"
regex = '''alpha_([0-9a-f]{8})'''
keywords = ["alpha_", "greek"]
entropy = 1.5
path = '''\\.env$'''
[[rules.allowlists]]
stopwords = ["dead"]
[[rules]]
id = "beta"
regex = '''beta_([0-9a-z]{8})'''
keywords = ["near"]
charset = "hex"
[[rules]]
id = "gamma"
regex = '''gamma_([0-9]{0,8})'''
secretGroup = 1
[[rules.required]]
id = "alpha"
withinLines = 1
[[rules]]
id = "delta"
regex = '''alpha_([0-9a-f]{8})'''
tags = ["provider:delta"]
keywords = ["delta"]
[[rules]]
id = "epsilon"
regex = '''(ghp_[0-9A-Za-z]{36})'''
validator = "github-crc32"
"""


FEW = "too few different characters"


@pytest.mark.parametrize(
    ("text", "path", "check", "reason"),
    [
        ("alpha_11111111", ".env", "entropy", "entropy 0.00; the rule wants more than 1.5 bits"),
        ("alpha_dead1234", ".env", "allow-list", "an allow-list of the rule, by its stopwords"),
        ("alpha_01234567", "a.txt", "path", r"the rule is for paths like \.env$"),
        ("beta_01234567", "x", "keyword", "no keyword (near) within 1,024 bytes of the match"),
        ("near beta_0123456z", "x", "characters", "a character is not of hex"),
        ("near beta_77777777", "x", "allow-list", "a global allow-list (of tests), by its regexes"),
        ("gamma_0123", "x", "required rule", "no match of alpha is near"),
        ("gamma_", "x", "length", "the expression matches, and its secret is empty"),
        ("delta alpha_01234567", ".env", "another rule", "rule delta says more about the same place"),
        (
            *("ghp_" + "0" * 36, "x", "validator"),
            f"github-crc32: the CRC-32 in base 62 is wrong, and the token is a placeholder: {FEW}",
        ),
    ],
)
def test_the_check_that_dismissed_a_match_is_named(text: str, path: str, check: str, reason: str) -> None:
    explained = engine_of(RULES).explain(f"first\n  {text}\n".encode(), path)
    assert (check, reason) in {(one.check, one.reason) for one in explained.dismissed}
    assert {one.line for one in explained.dismissed} == {2}
    assert all(secret not in repr(explained) for secret in ("dead1234", "01234567", "0123456z"))


def test_a_file_that_is_allowed_as_a_whole_is_said_once() -> None:
    (one,) = engine_of(RULES).explain(b"alpha_01234567\n", "vendor/.env").dismissed
    assert (one.line, one.reason) == (0, "a global allow-list allows the whole file")


def test_a_match_inside_an_encoding_is_placed_where_a_finding_would_be() -> None:
    inner = base64.b64encode(b"some text around near beta_0123456z and more of it").decode()
    (one,) = engine_of(RULES).explain(f"a\nb\nx = {inner}\n".encode(), "x").dismissed
    assert (one.line, one.via, one.check) == (3, ("base64",), "characters")


def test_many_dismissed_matches_are_bounded_and_counted() -> None:
    more = 5
    data = b"near beta_0123456z\n" * (DISMISSED_MAX + more)
    explained = engine_of(RULES).explain(data, "x")
    assert (len(explained.dismissed), explained.uncounted) == (DISMISSED_MAX, more)
