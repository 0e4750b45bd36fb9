"""Lakes and what is not one: errors that say what to do, and nothing written."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from strandline.errors import Damaged, FormatError, InvalidInput
from strandline.objects import ConditionsIgnored, LocalObjects, MemoryObjects, StoreRefused
from strandline.objects.contracts import Buffer
from strandline.pipeline.findings import FindingsBatch
from strandline.pipeline.lake import ForeignPrefix, LakeDatabase, ListRefused, MarkerMissing
from strandline.pipeline.lake import database as lake_database
from strandline.pipeline.lake.compaction import Compaction
from strandline.pipeline.lake.layout import MARKER, format_log_prefix, format_pages_prefix, format_values_prefix
from strandline.pipeline.lake.state_log import INLINE_BYTES_MAX
from strandline.pipeline.policy import Policy
from strandline.pipeline.state import Put
from strandline.pipeline.stores import NoPipeline, open_stores
from strandline.pipeline.verify import verify
from strandline.testing.coordination_helpers import WHOLE, begin
from strandline.testing.persistence_helpers import POLICY, TENANT, after, batch_of, done, found, scope_of, writer_of


def lake_at(folder: Path) -> str:
    address = f"file://{folder}/lake"
    with LakeDatabase(address) as database:
        database.migrate()
    return address


def test_a_prefix_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "report.csv").write_text("a,b\n")
    with pytest.raises(ForeignPrefix, match=r"report\.csv") as refused:
        lake_at(tmp_path)
    assert "a prefix of its own" in str(refused.value.hint)
    assert [one.name for one in (tmp_path / "lake").iterdir() if one.is_file()] == ["report.csv"]
    with pytest.raises(NoPipeline):
        open_stores(f"file://{tmp_path}/lake")


@pytest.mark.parametrize("name", ["2024.csv", "_delta_log/readme.json", "part-0.parquet"])
def test_tables_of_another_are_not_taken_for_those_of_a_lake(tmp_path: Path, name: str) -> None:
    file = tmp_path / "lake" / "tables" / "findings" / name
    file.parent.mkdir(parents=True)
    file.write_text("a,b\n")
    with pytest.raises(ForeignPrefix):
        lake_at(tmp_path)


def test_a_lake_of_a_later_format_is_left_alone(tmp_path: Path) -> None:
    address = lake_at(tmp_path)
    (tmp_path / "lake" / MARKER).write_text('{"strandline": "pipeline", "format": 2, "created_ns": 1}')
    with pytest.raises(FormatError, match="format 2"):
        open_stores(address, migrate=True)
    (tmp_path / "lake" / MARKER).write_text("{}")
    with pytest.raises(ForeignPrefix):
        open_stores(address, migrate=True)


class Careless(MemoryObjects):
    """Ignores conditions, like a store that does not know the header."""

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        del if_absent, if_match
        return super().put(key, body, metadata=metadata)


def test_a_store_without_conditional_writes_is_refused_before_anything_is_kept() -> None:
    store = Careless()
    with pytest.raises(ConditionsIgnored):
        LakeDatabase("memory://", store=store).migrate()
    assert list(store.list()) == []


def test_without_the_right_to_list_it_says_which_right_is_missing() -> None:
    store = MemoryObjects()
    store.faults.fail("list", StoreRefused("s3://bucket/prefix", "access denied"))
    with pytest.raises(ListRefused, match="cannot be listed") as refused:
        LakeDatabase("s3://bucket/prefix", store=store).migrate()
    assert "s3:ListBucket" in str(refused.value.hint)


def test_a_lake_that_may_not_be_listed_any_more_is_refused_before_anything_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryObjects()
    monkeypatch.setattr(lake_database, "open_objects", lambda _: store)
    with LakeDatabase("memory://") as database:
        database.migrate()
    before = [info.key for info in store.list()]
    store.faults.fail("list", StoreRefused("memory://", "access denied"))
    with pytest.raises(ListRefused, match="cannot be listed") as refused:
        open_stores("memory://")
    assert "s3:ListBucket" in str(refused.value.hint)
    assert [info.key for info in store.list()] == before


@pytest.mark.parametrize("kept", ["pages/", "coordination/", "state/", "policies/", "tables/", "compaction/"])
def test_a_lake_whose_marker_was_deleted_is_not_taken_for_other_data(tmp_path: Path, kept: str) -> None:
    """Whatever else is left of it: nothing is written, and with its marker it is what it was."""
    address, row = lake_at(tmp_path), found()
    with open_stores(address) as stores:
        begin(stores.coordinator, WHOLE)
        stores.policies.register_policy(TENANT, Policy({"a": {"pattern": "a"}}, {}, [], "1").record)
        stores.findings.upsert_batch(batch_of(row))
        stores.state.apply_batch(TENANT, [Put(b"key", b"value")])
    with LakeDatabase(address) as database:
        Compaction(database).run()
    store = LocalObjects(tmp_path / "lake")
    objects = {info.key: store.get(info.key) for info in store.list()}
    for key in objects:
        if not key.startswith(kept):
            store.delete(key)
    left = [info.key for info in store.list()]
    assert left
    with pytest.raises(MarkerMissing, match="deleted in part") as refused:
        open_stores(address, migrate=True)
    assert MARKER in str(refused.value.hint)
    assert [info.key for info in store.list()] == left
    for key, stored in objects.items():
        if stored is not None and key not in left:
            store.put(key, stored.body)
    with open_stores(address) as stores:
        assert stores.state.multi_get(TENANT, [b"key"]) == [b"value"]
        assert stores.reads.history(TENANT, row.finding.finding_id) is not None


def test_a_data_file_that_was_deleted_is_damage_for_readers_compactions_and_verify(tmp_path: Path) -> None:
    address = lake_at(tmp_path)
    with open_stores(address) as stores:
        stores.ledger.batch_upsert([done("a")], after=after([done("a")]))
    with LakeDatabase(address) as database:
        Compaction(database, grace_s=0).run()
        (gone,) = (info.key for info in database.store.list("tables/ledger/") if info.key.endswith(".parquet"))
        database.store.delete(gone)
    with open_stores(address) as stores, pytest.raises(Damaged, match=r"\.parquet"):
        stores.ledger.list_done_hashes(TENANT, POLICY)
    with open_stores(address) as stores:
        stores.ledger.batch_upsert([done("b")], after=after([done("b")]))  # what workers do goes on
    with LakeDatabase(address) as database:
        with pytest.raises(Damaged, match=r"\.parquet"):
            Compaction(database, grace_s=0).run()
        assert {problem.table for problem in verify(database, lambda _: None).problems} == {"storage"}
        assert list(database.store.list("pages/ledger/"))


def test_two_commands_that_make_a_lake_at_once_make_one(tmp_path: Path) -> None:
    assert lake_at(tmp_path) == lake_at(tmp_path)


def test_a_half_deleted_prefix_is_damage_that_verify_tells(tmp_path: Path) -> None:
    address = lake_at(tmp_path)
    row = found()
    with open_stores(address) as stores:
        stores.findings.upsert_batch(FindingsBatch(scope_of(writer_of(row.observation)), [row.finding]))
        stores.findings.upsert_batch(
            FindingsBatch(scope_of(writer_of(row.observation)), [], [row.occurrence], [row.observation])
        )
        stores.ledger.batch_upsert([done("a")], after=after([done("a")]))
    with LakeDatabase(address) as database:
        assert verify(database, lambda _: None).problems == []
        (first, *_) = sorted(database.store.list(format_pages_prefix("findings")), key=lambda info: info.modified)
        database.store.delete(first.key)
    with open_stores(address) as stores, pytest.raises(Damaged, match="objects below pages/ were deleted"):
        stores.reads.counts_by_policy(TENANT)
    with open_stores(address) as stores:
        assert stores.ledger.list_done_hashes(TENANT, POLICY) == [done("a").ovid]  # what is there is still read
    with LakeDatabase(address) as database:
        problems = verify(database, lambda _: None).problems
    assert {problem.table for problem in problems} == {"storage"}


def test_verify_reads_every_value_of_scanner_state(tmp_path: Path) -> None:
    address = lake_at(tmp_path)
    with open_stores(address) as stores:
        stores.state.apply_batch(TENANT, [Put(b"small", b"1"), Put(b"large", b"v" * (INLINE_BYTES_MAX + 1))])
    with LakeDatabase(address) as database:
        whole = verify(database, lambda _: None)
        assert (whole.rows["scanner_state"], whole.problems) == (2, [])
        (value,) = database.store.list(format_values_prefix(TENANT))
        database.store.delete(value.key)
        (problem,) = verify(database, lambda _: None).problems
        assert (problem.table, problem.rows) == ("scanner_state", 1)
        assert problem.problem.startswith(f"{database.store.address}: {value.key}: a value of scanner state is gone")
        (batch,) = database.store.list(format_log_prefix(TENANT))
        database.store.put(batch.key, b"other")
    with LakeDatabase(address) as database:
        (problem,) = verify(database, lambda _: None).problems
        assert batch.key in problem.problem


def test_an_object_that_is_no_page_is_told_by_its_name(tmp_path: Path) -> None:
    address = lake_at(tmp_path)
    store = LocalObjects(tmp_path / "lake")
    store.put(format_pages_prefix("ledger") + "00/part-0000.parquet", b"PAR1")
    with open_stores(address) as stores, pytest.raises(Damaged, match=r"part-0000\.parquet"):
        stores.ledger.list_done_hashes(TENANT, POLICY)


def test_a_page_that_is_cut_off_is_told_by_its_name(tmp_path: Path) -> None:
    address = lake_at(tmp_path)
    with open_stores(address) as stores:
        stores.findings.upsert_batch(batch_of(found()))
    store = LocalObjects(tmp_path / "lake")
    (page,) = store.list(format_pages_prefix("findings"))
    whole = store.get(page.key)
    assert whole is not None
    store.put(page.key, whole.body[:-20])
    with open_stores(address) as stores, pytest.raises(Damaged, match="no longer whole"):
        stores.reads.counts_by_policy(TENANT)


def test_what_only_a_database_can_do_is_refused_with_the_way_there(tmp_path: Path) -> None:
    with open_stores(lake_at(tmp_path)) as stores, pytest.raises(InvalidInput, match="lake") as refused:
        _ = stores.sql
    assert "pipeline copy" in str(refused.value.hint)
