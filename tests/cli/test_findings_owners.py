"""Findings by owner: CODEOWNERS of a work tree or of HEAD, in lists, filters and every report."""

import csv
import json
import re
from pathlib import Path

import pytest

from strandline.scan.codeowners import PLACES
from strandline.scan.owner_rules import LINES_MAX, read_codeowners
from strandline.scan.sources import FileSource, GitSource
from tests.cli.git_shop import Shop
from tests.cli.runs import run_command

COMMENT = "never-kept-comment"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    (shop.folder / ".github").mkdir()
    (shop.folder / "web").mkdir()
    text = f"# {COMMENT}\n/web/ @Org/Web-Team @ada # {COMMENT}\n*.sql db@x.org\n"
    (shop.folder / ".github" / "CODEOWNERS").write_text(text)
    (shop.folder / "web" / "app").write_text("alpha_11111111\n")
    shop.commit(**{"dump.sql": "alpha_22222222\n", "other": "beta_33333333\n"})
    return shop


def listed(shop: Shop, *arguments: str) -> dict[str, list[str]]:
    return {row["path"]: row.get("owners", []) for row in shop.listed(*arguments)}


def test_findings_have_the_owners_of_their_paths(shop: Shop, tmp_path: Path) -> None:
    assert len(shop.rows()) == 3
    assert listed(shop) == {"dump.sql": ["db@x.org"], "other": [], "web/app": ["@Org/Web-Team", "@ada"]}
    assert list(listed(shop, "--owner", "@org/web-team")) == ["web/app"]
    assert list(listed(shop, "--owner", "none", "--owner", "db@x.org")) == ["dump.sql", "other"]
    ran = run_command("findings", "owners", "--json", "--state", shop.state)
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [(row["owner"], row["open"]) for row in rows] == [
        ("@Org/Web-Team", 1),
        ("@ada", 1),
        ("db@x.org", 1),
        ("none", 1),
    ]
    assert "@Org/Web-Team @ada" in run_command("findings", "list", "--state", shop.state).out
    for name in ("x.csv", "x.sarif", "x.html"):
        ran = run_command("findings", "export", "--state", shop.state, "-o", str(tmp_path / name))
        assert ran.code == 0, ran.err
    table = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert [row["owners"] for row in table] == ["db@x.org", "", "'@Org/Web-Team @ada"]
    results = json.loads((tmp_path / "x.sarif").read_text())["runs"][0]["results"]
    assert [one["properties"].get("owners") for one in results] == [["db@x.org"], None, ["@Org/Web-Team", "@ada"]]
    assert re.search(r'\["@Org/Web-Team","@ada"\]', (tmp_path / "x.html").read_text())


def test_a_changed_file_counts_after_the_next_scan_which_scans_nothing_again(shop: Shop) -> None:
    shop.rows("--git")
    shop.commit(**{"CODEOWNERS": "* @nobody-asked\n", ".github/CODEOWNERS": "* @all\n"})
    assert listed(shop)["other"] == []
    ran = shop.scan("--git", "--exit-zero", "--json")
    assert json.loads(ran.out.splitlines()[-1])["summary"]["looked_at"] == 2, "the two files that changed"
    assert set(map(tuple, listed(shop).values())) == {("@all",)}
    shop.git("rm", "--quiet", ".github/CODEOWNERS", "CODEOWNERS")
    shop.commit()
    shop.rows("--git")
    assert set(map(tuple, listed(shop).values())) == {()}


def test_no_comment_of_the_file_is_kept(shop: Shop) -> None:
    shop.rows()
    kept = [path for path in shop.state.rglob("*") if path.is_file() and COMMENT.encode() in path.read_bytes()]
    assert kept == []


def test_places_are_looked_at_in_their_order(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for number, place in reversed(list(enumerate(PLACES))):
        (shop.folder / place).parent.mkdir(exist_ok=True)
        shop.commit(**{place: f"* @o{number}\n"})
        for source in (GitSource.at(shop.folder), FileSource.at(shop.folder, in_repository=True)):
            found = read_codeowners(source)
            assert found is not None
            assert found.of("x") == (f"@o{number}",)


@pytest.mark.parametrize("what", ["link", "folder"])
def test_a_link_and_a_folder_are_no_file_in_the_work_tree_as_in_the_history(what: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (shop.folder / ".github").mkdir()
    if what == "link":
        (shop.folder / PLACES[0]).symlink_to("../docs/CODEOWNERS")
    else:
        (shop.folder / PLACES[0]).mkdir()
    (shop.folder / "docs").mkdir()
    shop.commit(**{"docs/CODEOWNERS": "* @docs\n", ".github/CODEOWNERS/x" if what == "folder" else "x": "x\n"})
    for source in (GitSource.at(shop.folder), FileSource.at(shop.folder, in_repository=True)):
        found = read_codeowners(source)
        assert found is not None
        assert found.of("x") == ("@docs",)


def test_no_file_ends_a_scan(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.commit(CODEOWNERS="* @all\n", app="alpha_11111111\n")
    assert len(shop.rows("--git")) == 1
    assert listed(shop) == {"app": ["@all"]}
    shop.commit(CODEOWNERS="\1" * 2_900_000)
    assert len(shop.rows("--git")) == 1, "its rules are longer than a value of the state may be"
    assert listed(shop) == {"app": []}
    shop.commit(CODEOWNERS="a\n" * (LINES_MAX + 1))
    assert read_codeowners(GitSource.at(shop.folder)) is None
