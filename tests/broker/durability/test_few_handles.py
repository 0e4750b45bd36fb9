"""A server with fewer handles than it has streams and consumers: all of them go on, and clients come in."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from strandline.broker import running
from strandline.broker.store import open_store
from strandline.errors import Locked
from strandline.journal import Journal
from tests.broker.clients.servers import program_of
from tests.broker.socket_client import SocketClient
from tests.servers_nats import NatsServer, running_nats

HANDLES = 128
CONSUMERS, STREAMS, CLIENTS = 150, 30, 20
BIG = bytes(900_000)
LIMITED = ("sh", "-c", f'ulimit -n {HANDLES} && exec "$@"', "sh", *program_of("strandline"))


@contextmanager
def with_few_handles() -> Iterator[NatsServer]:
    """Run a server with few handles, and see that it never missed one."""
    with running_nats("", program=LIMITED) as server:
        yield server
        log = server.log()
    assert "oo many open files" not in log
    assert "Traceback" not in log


def files_open(server: NatsServer) -> int:
    """Return how many of the server's own files are open."""
    folder = Path(f"/proc/{server.pid}/fd")
    return len([each for each in folder.iterdir() if each.exists() and "strandline" in each.readlink().parts])


def make_all(client: SocketClient) -> None:
    """Make the streams and consumers, and let each of them store something."""
    client.api("STREAM.CREATE.many", {"name": "many", "subjects": ["many.>"]})
    client.api("STREAM.CREATE.big", {"name": "big", "subjects": ["big"], "max_msgs": 20})
    for number in range(STREAMS):
        client.api(f"STREAM.CREATE.S{number}", {"name": f"S{number}", "subjects": [f"s.{number}"]})
    for number in range(CONSUMERS):
        config = {"durable_name": f"C{number}", "ack_policy": "explicit"}
        client.api(f"CONSUMER.DURABLE.CREATE.many.C{number}", {"stream_name": "many", "config": config})


def use_all(client: SocketClient, already: int) -> None:
    """Publish to every stream, and let every consumer have and acknowledge a message more."""
    assert client.request("many.x", b"x").json()["seq"] == already + 1
    for number in range(STREAMS):
        assert client.request(f"s.{number}", b"x").json()["seq"] == already + 1
    client.subscribe("given", "given")
    for number in range(CONSUMERS):
        client.publish(f"$JS.API.CONSUMER.MSG.NEXT.many.C{number}", b"1", reply="given")
        given = client.next()
        assert given.payload == b"x"
        assert client.request(given.reply, b"+ACK").payload == b""


def check_all(client: SocketClient, count: int) -> None:
    """See that everything is there."""
    for number in range(STREAMS):
        found = client.api(f"STREAM.MSG.GET.S{number}", {"seq": count})["message"]
        assert isinstance(found, dict)
        assert found["data"] == "eA=="
    for number in range(CONSUMERS):
        floor = client.api(f"CONSUMER.INFO.many.C{number}")["ack_floor"]
        assert isinstance(floor, dict)
        assert floor["stream_seq"] == count


def test_more_streams_and_consumers_than_handles() -> None:
    with with_few_handles() as server:
        with SocketClient(server.port) as client:
            make_all(client)
            use_all(client, 0)
        for kill in (False, True):
            server.restart(kill=kill)
            with ExitStack() as others, SocketClient(server.port) as client:
                check_all(client, 1)
                for _ in range(40):  # segments are begun, and let go of
                    assert "error" not in client.request("big", BIG).json()
                for _ in range(CLIENTS):
                    others.enter_context(SocketClient(server.port))
                assert files_open(server) <= HANDLES // 4
        with SocketClient(server.port) as client:
            use_all(client, 1)
            check_all(client, 2)
            assert HANDLES // 8 < files_open(server) <= HANDLES // 4


def test_a_journal_of_a_server_that_runs_is_nobody_elses(tmp_path: Path) -> None:
    folder = tmp_path / "strandline"
    with running(store_dir=tmp_path) as url:
        with SocketClient(int(url.rpartition(":")[2])) as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        journal = folder / "$G" / "streams" / "S" / "journal"
        with pytest.raises(Locked):
            Journal.open(journal)
        with pytest.raises(Locked), open_store(folder, 10):
            pass
    Journal.open(journal).close()
    with open_store(folder, 10) as disk:
        with pytest.raises(Locked):
            Journal.open(journal)
        Journal.open(journal, disk=disk).close()


def test_a_stream_that_is_removed_leaves_no_folder(tmp_path: Path) -> None:
    with running(store_dir=tmp_path) as url, SocketClient(int(url.rpartition(":")[2])) as client:
        client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        config = {"durable_name": "C", "ack_policy": "explicit"}
        client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
        client.api("STREAM.DELETE.S")
        assert list((tmp_path / "strandline" / "$G" / "streams").iterdir()) == []
