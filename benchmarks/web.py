"""`strandline ui` over 100,000 findings and 1,000 shards: first paint, filters, search, groups, memory.

The pages are asked over HTTP as a browser asks, one request after the other. The peer is the plain way to the same
answer: a query over the tables of the state, with their indexes, and `json.dumps` of its rows, in this process and
without HTTP. Each answer is checked against that of the tables before it is timed. First paint is a headless browser's,
from the request on; "cold" is that of a server whose findings are not read yet, and the goal is for the page that shows
findings: one that says that they are being read is no answer. Those rows are compared with those of the same page when
all findings are read. `FINDINGS=5000` is a quick run.
"""

import json
import os
import re
import sqlite3
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from playwright.sync_api import sync_playwright

from benchmarks._harness import Row, alone, compare, medians, report, scratch, show, sized
from strandline.clock import SystemClock
from strandline.protocol import InitialShard, RunKey, ShardSpec
from strandline.scan.state import open_state
from tests.browser import browser_path
from tests.web.sites import plant

FINDINGS = 100_000
SHARDS = 1_000
ROUNDS = 9
PAINT_GOAL_S = 1.0
ANSWER_GOAL_S = 0.1
PLACES = "FROM observations JOIN occurrences USING (tenant, occurrence_id) JOIN findings USING (tenant, finding_id)"
HIGH = "(location_url LIKE '%confidence=8%' OR location_url LIKE '%confidence=5%')"
GROUPS = f"SELECT hex(secret), count(DISTINCT finding_id) AS places, min(location_display) {PLACES} GROUP BY secret"
QUERIES = {
    "first page": ("/findings", f"SELECT finding_id, location_display {PLACES} ORDER BY location_display LIMIT 100"),
    "next page": (
        "/findings?first=50000",
        f"SELECT finding_id, location_display {PLACES} ORDER BY location_display LIMIT 100 OFFSET 50000",
    ),
    "filter by confidence": (
        "/findings?confidence=high",
        f"SELECT finding_id, location_display {PLACES} WHERE {HIGH} LIMIT 100",
    ),
    "search": (
        "/findings?q=billing+config",
        f"SELECT finding_id, location_display {PLACES} WHERE location_display LIKE '%billing%config%' LIMIT 100",
    ),
    "group by secret": (
        "/findings/secrets",
        f"{GROUPS} ORDER BY places DESC LIMIT 100",
    ),
}
COUNTS = {
    "first page": f"SELECT count(DISTINCT finding_id) {PLACES}",
    "filter by confidence": f"SELECT count(DISTINCT finding_id) {PLACES} WHERE {HIGH}",
    "search": f"SELECT count(DISTINCT finding_id) {PLACES} WHERE location_display LIKE '%billing%config%'",
    "group by secret": "SELECT count(DISTINCT secret) FROM findings",
}


class Pages:
    """A server of the pages in a child process, and a connection to it."""

    def __init__(self, state: Path) -> None:
        program = str(Path(sysconfig.get_path("scripts")) / "strandline")
        command = [program, "--no-config", "ui", "--state", str(state), "--json"]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        told = json.loads(self.child.stdout.readline())
        self.entry, self.address = str(told["entry"]), str(told["address"])
        self._headers = {"Authorization": f"Bearer {told['token']}"}
        self._netloc = str(urlsplit(self.address).netloc)

    def get(self, path: str) -> str:
        """Return a page; by a connection of its own, because the server ends idle ones while the peer is asked."""
        with closing(HTTPConnection(self._netloc)) as connection:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        assert answer.status == 200, f"{path}: {answer.status}"
        return text

    def wait(self) -> None:
        """Wait until the findings are read."""
        while any(mark in self.get("/findings") for mark in ("data-wait", "data-partial")):
            time.sleep(0.05)

    def megabytes(self) -> float:
        """Return the memory that the server holds."""
        return float(psutil.Process(self.child.pid).memory_info().rss) / 1e6

    def close(self) -> None:
        """End the server."""
        self.child.terminate()
        self.child.wait()


@contextmanager
def served(state: Path) -> Iterator[Pages]:
    """Serve the pages of a state for the block."""
    pages = Pages(state)
    try:
        yield pages
    finally:
        pages.close()


def seconds(work: Callable[[], object]) -> float:
    """Return how long something took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def total_of(text: str) -> int:
    """Return the number of rows that a page says it has."""
    found = re.search(r" of ([\d,]+)</span>", text)
    assert found is not None, "the page has no number of rows"
    return int(found[1].replace(",", ""))


def add_run(state: Path) -> None:
    """Begin a run of many shards."""
    with open_state(str(state)) as opened:
        key, now = RunKey(opened.tenant, 2), SystemClock().now_ns()
        shards = [InitialShard(n, ShardSpec(b"%06d" % n, b"%06d" % (n + 1))) for n in range(SHARDS)]
        opened.stores.coordinator.create_run(now, key, op_id=1)
        opened.stores.coordinator.register_shards(now, key, shards, op_id=2)


def answers(pages: Pages, database: sqlite3.Connection) -> Iterator[Row]:
    """Yield the figures of answers over HTTP, beside those of plain queries."""

    def plain(sql: str) -> str:
        rows: list[Any] = database.execute(sql).fetchall()
        return json.dumps(rows, default=bytes.hex)

    for name, sql in COUNTS.items():
        ours, theirs = total_of(pages.get(QUERIES[name][0])), database.execute(sql).fetchone()[0]
        assert ours == theirs, f"{name}: {ours} findings, but the tables have {theirs}"
    for name, (path, sql) in QUERIES.items():
        sides = [lambda path=path: seconds(lambda: pages.get(path)), lambda sql=sql: seconds(lambda: plain(sql))]
        ours_s, theirs_s = medians(ROUNDS, sides)
        yield compare(f"{name}, over HTTP", ours_s, "SQLite and json.dumps", theirs_s, "s", better="lower")
        yield alone(f"{name}, within its limit", ours_s, "s", better="lower", goal=ANSWER_GOAL_S)
    words = iter(f"/findings?q={number:05}" for number in range(ROUNDS))
    (ours_s,) = medians(ROUNDS, [lambda: seconds(lambda: pages.get(next(words)))])
    yield alone("search for other words each time", ours_s, "s", better="lower", goal=ANSWER_GOAL_S)
    for path, what in (("/runs", "list of runs"), ("/runs/2", f"map of {SHARDS:,} shards")):
        text = pages.get(path)
        assert path == "/runs" or text.count('class="cell ') == SHARDS, "the map has not all shards"
        (ours_s,) = medians(ROUNDS, [lambda path=path: seconds(lambda: pages.get(path))])  # type: ignore[misc]
        yield alone(what, ours_s, "s", better="lower", goal=ANSWER_GOAL_S)


def paints(state: Path) -> Iterator[Row]:
    """Yield first paint as a browser has it: of a server that has just started, and of one that has read."""
    path = browser_path()
    if path is None:
        return
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_context().new_page()

        def paint_s(address: str) -> float:
            page.goto(address)
            page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
            return float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")) / 1000

        page.goto("about:blank")
        with served(state) as pages:
            began = time.perf_counter()
            cold_s = paint_s(pages.entry.replace("/?", "/findings?"))
            page.wait_for_selector("[data-row]", timeout=600_000)
            filled_s = time.perf_counter() - began
            links = "all => all.map((one) => one.getAttribute('href'))"
            rows = page.locator("[data-row] .place a").evaluate_all(links)
            page.wait_for_selector(":not(:has([data-partial], [data-wait])) > #main", timeout=600_000)
            counted_s = time.perf_counter() - began
            assert rows == page.locator("[data-row] .place a").evaluate_all(links), "the first rows were others"
            (warm_s,) = medians(ROUNDS, [lambda: paint_s(pages.address + "/findings")])
        browser.close()
    yield alone("a page, cold", cold_s, "s", better="lower")
    yield alone("first page of findings shown, cold", filled_s, "s", better="lower", goal=PAINT_GOAL_S)
    yield alone("all findings read and counted, cold", counted_s, "s", better="lower")
    yield alone("first paint, read", warm_s, "s", better="lower", goal=PAINT_GOAL_S)


def main() -> None:
    """Plant the findings, check, measure, print."""
    findings = sized("FINDINGS", FINDINGS)
    with scratch() as folder:
        state = folder.resolve() / "state"
        plant(state, findings)
        add_run(state)
        rows = list(paints(state))
        database = sqlite3.connect(f"file:{state / 'pipeline.db'}?mode=ro", uri=True)
        with served(state) as pages:
            pages.wait()
            rows += answers(pages, database)
            rows.append(alone("memory of the server", pages.megabytes(), "MB", better="lower"))
            rows.append(alone("the same a finding", pages.megabytes() * 1e3 / findings, "KB", better="lower"))
        database.close()
    if findings == FINDINGS and "BENCH_SHOW" not in os.environ:
        report("web", rows)
    else:
        show("web", rows)


if __name__ == "__main__":
    main()
