"""What is asked on `$SYS.REQ.`: by anybody about themselves, by the system account about the server."""

import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from tests.broker.clients.servers import WITHIN_S, StartServer, connected

SETTINGS = """
accounts {
  SYS { users: [{ user: sys, password: p }] }
  A {
    jetstream: enabled
    users: [
      { user: a, password: p }
      { user: b, password: p, permissions: {
          publish: { allow: ["x.>", "$SYS.>"], deny: y }, subscribe: "_INBOX.>", allow_responses: true } }
    ]
  }
  B { users: [{ user: c, password: p }] }
}
system_account: SYS
"""


async def _ask(client: Client, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    payload = json.dumps(body).encode() if body is not None else b""
    answer = await client.request(f"$SYS.REQ.{subject}", payload, timeout=WITHIN_S)
    parsed: dict[str, Any] = json.loads(answer.data)
    return parsed


async def test_a_client_asks_who_it_is(start: StartServer) -> None:
    server = start(SETTINGS)
    async with connected(server.url, user="a", password="p") as client:  # noqa: S106
        answer = await _ask(client, "USER.INFO")
        assert answer["data"] == {"user": "a", "account": "A", "account_name": "A"}
        assert (answer["server"]["ver"], answer["server"]["jetstream"]) == ("2.15.1", True)
        assert {"name", "host", "id", "feature_flags", "flags", "seq", "time"} <= set(answer["server"])
    async with connected(server.url, user="b", password="p") as client:  # noqa: S106
        permissions = (await _ask(client, "USER.INFO"))["data"]["permissions"]
        permissions["publish"]["allow"].sort()  # nats-server gives them in any order
        assert permissions == {
            "publish": {"allow": ["$SYS.>", "x.>"], "deny": ["y"]},
            "subscribe": {"allow": ["_INBOX.>"]},
            "responses": {"max": 1, "ttl": 120_000_000_000},
        }


@pytest.mark.parametrize("body", [None, {"acc": "B"}, {"account": "B"}, {"accounts": ["B", "A"], "auth": True}])
async def test_a_client_sees_its_own_account_alone(start: StartServer, body: dict[str, Any] | None) -> None:
    server = start(SETTINGS)
    async with (
        connected(server.url, user="a", password="p", name="mine") as client,  # noqa: S106
        connected(server.url, user="c", password="p", name="other"),  # noqa: S106
    ):
        for subject in ("ACCOUNT.PING.CONNZ", "SERVER.PING.CONNZ"):
            data = (await _ask(client, subject, body))["data"]
            assert [each["name"] for each in data["connections"]] == ["mine"]
        data = (await _ask(client, "ACCOUNT.PING.STATZ", body))["data"]
        assert [each["acc"] for each in data["account_statz"]] == ["A"]


@pytest.mark.parametrize("payload", [b"{nope", b"[]", b"7", b"\xff", b"[" * 100_000])
async def test_options_that_cannot_be_read_are_refused(start: StartServer, payload: bytes) -> None:
    async with connected(start(SETTINGS).url, user="a", password="p") as client:  # noqa: S106
        answer = await client.request("$SYS.REQ.ACCOUNT.PING.CONNZ", payload, timeout=WITHIN_S)
        assert json.loads(answer.data)["error"]["code"] == 400


async def test_only_the_system_account_asks_about_the_server(start: StartServer) -> None:
    server = start(SETTINGS)
    subjects = ["SERVER.PING", "SERVER.PING.VARZ", "SERVER.PING.JSZ", "ACCOUNT.B.CONNZ", "ACCOUNT.A.INFO", "NOTHING"]
    async with connected(server.url, user="a", password="p") as client:  # noqa: S106
        for subject in subjects:
            with pytest.raises(NoRespondersError):
                await _ask(client, subject)


PAGES = {
    "VARZ": {"server_id", "connections", "jetstream"},
    "CONNZ": {"connections", "num_connections"},
    "SUBSZ": {"num_subscriptions"},
    "JSZ": {"streams", "consumers", "config"},
    "HEALTHZ": {"status", "status_code"},
    "ACCOUNTZ": {"accounts", "system_account"},
    "ROUTEZ": {"routes"},
    "GATEWAYZ": {"outbound_gateways"},
    "LEAFZ": {"leafs"},
    "EXPVARZ": {"memstats"},
    "RAFTZ": set[str](),
    "IPQUEUESZ": set[str](),
}


async def test_the_system_account_sees_the_server(start: StartServer) -> None:
    server = start(SETTINGS)
    async with (
        connected(server.url, user="sys", password="p") as client,  # noqa: S106
        connected(server.url, user="c", password="p", name="other"),  # noqa: S106
    ):
        known = (await _ask(client, "SERVER.PING.IDZ"))["id"]
        for target in ("PING", known):
            for page, fields in PAGES.items():
                data = (await _ask(client, f"SERVER.{target}.{page}"))["data"]
                assert fields <= set(data), (page, data)
        for subject in ("SERVER.PING", f"SERVER.{known}.STATSZ"):
            told = (await _ask(client, subject))["statsz"]
            assert (told["connections"], told["active_servers"]) == (2, 1)
        about_b = (await _ask(client, "ACCOUNT.B.CONNZ"))["data"]["connections"]
        assert [each["name"] for each in about_b] == ["other"]
        assert (await _ask(client, "ACCOUNT.A.JSZ"))["data"]["name"] == "A"
        assert (await _ask(client, "ACCOUNT.B.INFO"))["data"]["client_connections"] == 1
        missing = (await _ask(client, "ACCOUNT.NONE.INFO"))["error"]
        assert missing == {"code": 500, "description": "Account NONE does not exist"}
        wrong = (await _ask(client, "SERVER.PING.CONNZ", {"sort": "nothing"}))["error"]
        assert wrong == {"code": 500, "description": "invalid sorting option: nothing"}
        assert (await _ask(client, "SERVER.PING.VARZ", {"server_name": "one"}))["data"]
