"""The stores of folds beside RocksDB and SQLite bare: written, settled, loaded, asked cold, and what an entry takes.

Every side writes, is loaded and is asked in processes of its own, whose modules are there before anything is measured,
and each kind of question comes after the files have left the page cache. All write the same keys in the same batches,
synced; values are hexadecimal digits, which compress to about half. Each answer is checked before its figure counts.
`make bench ONLY=stores KEYS=100000` shows a quick run, of one round, and keeps nothing of it.
"""

import gc
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks._bare_stores import BareRocksDb, BareSqlite, BareStore
from benchmarks._harness import Better, Row, alone, compare, report, scratch, show, sized
from benchmarks._nats import make_key
from strandline.fold import Backend, FoldBatch, FoldEntry, SnapshotStore, open_fold
from strandline.kv import WatchCursor, format_cursor, format_revision

KEYS = 10_000_000
BATCH = 65_536
VALUE_BYTES = 128
ROUNDS = 3
GETS = 1_000
MULTI_GETS, MULTI_KEYS = 10, 1_000
SCANS = 20
FEW = 1_000
PREFIXES = 1_000
"""So many first parts the keys have; see `make_key`."""
ROCKSDB, SQLITE = "RocksDB bare", "SQLite bare"
PATHS = {
    Backend.APPEND_LOG.value: "ours.log",
    Backend.SQLITE.value: "ours.db",
    Backend.ROCKSDB.value: "ours.rocks",
    ROCKSDB: "bare-rocksdb",
    SQLITE: "bare.sqlite",
}
PEERS = [
    (Backend.APPEND_LOG.value, ROCKSDB),
    (Backend.APPEND_LOG.value, SQLITE),
    (Backend.ROCKSDB.value, ROCKSDB),
    (Backend.SQLITE.value, SQLITE),
]
_CHILD = (sys.executable, "-c", "import sys; from benchmarks.stores import child; child(*sys.argv[1:])")
Figures = dict[str, float]


class Fold:
    """A fold's store, asked as the bare ones are."""

    def __init__(self, path: Path) -> None:
        self._store: SnapshotStore = open_fold(path)

    def write(self, keys: list[bytes], records: list[bytes], cursor: bytes) -> None:
        """Apply a batch; the versions and values are cut out of the records beforehand."""
        self.apply(split(keys, records), cursor)

    def apply(self, batch: FoldBatch, cursor: bytes) -> None:
        """Apply a batch."""
        self._store.apply(batch, WatchCursor(cursor))

    def settle(self) -> None:
        """Do what is otherwise done later."""
        self._store.settle()

    def cursor(self) -> bytes | None:
        """Return the cursor that is stored."""
        held = self._store.load()
        return None if held is None else bytes(held.cursor)

    def get(self, key: bytes) -> FoldEntry | None:
        """Return an entry."""
        return self._store.get(key)

    def multi_get(self, keys: list[bytes]) -> list[FoldEntry | None]:
        """Return an entry for each key."""
        return self._store.multi_get(keys)

    def scan(self, prefix: bytes) -> list[FoldEntry]:
        """Return the entries whose keys begin so."""
        return self._store.range(prefix)

    def count(self) -> int:
        """Return how many entries there are, by going through them with their checksums."""
        return self._store.verify().entries

    def close(self) -> None:
        """Close it."""
        self._store.close()


def opened(side: str, folder: Path) -> Fold | BareStore:
    """Open a side's store."""
    path = folder / PATHS[side]
    return BareRocksDb(path) if side == ROCKSDB else BareSqlite(path) if side == SQLITE else Fold(path)


def main() -> None:
    """Run all of it."""
    count = sized("KEYS", KEYS)
    figures: dict[str, list[Figures]] = {side: [] for side in PATHS}
    with scratch() as folder:
        for _ in range(ROUNDS if count == KEYS else 1):
            for side, found in figures.items():
                for path in folder.glob(f"{PATHS[side]}*"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                told = _ask("write", side, folder, count)
                told["bytes on disk"] = sum(_sizes(folder / PATHS[side])) / count
                found.append(told | _ask("load", side, folder, count) | _ask("answer", side, folder, count))
    medians = {
        side: {name: statistics.median(told[name] for told in found) for name in found[0]}
        for side, found in figures.items()
    }
    rows = list(_rows(count, medians))
    (report if count == KEYS else show)("stores", rows)


def _rows(count: int, medians: dict[str, Figures]) -> Iterator[Row]:
    keys = f"{count:,} keys of {VALUE_BYTES} B"
    asked: list[tuple[str, str, str]] = [
        ("write", f"write {keys} in batches of {BATCH:,}, synced", "keys/s"),
        ("settle", f"settle {keys}", "s"),
        ("load", f"open {keys}, cold, and get the first", "s"),
        ("get", f"get one of {keys}, cold", "µs"),
        ("multi_get", f"multi_get {MULTI_KEYS:,} of {keys}, cold, each", "µs"),
        ("scan", f"scan a prefix of {max(count // PREFIXES, 1):,} of {keys}, cold", "keys/s"),
        ("bytes on disk", f"bytes on disk per entry, {keys}", "bytes"),
    ]
    for name, title, unit in asked:
        for side, peer in PEERS:
            ours, theirs = medians[side][name], medians[peer][name]
            better: Better = "higher" if unit == "keys/s" else "lower"
            yield compare(f"{title}: {side}", ours, peer, theirs, unit, better=better)
    for side, found in medians.items():
        yield alone(f"bytes in memory per entry, {keys}, opened: {side}", found["bytes in memory"], "bytes")


def _ask(question: str, side: str, folder: Path, count: int) -> Figures:
    """Return the figures of one question, from a process of its own, with nothing of the files in memory."""
    _forget_pages(folder / PATHS[side])
    command = [*_CHILD, question, side, str(folder), str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def _files(path: Path) -> Iterator[Path]:
    for found in path.parent.glob(f"{path.name}*"):
        yield from (each for each in found.rglob("*") if each.is_file()) if found.is_dir() else [found]


def _sizes(path: Path) -> Iterator[int]:
    return (each.stat().st_blocks * 512 for each in _files(path))


def _forget_pages(path: Path) -> None:
    """Have the system forget what it read of a store's files, so that a question goes to the disk."""
    for each in _files(path):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


# In a process of its own


def child(question: str, side: str, folder: str, count: str) -> None:
    """Do one thing with one side's store, and print the figures."""
    questions: dict[str, Callable[[str, Path, int], Figures]] = {
        "write": _write,
        "load": _load,
        "answer": _answer,
    }
    with scratch() as other:
        _write(side, other, FEW)
        _load(side, other, FEW)
    print(json.dumps(questions[question](side, Path(folder), int(count))))


def record(number: int) -> bytes:
    """Return what is stored for a number: its version and its value."""
    digits = hashlib.blake2b(b"%d" % number, digest_size=VALUE_BYTES // 2).hexdigest()
    return format_revision(number + 1) + digits.encode()


def split(keys: list[bytes], records: list[bytes]) -> FoldBatch:
    """Return a batch of a fold."""
    return FoldBatch(keys, [each[8:] for each in records], [each[:8] for each in records])


def check(found: FoldEntry | bytes | None, number: int) -> None:
    """See that what was found is what was stored."""
    plain = found.version + found.value if isinstance(found, FoldEntry) else found
    assert plain == record(number), f"{make_key(number)!r} is {found!r}"


def _write(side: str, folder: Path, count: int) -> Figures:
    store = opened(side, folder)
    seconds = 0.0
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        keys, records = [make_key(number) for number in numbers], [record(number) for number in numbers]
        cursor = format_cursor(numbers[-1] + 1)
        batch = split(keys, records) if isinstance(store, Fold) else None
        began = time.perf_counter()
        if isinstance(store, Fold) and batch is not None:
            store.apply(batch, cursor)
        else:
            store.write(keys, records, cursor)
        seconds += time.perf_counter() - began
    began = time.perf_counter()
    store.settle()
    settled = time.perf_counter() - began
    assert store.count() == count
    assert store.cursor() == format_cursor(count)
    store.close()
    return {"write": count / seconds, "settle": settled}


def _load(side: str, folder: Path, count: int) -> Figures:
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    began = time.perf_counter()
    store = opened(side, folder)
    cursor, first = store.cursor(), store.get(make_key(0))
    seconds = time.perf_counter() - began
    gc.collect()
    grown = process.memory_info().rss - before
    assert cursor == format_cursor(count)
    check(first, 0)
    store.close()
    return {"load": seconds, "bytes in memory": max(grown, 0) / count}


def _answer(side: str, folder: Path, count: int) -> Figures:
    """Ask one kind of question after the other, each of a store that was opened cold."""
    figures: Figures = {}
    for question in (_get, _multi_get, _scan):
        _forget_pages(folder / PATHS[side])
        store = opened(side, folder)
        store.get(make_key(0))  # an index that the first question makes is part of loading
        figures |= question(store, random.Random(side), count)
        store.close()
    return figures


def _get(store: Fold | BareStore, drawn: random.Random, count: int) -> Figures:
    times = []
    for _ in range(GETS):
        number = drawn.randrange(count)
        key = make_key(number)
        began = time.perf_counter()
        found = store.get(key)
        times.append(time.perf_counter() - began)
        check(found, number)
    return {"get": statistics.median(times) * 1e6}


def _multi_get(store: Fold | BareStore, drawn: random.Random, count: int) -> Figures:
    times = []
    for _ in range(MULTI_GETS):
        numbers = [drawn.randrange(count) for _ in range(MULTI_KEYS)]
        keys = [make_key(number) for number in numbers]
        began = time.perf_counter()
        found = store.multi_get(keys)
        times.append(time.perf_counter() - began)
        for number, each in zip(numbers, found, strict=True):
            check(each, number)
    return {"multi_get": statistics.median(times) / MULTI_KEYS * 1e6}


def _scan(store: Fold | BareStore, drawn: random.Random, count: int) -> Figures:
    rates = []
    for _ in range(SCANS):
        part = drawn.randrange(min(PREFIXES, count))
        numbers = sorted(range(part, count, PREFIXES), key=make_key)
        prefix = b"device.%04d." % part
        began = time.perf_counter()
        found: Sequence[FoldEntry | tuple[bytes, bytes]] = store.scan(prefix)
        rates.append(len(found) / (time.perf_counter() - began))
        assert [each[0] for each in found] == [make_key(number) for number in numbers]
        for number, row in zip(numbers, found, strict=True):
            check(row if isinstance(row, FoldEntry) else row[-1], number)
    return {"scan": statistics.median(rates)}


if __name__ == "__main__":
    main()
