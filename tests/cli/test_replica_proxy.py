"""`strandline replica proxy`: as its users run it, with the address of a replica alone."""

import fcntl
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.lease import Claimant, LeaseTiming, ObjectLeaseStore
from strandline.objects import open_objects
from strandline.replica import NodeRecord, discover, register
from strandline.replica.nodes import LEASE_KEY
from tests.cli.runs import run_command
from tests.replica.routing.fakes import BrokenServer, answering, ask
from tests.waiting import PATIENCE_S

STRANDLINE = str(Path(sys.executable).parent / "strandline")
LASTING = LeaseTiming(ttl_s=600)  # nobody renews it here


def test_it_finds_the_nodes_routes_tells_and_ends_in_order(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/replica"
    leader, follower = BrokenServer(answering(b"leader")), BrokenServer(answering(b"follower"))
    with leader.running() as leading, follower.running() as following:
        store = open_objects(address, conditional=True)
        Claimant(ObjectLeaseStore(store, LEASE_KEY), "a", address=leading, timing=LASTING).claim()
        found = discover(store).leader
        assert found is not None
        register(store, NodeRecord("b", following, found.session, 1))
        command = [STRANDLINE, "replica", "proxy", address, "--listen", "127.0.0.1:0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            proxy = json.loads(process.stdout.readline())["listening"]
            assert ask(proxy, "GET", "/a?secret").body == b"follower"
            assert ask(proxy, "POST", "/b", b"1").body == b"leader"
            process.send_signal(signal.SIGTERM)
            lines = [json.loads(line) for line in process.stdout]
            assert process.wait(PATIENCE_S) == 0
        store.close()
    assert [(line["method"], line["path"], line["node"]) for line in lines] == [
        ("GET", "/a", following),
        ("POST", "/b", leading),
    ]


def test_a_reader_of_the_log_that_stalls_stalls_no_request(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/replica"
    server = BrokenServer(answering())
    with server.running() as leading:
        store = open_objects(address, conditional=True)
        Claimant(ObjectLeaseStore(store, LEASE_KEY), "a", address=leading, timing=LASTING).claim()
        store.close()
        command = [STRANDLINE, "replica", "proxy", address, "--listen", "127.0.0.1:0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            proxy = json.loads(process.stdout.readline())["listening"]
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
            path = "/" + "x" * 2000
            assert [ask(proxy, "GET", path).status for _ in range(10)] == [200] * 10, "the pipe takes two lines"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


LARGE = 200 << 20
MEMORY_MAX = 32 << 20
"""How much the proxy may grow while a large body passes: buffers of sockets, and what Python keeps."""


@pytest.mark.long
def test_memory_does_not_grow_with_bodies_either_way(tmp_path: Path) -> None:
    chunk = bytes(1 << 20)

    def large(connection: socket.socket, head: bytes) -> None:
        if head.startswith(b"POST"):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            left = LARGE - len(head.partition(b"\r\n\r\n")[2])
            while left:
                left -= len(connection.recv(1 << 20))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE)
            for _ in range(LARGE // len(chunk)):
                connection.sendall(chunk)

    address = f"file://{tmp_path}/replica"
    with BrokenServer(large).running() as leading:
        store = open_objects(address, conditional=True)
        Claimant(ObjectLeaseStore(store, LEASE_KEY), "a", address=leading, timing=LASTING).claim()
        store.close()
        command = [STRANDLINE, "replica", "proxy", address, "--listen", "127.0.0.1:0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            proxy = json.loads(process.stdout.readline())["listening"]
            before = _peak_bytes(process.pid)
            sent = (chunk for _ in range(LARGE // len(chunk)))
            assert ask(proxy, "POST", "/a", sent, Content_Length=str(LARGE)).status == 200
            assert len(ask(proxy, "GET", "/a").body) == LARGE
            grown = _peak_bytes(process.pid) - before
            assert grown < MEMORY_MAX
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(tmp_path: Path, listen: str) -> None:
    ran = run_command("replica", "proxy", f"file://{tmp_path}", "--listen", listen)
    assert ran.code != 0
    assert "no address to listen at" in ran.err


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with BrokenServer(answering()).running() as taken:
        ran = run_command("replica", "proxy", f"file://{tmp_path}", "--listen", taken.removeprefix("http://"))
    assert ran.code != 0
    assert "cannot listen at" in ran.err
