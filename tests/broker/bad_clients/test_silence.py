"""Connections that say nothing, more of them than a server has handles for: nobody else notices, and no log fills."""

import os
import resource
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.broker.bad_clients.neighbours import undisturbed
from tests.broker.clients.servers import program_of, running
from tests.broker.socket_client import Ended, SocketClient
from tests.identities_nats import Certificates, make_certificates
from tests.ports import free_ports
from tests.servers_nats import NatsServer, running_nats
from tests.waiting import PATIENCE_S, eventually

HANDLES = 128
SILENT = 300
LOG_BYTES_MAX = 200_000
"""Hundreds of clients that are refused, or late, have a line each; what is tried again and again has not."""
LIMITED = ("sh", "-c", f'ulimit -n {HANDLES} && exec "$@"', "sh", *program_of("strandline"))
PAUSED = "No connections are accepted for now"


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    with tempfile.TemporaryDirectory(prefix="certificates-") as folder:
        yield make_certificates(Path(folder))


def handles(pid: int) -> int:
    """Return how many handles a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - the names are all that is wanted


@contextmanager
def silent(port: int, count: int = SILENT) -> Iterator[None]:
    """Hold so many connections that say nothing; the server need not have accepted them."""
    with ExitStack() as stack:
        for _ in range(count):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        yield


def comes_in(port: int, within_s: float = 3) -> bool:
    """Tell whether a new client is served."""
    with suppress(Ended, TimeoutError), SocketClient(port, greet=False) as client:
        client.send(b'CONNECT {"verbose":false}\r\n')
        client.flush(within_s)
        return True
    return False


def settings_of(listener: str, certificates: Certificates) -> tuple[str, int | None]:
    """Return settings with a listener that soon gives silent clients up, and its port if it has one of its own."""
    port = free_ports(1)[0]
    files = f'cert_file: "{certificates.cert}", key_file: "{certificates.key}"'
    return {
        "plain": ("ping_interval: 500ms, ping_max: 1", None),
        "tls": (f"allow_non_tls: true\ntls {{ {files}, timeout: 0.5 }}", None),
        "tls first": (f"allow_non_tls: true\ntls {{ {files}, timeout: 0.5, handshake_first: true }}", None),
        "websocket": (f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true, handshake_timeout: 500ms }}', port),
        "secure websocket": (
            f'websocket {{ listen: "127.0.0.1:{port}", tls {{ {files} }}, handshake_timeout: 500ms }}',
            port,
        ),
    }[listener]


@contextmanager
def with_few_handles(settings: str) -> Iterator[NatsServer]:
    """Run ours with few handles, and see that it never used them up and that its log is short."""
    with running_nats(settings, program=LIMITED) as server:
        yield server
        log = server.log()
    assert "Too many open files" not in log
    assert "Traceback" not in log
    assert log.count(PAUSED) <= 1
    assert len(log) < LOG_BYTES_MAX


@pytest.mark.parametrize("listener", ["plain", "tls", "tls first", "websocket", "secure websocket"])
def test_silent_clients_hold_up_nobody_and_make_room_for_others(listener: str, certificates: Certificates) -> None:
    settings, port = settings_of(listener, certificates)
    with with_few_handles(settings) as server:
        with undisturbed(server):
            for _ in range(2):
                with silent(port or server.port):
                    eventually(lambda: handles(server.pid) > HANDLES // 2)
                    assert handles(server.pid) < HANDLES * 7 // 8
                    assert server.monitor("/varz")
            with silent(port or server.port):  # they are given up, one lot after the other, and stay where they are
                eventually(lambda: comes_in(server.port))
        eventually(lambda: comes_in(server.port))


def test_silent_monitors_hold_up_no_client_and_make_room_for_others() -> None:
    with with_few_handles("") as server:
        with undisturbed(server), silent(server.monitor_port):
            eventually(lambda: handles(server.pid) > HANDLES // 16)
            for _ in range(HANDLES // 2):
                assert comes_in(server.port, PATIENCE_S)
            eventually(lambda: handles(server.pid) < HANDLES // 2)
        eventually(lambda: bool(server.monitor("/varz")))


@pytest.mark.parametrize("kind", ["nats-server", "strandline"])
def test_a_server_without_a_handle_left_says_so_and_goes_on_when_it_has_some(kind: str) -> None:
    with running(kind) as server:
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        with undisturbed(server) as neighbour:
            used = max(int(each) for each in os.listdir(f"/proc/{server.pid}/fd"))  # noqa: PTH208 - only names
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 1, hard))
            with silent(server.port):
                eventually(lambda: "oo many open files" in server.log())
                neighbour.wait_for(100)  # a server that does not wait has said it very often by then
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
            eventually(lambda: comes_in(server.port))
        if kind == "strandline":
            assert len(server.log()) < 10_000
            assert server.log().count("oo many open files") == 1
