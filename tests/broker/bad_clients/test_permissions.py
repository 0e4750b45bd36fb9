"""Nobody gets around what it may publish and hear, nor out of its account."""

import json
from itertools import islice

import pytest

from tests.broker.bad_clients.conftest import Servers
from tests.broker.socket_client import Message, SocketClient, pub_frame
from tests.servers_nats import NatsServer, fresh_bucket

SETTINGS = """
accounts {
  A: {
    jetstream: enabled
    users: [
      { user: owner, password: a }
      { user: guest, password: g, permissions: {
          publish: { allow: ["open.>", "$JS.API.INFO"], deny: ["open.secret.>", "open.*.hidden"] }
          subscribe: { allow: ["open.>", "_INBOX.>", "team.> workers"], deny: ["open.secret.>", "open.*.hidden"] } } }
      { user: server, password: s, permissions: {
          publish: { deny: ">" }, subscribe: "ask.>", allow_responses: { max: 1, expires: "10m" } } }
    ]
  }
  B: { jetstream: enabled, users: [ { user: other, password: b } ] }
}
no_auth_user: guest
"""


def login(server: NatsServer, user: str) -> SocketClient:
    """Connect as somebody."""
    words = {"owner": "a", "guest": "g", "server": "s", "other": "b"}
    return SocketClient(server.port, {"user": user, "pass": words[user]} if user else {})


def _is_no_event(message: Message) -> bool:
    """Tell whether a message is none of those that a server sends of what a test before has done."""
    return not message.subject.startswith("$JS.EVENT.")


@pytest.fixture
def server(servers: Servers) -> NatsServer:
    return servers(SETTINGS)


@pytest.mark.parametrize("user", ["guest", ""])
@pytest.mark.parametrize(
    "subject",
    [
        "closed",
        "open",
        "open.secret.a",
        "open.x.hidden",
        "OPEN.x",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.CREATE.x",
        "$JS.API.DIRECT.GET.S.open.a",
        "$JS.ACK.S.c.1.1.1.1.1",
        "$SYS.REQ.SERVER.PING",
        "_INBOX.somebody",
    ],
)
def test_what_may_not_be_published_reaches_nobody(server: NatsServer, user: str, subject: str) -> None:
    with login(server, "owner") as owner, login(server, user) as guest:
        owner.subscribe(">", "1")
        owner.flush()
        for frame in (
            pub_frame(subject, b"x"),
            pub_frame(subject, b"x", reply="open.r"),
            pub_frame(subject, b"x", headers=b"NATS/1.0\r\nA: b\r\n\r\n"),
            pub_frame(subject, b"x").replace(b"PUB", b"pub"),
            pub_frame(subject, b"x").replace(b" ", b"\t"),
        ):
            guest.send(frame)
            assert guest.wait_for_error() == f'Permissions Violation for Publish to "{subject}"'
        guest.send(pub_frame("open.a", b"1") + pub_frame(subject, b"2") * 200 + pub_frame("open.b", b"3"))
        guest.flush()
        owner.publish("open.end", b"4")
        heard = list(islice(filter(_is_no_event, iter(owner.next, None)), 3))
    assert [each.payload for each in heard] == [b"1", b"3", b"4"], heard


@pytest.mark.parametrize(
    ("subject", "queue"),
    [
        ("closed", ""),
        (">", ""),
        ("*", ""),
        ("*.a", ""),
        ("open", ""),
        ("open.secret.a", ""),
        ("open.secret.>", ""),
        ("closed", "q"),
        ("open.secret.a", "q"),
        ("team.a", ""),
        ("team.a", "others"),
        ("$JS.>", ""),
        ("$SYS.>", ""),
    ],
)
def test_what_may_not_be_heard_is_not_subscribed_to(server: NatsServer, subject: str, queue: str) -> None:
    with login(server, "owner") as owner, login(server, "guest") as guest:
        guest.subscribe(subject, "1", queue)
        said = f'Permissions Violation for Subscription to "{subject}"' + (f' using queue "{queue}"' if queue else "")
        assert guest.wait_for_error() == said
        for each in ("closed", "open.secret.a", "team.a", "x.a"):
            owner.publish(each, b"x")
        owner.flush()
        guest.flush()
        assert not guest.messages


def test_a_wildcard_that_may_be_heard_does_not_bring_what_may_not(server: NatsServer) -> None:
    with login(server, "owner") as owner, login(server, "guest") as guest:
        for number, subject in enumerate(("open.>", "open.*.a", "open.*.*")):
            guest.subscribe(subject, str(number))
        guest.subscribe("open.>", "9", "q")
        guest.flush()
        for _ in range(2):
            owner.send(pub_frame("open.secret.a", b"x") * 200 + pub_frame("open.known.a", b"y"))
            owner.send(b"".join(pub_frame(f"open.known.{each}", b"z") for each in ("hidden", "a", "hidden") * 100))
        owner.flush()
        guest.flush()
        assert sorted((each.sid, each.subject) for each in guest.messages) == sorted(
            (sid, "open.known.a") for sid in ("0", "1", "2", "9") for _ in range(2 * 101)
        )


def test_a_queue_that_may_be_joined_can_be(server: NatsServer) -> None:
    with login(server, "owner") as owner, login(server, "guest") as guest:
        guest.subscribe("team.a", "1", "workers")
        guest.flush()
        owner.publish("team.a", b"x")
        assert guest.next().payload == b"x"


def test_who_may_only_answer_may_answer_once(server: NatsServer) -> None:
    with login(server, "owner") as owner, login(server, "server") as answering:
        answering.subscribe("ask.>", "1")
        answering.flush()
        owner.subscribe(owner.inbox, "1")
        owner.publish("ask.it", b"?", reply=owner.inbox)
        asked = answering.next()
        answering.publish(asked.reply, b"!")
        assert owner.next().payload == b"!"
        for subject in (asked.reply, f"{owner.inbox}.other", "ask.it"):
            answering.publish(subject, b"more")
            assert answering.wait_for_error() == f'Permissions Violation for Publish to "{subject}"'
        owner.flush()
        assert not owner.messages


def test_accounts_hear_nothing_of_each_other(server: NatsServer) -> None:
    name = fresh_bucket()
    with login(server, "owner") as owner, login(server, "other") as other:
        for client in (owner, other):
            client.subscribe(">", "1")
            client.flush()
        owner.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"]})
        assert owner.request(f"{name}.a", b"x").json()["seq"] == 1
        owner.flush()
        other.flush()
        assert not [each for each in other.messages if _is_no_event(each) or name in f"{each.subject} {each.payload!r}"]
        other.send(b"UNSUB 1\r\n")
        assert other.request(f"{name}.a", b"y").status == "503"
        missing = other.request(f"$JS.API.STREAM.INFO.{name}").json()["error"]
        assert isinstance(missing, dict)
        assert missing["err_code"] == 10059
        assert other.request(f"$JS.API.DIRECT.GET.{name}.{name}.a").status == "503"
        assert other.api("STREAM.NAMES")["total"] == 0
        owner.api(f"STREAM.DELETE.{name}")


def test_nobody_acknowledges_or_takes_for_another_account(server: NatsServer) -> None:
    name = fresh_bucket()
    with login(server, "owner") as owner, login(server, "other") as other:
        owner.api(f"STREAM.CREATE.{name}", {"name": name})
        config = {"durable_name": "c", "ack_policy": "explicit"}
        owner.api(f"CONSUMER.DURABLE.CREATE.{name}.c", {"stream_name": name, "config": config})
        owner.request(name, b"x")
        owner.subscribe(owner.inbox, "1")
        pull = json.dumps({"batch": 1, "expires": 600 * 10**9}).encode()
        owner.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", pull, reply=owner.inbox)
        taken = owner.next()
        assert other.request(taken.reply, b"+ACK").status == "503"
        assert other.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", pull).status == "503"
        assert owner.api(f"CONSUMER.INFO.{name}.c")["num_ack_pending"] == 1
        owner.request(taken.reply, b"+ACK")
        assert owner.api(f"CONSUMER.INFO.{name}.c")["num_ack_pending"] == 0
        owner.api(f"STREAM.DELETE.{name}")


def test_the_same_names_in_two_accounts_are_different_streams(server: NatsServer) -> None:
    name = fresh_bucket()
    with login(server, "owner") as owner, login(server, "other") as other:
        for client, payload in ((owner, b"owner"), (other, b"other")):
            client.api(f"STREAM.CREATE.{name}", {"name": name, "allow_direct": True})
            client.request(name, payload)
        for client, payload in ((owner, b"owner"), (other, b"other")):
            assert client.request(f"$JS.API.DIRECT.GET.{name}.{name}").payload == payload
        owner.api(f"STREAM.DELETE.{name}")
        assert other.request(f"$JS.API.DIRECT.GET.{name}.{name}").payload == b"other"
        other.api(f"STREAM.DELETE.{name}")
