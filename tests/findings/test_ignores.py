"""Findings that somebody decided not to see are left out, counted, and listed with the reason."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.engine import Engine
from strandline.detect.results import Found
from strandline.detect.rules.gitleaks import load_builtin
from strandline.detect.tokens.examples import expand
from strandline.errors import InvalidInput
from strandline.findings.baselines import Baseline
from strandline.findings.ignores import (
    Cause,
    FindingLike,
    Fingerprint,
    Ignores,
    Reason,
    format_fingerprint,
    parse_fingerprint,
    parse_ignore_file,
)
from strandline.pipeline.identity import RuleFingerprint, SecretHash, TenantSecretKey
from strandline.scan.path_globs import parse_globs

COMMIT = "1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c"
SECRET = SecretHash(bytes(32))


@dataclass(frozen=True)
class Finding:
    rule_id: str = "github-pat"
    path: str = "src/a.py"
    line: int = 7
    secret: SecretHash = field(default=SECRET)
    comment: str = ""


def test_what_the_engine_finds_can_be_ignored() -> None:
    found: FindingLike = Found("github-pat", RuleFingerprint(b"f"), 0, 9, 7, 1, SECRET, 5, (), "src/a.py")
    assert Ignores(globs=(parse_globs("*.py"),)).cause(found) is not None


@pytest.mark.parametrize(
    ("text", "fingerprint"),
    [
        ("src/a.py:github-pat:7", Fingerprint("src/a.py", "github-pat", 7)),
        (f"{COMMIT}:src/a.py:github-pat:7", Fingerprint("src/a.py", "github-pat", 7, COMMIT)),
        ("a:b:c.txt:rule:1", Fingerprint("a:b:c.txt", "rule", 1)),
        ("abcdef1:x:rule:1", Fingerprint("x", "rule", 1, "abcdef1")),
        ("logs.zip!inner/a.log:rule:12", Fingerprint("logs.zip!inner/a.log", "rule", 12)),
        ("src\\win.py:rule:2", Fingerprint("src/win.py", "rule", 2)),
    ],
)
def test_a_fingerprint_is_read(text: str, fingerprint: Fingerprint) -> None:
    assert parse_fingerprint(text) == fingerprint


@pytest.mark.parametrize("text", ["", "x", "a:b", "a:b:", "a:b:x", ":r:1", "a::1", "a:b:-1", "a:b:٣"])
def test_what_is_no_fingerprint_is_none(text: str) -> None:
    assert parse_fingerprint(text) is None


@given(
    path=st.from_regex(r"[a-z_][a-z0-9_./!-]{0,20}", fullmatch=True).filter(lambda path: not path.startswith("./")),
    rule=st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True),
    line=st.integers(0, 10**6),
    commit=st.sampled_from(["", COMMIT]),
)
def test_a_fingerprint_comes_back(path: str, rule: str, line: int, commit: str) -> None:
    fingerprint = Fingerprint(path, rule, line, commit)
    assert parse_fingerprint(format_fingerprint(fingerprint)) == fingerprint


def test_a_file_has_comments_and_blank_lines_and_names_where_each_entry_stands() -> None:
    text = f"\ufeff# old\n\nsrc/a.py:github-pat:7\n  {COMMIT}:b:r:1  \nsrc/a.py:github-pat:7\n"
    entries = parse_ignore_file(text)
    assert list(entries.values()) == [".gitleaksignore, line 3", ".gitleaksignore, line 4"]


def test_a_line_that_is_no_fingerprint_is_refused_with_its_number() -> None:
    with pytest.raises(InvalidInput, match=r"\.gitleaksignore, line 2: not a fingerprint"):
        parse_ignore_file("# x\nnonsense\n")


def test_a_fingerprint_without_a_commit_is_that_of_every_commit() -> None:
    ignores = Ignores(parse_ignore_file("src/a.py:github-pat:7"))
    for commit in ("", COMMIT):
        assert ignores.cause(Finding(), commit=commit) == Cause(Reason.FINGERPRINT, ".gitleaksignore, line 1")
    for other in (Finding(line=8), Finding(path="src/b.py"), Finding(rule_id="gitlab-pat")):
        assert ignores.cause(other) is None


def test_a_fingerprint_with_a_commit_is_that_of_this_commit_alone() -> None:
    ignores = Ignores(parse_ignore_file(f"{COMMIT}:src/a.py:github-pat:7"))
    assert ignores.cause(Finding(), commit=COMMIT) is not None
    assert ignores.cause(Finding(path="./src/a.py"), commit=COMMIT) is not None
    assert ignores.cause(Finding(), commit="0" * 40) is None
    assert ignores.cause(Finding()) is None


@pytest.mark.parametrize("comment", ["gitleaks:allow", "strandline:allow"])
def test_a_comment_on_the_line_allows_what_stands_there(comment: str) -> None:
    engine = Engine(load_builtin().only(["github-pat"]), key=TenantSecretKey(bytes(32)))
    line = expand("token = '{{github-crc32:ghp_}}'", "x")
    (allowed,) = engine.scan(f"{line}  # {comment}\n".encode(), "a.py").findings
    assert Ignores().cause(allowed) == Cause(Reason.COMMENT, comment)
    (reported,) = engine.scan(f"# {comment}\n{line}  # allow\n".encode(), "a.py").findings
    assert Ignores().cause(reported) is None


def test_a_baseline_and_a_glob_leave_out_with_their_names() -> None:
    baseline = Baseline(frozenset({("src/a.py", SECRET)}), source="old.json")
    assert Ignores(baselines=(baseline,)).cause(Finding(line=99)) == Cause(Reason.BASELINE, "old.json")
    globs = parse_globs("# tests\n*.py\n", "ignore.txt")
    assert Ignores(globs=(globs,)).cause(Finding()) == Cause(Reason.PATH, "ignore.txt, line 2: *.py")
    assert Ignores(globs=(globs,)).leaves_out_file("x/y.py") is not None
    assert Ignores(globs=(globs,)).leaves_out_file("x/y.go") is None


def test_the_first_reason_counts() -> None:
    ignores = Ignores(
        parse_ignore_file("src/a.py:github-pat:7"),
        (Baseline(frozenset({("src/a.py", SECRET)})),),
        (parse_globs("*.py"),),
    )
    finding = Finding()
    reasons = []
    for rest in (ignores, Ignores({}, ignores.baselines, ignores.globs), Ignores({}, (), ignores.globs)):
        cause = rest.cause(finding)
        assert cause is not None
        reasons.append(cause.reason)
    assert reasons == [Reason.FINGERPRINT, Reason.BASELINE, Reason.PATH]
    comment = ignores.cause(Finding(comment="gitleaks:allow"))
    assert comment is not None
    assert comment.reason is Reason.COMMENT


@given(lines=st.lists(st.integers(1, 9), max_size=30), ignored=st.sets(st.integers(1, 9)))
def test_every_finding_is_kept_or_ignored_once_and_counted(lines: list[int], ignored: set[int]) -> None:
    ignores = Ignores({Fingerprint("src/a.py", "github-pat", line): "x" for line in ignored})
    findings = [Finding(line=line, comment="gitleaks:allow" if line == 1 else "") for line in lines]
    outcome = ignores.sort(findings)
    assert sorted([*outcome.kept, *(each for each, _ in outcome.ignored)], key=lambda each: each.line) == sorted(
        findings, key=lambda each: each.line
    )
    assert all(each.line not in ignored | {1} for each in outcome.kept)
    assert sum(outcome.counts.values()) == len(outcome.ignored)
    assert outcome.counts.get(Reason.COMMENT, 0) == lines.count(1)
