"""What `strandline scan` does without being told: rules, formats, comments, and tables on narrow terminals."""

import json
from pathlib import Path

import pytest

from strandline.cli import findings_list
from tests.cli.runs import run_command
from tests.cli.scan_command import RULES, Repository


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_the_suffix_json_is_gitleaks_report(shop: Repository, tmp_path: Path) -> None:
    shop.commit(one="alpha_12345678\n")
    assert shop.scan("-o", tmp_path / "x.json").code == 1
    (found,) = json.loads((tmp_path / "x.json").read_text())
    assert (found["RuleID"], found["File"], found["Secret"]) == ("alpha", "one", "REDACTED")


def test_the_nearest_gitleaks_toml_has_the_rules(shop: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.commit(one="alpha_12345678\n")
    (shop.folder / ".gitleaks.toml").write_text(RULES)
    (shop.folder / "deep").mkdir()
    monkeypatch.chdir(shop.folder / "deep")
    ran = run_command("scan", "../one", "--without-spark")
    assert ran.code == 1
    assert f"rules: {shop.folder}/.gitleaks.toml (--rules builtin takes the built-in ones)" in ran.err
    assert run_command("scan", "../one", "--without-spark", "--rules", "builtin").code == 0


@pytest.mark.parametrize("is_honoured", [True, False])
def test_comments_of_other_tools_allow_a_finding_and_can_be_switched_off(shop: Repository, is_honoured: bool) -> None:
    shop.commit(
        ours="alpha_00000001 # strandline:allow\n",
        gitleaks="alpha_00000002 # gitleaks:allow\n",
        detect="x\nalpha_00000003 # pragma: allowlist secret\n",
        older="alpha_00000004 # pragma: whitelist secret\n",
        before="# pragma: allowlist nextline secret\nalpha_00000005\nalpha_00000006\n",
        trufflehog="alpha_00000007 // trufflehog:ignore\n",
        kingfisher="alpha_00000008 # kingfisher:ignore\n",
        none="# pragma: allowlist secret\nalpha_00000009\n",
    )
    ran = shop.scan("--json", *([] if is_honoured else ["--no-allow-comments"]))
    *rows, last = map(json.loads, ran.out.splitlines())
    places = sorted(row["location"] for row in rows)
    if is_honoured:
        assert places == ["before:3:1", "none:2:1"]
        assert last["summary"]["allowed_by_comment"] == 7
    else:
        assert len(places) == 9
        assert last["summary"]["allowed_by_comment"] == 0


def test_the_place_comes_first_on_a_narrow_terminal(shop: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.commit(one="alpha_12345678\n")
    shop.scan()
    monkeypatch.setattr(findings_list, "is_terminal", lambda: True)
    for columns, first in {60: "place", 160: "id"}.items():
        monkeypatch.setenv("COLUMNS", str(columns))
        head = run_command("findings", "list", "--state", shop.state).out.splitlines()[1]
        assert head.split()[1] == first


def test_sarif_says_where_a_secret_ends_and_what_to_do(shop: Repository) -> None:
    shop.commit(one="x = alpha_12345678\n")
    (result,) = json.loads(shop.scan("--format", "sarif").out)["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 1, "startColumn": 5, "endColumn": 19}
    assert result["message"]["text"].startswith("A secret of rule alpha in one, line 1 (")
