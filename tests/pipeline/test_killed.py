"""Real processes over a real database: killed at random and at their system calls, with calls that fail.

On PostgreSQL the server is killed too. Whatever dies: after the next start no finding is lost, none is there twice, the
ledger never says scanned without its findings, and the cursor never leads; see `tests.pipeline.aftermath`.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.effort import Part, long_parts
from tests.pipeline.aftermath import Checker, Said
from tests.pipeline.child import TYPED
from tests.pipeline.databases import databases
from tests.pipeline.killing import POSTGRES_CALLS, SAYING, SQLITE_CALLS, KilledRun, Life, live_and_die
from tests.servers_postgres import PostgresServer

BACKENDS = ("sqlite", "postgres")
CALLS = [
    *(("sqlite", call) for call in (*SQLITE_CALLS, SAYING)),
    *(("postgres", call) for call in (*POSTGRES_CALLS, SAYING)),
]
KILLED = {-9, 137}
FEW = 16
"""Items of a run that is repeated for each of its system calls: two of each kind."""
SEED = 70
"""What a worker does whose every system call is tried: it renews, and splits in both ways."""
BETWEEN_STAGES = (23, 24, 25)
"""Which lines it is about to say when the findings, the ledger and the checkpoint of a page are just durable."""
RANDOM_S = 30.0
NewWorld = Callable[..., KilledRun]


@pytest.fixture
def new_world(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewWorld]:
    """Make databases, as many as the test wants, each for a run of its own."""
    made = 0

    def name() -> str:
        nonlocal made
        made += 1
        return f"killed{made}"

    if backend == "sqlite":
        yield lambda items=48: KilledRun(str(tmp_path / f"{name()}.db"), items)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with databases(server) as create:
        yield lambda items=48: KilledRun(create(name()), items)


def finish(world: KilledRun, checker: Checker, said: Said) -> None:
    """Let another worker go on to the end."""
    world.finish(said)
    checker.check_over(said)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_that_nobody_disturbs_leaves_what_its_items_lead_to(new_world: NewWorld) -> None:
    world, said = new_world(), Said()
    assert world.run(said) == 0
    world.checker().check_over(said)
    assert said.items("found") == said.items("done") == set(range(world.items))


@pytest.mark.parametrize(
    ("backend", "at_once"),
    [
        ("sqlite", 1),
        ("postgres", 2),
        pytest.param("sqlite", 2, marks=pytest.mark.long),
        pytest.param("postgres", 1, marks=pytest.mark.long),
    ],
)
def test_a_run_survives_its_workers_being_killed_again_and_again(new_world: NewWorld, at_once: int) -> None:
    lives = 0
    for items in (24, 96, 384):  # a quick machine may be done before the first strike
        if lives <= at_once:
            lives = live_and_die(new_world(items * at_once), Said(), Random(at_once), at_once=at_once)
    assert lives > at_once


@pytest.mark.parametrize(
    ("backend", "call", "when"),
    [
        ("sqlite", "pwrite64", 3),
        ("sqlite", "pwrite64", 150),
        ("sqlite", "fdatasync", 20),
        *(("sqlite", SAYING, when) for when in BETWEEN_STAGES),
        ("postgres", "sendto", 150),
        ("postgres", "recvfrom", 151),
        ("postgres", SAYING, BETWEEN_STAGES[1]),
        *(pytest.param("postgres", SAYING, when, marks=pytest.mark.long) for when in BETWEEN_STAGES[::2]),
    ],
)
def test_a_run_survives_its_worker_being_killed_at_a_system_call(new_world: NewWorld, call: str, when: int) -> None:
    world, said = new_world(FEW), Said()
    checker = world.checker()
    assert world.run_injected(said, f"signal=SIGKILL:when={when}", call, seed=SEED) in KILLED
    checker.check(said)
    finish(world, checker, said)


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(
    ("call", "error", "when"),
    [("pwrite64", "ENOSPC", 60), ("pwrite64", "EIO", 90), ("fdatasync", "EIO", 25), ("fdatasync", "ENOSPC", 30)],
)
def test_a_call_that_fails_is_a_typed_error_and_the_next_worker_goes_on(
    new_world: NewWorld, call: str, error: str, when: int
) -> None:
    world, said = new_world(FEW), Said()
    checker = world.checker()
    assert world.run_injected(said, f"error={error}:when={when}", call, seed=SEED) == TYPED
    assert set(said.failed) <= {"CommitFailed", "StorageRefused"}
    checker.check(said)
    finish(world, checker, said)


@pytest.mark.parametrize("backend", ["postgres"])
def test_workers_go_on_when_the_server_was_killed_and_started_again(
    new_world: NewWorld, postgres_server: PostgresServer
) -> None:
    world, said = new_world(), Said()
    checker = world.checker()
    kill_the_server(world, checker, said, postgres_server, Random(5), kills=3)
    checker.check_over(said)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_worker_goes_on_by_itself_after_a_call_that_failed(new_world: NewWorld) -> None:
    world, said = new_world(FEW), Said()
    assert world.run_injected(said, "error=EIO:when=15+10", "fdatasync", seed=SEED, patience=50) == 0
    assert "CommitFailed" in said.retried
    world.checker().check_over(said)


@long_parts(10, "every-call")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("backend", "call"), CALLS)
def test_a_run_survives_its_worker_being_killed_at_every_system_call(
    new_world: NewWorld, call: str, part: Part
) -> None:
    count = new_world(FEW).count_calls(call, seed=SEED)
    assert count
    for when in part.of(range(1, count + 1)):
        world, said = new_world(FEW), Said()
        checker = world.checker()
        assert world.run_injected(said, f"signal=SIGKILL:when={when}", call, seed=SEED) in KILLED
        checker.check(said)
        finish(world, checker, said)


@long_parts(10, "every-call")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize(("backend", "call"), [("sqlite", call) for call in SQLITE_CALLS])
def test_every_call_may_fail(new_world: NewWorld, call: str, error: str, part: Part) -> None:
    count = new_world(FEW).count_calls(call, seed=SEED)
    for when in part.of(range(1, count + 1)):
        world, said = new_world(FEW), Said()
        checker = world.checker()
        status = world.run_injected(said, f"error={error}:when={when}", call, seed=SEED)
        assert status == (TYPED if said.failed else 0)
        assert set(said.failed) <= {"CommitFailed", "StorageRefused"}
        checker.check(said)
        finish(world, checker, said)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_runs_survive_minutes_of_killing(new_world: NewWorld, at_once: int) -> None:
    lost: list[str] = []
    until_s = time.monotonic() + RANDOM_S
    for seed in itertools.count():
        said = Said()
        live_and_die(new_world(100), said, Random(seed), at_once=at_once)
        lost += said.lost
        if time.monotonic() > until_s:
            break
    assert lost or at_once == 1, "nobody was ever a zombie"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", ["postgres"])
def test_runs_survive_minutes_of_a_dying_server(new_world: NewWorld, postgres_server: PostgresServer) -> None:
    until_s = time.monotonic() + RANDOM_S
    for seed in itertools.count():
        world, said = new_world(100), Said()
        checker = world.checker()
        kill_the_server(world, checker, said, postgres_server, Random(seed), kills=8)
        checker.check_over(said)
        if time.monotonic() > until_s:
            break


def kill_the_server(
    world: KilledRun, checker: Checker, said: Said, server: PostgresServer, random: Random, kills: int
) -> None:
    """Let two patient children work to the end, over a server that dies again and again."""
    lives = [Life(world, worker, random.getrandbits(32), patience=10_000) for worker in (1, 2)]
    for life in lives:
        life.allow(None)
    for _ in range(kills):
        random.choice(lives).wait_for(random.randint(1, 4), said)
        time.sleep(random.random() * 0.004)
        server.kill()
        server.start()
        for life in lives:
            life.listen(said)
        checker.check(said)
    for life in lives:
        life.wait_for(10**9, said)
        assert life.kill(said) == 0, said.failed
