"""Writes `docs/benchmarks.md` from results, each with the day and the commit of its run; `make bench` calls it.

Invariant: a table whose component has no result here is kept as it is on the page, with its own day and commit.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks._harness import RESULTS, Result, Row, figure, parse_result

PAGE = Path("docs/benchmarks.md")
INTRODUCTION = """# Benchmarks

`make bench` runs them all and writes this page; `make bench ONLY=journal` runs one, and writes its table. Each table
says when it was run, and of which commit. Ours and the peer's are measured in the same run, interleaved, and each
figure is a median of several rounds; results are read back and checked before a figure counts. `ratio` is oriented so
that larger is better. A goal is for the ratio, or for the figure itself where there is no peer.
"""

SHORTFALLS = """
## What stands in the way of the goals that are missed

- **Eight durable producers, 3 times RocksDB.** They settle into two halves that take turns, so a commit carries four
  appends of the eight that wait; and each time the committing thread gives up the interpreter's lock for the disk, it
  gets it back only after the producers that were woken. Two commits in flight, acknowledged in order, would overlap
  their fsyncs, as eight bare `writev` and `fdatasync` do.
- **A row of the ledger as dear at a million rows as at ten thousand.** Keys are digests, so ten thousand new ones fall
  on nearly as many pages of the index once it is large, and each page is written to the log whole: the plain INSERT
  grows more. On PostgreSQL the same shows in the look-up of the keys (13 to 35 ms for 10,000) and in the COPY itself.
  A log-structured table would be flat; a B-tree of random keys is not.
- **The whole scan as fast as Kingfisher on two cores.** The engine alone has 0.81 of Kingfisher's speed on one core.
  It had 1.16, on other trees, before it read more forms of files; it finds five times as much as then in code without
  planted secrets. One pass of the prefilter over many files leaves one in twenty to be scanned alone. Of the
  processor time of a scan without Spark, about 45 % is the engine, a quarter reading, hashing and identities, a tenth
  commits and a tenth plan and settle. On Spark, each worker imports for half a second, and about two seconds go by in
  any first job. Kingfisher keeps no ledger.
- **A rescan 20 times faster.** Most of its half second is the listing: `find` with the same stat data takes 0.39 s of
  processor time for these 104,000 files, and the first scan became faster too. Listing in two processes would be next.
- **Commits below 15 % of a run.** Looking became cheaper along with committing, so the share stayed. Two workers share
  the one writer's lock of SQLite; a row costs about 10 µs, 4 of them SQLite's insert into two B-trees, and a page waits
  for about three fsyncs. PostgreSQL was not measured.
- **Journals of 128 B rows within 1.15 of Parquet.** Spark takes rows of a Python source one by one: in Java each value
  is copied four times, where one of Parquet is copied twice, and a counter is brought up to date every hundred rows,
  which is a sixth of the time there. Python adds 0.37 to 0.45 s of processor time for four million rows: reading,
  checking and sending 600 MB, and 8 ms for each query (55 ms before planners were spared their garbage collections).
  Other sizes of batches and buffers, more partitions and NOT NULL make no difference, mapping the file next to none. At
  1 KiB the journal is faster than Parquet.
- **A micro-batch in 50 ms.** A batch is Java's work: 31 ms for the query in it (14 for one without any Python), 10 for
  making it, 10 for the two files of the checkpoint, each of which starts a process (`chmod`), and 5 for planning. The
  first stream of a session took 63 ms and the fourth 53; from an append to rows in hand it is 52, within its goal.
- **A bucket hydrated 15 times as fast as by nats-py.** It was 13.6 times at a million keys, and 8.8 at a hundred
  thousand, where connecting, opening and closing are about 0.13 of 0.36 s by the difference of the two. Of the 2.4 s
  for a million the server and a bare socket take 1.4 alone. nats-py was measured over a hundred thousand keys.
- **The broker 50 times as fast as nats-server where both sync before they acknowledge.** It is so at window 1,000 and
  128 bytes. At window 256 a round is one fsync (0.4 ms here) and the work of 256 messages on both ends, one after the
  other, for the client has no more to send meanwhile; nats-server syncs each message, and on a disk this quick comes to
  6,000 to 7,000 a second. On a slower disk the ratio grows: it was 62 to 416 in runs beside other work.
- **The broker's publishes of 1 KiB at window 256** were 1.19 in this run, and between 0.99 and 1.33 in others; fetching
  was 0.86 without acknowledgements at 128 bytes (0.97 and 1.10 in others) and 0.94 to 0.97 at 1 KiB: both servers are
  then near what one core gives, and runs differ by a tenth. A client that waits for each answer (window 1) takes twice
  as long as with nats-server: a message alone passes session, router, stream and journal in about 120 µs of Python.
- **Appends of one record without fsync** cost 16 µs of Python each, four times RocksDB's C++. Hand over many at a time.
"""


def page(results: Mapping[str, Result], before: str = "") -> str:
    """Return the page: a table for each result, and those of the page before that have none."""
    sections = kept_sections(before) | {component: "".join(section(result)) for component, result in results.items()}
    tables = [f"\n## {component}\n{text}" for component, text in sorted(sections.items())]
    return "".join([INTRODUCTION.rstrip("\n"), "\n", *tables, SHORTFALLS])


def kept_sections(page: str) -> dict[str, str]:
    """Return the tables of a page, by component."""
    parts = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)[1:]
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    return {component: text.rstrip("\n") + "\n" for component, text in found.items() if "\n| benchmark |" in text}


def section(result: Result) -> Iterator[str]:
    """Yield the lines of a component's section, below its title."""
    run = result.run
    yield f"\nRun on {run.day} at commit `{run.commit}`, on {run.machine}.\n\n"
    yield from table(result.rows)


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of a component's table."""
    yield "| benchmark | ours | peer | unit | ratio | goal | the peer is |\n|---|---:|---:|---|---:|---|---|\n"
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        goal = "" if row.goal is None else f"{row.goal:g}, {'met' if row.met else '**missed**'}"
        cells = (row.id, figure(row.ours), figure(row.peer_value), row.unit, ratio, goal, row.peer or "")
        yield f"| {' | '.join(cells)} |\n"


def main() -> None:
    """Read the results and write the page."""
    found = {path.stem: parse_result(path.read_text()) for path in RESULTS.glob("*.json")}
    results = {component: result for component, result in found.items() if result is not None}
    PAGE.write_text(page(results, PAGE.read_text()))


if __name__ == "__main__":
    main()
