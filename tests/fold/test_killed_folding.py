"""The process that keeps a fold is killed, again and again, at system calls and at random; the fold ends as its bucket.

Each life goes on from what the last one left: nothing that was durable is delivered again, and the cursor never moves
back. A writer goes on meanwhile, with puts, deletes and purges.
"""

import asyncio
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from strandline.fold import ALL, Backend, catch_up, open_fold, parse_fold_cursor, verify_against
from strandline.kv import StoreConfig
from strandline.kv.nats import NatsConnection
from tests.fold.folding import BATCHING, fold_path, keep
from tests.forkserver import forkserver
from tests.servers_nats import NatsServer
from tests.straced import strace_problem, traced
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
KEYS = 60
LIFE_S = 1.0
"""A life that reaches no fatal call ends so long after something was durable."""
PAUSE_S = 0.002
CALLS: dict[Backend, dict[str, Sequence[int]]] = {
    Backend.APPEND_LOG: {"pwritev2": (1, 4, 16), "fdatasync": (1, 2, 3), "rename": (1, 2)},
    Backend.SQLITE: {"pwrite64": (1, 9, 60), "fdatasync": (1, 4, 9)},
    Backend.ROCKSDB: {"write": (1, 60, 150), "fdatasync": (1, 4, 9)},
}
"""By which calls each store changes the disk, and at which of them a process dies; the first is while it is made."""
CASES = [(backend, call, numbers) for backend, calls in CALLS.items() for call, numbers in calls.items()]
REASON = strace_problem()


class Death(NamedTuple):
    """How long a process lives at most, from its beginning or from when something is durable; strace's arguments."""

    life_s: float = LIFE_S
    strace: Sequence[str] = ()
    after_durable: bool = True


class Life(NamedTuple):
    """What a process told before it died."""

    delivered: list[int]
    durable: list[int]


class Shared(NamedTuple):
    """What writer and folds share: a bucket on a server, and a folder."""

    url: str
    bucket: str
    folder: Path


@pytest.fixture
def shared(nats_server: NatsServer, nats_bucket: str, tmp_path: Path) -> Shared:
    return Shared(nats_server.url, nats_bucket, tmp_path)


@pytest.fixture
def context() -> ForkServerContext:
    return forkserver()


@contextmanager
def writing(url: str, bucket: str) -> Iterator[None]:
    """Write to the bucket while the block runs."""
    stop = threading.Event()

    async def write() -> None:
        random = Random(bucket)
        async with NatsConnection(url) as connection:
            writer = (await connection.store(bucket, StoreConfig(history=3))).writer()
            assert writer is not None
            # While its first message stays, a log reaches back to every cursor: nothing here needs a repair.
            await writer.put("anchor", b"-")
            made.set()
            while not stop.is_set():
                key = f"k.{random.randrange(KEYS)}"
                change = random.random()
                if change < 0.7:
                    await writer.put(key, random.randbytes(random.randrange(1, 400)))
                elif change < 0.9:
                    await writer.delete(key)
                else:
                    await writer.purge(key)
                await asyncio.sleep(PAUSE_S)

    made = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(write()))
    thread.start()
    assert made.wait(WAIT_S)
    try:
        yield
    finally:
        stop.set()
        thread.join(WAIT_S)


def live(context: ForkServerContext, shared: Shared, path: Path, death: Death) -> Life:
    """Keep the fold in a process of its own until strace kills it, or its time is over; return what it told."""
    ours, theirs = context.Pipe()
    child = context.Process(target=keep, args=(theirs, shared.url, shared.bucket, str(path)), daemon=True)
    child.start()
    theirs.close()
    assert ours.recv() == "ready"
    assert child.pid is not None
    with traced(child.pid, *death.strace) if death.strace else nullcontext():
        ours.send("go")
        timer = threading.Timer(death.life_s, child.kill)
        if not death.after_durable:
            timer.start()
        life = listen(ours, timer)
        child.join(WAIT_S)
        timer.cancel()
    assert child.exitcode == -signal.SIGKILL, "it was not killed"
    ours.close()
    return life


def listen(pipe: Connection, timer: threading.Timer) -> Life:
    """Hear what the process tells until it is dead; start the timer when something is durable."""
    life = Life([], [])
    try:
        while True:
            assert pipe.poll(WAIT_S), "it hangs"
            what, told = pipe.recv()
            if what == "delivered":
                life.delivered.extend(told)
            else:
                life.durable.append(told)
                if timer.ident is None:
                    timer.start()
    except (EOFError, ConnectionResetError):
        return life


def revision_at(path: Path) -> int:
    """Open the fold that a dead process left, see that it is whole, and return where it stands."""
    store = open_fold(path)
    try:
        store.verify()
        return parse_fold_cursor(store.cursor()).revision
    finally:
        store.close()


def check_life(path: Path, before: int, life: Life) -> int:
    """What a life told agrees with what it left; return where the fold stands now."""
    assert all(revision > before for revision in life.delivered), "what was durable was delivered again"
    assert life.durable == sorted(life.durable)
    assert all(revision >= before for revision in life.durable)
    now = revision_at(path)
    assert now >= max(life.durable, default=before), "what was told to be durable is not there"
    assert now in {before, *life.delivered, *life.durable}
    return now


async def finish(shared: Shared, path: Path) -> None:
    """Catch up, and compare with the bucket."""
    async with NatsConnection(shared.url) as connection:
        store = await connection.store(shared.bucket)
        await catch_up(store, ALL, lambda: open_fold(path), batching=BATCHING)
        fold = open_fold(path)
        try:
            found = await verify_against(fold, store)
        finally:
            fold.close()
    assert found.is_equal, found
    assert found.is_complete, found
    assert found.compared, "nothing was compared"


def die_often(context: ForkServerContext, shared: Shared, backend: Backend, deaths: Sequence[Death]) -> None:
    """Live and die over one fold, in each of some ways; it ends as the bucket is."""
    revision = 0
    path = fold_path(shared.folder, backend)
    with writing(shared.url, shared.bucket):
        for death in deaths:
            life = live(context, shared, path, death)
            revision = check_life(path, revision, life)
    asyncio.run(finish(shared, path))
    assert revision > 0, "it died before anything was stored, every time"


def at_calls(call: str, numbers: Iterable[int]) -> list[Death]:
    """Return deaths at the first, second, … call of a kind."""
    return [
        Death(strace=("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}")) for number in numbers
    ]


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize(("backend", "call", "numbers"), CASES)
def test_a_fold_whose_process_dies_at_system_calls_ends_as_its_bucket(
    context: ForkServerContext, shared: Shared, backend: Backend, call: str, numbers: Sequence[int]
) -> None:
    die_often(context, shared, backend, at_calls(call, numbers))


@pytest.mark.parametrize("backend", Backend)
def test_a_fold_whose_process_dies_at_random_ends_as_its_bucket(
    context: ForkServerContext, shared: Shared, backend: Backend
) -> None:
    random = Random(shared.bucket)
    early = Death(random.uniform(0.05, 0.7), after_durable=False)
    die_often(context, shared, backend, [early, *(Death(random.uniform(0.0, 0.5)) for _ in range(3))])


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize(("backend", "call", "numbers"), CASES)
def test_a_fold_whose_process_dies_at_every_system_call_ends_as_its_bucket(
    context: ForkServerContext, shared: Shared, backend: Backend, call: str, numbers: Sequence[int]
) -> None:
    die_often(context, shared, backend, at_calls(call, range(1, max(numbers) + 1)))
