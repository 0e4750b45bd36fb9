"""What every benchmark shares: interleaved rounds, medians, a table with the peer beside us, and a JSON file.

`ratio` is oriented so that larger is better: 2.0 means twice as good as the peer, whether the unit is a rate or a time.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

RESULTS = Path(".bench")
Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, and the peer's from the same run."""

    id: str
    ours: float
    peer: str | None
    peer_value: float | None
    unit: str
    ratio: float | None
    goal: float | None
    met: bool | None


def compare(
    id: str,  # noqa: A002 - the name of the column
    ours: float,
    peer: str,
    peer_value: float,
    unit: str,
    *,
    better: Better = "higher",
    goal: float | None = None,
) -> Row:
    """Return the row for a figure measured beside a peer's; `goal` is the least ratio wanted."""
    ratio = ours / peer_value if better == "higher" else peer_value / ours
    return Row(id, ours, peer, peer_value, unit, ratio, goal, None if goal is None else ratio >= goal)


def alone(
    id: str,  # noqa: A002 - the name of the column
    ours: float,
    unit: str,
    *,
    better: Better = "higher",
    goal: float | None = None,
) -> Row:
    """Return the row for a figure without a peer; `goal` is the least (or, where lower is better, most) wanted."""
    if goal is None:
        return Row(id, ours, None, None, unit, None, None, None)
    return Row(id, ours, None, None, unit, None, goal, ours >= goal if better == "higher" else ours <= goal)


def medians(rounds: int, sides: Sequence[Callable[[], float]]) -> list[float]:
    """Run every side once per round, in turn, and return the median of each side's figures."""
    figures: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for side, results in zip(sides, figures, strict=True):
            results.append(side())
    return [statistics.median(results) for results in figures]


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty folder on the disk of the working copy, not on a RAM disk; remove it afterwards."""
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=RESULTS))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def sized(name: str, whole: int) -> int:
    """Return a size of a benchmark, as the environment says; only the whole size is reported."""
    return int(os.environ.get(name, whole))


def machine() -> str:
    """Return a line that says where the figures come from."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.machine()}, Python {python}"


@dataclass(frozen=True, slots=True)
class Run:
    """When and where a component's figures were measured, and of which commit."""

    day: str
    commit: str
    machine: str


@dataclass(frozen=True, slots=True)
class Result:
    """A component's figures, and the run that they are of."""

    run: Run
    rows: list[Row]


def this_run() -> Run:
    """Return when and where this process runs, and the commit of the working copy."""
    day = datetime.now(UTC).date().isoformat()
    commit = _git("rev-parse", "--short=7", "HEAD") or "unknown"
    # The page itself differs after the first of several benchmarks.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs/benchmarks.md")
    return Run(day, f"{commit}, changed" if changed else commit, machine())


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, check=False, text=True)  # noqa: S607 - found by name
    return done.stdout.strip()


def format_result(result: Result) -> str:
    """Return a result as the text of its file."""
    return json.dumps(asdict(result), indent=1) + "\n"


def parse_result(text: str) -> Result | None:
    """Return the result in a file's text; None for one that an earlier version wrote, which does not name its run."""
    told = json.loads(text)
    if isinstance(told, list):
        return None
    return Result(Run(**told["run"]), [Row(**row) for row in told["rows"]])


def report(component: str, rows: Sequence[Row]) -> None:
    """Print the table and write `.bench/<component>.json`."""
    show(component, rows)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{component}.json").write_text(format_result(Result(this_run(), list(rows))))


def show(component: str, rows: Sequence[Row]) -> None:
    """Print the table."""
    table = Table(title=f"{component} on {machine()}", title_justify="left")
    table.add_column("benchmark")
    for name in ("ours", "peer", "unit", "ratio", "goal"):
        table.add_column(name, justify="right")
    table.add_column("peer is")
    for row in rows:
        style = "red" if row.met is False else "green" if row.met else None
        table.add_row(
            row.id,
            figure(row.ours),
            figure(row.peer_value),
            row.unit,
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.goal is None else f"{row.goal:g}{'' if row.met else ' missed'}",
            row.peer or "",
            style=style,
        )
    Console(width=140).print(table)


def figure(value: float | None) -> str:
    """Return a number as people read it."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
