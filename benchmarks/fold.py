"""Folds of a bucket on a real nats-server: filling, keeping up, resuming, and what a key costs in memory.

The peer is nats-py's `watchall` into a dict, which is what people have today and which forgets everything when it ends;
ours is durable at every cursor. The bare socket only drains what the server sends for the same state, and shows what is
left to win. Before a figure is printed, the fold is compared with its bucket, key by key.
"""

import asyncio
import gc
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import psutil
from nats.js.kv import KeyValue

from benchmarks._harness import Row, alone, compare, medians, report, scratch
from benchmarks._nats import delivered_bytes, drain, fill_bucket, make_key, make_value, nats_server
from benchmarks._streams import stream_rows
from strandline.fold import ALL, Backend, catch_up, open_fold, verify_against, watch_applied
from strandline.fold.watch import Applied, Hooks
from strandline.kv import StoreConfig
from strandline.kv.nats import NatsConnection
from strandline.nats import NatsSettings, NatsSocket, stream_state

COUNTS = (100_000, 1_000_000)
VALUE_BYTES = 128
ROUNDS = 3
DELTA = 1_000
STEADY = 300_000
PINGS = 500
PING_EVERY_S = 0.005
PEER = "nats-py watchall"
SUFFIXES = {Backend.APPEND_LOG: ".log", Backend.SQLITE: ".db", Backend.ROCKSDB: ".rocks"}
_CHILD = (sys.executable, "-c", "import sys; from benchmarks.fold import child; child(*sys.argv[1:])")


def main() -> None:
    """Run all of it."""
    rows: list[Row] = []
    with scratch() as folder, nats_server(folder / "server") as settings:
        for count in COUNTS:
            rows += _filling(folder, settings, count)
        rows += _resuming(folder, settings, COUNTS[-1])
        rows += _memory(folder, settings, COUNTS[-1])
        rows += _keeping_up(folder, settings)
        rows += _delays(folder, settings)
    rows += list(stream_rows())
    report("fold", rows)


def _filling(folder: Path, settings: NatsSettings, count: int) -> Iterator[Row]:
    bucket = f"keys{count}"
    asyncio.run(_make(settings, bucket))
    fill_bucket(settings, bucket, count, VALUE_BYTES)
    wanted = delivered_bytes(settings, bucket, count)
    rounds = iter(range(1000))

    def ours(backend: Backend) -> float:
        path = folder / f"{bucket}-{next(rounds)}{SUFFIXES[backend]}"
        began = time.perf_counter()
        asyncio.run(_fold(settings, bucket, path))
        seconds = time.perf_counter() - began
        asyncio.run(_check(settings, bucket, path, count))
        return seconds

    what = f"hydrate {count:,} keys of {VALUE_BYTES} B"
    sides = [lambda one=backend: ours(one) for backend in Backend]
    *figures, bare = medians(ROUNDS, [*sides, lambda: drain(settings, bucket, wanted)])
    name, rate = _peer_rate(settings)
    for backend, seconds in zip(Backend, figures, strict=True):
        goal = 15 if backend is Backend.APPEND_LOG else None
        yield compare(f"{what}, {backend.value}", count / seconds, name, rate, "keys/s", goal=goal)
    yield compare(f"{what}, append-log", count / figures[0], "bare socket", count / bare, "keys/s", goal=0.5)


def _peer_rate(settings: NatsSettings) -> tuple[str, float]:
    """Return the peer's rate over the smaller bucket: over a million keys it stood still for a minute."""
    count = COUNTS[0]
    (seconds,) = medians(ROUNDS, [lambda: asyncio.run(_peer_hydrate(settings, f"keys{count}", count))])
    return f"{PEER}, {count:,} keys", count / seconds


async def _make(settings: NatsSettings, bucket: str) -> None:
    async with NatsConnection(settings) as connection:
        await connection.store(bucket, StoreConfig(bytes_max=0))


async def _fold(settings: NatsSettings, bucket: str, path: Path) -> int:
    async with NatsConnection(settings) as connection:
        mark = await catch_up(await connection.store(bucket), ALL, lambda: open_fold(path))
        return mark.revision


async def _check(settings: NatsSettings, bucket: str, path: Path, count: int) -> None:
    """Compare the fold with its bucket; a figure of a wrong fold is none."""
    store = open_fold(path)
    async with NatsConnection(settings) as connection:
        found = await verify_against(store, await connection.store(bucket))
    store.close()
    assert found.is_equal, found
    assert found.is_complete, found
    assert found.verified.entries == count, found.verified


async def _peer_hydrate(settings: NatsSettings, bucket: str, count: int) -> float:
    began = time.perf_counter()
    state = await _peer_state(settings, bucket)
    seconds = time.perf_counter() - began
    assert len(state) == count
    assert state[make_key(7).decode()] == make_value(7, VALUE_BYTES)
    return seconds


async def _peer_state(settings: NatsSettings, bucket: str) -> dict[str, bytes]:
    client = await nats.connect(settings.urls[0])
    watcher = await (await client.jetstream().key_value(bucket)).watchall()
    state: dict[str, bytes] = {}
    while (entry := await _told(watcher)) is not None:
        state[entry.key] = entry.value or b""
    await client.close()
    return state


async def _told(watcher: KeyValue.KeyWatcher) -> KeyValue.Entry | None:
    """Return the next entry, None where the state ends and the live updates begin."""
    entry: KeyValue.Entry | None = await watcher.updates(timeout=60)  # type: ignore[no-untyped-call]
    return entry


def _resuming(folder: Path, settings: NatsSettings, count: int) -> Iterator[Row]:
    bucket, path = f"keys{count}", folder / "resumed.log"
    asyncio.run(_fold(settings, bucket, path))

    def resume() -> float:
        fill_bucket(settings, bucket, DELTA, VALUE_BYTES)
        began = time.perf_counter()
        asyncio.run(_fold(settings, bucket, path))
        return time.perf_counter() - began

    (seconds,) = medians(ROUNDS, [resume])
    asyncio.run(_check(settings, bucket, path, count))
    what = f"resume a fold of {count:,} keys, {DELTA:,} updates behind"
    yield alone(what, seconds, "s", better="lower", goal=1)


def _memory(folder: Path, settings: NatsSettings, count: int) -> Iterator[Row]:
    """Ask fresh processes how much they grow, so that nothing else counts."""
    ours = _grown("ours", settings, f"keys{count}", folder / "grown.log") / count
    peer = _grown("peer", settings, f"keys{COUNTS[0]}", folder / "none") / COUNTS[0]
    yield compare("memory per key, append-log", ours, f"{PEER}, {COUNTS[0]:,} keys", peer, "bytes", better="lower")


def _grown(side: str, settings: NatsSettings, bucket: str, path: Path) -> float:
    command = [*_CHILD, side, settings.urls[0], bucket, str(path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return float(done.stdout.split()[0])


def child(side: str, url: str, bucket: str, path: str) -> None:
    """Hold a bucket's state, and print how many bytes this process grew by it."""
    process = psutil.Process()
    asyncio.run(_fold(NatsSettings(url), bucket, Path(path)) if side == "ours" else asyncio.sleep(0))
    gc.collect()
    before = process.memory_info().rss
    if side == "ours":
        held: object = open_fold(path)
        assert held.get(make_key(7)) is not None  # type: ignore[attr-defined]  # a question makes its index
    else:
        held = asyncio.run(_peer_state(NatsSettings(url), bucket))
    gc.collect()
    print(process.memory_info().rss - before, "for", type(held).__name__)


def _keeping_up(folder: Path, settings: NatsSettings) -> Iterator[Row]:
    """Let another process overwrite keys as fast as it can, from a moment when everything is up to date."""
    bucket = f"keys{COUNTS[0]}"
    path = folder / "steady.log"
    asyncio.run(_fold(settings, bucket, path))
    ours = asyncio.run(_keep_up(settings, bucket, path))
    asyncio.run(_check(settings, bucket, path, COUNTS[0]))
    peer = asyncio.run(_peer_keeps_up(settings, bucket))
    yield compare("updates applied while they are written", STEADY / ours, PEER, STEADY / peer, "updates/s")


async def _keep_up(settings: NatsSettings, bucket: str, path: Path) -> float:
    stop = asyncio.Event()
    target = stream_state(settings, f"KV_{bucket}").last + STEADY
    times: list[float] = []

    def see(applied: Applied) -> None:
        times.append(time.perf_counter())
        if applied.durable and applied.cursor.revision >= target:
            stop.set()

    async with NatsConnection(settings) as connection:
        store = await connection.store(bucket)
        watching = asyncio.create_task(
            watch_applied(store, ALL, lambda: open_fold(path), hooks=Hooks(on_applied=see), stop=stop)
        )
        with _writer(settings, bucket):
            await watching
    return times[-1] - times[0]


async def _peer_keeps_up(settings: NatsSettings, bucket: str) -> float:
    client = await nats.connect(settings.urls[0])
    watcher = await (await client.jetstream().key_value(bucket)).watchall()
    while await _told(watcher) is not None:
        pass
    target = stream_state(settings, f"KV_{bucket}").last + STEADY
    state: dict[str, bytes] = {}
    with _writer(settings, bucket):
        entry = await _told(watcher)
        began = time.perf_counter()
        while entry is None or (entry.revision or 0) < target:
            if entry is not None:
                state[entry.key] = entry.value or b""
            entry = await _told(watcher)
        seconds = time.perf_counter() - began
    await client.close()
    return seconds


@contextmanager
def _writer(settings: NatsSettings, bucket: str) -> Iterator[None]:
    """Overwrite keys in a process of its own while the block runs."""
    writer = multiprocessing.get_context("spawn").Process(target=_overwrite, args=(settings, bucket))
    writer.start()
    try:
        yield
        writer.join(timeout=60)
        assert writer.exitcode == 0, "the writer failed"
    finally:
        writer.kill()


def _overwrite(settings: NatsSettings, bucket: str) -> None:
    for _ in range(STEADY // COUNTS[0]):
        fill_bucket(settings, bucket, COUNTS[0], VALUE_BYTES)


def _delays(folder: Path, settings: NatsSettings) -> Iterator[Row]:
    """Put now and then, and see when each put is durable in the fold, or told to the peer."""
    bucket, path = f"keys{COUNTS[0]}", folder / "steady.log"
    asyncio.run(_fold(settings, bucket, path))
    ours = sorted(asyncio.run(_our_delays(settings, bucket, path)))
    peer = sorted(asyncio.run(_peer_delays(settings, bucket)))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        one, other = (side[int(share * (len(side) - 1))] * 1000 for side in (ours, peer))
        yield compare(f"put to applied and durable, {name}", one, f"{PEER}, told only", other, "ms", better="lower")


async def _our_delays(settings: NatsSettings, bucket: str, path: Path) -> list[float]:
    seen: dict[int, float] = {}
    stop = asyncio.Event()

    def see(applied: Applied) -> None:
        if applied.durable:
            seen.update(dict.fromkeys(applied.updates.versions.tolist(), time.perf_counter()))
        if len(seen) >= PINGS:
            stop.set()

    async with NatsConnection(settings) as connection:
        store = await connection.store(bucket)
        watching = asyncio.create_task(
            watch_applied(store, ALL, lambda: open_fold(path), hooks=Hooks(on_applied=see), stop=stop)
        )
        put = await asyncio.to_thread(_put_now_and_then, settings, bucket)
        await watching
    return [seen[revision] - at for revision, at in put.items()]


async def _peer_delays(settings: NatsSettings, bucket: str) -> list[float]:
    client = await nats.connect(settings.urls[0])
    watcher = await (await client.jetstream().key_value(bucket)).watchall()
    while await _told(watcher) is not None:
        pass
    putting = asyncio.create_task(asyncio.to_thread(_put_now_and_then, settings, bucket))
    seen: dict[int, float] = {}
    while len(seen) < PINGS:
        entry = await _told(watcher)
        if entry is not None:
            seen[entry.revision or 0] = time.perf_counter()
    put = await putting
    await client.close()
    return [seen[revision] - at for revision, at in put.items()]


def _put_now_and_then(settings: NatsSettings, bucket: str) -> dict[int, float]:
    """Put one key after the other with pauses; return when each was sent, by its revision."""
    time.sleep(0.5)
    put = {}
    with NatsSocket.connect(settings) as client:
        for number in range(PINGS):
            at = time.perf_counter()
            reply = client.request(f"$KV.{bucket}.{make_key(number).decode()}", make_value(number, VALUE_BYTES))
            put[int(json.loads(reply.payload)["seq"])] = at
            time.sleep(PING_EVERY_S)
    return put


if __name__ == "__main__":
    main()
