"""Numbers that no program should send, in headers, acknowledgements and requests: others get their answers anyway."""

import json

import pytest

from tests.broker.socket_client import SocketClient, header_block, pub_frame
from tests.servers_nats import NatsServer, fresh_bucket

LONG = "1" * 5000
HUGE = 2**64 - 1
HEADERS = [
    {"Expected_Last_Sequence": LONG},
    {"Expected_Last_Subject_Sequence": LONG},
    {"Expected_Last_Sequence": -1},
    {"TTL": "9223372036s"},
    {"TTL": "999999999999999999h"},
    {"TTL": LONG},
    {"Incr": LONG},
    {"Batch_Id": "b", "Batch_Sequence": LONG},
    {"Required_Api_Level": LONG},
]
ANSWERS = [
    b'-NAK {"delay": 9223372036854775807}',
    b'-NAK {"delay": %s}' % LONG.encode(),
    b"-NAK 999999999999999999h",
    b'-NAK {"delay": -5}',
    b"+NXT " + LONG.encode(),
    b"+WPI" + bytes(1000),
]
PULLS: list[dict[str, object]] = [
    {"batch": 10**30},
    {"batch": HUGE, "expires": HUGE},
    {"batch": 1, "expires": -1},
    {"batch": 1, "expires": 2**63 - 1, "idle_heartbeat": 2**63 - 1},
    {"batch": 1, "max_bytes": HUGE},
]
REQUESTS: list[tuple[str, dict[str, object]]] = [
    ("STREAM.PURGE.{}", {"seq": HUGE}),
    ("STREAM.MSG.GET.{}", {"seq": HUGE}),
    ("STREAM.MSG.DELETE.{}", {"seq": HUGE}),
    ("CONSUMER.RESET.{}.c", {"seq": HUGE}),
    (
        "CONSUMER.CREATE.{}",
        {"config": {"deliver_policy": "by_start_sequence", "opt_start_seq": HUGE, "ack_policy": "none"}},
    ),
    ("DIRECT.GET.{}", {"seq": HUGE, "batch": HUGE}),
]


class Streams:
    """A stream to be mistreated, and one beside it that must not notice."""

    def __init__(self, client: SocketClient) -> None:
        self.client = client
        self.bad, self.good = fresh_bucket(), fresh_bucket()
        for name in (self.bad, self.good):
            config = {"name": name, "allow_msg_ttl": True, "allow_atomic": True, "allow_direct": True}
            client.api(f"STREAM.CREATE.{name}", config)
            self.consumer(name)
            assert client.request(name, b"first").json()["seq"] == 1
        client.subscribe(client.inbox, "1")

    def consumer(self, name: str) -> None:
        """Make a consumer."""
        config = {"durable_name": "c", "ack_policy": "explicit"}
        self.client.api(f"CONSUMER.DURABLE.CREATE.{name}.c", {"stream_name": name, "config": config})

    def pull(self, name: str, reply: str) -> bytes:
        """Return the frame that asks for one message."""
        body = json.dumps({"batch": 1, "expires": 600 * 10**9}).encode()
        return pub_frame(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", body, reply=reply)

    def check(self, *bad: bytes) -> None:
        """Send bad frames and good ones at once; the good ones are answered, and so is the mistreated stream later."""
        client = self.client
        good = f"{client.inbox}.good"
        client.subscribe(good, "good")
        client.send(b"".join(bad) + pub_frame(self.good, b"second", reply=good) + self.pull(self.good, good))
        wanted = {b"first", b'{"stream":"%s","seq":2}' % self.good.encode()}
        while wanted:
            wanted.discard(client.next().payload)
        # A stream stores in the order in which it was sent, and is asked about itself out of turn.
        stored = client.request(self.bad, b"after").json()["seq"]
        last = client.api(f"STREAM.INFO.{self.bad}")["state"]
        assert isinstance(last, dict)
        assert last["last_seq"] == stored
        for name in (self.bad, self.good):
            client.api(f"STREAM.DELETE.{name}")


@pytest.mark.parametrize("pairs", HEADERS, ids=str)
def test_headers_with_absurd_numbers_disturb_no_other_stream(server: NatsServer, pairs: dict[str, object]) -> None:
    with SocketClient(server.port) as client:
        streams = Streams(client)
        streams.check(pub_frame(streams.bad, b"", reply=client.inbox, headers=header_block(**pairs)))


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda value: repr(value[:24])[1:])
def test_acknowledgements_with_absurd_numbers_disturb_no_other_consumer(server: NatsServer, answer: bytes) -> None:
    with SocketClient(server.port) as client:
        streams = Streams(client)
        client.send(streams.pull(streams.bad, client.inbox))
        streams.check(pub_frame(client.next().reply, answer))


@pytest.mark.parametrize("body", PULLS, ids=lambda value: json.dumps(value)[:40])
def test_pulls_with_absurd_numbers_disturb_no_other_consumer(server: NatsServer, body: dict[str, object]) -> None:
    with SocketClient(server.port) as client:
        streams = Streams(client)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{streams.bad}.c"
        level = header_block(Required_Api_Level=LONG)
        data = json.dumps(body).encode()
        streams.check(pub_frame(subject, data, reply="nobody"), pub_frame(subject, data, reply="nobody", headers=level))


@pytest.mark.parametrize(("subject", "body"), REQUESTS, ids=lambda value: value if isinstance(value, str) else "")
def test_requests_with_absurd_numbers_disturb_nobody(server: NatsServer, subject: str, body: dict[str, object]) -> None:
    with SocketClient(server.port) as client:
        streams = Streams(client)
        data = json.dumps({"stream_name": streams.bad, **body} if "config" in body else body).encode()
        client.send(streams.pull(streams.bad, f"{client.inbox}.none"))
        streams.check(pub_frame(f"$JS.API.{subject.format(streams.bad)}", data, reply="nobody"))
