"""Writes `docs/benchmarks.md` from the results of the last full run; `make bench` calls it at the end."""

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks._harness import RESULTS, Row, figure, machine

PAGE = Path("docs/benchmarks.md")
INTRODUCTION = """# Benchmarks

`make bench` runs them all and writes this page; `make bench ONLY=journal` runs one. Ours and the peer's are measured in
the same run, interleaved, and each figure is a median of several rounds; results are read back and checked before a
figure counts. `ratio` is oriented so that larger is better. A goal is for the ratio, or for the figure itself where
there is no peer.

"""


def page(components: dict[str, list[Row]]) -> str:
    """Return the page."""
    parts = [INTRODUCTION, f"Last run on {machine()}.\n"]
    for component, rows in components.items():
        parts.append(f"\n## {component}\n\n")
        parts += table(rows)
    return "".join(parts)


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
    results = {
        path.stem: [Row(**row) for row in json.loads(path.read_text())] for path in sorted(RESULTS.glob("*.json"))
    }
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
