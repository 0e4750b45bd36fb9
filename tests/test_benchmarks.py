"""The page of the benchmarks: each table says when it was run and of which commit, and a run replaces only its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._harness import Result, Run, alone, compare, format_result, parse_result, this_run
from benchmarks._page import PAGE, kept_sections, page
from benchmarks._scans import MadeItems
from strandline.scan.sources.listing_parts import list_part, listing_parts

ROOT = Path(__file__).parent.parent
RUN = re.compile(
    r"^\nRun on \d{4}-\d\d-\d\d at commit `([0-9a-f]{7,}|unknown)(, changed)?`, on .*Python .*\.\n\n\| benchmark \|"
)
FOLD = Result(
    Run("2026-01-02", "1234567", "2 cores, Python 3.11.7"),
    [compare("settle", 2.0, "SQLite", 1.0, "rows/s", goal=1.5), alone("load", 0.5, "s", better="lower", goal=1)],
)


def test_every_table_of_the_page_says_when_it_was_run_and_of_which_commit() -> None:
    tables = kept_sections((ROOT / PAGE).read_text())
    assert {"broker", "fold", "journal", "spark"} <= set(tables)
    assert not [component for component, text in tables.items() if not RUN.match(text)]


def test_a_result_is_read_as_it_was_written() -> None:
    assert parse_result(format_result(FOLD)) == FOLD
    assert parse_result("[]") is None, "one that an earlier version wrote does not say when"


def test_a_run_replaces_its_own_table_and_leaves_the_others() -> None:
    before = (ROOT / PAGE).read_text()
    after = page({"fold": FOLD}, before)
    old, new = kept_sections(before), kept_sections(after)
    assert {component for component in new if new[component] != old.get(component)} == {"fold"}
    assert "Run on 2026-01-02 at commit `1234567`, on 2 cores, Python 3.11.7." in new["fold"]
    assert "| settle | 2 | 1 | rows/s | 2.00 | 1.5, met | SQLite |" in new["fold"]
    assert page({}, after) == after


def test_the_page_is_what_is_written_without_new_results() -> None:
    before = (ROOT / PAGE).read_text()
    assert page({}, before) == before


@pytest.mark.parametrize("count", [1, 7, 25_000])
def test_the_parts_of_made_items_are_the_whole_listing_in_order(count: int) -> None:
    source = MadeItems(count)
    whole = [name for batch in source.list_items(lambda _: None) for name in batch.column("locator").to_pylist()]
    for asked in (1, 3, 256):
        parts = listing_parts(source, asked)
        names = [
            name
            for part in parts
            for batch in list_part(source, part, lambda _: None)
            for name in batch.column("locator").to_pylist()
        ]
        assert names == whole
        assert len(parts) >= min(asked, count) // 2
    assert len(whole) == count


def test_a_run_names_its_day_and_commit() -> None:
    run = this_run()
    assert RUN.match(f"\nRun on {run.day} at commit `{run.commit}`, on {run.machine}.\n\n| benchmark |")


@pytest.mark.long
@pytest.mark.parametrize(("component", "size"), [("stores", "KEYS"), ("wire", "MESSAGES"), ("kv", "KEYS")])
def test_a_quick_run_shows_a_table_and_keeps_nothing(component: str, size: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{component}"],
        cwd=tmp_path,
        env=os.environ | {size: "2000", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert f"{component} on " in done.stdout
    assert not list(tmp_path.glob(".bench/*.json"))
