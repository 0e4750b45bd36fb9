"""`strandline scan --since` and `--staged`: only added lines are judged, and what is around them is read."""

import json
from pathlib import Path

import pytest

from tests.cli.git_shop import KEY, Shop
from tests.cli.runs import run_command

NEARBY = """
[[rules]]
id = "delta"
regex = '''delta_[0-9]{8}'''
keywords = ["delta_"]
[[rules.required]]
id = "epsilon"
withinLines = 3
[[rules]]
id = "epsilon"
regex = '''epsilon_[0-9]{4}'''
keywords = ["epsilon_"]
[[rules]]
id = "block"
regex = '''-----BEGIN BLOCK-----[\\s\\S]{10,200}?-----END BLOCK-----'''
keywords = ["BEGIN BLOCK"]
"""
OLD = "old = beta_00000000\n"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.rules.write_text(shop.rules.read_text() + NEARBY)
    return shop


def judged(shop: Shop, *arguments: str) -> list[tuple[str, str, int]]:
    """Return rule, path and line of what a scan judges."""
    return sorted((row["rule_id"], row["path"], row["line"]) for row in shop.rows(*arguments))


@pytest.mark.parametrize("is_staged", [True, False])
def test_a_secret_on_an_old_line_of_a_changed_file_is_not_judged(shop: Shop, is_staged: bool) -> None:
    shop.commit(app=OLD + "one\ntwo\n", other=OLD)
    shop.write(app=OLD + "one\n" + KEY + "two\n")
    if is_staged:
        shop.git("add", "--all")
        asked: tuple[str, ...] = ("--staged",)
    else:
        shop.commit()
        asked = ("--since", "HEAD~1")
    assert judged(shop, *asked) == [("alpha", "app", 3)]
    assert shop.scan(*asked).code == 1
    assert [row["path"] for row in shop.listed()] == ["app"], "what was not judged is not listed either"
    assert len(shop.rows("--git")) == (2 if is_staged else 3), "the whole history has everything"


def test_without_a_path_the_repository_of_the_working_folder_is_scanned(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.commit(app="one\n")
    shop.write(app="one\n" + KEY)
    shop.git("add", "--all")
    monkeypatch.chdir(shop.folder)
    ran = run_command("scan", "--staged", "--rules", shop.rules, "--state", shop.state, "--json")
    assert ran.code == 1
    assert json.loads(ran.out.splitlines()[0])["path"] == "app"


@pytest.mark.long
def test_a_commit_that_adds_no_secret_passes(shop: Shop) -> None:
    shop.commit(app=OLD)
    shop.commit(app=OLD + "clean\n")
    ran = shop.scan("--since", "HEAD~1")
    assert (ran.code, "exit code" in ran.err) == (0, False)
    shop.write(app=OLD + "clean\nmore\n")
    shop.git("add", "--all")
    assert shop.scan("--staged").code == 0
    assert shop.scan("--git").code == 1


def test_a_key_whose_first_line_is_old_is_found(shop: Shop) -> None:
    begin, end = "-----BEGIN BLOCK-----\n", "-----END BLOCK-----\n"
    shop.commit(app=f"{begin}placeholder\nplaceholder\n{end}tail\n")
    shop.write(app=f"{begin}c2VjcmV0IGJ5dGVz\nplaceholder\n{end}tail\n")
    shop.git("add", "--all")
    assert judged(shop, "--staged") == [("block", "app", 1)]
    shop.write(app=f"{begin}placeholder\nplaceholder\n{end}tail\nmore\n")
    shop.git("add", "--all")
    assert judged(shop, "--staged") == []


def test_a_rule_that_requires_another_reads_the_old_lines_before(shop: Shop) -> None:
    shop.commit(app="id = epsilon_1234\n\n")
    shop.commit(app="id = epsilon_1234\n\nkey = delta_12345678\n")
    assert [rule for rule, _, _ in judged(shop, "--since", "HEAD~1")] == ["delta"]


@pytest.mark.long
def test_a_secret_that_a_later_commit_removes_is_judged(shop: Shop) -> None:
    shop.commit(app="x\n")
    shop.git("tag", "begin")
    shop.commit(app="x\n" + KEY)
    shop.commit(app="x\n")
    assert judged(shop, "--since", "begin") == [("alpha", "app", 2)]


def test_a_rename_adds_nothing_and_a_change_in_it_does(shop: Shop) -> None:
    shop.commit(app=OLD + "line\n" * 20)
    shop.git("mv", "app", "moved")
    assert judged(shop, "--staged") == []
    shop.write(moved=OLD + "line\n" * 20 + KEY)
    shop.git("add", "--all")
    assert judged(shop, "--staged") == [("alpha", "moved", 22)]


@pytest.mark.long
def test_a_merge_adds_what_no_parent_has(shop: Shop) -> None:
    shop.commit(app="middle\n")
    shop.git("checkout", "--quiet", "-b", "side")
    shop.commit(app="side\n", side=OLD)
    shop.git("checkout", "--quiet", "main")
    shop.commit(app="main\n")
    shop.git("merge", "--quiet", "--no-commit", "--strategy", "ours", "side")
    shop.git("checkout", "side", "--", "side")
    shop.commit(app="main\nside\n" + KEY)
    assert judged(shop, "--since", "HEAD^1", "--rule", "alpha") == [("alpha", "app", 3)]
    merged = shop.git("rev-parse", "HEAD")
    shop.git("checkout", "--quiet", "-b", "after", merged)
    assert judged(shop, "--since", "HEAD~1") == [("alpha", "app", 3), ("beta", "side", 1)]


@pytest.mark.long
def test_a_file_that_git_takes_for_binary_is_judged_by_its_lines(shop: Shop) -> None:
    (shop.folder / ".gitattributes").write_text("* binary\n")
    shop.commit(app=OLD + "\0\n")
    shop.write(app=OLD + "\0\n" + KEY)
    shop.git("add", "--all")
    assert judged(shop, "--staged") == [("alpha", "app", 3)]


@pytest.mark.long
def test_configuration_of_the_user_changes_nothing(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "gitconfig"
    diff = "[diff]\nnoprefix = true\ncontext = 9\ninterHunkContext = 9\nrenames = false\nalgorithm = patience\n"
    settings.write_text(diff + "colorMoved = zebra\n[color]\nui = always\n[core]\nquotePath = false\nabbrev = 4\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    shop.commit(app=OLD + "x\n" * 3)
    shop.write(app=OLD + "x\n" * 3 + KEY)
    shop.git("add", "--all")
    assert judged(shop, "--staged") == [("alpha", "app", 5)]
