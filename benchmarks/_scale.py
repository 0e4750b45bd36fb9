"""A model of large scans into a lake in S3: time, requests, cost, memory and state; `docs/scale.md` has its tables.

Terms that this machine can show are read from the table of `benchmarks/lake.py` in `docs/benchmarks.md`: processor time
and state of an item, memory of processes at a million items. The rest are assumptions, named below with their values.
The model is checked against the next decade: terms of 100,000 items must foretell a million.

`python -m benchmarks._scale` writes the tables between the markers of the page.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks._page import PAGE, kept_sections
from strandline.pipeline.state import GATHERED_BYTES_MAX
from strandline.scan.inventory import CHUNK_ROWS as INVENTORY_ROWS
from strandline.scan.parted.part_planner import PART_ROWS_MAX, SPLITS
from strandline.scan.parted.parted_scan import FIRST_PARTS
from strandline.scan.plan.packed_batches import PLAIN_BYTES_MAX
from strandline.scan.run.manifest import CHUNK_ROWS as MANIFEST_ROWS
from strandline.scan.run.shard_cuts import SHARDS_MAX, SHARDS_PER_WORKER
from strandline.scan.sources.key_ranges import PROBES_AT_ONCE, PROBES_PER_PART
from strandline.scan.sources.objects import FETCHES_AT_ONCE
from strandline.scan.worker.fetcher import FETCH_ITEMS_MAX
from strandline.scan.worker.shard_scanner import PAGE_ITEMS_MAX, PAGE_S
from strandline.scan.workers import LARGE_ITEMS

SCALE_PAGE = Path("docs/scale.md")
MARKER = re.compile(r"(<!-- (\w+): written by benchmarks/_scale.py -->\n).*?(<!-- end -->)", re.DOTALL)
STEPS = ("plan", "work", "settle")
SMALL, LARGE = 100_000, 1_000_000
OBJECTS = (10**6, 10**7, 10**8, 10**9)
EXECUTORS = (2, 10, 100, 1_000)

CORES = 4
"""Of an executor; each has one Python worker."""
REQUEST_S = 0.02
"""A small request to S3, and one round of requests that are made side by side."""
LIST_S, LIST_KEYS = 0.1, 1_000
BATCHES_PER_S = 10
"""Batches of scanner state follow one another: each is a conditional put under the next number."""
START_S = 30.0
"""Of Spark and its workers, once for each scan."""
PUT_DOLLARS, GET_DOLLARS = 0.005 / 1_000, 0.0004 / 1_000
CORE_HOUR_DOLLARS = 0.05
READS_AT_ONCE = 16
PLAIN_ITEM_BYTES, ITEM_BYTES = 250, 90
"""Of an item in the task that plans its part, as it is and compressed: two digests, a name and a version."""
PLANNED_BYTES = 140
"""Of an item in the chunks of manifest and plan, which a part writes in batches of so many bytes."""
PAGE_BYTES = 400
"""Of a page that was not compacted, in a process that asks about the ledger or compacts it: its name, a few times."""


@dataclass(frozen=True)
class Terms:
    """What was measured: µs of processor time and bytes of state for an item, and memory of processes in MB."""

    cpu_us: dict[str, float]
    state_bytes: float
    driver_mb: float
    worker_mb: float


@dataclass(frozen=True)
class Scan:
    """What the model says of a scan."""

    seconds: dict[str, float]
    lists: float
    puts: float
    gets: float
    dollars: float
    driver_mb: float
    worker_mb: float
    state_gb: float

    @property
    def total_s(self) -> float:
        """Return the time of all steps."""
        return sum(self.seconds.values())

    @property
    def longest(self) -> str:
        """Return the step that takes longest."""
        return max(self.seconds, key=lambda step: self.seconds[step])


def terms_of(section: str, items: int) -> Terms:
    """Return the terms that a table of the benchmark has for so many items."""
    figures = {
        name.strip(): float(figure.replace(",", ""))
        for name, figure in re.findall(r"^\| ([^|]+) \| ([\d.,]+) \|", section, re.MULTILINE)
    }
    size = f"{items:,}"
    return Terms(
        {step: figures[f"{step}, an item of {size} (processor time)"] for step in (*STEPS, "rescan", "compaction")},
        figures[f"state of {size} items, compacted"],
        figures[f"memory of the driver with Java, which here holds the executors, {size} items"],
        figures[f"memory of the largest Python worker, {size} items"],
    )


def predict(large: Terms, objects: int, executors: int) -> Scan:
    """Return what the first scan of so many small objects in a bucket takes."""
    slots = executors * CORES
    parts, rounds = parts_of(objects)
    at_once = min(slots, parts)
    shards = min(SHARDS_MAX, SHARDS_PER_WORKER * slots)
    chunks = objects / MANIFEST_ROWS + 2 * max(parts, objects / INVENTORY_ROWS)
    batches = 2 * parts + objects * PLANNED_BYTES / GATHERED_BYTES_MAX
    pages = objects / items_of_a_page(large)
    end_reads = slots * shards
    cpu_s = {step: objects * large.cpu_us[step] / 1e6 for step in STEPS}
    seconds = {
        "start": START_S,
        "cut": (LARGE_ITEMS / LIST_KEYS + PROBES_PER_PART * FIRST_PARTS / PROBES_AT_ONCE) * LIST_S,
        "listing": max(objects / at_once, rounds * PART_ROWS_MAX) / LIST_KEYS * LIST_S,
        "plan": cpu_s["plan"] / at_once,
        "work": max(cpu_s["work"] / slots, objects * REQUEST_S / (slots * FETCHES_AT_ONCE)),
        "settle": cpu_s["settle"] / at_once,
        "scanner state": batches / BATCHES_PER_S,
        "end of the run": shards / READS_AT_ONCE * REQUEST_S,
    }
    probes = PROBES_PER_PART * (FIRST_PARTS + parts * SPLITS)
    lists = (LARGE_ITEMS + objects) / LIST_KEYS + probes + 2 * shards + slots * shards / LIST_KEYS
    puts = chunks + batches + 3 * pages + 3 * shards
    gets = objects + 6 * shards + end_reads + slots * pages / 100
    hours = sum(seconds.values()) / 3_600
    requests = (lists + puts) * PUT_DOLLARS + gets * GET_DOLLARS
    return Scan(
        seconds,
        lists,
        puts,
        gets,
        requests + hours * slots * CORE_HOUR_DOLLARS,
        _beyond(large.driver_mb, objects, PAGE_BYTES / items_of_a_page(large)),
        _beyond(large.worker_mb, objects, PAGE_BYTES / items_of_a_page(large)) + part_mb(objects),
        objects * large.state_bytes / 1e9,
    )


def parts_of(objects: int) -> tuple[int, int]:
    """Return the parts of a bucket whose first cut is even, and in how many rounds they are listed.

    A part ends behind so many objects, and what is left of it is cut into more for the next round.
    """
    parts = begun = min(FIRST_PARTS, max(1, objects // LIST_KEYS))
    rounds = 1
    while parts * PART_ROWS_MAX < objects:
        begun *= SPLITS
        parts, rounds = parts + begun, rounds + 1
    return min(parts, max(FIRST_PARTS, -(-objects // PART_ROWS_MAX))), rounds


def part_mb(objects: int) -> float:
    """Return the memory of the items of one part in the task that plans it."""
    rows = min(objects / parts_of(objects)[0], PART_ROWS_MAX)
    plain = min(rows, PLAIN_BYTES_MAX / PLAIN_ITEM_BYTES)
    return (plain * PLAIN_ITEM_BYTES + (rows - plain) * ITEM_BYTES) / 1e6


def items_of_a_page(terms: Terms) -> float:
    """Return how many fetched objects a worker commits together: what it does in a page's time, or one fetch."""
    each_s = max(terms.cpu_us["work"] / 1e6, REQUEST_S / FETCHES_AT_ONCE)
    return min(PAGE_ITEMS_MAX, max(FETCH_ITEMS_MAX, PAGE_S / each_s))


def checked(small: Terms, large: Terms) -> dict[str, tuple[float, float]]:
    """Return what the small terms foretell of the large size, and what was measured there."""
    return {step: (small.cpu_us[step] * LARGE / 1e6, large.cpu_us[step] * LARGE / 1e6) for step in small.cpu_us} | {
        "state": (small.state_bytes * LARGE / 1e6, large.state_bytes * LARGE / 1e6)
    }


def _beyond(large: float, objects: int, each_bytes: float) -> float:
    """Continue a measured memory in megabytes by what each object more takes; runs of the ledger are not in memory."""
    return large + max(0, objects - LARGE) * each_bytes / 1e6


def tables(section: str) -> dict[str, str]:
    """Return the tables of the page by their names."""
    small, large = terms_of(section, SMALL), terms_of(section, LARGE)
    return {
        "checked": "".join(_checked_rows(small, large)),
        "predicted": "".join(_predicted_rows(large)),
    }


def _checked_rows(small: Terms, large: Terms) -> Iterator[str]:
    yield f"| step | foretold from {SMALL:,} | measured at {LARGE:,} | measured / foretold |\n|---|---:|---:|---:|\n"
    for step, (foretold, measured) in checked(small, large).items():
        unit = "MB" if step == "state" else "s"
        yield f"| {step} | {foretold:,.1f} {unit} | {measured:,.1f} {unit} | {measured / foretold:.2f} |\n"


def _predicted_rows(large: Terms) -> Iterator[str]:
    columns = [
        "objects",
        "executors",
        "time",
        "longest",
        "LIST",
        "PUT",
        "GET",
        "cost",
        "a worker",
        "driver, compacting",
        "state",
    ]
    yield f"| {' | '.join(columns)} |\n|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|\n"
    for objects in OBJECTS:
        for executors in EXECUTORS:
            scan = predict(large, objects, executors)
            longest = f"{scan.longest}, {_time(scan.seconds[scan.longest])}"
            requests = f"{_count(scan.lists)} | {_count(scan.puts)} | {_count(scan.gets)}"
            memory = f"{scan.worker_mb / 1e3:,.1f} GB | {scan.driver_mb / 1e3:,.1f} GB | {scan.state_gb:,.1f} GB"
            sizes = f"{objects:,} | {executors:,} | {_time(scan.total_s)}"
            yield f"| {sizes} | {longest} | {requests} | {scan.dollars:,.2f} $ | {memory} |\n"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:,.1f} h"


def _count(requests: float) -> str:
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if requests >= size:
            return f"{requests / size:.1f} {name}"
    return f"{requests:.0f}"


def page(text: str, section: str) -> str:
    """Return the page with its tables as the benchmark's table makes them."""
    made = tables(section)
    return MARKER.sub(lambda match: f"{match[1]}\n{made[match[2]]}\n{match[3]}", text)


def main() -> None:
    """Write the tables of the page."""
    section = kept_sections(PAGE.read_text())["lake"]
    SCALE_PAGE.write_text(page(SCALE_PAGE.read_text(), section))


if __name__ == "__main__":
    main()
