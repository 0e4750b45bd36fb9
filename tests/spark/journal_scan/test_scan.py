"""A streaming scan of a journal: findings, ledger and cursor are one, and Spark's checkpoint is nothing."""

import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline.clock import SystemClock
from strandline.detect import Limits, RuleSet, expand, load_builtin
from strandline.errors import InvalidInput
from strandline.journal import Journal, JournalConfig
from strandline.pipeline.pages import FoundSecret
from strandline.pipeline.stores import open_stores
from strandline.scan.inventory import read_inventories
from strandline.scan.request import ScanRequest
from strandline.scan.sources import FileSource, JournalSource
from strandline.scan.sources.journals import BLOCK_OFFSETS
from strandline.scan.worker.content_scan import scan_content
from strandline.scan.worker.engine_cache import engine_for
from strandline.spark.journal_scan.blocks import ROWS, BlockScanner, merge_block_parts, scan_blocks
from strandline.spark.journal_scan.scan import (
    JournalScan,
    JournalTaken,
    RunChain,
    format_position,
    parse_position,
    scan_journal,
)
from strandline.spark.journals import read_journal
from tests.effort import examples
from tests.servers_spark import ROOT
from tests.spark.journal_scan.child import KEY, request_for
from tests.waiting import PATIENCE_S

RULES: RuleSet = load_builtin()


def line(seed: int) -> bytes:
    return expand("GITHUB_TOKEN={{github-crc32:ghp_}}", str(seed)).encode()


def append(path: Path, count: int, *, secrets_every: int = 500) -> None:
    """Append records, some of them with a secret in value or key."""
    with Journal.open(path, JournalConfig(segment_bytes_max=1 << 20)) as journal:
        begin = journal.next_offset
        numbers = range(begin, begin + count)
        values = [line(n) if n % secrets_every == 7 else b"value %d" % n for n in numbers]
        keys = [line(n) if n % secrets_every == 11 else b"key %d" % n for n in numbers]
        journal.append(values, keys=keys)


def found_by_blocks(path: Path) -> list[FoundSecret]:
    """Return what a bounded scan of the journal finds."""
    source = JournalSource.at(path)
    engine = engine_for(RULES, Limits(), KEY)
    with source.open() as reader:
        locators = [locator for batch in source.list_items(lambda _: None) for locator in batch["locator"].to_pylist()]
        looks = [scan_content(engine, source, reader.read(locator, None), lambda: None) for locator in locators]
    return [found for look in looks for found in sorted(look.scanned.found, key=lambda one: one.start)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a journal that no test changes."""
    folder = tmp_path_factory.mktemp("journals") / "j"
    append(folder, 3000)
    return folder


@pytest.fixture
def request_of(tmp_path: Path) -> ScanRequest:
    append(tmp_path / "j", 3000)
    address = str(tmp_path / "pipeline.db")
    open_stores(address, migrate=True).close()
    return replace(request_for(str(tmp_path / "j"), address), lease_ttl_s=2 * PATIENCE_S)


def stored(request: ScanRequest) -> list[tuple[bytes, int, str | None]]:
    """Return finding, span and place of all that is stored."""
    with request.open_stores() as stores:
        rows = stores.reads.observed(request.tenant, request.policy_hash)
    places = ((row.occurrence.byte_offset, row.observation.location_display) for row in rows)
    return sorted((row.finding.finding_id, *place) for row, place in zip(rows, places, strict=True))


def listed(request: ScanRequest) -> list[tuple[int, int]]:
    """Return the parts that the inventory lists, each of which has its row in the ledger."""
    with request.open_stores() as stores:
        (inventory,) = read_inventories(stores.state, request.tenant)
        items = pa.concat_tables(inventory.items(stores.state, request.tenant))
        rows = stores.ledger.batch_get(request.tenant, request.policy_hash, items["ovid"].to_pylist())
    assert None not in rows
    bounds = [version.split(b":") for version in items["version"].to_pylist()]
    return [(int(first), int(next_)) for _, first, next_, _ in bounds]


def places(path: Path) -> list[str]:
    return sorted((found.location_display or "") for found in found_by_blocks(path))


@given(cuts=st.lists(st.integers(1, 2999), max_size=6))
@examples(10)
def test_parts_of_any_cut_are_together_what_a_bounded_scan_finds(path: Path, cuts: list[int]) -> None:
    (batch,) = read_journal(str(path), rows_per_batch=10_000)
    bounds = sorted({0, *cuts, batch.num_rows})
    parts = [batch.slice(a, b - a) for a, b in pairwise(bounds)]
    scanner = BlockScanner(JournalSource.at(path), RULES, Limits(), KEY)
    rows = pa.Table.from_batches(scan_blocks(scanner, parts)).to_pylist()
    parts = merge_block_parts(rows[::-1])
    assert [(part.first, part.next) for part in parts] == [(0, 1024), (1024, 2048), (2048, 3000)]
    assert [found for part in parts for found in part.found] == found_by_blocks(path)
    assert sum(part.sums["records"] for part in parts) == 3000


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_positions_sort_as_offsets_do(a: int, b: int) -> None:
    assert parse_position(format_position(a)) == a
    assert (format_position(a) < format_position(b)) == (a < b)


def test_offsets_that_are_missing_are_a_gap() -> None:
    summary = dict.fromkeys(ROWS.names, 0) | {"first": 10, "next": 20, "records": 7}
    (part,) = merge_block_parts([{**summary, "rule": None}])
    assert part.scanned().gaps.members_skipped == 3


def test_a_streaming_scan_stores_what_a_bounded_one_finds_and_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, request_of: ScanRequest
) -> None:
    with scan_journal(spark, request_of, records_per_trigger=2 * BLOCK_OFFSETS) as scan:
        assert scan.wait(PATIENCE_S)
    assert scan.offset == 3000
    first = stored(request_of)
    assert sorted(place or "" for _, _, place in first) == places(tmp_path / "j")
    assert len(first) == 12
    append(tmp_path / "j", 1000)
    with scan_journal(spark, request_of) as again:
        assert again.offset == 3000
        assert again.wait(PATIENCE_S)
    assert (again.offset, again.totals.items) == (4000, 2), "only what is new"
    assert {finding for finding, _, _ in stored(request_of)} > {finding for finding, _, _ in first}
    assert len(stored(request_of)) == 16
    assert listed(request_of) == [(0, 1024), (1024, 2048), (2048, 3000), (3000, 3072), (3072, 4000)]
    with scan_journal(spark, request_of) as nothing:
        assert nothing.wait(PATIENCE_S)
    assert (nothing.offset, nothing.totals.items) == (4000, 0)
    database = (tmp_path / "pipeline.db").read_bytes()
    assert not any(line(seed).split(b"=")[1] in database for seed in (7, 11, 507))


def test_a_batch_that_failed_before_its_commit_is_scanned_by_the_next(
    spark: SparkSession, request_of: ScanRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(JournalScan, "_commit", _failing(after=1))
        with (
            pytest.raises(PySparkException, match="stopped here"),
            scan_journal(spark, request_of, records_per_trigger=BLOCK_OFFSETS) as scan,
        ):
            scan.wait(PATIENCE_S)
    assert scan.offset == BLOCK_OFFSETS
    with scan_journal(spark, request_of) as rest:
        assert rest.offset == BLOCK_OFFSETS
        assert rest.wait(PATIENCE_S)
    assert len(stored(request_of)) == 12


_commit = JournalScan._commit  # noqa: SLF001 - the step that is made to fail


def _failing(after: int) -> object:
    count = [0]

    def commit(scan: JournalScan, parts: list[object]) -> None:
        count[0] += 1
        if count[0] > after:
            raise RuntimeError("stopped here")
        _commit(scan, parts)  # type: ignore[arg-type]

    return commit


class LaterClock(SystemClock):
    """Tells a time at which every lease of now is over."""

    def now_ns(self) -> int:
        return super().now_ns() + 3600 * 10**9


def test_a_driver_whose_lease_is_over_commits_nothing_more(
    spark: SparkSession, tmp_path: Path, request_of: ScanRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scan_journal(spark, request_of, follow=True) as old:
        while old.offset < 3000:
            assert not old.wait(0.2)
        monkeypatch.setattr(old._shard, "renew", lambda: None)  # noqa: SLF001 - as if the process were frozen
        with monkeypatch.context() as later:
            later.setattr("strandline.spark.journal_scan.scan.SystemClock", LaterClock)
            with scan_journal(spark, request_of) as new:
                assert new.wait(PATIENCE_S)
        monkeypatch.setattr(old._shard, "_ends_ns", 0)  # noqa: SLF001 - by its own clock as well
        append(tmp_path / "j", 100)
        with pytest.raises(PySparkException, match=r"StaleFence|LeaseExpired"):
            old.wait(PATIENCE_S)
    assert old.offset == 3000
    with scan_journal(spark, request_of) as last:
        assert last.wait(PATIENCE_S)
    assert last.offset == 3100


@pytest.mark.long
def test_a_killed_scan_is_gone_on_with_and_finds_the_same(
    spark: SparkSession, tmp_path: Path, request_of: ScanRequest
) -> None:
    command = [sys.executable, "-m", "tests.spark.journal_scan.child", str(tmp_path / "j"), request_of.address]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=5 * PATIENCE_S)
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]
    with scan_journal(spark, request_of, records_per_trigger=BLOCK_OFFSETS) as scan:
        assert scan.offset == BLOCK_OFFSETS, "the second page is not done"
        assert scan.wait(PATIENCE_S)
    other = replace(request_of, address=str(tmp_path / "undisturbed.db"))
    open_stores(other.address, migrate=True).close()
    with scan_journal(spark, other, records_per_trigger=BLOCK_OFFSETS) as scan:
        assert scan.wait(PATIENCE_S)
    assert stored(request_of) == stored(other)
    assert len(stored(other)) == 12


def test_a_scan_that_is_at_work_keeps_others_out(request_of: ScanRequest) -> None:
    with request_of.open_stores() as stores:
        source = request_of.sources[0]
        assert isinstance(source, JournalSource)
        held = RunChain(stores, request_of, source).take()
        short = ScanRequest(request_of.sources, RULES, request_of.tenant, KEY, request_of.address, lease_ttl_s=0.01)
        with pytest.raises(JournalTaken):
            RunChain(stores, short, source).take()
        assert held.is_held


def test_a_scan_that_died_between_its_shard_and_its_run_keeps_nobody_out(request_of: ScanRequest) -> None:
    source = request_of.sources[0]
    assert isinstance(source, JournalSource)
    with request_of.open_stores() as stores:
        RunChain(stores, request_of, source).take().complete()
        chain = RunChain(stores, request_of, source)
        held = chain.take()
        assert held.is_held
        chain.end(held)


def test_a_remote_session_is_refused(request_of: ScanRequest) -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InvalidInput, match="Spark Connect"):
        scan_journal(remote, request_of)


def test_only_one_journal_is_taken(spark: SparkSession, tmp_path: Path, request_of: ScanRequest) -> None:
    files = ScanRequest((FileSource.at(tmp_path / "j"),), RULES, request_of.tenant, KEY, request_of.address)
    with pytest.raises(InvalidInput, match="one journal"):
        scan_journal(spark, files)
