"""Rules files of gitleaks are read in full, and what is wrong in them is named."""

import contextlib
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.errors import RegexInvalid, RulesInvalid
from strandline.detect.rules.gitleaks import load_builtin, load_rules, parse_rules
from strandline.detect.rules.gitleaks_format import format_set
from strandline.detect.rules.rule import Allowlist, Required, Rule, RuleSet
from tests.detect.fakes import engine_of, spans
from tests.effort import examples

FULL = r"""
title = "rules of a team"
description = "all that a file can say"
minVersion = "v8.25.0"

[extend]
useDefault = false

[[rules]]
id = "team-token"
description = "A token of the team"
regex = '''(?i)\bteam_(?P<secret>[[:alnum:]]{8,12})(?:['"\s]|$)'''
secretGroup = 1
entropy = 2
path = '''\.(?:py|env)$'''
keywords = ["TEAM_"]
tags = ["team", "token"]
skipReport = false

    [[rules.allowlists]]
    description = "made up"
    condition = "AND"
    commits = ["ABCDEF"]
    paths = ['''tests/''']
    regexTarget = "match"
    regexes = ['''made\.up''', "x"]
    stopwords = ["Sample"]

    [[rules.required]]
    id = "team-user"
    withinLines = 3
    withinColumns = 40

[[rules]]
id = "team-user"
regex = "user=[a-z]+"
skipReport = true
[rules.allowlist]
stopwords = ["nobody"]

[[allowlists]]
paths = ["^vendor/"]

[[allowlists]]
targetRules = ["team-user"]
regexTarget = "line"
regexes = ["^#"]
"""


def test_everything_that_a_file_can_say_is_read() -> None:
    rules = parse_rules(FULL)
    assert rules.rules == (
        Rule(
            id="team-token",
            regex=r"""(?i)\bteam_(?P<secret>[[:alnum:]]{8,12})(?:['"\s]|$)""",
            description="A token of the team",
            secret_group=1,
            entropy=2.0,
            path=r"\.(?:py|env)$",
            keywords=("team_",),
            tags=("team", "token"),
            allowlists=(
                Allowlist("made up", True, ("abcdef",), ("tests/",), (r"made\.up", "x"), "match", ("sample",)),
            ),
            required=(Required("team-user", 3, 40),),
        ),
        Rule(
            id="team-user",
            regex="user=[a-z]+",
            skip_report=True,
            allowlists=(Allowlist(stopwords=("nobody",)), Allowlist(regexes=("^#",), regex_target="line")),
        ),
    )
    assert rules.allowlists == (Allowlist(paths=("^vendor/",)),)


def test_what_was_read_is_written_and_read_again() -> None:
    rules = parse_rules(FULL)
    assert parse_rules(format_set(rules)) == rules
    assert parse_rules(format_set(load_builtin())) == load_builtin()


@examples(100)
@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4),
    entropy=st.floats(0, 8),
    flag=st.booleans(),
)
def test_any_set_is_written_and_read_again(words: list[str], entropy: float, flag: bool) -> None:
    lowered = tuple(word.lower() for word in words)
    rule = Rule(
        id=words[0],
        regex="(a)b",
        description="".join(words),
        secret_group=1,
        entropy=entropy,
        keywords=lowered,
        tags=tuple(words),
        allowlists=(Allowlist(all_of=flag, stopwords=lowered, commits=lowered),),
        skip_report=flag,
        examples=tuple(words),
    )
    rules = RuleSet((rule,))
    again = parse_rules(format_set(rules))
    assert again.rules[0].examples == rule.examples
    assert again == rules or any(word.lower().lower() != word.lower() for word in words)


def test_what_is_not_toml_is_refused_with_a_hint() -> None:
    with pytest.raises(RulesInvalid, match="not TOML") as refused:
        parse_rules('[[rules]]\nid = "a"\nregex = "\\d"\n')
    assert "three quotes" in (refused.value.hint or "")


def test_keys_are_compared_without_case() -> None:
    rules = parse_rules('[[Rules]]\nID = "a"\nRegex = "b"\n[Rules.AllowList]\nStopWords = ["c"]\n')
    assert rules.rules == (Rule("a", "b", allowlists=(Allowlist(stopwords=("c",)),)),)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("rules = 3", "rules is not an array of tables"),
        ("[[rules", "not TOML"),
        ("[[ruless]]\nid = 'a'", "unknown key ruless"),
        ("[[rules]]\nregex = 'a'", "a rule has no id"),
        ("[[rules]]\nid = 'a'", "neither regex nor path"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\nregexx = 'c'", "rule 'a': unknown key regexx"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\n[[rules.allowlists]]\nwords = []", "unknown key allowlists.words"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\n[[rules.allowlists]]\npaths = []", "none of commits"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\n[[rules.allowlists]]\npaths = ['(']", "parenthesis"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\n[[rules.required]]\nid = 'a'", "requires 'a'"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\n[[rules.required]]\nid = 'z'", "requires 'z'"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\n[[rules.required]]\nwithinLines = 1", "required.id"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\n[[rules.required]]\nid = 'z'\nwithinLines = -1", "0 or more"),
        ("[[rules]]\nid = 'a'\nregex = 3", "regex is not a text"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\nentropy = true", "entropy is not a number"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\nskipReport = 1", "skipReport is not true or false"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\nsecretgroup = 1.5", "secretGroup is not a whole number"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\nentropy = 9", "entropy"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\nsecretGroup = 1", "secretGroup 1"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\nkeywords = 'c'", "keywords is not a list"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\nkeywords = ['']", "keyword is empty"),
        ("[[rules]]\nid = 'a'\nregex = 'b'\n[[rules]]\nid = 'a'\nregex = 'c'", "'a' is there twice"),
        ("[[allowlists]]\npaths = ['a']\ntargetRules = ['z']", "targetRules names 'z'"),
        ("[allowlist]\npaths = ['a']\n[[allowlists]]\npaths = ['b']", "exclude each other"),
        ("[[allowlists]]\npaths = ['a']\ncondition = 'XOR'", "OR or AND"),
        ("[[allowlists]]\npaths = ['a']\nregexTarget = 'file'", "secret, match or line"),
        ("[extend]\nuseDefault = true\npath = 'x'", "exclude each other"),
        ("[extend]\nurl = 'https://x'", "extend.url"),
        ("extend = 3", "not a table"),
        ("[extend]\npath = 'missing.toml'", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(toml: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RulesInvalid, match=message.replace("[", r"\[")):
        parse_rules(toml, "file.toml", tmp_path)


@pytest.mark.parametrize("rest", ["", "regex = 'a('", "regex = 'a'\nsecretGroup = 1", "regex = 'a'\nentropy = 9"])
def test_what_is_wrong_with_a_rule_names_its_file(rest: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"[[rules]]\nid = 'bad'\n{rest}\n")
    with pytest.raises(RulesInvalid) as caught:
        load_rules(path)
    assert str(caught.value).startswith(f"{path}: rule 'bad'")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301


def test_an_unknown_key_is_told_with_the_nearest_that_is_known() -> None:
    with pytest.raises(RulesInvalid) as caught:
        parse_rules("[[rules]]\nid = 'a'\nsecretGroups = 1")
    assert (caught.value.hint or "").startswith("perhaps secretGroup; known keys: id, description, regex, secretGroup")


@pytest.mark.parametrize("regex", ["(?=a)b", r"(a)\1", "a++", r"\pL", "(", "[z-a]", r"a\Z"])
def test_an_expression_that_go_would_not_take_is_refused_with_its_rule(regex: str) -> None:
    with pytest.raises(RegexInvalid, match="rule 'bad'") as caught:
        parse_rules(f"[[rules]]\nid = 'bad'\nregex = '''{regex}'''")
    assert caught.value.position is not None


def test_a_file_extends_another(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        "[[rules]]\nid = 'a'\nregex = 'one=(\\w+)'\nkeywords = ['x']\nentropy = 1.0\ntags = ['t']\n"
        "[[rules]]\nid = 'b'\nregex = 'two'\n[[rules]]\nid = 'c'\nregex = 'three'\n[[allowlists]]\npaths = ['p']\n"
    )
    top = tmp_path / "top.toml"
    top.write_text(
        "[extend]\npath = 'base.toml'\ndisabledRules = ['b']\n"
        "[[rules]]\nid = 'a'\nentropy = 2.0\nkeywords = ['y']\n[rules.allowlist]\nstopwords = ['s']\n"
        "[[allowlists]]\npaths = ['q']\n[[allowlists]]\npaths = ['r']\ntargetRules = ['c']\n"
    )
    rules = load_rules(top)
    allowed = (Allowlist(stopwords=("s",)),)
    assert rules.by_id["a"] == Rule(
        "a", r"one=(\w+)", entropy=2.0, keywords=("x", "y"), tags=("t",), allowlists=allowed
    )
    assert rules.by_id.keys() == {"a", "c"}
    assert rules.by_id["c"].allowlists == (Allowlist(paths=("r",)),)
    assert rules.allowlists == (Allowlist(paths=("q",)), Allowlist(paths=("p",)))


def test_our_own_rules_are_the_default_that_is_extended() -> None:
    builtin = load_builtin()
    one = builtin.rules[0].id
    rules = parse_rules(
        f"[extend]\nuseDefault = true\ndisabledRules = ['{one}']\n[[rules]]\nid = 'mine'\nregex = 'm=(\\w+)'"
    )
    assert rules.by_id.keys() == builtin.by_id.keys() - {one} | {"mine"}


def test_files_that_extend_each_other_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[extend]\npath = 'b.toml'\n")
    (tmp_path / "b.toml").write_text("[extend]\npath = 'a.toml'\n")
    with pytest.raises(RulesInvalid, match="extend each other"):
        load_rules(tmp_path / "a.toml")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\0"])
def test_a_file_that_is_no_text_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(RulesInvalid):
        load_rules(tmp_path / "a.toml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, Path("a\0b")):
        with pytest.raises(RulesInvalid):
            load_rules(path)


@examples(100)
@given(
    lines=st.lists(
        st.sampled_from([*FULL.splitlines(), "[extend]", "rules = {}", "regex = '('", "x = 1", "id = 5", "[[", "'''"]),
        max_size=25,
    )
)
def test_any_lines_are_rules_or_refused(lines: list[str]) -> None:
    with contextlib.suppress(RulesInvalid):
        parse_rules("\n".join(lines))


@examples(100)
@given(text=st.text(max_size=200))
def test_any_text_is_rules_or_refused(text: str) -> None:
    with contextlib.suppress(RulesInvalid):
        parse_rules(text)


def test_rules_of_a_file_find_what_they_describe() -> None:
    scan = engine_of(FULL).scan
    text = b"user=me\nkey = 'team_Ab12Cd34Ef'\n"
    assert spans(scan(text, "a.py")) == [("team-token", 20, 30)]
    assert not scan(text, "a.txt").findings
    assert not scan(text, "vendor/a.py").findings
    assert not scan(b"# user=me\nkey = 'team_Ab12Cd34Ef'\n", "a.py").findings
    assert not scan(text.replace(b"me", b"nobody"), "a.py").findings


def test_a_set_is_narrowed_with_what_its_rules_require() -> None:
    rules = parse_rules(FULL)
    assert rules.only(["team-token"]) == rules
    assert [rule.id for rule in rules.only(["team-user"]).rules] == ["team-user"]
    with pytest.raises(RulesInvalid, match="no such rule"):
        rules.only(["nobody"])
