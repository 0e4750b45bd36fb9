"""Shared code of the checks of a bucket: their arguments, and reads of a watch with a timeout."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from strandline.kv import Connection, KvStore, KvUpdate, KvWatcher, KvWriter, StoreConfig, Watch
from strandline.testing.contract import ContractBroken, expect

PATIENCE_S = 10.0
QUIET_S = 0.05


@dataclass(frozen=True, slots=True)
class CheckedKv:
    """The argument of a check: a connection, fresh buckets of any settings, and a function that advances time."""

    connection: Connection
    new_store: Callable[[StoreConfig], Awaitable[KvStore]]
    pass_time: Callable[[float], Awaitable[None]]


class KvStoreCheck(Protocol):
    """One promise of the contract; its name says what must hold."""

    __name__: str

    async def __call__(self, kv: CheckedKv, /) -> None:
        """Return if the promise is kept, raise `ContractBroken` if not."""
        ...


async def writable(kv: CheckedKv, config: StoreConfig | None = None) -> tuple[KvStore, KvWriter]:
    """Return a fresh bucket and its writer."""
    store = await kv.new_store(config or StoreConfig())
    writer = store.writer()
    if writer is None:
        raise ContractBroken("", "the bucket has no writer, though the checks need one")
    return store, writer


def watcher_of(store: KvStore) -> KvWatcher:
    """Return a bucket's watcher."""
    watcher = store.watcher()
    if watcher is None:
        raise ContractBroken("", "the bucket has no watcher, though the checks need one")
    return watcher


async def hear(watch: Watch, count: int) -> list[KvUpdate]:
    """Return exactly `count` next updates of a watch."""
    heard: list[KvUpdate] = []
    while len(heard) < count:
        try:
            batch = await asyncio.wait_for(watch.batch(count - len(heard)), PATIENCE_S)
        except TimeoutError:
            raise ContractBroken("", f"a watch told {len(heard)} updates instead of {count}: {heard}") from None
        expect(len(batch), "a batch of a watch is empty")
        heard += batch.to_updates()
    return heard


async def hear_nothing(watch: Watch) -> None:
    """Report an unexpected update of a watch."""
    try:
        batch = await asyncio.wait_for(watch.batch(), QUIET_S)
    except TimeoutError:
        return
    raise ContractBroken("", f"a watch told what it should not: {batch.to_updates()}")


async def refuses(what: str, kind: type[Exception], call: Awaitable[object]) -> None:
    """Report a call that does not raise an error."""
    try:
        result = await asyncio.wait_for(call, PATIENCE_S)
    except kind:
        return
    except Exception as error:
        raise ContractBroken("", f"{what} should raise {kind.__name__}, but raised {error!r}") from error
    raise ContractBroken("", f"{what} should raise {kind.__name__}, but returned {result!r}")
