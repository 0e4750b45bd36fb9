"""The model of scale: its page is what it writes, a growing scan costs more, and the next decade is foretold."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks._page import PAGE, kept_sections
from benchmarks._scale import (
    ITEM_BYTES,
    LARGE,
    MARKER,
    PAGE_BYTES,
    PLAIN_ITEM_BYTES,
    SCALE_PAGE,
    SMALL,
    Terms,
    checked,
    items_of_a_page,
    page,
    part_mb,
    parts_of,
    predict,
    terms_of,
)
from strandline.scan.parted.part_planner import PART_ROWS_MAX
from strandline.scan.plan.packed_batches import PLAIN_BYTES_MAX, PackedBatches
from strandline.scan.plan.planner import PLANNED
from strandline.scan.sources.listing_parts import SplitSource
from strandline.scan.sources.objects import ObjectSource
from strandline.scan.worker.fetcher import FETCH_ITEMS_MAX

ROOT = Path(__file__).parent.parent
STEPS = ("plan", "work", "settle", "rescan", "compaction")
MANY = Terms(dict.fromkeys(STEPS, 20.0), 80.0, 590.0, 290.0)


def section() -> str:
    return kept_sections((ROOT / PAGE).read_text())["lake"]


def test_the_page_has_the_tables_that_the_benchmark_makes() -> None:
    text = (ROOT / SCALE_PAGE).read_text()
    assert {match[2] for match in MARKER.finditer(text)} == {"checked", "predicted"}
    assert page(text, section()) == text, "run python -m benchmarks._scale"


def test_what_a_hundred_thousand_items_foretell_of_a_million_is_near_what_was_measured() -> None:
    """A step that grew with the square of the items would be ten times what was foretold."""
    for step, (foretold, measured) in checked(terms_of(section(), SMALL), terms_of(section(), LARGE)).items():
        assert measured < 4 * foretold, step


def test_memory_grows_by_the_items_of_a_part_and_the_names_of_pages_and_not_by_the_ledger() -> None:
    assert part_mb(LARGE) == pytest.approx(PLAIN_ITEM_BYTES * LARGE / 256 / 1e6)
    plain = PLAIN_BYTES_MAX / PLAIN_ITEM_BYTES
    assert part_mb(10**9) == pytest.approx((PLAIN_BYTES_MAX + ITEM_BYTES * (PART_ROWS_MAX - plain)) / 1e6)
    assert predict(MANY, LARGE, 1).worker_mb == pytest.approx(290 + part_mb(LARGE))
    more = predict(MANY, 11 * LARGE, 1)
    names_mb = 10 * PAGE_BYTES * LARGE / FETCH_ITEMS_MAX / 1e6
    assert more.worker_mb == pytest.approx(290 + part_mb(11 * LARGE) + names_mb)
    assert more.driver_mb == pytest.approx(590 + names_mb)


def test_an_item_of_a_part_takes_as_much_as_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 10_000
    columns = {
        "locator": [b"lake/2026/part-%09d/object" % at for at in range(count)],
        "version": [os.urandom(16).hex().encode() for _ in range(count)],
        "size": [200 + at % 5_000 for at in range(count)],
        **{name: [os.urandom(32) for _ in range(count)] for name in ("item", "ovid")},
        **{name: [False] * count for name in ("weak", "is_sure", "pending", "parked", "is_new")},
        **{name: [0] * count for name in ("source", "base")},
    }
    cells = [pa.array(columns.get(one.name, [None] * count), one.type) for one in PLANNED]
    batch = pa.record_batch(cells, PLANNED)
    assert 0.7 * PLAIN_ITEM_BYTES < batch.nbytes / count < 1.1 * PLAIN_ITEM_BYTES
    monkeypatch.setattr("strandline.scan.plan.packed_batches.PLAIN_BYTES_MAX", 0)
    packed = PackedBatches(PLANNED)
    packed.append(batch)
    size = sum(map(len, packed._packed))  # noqa: SLF001 - the bytes that it holds
    assert 0.7 * ITEM_BYTES < size / count < 1.1 * ITEM_BYTES


def test_executors_shorten_all_that_is_done_in_parts() -> None:
    one, ten = predict(MANY, 10**8, 1), predict(MANY, 10**8, 10)
    for step in ("listing", "plan", "work", "settle"):
        assert ten.seconds[step] == pytest.approx(one.seconds[step] / 10), step
    for step in ("cut", "scanner state"):
        assert ten.seconds[step] == one.seconds[step], step
    assert one.seconds["plan"] == one.seconds["settle"] == pytest.approx(10**8 * 20e-6 / 4)
    assert one.seconds["listing"] == pytest.approx(10**8 / 1_000 * 0.1 / 4)
    many = predict(MANY, 10**8, 1_000)
    assert many.seconds["plan"] == pytest.approx(10**8 * 20e-6 / 500), "each part is one task's"
    assert many.seconds["listing"] == pytest.approx(2 * 200_000 / 1_000 * 0.1), "one part after the other is begun"
    assert ten.gets > one.gets > 10**8
    assert one.dollars > (one.lists + one.puts) * 5e-6 + one.gets * 4e-7


def test_a_bucket_is_cut_again_while_it_is_listed_as_the_model_says() -> None:
    assert issubclass(ObjectSource, SplitSource)
    assert parts_of(5_000) == (5, 1)
    assert parts_of(10**7) == (256, 1)
    assert parts_of(10**8) == (500, 2)
    assert parts_of(10**9) == (5_000, 3)


def test_pages_of_fetched_objects_are_as_large_as_a_fetch_or_what_a_second_brings() -> None:
    """Requests of 20 ms, 8 at once, bring 400 objects a second; a fetch has a thousand."""
    assert items_of_a_page(MANY) == FETCH_ITEMS_MAX == 1_000
    assert predict(MANY, 10**9, 10).puts > 3 * 10**9 / FETCH_ITEMS_MAX
