"""`strandline scan --repos FILE`: many repositories in one state, of which none stops or hides another."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.repository_list import ListedRepository, parse_list
from strandline.errors import InvalidInput
from strandline.scan.state import open_state
from tests.cli.git_shop import Shop
from tests.cli.runs import Ran, run_command
from tests.spark.rows import Rows, rows_of

AWAY = "https://ada:pa55-word@127.0.0.1:1/away.git"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def shops(tmp_path: Path) -> tuple[Shop, Shop]:
    """Return a repository whose history has a secret, and one that is also a remote."""
    web, pay = Shop(tmp_path, "web"), Shop(tmp_path, "pay")
    web.commit(app="alpha_11111111\n")
    web.commit(app="clean\n", more="alpha_22222222\n")
    pay.commit(conf="beta_33333333\n")
    pay.git("clone", "--quiet", "--bare", ".", str(tmp_path / "pay.git"))
    return web, pay


def scan(folder: Path, *arguments: str, lines: tuple[str, ...] = ()) -> Ran:
    if lines:
        (folder / "list").write_text("\n".join(lines))
    common = ("--rules", folder / "rules.toml", "--state", folder / "state", "--without-spark")
    return run_command("scan", "--repos", folder / "list", *common, *arguments)


def results(ran: Ran) -> tuple[list[str], dict[str, Any]]:
    *rows, last = (json.loads(line) for line in ran.out.splitlines())
    return sorted(row["location"] for row in rows), last["summary"]


def test_repositories_of_a_list_are_in_one_state(shops: tuple[Shop, Shop], tmp_path: Path) -> None:
    lines = ("# ours", "web", f"file://{tmp_path}/pay.git  payments # the remote one")
    ran = scan(tmp_path, "--git", "--json", lines=lines)
    places, summary = results(ran)
    assert ran.code == 1, "findings are open"
    assert [place.partition("@")[0] for place in places] == ["app", "conf", "more"]
    assert [(one["name"], one["findings"], one["status"]) for one in summary["repositories"]] == [
        (str(tmp_path / "web"), 2, "scanned"),
        ("payments", 1, "scanned"),
    ]
    assert "[2/2] payments: 1 item, 1 scanned now, 1 with findings" in ran.err
    assert results(scan(tmp_path, "--git", "--json", "--exit-zero"))[1]["looked_at"] == 0
    assert len(shops[0].listed()) == 3
    assert len(shops[0].rows("--git")) == 2, "a scan of one of them alone has the same findings"
    assert len(shops[0].listed()) == 3


@pytest.mark.long
def test_work_trees_are_scanned_without_git(shops: tuple[Shop, Shop], tmp_path: Path) -> None:
    places, _ = results(scan(tmp_path, "--json", lines=("web", str(shops[1].folder))))
    assert places == ["conf:1:1", "more:1:1"]


def test_one_that_cannot_be_reached_stops_no_other_and_fails_the_command(
    shops: tuple[Shop, Shop], tmp_path: Path
) -> None:
    assert shops
    others = (AWAY, str(tmp_path / "nowhere"), "ssh://a:b@h/x", "s3://ada:pa55-word@bucket/x")
    ran = scan(tmp_path, "--json", "--exit-zero", lines=(*others, "web"))
    places, summary = results(ran)
    assert ran.code == 1
    assert places == ["more:1:1"]
    assert [one["status"] for one in summary["repositories"]] == ["failed"] * 4 + ["scanned"]
    assert summary["whole"] is False
    assert "cannot be reached" in summary["repositories"][0]["error"]
    assert "s3://bucket/x: not the address of a repository" in summary["repositories"][3]["error"]
    assert "error: 4 repositories of 5 could not be scanned: https://127.0.0.1:1/away.git" in ran.err
    assert "pa55-word" not in ran.err + ran.out
    quiet = scan(tmp_path, "--quiet", "--exit-zero")
    assert (quiet.code, "4 repositories of 5" in quiet.err) == (1, True)


def test_a_fork_hides_nothing_and_needs_a_name(shops: tuple[Shop, Shop], tmp_path: Path) -> None:
    web, _ = shops
    web.git("clone", "--quiet", ".", str(tmp_path / "fork"))
    ran = scan(tmp_path, "--json", "--exit-zero", lines=("web", "fork"))
    assert ran.code == 1
    assert "a clone or a fork" in ran.err
    places, _ = results(scan(tmp_path, "--json", "--exit-zero", lines=("web", "fork  fork-of-web")))
    assert places == ["more:1:1", "more:1:1"]


@pytest.mark.long
def test_the_list_is_a_setting_too(shops: tuple[Shop, Shop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list").write_text("web\npay\n")
    (tmp_path / "strandline.toml").write_text('[scan]\nrepos = "list"\nrules = "rules.toml"\nstate = "state"\n')
    monkeypatch.chdir(shops[0].folder)
    ran = run_command("scan", "--without-spark", "--json")
    assert results(ran)[0] == ["conf:1:1", "more:1:1"], ran.err


@pytest.mark.long
def test_a_report_has_all_repositories(shops: tuple[Shop, Shop], tmp_path: Path) -> None:
    assert shops
    ran = scan(tmp_path, "-o", str(tmp_path / "all.sarif"), lines=("web", "pay"))
    assert ran.code == 1
    (run,) = json.loads((tmp_path / "all.sarif").read_text())["runs"]
    assert {one["ruleId"] for one in run["results"]} == {"alpha", "beta"}


def test_lines_have_comments_quotes_and_names() -> None:
    text = "\ufeff# c\r\n\r\n a \r\n\"my shop/x\" 'a name'\n~/b\nhttps://h/x.git#1 # why\ngit@h:o/r.git  pay\n a\n"
    found = parse_list(text.removeprefix("\ufeff"), "list", "/srv")
    assert [(one.address, one.name, one.line) for one in found] == [
        ("/srv/a", "", 3),
        ("/srv/my shop/x", "a name", 4),
        (str(Path("~/b").expanduser()), "", 5),
        ("https://h/x.git#1", "", 6),
        ("git@h:o/r.git", "pay", 7),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no repository is in it"),
        ("# only this", "no repository is in it"),
        ("a b c", "line 1: more than an address and a name"),
        ("a\n'b", "line 2: a quotation mark is not closed"),
        ("-", "line 1: not a repository"),
        ("a x\nb x", "line 2: the name 'x' is that of line 1"),
        ("a\n~no-such-user-at-all/b", "line 2: ~no-such-user-at-all/b: no such user"),
        ("a\0b", "line 1: not a repository"),
    ],
)
def test_a_list_that_is_wrong_is_an_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_list(text, "list")


def test_a_login_is_not_shown() -> None:
    assert "pa55" not in repr(ListedRepository(AWAY, "", 1))


@pytest.mark.parametrize(
    ("arguments", "other"),
    [((".",), "paths"), (("--staged",), "--staged"), (("-f",), "--follow"), (("--verify",), "--verify")],
)
def test_arguments_that_exclude_each_other(arguments: tuple[str, ...], other: str, tmp_path: Path) -> None:
    ran = run_command("scan", "--repos", tmp_path / "list", "--state", tmp_path / "state", *arguments)
    assert ran.code == 1
    assert other in ran.err
    assert not (tmp_path / "state").exists()


def stored(folder: Path) -> Rows:
    with open_state(str(folder), key_file=folder.parent / "key") as state:
        return rows_of(state.stores, state.tenant)


@pytest.mark.long
def test_a_scan_of_a_list_that_is_killed_goes_on_to_the_rows_of_a_calm_one(
    shops: tuple[Shop, Shop], tmp_path: Path
) -> None:
    for shop in shops:
        shop.commit(**{f"file{number}": f"alpha_9999999{number}\n" for number in range(6)})
    (tmp_path / "list").write_text("web\npay\n")
    (tmp_path / "key").write_text("5a" * 32)
    (tmp_path / "key").chmod(0o600)
    common = ["scan", "--repos", str(tmp_path / "list"), "--git", "--rules", str(tmp_path / "rules.toml")]
    common += ["--exit-zero", "--without-spark", "--lease-s", "5", "--key-file", str(tmp_path / "key"), "--state"]
    killed = []

    def run(writes: int, state: str) -> int:
        command = [sys.executable, "-m", "tests.scan.dying_command", str(writes), *common, str(tmp_path / state)]
        return subprocess.run(command, check=False, capture_output=True, env=os.environ).returncode

    assert run(0, "calm") == 0
    wanted = stored(tmp_path / "calm")
    for writes in (9, 19, 26):
        killed.append(run(writes, f"killed{writes}") == -signal.SIGKILL)
        assert run(0, f"killed{writes}") == 0
        assert stored(tmp_path / f"killed{writes}") == wanted
    assert sum(killed) >= 2, "too few writes to die at"
