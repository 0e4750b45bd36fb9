"""Copies between SQLite, PostgreSQL and lakes are exact, may be repeated and resumed, and never mix keys."""

import uuid
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import Conflict, InvalidInput
from strandline.objects import MemoryObjects, ObjectStore
from strandline.pipeline import copy as copy_module
from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.pipeline.coordination.record_store import Result
from strandline.pipeline.coordination.sqlite import SqliteRecords
from strandline.pipeline.copy import copy_state
from strandline.pipeline.copy_source import StateRows, with_rows
from strandline.pipeline.lake import database as lake_database
from strandline.pipeline.lake.compaction import Compaction
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.state import Put, parse_fence_key
from strandline.pipeline.stores import open_database, open_stores
from strandline.pipeline.tenant_keys import CHECK_KEY
from strandline.pipeline.triage import TriageState
from strandline.pipeline.verify import verify
from strandline.protocol.shards import Cursor, ParkReason, ShardRecord, ShardStatus
from strandline.testing.coordination_helpers import HALVES, NOW, RUN, WHOLE, begin, take
from strandline.testing.persistence_helpers import (
    ELSEWHERE,
    TENANT,
    WRITER,
    Location,
    after,
    batch_of,
    decision,
    done,
    found,
)
from tests.effort import Part, parts
from tests.pipeline.databases import databases
from tests.pipeline.lake.faulty import Killed, Mortal
from tests.scan.things import Things
from tests.scan.threaded_workers import made, request_for, scanned
from tests.servers_postgres import PostgresServer


def everything(address: str) -> dict[str, Any]:
    """Return all rows of a state with their times, but for fences in scanner state: not every store keeps them."""
    found_rows: dict[str, Any] = {}

    def look(rows: StateRows) -> None:
        for table in ("findings", "occurrences", "observations", "triage"):
            found_rows[table] = sorted(tuple(map(_plain, row)) for page in getattr(rows, table)() for row in page)
        found_rows["ledger"] = sorted(
            (*row[:3], bool(row[3]), *map(str, row[4:])) for page in rows.ledger() for row in page
        )
        found_rows["policies"] = sorted(rows.policies())
        found_rows["state"] = sorted(
            (tenant, bytes(key), bytes(value)) for tenant, key, value in rows.state() if parse_fence_key(key) is None
        )
        found_rows["runs"] = sorted(rows.runs())
        found_rows["shards"] = sorted(rows.shards())

    with open_database(address) as database:
        with_rows(database, look)
        assert verify(database, lambda _: None).problems == []
    return found_rows


def _plain(cell: object) -> object:
    return bytes(cell) if isinstance(cell, bytes | memoryview) else str(cell)


@pytest.fixture
def source(tmp_path: Path, things: Things) -> str:
    """A SQLite state with a scan, rows that had several statuses, two tenants, and a run with parts."""
    address = made(str(tmp_path / "from.db"))
    things.write({"a": "alpha_100", "b": "nothing", "c": "beta_200 alpha_300"})
    scanned(request_for(address, things))
    with open_stores(address) as stores:
        for status in (DoneStatus.FAILED_RETRYABLE, DoneStatus.SCANNED_PARTIAL, DoneStatus.SCANNED_CLEAN):
            row = done("grows", status)
            stores.ledger.batch_upsert([row], after=after([row]))
        for status in (DoneStatus.FAILED_RETRYABLE, DoneStatus.FAILED_PERMANENT):
            row = done("fails", status, WRITER._replace(fence=6))
            stores.ledger.batch_upsert([row], after=after([row]))
        mine = found("mine", location=Location(1, "place"))
        stores.findings.upsert_batch(batch_of(mine))
        stores.findings.upsert_batch(batch_of(found("theirs", writer=ELSEWHERE)))
        stores.triage.record_triage([decision(mine, TriageState.CONFIRMED)])
        stores.state.apply_batch(TENANT, [Put(b"large", b"v" * 100_000), Put(CHECK_KEY, b"c" * 32)])
        begin(stores.coordinator, WHOLE, WHOLE)
        (first, second) = stores.coordinator.list_shards(RUN)
        stores.coordinator.split_replace(NOW, take(stores.coordinator, first.key), HALVES, 11)
        stores.coordinator.park_shard(NOW, take(stores.coordinator, second.key), ParkReason.OTHER, 12)
    return address


def test_a_copy_has_every_row_and_so_has_the_copy_of_the_copy(
    source: str, tmp_path: Path, postgres_address: str
) -> None:
    wanted = everything(source)
    lake, back = f"file://{tmp_path}/lake", str(tmp_path / "back.db")
    counts = copy_state(source, lake)
    assert (counts["triage"], counts["shards"]) == (1, len(wanted["shards"]))
    assert everything(lake) == wanted
    copy_state(lake, postgres_address)
    assert everything(postgres_address) == wanted
    copy_state(postgres_address, back)
    assert everything(back) == wanted
    copy_state(source, lake)  # again: what is there is merged with itself
    assert everything(lake) == wanted


def test_a_lake_that_was_compacted_is_copied_the_same(source: str, tmp_path: Path) -> None:
    lake = f"file://{tmp_path}/lake"
    copy_state(source, lake)
    with lake_database.LakeDatabase(lake) as database:
        Compaction(database, grace_s=0).run()
        Compaction(database, grace_s=0).run()
        assert list(database.store.list("pages/")) == []
    copy_state(lake, str(tmp_path / "back.db"))
    assert everything(str(tmp_path / "back.db")) == everything(source)


@parts(15)
def test_a_copy_that_was_killed_is_finished_by_the_same_command(
    source: str, monkeypatch: pytest.MonkeyPatch, part: Part
) -> None:
    wanted = everything(source)
    opened: dict[str, ObjectStore] = {}
    monkeypatch.setattr(lake_database, "open_objects", lambda _: opened["store"])
    counted = opened["store"] = Mortal(MemoryObjects(), None)
    copy_state(source, "memory://")
    for number in part.of(range(1, counted.writes + 1)):
        store = MemoryObjects()
        opened["store"] = Mortal(store, number)
        with pytest.raises(Killed):
            copy_state(source, "memory://")
        opened["store"] = store
        copy_state(source, "memory://")
        assert everything("memory://") == wanted, f"killed at write {number}"


KINDS = ("sqlite", "postgres", "lake")


@pytest.mark.parametrize(("kind", "into"), list(permutations(KINDS, 2)))
def test_a_copy_between_any_two_that_was_killed_is_finished_exactly(
    source: str,
    kind: str,
    into: str,
    tmp_path: Path,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dies inside of writes, where the time of a row is asked for, and between them."""
    wanted = everything(source)
    dying = Dying(monkeypatch)
    with databases(postgres_server) as create:

        def fresh(store: str) -> str:
            name = f"copy{uuid.uuid4().hex}"
            return {
                "sqlite": lambda: str(tmp_path / f"{name}.db"),
                "postgres": lambda: create(name),
                "lake": lambda: f"file://{tmp_path}/{name}",
            }[store]()

        begin_at, counted = fresh(kind), fresh(into)
        copy_state(source, begin_at)
        steps = dying.count(lambda: copy_state(begin_at, counted, dying.step))
        assert steps > 20
        for quarter in (1, 2, 3):
            target = fresh(into)
            with pytest.raises(Killed):
                dying.at(quarter * steps // 4, partial(copy_state, begin_at, target, dying.step))
            copy_state(begin_at, target)
            assert everything(target) == wanted, f"killed at step {quarter * steps // 4} of {steps}"
        assert everything(begin_at) == wanted


class Dying:
    """Counts the steps of a copy, and kills it at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._steps = 0
        self._last: int | None = None
        now_ns = copy_module._CopyClock.now_ns  # noqa: SLF001 - asked for inside of writes

        def dying(clock: Any) -> int:  # noqa: ANN401 - the clock of a copy
            self.step()
            return now_ns(clock)

        monkeypatch.setattr(copy_module._CopyClock, "now_ns", dying)  # noqa: SLF001

    def count(self, copy: Callable[[], object]) -> int:
        """Return the number of steps of a whole copy."""
        self._steps, self._last = 0, None
        copy()
        return self._steps

    def at(self, step: int, copy: Callable[[], object]) -> None:
        """Kill a copy at a step."""
        self._steps, self._last = 0, step
        try:
            copy()
        finally:
            self._last = None

    def step(self, *_: object) -> None:
        """Count a step, which may be the last one."""
        self._steps += 1
        if self._steps == self._last:
            raise Killed


def test_results_under_another_key_are_not_mixed(source: str, tmp_path: Path) -> None:
    other = made(str(tmp_path / "other.db"))
    with open_stores(other) as stores:
        stores.state.apply_batch(TENANT, [Put(CHECK_KEY, b"d" * 32)])
    before = everything(other)
    with pytest.raises(Conflict, match="under another key"):
        copy_state(source, other)
    assert everything(other) == before
    with pytest.raises(InvalidInput, match="into itself"):
        copy_state(source, source)


def test_a_shard_that_is_over_in_the_target_stays_so(source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "to.db")
    with open_stores(source) as stores:
        shards = stores.coordinator.list_shards(RUN)
        key, start = next((one.key, one.spec.start or b"a") for one in shards if one.status == ShardStatus.ACTIVE)
        lease = take(stores.coordinator, key)
    copy_state(source, target)
    with open_stores(target) as stores:
        stores.coordinator.complete(NOW, lease, Cursor(start), 13)
    copy_state(source, target)
    with open_stores(target) as stores:
        assert stores.coordinator.get_shard(key).status == ShardStatus.DONE


def test_a_copy_that_is_killed_never_leaves_a_parent_without_its_parts(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: dict[str, ObjectStore] = {"store": MemoryObjects()}
    monkeypatch.setattr(lake_database, "open_objects", lambda _: opened["store"])
    source_shards: list[ShardRecord] = []
    with open_database(source) as database:
        with_rows(database, lambda rows: source_shards.extend(rows.shards()))
    counted = opened["store"] = Mortal(MemoryObjects(), None)
    copy_state(source, "memory://")
    for number in range(counted.writes - len(source_shards) - 2, counted.writes + 1):
        store = MemoryObjects()
        opened["store"] = Mortal(store, number)
        with pytest.raises(Killed):
            copy_state(source, "memory://")
        shards = {shard.shard for shard in ObjectRecords(store).list_shards(RUN, None, 100)}
        named = {part for one in source_shards if one.run == RUN.run and one.shard in shards for part in one.spawned}
        assert named <= shards, f"killed at write {number}"


def test_a_copy_of_a_lake_in_use_has_no_state_that_is_later_than_its_results(source: str, tmp_path: Path) -> None:
    lake = f"file://{tmp_path}/lake"
    copy_state(source, lake)
    seen: list[bytes] = []

    def look(rows: StateRows) -> None:
        with open_stores(lake) as stores:
            stores.state.apply_batch(TENANT, [Put(b"later", b"names what was found meanwhile")])
        seen.extend(key for _, key, _ in rows.state())

    with open_database(lake) as database:
        with_rows(database, look)
    assert b"large" in seen
    assert b"later" not in seen


def test_a_target_that_changes_while_it_is_copied_into_is_told(source: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteRecords, "commit", lambda *_: Result.CHANGED)
        with pytest.raises(Conflict, match="changed while it was copied"):
            copy_state(source, str(tmp_path / "to.db"))
