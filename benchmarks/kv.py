"""Buckets of a real nats-server, through our client and through nats-py: puts, gets, updates, listings, and watches.

Both speak to the same server over the same bucket in the same run, and everything that was read is compared with what
was written before a figure counts. Where nats-py has no call for something, the peer is the loop that people write. A
get of ours is answered by the leader, in JSON; one of nats-py is a direct get, which a replica that lags may answer.
`make bench ONLY=kv KEYS=5000` shows a quick run and keeps nothing of it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import nats
from nats.js.errors import NoKeysError
from nats.js.kv import KeyValue

from benchmarks._harness import Row, compare, medians, report, scratch, show, sized
from benchmarks._nats import fill_bucket, make_key, make_value, nats_server
from strandline.kv import KvStore, Put, StoreConfig
from strandline.kv.nats import NatsConnection
from strandline.nats import NatsSettings

KEYS = 100_000
VALUE_BYTES = 128
ROUNDS = 3
ALONE = 1_000
"""How many calls are made one after the other."""
TOGETHER = 256
"""How many are under way at once, in `ALONE` * 10 of them."""
PEER = "nats-py"
BUCKET = "kv"
ATTEMPTS = 100
Measured = Callable[[], Coroutine[Any, Any, float]]


def main() -> None:
    """Run all of it."""
    count = sized("KEYS", KEYS)
    with scratch() as folder, nats_server(folder / "server") as settings:
        rows = asyncio.run(_measure(settings, count))
    (report if count == KEYS else show)("kv", rows)


async def _measure(settings: NatsSettings, count: int) -> list[Row]:
    async with NatsConnection(settings) as connection:
        ours = await connection.store(BUCKET, StoreConfig(bytes_max=0))
        await asyncio.to_thread(fill_bucket, settings, BUCKET, count, VALUE_BYTES)
        client = await nats.connect(settings.urls[0])
        theirs = await client.jetstream().key_value(BUCKET)
        loop = asyncio.get_running_loop()
        try:
            # Sides are asked in turn by a thread, so that each runs on this loop alone.
            return await asyncio.to_thread(lambda: list(_rows(loop, ours, theirs, count)))
        finally:
            await client.close()


def _rows(loop: asyncio.AbstractEventLoop, ours: KvStore, theirs: KeyValue, count: int) -> Iterator[Row]:
    def both(sides: Sequence[Measured]) -> list[float]:
        calls = [lambda side=side: asyncio.run_coroutine_threadsafe(side(), loop).result() for side in sides]
        return medians(ROUNDS, calls)

    few = min(ALONE, count)
    for title, sides in _single(ours, theirs):
        one, other = both([partial(_latency, few, work) for work in sides])
        yield compare(f"{title}, one after the other", one, PEER, other, "µs", better="lower")
        one, other = both([partial(_rate, min(10 * ALONE, count), work) for work in sides])
        yield compare(f"{title}, {TOGETHER} at a time", one, PEER, other, "calls/s")
    one, other = both([lambda: _our_keys(ours, count), lambda: _peer_keys(theirs, count)])
    yield compare(f"list {count:,} keys", one, PEER, other, "keys/s")
    one, other = both([lambda: _our_scan(ours, count), lambda: _peer_scan(theirs, count)])
    yield compare(f"read {count:,} keys and values", one, f"{PEER}, a watch until its state ends", other, "keys/s")
    one, other = both([lambda: _our_columns(ours, count), lambda: _peer_scan(theirs, count)])
    yield compare(f"read {count:,} keys and values as columns", one, f"{PEER}, the same", other, "keys/s")


Call = Callable[[int], Awaitable[None]]


def _single(ours: KvStore, theirs: KeyValue) -> Iterator[tuple[str, tuple[Call, Call]]]:
    reader, writer = ours.reader(), ours.writer()
    assert writer is not None

    async def put(number: int) -> None:
        await writer.put(_key(number), _value(number))

    async def peer_put(number: int) -> None:
        await theirs.put(_key(number), _value(number))

    async def get(number: int) -> None:
        found = await reader.get(_key(number))
        assert found is not None
        assert found.value == _value(number)

    async def peer_get(number: int) -> None:
        assert (await theirs.get(_key(number))).value == _value(number)

    async def update(number: int) -> None:
        found = await reader.get(_key(number))
        assert found is not None
        await writer.update(_key(number), _value(number), found.version)

    async def peer_update(number: int) -> None:
        found = await theirs.get(_key(number))
        await theirs.update(_key(number), _value(number), found.revision)

    yield "put", (put, peer_put)
    yield "get", (get, peer_get)
    yield "get and update", (update, peer_update)


async def _latency(count: int, call: Call) -> float:
    began = time.perf_counter()
    for number in range(count):
        await call(number)
    return (time.perf_counter() - began) / count * 1e6


async def _rate(count: int, call: Call) -> float:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await call(number)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(TOGETHER)))
    return count / (time.perf_counter() - began)


async def _our_keys(ours: KvStore, count: int) -> float:
    began = time.perf_counter()
    found = await ours.reader().keys()
    seconds = time.perf_counter() - began
    assert sorted(found) == sorted(map(_key, range(count)))
    return count / seconds


async def _peer_keys(theirs: KeyValue, count: int) -> float:
    found = list[str]()
    for _ in range(ATTEMPTS):  # it believes that the state has ended once all is sent, which may be before it was read
        began = time.perf_counter()
        with suppress(NoKeysError):
            found = await theirs.keys()
        seconds = time.perf_counter() - began
        if len(found) == count:
            break
    assert sorted(found) == sorted(map(_key, range(count)))
    return count / seconds


async def _our_scan(ours: KvStore, count: int) -> float:
    began = time.perf_counter()
    found = {entry.key: entry.value for entry in await ours.reader().scan()}
    seconds = time.perf_counter() - began
    assert found == {_key(number): _value(number) for number in range(count)}
    return count / seconds


async def _our_columns(ours: KvStore, count: int) -> float:
    began = time.perf_counter()
    batches = [batch async for batch in ours.reader().scan_batches()]
    seconds = time.perf_counter() - began
    found = {update.key: update.value for batch in batches for update in batch.to_updates() if isinstance(update, Put)}
    assert found == {_key(number): _value(number) for number in range(count)}
    return count / seconds


async def _peer_scan(theirs: KeyValue, count: int) -> float:
    began = time.perf_counter()
    watcher = await theirs.watchall()
    found: dict[str, bytes] = {}
    while len(found) < count:  # it says that the state has ended once all is sent, which may be before it was read
        entry: KeyValue.Entry | None = await watcher.updates(timeout=60)  # type: ignore[no-untyped-call]
        if entry is not None:
            found[entry.key] = entry.value or b""
    seconds = time.perf_counter() - began
    await watcher.stop()  # type: ignore[no-untyped-call]
    assert found == {_key(number): _value(number) for number in range(count)}
    return count / seconds


def _key(number: int) -> str:
    return make_key(number).decode()


def _value(number: int) -> bytes:
    return make_value(number, VALUE_BYTES)


if __name__ == "__main__":
    main()
