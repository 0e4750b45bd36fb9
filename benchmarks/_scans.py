"""The whole scan beside Kingfisher: a tree of source text on all cores, again with nothing changed, and many items.

Every figure of ours is measured in a child process that begins with nothing but a warm class-data archive. "Start-up
apart" leaves out starting Spark, compiling rules and, for Kingfisher, what a folder with one file costs. The outcome is
checked first: every file is listed, looked at and committed, and the planted secret is found by both.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
import pyarrow as pa

from benchmarks._harness import Row, alone, compare, scratch
from benchmarks._peer import peer_scan
from benchmarks._trees import source_tree
from strandline.detect import expand, load_builtin
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.sources import LISTING, Content, ItemReader, Part, Source, Tell
from strandline.scan.sources.listing_parts import WHOLE, ListingPart, parts_at

TREE_BYTES = 1_000_000_000
ROUNDS = 3
COUNTS = (1_000, 10_000, 100_000, 1_000_000)
COMMIT_SHARE_MAX = 0.15
AGAIN_GOAL = 20
PLANTED = "zz-token.env"
_CHILD = (sys.executable, "-c", "import sys; from benchmarks._scans import child; child(*sys.argv[1:])")


def scan_rows() -> Iterator[Row]:
    """Yield the figures of whole scans."""
    with scratch() as folder:
        yield from _tree(folder)
    yield from _flatness()


def _tree(folder: Path) -> Iterator[Row]:
    tree = source_tree(folder / "tree", TREE_BYTES)
    (tree.path / PLANTED).write_text(expand(load_builtin().by_id["github-pat"].examples[0], "benchmark"))
    one = folder / "one"
    one.mkdir()
    (one / PLANTED).write_bytes((tree.path / PLANTED).read_bytes())
    peer_scan(one)  # compiles its rules, once for all
    ours, peer, peer_start = [], [], []
    for number in range(ROUNDS):
        began = time.perf_counter()
        found = peer_scan(tree.path)
        peer.append(time.perf_counter() - began)
        assert any(finding.path.endswith(PLANTED) for finding in found.findings), "Kingfisher missed the planted secret"
        began = time.perf_counter()
        peer_scan(one)
        peer_start.append(time.perf_counter() - began)
        ours.append(_our_scan(tree.path, folder / f"state{number}", tree.files + 1))
    figures = sorted(ours, key=lambda one: one["first_s"])[ROUNDS // 2]
    whole, start = sorted(peer)[ROUNDS // 2], sorted(peer_start)[ROUNDS // 2]
    megabytes = tree.bytes / 1e6
    what = f"{tree.files:,} files, {megabytes:,.0f} MB"
    yield compare(
        f"scan of {what}, start-up apart",
        megabytes / figures["first_s"],
        "Kingfisher",
        megabytes / (whole - start),
        "MB/s",
        goal=1,
    )
    yield compare(
        "the same, start-up included",
        megabytes / (figures["first_s"] + figures["start_s"]),
        "Kingfisher",
        megabytes / whole,
        "MB/s",
    )
    yield compare(
        "again, nothing changed",
        figures["again_s"],
        "our first scan",
        figures["first_s"],
        "s",
        better="lower",
        goal=AGAIN_GOAL,
    )
    share = figures["commit_s"] / (figures["commit_s"] + figures["work_s"])
    yield alone(
        "share of the workers' time that is spent committing", share, "share", better="lower", goal=COMMIT_SHARE_MAX
    )
    for name, megabytes in figures["memory"].items():
        yield alone(f"memory at its highest, {name}", megabytes, "MB", better="lower")


def _our_scan(tree: Path, state: Path, files: int) -> dict[str, Any]:
    """Scan a tree twice in a child process, and return its figures with the memory that it took."""
    command = [*_CHILD, "tree", str(tree), str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child, Watch(child.pid) as watch:
        said, _ = child.communicate()
    assert child.returncode == 0, "the scan failed"
    figures: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert figures["items"] == files, f"{figures['items']} of {files} files were listed"
    assert figures["scanned"] == files, f"{figures['scanned']} of {files} files were looked at"
    assert figures["planted"], "we missed the planted secret"
    return {**figures, "memory": watch.megabytes}


class Watch:
    """Looks at the memory of a process and its children, several times a second."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.megabytes: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.25):
            try:
                sizes = {"driver": self._process.memory_info().rss, "Java": 0, "largest Python worker": 0}
                for child in self._process.children(recursive=True):
                    name = "Java" if child.name() == "java" else "largest Python worker"
                    sizes[name] = max(sizes[name], child.memory_info().rss)
            except psutil.Error:
                continue
            for name, size in sizes.items():
                self.megabytes[name] = max(self.megabytes.get(name, 0), size / 1e6)


def _flatness() -> Iterator[Row]:
    """Yield the time of an item in scans of more and more items."""
    first: float | None = None
    for count in COUNTS:
        with scratch() as folder:
            command = [*_CHILD, "items", str(count), str(folder / "state")]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures = json.loads(done.stdout.splitlines()[-1])
        assert figures["scanned"] == count, f"{figures['scanned']} of {count} items were looked at"
        each = figures["first_s"] / count * 1e6
        first = first or each
        name = f"an item of {count:,}, 200 bytes each (first scan, start-up apart)"
        if count == COUNTS[0]:
            yield alone(name, each, "µs", better="lower")
        else:
            yield compare(name, each, f"an item of {COUNTS[0]:,}", first, "µs", better="lower")


@dataclass(frozen=True)
class MadeItems:
    """So many small items that are made up as they are read."""

    count: int
    tag = "made"
    is_part = False
    displays_locator = True
    name = "made"

    @property
    def instance(self) -> ConnectorInstanceId:
        """Return the id of the source."""
        return connector_instance_id(b"made")

    def plain(self) -> Plain:
        """Return what decides the listing."""
        return {"count": self.count}

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the items by number."""
        return self.list_part(WHOLE, tell)

    def listing_parts(self, count: int) -> list[ListingPart]:
        """Return ranges of numbers."""
        each = -(-self.count // count) or 1
        return parts_at([b"%09d" % number for number in range(each, self.count, each)])

    def list_part(self, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the items of a range of numbers."""
        first = int(part.start or b"0")
        end = self.count if part.end is None else min(self.count, int(part.end))
        for begin in range(first, end, 10_000):
            names = [b"%09d" % number for number in range(begin, min(begin + 10_000, end))]
            nothing = [None] * len(names)
            columns = [names, names, [200] * len(names), nothing, nothing, nothing]
            arrays = [pa.array(cells, kind) for cells, kind in zip(columns, LISTING.types, strict=True)]
            tell(begin + len(names))
            yield pa.record_batch(arrays, LISTING)

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader."""
        return nullcontext(_MadeReader())

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - there is none
        """Return the number."""
        return locator.decode()


class _MadeReader:
    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002 - there is none
        """Return a line of text, over and over."""
        data = (b"line of item " + locator + b"; nothing to see here\n") * 5
        return Content(locator, [Part(data[:200], locator.decode())], 200)


def child(kind: str, what: str, where: str) -> None:
    """Scan twice and print figures: what the child processes of this benchmark do."""
    from strandline.pipeline.ledger import DoneStatus  # noqa: PLC0415
    from strandline.scan import ScanRequest  # noqa: PLC0415
    from strandline.scan.sources import FileSource  # noqa: PLC0415
    from strandline.scan.state import open_state  # noqa: PLC0415 - only the child needs it
    from strandline.scan.worker.engine_cache import engine_for  # noqa: PLC0415
    from strandline.spark import session  # noqa: PLC0415
    from strandline.spark.workers import scan_on_spark  # noqa: PLC0415

    began = time.perf_counter()
    source: Source = FileSource.at(what) if kind == "tree" else MadeItems(int(what))
    with open_state(where, create=True) as state:
        request = ScanRequest((source,), load_builtin(), state.tenant, state.key, state.address)
        engine_for(request.rules, request.limits, request.key)
        session()
        start_s = time.perf_counter() - began
        began = time.perf_counter()
        first = scan_on_spark(request, session)
        first_s = time.perf_counter() - began
        began = time.perf_counter()
        again = scan_on_spark(request, session)
        again_s = time.perf_counter() - began
    assert again.items == first.items
    assert len(again.findings) == len(first.findings)
    assert first.worked is not None
    statuses = first.statuses
    scanned = sum(count for status, count in statuses.items() if status >= DoneStatus.SCANNED_PARTIAL)
    print(
        json.dumps(
            {
                "start_s": start_s,
                "first_s": first_s,
                "again_s": again_s,
                "items": first.items,
                "scanned": scanned,
                "planted": any(PLANTED in (one.observation.location_display or "") for one in first.findings),
                "work_s": first.worked.work_ns / 1e9,
                "commit_s": first.worked.commit_ns / 1e9,
                "cores": len(os.sched_getaffinity(0)),
            }
        )
    )
