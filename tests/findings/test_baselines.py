"""A baseline knows what was seen before, and keeps none of the secrets that a report holds."""

import json
import pickle

import pytest

from strandline.errors import InvalidInput
from strandline.findings.baselines import Baseline, format_baseline, parse_baseline
from strandline.pipeline.identity import TenantSecretKey, norm_hash, secret_hash

KEY = TenantSecretKey(bytes(range(32)))
PLAIN = "kQ93_not_to_be_seen_zX71"
SECRET = secret_hash(KEY, norm_hash(PLAIN.encode()))
OTHER = secret_hash(KEY, norm_hash(b"other"))
REPORT = [
    {
        "RuleID": "generic-api-key",
        "StartLine": 4,
        "File": "src/a.py",
        "Secret": PLAIN,
        "Match": f"key={PLAIN}",
        "Commit": "",
    },
    {"RuleID": "github-pat", "StartLine": 7, "File": "src/b.py", "Secret": "REDACTED", "Match": "REDACTED"},
]


def test_a_report_of_gitleaks_knows_a_secret_at_its_path_whatever_rule_and_line() -> None:
    baseline = parse_baseline(json.dumps(REPORT), KEY)
    assert baseline.knows("another-rule", "src/a.py", 99, SECRET)
    assert baseline.knows("another-rule", "./src/a.py", 99, SECRET)
    assert not baseline.knows("generic-api-key", "src/a.py", 4, OTHER)
    assert not baseline.knows("generic-api-key", "src/c.py", 4, SECRET)


def test_where_the_secret_is_hidden_rule_path_and_line_decide() -> None:
    baseline = parse_baseline(json.dumps(REPORT), KEY)
    assert baseline.knows("github-pat", "src/b.py", 7, OTHER)
    assert not baseline.knows("github-pat", "src/b.py", 8, OTHER)
    assert not baseline.knows("gitlab-pat", "src/b.py", 7, OTHER)


def test_another_tenants_key_knows_no_secret() -> None:
    baseline = parse_baseline(json.dumps(REPORT), TenantSecretKey(bytes(32)))
    assert not baseline.knows("generic-api-key", "src/a.py", 4, SECRET)


def test_our_lines_come_back() -> None:
    text = format_baseline([("r", "a/b.txt", 3, 2), ("r", "c", 1, 1)])
    assert len(text.splitlines()) == 2
    baseline = parse_baseline("\ufeff" + text + "\n\n", KEY)
    assert len(baseline) == 2
    assert baseline.knows("r", "a/b.txt", 9, SECRET, 2), "lines move"
    assert not baseline.knows("r", "a/b.txt", 3, SECRET, 1)
    assert not baseline.knows("other", "a/b.txt", 3, SECRET, 2)


def test_our_older_lines_know_a_secret_by_its_hash() -> None:
    text = json.dumps({"rule_id": "r", "path": "a", "line": 3, "secret": bytes.hex(SECRET)})
    baseline = parse_baseline(text, KEY)
    assert baseline.knows("other", "a", 9, SECRET)
    assert not baseline.knows("r", "a", 3, OTHER)


def test_a_baseline_that_does_not_fit_says_so() -> None:
    baseline = parse_baseline(format_baseline([("r", "a", 1, 1), ("r", "a", 2, 2)]), KEY)
    assert baseline.misfits({("r", "a"): 2}) == baseline.misfits({("r", "a"): 3, ("r", "b"): 1}) == ""
    assert "a has fewer secrets by now" in baseline.misfits({("r", "a"): 1})
    assert "another folder" in baseline.misfits({("r", "b"): 1})


def test_a_baseline_shows_and_keeps_no_secret() -> None:
    baseline = parse_baseline(json.dumps(REPORT), KEY, "report.json")
    assert PLAIN not in repr(baseline)
    assert PLAIN.encode() not in pickle.dumps(baseline)
    assert repr(baseline) == "Baseline(2 entries of report.json)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'[{{"Secret": "{PLAIN}"', "not JSON"),
        (f'{{"secret": "{PLAIN}"', "line 1: not JSON"),
        (f'["{PLAIN}"]', "entry 1: it is not an object"),
        (json.dumps([{"Secret": PLAIN}]), "no path or File"),
        (json.dumps([{"File": "a", "RuleID": "r"}]), "neither a secret nor a line"),
        (json.dumps([{"File": "a", "StartLine": 3}]), "no rule_id or RuleID"),
        (json.dumps({"path": "a", "secret": PLAIN}), "32 bytes in hex"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_cannot_be_read_is_refused_without_showing_it(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        parse_baseline(text, KEY)
    assert PLAIN not in str(caught.value)
    assert caught.value.__context__ is None


def test_an_empty_baseline_knows_nothing() -> None:
    for text in ("", "[]", "\n"):
        assert len(parse_baseline(text, KEY)) == 0
    assert not Baseline().knows("r", "a", 1, SECRET)
