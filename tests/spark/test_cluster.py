"""A scan on a standalone cluster, as docs/cluster.md says: executors, passwords, paths, and what is left behind."""

import contextlib
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import pytest

from strandline.cli.scan_progress import ScanProgress
from strandline.pipeline.sql.postgres_login import nearby_place
from strandline.scan.events import StateNearby
from strandline.spark.worker_login import LOGIN_HINT, is_private, request_for_workers, worker_error
from tests.cli.runs import run_command
from tests.servers_postgres import PostgresServer, running_postgres
from tests.servers_spark import ROOT, SparkCluster, running_cluster
from tests.spark import scripts
from tests.spark.killed_world import KEY
from tests.spark.leaks import Search, Secrets
from tests.spark.lives import Life, living, wait_for
from tests.waiting import PATIENCE_S

PAGE = ROOT / "docs" / "cluster.md"
FILES = 60
SEED = 12
# Runs in every Python of the executors: files of the corpus are on another machine.
ELSEWHERE = """
import os, sys

def hide(event, arguments):
    name = arguments[0] if event in ("open", "os.scandir") else None
    if isinstance(name, str | bytes) and HIDDEN in os.fsencode(name):
        raise FileNotFoundError(2, "No such file or directory")

HIDDEN = os.environ["HIDDEN"].encode()
sys.addaudithook(hide)
"""


def commands(subcommand: str) -> list[list[str]]:
    """Return the words of the commands of the page, without `strandline`."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    return [words[1:] for words in lines if words[:2] == ["strandline", subcommand]]


@dataclass
class Scanner:
    """A server that wants a password, a corpus and a key."""

    server: PostgresServer
    folder: Path
    secrets: Secrets = field(default_factory=lambda: Secrets(SEED))

    def prepare(self) -> None:
        """Make the role, the database, the corpus and the key."""
        self.password = self.secrets.new("the password")
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE scanner LOGIN PASSWORD '{self.password}'")
            connection.execute("CREATE DATABASE strandline OWNER scanner")
        self.server.ask_for_passwords()
        (self.folder / "corpus").mkdir()
        for number in range(FILES):
            (self.folder / "corpus" / f"file{number:02}").write_text(f"token of the file: AKIA{number:016}\n")
        (self.folder / "tenant.key").write_text(KEY)
        (self.folder / "tenant.key").chmod(0o600)

    def initialize(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the tables as the page says; nothing else of these tests may inherit the password."""
        (init,) = commands("pipeline")
        with monkeypatch.context() as driver:
            driver.setenv("PGPASSWORD", self.password)
            assert run_command(*self.here(init)).code == 0

    @property
    def address(self) -> str:
        """The state, without the password."""
        return self.server.address("strandline", "scanner")

    @property
    def socket(self) -> str:
        """The folder of the server's socket."""
        return self.server.dsn.split()[0].removeprefix("host=")

    def here(self, words: list[str], master: str = "") -> list[str]:
        """Return a command of the page with the names of this machine."""
        names = {
            "postgresql://scanner@db.example.org/strandline": self.address,
            "/srv/corpus": str(self.folder / "corpus"),
            "tenant.key": str(self.folder / "tenant.key"),
            "spark://master.example.org:7077": master,
        }
        return [names.get(word, word) for word in words]


@pytest.fixture(scope="module")
def scanner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scanner]:
    with running_postgres() as server:
        made = Scanner(server, tmp_path_factory.mktemp("cluster"))
        made.prepare()
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers."""
    with running_cluster() as started:
        yield started


def configured(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


class Processes:
    """What can be seen of processes from outside, gathered while they run."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def look(self, life: Life, cluster: SparkCluster) -> None:
        """Gather arguments of everything, and the environments of all but the driver and its Java."""
        executors = [child for one in cluster.executors() for child in (one, *_children(one))]
        for one in [*life.family(), *executors]:
            with contextlib.suppress(psutil.Error):
                self.seen.add(" ".join(one.cmdline()))
        for one in executors:
            with contextlib.suppress(psutil.Error):
                self.seen.add(str(one.environ()))


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


@pytest.mark.timeout(3600)
def test_the_page_holds_on_a_master_that_gets_its_two_workers_later(
    scanner: Scanner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scanner.initialize(monkeypatch)
    seen = Processes()
    with running_cluster(workers=0) as cluster:
        events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": tmp_path.as_uri()}
        events |= {"spark.eventLog.compress": "false"}
        first, again = (
            [*scanner.here(words, cluster.master), *configured(cluster.settings | events)] for words in commands("scan")
        )
        with living([], PGPASSWORD=scanner.password) as lives:
            life = lives.start(*first, "--json", "--quiet")
            began = time.monotonic()
            assert wait_for(lambda: "waiting: no executor for" in life.err, life), life.err
            assert f"no worker is registered with {cluster.master}" in life.err
            for number in range(2):
                cluster.add_worker(f"worker-{number}")
            while not life.is_over:
                seen.look(life, cluster)
                time.sleep(2)  # each look goes through all processes of the machine
                assert time.monotonic() - began < 5 * PATIENCE_S, life.err
            assert life.wait() == 0, life.err
            summary = life.summary
            assert (summary["items"], summary["looked_at"], summary["whole"]) == (FILES, FILES, True)
            again_life = lives.start(*again, "--json", "--quiet")
            assert again_life.wait() == 0, again_life.err
            assert (again_life.summary["looked_at"], again_life.summary["whole"]) == (0, True)
            search = Search(scanner.secrets)
            said_words = "".join([life.err, life.out, *seen.seen])
            assert any("CoarseGrainedExecutorBackend" in one for one in seen.seen)
            left = [*search.data(said_words.encode()), *search.folder(cluster.folder), *search.folder(tmp_path)]
            assert not left
            assert search.bytes > 100_000
    assert "org.apache.spark" in "".join(path.read_text() for path in tmp_path.rglob("*events*") if path.is_file())


@pytest.mark.long
def test_a_standalone_cluster_runs_our_code(cluster: SparkCluster) -> None:
    folder = cluster.folder / "driver" / "cwd"
    folder.mkdir(parents=True)
    both = {  # no task before both executors are there
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S:.0f}s",
    }
    settings = {**cluster.settings, **both, "spark.speculation": "true"}
    done = scripts.run(
        """
        spark = session(master=sys.argv[1], settings=eval(sys.argv[2]))
        rows = spark.range(4, numPartitions=4).mapInArrow(about_the_worker, ABOUT).collect()
        assert {row.sockets for row in rows} == {"true"} and {row.python for row in rows} == {sys.executable}
        print(len({row.pid for row in rows}))
        try:
            with spark_errors():
                spark.range(2).mapInArrow(damaged, "id long").collect()
        except Exception as error:
            print(repr(error))
        """,
        folder,
        cluster.master,
        repr(settings),
    )
    assert (done.stdout, done.stderr) == ("2\nDamaged('a/b: torn')\n", "")
    assert not list(folder.iterdir())
    assert not scripts.workspaces(folder.parent)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("hidden", ["corpus", "file"])
def test_a_corpus_that_workers_do_not_see_is_an_error(
    scanner: Scanner, cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hidden: str
) -> None:
    scanner.initialize(monkeypatch)
    (tmp_path / "sitecustomize.py").write_text(ELSEWHERE)
    where = scanner.folder / "corpus" if hidden == "corpus" else scanner.folder / "corpus" / "file"
    settings = cluster.settings | {
        "spark.executorEnv.PYTHONPATH": f"{tmp_path}:{ROOT}",
        "spark.executorEnv.HIDDEN": str(where),
    }
    words = scanner.here(commands("scan")[0], cluster.master)
    arguments = [*words, *configured(settings), "--source-name", hidden, "--quiet"]
    with living(arguments, PGPASSWORD=scanner.password) as lives:
        life = lives.start()
        assert life.wait() == 1, life.err
        assert "shared" in life.err or "same path" in life.err
        assert (
            "does not see it" if hidden == "corpus" else f"{FILES} of {FILES} items that this machine can"
        ) in life.err


@pytest.mark.parametrize(
    ("master", "settings", "private"),
    [
        ("spark://127.0.0.1:7077", {"spark.driver.host": "127.0.0.1"}, True),
        ("spark://127.0.0.1:7077", {"spark.driver.host": "driver.example.org"}, False),
        ("spark://127.0.0.1:7077,host:7077", {"spark.driver.host": "127.0.0.1"}, False),
        ("spark://host:7077", {}, False),
        ("yarn", {"spark.authenticate": "true"}, False),
        ("yarn", {"spark.network.crypto.enabled": "true"}, False),
        ("yarn", {"spark.authenticate": "true", "spark.network.crypto.enabled": "TRUE"}, True),
        ("k8s://host:1", {"spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_a_password_goes_where_nobody_else_can_read_it(
    scanner: Scanner, monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, str], private: bool
) -> None:
    from tests.scan.things import Things  # noqa: PLC0415
    from tests.scan.threaded_workers import request_for  # noqa: PLC0415 - it needs no Spark

    monkeypatch.setenv("PGPASSWORD", scanner.password)
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=60000")
    request = request_for(scanner.address, Things(scanner.folder / "things"))

    def setting(name: str) -> str:
        return settings.get(name, "")

    assert is_private(master, setting) == private
    warnings: list[StateNearby] = []
    given = request_for_workers(request, master, setting, warnings.append)
    is_here = settings.get("spark.driver.host") == "127.0.0.1" and "," not in master
    assert [str(Path(one.place)) for one in warnings] == ([] if is_here else [scanner.socket]), "before work begins"
    assert (scanner.password in given.address) == private
    assert "statement_timeout" in given.address
    assert scanner.password not in repr(given)
    assert given.digest == request.digest


@pytest.mark.parametrize(
    ("host", "address", "nearby"),
    [
        ("/run/postgresql", "", "/run/postgresql"),
        ("@abstract", "", "@abstract"),
        ("localhost", "127.0.0.1", "127.0.0.1"),
        ("db", "::1", "::1"),
        ("db", "192.0.2.1", None),
        ("db", "fe80::1%eth0", None),
    ],
)
def test_a_server_on_this_machine_alone_is_told_from_others(host: str, address: str, nearby: str | None) -> None:
    assert nearby_place(host, address) == nearby


def test_a_state_that_others_cannot_reach_is_told_also_where_it_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    ScanProgress(quiet=True).tell(StateNearby("/run/postgresql"))
    assert "/run/postgresql, an address of this machine alone" in capsys.readouterr().err


def test_a_worker_that_may_not_log_in_says_what_it_needs() -> None:
    error = worker_error("AccessRefused", "no password supplied", "check user, password and `pg_hba.conf`")
    assert error.hint == LOGIN_HINT
    assert "pgpass" in LOGIN_HINT
    assert worker_error("Unavailable", "gone", "try again").hint == "try again"
