"""Scans whose state is a lake: the rows of SQLite, whatever kills the scan and whichever store it is."""

from pathlib import Path

import pytest

from strandline.objects import MemoryObjects, ObjectStore
from strandline.pipeline.lake import database as lake_database
from strandline.pipeline.stores import open_stores
from strandline.pipeline.verify import verify
from strandline.protocol.runs import RunStatus
from strandline.protocol.shards import ShardStatus
from strandline.scan.run import scan_run
from strandline.scan.run.scan_run import all_shards
from tests.effort import Part, parts
from tests.pipeline.lake.faulty import Killed, Mortal
from tests.scan.things import Thing, Things
from tests.scan.threaded_workers import TENANT, ThreadWorkers, made, request_for, scanned
from tests.servers_seaweed import SeaweedServer
from tests.spark.rows import Rows, rows_of


@pytest.fixture
def corpus(things: Things) -> Things:
    """Some items with secrets, some without, and one that cannot be read."""
    named = {f"item-{number:02}": f"text {number}" for number in range(20)}
    things.write({**named, "a": "alpha_100 and beta_200", "b": "beta_300", "c": Thing(problem="SYMLINK")})
    return things


def rows_at(address: str) -> Rows:
    with open_stores(address) as stores:
        assert verify(stores.database, lambda _: None).problems == []
        return rows_of(stores, TENANT)


@pytest.fixture
def wanted(corpus: Things, tmp_path: Path) -> Rows:
    """The rows that SQLite has after the same scan."""
    address = made(str(tmp_path / "pipeline.db"))
    scanned(request_for(address, corpus))
    rows = rows_at(address)
    assert rows["findings"]
    assert len(rows["ledger"]) == 23
    return rows


def test_a_lake_has_every_row_that_sqlite_has(corpus: Things, wanted: Rows, tmp_path: Path) -> None:
    address = made(f"file://{tmp_path}/lake")
    scanned(request_for(address, corpus))
    assert rows_at(address) == wanted
    assert scanned(request_for(address, corpus)).worked.items == 0
    assert rows_at(address) == wanted


def test_a_lake_on_an_s3_server_has_every_row_that_sqlite_has(
    corpus: Things,
    wanted: Rows,
    seaweed_server: SeaweedServer,
    seaweed_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in seaweed_server.environ.items():
        monkeypatch.setenv(name, value)
    address = made(seaweed_address)
    scanned(request_for(address, corpus))
    assert rows_at(address) == wanted


@parts(6)
@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.long)], ids=["before", "after"])
def test_a_scan_that_is_killed_at_any_request_goes_on_and_ends_with_the_same_rows(
    corpus: Things, wanted: Rows, monkeypatch: pytest.MonkeyPatch, part: Part, *, after: bool
) -> None:
    opened: dict[str, ObjectStore] = {"store": MemoryObjects()}
    monkeypatch.setattr(lake_database, "open_objects", lambda _: opened["store"])
    monkeypatch.setattr(scan_run, "_PENDING_PATIENCE_S", 0.1)  # a driver that died while it registered shards is gone
    counted = opened["store"] = Mortal(MemoryObjects(), None)
    address = made("memory://")
    before = counted.writes
    scanned(request_for(address, corpus), ThreadWorkers(1))
    assert rows_at(address) == wanted
    writes = counted.writes - before
    assert writes > 15
    for number in part.of(range(1, writes + 1)):
        store = opened["store"] = MemoryObjects()
        address = made("memory://")
        opened["store"] = Mortal(store, number, after=after)
        request = request_for(address, corpus, lease_ttl_s=0.2)
        with pytest.raises(Killed):
            scanned(request, ThreadWorkers(1))
        opened["store"] = store
        scanned(request, ThreadWorkers(1))
        assert rows_at(address) == wanted, f"killed at write {number}"
        with open_stores(address) as stores:
            runs = stores.coordinator.list_runs(TENANT)
            assert [run for run in runs if not run.over] == []
            for run in (run for run in runs if run.status == RunStatus.DONE):
                assert {shard.status for shard in all_shards(stores.coordinator, run.key)} == {ShardStatus.DONE}
