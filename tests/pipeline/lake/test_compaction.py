"""Compaction: wherever it is killed, and whoever reads, writes or compacts beside it, nothing is lost or doubled."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.clock import ManualClock
from strandline.errors import Damaged
from strandline.objects import MemoryObjects, ObjectStore
from strandline.objects.contracts import Object
from strandline.pipeline.lake import LakeDatabase, compaction, ledger_fold, ledger_runs
from strandline.pipeline.lake.columns import LEDGER, TABLES, format_files, ledger_rows, ledger_table, parse_parquet
from strandline.pipeline.lake.compaction import Compaction
from strandline.pipeline.lake.compaction_records import format_record, parse_record
from strandline.pipeline.lake.delta_log import DeltaLog, TableAltered, TableVersion, format_commit_key, parse_commit_key
from strandline.pipeline.lake.layout import format_log_prefix
from strandline.pipeline.lake.state_log import SNAPSHOT_EVERY
from strandline.pipeline.lake.stores import LakeStores, open_lake
from strandline.pipeline.ledger import DoneStatus
from strandline.pipeline.state import Put
from strandline.pipeline.triage import TriageState
from strandline.testing.persistence_helpers import (
    OTHER_POLICY,
    POLICY,
    TENANT,
    WRITER,
    after,
    batch_of,
    decision,
    done,
    found,
)
from tests.effort import Part, parts
from tests.pipeline.lake.faulty import Killed, Mortal

CLOCK = ManualClock()


def lake_over(store: ObjectStore) -> LakeDatabase:
    return LakeDatabase("memory://", store=store, clock=CLOCK)


def write_some(lake: LakeStores, names: str, fence: int = 5) -> None:
    """Write pages under two policies: some rows again, by another worker, and some for the first time."""
    for policy in (POLICY, OTHER_POLICY):
        writer = WRITER._replace(policy=policy, fence=fence)
        rows = [done(name, DoneStatus.SCANNED_CLEAN, writer) for name in names]
        lake.ledger.batch_upsert(rows, after=after(rows))
        secrets = [found(name, writer=writer, seen_at=fence) for name in names]
        lake.findings.upsert_batch(batch_of(*secrets))
    lake.findings.record_triage([decision(found(names[0]), TriageState.REVOKED)])


def everything(store: ObjectStore) -> dict[str, Any]:
    """Return all rows of a lake, as a reader that begins now sees them."""
    cache = open_lake(lake_over(store)).cache
    tables = cache.findings()
    return {
        "ledger": [ledger_rows(cache.ledger(*scope).table(), "") for scope in cache.scopes()],
        "times": [cache.ledger(*scope).table().select(["ovid", "clean_ns"]).to_pylist() for scope in cache.scopes()],
        "findings": sorted(tables.findings.values()),
        "occurrences": sorted(tables.occurrences.values()),
        "observations": sorted(tables.observations.values()),
        "first_ns": dict(tables.first_ns),
        "triage": {key: sorted(events.values()) for key, events in tables.triage.items()},
    }


def filled() -> tuple[MemoryObjects, dict[str, Any]]:
    """Return a lake with a table, and pages that it does not have yet."""
    store = MemoryObjects()
    lake_over(store).migrate()
    write_some(open_lake(lake_over(store)), "abc")
    Compaction(lake_over(store)).run()
    CLOCK.advance(1)
    write_some(open_lake(lake_over(store)), "bcd", fence=6)
    return store, everything(store)


def pages_of(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list("pages/")]


def test_what_is_compacted_reads_as_before_and_pages_go_after_the_grace_period() -> None:
    store, before = filled()
    assert len(before["ledger"][0]) == 4
    first = Compaction(lake_over(store)).run()
    assert (first.pages, first.rows["ledger"], first.rows["findings"]) == (5, 8, 4)
    assert everything(store) == before
    assert pages_of(store)
    done_now = Compaction(lake_over(store), grace_s=0).run()
    assert (done_now.pages, pages_of(store)) == (0, [])
    assert everything(store) == before
    files = {info.key for info in store.list("tables/") if "_delta_log" not in info.key}
    assert files == {key for name in TABLES for key in open_lake(lake_over(store)).cache.data_files(name)}


@parts(16)
@pytest.mark.parametrize("after_it", [pytest.param(False, marks=pytest.mark.long), True], ids=["before", "after"])
def test_a_compaction_that_is_killed_at_any_request_loses_and_doubles_nothing(part: Part, *, after_it: bool) -> None:
    store, _ = filled()
    counted = Mortal(store, None)
    Compaction(lake_over(counted), grace_s=0).run()
    assert counted.writes > 20
    for number in part.of(range(1, counted.writes + 1)):
        store, before = filled()
        with pytest.raises(Killed):
            Compaction(lake_over(Mortal(store, number, after=after_it)), grace_s=0).run()
        assert everything(store) == before, f"killed at write {number}"
        Compaction(lake_over(store), grace_s=0).run()
        assert everything(store) == before, f"killed at write {number}, and finished"
        assert pages_of(store) == []


@parts(16)
def test_writers_readers_and_a_second_compactor_beside_each_request_change_nothing(part: Part) -> None:
    """Between any two writes of one compaction another one runs to its end, and a page is written."""
    store, _ = filled()
    counted = Mortal(store, None)
    Compaction(lake_over(counted)).run()
    for number in part.of(range(1, counted.writes + 1)):
        store, _ = filled()
        reader = open_lake(lake_over(store)).cache
        reader.findings()

        class Interrupted(Mortal):
            def _written(self, write: Any, at: int = number, store: MemoryObjects = store) -> str:  # noqa: ANN401
                if self.writes + 1 == at:
                    write_some(open_lake(lake_over(store)), "xy", fence=7)
                    Compaction(lake_over(store), grace_s=0).run()
                return super()._written(write)

        Compaction(lake_over(Interrupted(store, None)), grace_s=0).run()
        wanted, _ = filled()
        write_some(open_lake(lake_over(wanted)), "xy", fence=7)
        assert everything(store)["ledger"] == everything(wanted)["ledger"], f"beside write {number}"
        assert everything(store)["observations"] == everything(wanted)["observations"]
        assert sorted(reader.findings().findings.values()) == everything(wanted)["findings"]
        assert ledger_rows(reader.ledger(TENANT, POLICY).table(), "") in everything(wanted)["ledger"]


def test_a_ledger_that_is_larger_than_memory_should_hold_is_folded_into_the_same_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In runs and ranges of a few rows, and files of a few: the rows that are there, each once, in order."""
    whole, before = filled()
    Compaction(lake_over(whole)).run()
    files = [info.key for info in whole.list("tables/ledger/") if "_delta_log" not in info.key]
    for name, rows in (("RUN_ROWS", 2), ("RUNS_MAX", 2)):
        monkeypatch.setattr(ledger_fold, name, rows)
    for name, rows in (("MEMORY_ROWS_MAX", 1), ("MERGE_ROWS", 2)):
        monkeypatch.setattr(ledger_runs, name, rows)
    store, _ = filled()
    Compaction(lake_over(store)).run()
    times = [row["clean_ns"] for row in before["times"][0]]
    assert len(set(times)) > 1
    assert everything(store)["ledger"] == before["ledger"]
    assert len([info for info in store.list("tables/ledger/") if "_delta_log" not in info.key]) == len(files)
    monkeypatch.setattr(compaction, "FILE_ROWS", 3)
    write_some(open_lake(lake_over(store)), "efgh", fence=8)
    done_now = Compaction(lake_over(store), grace_s=0).run()
    assert done_now.rows["ledger"] == 16
    assert [len(rows) for rows in everything(store)["ledger"]] == [8, 8]
    names = open_lake(lake_over(store)).cache.data_files("ledger")
    assert len(names) == 6, "files of three rows"
    for name in names:
        found_file = store.get(name)
        assert found_file is not None
        keys = parse_parquet(found_file.body, LEDGER, name)["ovid"].to_pylist()
        assert keys == sorted(set(keys))


def test_files_are_the_same_however_their_rows_are_cut_into_tables() -> None:
    rows = [done(f"{at:03}", DoneStatus.SCANNED_CLEAN, WRITER) for at in range(100)]
    table = ledger_table(rows, 5)
    whole = list(format_files([table], LEDGER, 30))
    assert [count for _, count in whole] == [30, 30, 30, 10]
    for cut in (1, 7, 30, 64):
        assert list(format_files([table.slice(at, cut) for at in range(0, 100, cut)], LEDGER, 30)) == whole
    assert pa.concat_tables(parse_parquet(body, LEDGER, "") for body, _ in whole) == table


def test_tables_of_older_versions_are_read_and_folded_on() -> None:
    """Files with dictionaries where deltas are today, and row groups of another size."""
    store, before = filled()
    for name in open_lake(lake_over(store)).cache.data_files("ledger"):
        found_file = store.get(name)
        assert found_file is not None
        sink = pa.BufferOutputStream()
        rows = parse_parquet(found_file.body, LEDGER, name)
        repeated = ["tenant", "policy", "error_code", "run_id", "shard_id", "fence", "status"]
        pq.write_table(rows, sink, compression="zstd", use_dictionary=repeated, row_group_size=1 << 17)
        store.put(name, sink.getvalue().to_pybytes())
    assert everything(store) == before
    Compaction(lake_over(store)).run()
    assert everything(store) == before


def test_others_read_the_tables(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/lake"
    with LakeDatabase(address, clock=CLOCK) as database:
        database.migrate()
        write_some(open_lake(database), "abc")
        Compaction(database).run()
        write_some(open_lake(database), "bcd", fence=6)
        Compaction(database).run()
        rows = everything(database.store)
    folder = tmp_path / "lake" / "tables"
    for name in TABLES:
        table = DeltaTable(str(folder / name))
        assert table.version() == 1
        frame = table.to_pandas()
        assert list(frame.columns) == TABLES[name].names
    assert len(DeltaTable(str(folder / "findings")).to_pandas()) == len(rows["findings"]) == 4
    engine = duckdb.connect()
    engine.register("ledger", DeltaTable(str(folder / "ledger")).to_pyarrow_dataset())
    query = "SELECT hex(policy), status, count(*), sum(bytes_seen) FROM ledger GROUP BY ALL ORDER BY 1"
    assert [row[1:] for row in engine.execute(query).fetchall()] == [(10, 4, 400), (10, 4, 400)]
    seen = DeltaTable(str(folder / "observations")).to_pyarrow_table()
    assert sorted(seen["observation_id"].to_pylist()) == sorted(row.observation_id for row in rows["observations"])


def test_a_table_that_another_tool_has_written_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/lake"
    with LakeDatabase(address, clock=CLOCK) as database:
        database.migrate()
        write_some(open_lake(database), "abc")
        Compaction(database).run()
    folder = str(tmp_path / "lake" / "tables" / "ledger")
    write_deltalake(folder, DeltaTable(folder).to_pyarrow_table().slice(0, 1), mode="overwrite")
    with LakeDatabase(address) as database:
        with pytest.raises(TableAltered, match="version 1 was written by") as refused:
            open_lake(database).ledger.list_done_hashes(TENANT, POLICY)
        assert "delete the commits from that version on" in str(refused.value.hint)
        write_some(open_lake(database), "d")  # what workers do goes on
        with pytest.raises(TableAltered):
            Compaction(database, grace_s=0).run()
        database.store.delete(format_commit_key("ledger", 1))
        assert len(open_lake(database).ledger.list_done_hashes(TENANT, POLICY)) == 4
        database.store.delete(format_commit_key("ledger", 0))
        database.store.put(format_commit_key("ledger", 3), b"{}")
        with pytest.raises(TableAltered, match="removed"):
            open_lake(database).ledger.list_done_hashes(TENANT, POLICY)


class Forgetful(MemoryObjects):
    """Says of the first so many reads of a first commit that it is not there."""

    missing = 0
    reads = 0

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        if key != format_commit_key("ledger", 0):
            return super().get(key, start=start, stop=stop)
        self.reads += 1
        return None if self.reads <= self.missing else super().get(key, start=start, stop=stop)


def test_a_first_commit_that_is_listed_and_cannot_be_read_is_damage_after_a_few_looks() -> None:
    store = Forgetful()
    assert DeltaLog(store, "ledger").commit(TableVersion(), [], [], 1) == 0
    store.missing, store.reads = 2, 0
    assert DeltaLog(store, "ledger").latest().version == 0
    store.missing, store.reads = 1_000_000, 0
    with pytest.raises(Damaged, match="says that it is not there") as refused:
        DeltaLog(store, "ledger").latest()
    assert "cache or proxy" in str(refused.value.hint)
    assert store.reads == 3


def test_old_batches_and_values_of_scanner_state_go_and_the_state_stays() -> None:
    clock = ManualClock()
    store = MemoryObjects(clock=clock)
    database = LakeDatabase("memory://", store=store, clock=clock)
    database.migrate()
    state = open_lake(database).state
    for number in range(2 * SNAPSHOT_EVERY + 1):
        state.apply_batch(TENANT, [Put(b"key", b"%d" % number * 2_000), Put(b"%d" % number, b"")])
    everything_before = state.list_range(TENANT, b"\x00", b"\xff", 10_000)
    assert Compaction(database, grace_s=0).run().deleted == 0  # a reader may still need them
    clock.advance(7 * 86_400)
    assert Compaction(database).run().deleted > 2 * SNAPSHOT_EVERY
    assert len(list(store.list(format_log_prefix(TENANT)))) == SNAPSHOT_EVERY + 1
    assert open_lake(database).state.list_range(TENANT, b"\x00", b"\xff", 10_000) == everything_before


def test_a_value_that_was_just_replaced_stays_for_a_reader_that_is_about_to_read_it() -> None:
    clock = ManualClock()
    store = MemoryObjects(clock=clock)
    database = LakeDatabase("memory://", store=store, clock=clock)
    database.migrate()
    log = open_lake(database).state.log(TENANT)
    open_lake(database).state.apply_batch(TENANT, [Put(b"key", b"old" * 2_000)])
    clock.advance(7 * 86_400)
    value = log.read(lambda fold: fold.get(b"key"))
    open_lake(database).state.apply_batch(TENANT, [Put(b"key", b"new" * 2_000)])
    Compaction(database, grace_s=0).run()
    assert log.fetch([value]) == [b"old" * 2_000]
    clock.advance(7 * 86_400)
    assert Compaction(database, grace_s=0).run().deleted == 1


def test_a_file_of_a_compaction_that_was_killed_is_left_to_another_that_deletes_it() -> None:
    clock = ManualClock()
    store = MemoryObjects(clock=clock)
    database = LakeDatabase("memory://", store=store, clock=clock)
    database.migrate()
    write_some(open_lake(database), "abc")
    with pytest.raises(Killed):  # the data file of the first table is written, and not committed
        Compaction(LakeDatabase("memory://", store=Mortal(store, 2), clock=clock)).run()
    (orphan,) = (info.key for info in store.list("tables/"))
    clock.advance(2 * 86_400)
    Compaction(database, grace_s=86_400).run()
    before = everything(store)
    store.delete(orphan)  # as another compaction does that has listed it before
    assert everything(store) == before


def test_files_that_were_replaced_stay_for_the_grace_period_without_a_record_too() -> None:
    clock = ManualClock()
    store = MemoryObjects(clock=clock)
    database = LakeDatabase("memory://", store=store, clock=clock)
    database.migrate()
    write_some(open_lake(database), "abc")
    Compaction(database).run()
    replaced = open_lake(database).cache.data_files("findings")
    clock.advance(7 * 86_400)
    write_some(open_lake(database), "bcd", fence=6)
    with pytest.raises(Killed):  # the new file is committed, and nothing recorded
        Compaction(LakeDatabase("memory://", store=Mortal(store, 2, after=True), clock=clock)).run()
    assert open_lake(database).cache.data_files("findings") != replaced
    store.put("tables/findings/of another tool.txt", b"")
    Compaction(database).run()
    assert all(store.head(key) for key in replaced)
    clock.advance(2 * 86_400)
    Compaction(database).run()
    assert not any(store.head(key) for key in replaced)
    assert store.head("tables/findings/of another tool.txt")


def test_records_and_names_come_back() -> None:
    assert parse_record(format_record(["a"], ["b"]), "x") == {"pages": ["a"], "replaced": ["b"]}
    assert parse_commit_key(format_commit_key("ledger", 12)) == 12
    assert parse_commit_key("tables/ledger/_delta_log/_last_checkpoint") is None


@pytest.mark.parametrize("skew_s", [-10 * 365 * 86_400, 10 * 365 * 86_400], ids=["behind", "ahead"])
def test_workers_and_compactions_whose_clocks_are_wrong_lose_nothing_and_delete_nothing_early(skew_s: int) -> None:
    """Times of commits are those of the writers, the first one of a row counts; what may go is by the store's clock."""
    store, _ = filled()
    wrong = ManualClock(CLOCK.now_ns())
    wrong.advance(skew_s)
    skewed = LakeDatabase("memory://", store=store, clock=wrong)
    write_some(open_lake(skewed), "cde", fence=7)
    before, pages = everything(store), pages_of(store)
    assert [len(rows) for rows in before["ledger"]] == [5, 5]
    assert Compaction(skewed).run().deleted == 0
    assert pages_of(store) == pages
    assert everything(store) == before
    Compaction(skewed, grace_s=0).run()
    assert pages_of(store) == []
    assert everything(store) == before
