"""The first findings out of the stores are those of the index: on random states of each kind, and a history."""

import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.findings import first_findings
from strandline.findings.first_findings import FirstFindings
from strandline.findings.index import IndexedFinding, build_index
from strandline.findings.index_query import FindingQuery
from strandline.scan.state import State, open_state
from tests.cli.git_shop import KEY, Shop
from tests.cli.scan_command import Repository
from tests.cli.scanned import FakeSource, hit, scan
from tests.cli.stopped_scans import stopped
from tests.findings.random_states import RULE_IDS, fill, key

QUERIES = (
    FindingQuery(),
    FindingQuery(text="API"),
    FindingQuery(text="ß"),
    FindingQuery(rules=RULE_IDS[:1], confidence=5),
    FindingQuery(states=("open",), sources=("service.git",)),
    FindingQuery(states=("revoked", "confirmed")),
    FindingQuery(is_new=True),
    FindingQuery(place="web/*"),
)


def plain(found: list[IndexedFinding]) -> list[IndexedFinding]:
    """Return findings without the numbers that only a report has."""
    return [replace(one, finding=replace(one.finding, numbers={})) for one in found]


def check(state: State) -> int:
    """Compare pages out of the stores with those of the index; return how many findings they had."""
    index, first, seen = build_index(state), FirstFindings(state), 0
    for query in QUERIES:
        for begin, limit in ((0, 1), (0, 4), (3, 3), (0, 1_000)):
            found = first.page(query, first=begin, limit=limit)
            if found is not None:
                assert plain(found) == plain(index.page(query, first=begin, limit=limit)), (query, begin, limit)
                seen += len(found)
    return seen


@pytest.fixture(params=[(250, 2_500), (3, 9), (1, 30)], ids=str)
def _rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for all rows at once, or for so few that the last finding is never sure."""
    monkeypatch.setattr(first_findings, "_ROWS", request.param)


pytestmark = pytest.mark.usefixtures("_rows")


@pytest.mark.parametrize("seed", range(6))
def test_they_are_the_first_of_the_index(tmp_path: Path, seed: int) -> None:
    where = str(tmp_path / "state")
    fill(where, random.Random(seed), key(tmp_path))
    with open_state(where, key_file=key(tmp_path)) as state:
        assert check(state)


def test_they_are_over_postgresql(postgres_state: str, tmp_path: Path) -> None:
    fill(postgres_state, random.Random(1), key(tmp_path))
    with open_state(postgres_state, key_file=key(tmp_path)) as state:
        assert check(state)


def test_a_lake_answers_none(tmp_path: Path) -> None:
    where = f"file://{tmp_path}/lake"
    fill(where, random.Random(2), key(tmp_path))
    with open_state(where, key_file=key(tmp_path)) as state:
        assert FirstFindings(state).page(FindingQuery()) is None


def test_they_are_over_a_tree_and_its_history(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.commit(app=KEY, old=f"{KEY}\n# more\nother = alpha_87654321\n")
    shop.commit(author="Bob", app=f"\n{KEY}", old="gone")
    shop.scan("--git", "--exit-zero")
    shop.write(new=KEY)
    shop.scan("--exit-zero")
    with open_state(str(shop.state)) as state:
        assert check(state)


def test_they_are_while_a_scan_is_not_finished(tmp_path: Path) -> None:
    shop = Repository(tmp_path)
    shop.commit(**{f"file{number}": f"alpha_0000000{number}\n" for number in range(8)})
    assert stopped(shop, signal.SIGKILL)[0] == -signal.SIGKILL
    with open_state(str(shop.state)) as state:
        assert check(state)


def test_what_is_gone_hides_no_finding(tmp_path: Path) -> None:
    """The first rows by path are of items that were deleted: more are asked for, and then it is not known."""
    where = str(tmp_path / "state")
    items = {f"{number:03}.env": [hit(RULE_IDS[0], f"secret {number}", f"{number:03}.env")] for number in range(40)}
    scan(where, FakeSource("fs", "/srv/shop", items))
    scan(where, FakeSource("fs", "/srv/shop", {"039.env": items["039.env"]}), run=2)
    with open_state(where) as state:
        check(state)
        found = FirstFindings(state).page(FindingQuery(), limit=1)
        assert found is None or [one.finding.path for one in found] == ["039.env"]


def test_names_sort_as_they_are_and_not_as_their_urls(tmp_path: Path) -> None:
    """A space comes before an exclamation mark, and `%20` behind it."""
    where, names = (
        str(tmp_path / "state"),
        [*(f" {number}" for number in range(9)), *(f"!{number}" for number in range(9))],
    )
    scan(where, FakeSource("fs", "/srv/shop", {name: [hit(RULE_IDS[0], f"secret {name}", name)] for name in names}))
    with open_state(where) as state:
        assert check(state)
        found = FirstFindings(state).page(FindingQuery(), limit=2)
        assert found is not None
        assert [one.finding.path for one in found] == names[:2]


@pytest.mark.parametrize("query", [FindingQuery(sort="newest"), FindingQuery(show="gone"), FindingQuery(show="all")])
def test_other_orders_and_what_is_gone_are_for_the_index(tmp_path: Path, query: FindingQuery) -> None:
    scan(str(tmp_path / "state"), FakeSource("fs", "/srv/shop", {"a": [hit(RULE_IDS[0], "one", "a")]}))
    with open_state(str(tmp_path / "state")) as state:
        assert FirstFindings(state).page(query) is None
