"""`strandline findings list`: what is there now, filtered as asked; what is left out is counted."""

import json
from pathlib import Path

import pytest

from strandline.pipeline.pages import Failed, Gaps, Scanned
from tests.cli.findings_runs import done, rows, run
from tests.cli.scanned import RULES, FakeSource, Items, hit, scan
from tests.pipeline.databases import databases
from tests.servers_postgres import PostgresServer


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state after a scan of a folder and of a repository."""
    monkeypatch.chdir(tmp_path)
    folder = FakeSource(
        "fs",
        "/srv/shop",
        {
            "src/app.py": [hit("aws-access-key-id", "one", "src/app.py", 12, confidence=9)],
            "src/db.py": [
                hit("github-pat", "two", "src/db.py", 3, confidence=3),
                hit("github-pat", "two", "src/db.py", 9, confidence=3),
            ],
            "keys.zip": [hit("private-key", "three", "keys.zip!id_rsa", confidence=1, via=("zip",))],
            "clean.txt": Scanned(10),
        },
    )
    git = FakeSource(
        "git",
        "shop.git",
        {"1a2b": [hit("aws-access-key-id", "one", "old/app.py", 4, source="git", commit="1a2b3c4d", confidence=9)]},
    )
    scan(tmp_path / "state", folder, git)
    return tmp_path / "state"


def places(*arguments: str | Path, state: Path) -> list[str]:
    return [str(row["location"]) for row in rows("list", *arguments, state=state)]


APP, DB, ZIP, GIT = "src/app.py:12:7", "src/db.py:3:7", "keys.zip!id_rsa:1:7", "old/app.py@1a2b3c4:4:7"


class TestWhatIsListed:
    """The current inventory, or everything."""

    def test_is_each_finding_once_by_place(self, state: Path) -> None:
        assert places(state=state) == [ZIP, GIT, APP, DB]

    def test_a_table_for_people_shows_what_they_ask_for_next(self, state: Path) -> None:
        out = done("list", state=state).out
        (row,) = rows("list", "--rule", "github-pat", state=state)
        assert row["finding_id"][:12] in out
        assert f"{DB} (+ 1)" in out
        assert "9 high" in out
        assert "open" in out

    def test_json_has_all_of_it_and_no_secret(self, state: Path) -> None:
        (row,) = rows("list", "--rule", "github-pat", state=state)
        assert row["rule_id"] == "github-pat"
        assert "GitHub" in row["description"]
        assert (row["path"], row["line"], row["confidence"], row["level"]) == ("src/db.py", 3, 3, "medium")
        assert [other["line"] for other in row["other_places"]] == [9]
        assert row["state"] == "open"
        assert row["first_seen"].startswith("20")
        assert len(row["secret"]) == 64

    def test_what_was_changed_away_is_gone_but_kept(self, state: Path) -> None:
        folder = FakeSource("fs", "/srv/shop", {"src/app.py": Scanned(10)}, version=b"2")
        git = FakeSource("git", "shop.git", {})
        scan(state, folder, git, run=2)
        assert places(state=state) == []
        assert places("--all", state=state) == [ZIP, GIT, APP, DB]

    def test_a_source_that_was_scanned_alone_later_counts_as_that_scan_listed_it(self, state: Path) -> None:
        scan(state, FakeSource("fs", "/srv/shop", {"src/app.py": Scanned(10)}, version=b"2"), run=2)
        assert places(state=state) == [GIT]

    def test_a_scan_of_one_file_leaves_the_rest_of_its_folder_listed(self, state: Path) -> None:
        changed: Items = {"src/app.py": [hit("github-pat", "new", "src/app.py", 2, confidence=9)]}
        scan(state, FakeSource("fs", "/srv/shop/src/app.py", changed, b"2", part_of="/srv/shop"), run=2)
        places = [row["location"] for row in rows("list", "--source", "file", state=state)]
        assert places == ["keys.zip!id_rsa:1:7", "src/app.py:2:7", "src/db.py:3:7"]
        counts = rows("coverage", state=state)[0]["counts"]
        assert sum(count["items"] for count in counts) == 5  # each item once

    def test_a_later_scan_of_the_whole_is_all_there_is(self, state: Path) -> None:
        old: Items = {"src/app.py": [hit("github-pat", "new", "src/app.py", 2)]}
        scan(state, FakeSource("fs", "/srv/shop/src/app.py", old, b"2", part_of="/srv/shop"), run=2)
        scan(state, FakeSource("fs", "/srv/shop", {"src/app.py": Scanned(10)}, b"3"), run=3)
        assert rows("list", "--source", "file", state=state) == []

    def test_of_parts_with_one_name_the_latest_counts(self, state: Path) -> None:
        for number, name in enumerate(("first", "second"), 2):
            staged: Items = {name: [hit("github-pat", name, f"{name}.py", source="git")]}
            scan(state, FakeSource("git", "shop", staged, part_of="shop.git"), run=number)
        assert [row["path"] for row in rows("list", "--source", "git", state=state)] == ["old/app.py", "second.py"]

    def test_sources_of_several_scans_are_all_there(self, state: Path) -> None:
        scan(state, FakeSource("fs", "/srv/other", {"x": [hit("github-pat", "x", "x")]}), run=2)
        assert places(state=state) == [ZIP, GIT, APP, DB, "x:1:7"]

    def test_what_only_an_older_policy_found_is_gone(self, state: Path) -> None:
        names: Items = {
            "src/app.py": [hit("aws-access-key-id", "one", "src/app.py", 12, confidence=9)],
            "src/db.py": Scanned(9),
        }
        rules = RULES.without(["github-pat", "private-key"])
        scan(state, FakeSource("fs", "/srv/shop", names), FakeSource("git", "shop.git", {}), rules=rules, run=2)
        assert places(state=state) == [APP]
        assert places("--all", state=state) == [ZIP, GIT, APP, DB]

    def test_a_clean_state_says_so(self, tmp_path: Path) -> None:
        scan(tmp_path / "clean", FakeSource("fs", "/srv/shop", {"a": Scanned(1)}))
        ran = done("list", state=tmp_path / "clean")
        assert (ran.out, ran.err) == ("", "no findings\n")


class TestFilters:
    """Several values of one option are "or", several options are "and"."""

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["--rule", "github-pat"], [DB]),
            (["--rule", "aws-*", "--rule", "private-key"], [ZIP, GIT, APP]),
            (["--path", "src/"], [APP, DB]),
            (["--path", "*.py", "--path", "!src/db.py"], [GIT, APP]),
            (["--path", "keys.zip"], [ZIP]),
            (["--confidence", "high"], [GIT, APP]),
            (["--confidence", "medium"], [GIT, APP, DB]),
            (["--confidence", "10"], []),
            (["--source", "git"], [GIT]),
            (["--source", "shop"], [ZIP, APP, DB]),
            (["--source", "file", "--rule", "aws-*"], [APP]),
            (["--is", "open"], [ZIP, GIT, APP, DB]),
            (["--is", "revoked", "--is", "confirmed"], []),
        ],
    )
    def test_keep_what_fits(self, state: Path, arguments: list[str], expected: list[str]) -> None:
        assert places(*arguments, state=state) == expected

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["--confidence", "certain"], "'certain' is not a confidence"),
            (["--confidence", "11"], "'11' is not a confidence"),
            (["--source", "gti"], "no source is called 'gti'"),
            (["--path", "[a"], "not closed"),
        ],
    )
    def test_that_cannot_fit_are_refused(self, state: Path, arguments: list[str], problem: str) -> None:
        ran = run("list", *arguments, state=state)
        assert ran.code == 1
        assert problem in ran.err


class TestIgnoring:
    """What somebody decided not to see."""

    def test_a_gitleaksignore_here_leaves_places_out_and_is_counted(self, state: Path) -> None:
        Path(".gitleaksignore").write_text("src/app.py:aws-access-key-id:12\nsrc/db.py:github-pat:3\n")
        assert places(state=state) == [ZIP, GIT, "src/db.py:9:7"]
        assert "left out: 1 by fingerprint" in done("list", state=state).err

    def test_one_of_a_commit_leaves_out_that_commit_alone(self, state: Path) -> None:
        Path("mine").write_text("1a2b3c4d:old/app.py:aws-access-key-id:4\n")
        assert places("--ignore-file", "mine", state=state) == [ZIP, APP, DB]

    def test_no_ignore_shows_all(self, state: Path) -> None:
        Path(".gitleaksignore").write_text("src/app.py:aws-access-key-id:12\n")
        assert len(places("--no-ignore", state=state)) == 4

    def test_our_own_export_is_a_baseline(self, state: Path) -> None:
        for name in ("known.jsonl", "known.baseline"):
            done("export", "--format", name.rpartition(".")[2], "--rule", "aws-*", "-o", name, state=state)
            ran = done("list", "--baseline", name, "--json", state=state)
            assert [json.loads(line)["location"] for line in ran.out.splitlines()] == [ZIP, DB]
            assert "left out: 2 by baseline" in ran.err

    def test_a_gitleaks_report_is_a_baseline(self, state: Path) -> None:
        report = [{"RuleID": "other", "File": "src/app.py", "StartLine": 99, "Secret": "one"}]
        Path("gitleaks.json").write_text(json.dumps(report))
        assert places("--baseline", "gitleaks.json", state=state) == [ZIP, GIT, DB]

    def test_a_baseline_that_is_not_there_or_not_one_is_an_error(self, state: Path) -> None:
        assert "No such file" in run("list", "--baseline", "none.json", state=state).err
        Path("bad.json").write_text('{"Secret": "hunter2"')
        ran = run("list", "--baseline", "bad.json", state=state)
        assert "not JSON" in ran.err
        assert "hunter2" not in ran.err


class TestErrors:
    """What users meet when something is not as it should be."""

    def test_no_state_says_what_to_do(self, tmp_path: Path) -> None:
        ran = run("list", state=tmp_path / "none")
        assert ran.code == 1
        assert "no scan has stored results" in ran.err
        assert "hint: run `strandline scan` first" in ran.err

    def test_another_key_is_refused(self, state: Path) -> None:
        (state / "tenant-default.key").write_text("00" * 32)
        ran = run("list", state=state)
        assert ran.code == 1
        assert "not the key" in ran.err


def test_outcomes_without_findings_have_no_rows(tmp_path: Path) -> None:
    items = {"a": Failed("PERMISSION_DENIED", retryable=False), "b": Scanned(5, gaps=Gaps(1)), "c": None}
    scan(tmp_path, FakeSource("fs", "/srv/shop", items))
    assert places(state=tmp_path) == []


def test_a_state_on_postgresql_is_the_same(postgres_server: PostgresServer, tmp_path: Path) -> None:
    key = tmp_path / "tenant.key"
    key.write_text("5a" * 32)
    key.chmod(0o600)
    with databases(postgres_server) as create:
        address = create("findings")
        scan(address, FakeSource("fs", "/srv/shop", {"a": [hit("github-pat", "two", "a", 3)]}), key_file=key)
        (row,) = rows("list", "--key-file", key, state=address)
        assert row["location"] == "a:3:7"
        done("triage", row["finding_id"][:8], "--as", "revoked", "--key-file", key, state=address)
        assert len(rows("list", "--is", "revoked", "--key-file", key, state=address)) == 1
        ran = run("list", state=address)
    assert ran.code == 1
    assert "needs --key-file" in ran.err
    assert address not in ran.err
