"""One stream's files fail: whoever publishes to it is told so, nothing is claimed that is not so, and others go on."""

from random import Random

import pytest

from tests.broker.durability.failing import SYNCS, FailingFolder, fail, recover
from tests.broker.durability.simulated import SimBroker
from tests.broker.socket_client import SocketClient
from tests.journal.model import CHANGES


@pytest.fixture(params=[CHANGES, SYNCS], ids=["every change fails", "every fsync fails"])
def broker(request: pytest.FixtureRequest) -> SimBroker:
    broker = SimBroker()
    broker.cut = FailingFolder("BAD", request.param)
    broker.start()
    client = broker.connect()
    for name in ("BAD", "GOOD"):
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], "allow_direct": True})
        assert client.request(f"{name}.a", b"before").json()["seq"] == 1
    return broker


def stored(client: SocketClient, name: str) -> object:
    state = client.api(f"STREAM.INFO.{name}")["state"]
    assert isinstance(state, dict)
    return state["last_seq"]


def test_a_publish_that_cannot_be_stored_is_refused_and_others_are_not(broker: SimBroker) -> None:
    client = broker.connect()
    fail(broker)
    for _ in range(3):
        error = client.request("BAD.a", b"x").json()["error"]
        assert isinstance(error, dict)
        assert (error["code"], error["err_code"]) == (503, 10077)
        assert "seq" in client.request("GOOD.a", b"y").json()
    assert stored(client, "GOOD") == 4
    assert list(broker.jetstream.failures) == ["BAD"]


def test_what_was_refused_may_be_published_again_after_a_restart(broker: SimBroker) -> None:
    client = broker.connect()
    fail(broker)
    assert "error" in client.request("BAD.a", b"x").json()
    broker.crash(Random(3))
    broker.cut = FailingFolder("BAD")
    broker.start()
    client = broker.connect()
    last = stored(client, "BAD")
    assert isinstance(last, int)
    assert client.request("BAD.a", b"x").json() == {"stream": "BAD", "seq": last + 1}
    assert stored(client, "GOOD") == 1


def error_of(answer: dict[str, object]) -> tuple[object, object]:
    error = answer["error"]
    assert isinstance(error, dict)
    return error["code"], error["err_code"]


def pulled(client: SocketClient, consumer: str, count: int) -> list[bytes]:
    client.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.BAD.{consumer}", b'{"batch":%d,"no_wait":true}' % count, reply="pulled.x"
    )
    return [payload for _ in range(count) if (payload := client.next().payload)]


def test_what_was_stored_can_be_read_and_what_was_not_is_shown_to_nobody(broker: SimBroker) -> None:
    client = broker.connect()
    client.subscribe("pulled.*", "p")
    client.api("CONSUMER.CREATE.BAD.c", {"stream_name": "BAD", "config": {"durable_name": "c", "ack_policy": "none"}})
    assert client.request("BAD.b", b"second").json()["seq"] == 2
    fail(broker)
    assert error_of(client.request("BAD.a", b"never").json()) == (503, 10077)
    for subject, body in (
        ("STREAM.MSG.GET.BAD", b'{"last_by_subj":"BAD.a"}'),
        ("STREAM.MSG.GET.BAD", b'{"seq":1}'),
    ):
        got = client.request(f"$JS.API.{subject}", body).json()["message"]
        assert isinstance(got, dict)
        assert (got["seq"], got["data"]) == (1, "YmVmb3Jl")
    for body in (b'{"last_by_subj":"BAD.a"}', b'{"seq":1}'):
        assert client.request("$JS.API.DIRECT.GET.BAD", body).payload == b"before"
    assert client.request("$JS.API.DIRECT.GET.BAD", b'{"seq":3}').status == "404 Message Not Found"
    state = client.api("STREAM.INFO.BAD")["state"]
    assert isinstance(state, dict)
    assert (state["messages"], state["last_seq"], state["num_subjects"]) == (2, 2, 2)
    assert client.api("CONSUMER.INFO.BAD.c")["num_pending"] == 2
    assert pulled(client, "c", 3) == [b"before", b"second"]


def test_a_stream_whose_disk_has_room_again_goes_on_without_a_restart(
    broker: SimBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = broker.connect()
    client.subscribe("pulled.*", "p")
    config = {"durable_name": "c", "ack_policy": "none", "mem_storage": True}
    client.api("CONSUMER.CREATE.BAD.c", {"stream_name": "BAD", "config": config})
    fail(broker)
    for _ in range(3):
        assert error_of(client.request("BAD.a", b"never").json()) == (503, 10077)
        broker.advance(60)
    assert pulled(client, "c", 1) == [b"before"]
    recover(broker)
    broker.advance(60)
    assert not broker.jetstream.failures
    assert caplog.text.count("cannot store messages") == 1
    assert caplog.text.count("stores again") == 1
    last = stored(client, "BAD")
    assert isinstance(last, int)
    assert client.request("BAD.a", b"after").json() == {"stream": "BAD", "seq": last + 1}
    assert pulled(client, "c", last)[-1] == b"after"  # what was refused may be there before it
    assert stored(client, "GOOD") == 1


def test_nothing_that_was_refused_is_lost_or_doubled_when_a_stream_fails_again_and_again(broker: SimBroker) -> None:
    client = broker.connect()
    acked: dict[int, bytes] = {1: b"before"}
    for number in range(5):
        fail(broker)
        assert "error" in client.request("BAD.a", b"refused %d" % number).json()
        recover(broker)
        payload = b"taken %d" % number
        answer = client.request("BAD.a", payload).json()
        assert isinstance(answer["seq"], int)
        acked[answer["seq"]] = payload
    for life in ("this", "the next"):
        for sequence, payload in acked.items():
            assert client.request("$JS.API.DIRECT.GET.BAD", b'{"seq":%d}' % sequence).payload == payload, life
        broker.crash(Random(7))
        broker.start()
        client = broker.connect()


def test_messages_that_a_failed_change_would_have_let_go_are_still_there(broker: SimBroker) -> None:
    client = broker.connect()
    client.subscribe("pulled.*", "p")
    client.api(
        "STREAM.UPDATE.BAD", {"name": "BAD", "subjects": ["BAD.*"], "allow_direct": True, "max_msgs_per_subject": 1}
    )
    client.api("CONSUMER.CREATE.BAD.c", {"stream_name": "BAD", "config": {"durable_name": "c", "ack_policy": "none"}})
    for subject in "bc":
        client.request(f"BAD.{subject}", subject.encode())
    fail(broker)
    assert "error" in client.request("BAD.a", b"in the place of the first").json()
    assert "error" in client.request("$JS.API.STREAM.PURGE.BAD").json()
    assert client.request("$JS.API.DIRECT.GET.BAD.BAD.a", b"").payload == b"before"
    assert client.api("CONSUMER.INFO.BAD.c")["num_pending"] == 3
    assert pulled(client, "c", 4) == [b"before", b"b", b"c"]


def test_acknowledgements_while_a_stream_cannot_be_written_count_when_it_can(broker: SimBroker) -> None:
    client = broker.connect()
    client.api("STREAM.DELETE.BAD")
    client.api("STREAM.CREATE.BAD", {"name": "BAD", "subjects": ["BAD.*"], "retention": "workqueue"})
    config = {"durable_name": "c", "ack_policy": "explicit", "mem_storage": True}
    client.api("CONSUMER.CREATE.BAD.c", {"stream_name": "BAD", "config": config})
    for number in range(3):
        client.request("BAD.a", b"%d" % number)
    fail(broker)
    assert "error" in client.request("BAD.a", b"never").json()
    client.subscribe("pulled.*", "p")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.BAD.c", b'{"batch":2,"no_wait":true}', reply="pulled.x")
    for reply in [client.next().reply for _ in range(2)]:
        assert client.request(reply, b"+ACK").payload == b""
    info = client.api("CONSUMER.INFO.BAD.c")
    assert (info["num_ack_pending"], info["num_pending"]) == (0, 1)
    recover(broker)
    state = client.api("STREAM.INFO.BAD")["state"]
    assert isinstance(state, dict)
    assert state["first_seq"] == 3


def test_a_stream_that_failed_keeps_nobody_from_the_others(broker: SimBroker) -> None:
    client = broker.connect()
    fail(broker)
    assert "error" in client.request("BAD.a", b"never").json()
    assert client.api("STREAM.NAMES")["streams"] == ["BAD", "GOOD"]
    listed = client.api("STREAM.LIST")
    assert isinstance(listed["streams"], list)
    assert [each["config"]["name"] for each in listed["streams"]] == ["BAD", "GOOD"]
    assert client.api("INFO")["streams"] == 2
    assert stored(client, "GOOD") == 1
    assert client.api("STREAM.DELETE.GOOD")["success"]


@pytest.mark.parametrize("broker", [pytest.param(CHANGES, id="every change fails")], indirect=True)
@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("STREAM.UPDATE.BAD", b'{"name":"BAD","subjects":["BAD.*"],"description":"new","allow_direct":true}'),
        ("STREAM.PURGE.BAD", b""),
        ("STREAM.MSG.DELETE.BAD", b'{"seq":1}'),
    ],
)
def test_a_change_that_cannot_be_stored_is_refused(broker: SimBroker, subject: str, body: bytes) -> None:
    client = broker.connect()
    fail(broker)
    answer = client.request(f"$JS.API.{subject}", body).json()
    assert "error" in answer
    assert "success" not in answer
    broker.crash(Random(3))
    broker.cut = FailingFolder("BAD")
    broker.start()
    info = broker.connect().api("STREAM.INFO.BAD")
    assert isinstance(info["config"], dict)
    assert isinstance(info["state"], dict)
    assert "description" not in info["config"]
    assert info["state"]["messages"] == 1


@pytest.mark.parametrize("after", ["mending", "purge and restart"])
def test_a_consumer_that_begins_later_begins_there(broker: SimBroker, after: str) -> None:
    client = broker.connect()
    config = {"durable_name": "c", "ack_policy": "explicit", "deliver_policy": "by_start_sequence", "opt_start_seq": 4}
    client.api("CONSUMER.CREATE.BAD.c", {"stream_name": "BAD", "config": config})
    if after == "mending":
        fail(broker)
        assert "error" in client.request("BAD.a", b"never").json()
        recover(broker)
    else:
        client.api("STREAM.PURGE.BAD")
        broker.advance(2)
        broker.settle()
        broker.crash(Random(1))
        broker.cut = FailingFolder("BAD")
        broker.start()
        client = broker.connect()
    while stored(client, "BAD") != 5:
        client.request("BAD.a", b"x")
    client.subscribe("pulled", "1")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.BAD.c", b"1", reply="pulled")
    assert client.next().reply.split(".")[5] == "4"
