"""The server is killed under load, at random and at chosen system calls, again and again.

Every acknowledged publish is there, once and in order; every delivery whose acknowledgement was confirmed stays
acknowledged; of those who compete for a key nobody wins who should not. The clients find out, life after life.
"""

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random, randrange

import pytest

from strandline.journal import WRITTEN
from tests.broker.durability.child import Mortal, mortal
from tests.broker.durability.workload import RestartedServer, check_all, clients, prepare
from tests.broker.socket_client import SocketClient
from tests.journal.helpers import telling
from tests.straced import strace_problem
from tests.waiting import eventually

CALLS = {"fdatasync": (1, 2, 3, 5, 9, 20, 40), "pwritev2": (1, 2, 4, 7, 12, 30, 70), "rename": (1, 2, 3)}
"""By which calls the server changes its disk, and at which of them a life ends."""
LIFE_S = 1.0
"""A life that does not reach its end otherwise ends after so long."""
REASON = strace_problem()
Death = tuple[float, Sequence[str]]
"""How much a server says before it dies, and strace's arguments, if any."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Mortal]:
    with mortal(tmp_path / "store") as server:
        yield server


def die_often(server: Mortal, deaths: Sequence[Death], published_min: int = 1) -> RestartedServer:
    """Live and die under load, in each of some ways, and once more live until everything is brought to an end."""
    world = RestartedServer(server.port)
    assert server.start()
    with SocketClient(server.port) as client:
        prepare(client)
    server.kill()
    with clients(world):
        for words, strace in deaths:
            world.life += 1
            if server.start(strace):
                live(server, world, words, LIFE_S)
            server.kill()
            world.check()
        world.life += 1
        assert server.start()
        # However little was done in short lives, or by a slow machine, something is there to be compared.
        wanted = {"published": published_min, "acked": 1, "won": 1}
        eventually(lambda: world.failures or all(world.told[what] >= count for what, count in wanted.items()))
    with SocketClient(server.port) as client:
        check_all(world, client)
    return world


def live(server: Mortal, world: RestartedServer, words: float, life_s: float) -> None:
    """Wait until the server has said so much, or is dead, or has lived for so long."""
    give_up, until = time.monotonic() + life_s, world.told.total() + words
    while time.monotonic() < give_up and world.told.total() < until and not server.wait_for_death(0.001):
        pass


def at_calls(call: str, numbers: Sequence[int]) -> list[Death]:
    """Return deaths at the first, second, … call of a kind."""
    return [
        (math.inf, ("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}")) for number in numbers
    ]


def die_at_random(server: Mortal, lives: int) -> None:
    """Die so many times, some lives being very short."""
    seed = randrange(1 << 30)
    random = Random(seed)
    with telling(seed=seed):
        die_often(server, [(random.choice([0, 1, 5, 50, 300, 600]), ()) for _ in range(lives)], 10 * lives)


@pytest.mark.parametrize("lives", [8, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_what_was_acknowledged_survives_sigkill_at_any_time(server: Mortal, lives: int) -> None:
    die_at_random(server, lives)


def test_sigkill_takes_nothing_that_was_acknowledged_even_without_syncing(tmp_path: Path) -> None:
    with mortal(tmp_path / "store", WRITTEN) as server:
        die_at_random(server, 5)


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("call", CALLS)
def test_what_was_acknowledged_survives_sigkill_at_system_calls(server: Mortal, call: str) -> None:
    die_often(server, at_calls(call, CALLS[call]))


@pytest.mark.long
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("call", CALLS)
def test_the_same_at_every_one_of_many_system_calls(server: Mortal, call: str) -> None:
    die_often(server, at_calls(call, range(1, max(CALLS[call]) + 1)))
