"""A fold of a bucket with three replicas, while the leaders of its stream are killed under load.

Whatever a leader's death did to writes in flight, the fold ends as the bucket, without a repair, and no cursor moved
back. Writers may not know what became of a write; the bucket knows.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from strandline.errors import StrandlineError
from strandline.events import Event, Events
from strandline.fold import ALL, catch_up, open_fold, verify_against, watch_applied
from strandline.fold.events import RepairBegan
from strandline.fold.watch import Applied, Hooks
from strandline.kv import KvStore, StoreConfig
from strandline.kv.nats import NatsConnection
from strandline.nats import NatsSettings
from tests.servers_nats import NatsCluster

KEYS = 40
LASTING = ThreadPoolExecutor(1)
"""A server dies with the thread that started it."""
QUIET_S = 1.0
"""How long is written between two deaths, once writes go through."""


class Seen:
    """What a fold told while it was kept."""

    def __init__(self) -> None:
        self.durable: list[int] = []
        self.delivered = 0
        self.repairs = 0
        self.begun = asyncio.Event()

    def applied(self, what: Applied) -> None:
        self.delivered += len(what.updates)
        if what.durable:
            self.durable.append(what.cursor.revision)
            self.begun.set()

    def tell(self, event: Event) -> None:
        self.repairs += isinstance(event, RepairBegan)


class Writer:
    """Writes without end, and goes on after whatever a server's death does to it."""

    def __init__(self, store: KvStore) -> None:
        self._store = store
        self.acknowledged = 0
        self.refused = 0

    async def write(self, stop: asyncio.Event) -> None:
        random = Random(1)
        writer = self._store.writer()
        assert writer is not None
        while not stop.is_set():
            key = f"k.{random.randrange(KEYS)}"
            try:
                if random.random() < 0.8:
                    await writer.put(key, random.randbytes(100))
                else:
                    await writer.delete(key)
                self.acknowledged += 1
            except StrandlineError:
                self.refused += 1
                await asyncio.sleep(0.1)


async def fold_while_leaders_die(cluster: NatsCluster, bucket: str, path: Path, deaths: int) -> tuple[Seen, Writer]:
    """Keep a fold and write, while leader after leader is killed and started again; then compare."""
    settings = NatsSettings(cluster.urls)
    hasty = NatsSettings(cluster.urls, timeout_s=3.0)
    seen, stop = Seen(), asyncio.Event()
    async with NatsConnection(settings) as connection, NatsConnection(hasty) as other:
        store = await connection.store(bucket, StoreConfig(replicas=3, history=5))
        made = store.writer()
        assert made is not None
        await made.put("anchor", b"-")  # the log reaches back to every cursor while its first message stays
        hooks = Hooks(on_applied=seen.applied, events=Events(seen.tell))
        folding = asyncio.create_task(watch_applied(store, ALL, lambda: open_fold(path), hooks=hooks, stop=stop))
        writer = Writer(await other.store(bucket))
        writing = asyncio.create_task(writer.write(stop))
        await seen.begun.wait()
        for _ in range(deaths):
            before = writer.acknowledged
            leader = await asyncio.to_thread(cluster.leader_of, f"KV_{bucket}")
            await asyncio.to_thread(leader.kill)
            while writer.acknowledged < before + 100:
                assert not folding.done(), folding
                await asyncio.sleep(0.05)
            await asyncio.get_running_loop().run_in_executor(LASTING, cluster.mend)
            await asyncio.sleep(QUIET_S)
        stop.set()
        await writing
        await folding
        await catch_up(store, ALL, lambda: open_fold(path))
        fold = open_fold(path)
        try:
            found = await verify_against(fold, store)
        finally:
            fold.close()
    assert found.is_equal, found
    assert found.is_complete, found
    return seen, writer


def check(seen: Seen, writer: Writer, deaths: int) -> None:
    """The cursor only moved on, nothing was repaired or delivered twice, and writes did meet the deaths."""
    assert seen.durable == sorted(seen.durable)
    assert seen.repairs == 0
    assert seen.delivered <= writer.acknowledged + writer.refused + 1
    assert writer.acknowledged >= 100 * deaths


def test_a_fold_survives_the_deaths_of_its_leaders(nats_cluster: NatsCluster, nats_bucket: str, tmp_path: Path) -> None:
    seen, writer = asyncio.run(fold_while_leaders_die(nats_cluster, nats_bucket, tmp_path / "fold.log", 2))
    check(seen, writer, 2)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["fold.log", "fold.db", "fold.rocks"])
def test_a_fold_survives_many_deaths_of_its_leaders(
    nats_cluster: NatsCluster, nats_bucket: str, tmp_path: Path, name: str
) -> None:
    seen, writer = asyncio.run(fold_while_leaders_die(nats_cluster, nats_bucket, tmp_path / name, 12))
    check(seen, writer, 12)
