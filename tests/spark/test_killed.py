"""Drivers, workers and executors of the real command are killed, anywhere: what is stored is as if they were not.

Each seed is printed, and names the victims and the moments; the moments are counts of committed items, or times.
"""

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest

from strandline.errors import Conflict
from strandline.objects import open_objects
from strandline.pipeline.lake import LakeDatabase
from strandline.pipeline.lake.compaction import GRACE_S, Compaction
from strandline.pipeline.verify import verify
from tests import tally
from tests.pipeline.databases import databases
from tests.pipeline.lake.faulty import Killed, Mortal
from tests.servers_postgres import PostgresServer
from tests.servers_seaweed import SeaweedServer, fresh_address, running_seaweed
from tests.servers_spark import SparkCluster
from tests.spark.killed_world import LEASE_S, Corpus, Watch, coverage, plant, watching
from tests.spark.lives import Life, Lives, living, pause, wait_for
from tests.spark.rows import Rows
from tests.waiting import PATIENCE_S

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.task.duration.threshold": "200ms",
    # Two tasks on four cores: the other two are for copies.
    "spark.default.parallelism": "2",
    "spark.executor.cores": "2",
}
TASK_DEATHS_MAX = 3  # Spark gives a task up at the fourth
FILES, MANY_FILES = 280, 1_000
Strike: TypeAlias = Callable[[Life], bool]


@dataclass(frozen=True)
class Calm:
    """What an undisturbed run of a corpus comes to."""

    corpus: Corpus
    rows: Rows = field(repr=False)
    coverage: dict[str, Any]


def undisturbed(folder: Path, files: int) -> Calm:
    """Scan a new corpus in one process, without Spark, and let nothing happen."""
    corpus = plant(folder / "corpus", files)
    with living([*corpus.arguments(str(folder / "calm")), "--without-spark"]) as lives:
        settled = coverage(lives.finish())
    with watching(str(folder / "calm" / "pipeline.db")) as watch:
        rows = watch.rows()
    assert settled["items"] == corpus.items == len(rows["ledger"])
    assert len(rows["findings"]) > 50 * files
    return Calm(corpus, rows, settled)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    return undisturbed(tmp_path_factory.mktemp("killed"), FILES)


@pytest.fixture(scope="module")
def long_calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    return undisturbed(tmp_path_factory.mktemp("killed"), MANY_FILES)


@pytest.fixture
def new_database(postgres_server: PostgresServer) -> Iterator[Callable[[str], str]]:
    """Make databases by name, each as `--state` takes it."""
    with databases(postgres_server) as create:
        yield create


def lose_power(life: Life) -> bool:
    life.lose_power()
    return True


def kill_driver(life: Life) -> bool:
    life.kill_driver()
    return True


def kill_java(life: Life) -> bool:
    if not _hit(life.java(), psutil.Process.kill):
        return False
    life.is_doomed = life.wait(PATIENCE_S) != 0  # it may have been done with Java
    if life.is_doomed:
        assert life.wait() == 1, life.err
        assert "Traceback" not in life.err
        assert "hint: " in life.err
    return True


def kill_executor(life: Life) -> bool:
    """Kill the Java process of an executor, and with it all that runs in it; Spark starts another."""
    return _kill_task(life, life.executors())


def kill_worker(life: Life) -> bool:
    """Kill the Python of a task; Spark tries the task again."""
    return _kill_task(life, life.workers())


def _kill_task(life: Life, victims: list[psutil.Process]) -> bool:
    if life.task_deaths >= TASK_DEATHS_MAX:
        return lose_power(life)
    life.task_deaths += 1
    return _hit(victims, psutil.Process.kill)


def make_zombie(life: Life) -> bool:
    """Let a worker sleep until others have its shard, and wake up."""
    return _hit(life.workers(), lambda worker: pause(worker, 2 * LEASE_S))


def _hit(victims: list[psutil.Process], how: Callable[[psutil.Process], None]) -> bool:
    try:
        for one in victims[-1:]:
            how(one)
    except psutil.NoSuchProcess:
        return False
    return bool(victims)


VICTIMS = (lose_power, kill_driver, kill_java, kill_worker, make_zombie)
STARTING_S, EARLY_SHARE = 6.0, 0.3


@dataclass
class Campaign:
    """A scan that is disturbed by one victim after another, and then runs to its end."""

    calm: Calm
    lives: Lives
    watch: Watch
    source: random.Random
    more: tuple[str, ...] = ()
    """Arguments of the scans that are disturbed."""
    last: tuple[str, ...] = ()
    """Arguments of the scan that runs to its end."""
    hits: list[tuple[str, int]] = field(default_factory=list)

    def disturb(self, victims: Sequence[Strike], *, early: bool = False) -> None:
        """Strike each victim at a moment of its own; with `early`, some while the scan is still starting."""
        life = self.lives.start(*self.more)
        for number, strike in enumerate(victims):
            if life.is_doomed:
                life = self.lives.start(*self.more)
            if early and self.source.random() < EARLY_SHARE:
                time.sleep(self.source.random() * STARTING_S)
            elif not self._wait(life, len(victims) - number):
                break  # the scan was done before all victims were struck
            at = self.watch.committed()
            if strike(life):
                self.hits.append((strike.__name__, at))
        if not life.is_doomed:
            # A task that died is tried again within the run: the command itself does not notice.
            code = life.wait()
            assert code == 0, life.err
            assert coverage(life) == self.calm.coverage

    def _wait(self, life: Life, left: int) -> bool:
        """Wait until some more items are committed, and workers are there; False if the scan ended before."""
        now = self.watch.committed()
        enough = now + self.source.randint(1, max(1, (self.calm.corpus.items - now) // (2 * left + 1)))
        return wait_for(lambda: self.watch.committed() >= enough and life.workers(), life)

    def check(self) -> None:
        """Run it to its end: everything is as if nothing had happened."""
        print("hits:", self.hits)  # noqa: T201 - what happened, should the test fail
        done = self.lives.finish(*self.last)
        assert coverage(done) == self.calm.coverage
        rows = self.watch.rows()
        assert {name: len(some) for name, some in rows.items()} == {
            name: len(some) for name, some in self.calm.rows.items()
        }
        assert rows == self.calm.rows

    @property
    def hits_in_the_middle(self) -> int:
        """How many strikes came when some items were committed, and not all."""
        return sum(0 < at < self.calm.corpus.items for _, at in self.hits)


def campaign(
    calm: Calm,
    state: str,
    seed: int,
    victims: Sequence[Strike],
    *,
    more: Sequence[str] = ("--with-spark",),
    last: Sequence[str] | None = None,
    early: bool = False,
) -> Campaign:
    """Disturb a scan into a state, and see that it comes to the same; `last` are arguments of the undisturbed end."""
    print("seed:", seed)  # noqa: T201 - what to try again, should the test fail
    source = random.Random(seed)
    address = state if "://" in state else str(Path(state) / "pipeline.db")
    if address != state:
        Path(state).mkdir()
    with watching(address) as watch, living(calm.corpus.arguments(state)) as lives:
        one = Campaign(calm, lives, watch, source, tuple(more), tuple(more if last is None else last))
        one.disturb(victims, early=early)
        one.check()
    return one


def configured(settings: Mapping[str, str]) -> list[str]:
    """Return Spark's settings as arguments."""
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


def kill_compaction(lake: str, source: random.Random) -> Strike:
    """Return a strike that kills a compaction at one of its writes, while another one runs beside it.

    One that was done before, or gave way to the other, is followed by one that dies at half as many.
    """

    def strike(_: Life) -> bool:
        dies_at, after = source.randint(1, 12), source.random() < 0.5
        beside = threading.Thread(target=compact, args=(lake,))
        beside.start()
        is_killed = False
        with closing(open_objects(lake)) as store:
            while dies_at and not is_killed:
                is_killed = killed_at(LakeDatabase(lake, store=Mortal(store, dies_at, after=after)))
                dies_at //= 2
        beside.join()
        return is_killed

    strike.__name__ = "kill_compaction"
    return strike


def killed_at(mortal: LakeDatabase) -> bool:
    """Run a compaction over a mortal store; return whether it was killed."""
    try:
        with suppress(Conflict):
            Compaction(mortal).run()
    except Killed:
        return True
    return False


def compact(lake: str, grace_s: float = GRACE_S) -> None:
    """Run a compaction; another one may be faster each time."""
    with LakeDatabase(lake) as database, suppress(Conflict):
        Compaction(database, grace_s=grace_s).run()


def restart_store(server: SeaweedServer) -> Strike:
    """Return a strike that kills the store of objects and starts it again."""

    def strike(_: Life) -> bool:
        server.kill()
        time.sleep(1.0)
        server.start()
        return True

    strike.__name__ = "restart_store"
    return strike


def second_driver(lives: Lives) -> Strike:
    """Return a strike that starts another scan of the same beside the first, which ends well."""

    def strike(_: Life) -> bool:
        other = lives.start("--without-spark")
        code = other.wait()
        assert code == 0, other.err
        return True

    strike.__name__ = "second_driver"
    return strike


@pytest.fixture
def own_seaweed(monkeypatch: pytest.MonkeyPatch) -> Iterator[SeaweedServer]:
    """Run a store that a test may kill, for this process and those that it starts."""
    with running_seaweed() as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        with closing(open_objects(fresh_address())) as objects:
            objects.put("made", b"")
        yield server


def compacted_rows(lake: str) -> Rows:
    """Return the rows of a lake after it was compacted twice, the second time with nothing kept that was replaced."""
    compact(lake, 0)
    compact(lake, 0)
    with watching(lake) as watch:
        assert verify(LakeDatabase(lake), lambda _: None).problems == []
        return watch.rows()


class TwoHosts(SparkCluster):
    """A cluster whose workers have addresses of their own: Spark runs no copy of a task on a host where it runs."""

    def add_worker(self, name: str) -> int:
        """Start one more worker of two cores; return its process id."""
        host = f"127.0.0.{len(self._processes) + 1}"
        size, place = ("-c", 2, "-m", "1g"), ("-d", self._folder / name, "--host", host, "--webui-port", 0)
        return self._run("worker.Worker", *size, *place, self.master)


@pytest.fixture
def two_hosts() -> Iterator[list[str]]:
    """Run a cluster of two hosts; return the arguments that let a scan run on it, with speculation."""
    with tempfile.TemporaryDirectory(prefix="spark-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        cluster = TwoHosts(Path(folder))
        cluster.start()
        try:
            yield ["--master", cluster.master, *configured(cluster.settings | SPECULATION)]
        finally:
            cluster.stop()


@pytest.mark.timeout(3600)
def test_a_scan_on_sqlite_that_is_struck_anywhere_comes_to_the_same(calm: Calm, tmp_path: Path) -> None:
    for seed in range(11, 15):  # a scan may be done before the first strike; then another one is disturbed
        if campaign(calm, str(tmp_path / f"state-{seed}"), seed, [kill_java, make_zombie]).hits_in_the_middle:
            return
    raise AssertionError("no strike came in the middle of a scan")


@pytest.mark.timeout(3600)
def test_a_scan_on_postgres_that_is_struck_anywhere_comes_to_the_same(
    calm: Calm, new_database: Callable[[str], str]
) -> None:
    """What is left is done without Spark: workers of both kinds come to the same rows."""
    for seed in range(12, 16):  # a scan may be done before the first strike; then another one is disturbed
        state = new_database(f"killed{seed}")
        if campaign(calm, state, seed, [kill_worker, kill_driver], last=["--without-spark"]).hits_in_the_middle:
            return
    raise AssertionError("no strike came in the middle of a scan")


@pytest.mark.timeout(3600)
def test_a_scan_on_a_lake_that_is_struck_anywhere_comes_to_the_same(calm: Calm, own_seaweed: SeaweedServer) -> None:
    """A compaction is killed beside it, too, and the store is restarted; what is left is done without Spark."""
    struck: set[str] = set()
    in_the_middle = 0
    for seed in range(14, 26):  # a scan may be done before a strike; then another one is disturbed, by that one first
        lake, source = fresh_address(), random.Random(seed)
        strikes = [kill_compaction(lake, source), kill_worker, restart_store(own_seaweed), kill_driver]
        strikes.sort(key=lambda strike: strike.__name__ in struck)
        done = campaign(calm, lake, seed, strikes, last=["--without-spark"])
        assert compacted_rows(lake) == calm.rows
        struck |= {name for name, _ in done.hits}
        in_the_middle += done.hits_in_the_middle
        if in_the_middle and struck == {strike.__name__ for strike in strikes}:
            return
    raise AssertionError(f"not all strikes, or none in the middle of a scan: {in_the_middle}, {sorted(struck)}")


def test_a_compaction_that_is_struck_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with little to do, which is done before it comes to the write that was drawn."""
    lake = f"file://{tmp_path}/lake"
    with LakeDatabase(lake) as database:
        database.migrate()
    calm_life: Any = None
    for seed in range(10):
        assert kill_compaction(lake, random.Random(seed))(calm_life)
    assert not killed_at(LakeDatabase(lake))
    monkeypatch.setattr(f"{__name__}.killed_at", lambda _: False)
    assert not kill_compaction(lake, random.Random(1))(calm_life), "a strike that killed nothing counts for one"


@pytest.mark.campaign("lake-kills")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(50))
def test_many_kills_on_a_lake(calm: Calm, own_seaweed: SeaweedServer, two_hosts: list[str], seed: int) -> None:
    """On a standalone cluster with speculation: executors, drivers, workers, the store, compactions, zombies."""
    source, lake = random.Random(seed), fresh_address()
    strikes = [kill_compaction(lake, source), restart_store(own_seaweed), *VICTIMS, kill_executor]
    with living(calm.corpus.arguments(lake), **own_seaweed.environ) as others:
        victims = [source.choice([*strikes, second_driver(others)]) for _ in range(4)]
        done = campaign(calm, lake, 300 + seed, victims, more=two_hosts, early=True)
    assert compacted_rows(lake) == calm.rows
    tally.count("strikes", len(done.hits))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_speculative_tasks_and_a_killed_executor_change_nothing(
    calm: Calm, postgres_state: str, two_hosts: list[str], tmp_path: Path
) -> None:
    log = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": tmp_path.as_uri(),
        "spark.eventLog.compress": "false",
    }
    done = campaign(calm, postgres_state, 13, [kill_executor], more=[*two_hosts, *configured(log)])
    assert done.hits_in_the_middle == 1
    text = "".join(path.read_text() for path in tmp_path.rglob("*events*") if path.is_file())
    assert '"Speculative":true' in text
    assert "SparkListenerExecutorRemoved" in text


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_drivers_at_once_come_to_the_same(calm: Calm, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with living(calm.corpus.arguments(str(state))) as lives:
        both = [lives.start(), lives.start()]
        for life in both:
            code = life.wait()
            assert code == 0, life.err
            assert coverage(life) == calm.coverage
    with watching(str(state / "pipeline.db")) as watch:
        assert watch.rows() == calm.rows


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_many_kills_on_sqlite(long_calm: Calm, tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    victims = [source.choice(VICTIMS) for _ in range(6)]
    done = campaign(long_calm, str(tmp_path / "state"), 100 + seed, victims, early=True)
    assert done.hits  # how many of six fall into a scan depends on the pace of the machine


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_many_kills_on_postgres_with_speculation(
    long_calm: Calm, postgres_state: str, two_hosts: list[str], seed: int
) -> None:
    source = random.Random(seed)
    victims = [source.choice((*VICTIMS, kill_executor)) for _ in range(6)]
    done = campaign(long_calm, postgres_state, 200 + seed, victims, more=two_hosts, early=True)
    assert done.hits  # how many of six fall into a scan depends on the pace of the machine
