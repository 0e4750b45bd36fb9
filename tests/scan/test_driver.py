"""A scan does what is left to do, once, and says what it comes to."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.detect import Limits, RuleSet
from strandline.errors import FormatError, InvalidInput
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.sql import SqliteDatabase
from strandline.scan.driver import scan
from strandline.scan.errors import EngineUnusable
from strandline.scan.events import Event, Planned
from strandline.scan.inventory import read_inventories
from strandline.scan.plan.planner import Reason
from strandline.scan.request import ScanRequest
from strandline.scan.settle.outcome import Outcome
from strandline.scan.sources import Content, FileSource
from strandline.scan.worker.content_scan import finds_any
from strandline.scan.workers import WorkerTask
from tests.scan.things import READS, Thing, Things
from tests.scan.threaded_workers import (
    RULES,
    TENANT,
    ThreadWorkers,
    made,
    on_each_look,
    plan_of,
    request_for,
    rule,
    scanned,
)
from tests.spark.rows import rows_of


def places(outcome: Outcome) -> list[str]:
    return sorted(one.observation.location_display or "" for one in outcome.findings)


def test_what_is_found_is_stored_once(things: Things, address: str) -> None:
    things.write({"a": "alpha_123 beta_456", "b": "nothing", "c": "alpha_123\nalpha_124"})
    outcome = scanned(request_for(address, things))
    assert outcome.statuses == {DoneStatus.SCANNED_CLEAN: 1, DoneStatus.SCANNED_WITH_FINDINGS: 2}
    assert places(outcome) == ["a:1:1", "a:1:11", "c:1:1", "c:2:1"]
    assert outcome.is_whole
    assert outcome.reasons == {Reason.NEW: 3}
    assert READS == {"a": 1, "b": 1, "c": 1}
    assert outcome.progress is not None
    assert outcome.progress.done.items == outcome.progress.items_todo == 3
    assert outcome.progress.done.findings == 4


@pytest.mark.parametrize("knows_versions", [False, True])
def test_a_second_scan_reads_nothing_and_asks_for_no_workers(
    tmp_path: Path, address: str, knows_versions: bool
) -> None:
    things = Things(tmp_path / "things.json", knows_versions=knows_versions)
    things.write({"a": "alpha_123", "b": "nothing", "c": Thing(problem="SYMLINK"), "d": Thing(fails="TOO_LARGE")})
    first = scanned(request_for(address, things))
    READS.clear()
    for _ in range(2):
        workers = ThreadWorkers()
        second = scanned(request_for(address, things), workers)
        assert workers.started == 0
        assert set(READS) <= {"d"}, "what could not be read is tried again, by the planner"
        assert [one.observation for one in second.findings] == [one.observation for one in first.findings]
        assert (second.statuses, second.codes) == (first.statuses, first.codes)
        assert second.reasons == {Reason.DONE: 4}


def test_a_changed_item_alone_is_scanned_again(things: Things, address: str) -> None:
    things.write({name: f"alpha_{number}" for number, name in enumerate(("a100", "b", "c"), 100)})
    scanned(request_for(address, things))
    things.write({"a100": "alpha_100", "b": "beta_777", "c": "alpha_102", "d": "alpha_103"})
    READS.clear()
    outcome = scanned(request_for(address, things))
    assert READS == {"b": 1, "d": 1}
    assert outcome.reasons == {Reason.DONE: 2, Reason.CHANGED: 1, Reason.NEW: 1}
    assert places(outcome) == ["a100:1:1", "b:1:1", "c:1:1", "d:1:1"]
    assert "beta" not in str(outcome.findings)


def test_a_touched_item_is_read_and_not_scanned_again(things: Things, address: str) -> None:
    things.write({"a": "alpha_100", "b": "nothing"})
    request = request_for(address, things)
    scanned(request)
    with request.open_stores() as stores:
        before = rows_of(stores, TENANT)
    things.write({"a": Thing("alpha_100", touched=1), "b": Thing("nothing", touched=1)})
    READS.clear()
    outcome = scanned(request)
    assert READS == {"a": 1, "b": 1}
    assert outcome.progress is not None
    assert outcome.progress.done.bytes == 0
    with request.open_stores() as stores:
        assert rows_of(stores, TENANT) == before
    READS.clear()
    workers = ThreadWorkers()
    assert places(scanned(request, workers)) == ["a:1:1"]
    assert (workers.started, READS) == (0, {})


def test_what_is_too_fresh_to_trust_is_read_again_by_the_planner(things: Things, address: str) -> None:
    things.write({"a": Thing("alpha_100", fresh=True), "b": Thing("nothing", fresh=True)})
    first = scanned(request_for(address, things))
    assert first.is_whole
    READS.clear()
    workers = ThreadWorkers()
    second = scanned(request_for(address, things), workers)
    assert (workers.started, READS) == (0, {"a": 1, "b": 1})
    assert places(second) == places(first) == ["a:1:1"]
    things.write({"a": Thing("alpha_100", fresh=True), "b": Thing("alpha_555", fresh=True)})
    assert places(scanned(request_for(address, things))) == ["a:1:1", "b:1:1"]


@pytest.mark.parametrize("fresh", [False, True])
def test_what_changes_after_it_was_listed_is_told_as_it_was_read(things: Things, address: str, fresh: bool) -> None:
    things.write({"a": "nothing", "b": "nothing"})

    class Later(ThreadWorkers):
        def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
            things.write({"a": Thing("alpha_123", fresh=fresh), "b": "nothing"})
            super().run(task, shards, poll)

    outcome = scanned(request_for(address, things), Later())
    assert (outcome.unseen, places(outcome)) == (0, ["a:1:1"])
    again = scanned(request_for(address, things), workers := ThreadWorkers())
    assert (workers.started, places(again)) == (int(fresh), ["a:1:1"])


def test_old_stat_data_never_vouch_for_what_was_read_later(things: Things, address: str) -> None:
    for thing, found in (
        (Thing("alpha_123"), ["a:1:1"]),
        (Thing("nothing", fresh=True), []),
        (Thing("alpha_123"), ["a:1:1"]),
    ):
        things.write({"a": thing, "b": "nothing"})
        assert places(scanned(request_for(address, things))) == found


def test_what_changes_between_two_looks_is_not_taken_for_what_it_was(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = Thing(parts=["gamma_100", "alpha_100"]), Thing(parts=["gamma_100"])
    things.write({"a": before})
    scanned(request_for(address, things))

    def looked_then_changed(*arguments: Any, **more: Any) -> bool:  # noqa: ANN401
        found = finds_any(*arguments, **more)
        things.write({"a": after})
        return found

    request = request_for(address, things, rules=RuleSet((*RULES.rules, rule("gamma"))))
    with monkeypatch.context() as patch:
        patch.setattr("strandline.scan.worker.item_scanner.finds_any", looked_then_changed)
        assert scanned(request).codes == {"CHANGED_WHILE_READ": 1}
    things.write({"a": before})
    assert places(scanned(request)) == ["a:1:1", "a:1:1"]


def test_a_scan_under_other_rules_meanwhile_says_nothing_of_ours(things: Things, address: str) -> None:
    things.write({"a": "alpha_123"})
    ours, theirs = (
        request_for(address, things, rules=RuleSet((rule("alpha"), rule(one)))) for one in ("beta", "gamma")
    )
    scanned(ours)

    class Meanwhile(list[Event]):
        """Lets another scan, which sees a new item, come between a plan with nothing to do and its end."""

        def append(self, event: Event) -> None:
            if isinstance(event, Planned):
                things.write({"a": "alpha_123", "b": "beta_456"})
                scanned(theirs)

    scanned(ours, events=Meanwhile())
    outcome = scanned(ours)
    assert outcome.reasons[Reason.DONE] == 1
    assert places(outcome) == ["a:1:1", "b:1:1"]


def test_what_failed_is_tried_again_and_what_cannot_be_read_is_told(things: Things, address: str) -> None:
    good: dict[str, Thing | str] = {"a": "alpha_100"}
    things.write({**good, "b": Thing(fails="IO_ERROR"), "c": Thing(fails="PERMISSION_DENIED")})
    outcome = scanned(request_for(address, things))
    assert outcome.codes == {"IO_ERROR": 1, "PERMISSION_DENIED": 1}
    assert outcome.statuses[DoneStatus.FAILED_RETRYABLE] == outcome.statuses[DoneStatus.FAILED_PERMANENT] == 1
    assert not outcome.is_whole
    assert [(note.path, note.code) for note in outcome.notes] == [("b", "IO_ERROR"), ("c", "PERMISSION_DENIED")]
    READS.clear()
    again = scanned(request_for(address, things))
    assert READS["b"] == 1
    assert again.codes == outcome.codes
    things.write({**good, "b": Thing("beta_100"), "c": Thing("beta_200")})
    last = scanned(request_for(address, things))
    assert last.is_whole
    assert places(last) == ["a:1:1", "b:1:1", "c:1:1"]


def test_an_item_that_vanishes_is_a_failure_of_that_item(things: Things, address: str) -> None:
    things.write({"a": "alpha_100", "b": "beta_100"})
    request = request_for(address, things)

    class Vanishing(ThreadWorkers):
        def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
            things.write({"a": "alpha_100"})
            super().run(task, shards, poll)

    outcome = scanned(request, Vanishing())
    assert outcome.codes == {"VANISHED": 1}
    assert places(outcome) == ["a:1:1"]
    assert scanned(request).is_whole


def test_what_the_engine_cannot_take_is_a_failure_of_that_item(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(content: Content) -> None:
        if content.size == 5:
            raise RecursionError("these words hold alpha_999")

    things.write({"a": "alpha_100", "b": "12345"})
    on_each_look(monkeypatch, breaks)
    outcome = scanned(request_for(address, things))
    assert outcome.codes == {"SCAN_ERROR:RecursionError": 1}
    assert places(outcome) == ["a:1:1"]
    monkeypatch.undo()
    assert scanned(request_for(address, things)).is_whole


def test_what_cannot_be_looked_at_together_is_looked_at_one_by_one(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise RecursionError

    things.write({"a": "alpha_100", "b": "nothing"})
    monkeypatch.setattr("strandline.detect.engine.Engine.suspects", breaks)
    outcome = scanned(request_for(address, things))
    assert (outcome.is_whole, places(outcome)) == (True, ["a:1:1"])


def test_an_engine_that_cannot_be_made_is_no_failure_of_any_item(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("alpha_123")

    things.write({"a": "alpha_123"})
    request = request_for(address, things, lease_ttl_s=0.2)
    with monkeypatch.context() as patch:
        patch.setattr("strandline.scan.worker.item_scanner.engine_for", broken)
        with pytest.raises(EngineUnusable, match=r"the rules could not be compiled: ValueError$"):
            scanned(request)
    assert scanned(request).is_whole


def test_parts_have_places_of_their_own(things: Things, address: str) -> None:
    things.write({"a": Thing(parts=["alpha_100", "nothing", "alpha_100 alpha_101"]), "b": "beta_100"})
    outcome = scanned(request_for(address, things))
    spans = sorted((one.occurrence.byte_offset, one.occurrence.byte_length) for one in outcome.findings)
    assert spans == [(0, 8), (0, 9), (2 << 32, 9), (2 << 32 | 10, 9)]
    assert len({one.finding.finding_id for one in outcome.findings}) == 3
    assert outcome.bytes_seen == 9 + 7 + 19 + 8


def test_what_a_comment_allows_is_counted_and_not_stored(things: Things, address: str) -> None:
    things.write({"a": "alpha_100 # strandline:allow\nbeta_100"})
    outcome = scanned(request_for(address, things))
    assert places(outcome) == ["a:2:1"]
    assert outcome.progress is not None
    assert outcome.progress.done.allowed == 1


def test_explaining_writes_nothing(things: Things, address: str) -> None:
    things.write({"a": "alpha_100", "b": Thing(problem="SYMLINK")})
    request = request_for(address, things)
    with request.open_stores() as stores:
        before = stores.sql.read(lambda connection: list(connection.execute("PRAGMA data_version")))
        plan = plan_of(stores, request)
        assert dict(plan.counts) == {Reason.NEW: 1, Reason.PROBLEM: 1}
        assert plan.todo_bytes == 9
        assert rows_of(stores, TENANT) == {"findings": [], "occurrences": [], "observations": [], "ledger": []}
        assert stores.coordinator.list_runs(TENANT) == []
        assert stores.sql.read(lambda connection: list(connection.execute("PRAGMA data_version"))) == before
    assert READS == {}


def test_several_sources_are_one_scan(tmp_path: Path, address: str) -> None:
    one, other = Things(tmp_path / "one.json", "one"), Things(tmp_path / "other.json", "other")
    one.write({"a": "alpha_100"})
    other.write({"a": "alpha_100", "b": "beta_100"})
    outcome = scanned(request_for(address, one, other))
    assert places(outcome) == ["a:1:1", "a:1:1", "b:1:1"]
    assert len({one.finding.item for one in outcome.findings}) == 3
    request = request_for(address, one, other)
    with request.open_stores() as stores:
        (inventory,) = read_inventories(stores.state, TENANT)
        items = pa.concat_tables(inventory.items(stores.state, TENANT))
    assert items["path"].to_pylist() == [b"a", b"a", b"b"]
    assert items["source"].to_pylist() == [0, 1, 1]
    assert [source.name for source in inventory.sources] == ["one", "other"]


def test_nothing_to_scan_is_an_outcome(things: Things, address: str) -> None:
    things.write({})
    for _ in range(2):
        outcome = scanned(request_for(address, things))
        assert (outcome.items, outcome.is_whole, outcome.findings) == (0, True, [])


def test_files_are_scanned_where_they_are(tmp_path: Path, address: str) -> None:
    root = tmp_path / "tree"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "a.txt").write_text("alpha_100")
    (root / "link").symlink_to("folder/a.txt")
    outcome = scanned(request_for(address, FileSource.at(root)))
    assert places(outcome) == ["folder/a.txt:1:1"]
    assert outcome.codes == {"SYMLINK": 1}
    workers = ThreadWorkers()
    again = scanned(request_for(address, FileSource.at(root)), workers)
    assert (workers.started, again.codes) == (0, {"SYMLINK": 1})


def test_the_same_item_under_other_rules_and_limits_is_looked_at_again(things: Things, address: str) -> None:
    things.write({"a": "alpha_100"})
    scanned(request_for(address, things))
    READS.clear()
    outcome = scanned(request_for(address, things, limits=Limits(decode_depth=1)))
    assert READS == {"a": 1}
    assert places(outcome) == ["a:1:1"]


def test_a_state_of_a_later_version_is_refused(things: Things, tmp_path: Path) -> None:
    things.write({"a": "alpha_100"})
    address = made(str(tmp_path / "later.db"))
    with SqliteDatabase(Path(address)) as database:
        database.write(
            lambda connection: connection.execute(
                "INSERT INTO schema_migrations SELECT max(version) + 1, 'later', zeroblob(32), 0 FROM schema_migrations"
            )
        )
    with pytest.raises(FormatError, match="schema version"):
        scanned(request_for(address, things))


def test_a_request_without_sources_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="nothing to scan"):
        request_for(address)


def test_a_request_shows_neither_key_nor_address(things: Things) -> None:
    request = ScanRequest((things,), RULES, TENANT, request_for("x", things).key, "postgresql://u:password@h/d")
    assert "password" not in repr(request)
    assert "kkkk" not in repr(request)


def test_little_work_is_done_in_this_process_with_the_same_rows(tmp_path: Path, things: Things) -> None:
    things.write({f"item {number:03}": f"alpha_{number:03}" for number in range(40)})
    rows = []
    for name, run in (("threads", scanned), ("here", scan)):
        request = request_for(made(str(tmp_path / f"{name}.db")), things)
        outcome = run(request)
        assert (outcome.items, len(outcome.findings)) == (40, 40)
        with request.open_stores() as stores:
            rows.append(rows_of(stores, TENANT))
    assert rows[0] == rows[1]
