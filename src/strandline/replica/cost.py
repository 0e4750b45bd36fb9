"""What a replica uploads, keeps and costs: an estimate from the rate of commits and the settings.

Invariants: pure, but for `measure_database`, which reads a database and its log and changes neither. Requests are those
that the code makes: one upload for each transaction, and for each merge the listings, reads and writes of `compaction`.
What merging saves, because later versions of a page replace earlier ones, is not known in advance: the bytes of merged
files are what their sources have, at most.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strandline.lazy_imports import deferred
from strandline.replica.compaction import FILES_MAX, PIECE_BYTES
from strandline.replica.connections import check_database, real_path, sqlite_errors
from strandline.replica.errors import DatabaseRefused
from strandline.replica.layout import LEVEL_SNAPSHOT, LEVELS, LtxFile
from strandline.replica.maintenance import RETENTION_EVERY_S, MaintenancePolicy
from strandline.replica.pace import UPLOAD_EVERY_S
from strandline.replica.wal import parse_header, scan_frames

if TYPE_CHECKING:
    import apsw
    from lz4 import block as lz4_block
else:
    apsw, lz4_block = deferred("apsw", "replica"), deferred("lz4.block", "replica")

HOURS_PER_MONTH = 730
WINDOW = timedelta(hours=1)
"""The present rate of commits is that of the last hour."""
LIST_PAGE_KEYS = 1000
PART_BYTES = 8 << 20
"""Larger objects are uploaded in parts of this size."""
TRANSACTION_PAGES = 3
"""How many pages a transaction changes where nothing is known: a row, its index, the page above."""
_SAMPLE_PAGES = 64
_WAL_MODE = b"\x02\x02"
_GB = 1e9


@dataclass(frozen=True)
class Prices:
    """Prices in dollars. The defaults are the public ones of Amazon S3 Standard in us-east-1, as of April 2024."""

    write_per_1000: float = 0.005
    """PUT, COPY, POST and LIST."""
    read_per_1000: float = 0.0004
    """GET, HEAD and the like."""
    gb_month: float = 0.023


class Usage(NamedTuple):
    """How a database is written."""

    commits_per_hour: float
    transaction_bytes: float
    """The size of the file of one transaction."""
    snapshot_bytes: int


class Line(NamedTuple):
    """What one part of a replica does and keeps."""

    what: str
    writes_per_hour: float
    reads_per_hour: float
    uploaded_bytes_per_hour: float
    objects_kept: float
    bytes_kept: float
    monthly_cost: float


class _Merge(NamedTuple):
    """What the merges of a level do in an hour."""

    runs: float
    made: float
    size: float


def estimate(
    usage: Usage,
    policy: MaintenancePolicy = MaintenancePolicy(),  # noqa: B008 - frozen
    prices: Prices = Prices(),  # noqa: B008 - frozen
    *,
    upload_every_s: float = UPLOAD_EVERY_S,
    is_maintained: bool = True,
) -> list[Line]:
    """Return a line for each part, and the sum last. Without maintenance, what is kept is that of a month."""
    uploads = min(usage.commits_per_hour, 3600 / upload_every_s)
    uploaded = usage.commits_per_hour * usage.transaction_bytes
    size = uploaded / uploads if uploads else usage.transaction_bytes
    merge_every_s = policy.level_every_s[0] if policy.level_every_s else 0.0
    single_h = (policy.retention.transactions_for.total_seconds() + merge_every_s + RETENTION_EVERY_S) / 3600
    kept_h = (policy.retention.restorable_for.total_seconds() + policy.snapshot_every_s) / 3600
    if not is_maintained:
        single_h = HOURS_PER_MONTH
    kept = max(1.0, uploads * single_h)  # the last transaction stays
    lines = [_line("transactions", prices, uploads * _puts(size), 0, uploaded, kept, kept * size)]
    if not is_maintained:
        return [*lines, _total(lines, prices)]
    source = _Merge(0, uploads, size)
    kept_below = kept
    for level, every_s in enumerate(policy.level_every_s, 1):
        merge = _merges(source, every_s)
        objects = merge.made * kept_h
        listed = _list_pages(kept_below) + _list_pages(objects)
        writes = 3600 / every_s * listed + merge.made * _puts(merge.size)
        reads = source.made * _pieces(source.size) + merge.made * 3 if merge.made else 0.0
        name = f"level {level}, every {every_s:g} s"
        lines.append(_line(name, prices, writes, reads, merge.made * merge.size, objects, objects * merge.size))
        source, kept_below = merge, objects
    lines.append(_snapshots(usage, policy, prices, source, kept_h, has_commits=uploads > 0))
    all_lists = sum(_list_pages(line.objects_kept) for line in lines) + len(LEVELS) - len(lines)
    every_s = min(RETENTION_EVERY_S, policy.snapshot_every_s)
    lines.append(_line(f"retention, every {every_s:g} s", prices, 3600 / every_s * all_lists, 0, 0, 0, 0))
    return [*lines, _total(lines, prices)]


def _merges(source: _Merge, every_s: float) -> _Merge:
    """Return what merging does with files that come in an hour: nothing until there are two."""
    runs = min(3600 / every_s, source.made / 2)
    if not runs:
        return _Merge(0, 0, 0)
    made = runs * math.ceil(source.made / runs / FILES_MAX)
    return _Merge(runs, made, source.made * source.size / made)


def _snapshots(
    usage: Usage, policy: MaintenancePolicy, prices: Prices, source: _Merge, kept_h: float, *, has_commits: bool
) -> Line:
    runs = 3600 / policy.snapshot_every_s
    made = runs if has_commits else 0.0
    objects = max(policy.retention.snapshots_min if has_commits else 1, made * kept_h)
    merged = source.made / runs
    reads = made * (_pieces(usage.snapshot_bytes) + merged * _pieces(source.size) + 3)
    writes = runs * len(LEVELS) + made * _puts(usage.snapshot_bytes)
    name = f"snapshots, every {policy.snapshot_every_s / 3600:g} h"
    size = usage.snapshot_bytes
    return _line(name, prices, writes, reads, made * size, objects, objects * size)


def _line(what: str, prices: Prices, writes: float, reads: float, uploaded: float, objects: float, size: float) -> Line:
    requests = writes * prices.write_per_1000 / 1000 + reads * prices.read_per_1000 / 1000
    cost = HOURS_PER_MONTH * requests + size / _GB * prices.gb_month
    return Line(what, writes, reads, uploaded, objects, size, cost)


def _total(lines: Sequence[Line], prices: Prices) -> Line:
    sums = [sum(line[at] for line in lines) for at in range(1, 6)]  # type: ignore[misc]
    return _line("total", prices, *sums)


def _puts(size: float) -> float:
    """Return the requests of an upload: one, or the parts and two more."""
    return 1 if size <= PART_BYTES else math.ceil(size / PART_BYTES) + 2


def _pieces(size: float) -> int:
    return max(1, math.ceil(size / PIECE_BYTES))


def _list_pages(objects: float) -> int:
    return max(1, math.ceil(objects / LIST_PAGE_KEYS))


def measure_replica(files: Sequence[LtxFile], now: datetime) -> Usage:
    """Return how the database of a replica was written in the last hour, by the listing of its files."""
    if not files:
        return Usage(0, 0, 0)
    snapshot = _snapshot_bytes(files)
    since = max(now - WINDOW, min(file.modified for file in files))
    before = [file.max_txid for file in files if file.modified <= since]
    first = max(before, default=min(file.min_txid for file in files) - 1)
    hours = max((now - since).total_seconds(), 1) / 3600
    single = [file.size for file in files if file.level == 0 and not file.is_whole]
    merged = [(file.size, file.max_txid - file.min_txid + 1) for file in files if not file.is_whole]
    weight = sum(count for _, count in merged)
    mean = sum(single) / len(single) if single else sum(size for size, _ in merged) / weight if weight else 0
    return Usage((max(file.max_txid for file in files) - first) / hours, mean, snapshot)


def _snapshot_bytes(files: Sequence[LtxFile]) -> int:
    """Return the size of the last snapshot, or of what a restore applies where there is none yet."""
    snapshots = [file for file in files if file.level == LEVEL_SNAPSHOT]
    if snapshots:
        return max(snapshots, key=lambda file: file.max_txid).size
    whole = max((file for file in files if file.is_whole), key=lambda file: file.max_txid, default=None)
    if whole is None:
        return 0
    return whole.size + sum(file.size for file in files if file.level == 0 and file.min_txid > whole.max_txid)


def measure_database(path: Path, sample_s: float, wait: Callable[[float], None] = time.sleep) -> Usage:
    """Return how a database is written, by looking at its log twice; nothing is changed."""
    path = real_path(path)
    check_database(path)
    page_size, pages, ratio = _sampled(path)
    salts, commits, frames, _ = _logged(path)
    wait(sample_s)
    later_salts, later_commits, later_frames, logged_pages = _logged(path)
    if later_salts == salts:
        later_commits, later_frames = later_commits - commits, later_frames - frames
    changed = later_frames / later_commits if later_commits else TRANSACTION_PAGES
    size = 150 + changed * page_size * ratio
    return Usage(later_commits / max(sample_s, 1e-3) * 3600, size, int(max(pages, logged_pages) * page_size * ratio))


def _sampled(path: Path) -> tuple[int, int, float]:
    """Return page size, size in pages, and how far pages compress."""
    with sqlite_errors(path):
        file = apsw.VFSFile("", str(path.absolute()), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
        try:
            size = file.xFileSize()
            head = file.xRead(100, 0) if size >= 100 else b""  # noqa: PLR2004 - the header of a database
            if head[18:20] != _WAL_MODE:
                hint = f"run `PRAGMA journal_mode = wal` once; it stays, and {path.name} is replicated from then on"
                raise DatabaseRefused(str(path), "the journal mode is not wal", hint=hint)
            page_size = int.from_bytes(head[16:18], "big")
            page_size = 65536 if page_size == 1 else page_size
            pages = size // page_size
            step = max(1, pages // _SAMPLE_PAGES)
            sample = [file.xRead(page_size, number * page_size) for number in range(0, pages, step)]
        finally:
            file.xClose()
    packed = sum(min(page_size, len(lz4_block.compress(page, store_size=False))) + 25 for page in sample)
    return page_size, pages, packed / (len(sample) * page_size)


def _logged(path: Path) -> tuple[tuple[int, int] | None, int, int, int]:
    """Return the salts of the log, how many commits and frames it has, and the size of the database after them."""
    log = path.with_name(f"{path.name}-wal")
    data = log.read_bytes() if log.exists() else b""
    header = parse_header(data)
    if header is None:
        return None, 0, 0, 0
    frames = scan_frames(header, header.start, data[header.start.offset :])
    return header.salts, int((frames.commits > 0).sum()), len(frames.numbers), frames.pages
