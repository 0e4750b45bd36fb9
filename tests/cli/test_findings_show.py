"""`strandline findings show` and `triage`: all that is known of a finding, and what people decide about it."""

import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from strandline.pipeline import TriageEvent, TriageState
from strandline.pipeline.identity import FindingId
from strandline.pipeline.pages import Scanned
from strandline.scan.sources.git_history import Seen, format_seen
from strandline.scan.state import open_state
from tests.cli.findings_runs import done, rows, run
from tests.cli.scanned import FakeSource, Items, hit, scan


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One secret in a file, at two lines, and in a commit; another secret in another file; the file scanned twice."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_USER", "ada")
    before = [hit("aws-access-key-id", "one", "src/app.py", line, confidence=9) for line in (3, 12)]
    seen = hit("aws-access-key-id", "one", "old/app.py", 4, source="git", commit="1a2b3c4d5e6f")
    extra = format_seen(Seen("0" * 40, 9, "1a2b3c4d5e6f" + "0" * 28, "ab" * 20))
    git = FakeSource("git", "shop.git", {"1a2b": [seen]}, extra=extra)
    scan(tmp_path / "state", FakeSource("fs", "/srv/shop", {"src/app.py": before}), git)
    after = {
        "src/app.py": [hit("aws-access-key-id", "one", "src/app.py", 20, confidence=9)],
        "b": [hit("github-pat", "two", "b")],
    }
    scan(tmp_path / "state", FakeSource("fs", "/srv/shop", after, version=b"2"), run=2)
    return tmp_path / "state"


def id_of(path: str, state: Path) -> str:
    (row,) = [row for row in rows("list", state=state) if row["path"] == path]
    return str(row["finding_id"])


class TestShow:
    """One finding."""

    def test_has_every_place_in_every_version(self, state: Path) -> None:
        (shown,) = rows("show", id_of("src/app.py", state)[:8], state=state)
        assert sorted(place["place"] for place in shown["places"]) == [f"src/app.py:{n}:7" for n in (12, 20, 3)]
        assert len({place["version"] for place in shown["places"]}) == 2
        assert shown["place"] == "src/app.py:20:7"
        assert shown["confidence"] == "9 (high)"

    def test_names_the_same_secret_elsewhere(self, state: Path) -> None:
        (shown,) = rows("show", id_of("src/app.py", state), state=state)
        assert [other["place"] for other in shown["same_secret"]] == ["old/app.py@1a2b3c4:4:7"]
        (in_git,) = rows("show", shown["same_secret"][0]["id"], state=state)
        assert in_git["commit"] == "1a2b3c4d5e6f" + "0" * 28
        assert [other["place"] for other in in_git["same_secret"]] == ["src/app.py:20:7"]

    def test_of_a_history_names_the_commits_that_brought_it(self, state: Path) -> None:
        (row,) = rows("list", "--source", "git", state=state)
        (shown,) = rows("show", row["finding_id"], state=state)
        assert shown["commits"]["first"]["commit"] == "1a2b3c4d5e6f" + "0" * 28
        assert shown["commits"]["last"]["commit"] == "ab" * 20
        assert shown["at_head"] == "no"
        out = done("show", row["finding_id"], state=state).out
        assert "1a2b3c4" in out
        assert "abababa" in out
        (other,) = rows("show", id_of("b", state), state=state)
        assert "commits" not in other

    def test_tells_people_the_same(self, state: Path) -> None:
        out = done("show", id_of("src/app.py", state), state=state).out
        assert "src/app.py:20:7" in out
        assert "the same secret elsewhere" in out
        assert "AWS access key id" in out

    def test_shows_no_hash_of_a_secret(self, state: Path) -> None:
        (row,) = [row for row in rows("list", state=state) if row["path"] == "b"]
        assert row["secret"][:12] not in done("show", row["finding_id"], "--json", state=state).out

    @pytest.mark.parametrize("given", ["zzzz", "abc", "0" * 65, ""])
    def test_what_is_no_id_is_refused(self, state: Path, given: str) -> None:
        assert "4 to 64 hexadecimal digits" in run("show", given, state=state).err

    @pytest.mark.parametrize("given", ["00000000", "0" * 64])
    def test_an_id_that_nobody_has_is_told_with_where_to_look(self, state: Path, given: str) -> None:
        ran = run("show", given, state=state)
        assert ran.code == 1
        assert f"no finding's id begins with {given}" in ran.err
        assert "strandline findings list --all" in ran.err


def test_a_beginning_that_several_ids_have_is_refused(tmp_path: Path) -> None:
    many = [hit("github-pat", f"secret {number}", "a", number) for number in range(1, 2000)]
    scan(tmp_path, FakeSource("fs", "/srv/shop", {"a": many}))
    begins = sorted(row["finding_id"] for row in rows("list", state=tmp_path))
    twins = next((one[:4] for one, other in pairwise(begins) if one[:4] == other[:4]), None)
    assert twins, "two thousand ids have two that begin alike"
    ran = run("show", twins, state=tmp_path)
    assert "findings have an id that begins with" in ran.err
    assert "give more of it" in ran.err


class TestTriage:
    """Decisions."""

    def test_is_kept_with_who_and_why_and_shown_everywhere(self, state: Path) -> None:
        finding = id_of("b", state)
        done("triage", finding[:10], "--as", "false-positive", "--reason", "a fixture", state=state)
        (row,) = rows("list", "--is", "false-positive", state=state)
        assert row["finding_id"] == finding
        assert (row["decided"]["who"], row["decided"]["why"]) == ("ada", "a fixture")
        assert abs(datetime.fromisoformat(row["decided"]["when"]).timestamp() - time.time()) < 60
        (shown,) = rows("show", finding, state=state)
        assert [(one["state"], one["who"]) for one in shown["decisions"]] == [("false-positive", "ada")]

    def test_again_changes_nothing(self, state: Path) -> None:
        finding = id_of("b", state)
        arguments = ("triage", finding, "--as", "revoked", "--reason", "rotated")
        assert [row["changed"] for _ in range(3) for row in rows(*arguments, state=state)] == [True, False, False]
        assert "unchanged" in done(*arguments, state=state).out
        (shown,) = rows("show", finding, state=state)
        assert len(shown["decisions"]) == 1

    def test_the_latest_holds_and_the_history_stays(self, state: Path) -> None:
        finding = id_of("b", state)
        for decided in ("confirmed", "revoked", "open"):
            done("triage", finding, "--as", decided, state=state)
        (shown,) = rows("show", finding, state=state)
        assert shown["state"] == "open"
        assert [one["state"] for one in shown["decisions"]] == ["confirmed", "revoked", "open"]

    def test_holds_even_over_one_of_a_clock_that_was_fast(self, state: Path) -> None:
        finding = id_of("b", state)
        with open_state(str(state)) as opened:
            future = time.time_ns() + 10**15
            early = TriageEvent(opened.tenant, FindingId(bytes.fromhex(finding)), TriageState.OPEN, future, "eve", "")
            opened.stores.triage.record_triage([early])
        done("triage", finding, "--as", "revoked", state=state)
        assert [row["finding_id"] for row in rows("list", "--is", "revoked", state=state)] == [finding]

    def test_takes_several_and_all_or_none(self, state: Path) -> None:
        ids = [id_of("b", state), id_of("src/app.py", state)]
        assert run("triage", *ids, "0" * 64, "--as", "confirmed", state=state).code == 1
        assert rows("list", "--is", "confirmed", state=state) == []
        assert len(rows("triage", *ids, ids[0], "--as", "confirmed", state=state)) == 2
        assert len(rows("list", "--is", "confirmed", state=state)) == 2

    def test_survives_a_new_version_of_the_file(self, state: Path) -> None:
        finding = id_of("b", state)
        done("triage", finding, "--as", "false-positive", state=state)
        files: Items = {"b": [hit("github-pat", "two", "b", 7)], "c": Scanned(1)}
        scan(state, FakeSource("fs", "/srv/shop", files, version=b"3"), run=3)
        assert [(row["finding_id"], row["line"]) for row in rows("list", "--is", "false-positive", state=state)] == [
            (finding, 7)
        ]

    def test_a_word_that_is_no_state_is_refused(self, state: Path) -> None:
        ran = run("triage", id_of("b", state), "--as", "maybe", state=state)
        assert ran.code == 2
        assert "false-positive" in ran.err
