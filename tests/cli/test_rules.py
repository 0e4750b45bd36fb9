"""`strandline rules`: rules are listed and shown, and say on a file what a scan would say."""

import json
from pathlib import Path

import pytest

from strandline.detect import load_builtin
from tests.cli.runs import Ran, run_command
from tests.cli.scan_command import RULES, Here

SECRET = "alpha_12345678"  # noqa: S105 - made up


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    made = Here(tmp_path)
    monkeypatch.chdir(made.files)
    return made


def run(here: Here, *arguments: str | Path) -> Ran:
    return run_command("rules", *arguments, "--rules", here.rules)


def test_rules_are_listed_and_narrowed_by_words() -> None:
    lines = [json.loads(line) for line in run_command("rules", "list", "--json").out.splitlines()]
    assert [line["rule"] for line in lines] == [rule.id for rule in load_builtin().rules]
    table = run_command("rules", "list", "github", "fine-grained").out
    assert "github-fine-grained-pat" in table
    assert "gitlab" not in table


def test_a_rule_is_shown_in_full_also_of_a_file(here: Here) -> None:
    shown = json.loads(run_command("rules", "show", "aws-access-key-id", "--json").out)
    rule = load_builtin().by_id["aws-access-key-id"]
    assert (shown["expression"], shown["keywords"]) == (rule.regex, list(rule.keywords))
    assert (shown["validator"], shown["example"]) == (rule.validator, list(rule.examples))
    here.rules.write_text(RULES + 'entropy = 2.5\n[[rules.allowlists]]\ndescription = "known"\nstopwords = ["dead"]\n')
    text = run(here, "show", "beta").out
    for word in ("beta_[0-9]{8}", "another made-up token", "2.5", "known", "dead"):
        assert word in text
    assert "perhaps beta" in run(here, "show", "betta").err


def test_a_file_is_tested_and_no_value_is_shown(here: Here) -> None:
    here.write(one=f"x\nkey = {SECRET}\nbeta_1234567\n")
    ran = run(here, "test", "one", "--json")
    (found,) = map(json.loads, ran.out.splitlines())
    assert (found["rule"], found["line"], found["column"], found["length"]) == ("alpha", 2, 7, len(SECRET))
    table = run(here, "test", "one")
    assert "14 bytes" in table.out
    for said in (ran.out, table.out, table.err):
        assert "12345678" not in said
    assert run(here, "test", "one", "--rule", "beta").code == 1, "nothing was found"
    assert "is a folder" in run(here, "test", str(here.files)).err
    assert "No such file" in run(here, "test", "none").err


@pytest.mark.parametrize(
    ("line", "arguments", "outcome", "said"),
    [
        (f"{SECRET}", [], "found", "confidence"),
        (f"{SECRET} # gitleaks:allow", [], "ignored", "comment: gitleaks:allow"),
        (f"{SECRET} # gitleaks:allow", ["--no-allow-comments"], "found", "confidence"),
        (f"{SECRET}", ["ignored"], "ignored", ".gitleaksignore, line 1"),
        (f"{SECRET}", ["ignored", "--no-ignore"], "found", "confidence"),
        (f"{SECRET}", ["known"], "ignored", "baseline: "),
        ("alpha_1234567x", [], "", "alpha: its keyword 'alpha_' is there, its expression does not match"),
        ("nothing", [], "", "not found: no expression of a rule matches on this line"),
    ],
)
def test_why_names_what_decided_and_agrees_with_the_scan(
    here: Here, line: str, arguments: list[str], outcome: str, said: str
) -> None:
    here.write(one=f"first\n{line}\nlast\n")
    options = [word for word in arguments if word.startswith("--")]
    if "ignored" in arguments:
        (here.files / ".gitleaksignore").write_text("one:alpha:2\n")
    if "known" in arguments:
        here.done("--format", "baseline", "--output", here.folder / "known.json")
        options += ["--baseline", str(here.folder / "known.json")]
    ran = run(here, "why", "one:2", *options)
    assert said in ran.out
    assert "12345678" not in ran.out
    (verdict,) = json.loads(run(here, "why", "one:2", "--json", *options).out)["verdicts"] or [{"outcome": ""}]
    assert verdict["outcome"] == outcome
    places, _ = here.found(*options, paths=(here.files,))
    assert ("one:2:1" in places) == (outcome == "found")


def test_why_needs_a_line_that_is_there(here: Here) -> None:
    here.write(one="a\nb")
    assert "write FILE:LINE" in run(here, "why", "one").err
    assert "one has 2 lines, and no line 3" in run(here, "why", "one:3").err
