"""Very many items: bytes of the driver's memory for each, and paths of more than 2 GiB together."""

from pathlib import Path

import pyarrow as pa
import pytest
from blake3 import blake3

from strandline.scan import inventory
from strandline.scan.plan import packed_batches
from strandline.scan.plan.packed_batches import PackedBatches
from strandline.scan.plan.planner import Plan
from strandline.scan.run.scan_run import begin_run, end_run
from strandline.scan.settle.outcome import settle
from strandline.scan.sources import VOUCHED, StatCache, row_index, source
from strandline.scan.sources.row_index import Chunk, RowIndex
from strandline.scan.worker.worker import work
from strandline.scan.workers import WorkerTask
from tests.scan.many import BROKEN, Many, peak_of, stat_of
from tests.scan.threaded_workers import made, plan_of, request_for, scanned

BYTES_MAX = 300
FEW, MANY = 6_000, 24_000
GIB = 1 << 30


class Peaks:
    """What the driver had at once, at the least: while it planned, settled, and planned again with nothing to do."""

    def __init__(self, folder: Path, count: int) -> None:
        request = request_for(made(str(folder / f"{count}.db")), Many(count))
        with request.open_stores() as stores:
            plan, self.planning, kept = peak_of(lambda: plan_of(stores, request))
            assert plan.todo_items == count
            run, _ = begin_run(stores, request, plan)
            work(WorkerTask(request, run.key, run.manifest.number, 1))
            assert end_run(stores, request, run)
            outcome, settling, _ = peak_of(
                lambda: settle(stores, request, plan, run_id=None, started_ns=0, is_new=lambda _: True)
            )
            assert outcome.is_whole
            assert outcome.new_items == count
            self.settling = kept + settling
            again, self.again, _ = peak_of(lambda: plan_of(stores, request))
            assert (again.todo_items, again.is_same) == (0, True)


@pytest.mark.timeout(600)
def test_the_driver_has_few_bytes_for_an_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some batches and chunks are unpacked at a time: small ones weigh the same for few items and for many.
    monkeypatch.setattr(source, "BATCH_ROWS", 2_000)
    monkeypatch.setattr(inventory, "CHUNK_ROWS", 2_000)
    monkeypatch.setattr(row_index, "LOADED_ROWS_MAX", 4_000)
    monkeypatch.setattr(packed_batches, "PLAIN_BYTES_MAX", 0)  # 16 MiB at most, however many items there are
    Peaks(tmp_path, 100)  # imports count once
    few, many = Peaks(tmp_path, FEW), Peaks(tmp_path, MANY)
    for name in ("planning", "settling", "again"):
        each = (getattr(many, name) - getattr(few, name)) / (MANY - FEW)
        print(f"{name}: {each:.0f} bytes an item")  # noqa: T201 - a figure to look at with -s
        assert each <= BYTES_MAX, f"{name}: {each:.0f} bytes an item"


def test_no_column_of_a_plan_is_longer_than_a_batch(tmp_path: Path) -> None:
    request = request_for(made(str(tmp_path / "state.db")), Many(25_000))
    with request.open_stores() as stores:
        plan: Plan = plan_of(stores, request)
    assert isinstance(plan.planned, PackedBatches)
    assert [len(batch) for batch in plan.planned] == [10_000, 10_000, 5_000]
    assert [len(batch) for batch in plan.todo()] == [10_000, 10_000, 5_000]


def test_packed_batches_take_no_more_memory_than_they_have_bytes() -> None:
    schema = pa.schema([("id", pa.binary(32))])
    batch = pa.record_batch([pa.array([blake3(b"%d" % at).digest() for at in range(10_000)], schema.types[0])], schema)

    def pack() -> PackedBatches:
        packed = PackedBatches(schema)
        for _ in range(5):
            packed.append(batch.slice(0, 9_000))
        return packed

    packed, _, kept = peak_of(pack)
    assert [len(one) for one in packed] == [9_000] * 5
    assert kept < 1.1 * 5 * 9_000 * 32, "digests cannot be compressed, and nothing is added"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_paths_of_more_than_two_gib_are_known_again() -> None:
    many = Many(600_000, 4_000)
    rows = 1_000

    def load(first: int) -> pa.Table:
        locators = [many.locator(number) for number in range(first, first + rows)]
        columns = [[0] * rows, locators, list(map(stat_of, locators)), [b"v"] * rows, [b"o" * 32] * rows]
        return pa.table(
            [pa.array(cells, kind) for cells, kind in zip(columns, VOUCHED.types, strict=True)], schema=VOUCHED
        )

    assert many.count * many.path_bytes > 2 * GIB
    chunks = [Chunk(rows, lambda first=first: load(first)) for first in range(0, many.count, rows)]  # type: ignore[misc]
    cache = StatCache([RowIndex(VOUCHED, chunks).rows])
    wanted = [many.locator(number) for number in range(0, many.count, 599)]
    stats = pa.array(list(map(stat_of, wanted)), pa.binary())
    versions, _ = cache.known(0, pa.array(wanted, pa.binary()), stats)
    assert versions.to_pylist() == [b"v"] * len(wanted)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_scan_of_paths_of_more_than_two_gib_ends_and_is_done_again_at_once(tmp_path: Path) -> None:
    request = request_for(made(str(tmp_path / "state.db")), Many(600_000, 4_000, BROKEN))
    first, again = scanned(request), scanned(request)
    assert (first.items, first.new_items, first.codes) == (600_000, 600_000, {BROKEN: 600_000})
    assert (again.items, again.new_items, again.codes) == (600_000, 0, {BROKEN: 600_000})
