"""What the monitoring port tells: the fields that people and start-up checks read."""

import http.client
import json
import os
import signal
from contextlib import closing
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js import JetStreamContext

from tests.broker.clients.servers import WITHIN_S, StartServer, connected, eventually, settled
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

FIELDS = {
    "/varz": [
        "server_id", "server_name", "version", "proto", "host", "port", "max_connections", "ping_interval", "ping_max",
        "http_port", "max_control_line", "max_payload", "max_pending", "write_deadline", "start", "now", "uptime",
        "mem", "cores", "cpu", "connections", "total_connections", "subscriptions", "in_msgs", "out_msgs", "in_bytes",
        "out_bytes", "slow_consumers", "jetstream",
    ],
    "/connz": ["server_id", "now", "num_connections", "total", "offset", "limit", "connections"],
    "/jsz": ["server_id", "now", "config", "memory", "storage", "streams", "consumers", "messages", "bytes", "api"],
    "/healthz": ["status"],
}  # fmt: skip


@pytest.mark.parametrize("path", FIELDS)
async def test_each_page_has_its_fields(server: NatsServer, nc: Client, path: str) -> None:
    await settled(nc)
    page = _page(server, path)
    assert [field for field in FIELDS[path] if field not in page] == []


def _page(server: NatsServer, path: str) -> dict[str, Any]:
    page = server.monitor(path)
    assert isinstance(page, dict)
    return page


async def test_connections_are_described(server: NatsServer, name: str) -> None:
    async with connected(server.url, name=name) as client:
        await client.subscribe(name)
        await client.publish(name, b"12345")
        await settled(client)
        number = client.client_id
        (told,) = [each for each in _page(server, "/connz")["connections"] if each.get("name") == name]
    assert (told["cid"], told["ip"], told["lang"]) == (number, "127.0.0.1", "python3")
    assert (told["subscriptions"], told["in_msgs"], told["in_bytes"], told["out_msgs"]) == (1, 1, 5, 1)


COUNTS = ("in_msgs", "in_bytes", "out_msgs", "out_bytes")


async def test_messages_are_counted_and_the_protocol_around_them_is_not(start: StartServer) -> None:
    server = start()
    async with connected(server.url, name="counted") as client:
        js = client.jetstream(timeout=WITHIN_S)
        await js.add_stream(name="S", subjects=["s"])
        with pytest.raises(NoRespondersError):
            await client.request("nobody", b"x", timeout=WITHIN_S)
        await settled(client)

        def counts() -> list[int]:
            (told,) = [each for each in _page(server, "/connz")["connections"] if each.get("name") == "counted"]
            whole, (account,) = _page(server, "/varz"), _page(server, "/accstatz")["account_statz"]
            assert [told[name] for name in COUNTS] == [whole[name] for name in COUNTS]
            assert [account[way][what] for way in ("received", "sent") for what in ("msgs", "bytes")] == [
                told[name] for name in COUNTS
            ]
            return [told[name] for name in COUNTS]

        before = counts()
        subscription = await client.subscribe("a.*")
        await client.publish("a.b", b"12345", headers={"A": "b"})
        await client.publish("a.b", b"123", reply="there")
        await js.publish("s", b"1234567")
        await subscription.next_msg(WITHIN_S)
        await settled(client)
        block, ack = len(b"NATS/1.0\r\nA: b\r\n\r\n"), len(b'{"stream":"S","seq":1}')
        after = [3, 5 + block + 3 + 7, 3, 5 + block + 3 + ack]
        assert [now - then for now, then in zip(counts(), before, strict=True)] == after


async def test_streams_are_counted(start: StartServer, name: str) -> None:
    server = start()
    async with connected(server.url) as client:
        js: JetStreamContext = client.jetstream(timeout=WITHIN_S)
        await js.add_stream(name=name, subjects=[name])
        await js.publish(name, b"x")
        await js.add_consumer(name, durable_name="c")
        told = _page(server, "/jsz?streams=true&consumers=true&config=true&accounts=true")
    assert (told["streams"], told["consumers"], told["messages"]) == (1, 1, 1)
    (stream,) = told["account_details"][0]["stream_detail"]
    assert (stream["name"], stream["state"]["messages"], stream["consumer_detail"][0]["name"]) == (name, 1, "c")


INDEX = ["varz", "jsz", "connz", "accountz", "accstatz", "subsz", "routez", "leafz", "gatewayz", "raftz", "healthz"]


def test_pages_for_debugging_answer_alike(server: NatsServer) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.monitor_port, timeout=PATIENCE_S)) as connection:

        def page(path: str) -> tuple[int, str, str]:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"].partition(";")[0], answer.read().decode()

        status, kind, stacks = page("/stacksz")
        assert (status, kind) == (200, "application/json")
        assert len(stacks.splitlines()) > 1
        assert page("/raftz") == (404, "text/plain", "No Raft nodes registered")
        status, kind, queues = page("/ipqueuesz")
        assert (status, kind, type(json.loads(queues))) == (200, "application/json", dict)
        status, kind, variables = page("/debug/vars")
        assert (status, kind) == (200, "application/json")
        assert {"cmdline", "memstats"} <= set(json.loads(variables))
        index = page("/")[2]
        assert [path for path in [*INDEX, "debug/vars"] if f"./{path}" not in index] == []
    assert {"feature_flags", "disk_io_wait_stats"} <= set(_page(server, "/varz"))


@pytest.mark.parametrize("path", ["/", "/healthz?js-enabled-only=true", "/routez", "/subsz", "/accountz", "/nothing"])
def test_other_pages_answer_alike(server: NatsServer, path: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.monitor_port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    if path == "/nothing":
        assert answer.status in (200, 404)
    else:
        assert answer.status == 200
    if path.startswith("/healthz"):
        assert json.loads(body) == {"status": "ok"}


async def test_a_server_ends_in_good_order(launch: StartServer) -> None:
    server = launch()
    async with connected(server.url) as client:
        os.kill(server.pid, signal.SIGTERM)
        await eventually(lambda: client.is_closed)
