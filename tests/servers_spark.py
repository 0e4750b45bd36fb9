"""A real Spark for tests: one local session per process, and a standalone cluster on loopback.

Invariants: whatever is started is stopped by its own process id, and nothing is left in the folders of the machine.
Workers import the modules of the tests, so that functions of theirs may run in tasks.
"""

import contextlib
import http.client
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from strandline.spark.class_archive import archive_options
from strandline.spark.driver import child_environment, spark_home
from strandline.spark.java import find_java
from strandline.spark.sessions import session
from tests.ports import free_ports
from tests.scheduling import unit_of
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 2
SETTINGS = {"spark.executorEnv.PYTHONPATH": str(ROOT), "spark.driver.memory": "768m"}


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Share one session on two cores among all tests of a process; `spark.conf.set` must be undone by who calls it."""
    with session(master="local[2,4]", app_name="strandline-tests", settings=SETTINGS) as started:
        yield started


@pytest.fixture(autouse=True)
def active_spark(request: pytest.FixtureRequest) -> None:
    """Tell Java which session is active on this thread, where a test has one.

    It forgets that with a connection that is made anew, and then finds no sink that Python brought.
    """
    if "spark" in request.fixturenames:
        assert unit_of(request.node.nodeid.partition("::")[0]) == "spark", "it would run in a worker without Java"
        shared = request.getfixturevalue("spark")
        shared._jvm.SparkSession.setActiveSession(shared._jsparkSession)  # noqa: SLF001 - there is no public way


class SparkCluster:
    """A master and two workers of one core each; a session joins them with `master` and `settings`.

    A process has one session, and tests share a local one: jobs for the cluster run in a process of their own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._page = free_ports(2)
        self._processes: list[subprocess.Popen[bytes]] = []
        temporary = folder / "tmp"
        temporary.mkdir()
        java, home = find_java(), spark_home()
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", f"-Djava.io.tmpdir={temporary}"]
        options += archive_options(java, home)
        self._environ = child_environment(java, home, {"spark.master": self.master}) | {
            "SPARK_DAEMON_JAVA_OPTS": " ".join([*options, "-Dspark.master.rest.enabled=false"]),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(temporary),
        }
        self.settings = SETTINGS | {
            "spark.executor.extraJavaOptions": " ".join(options),
            "spark.executor.memory": "512m",
            "spark.local.dir": str(temporary),
        }

    @property
    def master(self) -> str:
        """Where drivers connect."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def folder(self) -> Path:
        """Where all that it writes is."""
        return self._folder

    def start(self, workers: int = WORKERS) -> None:
        """Start it, and return when its workers have joined."""
        self._run("master.Master", "--host", "127.0.0.1", "--port", self._port, "--webui-port", self._page)
        self._wait(lambda: self._state() is not None)
        for number in range(workers):
            self.add_worker(f"worker-{number}")
        self._wait(lambda: self._living_workers() == workers)

    def add_worker(self, name: str) -> int:
        """Start one more worker; return its process id."""
        size, place = ("-c", 1, "-m", "1g"), ("-d", self._folder / name, "--host", "127.0.0.1", "--webui-port", 0)
        return self._run("worker.Worker", *size, *place, self.master)

    def executors(self) -> list[psutil.Process]:
        """Return the processes that run the tasks of whoever is connected."""
        found = []
        for each in self._processes:
            for child in psutil.Process(each.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    found += [child] if "java" in child.name() else []
        return found

    def stop(self) -> None:
        """End workers, then the master, and whatever they left."""
        family = []
        for each in reversed(self._processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                family += psutil.Process(each.pid).children(recursive=True)
            each.terminate()
        for each in self._processes:
            try:
                each.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()
        _, alive = psutil.wait_procs(family, timeout=10)
        for child in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._processes.clear()

    def _run(self, name: str, *arguments: object) -> int:
        # Whatever becomes of the tests, the kernel ends it with the thread that started it.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*guard, *command, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environ,
            )
        self._processes.append(process)
        return process.pid

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_ready():
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._processes):
                self.stop()
                raise RuntimeError("the Spark cluster did not start: " + (self._folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def _living_workers(self) -> int:
        return int((self._state() or {}).get("aliveworkers", 0))

    def _state(self) -> dict[str, Any] | None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._page, timeout=PATIENCE_S)) as connection:
            try:
                connection.request("GET", "/json/")
                state: dict[str, Any] = json.loads(connection.getresponse().read())
            except (OSError, http.client.HTTPException, ValueError):
                return None
            return state


@contextmanager
def running_cluster(workers: int = WORKERS) -> Iterator[SparkCluster]:
    """Run a standalone cluster in a folder of its own, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="spark-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        cluster = SparkCluster(Path(folder))
        cluster.start(workers)
        try:
            yield cluster
        finally:
            cluster.stop()
