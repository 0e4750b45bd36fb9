"""The journal beside RocksDB and beside the bare system call: append, scan, fetch, reopen, memory.

Every figure is the median of interleaved rounds, and every result is read back and checked before its figure counts.
The plain write is given its bytes already joined, so it is the floor that no writer of records can pass.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from benchmarks._harness import Row, alone, compare, medians, report, scratch
from strandline.journal import SYNCED, WRITTEN, Durability, Journal, JournalSet

ROUNDS = 5
TEN_MILLION = 10_000_000
SEED = 7


def records_of(size: int, count: int) -> list[bytes]:
    """Return distinct records of one size."""
    data = random.Random(SEED).randbytes(size * count)
    return [data[i * size : (i + 1) * size] for i in range(count)]


def timed_producers(producers: int, calls: int, call: Callable[[], object]) -> float:
    """Return the seconds that `calls` calls take, shared among threads."""
    if producers == 1:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - begin
    barrier = threading.Barrier(producers + 1)

    def work() -> None:
        barrier.wait()
        for _ in range(calls // producers):
            call()

    threads = [threading.Thread(target=work) for _ in range(producers)]
    for thread in threads:
        thread.start()
    barrier.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def append_ours(batch: list[bytes], calls: int, producers: int, durability: Durability) -> float:
    """Return records per second through `Journal.append`, after reading them back."""
    with scratch() as folder, Journal.open(folder / "journal") as journal:
        seconds = timed_producers(producers, calls, lambda: journal.append(batch, durability=durability))
        total = calls // producers * producers * len(batch)
        journal.sync()
        assert journal.next_offset == total
        seen = 0
        for read in journal.scan(0):
            values = read.values()
            assert values[0] == batch[seen % len(batch)]
            assert values[-1] == batch[(seen + len(values) - 1) % len(batch)]
            seen += len(values)
        assert seen == total
        return total / seconds


def append_rocksdb(batch: list[bytes], calls: int, producers: int, durability: Durability) -> float:
    """Return records per second through RocksDB's `WriteBatch` under rising 8-byte keys."""
    options = WriteOptions()
    options.sync = durability is SYNCED
    lock = threading.Lock()
    next_key = 0
    with scratch() as folder:
        database = Rdict(str(folder / "rocksdb"), Options(raw_mode=True))

        def write() -> None:
            nonlocal next_key
            with lock:
                key = next_key
                next_key += len(batch)
            write_batch = WriteBatch(raw_mode=True)
            for value in batch:
                write_batch.put(key.to_bytes(8, "big"), value)
                key += 1
            database.write(write_batch, options)

        seconds = timed_producers(producers, calls, write)
        total = calls // producers * producers * len(batch)
        assert next_key == total
        assert database[(total - 1).to_bytes(8, "big")] == batch[-1]
        database.close()
        return total / seconds


def append_plain(pieces: list[bytes], records: int, calls: int, producers: int, durability: Durability) -> float:
    """Return records per second through a bare `os.writev` of the pieces, with an `os.fdatasync` where asked."""
    with scratch() as folder:
        descriptor = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def write() -> None:
            os.writev(descriptor, pieces)
            if durability is SYNCED:
                os.fdatasync(descriptor)

        seconds = timed_producers(producers, calls, write)
        total = calls // producers * producers
        assert os.fstat(descriptor).st_size == total * sum(map(len, pieces))
        os.close(descriptor)
        return total * records / seconds


def append_rows() -> Iterator[Row]:
    """Measure appends of every shape."""
    for size in (128, 1024):
        for count in (1, 100, 1000):
            batch = records_of(size, count)
            joined = [b"".join(batch)]
            for durability in (WRITTEN, SYNCED):
                for producers in (1, 8):
                    calls = 400 if durability is SYNCED else {1: 8000, 100: 2400, 1000: 800 * 128 // size}[count]
                    yield from _append_case(size, batch, joined, durability, producers, calls)


def _append_case(
    size: int, batch: list[bytes], joined: list[bytes], durability: Durability, producers: int, calls: int
) -> Iterator[Row]:
    count = len(batch)
    case = f"append {durability.value} {size} B x {count}, {producers} producer{'s' if producers > 1 else ''}"
    written_goal = durability is WRITTEN and count == 1000 and size == 128 and producers == 1
    ours, rocksdb, plain, pieces = medians(
        ROUNDS,
        [
            lambda: append_ours(batch, calls, producers, durability),
            lambda: append_rocksdb(batch, calls, producers, durability),
            lambda: append_plain(joined, count, calls, producers, durability),
            lambda: append_plain(batch, count, calls, producers, durability),
        ],
    )
    rocks_goal = 5.0 if written_goal else 3.0 if durability is SYNCED and producers == 8 else None
    yield compare(case, ours, "RocksDB WriteBatch", rocksdb, "records/s", goal=rocks_goal)
    yield compare(case, ours, "os.writev, joined", plain, "records/s", goal=0.5 if written_goal else None)
    if count > 1:
        yield compare(case, ours, "os.writev, pieces", pieces, "records/s")


def scan_rows(folder: Path, records: int, size: int) -> Iterator[Row]:
    """Measure a scan to Arrow beside a plain read of the same files, and random fetches beside RocksDB."""
    files = sorted(folder.glob("*.journal"))
    bytes_total = sum(path.stat().st_size for path in files)

    with Journal.open(folder) as journal:
        tables = [batch.to_arrow() for batch in journal.scan(0, max_records=100_000)]
        values = records_of(size, 1000)
        assert [value for table in tables for value in table.column("value").to_pylist()] == values * 100

        def scan() -> float:
            begin = time.perf_counter()
            rows = 0
            for batch in journal.scan(0):
                rows += batch.to_arrow().num_rows
            seconds = time.perf_counter() - begin
            assert rows == records
            return bytes_total / seconds / 1e9

        def read() -> float:
            begin = time.perf_counter()
            seen = 0
            for path in files:
                with path.open("rb", buffering=0) as file:
                    while data := file.read(1 << 20):
                        seen += len(data)
            assert seen == bytes_total
            return bytes_total / (time.perf_counter() - begin) / 1e9

        read()
        ours, plain = medians(ROUNDS, [scan, read])
        yield compare(f"scan to Arrow, {size} B x 1000", ours, "plain read, 1 MiB", plain, "GB/s", goal=0.5)
        yield alone(f"scan to Arrow, {size} B x 1000", ours * 1e9 / (bytes_total / records), "records/s")
        yield from fetch_rows(journal)


def fetch_rows(journal: Journal) -> Iterator[Row]:
    """Measure random fetches beside RocksDB's `get` over as many records."""
    count = 200_000
    batch = records_of(128, 1000)
    offsets = random.Random(SEED).sample(range(count), 2000)
    with scratch() as folder:
        database = Rdict(str(folder / "rocksdb"), Options(raw_mode=True))
        for begin in range(0, count, len(batch)):
            write_batch = WriteBatch(raw_mode=True)
            for i, value in enumerate(batch):
                write_batch.put((begin + i).to_bytes(8, "big"), value)
            database.write(write_batch)
        database.flush()

        def ours() -> float:
            begin = time.perf_counter()
            for offset in offsets:
                assert journal.fetch(offset).value == batch[offset % len(batch)]
            return (time.perf_counter() - begin) / len(offsets) * 1e6

        def theirs() -> float:
            begin = time.perf_counter()
            for offset in offsets:
                assert database[offset.to_bytes(8, "big")] == batch[offset % len(batch)]
            return (time.perf_counter() - begin) / len(offsets) * 1e6

        fetch, get = medians(ROUNDS, [ours, theirs])
        database.close()
    yield compare("fetch one of 128 B", fetch, "RocksDB get", get, "µs", better="lower")


FILL = """
import os, signal, sys
from benchmarks.journal import records_of
from strandline.journal import Journal, WRITTEN
journal = Journal.open(sys.argv[1])
batch = records_of(128, 1000)
for _ in range(int(sys.argv[2]) // 1000):
    journal.append(batch, durability=WRITTEN)
journal.sync()
if sys.argv[3] == "clean":
    journal.close()
else:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def reopen_rows(folder: Path) -> Iterator[Row]:
    """Measure opening ten million records, after a clean shutdown and after a SIGKILL."""
    rocksdb = folder / "rocksdb"
    database = Rdict(str(rocksdb), Options(raw_mode=True))
    batch = records_of(128, 1000)
    for begin in range(0, TEN_MILLION, 1000):
        write_batch = WriteBatch(raw_mode=True)
        for i, value in enumerate(batch):
            write_batch.put((begin + i).to_bytes(8, "big"), value)
        database.write(write_batch)
    database.close()
    for end in ("clean", "killed"):
        journal = folder / end
        subprocess.run([sys.executable, "-c", FILL, str(journal), str(TEN_MILLION), end], check=end == "clean")

    def open_journal(name: str) -> float:
        copy = folder / "copy"
        copy.mkdir()
        for path in (folder / name).iterdir():  # segments are linked: opening changes nothing in them
            (os.link if path.suffix == ".journal" else shutil.copy)(path, copy / path.name)
        begin = time.perf_counter()
        opened = Journal.open(copy)
        seconds = time.perf_counter() - begin
        assert opened.next_offset == opened.durable_offset == TEN_MILLION
        assert opened.fetch(TEN_MILLION - 1).value == batch[-1]
        opened.close()
        shutil.rmtree(copy)
        return seconds * 1000

    def open_rocksdb() -> float:
        begin = time.perf_counter()
        opened = Rdict(str(rocksdb), Options(raw_mode=True))
        seconds = time.perf_counter() - begin
        assert opened[(TEN_MILLION - 1).to_bytes(8, "big")] == batch[-1]
        opened.close()
        return seconds * 1000

    clean, killed, theirs = medians(
        ROUNDS, [lambda: open_journal("clean"), lambda: open_journal("killed"), open_rocksdb]
    )
    yield compare("reopen 10 M records, clean", clean, "RocksDB, clean", theirs, "ms", better="lower")
    yield alone("reopen 10 M records, clean", clean, "ms", better="lower", goal=50)
    yield alone("reopen 10 M records, after SIGKILL", killed, "ms", better="lower")
    yield from scan_rows(folder / "clean", TEN_MILLION, 128)


MEMORY = """
import sys, psutil
from benchmarks.journal import records_of
from strandline.journal import Journal, WRITTEN
batch = records_of(1024, 1000)
with Journal.open(sys.argv[1]) as journal:
    journal.append(batch, durability=WRITTEN)
    before = psutil.Process().memory_info().rss
    peak = before
    for i in range(1500):
        journal.append(batch, durability=WRITTEN)
        if i % 100 == 0:
            peak = max(peak, psutil.Process().memory_info().rss)
    rows = sum(batch.to_arrow().num_rows for batch in journal.scan(0, visibility=WRITTEN))
    assert rows == 1_501_000
    peak = max(peak, psutil.Process().memory_info().rss)
print(before, peak)
"""


def memory_rows() -> Iterator[Row]:
    """Measure what appending and scanning 1.5 GB adds to the process, and what a thousand open journals cost."""
    with scratch() as folder:
        command = [sys.executable, "-c", MEMORY, str(folder / "journal")]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode().split()
        before, peak = map(int, printed)
    yield alone("memory over payload, append and scan 1.5 GB", (peak - before) / 1e6, "MB", better="lower", goal=100)
    with scratch() as folder:
        process = psutil.Process()
        before, threads, files = process.memory_info().rss, process.num_threads(), process.num_fds()
        with JournalSet.open(folder / "set") as journals:
            begin = time.perf_counter()
            for i in range(1000):
                journals.journal(f"topic/{i}").append([b"x" * 128], durability=WRITTEN)
            seconds = time.perf_counter() - begin
            rss = process.memory_info().rss - before
            yield alone("1,000 open journals, memory each", rss / 1000 / 1e3, "kB", better="lower")
            yield alone("1,000 open journals, threads", process.num_threads() - threads, "threads", better="lower")
            yield alone("1,000 open journals, files", process.num_fds() - files, "files", better="lower")
            yield alone("create a journal and append to it", seconds, "ms", better="lower")
            assert len(journals.names()) == 1000


def main() -> None:
    """Run everything and report it."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    rows = [*append_rows(), *memory_rows()]
    with scratch() as folder:
        rows += reopen_rows(folder)
    report("journal", rows)


if __name__ == "__main__":
    main()
