"""Folds that start from artifacts on SeaweedFS, beside hydration from nats-server and a plain download of the bytes.

Bootstrap is all of it: fetch, check, import, connect, and the updates since. Values cannot be compressed, so that an
artifact has about the bytes of the fold. Before a figure is printed, the fold is compared with its bucket, key by key.
The pause is the time between two batches of a watch that an export takes; memory is the peak of a fresh process over
what it has with the fold open. `ARTIFACT_KEYS=10000000` is the large size.
"""

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psutil
from blake3 import blake3

from benchmarks._harness import Row, alone, compare, medians, report, scratch, show, sized
from benchmarks._nats import fill_bucket, make_key, nats_server
from strandline.artifacts import (
    ArtifactFile,
    Outcome,
    PublishedArtifacts,
    ReaderSnapshot,
    export_fold,
    export_logical,
    export_snapshot,
    export_watched,
    fetch_fold,
    take_snapshot,
)
from strandline.artifacts.layout import format_file_key
from strandline.artifacts.staging import remove_tree
from strandline.artifacts.transfers import PARALLEL
from strandline.fold import ALL, Backend, Exports, catch_up, open_fold, verify_against, watch_applied
from strandline.kv import StoreConfig
from strandline.kv.nats import NatsConnection
from strandline.nats import NatsSettings
from tests.servers_seaweed import BUCKET as S3_BUCKET
from tests.servers_seaweed import running_seaweed

WHOLE = 1_000_000
KEYS = sized("ARTIFACT_KEYS", WHOLE)
VALUE_BYTES = 128
DELTA = 1_000
ROUNDS = 3
SUFFIXES = {Backend.APPEND_LOG: ".log", Backend.SQLITE: ".db", Backend.ROCKSDB: ".rocks"}
BUCKET = "artifacts"
MB = 1e6
_CHILD = (sys.executable, "-c", "import sys; from benchmarks.artifacts import child; child(*sys.argv[1:])")


def main() -> None:
    """Run all of it."""
    rows: list[Row] = []
    with scratch() as folder, nats_server(folder / "server") as settings, running_seaweed() as seaweed:
        os.environ.update(seaweed.environ)
        asyncio.run(_make(settings))
        fill_bucket(settings, BUCKET, KEYS, VALUE_BYTES, make=make_random)
        asyncio.run(_caught_up(settings, folder / "first.log"))
        rows += _increments(folder, settings)
        rows += _bootstrap(folder, settings)
        rows += _pauses(folder, settings)
        rows += _memory(folder)
    (report if KEYS >= WHOLE else show)("artifacts", rows)


def make_random(number: int, value_bytes: int) -> bytes:
    """Return a value that cannot be compressed."""
    return blake3(b"%d" % number).digest(value_bytes)


def make_changed(number: int, value_bytes: int) -> bytes:
    """Return another value of the same key."""
    return blake3(b"changed %d" % number).digest(value_bytes)


async def _make(settings: NatsSettings) -> None:
    async with NatsConnection(settings) as connection:
        await connection.store(BUCKET, StoreConfig(bytes_max=0))


async def _caught_up(settings: NatsSettings, path: Path) -> int:
    async with NatsConnection(settings) as connection:
        return (await catch_up(await connection.store(BUCKET), ALL, lambda: open_fold(path))).revision


async def _check(settings: NatsSettings, path: Path) -> None:
    """Compare the fold with its bucket; a figure of a wrong fold is none."""
    with closing(open_fold(path)) as store:
        async with NatsConnection(settings) as connection:
            found = await verify_against(store, await connection.store(BUCKET))
    assert found.is_equal, found
    assert found.is_complete, found
    assert found.verified.entries == KEYS, found.verified


def _address(name: str) -> str:
    return f"s3://{S3_BUCKET}/{name}"


def _publish(path: Path, artifacts: PublishedArtifacts, export: Path, *, raw: bool = False) -> int:
    """Export a fold upon the newest artifact and publish it; return the bytes that were uploaded."""
    remove_tree(export)
    if raw:
        with closing(open_fold(path)) as store:
            export_fold(store, export)
    else:
        with closing(ReaderSnapshot(path)) as snapshot:
            export_logical(snapshot, export, previous=artifacts.previous())
    published = artifacts.publish(export)
    assert published.outcome is Outcome.PUBLISHED, published.outcome
    remove_tree(export)
    return published.uploaded_bytes


def _increments(folder: Path, settings: NatsSettings) -> Iterator[Row]:
    """Publish, change keys all over the bucket, and publish again."""
    path = folder / "first.log"
    with PublishedArtifacts.open(_address("increments")) as artifacts:
        first = _publish(path, artifacts, folder / "export")
        fill_bucket(settings, BUCKET, KEYS // 100, VALUE_BYTES, step=100, make=make_changed)
        asyncio.run(_caught_up(settings, path))
        second = _publish(path, artifacts, folder / "export")
        fetch_fold(artifacts, folder / "increments.log")
    asyncio.run(_check(settings, folder / "increments.log"))
    what = f"second export of {KEYS:,} keys after 1 % changed, bytes uploaded of the first's"
    yield alone(what, 100 * second / first, "%", better="lower", goal=5)


def _bootstrap(folder: Path, settings: NatsSettings) -> Iterator[Row]:
    """Start folds from an artifact that is `DELTA` updates old, and fill others from the server."""
    addresses = {"tables": _address("tables"), "raw": _address("raw")}
    for name, address in addresses.items():
        with PublishedArtifacts.open(address) as artifacts:
            _publish(folder / "first.log", artifacts, folder / "export", raw=name == "raw")
    fill_bucket(settings, BUCKET, DELTA, VALUE_BYTES, step=KEYS // DELTA, make=make_changed)
    numbers = iter(range(1000))

    def bootstrap(address: str) -> float:
        path = folder / f"bootstrapped-{next(numbers)}.log"
        began = time.perf_counter()
        with PublishedArtifacts.open(address, is_read_only=True) as artifacts:
            fetch_fold(artifacts, path)
        asyncio.run(_caught_up(settings, path))
        seconds = time.perf_counter() - began
        asyncio.run(_check(settings, path))
        return seconds

    def hydrate() -> float:
        path = folder / f"hydrated-{next(numbers)}.log"
        began = time.perf_counter()
        asyncio.run(_caught_up(settings, path))
        seconds = time.perf_counter() - began
        asyncio.run(_check(settings, path))
        return seconds

    sides = [lambda address=address: bootstrap(address) for address in addresses.values()]
    plain = [lambda address=address: _download(address, folder / "plain") for address in addresses.values()]
    tables, raw, hydrated, *downloads = medians(ROUNDS, [*sides, hydrate, *plain])
    what = f"start a fold of {KEYS:,} keys of {VALUE_BYTES} B from an artifact, {DELTA:,} updates behind"
    for form, seconds, download in (("tables", tables, downloads[0]), ("raw", raw, downloads[1])):
        is_default = form == "tables"
        name = f"{what}, {form}"
        yield compare(name, seconds, "from nats-server", hydrated, "s", better="lower", goal=5 if is_default else None)
        yield compare(name, seconds, "plain download", download, "s", better="lower", goal=0.5 if is_default else None)


def _download(address: str, folder: Path) -> float:
    """Get the files of the newest artifact into files, several at once, and look at nothing."""
    remove_tree(folder)
    folder.mkdir()
    began = time.perf_counter()
    with PublishedArtifacts.open(address, is_read_only=True) as artifacts:
        files = artifacts.newest().files

        def download(file: ArtifactFile) -> int:
            found = artifacts.objects.get(format_file_key(file))
            assert found is not None
            return (folder / file.blake3).write_bytes(found.body)

        with ThreadPoolExecutor(PARALLEL) as threads:
            sizes = list(threads.map(download, files))
    seconds = time.perf_counter() - began
    assert sizes == [file.size for file in files]
    return seconds


def _pauses(folder: Path, settings: NatsSettings) -> Iterator[Row]:
    for backend, suffix in SUFFIXES.items():
        path = folder / f"watched{suffix}"
        with PublishedArtifacts.open(_address("tables"), is_read_only=True) as artifacts:
            fetch_fold(artifacts, path, backend=backend)
        pause_s = asyncio.run(_pause(folder, settings, path))
        what = f"pause of a watch by an export of {KEYS:,} keys, {backend.value}"
        yield alone(what, 1000 * pause_s, "ms", better="lower", goal=50)


async def _pause(folder: Path, settings: NatsSettings, path: Path) -> float:
    """Export a fold while keys are written, and return the median of the pauses; the last artifact must be whole."""
    exports, stop, pauses = Exports(), asyncio.Event(), []
    async with NatsConnection(settings) as connection:
        store = await connection.store(BUCKET)
        watching = asyncio.create_task(watch_applied(store, ALL, lambda: open_fold(path), exports=exports, stop=stop))
        for _ in range(ROUNDS):
            writing = asyncio.create_task(
                asyncio.to_thread(fill_bucket, settings, BUCKET, DELTA, VALUE_BYTES, make=make_changed)
            )
            exported = await export_watched(exports, folder / "watched", export=export_logical)
            await writing
            assert exported.manifest.entries == KEYS, exported.manifest
            pauses.append(exported.pause_s)
            remove_tree(folder / "watched")
        stop.set()
        await watching
    return statistics.median(pauses)


def _memory(folder: Path) -> Iterator[Row]:
    """Ask fresh processes for their peaks."""
    for what in ("export", "raw export", "bootstrap"):
        command = [*_CHILD, what, str(folder), _address("tables")]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        title = f"memory, {what} of {KEYS:,} keys, over the fold's own"
        yield alone(title, float(done.stdout), "MB", better="lower", goal=300)


def child(what: str, folder: str, address: str) -> None:
    """Export or bootstrap, and print the peak of memory over what the open fold takes, in MB."""
    source, made = Path(folder) / "first.log", Path(folder) / f"memory-{what}"
    if what.endswith("export"):
        with closing(open_fold(source)) as store, PublishedArtifacts.open(address) as artifacts:
            assert store.get(make_key(7)) is not None  # a question makes its index
            own = psutil.Process().memory_info().rss
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak
            with closing(take_snapshot(store)) as snapshot:
                if what == "export":
                    export_logical(snapshot, made, previous=artifacts.previous())
                else:
                    export_snapshot(snapshot, made)
            peak = peak_bytes()
    else:
        with PublishedArtifacts.open(address, is_read_only=True) as artifacts:
            Path("/proc/self/clear_refs").write_text("5")
            fetch_fold(artifacts, made)
            peak = peak_bytes()
        gc.collect()
        with closing(open_fold(made)) as store:
            assert store.get(make_key(7)) is not None
            own = psutil.Process().memory_info().rss
    print(max(0.0, (peak - own) / MB))


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
