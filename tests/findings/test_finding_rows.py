"""The index of the pages, built from columns, answers as reports do: on random states of each kind, and a history."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow.compute as pc
import pytest

from strandline.findings import finding_rows, report_builder
from strandline.findings.finding_rows import read_finding_rows
from strandline.findings.index import FindingIndex, build_index
from strandline.findings.index_query import FindingQuery
from strandline.findings.report_builder import build_report
from strandline.findings.reports.values import ReportFinding
from strandline.pipeline.stored_findings import read_stored_findings
from strandline.scan.state import State, open_state
from tests.cli.git_shop import KEY, Shop
from tests.cli.scanned import FakeSource, hit, scan
from tests.findings.random_states import RULE_IDS, fill, key


def answers_of(report: list[ReportFinding], names: list[str], texts: FindingQuery) -> list[ReportFinding]:
    """Return the findings that match, looked at one by one."""
    return [
        one
        for one, name in zip(report, names, strict=True)
        if (not texts.rules or one.rule_id in texts.rules)
        and (not texts.states or one.state in texts.states)
        and (not texts.sources or name in texts.sources)
        and one.location.confidence >= texts.confidence
        and (not texts.is_new or one.is_new)
        and all(
            word in f"{one.display}\n{one.rule_id}\n{name}\n{one.finding_id}".casefold()
            for word in texts.text.casefold().split()
        )
    ]


def check(state: State) -> int:
    """Compare every answer of an index with what reports have; return how many findings are made of their rows."""
    index, report = build_index(state), build_report(state)
    everything = build_report(state, everything=True)
    current = list(report.findings)
    known = {one.finding_id for one in current}
    gone = [replace(one, numbers={}) for one in everything.findings if one.finding_id not in known]
    names = [report.facts.sources[one.source].name for one in current]
    assert index.facts == report.facts
    assert list(index.report(FindingQuery()).findings) == current, "with their numbers"
    whole = index.page(FindingQuery(show="all"), limit=10_000)
    assert [replace(one.finding, numbers={}) for one in whole] == [
        *(replace(one, numbers={}) for one in current),
        *gone,
    ]
    assert [one.is_gone for one in whole] == [False] * len(current) + [True] * len(gone)
    for query in (
        FindingQuery(text="API"),
        FindingQuery(text="key aws"),
        FindingQuery(text="ß"),
        FindingQuery(rules=RULE_IDS[:1], confidence=5),
        FindingQuery(states=("open",), sources=("service.git",)),
        FindingQuery(states=("revoked", "confirmed")),
        FindingQuery(is_new=True),
    ):
        expected = [one.finding_id for one in answers_of(current, names, query)]
        assert [one.finding.finding_id for one in index.page(query, limit=10_000)] == expected
        assert [one.hex() for one in index.ids(query)] == expected
        assert index.facets(query).matching == len(expected)
    check_groups(index, current)
    for one in whole:
        found = index.find(one.finding.finding_id)
        assert found is not None
        assert found.finding == one.finding
    assert index.find("00" * 32) is None
    return int(pc.sum(pc.is_null(read_finding_rows(state).values["object"])).as_py() or 0)


def check_groups(index: FindingIndex, current: list[ReportFinding]) -> None:
    counted = Counter(one.secret for one in current)
    total, groups = index.groups(FindingQuery(), limit=10_000)
    assert total == len(counted)
    assert sorted(one.findings for one in groups) == sorted(counted.values())
    for group in groups:
        same = [one for one in current if one.secret.hex().startswith(group.group)]
        assert group.paths == len({one.path for one in same})
        assert group.rules == tuple(sorted({one.rule_id for one in same}))
        assert group.open == sum(one.state == "open" for one in same)
        assert group.confidence == max(one.location.confidence for one in same)
        of_group = index.page(FindingQuery(group=group.group), limit=10_000)
        assert [one.finding.finding_id for one in of_group] == [one.finding_id for one in same]


@pytest.mark.parametrize("seed", range(8))
def test_an_index_of_columns_answers_as_reports_do(tmp_path: Path, seed: int) -> None:
    where = str(tmp_path / "state")
    fill(where, random.Random(seed), key(tmp_path))
    with open_state(where, key_file=key(tmp_path)) as state:
        assert check(state), "some findings are made of their rows"


def test_it_does_over_postgresql(postgres_state: str, tmp_path: Path) -> None:
    fill(postgres_state, random.Random(1), key(tmp_path))
    with open_state(postgres_state, key_file=key(tmp_path)) as state:
        assert check(state)


def test_it_does_over_a_lake(tmp_path: Path) -> None:
    where = f"file://{tmp_path}/lake"
    fill(where, random.Random(2), key(tmp_path))
    with open_state(where, key_file=key(tmp_path)) as state:
        assert check(state)


def test_it_does_over_a_tree_and_its_history(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.commit(app=KEY, old=f"{KEY}\n# more\nother = alpha_87654321\n")
    shop.commit(author="Bob", app=f"\n{KEY}", old="gone")
    shop.scan("--git", "--exit-zero")
    shop.write(new=KEY)
    shop.scan("--exit-zero")
    with open_state(str(shop.state)) as state:
        assert build_report(state).findings
        check(state)


def leave_unlisted(where: str, source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what a first scan leaves that has not written its inventory."""
    with monkeypatch.context() as before_the_end:
        before_the_end.setattr("tests.cli.scanned._list", lambda *_: None)
        scan(where, source)


ONE = FakeSource("fs", "/srv/shop", {"a.env": [hit("github-pat", "one", "a.env")]})


def test_findings_that_no_source_lists_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = str(tmp_path / "state")
    leave_unlisted(where, ONE, monkeypatch)
    with open_state(where) as state:
        assert check(state) == 1, "it is made of its row"
        (found,) = build_index(state).page(FindingQuery(show="all"))
        assert found.is_gone
        assert found.source_name == "file"


@pytest.mark.parametrize("reader", [finding_rows, report_builder], ids=["index", "report"])
def test_a_scan_that_ends_while_it_is_looked_at_hides_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: ModuleType
) -> None:
    """A scan writes its inventory and then deletes its mark, so marks are read first."""
    where = str(tmp_path / "state")
    leave_unlisted(where, ONE, monkeypatch)
    ends = [lambda: scan(where, ONE, run=2)]

    def ending(read: Callable[..., object]) -> Callable[..., object]:
        def read_and_end(*given: object) -> object:
            found = read(*given)
            if ends:
                ends.pop()()
            return found

        return read_and_end

    for name in ("current_sources", "unfinished_scans"):
        monkeypatch.setattr(reader, name, ending(getattr(reader, name)))
    with open_state(where) as state:
        found = build_index(state).current if reader is finding_rows else len(build_report(state).findings)
    assert not ends, "it ended between the two"
    assert found == 1


def test_numbers_count_the_secrets_at_every_path_of_a_finding(tmp_path: Path) -> None:
    """An archive with one secret in two members, and another secret before it in one of them."""
    where, rule, member = str(tmp_path / "state"), "github-pat", "z/a.zip!"
    hits = [hit(rule, "one", f"{member}x", 3), hit(rule, "one", f"{member}y", 5), hit(rule, "two", f"{member}y", 1)]
    scan(where, FakeSource("fs", "/srv/shop", {"z/a.zip": hits}))
    with open_state(where) as state:
        report, index = build_report(state).findings, build_index(state)
        assert sorted(len(one.numbers) for one in report) == [1, 2]
        for one in report:
            assert list(index.report(FindingQuery(text=one.finding_id)).findings) == [one]


def test_stored_findings_are_those_that_were_observed(tmp_path: Path) -> None:
    where = str(tmp_path / "state")
    fill(where, random.Random(3), key(tmp_path))
    with open_state(where, key_file=key(tmp_path)) as state:
        stored = read_stored_findings(state.stores, state.tenant)
        observed = [
            one
            for counts in state.stores.reads.counts_by_policy(state.tenant)
            for one in state.stores.reads.observed(state.tenant, counts.policy)
        ]
        expected = [
            (
                *(bytes(one.observation.policy), bytes(one.finding.finding_id), bytes(one.finding.item)),
                *(bytes(one.finding.rule), bytes(one.finding.secret), bytes(one.observation.ovid), one.first_ns),
                *(one.occurrence.byte_offset, one.occurrence.byte_length, one.observation.location_url),
            )
            for one in observed
        ]
        rows = [tuple(row.values()) for row in stored.observations.to_pylist()]
        assert sorted(rows) == sorted(expected)
        assert stored.decisions == {
            one.finding.finding_id: one.decision for one in observed if one.decision is not None
        }
