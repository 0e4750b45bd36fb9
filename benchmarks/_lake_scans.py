"""Scans of made items into a lake, by Spark on all cores: the processor time and memory of each step, by size.

A child process scans, scans again and compacts; the parent looks at its memory. Processor time is that of the child and
all below it, so that a busy machine changes it little. From 200,000 items on, tasks list and plan (`scan.parted`).

The result is checked before a figure counts: every item was scanned, the second scan scanned none, and after the
compaction the ledger has every item. State is what is left once the grace periods of readers are over.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks._harness import Row, alone, compare, scratch
from benchmarks._scans import MadeItems, Watch

STEPS = ("listing", "plan", "work", "settle", "rescan", "compaction")
FLAT_MAX = 1.2
STATE_BYTES_MAX = 100
DRIVER_MB_MAX = 1_000
PLAN_S_MAX, RESCAN_S_MAX, LARGE = 90, 120, 10_000_000
_CHILD = (sys.executable, "-c", "import sys; from benchmarks._lake_scans import child; child(*sys.argv[1:])")


def scan_rows(sizes: list[int]) -> Iterator[Row]:
    """Yield the figures of scans of so many items."""
    first: dict[str, float] = {}
    for size in sizes:
        with scratch() as folder:
            figures = _scanned(size, folder)
        for step in STEPS:
            each = figures["cpu_s"][step] / size * 1e6
            name = f"{step}, an item of {size:,} (processor time)"
            if step not in first:
                first[step] = each
                yield alone(name, each, "µs", better="lower")
            else:
                peer = f"an item of {sizes[0]:,}"
                yield compare(name, each, peer, first[step], "µs", better="lower", goal=1 / FLAT_MAX)
        for step in ("plan", "rescan"):
            most = {"plan": PLAN_S_MAX, "rescan": RESCAN_S_MAX}[step] if size >= LARGE else None
            yield alone(f"{step} of {size:,} items", figures["wall_s"][step], "s", better="lower", goal=most)
        driver = figures["memory"]["driver"] + figures["memory"]["Java"]
        yield alone(
            f"memory of the driver with Java, which here holds the executors, {size:,} items",
            driver,
            "MB",
            better="lower",
            goal=DRIVER_MB_MAX,
        )
        yield alone(f"of that, Python, {size:,} items", figures["memory"]["driver"], "MB", better="lower")
        yield alone(
            f"memory of the largest Python worker, {size:,} items",
            figures["memory"].get("largest Python worker", 0),
            "MB",
            better="lower",
        )
        goal = STATE_BYTES_MAX
        yield alone(
            f"state of {size:,} items, compacted", figures["state"] / size, "bytes/item", better="lower", goal=goal
        )
        yield alone(
            f"objects of the state of {size:,} items, before compaction", figures["objects"], "objects", better="lower"
        )


def _scanned(size: int, folder: Path) -> dict[str, Any]:
    (folder / "key").write_text("ab" * 32)
    (folder / "key").chmod(0o600)
    (folder / "lake").mkdir()
    command = [*_CHILD, str(size), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, Watch(process.pid) as watch:
        said, _ = process.communicate()
    assert process.returncode == 0, "the scan failed"
    figures: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert figures["scanned"] == size, f"{figures['scanned']} of {size} items were scanned"
    assert figures["again"] == 0, f"{figures['again']} unchanged items were scanned again"
    assert figures["ledger"] == size, f"after the compaction the ledger has {figures['ledger']} of {size} items"
    return {**figures, "memory": watch.megabytes}


class _Steps:
    """Wall and processor time of steps that follow one another."""

    def __init__(self) -> None:
        self.wall_s: dict[str, float] = {}
        self.cpu_s: dict[str, float] = {}
        self._at = _now()

    def ended(self, step: str, at: tuple[float, float] | None = None) -> None:
        at = at or _now()
        self.wall_s[step] = at[0] - self._at[0]
        self.cpu_s[step] = at[1] - self._at[1]
        self._at = at


def _now() -> tuple[float, float]:
    """Return the time, and the processor time of this process and all below it."""
    used = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            used += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:  # its parent has counted it since
            continue
    return time.monotonic(), used


def child(count: str, where: str) -> None:
    """Scan twice into a lake, compact it, and print figures."""
    from strandline.detect import load_builtin  # noqa: PLC0415 - only the child needs them
    from strandline.pipeline.lake.compaction import Compaction  # noqa: PLC0415
    from strandline.pipeline.lake.database import LakeDatabase  # noqa: PLC0415
    from strandline.pipeline.ledger import DoneStatus  # noqa: PLC0415
    from strandline.scan import ScanRequest  # noqa: PLC0415
    from strandline.scan.events import Event, Planned  # noqa: PLC0415
    from strandline.scan.run.progress import Progress  # noqa: PLC0415
    from strandline.scan.state import open_state  # noqa: PLC0415
    from strandline.scan.worker.engine_cache import engine_for  # noqa: PLC0415
    from strandline.spark import session  # noqa: PLC0415
    from strandline.spark.workers import scan_on_spark  # noqa: PLC0415

    folder, source = Path(where), MadeItems(int(count))
    address = f"file://{folder.absolute()}/lake"
    with open_state(address, key_file=folder / "key", create=True) as state:
        request = ScanRequest((source,), load_builtin(), state.tenant, state.key, state.address)
        engine_for(request.rules, request.limits, request.key)
        session().range(4).count()
        steps = _Steps()
        assert sum(len(batch) for batch in source.list_items(lambda _: None)) == source.count
        steps.ended("listing")
        worked = [_now()]

        def tell(event: Event) -> None:
            if isinstance(event, Planned):
                steps.ended("plan")
            elif isinstance(event, Progress):
                worked[0] = _now()

        first = scan_on_spark(request, session, tell)
        steps.ended("work", worked[0])
        steps.ended("settle")
        again = scan_on_spark(request, session)
        steps.ended("rescan")
    objects, _ = _stored(folder)
    with LakeDatabase(address) as lake:
        steps.ended("closing")
        Compaction(lake, grace_s=0).run()
        steps.ended("compaction")
        _age(folder)
        Compaction(lake, grace_s=0).run()  # deletes what is over
    with open_state(address, key_file=folder / "key") as state:
        coverage = state.stores.reads.coverage(state.tenant, request.policy_hash)
    scanned = sum(number for status, number in first.statuses.items() if status >= DoneStatus.SCANNED_PARTIAL)
    print(
        json.dumps(
            {
                "wall_s": steps.wall_s,
                "cpu_s": steps.cpu_s,
                "scanned": scanned,
                "again": again.worked.items,
                "ledger": sum(coverage.objects.values()),
                "objects": objects,
                "state": _stored(folder)[1],
            }
        )
    )


def _age(folder: Path) -> None:
    """Let two days go by for the objects of a lake in a folder: what its readers may still need is over then."""
    for path in (folder / "lake").rglob("*"):
        if path.is_file() and ".strandline" not in path.parts:
            then = path.stat().st_mtime - 2 * 86_400
            os.utime(path, (then, then))


def _stored(folder: Path) -> tuple[int, int]:
    """Return the number of objects of a lake in a folder, and their bytes."""
    sizes = [
        path.stat().st_size
        for path in (folder / "lake").rglob("*")
        if path.is_file() and ".strandline" not in path.parts
    ]
    return len(sizes), sum(sizes)
