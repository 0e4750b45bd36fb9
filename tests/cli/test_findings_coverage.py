"""`strandline findings coverage` and `diff`: how well was looked, and what changed."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from strandline.errors import InvalidInput
from strandline.findings.diff import parse_time
from strandline.pipeline.pages import Failed, Gaps, Scanned, Skipped
from tests.cli.findings_runs import done, rows, run
from tests.cli.scanned import RULES, FakeSource, hit, scan

NOW = 1_700_000_000_000_000_000


class TestCoverage:
    """Items by status and reason."""

    @pytest.fixture
    def state(self, tmp_path: Path) -> Path:
        items = {
            "a": Scanned(10),
            "found": [hit("github-pat", "x", "found")],
            "b.zip": Scanned(20, gaps=Gaps(members_skipped=2)),
            "c.zip": Scanned(20, gaps=Gaps(1, 1, 0)),
            "denied": Failed("PERMISSION_DENIED", retryable=False),
            "gone\n": Failed("VANISHED", retryable=True),
            "link": Skipped("SYMLINK"),
            "not reached": None,
        }
        scan(tmp_path, FakeSource("fs", "/srv/shop", items))
        return tmp_path

    def test_counts_each_item_once(self, state: Path) -> None:
        (told,) = rows("coverage", state=state)
        assert told["items"] == 8
        assert told["bytes_seen"] == 1050
        assert {(row["status"], row["reason"]): row["items"] for row in told["counts"]} == {
            ("scanned", ""): 2,
            ("partial", "MEMBERS_SKIPPED"): 1,
            ("partial", "MEMBERS_SKIPPED,DECODES_SKIPPED"): 1,
            ("skipped", "SYMLINK"): 1,
            ("failed", "PERMISSION_DENIED"): 1,
            ("failed", "VANISHED"): 1,
            ("failed", "NOT_LOOKED_AT"): 1,
        }

    def test_lists_what_is_incomplete_worst_first(self, state: Path) -> None:
        (told,) = rows("coverage", state=state)
        assert [item["path"] for item in told["incomplete"]] == [
            *("denied", r"gone\x0a", "not reached", "link", "b.zip", "c.zip")
        ]

    def test_says_why_in_words(self, state: Path) -> None:
        ran = done("coverage", "--limit", "2", state=state)
        assert "permission denied (PERMISSION_DENIED)" in ran.out
        assert "a link, which is not followed" in ran.out
        assert "and 4 more incomplete items" in ran.err


class TestDiff:
    """Two policies, or two times."""

    @pytest.fixture
    def state(self, tmp_path: Path) -> Path:
        both = hit("aws-access-key-id", "one", "a", 1)
        old, new = hit("github-pat", "two", "a", 2), hit("private-key", "three", "a", 3)
        shop = "/srv/shop"
        scan(
            tmp_path, FakeSource("fs", shop, {"a": [both, old], "b": Scanned(1)}), rules=RULES.without(["private-key"])
        )
        scan(tmp_path, FakeSource("fs", shop, {"a": [both, new]}), rules=RULES.without(["github-pat"]), run=2)
        return tmp_path

    def test_without_arguments_compares_the_two_latest_policies(self, state: Path) -> None:
        changes = [(row["change"], row["rule_id"]) for row in rows("diff", state=state)]
        assert changes == [("-", "github-pat"), ("+", "private-key")]
        ran = done("diff", state=state)
        assert "1 new, 1 gone, 1 in both" in ran.err
        assert "1 objects scanned by both" in ran.err

    def test_takes_policies_by_the_beginning_of_their_hash(self, state: Path) -> None:
        old, new = (RULES.without([name]).policy().hash.hex() for name in ("private-key", "github-pat"))
        changes = [(row["change"], row["rule_id"]) for row in rows("diff", new[:8], old[:8], state=state)]
        assert changes == [("-", "private-key"), ("+", "github-pat")]
        ran = run("diff", "0123", state=state)
        assert "no policy's hash begins with '0123'" in ran.err
        assert new[:12] in ran.err

    def test_between_two_times_shows_what_became_known(self, state: Path) -> None:
        middle = datetime.now(UTC).isoformat()
        time.sleep(0.01)
        more = [hit("aws-access-key-id", "four", "b", 9)]
        scan(
            state, FakeSource("fs", "/srv/shop", {"b": more}, version=b"2"), rules=RULES.without(["github-pat"]), run=3
        )
        assert [row["path"] for row in rows("diff", "--since", middle, state=state)] == ["b"]
        assert {row["path"] for row in rows("diff", "--until", middle, state=state)} == {"a"}
        assert rows("diff", "--until", "52w", state=state) == []
        assert "later than" in run("diff", "--since", "1h", "--until", "2h", state=state).err

    def test_one_policy_alone_is_told_what_to_do(self, tmp_path: Path) -> None:
        scan(tmp_path / "x", FakeSource("fs", "/srv/shop", {"a": Scanned(1)}))
        ran = run("diff", state=tmp_path / "x")
        assert "there is only one policy" in ran.err
        assert "--since" in ran.err


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("2023-11-14", 1_699_920_000),
        ("2023-11-14T22:13:20", 1_700_000_000),
        ("2023-11-14T22:13:20+02:00", 1_700_000_000 - 7200),
        ("1h", 1_700_000_000 - 3600),
        ("2w", 1_700_000_000 - 14 * 86400),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, expected_s: int) -> None:
    assert parse_time(text, NOW) == expected_s * 1_000_000_000


@pytest.mark.parametrize("text", ["yesterday", "", "7", "-1d", "2023-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a time"):
        parse_time(text, NOW)
