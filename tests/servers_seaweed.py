"""A real S3 server for tests: SeaweedFS on 127.0.0.1, with its own folder, gone when the tests are.

Invariants: the ports are free ones; a server is stopped by its own process id and never outlives the process that
started it. Tests share a server and keep apart by the prefix of their keys.
"""

import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.leftovers import owned_servers, shared_server
from tests.ports import free_ports
from tests.waiting import PATIENCE_S

ACCESS_KEY, SECRET_KEY = "seaweed-test", "seaweed-test-secret"
BUCKET = "strandline-tests"
_STORED = "stored"
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port", "admin.port")


class SeaweedServer:
    """One SeaweedFS; `environ` is what an AWS client needs to use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = free_ports(2 * len(_PORTS))
        self._ports = {
            **dict(zip(_PORTS, ports, strict=False)),
            **dict(zip((f"{name}.grpc" for name in _PORTS), ports[len(_PORTS) :], strict=True)),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._has_stored = False

    @property
    def endpoint(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a client."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    @property
    def pid(self) -> int:
        """The process; 0 while there is none."""
        return self._process.pid if self._process else 0

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and return when it reads what it has stored; it ends with the calling thread.

        It answers before: for a while, a server that was killed has objects whose bodies it does not find yet.
        """
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        identities = {"identities": [{"name": "tests", "credentials": credentials, "actions": actions}]}
        (self._folder / "s3.json").write_text(json.dumps(identities))
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        give_up = time.monotonic() + PATIENCE_S
        while not (self._answers() and self._stores()):
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.kill()
                raise RuntimeError("SeaweedFS did not start: " + (self._folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """End it; it has no better way."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _command(self) -> list[str]:
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        return [
            *guard,
            str(Path(sys.executable).with_name("weed")),
            *("-logtostderr=true", "mini", f"-dir={self._folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *("-master.telemetry=false", "-webdav=false", "-admin.ui=false"),
            *(f"-{name}={port}" for name, port in self._ports.items()),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={self._folder / 's3.json'}"),
            f"-filer.localSocket={self._folder / 'filer.sock'}",
        ]

    def _stores(self) -> bool:
        """Read an object, or write it at the first start, which makes the bucket too."""
        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        try:
            if self._has_stored:
                store.get(_STORED).bytes()
            else:
                store.put(_STORED, b"stored")
                self._has_stored = True
        except BaseError:
            return False
        return True

    def _answers(self) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self._ports["s3.port"], timeout=PATIENCE_S)) as connection:
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status == http.HTTPStatus.OK
            except (OSError, http.client.HTTPException):
                return False


@contextmanager
def running_seaweed() -> Iterator[SeaweedServer]:
    """Run a server in a folder of its own, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="seaweed-", ignore_cleanup_errors=True) as folder:
        server = SeaweedServer(Path(folder))
        server.start()
        try:
            with owned_servers([server]):
                yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def seaweed_server() -> Iterator[SeaweedServer]:
    """Share one server among all tests of a process; those that stop it have one of their own."""
    with running_seaweed() as server, shared_server(server):
        yield server


@pytest.fixture
def seaweed_address() -> str:
    """Give a test a prefix that no other test uses."""
    return fresh_address()


def fresh_address() -> str:
    """Return the address of a prefix that has never been used."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
