"""`strandline scan` of repositories: one finding for a secret at a path, whatever happens to the file."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from strandline.detect import Engine, ItemResult
from strandline.pipeline.identity import connector_instance_id
from tests.cli.git_shop import KEY, Shop
from tests.cli.runs import run_command
from tests.cli.scanned import FakeSource, hit, scan


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_key_in_a_file_that_changes_is_one_finding_with_its_commits(shop: Shop) -> None:
    first = shop.commit(app=KEY)
    for number in range(4):
        last = shop.commit(app="above\n" * number + KEY + "below\n", author="Grace")
    shop.commit(app="clean\n")
    (row,) = shop.rows("--git")
    commits = row["commits"]
    assert (commits["first"]["commit"], commits["last"]["commit"]) == (first, last)
    assert (commits["first"]["author"], commits["first"]["email"]) == ("Ada", "ada@example.org")
    assert commits["last"]["author"] == "Grace"
    assert commits["first"]["date"].startswith("2023-11-1")
    assert (commits["at_head"], commits["versions"]) == (False, 5)
    assert row["line"] == 4, "the newest of the places is shown"
    assert [place["line"] for place in row["other_places"]] == [3, 2, 1]


def test_the_next_commit_opens_nothing_after_triage(shop: Shop) -> None:
    shop.commit(app=KEY)
    (row,) = shop.rows("--git")
    assert row["commits"]["at_head"]
    decided = run_command(
        "findings", "triage", row["finding_id"], "--as", "false-positive", "--reason", "a test", "--state", shop.state
    )
    assert decided.code == 0, decided.err
    shop.commit(app=KEY + "more\n")
    for view in (("--git",), (), ("--since", "HEAD~1")):
        ran = shop.scan(*view)
        assert (ran.code, ran.err) == (0, ran.err)
    assert [one["finding_id"] for one in shop.listed()] == [row["finding_id"]]


@pytest.mark.parametrize("views", [("--git", ""), ("", "--git")])
def test_a_tree_and_its_history_are_one_source(shop: Shop, views: tuple[str, str]) -> None:
    shop.commit(app=KEY, same="beta_12345678\n")
    shop.write(app="new first line\n" + KEY, untracked="alpha_87654321\n")
    first, second = (shop.rows(*filter(None, [view])) for view in views)
    both = {row["path"]: row["finding_id"] for row in (*first, *second)}
    assert len({row["finding_id"] for row in (*first, *second)}) == len(both) == 3
    listed = {row["path"]: row for row in shop.listed()}
    assert {path: row["finding_id"] for path, row in listed.items()} == both
    assert listed["same"]["commits"]["at_head"]
    assert "commits" not in listed["untracked"]


def test_an_unchanged_tracked_file_is_not_scanned_again_for_the_history(shop: Shop) -> None:
    shop.commit(app=KEY)
    shop.rows()
    ran = shop.scan("--git", "--exit-zero")
    assert "0 scanned now" in ran.err


@pytest.mark.long
def test_an_untracked_file_keeps_its_finding_when_it_is_committed(shop: Shop) -> None:
    shop.commit(readme="x\n")
    shop.write(app=KEY)
    (before,) = shop.rows()
    shop.commit()
    (after,) = shop.rows("--git")
    assert after["finding_id"] == before["finding_id"]


def test_ids_are_the_same_in_every_clone_and_folder(shop: Shop, tmp_path: Path) -> None:
    shop.commit(app=KEY)
    (row,) = shop.rows("--git")
    shop.git("clone", "--quiet", ".", str(tmp_path / "elsewhere"))
    shop.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    for view, path in (("--git", "elsewhere"), ("--git", "bare.git"), ("--exit-zero", "elsewhere")):
        assert [one["finding_id"] for one in shop.rows(view, path=tmp_path / path)] == [row["finding_id"]]
    shop.git("checkout", "--quiet", "--orphan", "pages")
    shop.commit(other="x\n")
    assert {one["finding_id"] for one in shop.rows("--git")} == {row["finding_id"]}


@pytest.mark.long
def test_a_name_identifies_a_repository(shop: Shop, tmp_path: Path) -> None:
    shop.commit(app=KEY)
    (plain,) = shop.rows("--git")
    (named,) = shop.rows("--git", "--source-name", "org/shop")
    other = Shop(tmp_path, "unrelated")
    other.commit("Eve", app=KEY)
    (same,) = other.rows("--git", "--source-name", "org/shop")
    assert named["finding_id"] == same["finding_id"] != plain["finding_id"]


@pytest.mark.long
def test_a_folder_and_a_file_of_a_tree_are_the_same_items(shop: Shop) -> None:
    (shop.folder / "src").mkdir()
    (shop.folder / "src" / "app.py").write_text(KEY)
    shop.commit(top="alpha_00000000\n")
    rows = {row["path"]: row["finding_id"] for row in shop.rows()}
    assert {row["path"]: row["finding_id"] for row in shop.rows(path=shop.folder / "src")} == {
        "src/app.py": rows["src/app.py"]
    }
    (one,) = shop.rows(path=shop.folder / "src" / "app.py")
    assert one["finding_id"] == rows["src/app.py"]
    assert len(shop.listed()) == 2


def test_one_blob_is_scanned_once_for_all_paths_that_the_rules_see_alike(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "alpha_12345678\ngamma_12345678\n"
    (shop.folder / "copies").mkdir()
    for number in range(20):
        (shop.folder / "copies" / f"{number}.txt").write_text(text)
    for number in range(5):
        (shop.folder / f"{number}.env").write_text(text)
    shop.commit()
    scanned: list[str] = []
    engine_scan = Engine.scan

    def counted(self: Engine, data: bytes, path: str = "", commit: str = "", **more: Any) -> ItemResult:  # noqa: ANN401
        scanned.append(path)
        return engine_scan(self, data, path, commit, **more)

    monkeypatch.setattr(Engine, "scan", counted)
    rows = shop.rows("--git")
    assert sorted(path.rpartition(".")[2] for path in scanned) == ["env", "txt"]
    assert len([row for row in rows if row["rule_id"] == "alpha"]) == 25
    assert sorted(row["path"] for row in rows if row["rule_id"] == "gamma") == [f"{number}.env" for number in range(5)]
    assert {row["location"].partition("@")[0] for row in rows} == {row["path"] for row in rows}


def test_each_root_of_a_scan_is_shown(tmp_path: Path) -> None:
    one, two = Shop(tmp_path, "one"), Shop(tmp_path, "two")
    one.commit(app=KEY)
    two.commit("Eve", app=KEY)
    words = ("--rules", one.rules, "--state", one.state, "--without-spark", "--exit-zero")
    for view in ((), ("--git",)):
        ran = run_command("scan", one.folder, two.folder, *words, *view, "--json")
        rows = [json.loads(line) for line in ran.out.splitlines()][:-1]
        assert sorted(row["root"] for row in rows) == [str(one.folder), str(two.folder)]
        assert len({row["finding_id"] for row in rows}) == 2
        table = run_command("scan", one.folder, two.folder, *words, *view).out
        assert sorted(line.split("│")[-2].strip() for line in table.splitlines() if "app" in line) == ["one", "two"]


@pytest.mark.parametrize("form", ["sarif", "html", "csv", "gitleaks", "jsonl"])
def test_every_report_names_author_and_date(shop: Shop, tmp_path: Path, form: str) -> None:
    shop.commit(app=KEY)
    out = tmp_path / "report"
    ran = shop.scan("--git", "--exit-zero", "--format", form, "--output", out)
    assert ran.code == 0, ran.err
    text = out.read_text()
    assert "ada@example.org" in text
    assert "2023-11-1" in text


def test_a_state_from_before_opens_and_the_next_scan_takes_its_place(shop: Shop) -> None:
    """In it each blob is an item, with the first places of the blob beside it; files are items of their folder."""
    commit = shop.commit(app=KEY)
    places = struct.pack("<IB", 1, 20) + bytes.fromhex(commit) + struct.pack("<I", 3) + b"app"
    old = hit("github-pat", "one", "app", source="git", commit=commit)
    git = FakeSource("git", str(shop.folder), {"1a2b": [old]}, extra=places)
    git.instance = connector_instance_id(b"git and the folder")
    scan(shop.state, git, FakeSource("fs", str(shop.folder), {"app": [hit("github-pat", "one", "app")]}))
    before = shop.listed()
    assert sorted(row["location"] for row in before) == ["app:1:7", f"app@{commit[:7]}:1:7"]
    assert not [row for row in before if "commits" in row], "whether HEAD has it is not known"
    shown = run_command("findings", "show", before[0]["finding_id"], "--state", shop.state)
    assert shown.code == 0, shown.err
    (row,) = shop.rows("--git")
    assert {one["rule_id"] for one in shop.listed()} == {"alpha", "github-pat"}, "the tree was not scanned again"
    shop.rows()
    assert [one["finding_id"] for one in shop.listed()] == [row["finding_id"]]
    assert len(shop.listed("--all")) == 3
