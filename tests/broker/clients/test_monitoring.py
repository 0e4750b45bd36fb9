"""What the monitoring port tells: the fields that people and start-up checks read."""

import http.client
import json
import os
import signal
from contextlib import closing
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.broker.clients.servers import StartServer, connected, eventually, settled
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


async def test_streams_are_counted(start: StartServer, name: str) -> None:
    server = start()
    async with connected(server.url) as client:
        js: JetStreamContext = client.jetstream()
        await js.add_stream(name=name, subjects=[name])
        await js.publish(name, b"x")
        await js.add_consumer(name, durable_name="c")
        told = _page(server, "/jsz?streams=true&consumers=true&config=true&accounts=true")
    assert (told["streams"], told["consumers"], told["messages"]) == (1, 1, 1)
    (stream,) = told["account_details"][0]["stream_detail"]
    assert (stream["name"], stream["state"]["messages"], stream["consumer_detail"][0]["name"]) == (name, 1, "c")


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
