"""The two servers of the broker's benchmark, started alike: nats-server, and ours."""

import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks._broker_client import Target, state

STARTS_WITHIN_S = 60.0
OURS = "strandline"
PEER = "nats-server"


class BrokerServer:
    """One server over a folder of its own; `synced` means that nothing is acknowledged before it is on disk.

    With `at`, a port, it is one that runs already, and stays.
    """

    def __init__(self, name: str, folder: Path, *, synced: bool, at: int | None = None) -> None:
        self.name = name
        self._folder = folder
        self._synced = synced
        self._at = at
        self._process: subprocess.Popen[bytes] | None = None
        self.port = at or _free_port()

    @property
    def target(self) -> Target:
        """What its client has to know."""
        if self._at is not None:
            return Target(self.port, _listener(self.port))
        assert self._process is not None, "it does not run"
        return Target(self.port, self._process.pid)

    @property
    def rss(self) -> float:
        """How much memory it has, in MB."""
        return float(psutil.Process(self.target.pid).memory_info().rss / 1e6)

    def start(self, stream: str | None = None) -> float:
        """Start it; return the seconds until it answers, about a stream if one is named."""
        if self._at is not None:
            return 0.0
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder.parent / f"{self._folder.name}.log").open("ab") as log:
            began = time.perf_counter()
            # Whatever becomes of the benchmark, the kernel ends the server with it.
            guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
            self._process = subprocess.Popen([*guard, *self._command()], stdout=log, stderr=log)
        while time.perf_counter() - began < STARTS_WITHIN_S:
            try:
                if stream is None:
                    socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                else:
                    state(self.port, stream)
            except OSError:
                assert self._process.poll() is None, f"{self.name} has ended: {log.name}"
                time.sleep(0.002)
            else:
                return time.perf_counter() - began
        raise TimeoutError(f"{self.name} does not answer: {log.name}")

    def stop(self, *, kill: bool = False) -> None:
        """End it, by force or in good order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            self._process.wait(60)
            self._process = None

    def _command(self) -> Sequence[str]:
        program = shutil.which(self.name, path=sysconfig.get_path("scripts"))
        assert program is not None, f"{self.name} is not installed"
        if self.name == OURS:
            where = [program, "serve", "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._folder)]
            return where if self._synced else [*where, "--sync", "written"]
        configuration = self._folder / "server.conf"
        synced = "sync_interval: always" if self._synced else ""
        configuration.write_text(
            f'listen: 127.0.0.1:{self.port}\njetstream {{ store_dir: "{self._folder.absolute()}"\n{synced}\n}}\n'
        )
        return [program, "-c", str(configuration)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _listener(port: int) -> int:
    """Return the process that listens on a port."""
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr[1:] == (port,) and each.pid is not None:
            return each.pid
    raise RuntimeError(f"nobody listens on port {port}")
