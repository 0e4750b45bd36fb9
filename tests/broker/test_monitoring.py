"""The monitoring endpoints: fields and types of nats-server's own, and the truth in them."""

import asyncio
import http.client
import json
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import APIError

from strandline.broker.embedded_server import serve
from strandline.broker.settings import AccountSettings, ServerSettings, UserSettings
from strandline.journal import WRITTEN
from tests.broker.clients.servers import settled
from tests.servers_nats import running_nats
from tests.waiting import PATIENCE_S

PATHS = (
    "/varz",
    "/connz",
    "/connz?subs=1&auth=1&sort=bytes_to&limit=1",
    "/connz?subs=detail&state=all&sort=cid",
    "/connz?state=closed&sort=stop",
    "/connz?cid=999999",
    "/connz?acc=$G&filter_subject=bar&sort=idle",
    "/connz?acc=NOPE&state=all",
    "/connz?sort=zz",
    "/connz?state=zz",
    "/connz?subs=zz",
    "/connz?limit=zz",
    "/connz?sort=stop",
    "/jsz",
    "/jsz?streams=true&consumers=true&config=true&acc=$G",
    "/jsz?accounts=true",
    "/jsz?streams=zz",
    "/healthz",
    "/healthz?js-enabled-only=true",
    "/healthz?js-server-only=1",
    "/healthz?js-enabled-only=zz",
    "/healthz?account=$G&stream=MONITORED&consumer=D",
    "/healthz?account=$G&stream=NOPE",
    "/healthz?account=$G&stream=MONITORED&consumer=NOPE",
    "/healthz?stream=MONITORED",
    "/subsz",
    "/subsz?subs=1&acc=$G&test=foo.*",
    "/accountz",
    "/accountz?acc=$G",
    "/accountz?acc=NOPE",
    "/accstatz",
    "/routez",
    "/gatewayz",
    "/leafz",
    "/nope",
)
OURS_ALONE = {"/jetstream/config/sync_always", "/config/sync_always"}
THEIRS_ALONE = {
    "/http_req_stats",
    "/account_detail/imports",
    "/connections[]/subscriptions_list_detail[]/account",
    "/config_digest",
    "/disk_io_wait_stats",
    "/feature_flags",
}


def get(port: int, path: str) -> tuple[int, str, Any]:
    """Return the status, the content type and the body of a page."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
        kind = answer.headers["Content-Type"]
        return answer.status, kind, json.loads(body) if kind == "application/json" else body


async def pages(url: str, port: int) -> dict[str, tuple[int, str, Any]]:
    """Do a little of everything, and return all pages."""
    client = await nats.connect(url, name="tester", connect_timeout=PATIENCE_S)
    context = client.jetstream(timeout=PATIENCE_S)
    await context.add_stream(name="MONITORED", subjects=["monitored.>"])
    for _ in range(3):
        await context.publish("monitored.x", b"hello")
    subscription = await context.pull_subscribe("monitored.>", durable="D", stream="MONITORED")
    await (await subscription.fetch(2, timeout=PATIENCE_S))[0].ack_sync(PATIENCE_S)
    await client.subscribe("bar", queue="q")
    other = await nats.connect(url, name="gone", connect_timeout=PATIENCE_S)
    await other.subscribe("z")
    await settled(other)
    await other.close()
    await settled(client)
    give_up = asyncio.get_running_loop().time() + PATIENCE_S
    while asyncio.get_running_loop().time() < give_up:  # the end of a connection is noticed a little later
        if (await asyncio.to_thread(get, port, "/connz?state=closed"))[2]["total"]:
            break
        await asyncio.sleep(0.01)
    found = {path: await asyncio.to_thread(get, port, path) for path in PATHS}
    await context.delete_stream("MONITORED")
    await client.close()
    return found


def shape(value: object, at: str = "") -> dict[str, str]:
    """Return the kinds of all fields by their paths; of a list, those of all of it."""
    if isinstance(value, dict):
        return {path: kind for key, part in value.items() for path, kind in shape(part, f"{at}/{key}").items()} or {
            at: "{}"
        }
    if isinstance(value, list):
        return {path: kind for part in value for path, kind in shape(part, f"{at}[]").items()} or {at: "[]"}
    return {at: "number" if type(value) in (int, float) else type(value).__name__}


@pytest.fixture(scope="module")
def both() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pages of the real server and of ours, after the same has been done with both."""

    async def ours() -> dict[str, Any]:
        settings = ServerSettings(port=0, http_port=-1, server_name="one", durability=WRITTEN)
        async with serve(settings) as server:
            assert server.http_port is not None
            return await pages(server.url, server.http_port)

    with running_nats() as server:
        return asyncio.run(pages(server.url, server.monitor_port)), asyncio.run(ours())


@pytest.mark.parametrize("path", PATHS)
def test_a_page_has_the_fields_and_types_of_nats_servers(
    path: str, both: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    theirs, ours = (pages[path] for pages in both)
    assert ours[:2] == theirs[:2]
    if theirs[1] != "application/json" or theirs[0] != 200:
        assert ours[2] == theirs[2]
        return
    expected, found = shape(theirs[2]), shape(ours[2])
    different = {at for at in expected.keys() | found.keys() if expected.get(at) != found.get(at)}
    for allowed in OURS_ALONE | THEIRS_ALONE:
        different = {at for at in different if not at.startswith(allowed)}
    assert not different, [(at, expected.get(at), found.get(at)) for at in different]


def test_pages_tell_what_happened(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ours = {path: page[2] for path, page in both[1].items()}
    assert (ours["/varz"]["connections"], ours["/varz"]["total_connections"]) == (1, 2)
    assert ours["/varz"]["in_msgs"] >= 5
    assert ours["/connz"]["connections"][0]["name"] == "tester"
    closed = ours["/connz?state=closed&sort=stop"]["connections"][0]
    assert (closed["name"], closed["reason"]) == ("gone", "Client Closed")
    details = ours["/connz?subs=detail&state=all&sort=cid"]["connections"][0]["subscriptions_list_detail"]
    assert any({"subject": "bar", "qgroup": "q"}.items() <= each.items() for each in details)
    stream = ours["/jsz?streams=true&consumers=true&config=true&acc=$G"]["account_details"][0]["stream_detail"][0]
    assert (stream["state"]["messages"], stream["config"]["subjects"]) == (3, ["monitored.>"])
    consumer = stream["consumer_detail"][0]
    assert (consumer["name"], consumer["num_ack_pending"], consumer["num_pending"]) == ("D", 1, 1)
    assert ours["/connz?acc=$G&filter_subject=bar&sort=idle"]["total"] == 1
    assert ours["/connz?acc=NOPE&state=all"]["total"] == 0
    assert ours["/healthz"] == {"status": "ok"}


async def _raw(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    data = bytearray()
    with suppress(ConnectionError):  # it ends so for a client whose bytes are still on their way
        while part := await asyncio.wait_for(reader.read(1 << 16), PATIENCE_S):
            data += part
    writer.close()
    return bytes(data)


def test_connections_are_kept_open_shown_by_user_and_closed_on_nonsense() -> None:
    users = (AccountSettings(), AccountSettings("A", (UserSettings("ann", "s"),), None))
    settings = ServerSettings(
        port=0, http_port=0, http_base_path="/nats", jetstream=None, accounts=users, auth_timeout_s=PATIENCE_S
    )

    async def main() -> None:
        async with serve(settings) as server:
            port = server.http_port
            assert port is not None
            options = {"user": "ann", "password": "s", "connect_timeout": PATIENCE_S}
            client = await nats.connect(server.url, **options)
            kept_open = b"GET /nats/healthz HTTP/1.1\r\nHost: x\r\nX-Connection: close\r\n\r\n"
            twice = kept_open + b"HEAD /nats/varz HTTP/1.1\r\nConnection: close\r\n\r\n"
            answers = await _raw(port, twice)
            assert answers.count(b"HTTP/1.1 200 OK") == 2
            assert answers.count(b'{"status":"ok"}') == 1
            for nonsense in (b"nonsense\r\n\r\n", b"GET / HTTP/9\r\n\r\n"):
                assert (await _raw(port, nonsense)).startswith(b"HTTP/1.1 400 ")
            assert await _raw(port, b"x" * 100_000) == b""
            shown = (await asyncio.to_thread(get, port, "/nats/connz?auth=1&user=ann"))[2]["connections"][0]
            assert (shown["authorized_user"], shown["account"]) == ("ann", "A")
            assert (await asyncio.to_thread(get, port, "/nats/jsz"))[2]["disabled"] is True
            await client.close()

    asyncio.run(main())


def test_a_stream_that_cannot_store_makes_the_server_unwell_but_not_its_process() -> None:
    async def main() -> None:
        async with serve(ServerSettings(port=0, http_port=0, durability=WRITTEN)) as server:
            port = server.http_port
            assert port is not None
            server.jetstreams["$G"].failures["ORDERS"] = "the disk is full"
            status, _, health = await asyncio.to_thread(get, port, "/healthz")
            assert (status, health["status"]) == (503, "unavailable")
            assert "ORDERS" in health["error"]
            for path in ("/healthz?js-server-only=true", "/healthz?js-enabled-only=true"):
                assert (await asyncio.to_thread(get, port, path))[0] == 200

    asyncio.run(main())


def _damage(folder: Path, name: str) -> None:
    for path in folder.rglob(name):
        path.write_bytes(b"nonsense")


def test_a_consumer_that_cannot_be_opened_makes_the_server_unwell(tmp_path: Path) -> None:
    async def main() -> None:
        async with serve(ServerSettings(port=0, store_dir=tmp_path)) as server:
            client = await nats.connect(server.url, connect_timeout=PATIENCE_S)
            await client.jetstream(timeout=PATIENCE_S).add_stream(name="ORDERS", subjects=["orders"])
            await client.jetstream(timeout=PATIENCE_S).add_consumer("ORDERS", durable_name="worker")
            await client.close()
        _damage(tmp_path, "worker.consumer")
        async with serve(ServerSettings(port=0, http_port=0, store_dir=tmp_path)) as server:
            port = server.http_port
            assert port is not None
            status, _, health = await asyncio.to_thread(get, port, "/healthz")
            assert (status, health["status"]) == (503, "unavailable")
            assert 'consumer "worker" of stream "ORDERS"' in health["error"]
            client = await nats.connect(server.url, connect_timeout=PATIENCE_S)
            with pytest.raises(APIError) as refused:
                await client.jetstream(timeout=PATIENCE_S).consumer_info("ORDERS", "worker")
            assert str(tmp_path) not in str(refused.value)
            assert "worker.consumer" in str(refused.value)
            await client.jetstream(timeout=PATIENCE_S).delete_consumer("ORDERS", "worker")
            assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
            await client.close()

    asyncio.run(main())
