"""A copy whose disk hangs: its origin keeps what only the copy wants, whatever becomes of either meanwhile."""

import json
from random import Random

import pytest

from strandline.errors import FormatError
from tests.broker.durability.failing import FailingFolder, fail, recover
from tests.broker.durability.simulated import SimBroker, SometimesLater
from tests.broker.socket_client import SocketClient

MIRROR: dict[str, object] = {"mirror": {"name": "O"}}
SOURCE: dict[str, object] = {"sources": [{"name": "O"}]}
SOME: dict[str, object] = {"sources": [{"name": "O", "filter_subject": "o.a"}]}
SEEDS = range(5)


class Copying:
    """An origin that keeps what somebody wants, and a copy of it that has taken a message, which is not durable yet."""

    def __init__(self, copy: dict[str, object], retention: str = "interest") -> None:
        self.broker = SimBroker()
        self.broker.cut = FailingFolder("O")
        self.broker.start()
        self.client = self.broker.connect()
        self.client.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"], "retention": retention})
        for consumer in "ab":
            self.client.api(f"CONSUMER.CREATE.O.{consumer}", consumer_of(consumer))
        streams = self.broker.jetstream.streams
        others, streams.executor = streams.executor, SometimesLater()
        self.disk = streams.executor
        self.client.api("STREAM.CREATE.M", {"name": "M", **copy})
        streams.executor = others
        self.disk.is_waiting = True
        assert self.client.request("o.a", b"acknowledged").json() == {"stream": "O", "seq": 1}
        self.finish_work()
        assert self.copied() == 1
        assert self.kept() == 1

    def finish_work(self) -> None:
        """Let the consumer of its subject be done with the message."""
        self.client.subscribe("pulled", "p")
        self.client.publish("$JS.API.CONSUMER.MSG.NEXT.O.a", b'{"batch":1,"no_wait":true}', reply="pulled")
        self.client.publish(self.client.next().reply, b"+ACK")
        self.broker.settle()

    def look_for_unwanted(self) -> None:
        """Let the origin decide anew what it keeps, as it does when a consumer goes."""
        self.client.publish("$JS.API.CONSUMER.DELETE.O.b", b"")
        self.broker.settle()

    def update_copy(self, copy: dict[str, object]) -> None:
        """Change the copy; that is answered when its disk goes on."""
        self.client.publish("$JS.API.STREAM.UPDATE.M", json.dumps({"name": "M", **copy}).encode())
        self.broker.settle()

    def let_disk_go_on(self) -> None:
        """Let the copy's disk do what waits for it."""
        self.disk.is_waiting = False
        self.disk.run_all()
        self.broker.settle()

    def copied(self) -> int:
        """Return how many messages the copy has, durable or not."""
        return self.broker.jetstream.streams.streams["M"].state().messages

    def kept(self) -> int:
        """Return how many messages the origin has."""
        return self.broker.jetstream.streams.streams["O"].state().messages

    def after_power_cut(self, seed: int) -> list[bytes]:
        """Return what the two hold in the next life."""
        self.broker.crash(Random(seed))
        self.broker.cut = FailingFolder("O")
        self.broker.start()
        client = self.broker.connect()
        self.broker.settle()
        return [payload for name in "OM" for payload in messages(client, name)]


def consumer_of(name: str) -> dict[str, object]:
    config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": f"o.{name}"}
    return {"stream_name": "O", "config": config}


def messages(client: SocketClient, name: str) -> list[bytes]:
    got = client.request(f"$JS.API.STREAM.MSG.GET.{name}", b'{"seq":1}').json()
    return [str(got["message"]).encode()] if "message" in got else []


def mend_origin(copying: Copying) -> None:
    fail(copying.broker)
    assert "error" in copying.client.request("o.b", b"never").json()
    recover(copying.broker)
    copying.broker.advance(5)
    assert not copying.broker.jetstream.failures


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("copy", [MIRROR, SOURCE, SOME], ids=["mirror", "source", "source of some subjects"])
def test_an_origin_that_is_mended_keeps_what_its_copy_has_not_made_durable(
    copy: dict[str, object], retention: str, seed: int
) -> None:
    copying = Copying(copy, retention)
    mend_origin(copying)
    assert copying.kept() == 1
    assert copying.after_power_cut(seed)


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("copy", [MIRROR, SOURCE, SOME], ids=["mirror", "source", "source of some subjects"])
def test_an_origin_that_was_mended_lets_go_of_what_its_copy_makes_durable(
    copy: dict[str, object], retention: str
) -> None:
    copying = Copying(copy, retention)
    mend_origin(copying)
    copying.let_disk_go_on()
    assert (copying.kept(), copying.copied()) == (0, 1)
    assert copying.after_power_cut(1)


UPDATES = [
    pytest.param(SOURCE, {"sources": [{"name": "O", "opt_start_seq": 1}]}, id="the source begins elsewhere"),
    pytest.param(SOURCE, {"sources": [{"name": "O", "filter_subject": "o.b"}]}, id="the source takes other subjects"),
    pytest.param(SOURCE, {"subjects": ["m"]}, id="the source goes"),
    pytest.param(MIRROR, {"subjects": ["m"]}, id="the mirror is one no more"),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize(("copy", "update"), UPDATES)
def test_a_copy_that_is_changed_has_not_made_durable_what_was_on_its_way(
    copy: dict[str, object], update: dict[str, object], retention: str, seed: int
) -> None:
    copying = Copying(copy, retention)
    copying.update_copy(update)
    copying.look_for_unwanted()
    assert copying.kept() == 1
    assert copying.after_power_cut(seed)


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize(("copy", "update"), UPDATES)
def test_what_was_on_its_way_when_a_copy_was_changed_goes_when_it_is_durable(
    copy: dict[str, object], update: dict[str, object], retention: str
) -> None:
    copying = Copying(copy, retention)
    copying.update_copy(update)
    copying.let_disk_go_on()
    assert (copying.kept(), copying.copied()) == (0, 1)
    assert not copying.broker.jetstream.streams.streams["O"].claims or "sources" in update
    assert copying.after_power_cut(1)


def test_a_copy_that_is_changed_and_removed_wants_nothing_more() -> None:
    copying = Copying(SOURCE)
    copying.update_copy({"subjects": ["m"]})
    copying.disk.is_waiting = False
    copying.disk.run_all()
    copying.client.api("STREAM.DELETE.M")
    copying.look_for_unwanted()
    assert not copying.broker.jetstream.streams.streams["O"].claims
    assert copying.kept() == 0


def make_origin_again(copying: Copying) -> None:
    copying.client.publish("$JS.API.STREAM.DELETE.O", b"")
    copying.broker.settle()
    origin = {"name": "O", "subjects": ["o.*"], "retention": "interest"}
    copying.client.publish("$JS.API.STREAM.CREATE.O", json.dumps(origin).encode())


def test_an_origin_that_is_made_again_has_its_copy_from_the_beginning() -> None:
    copying = Copying(SOURCE)
    copying.let_disk_go_on()
    copying.broker.advance(1)
    make_origin_again(copying)
    copying.client.publish("o.a", b"in the same turn")
    copying.broker.settle()
    assert (copying.kept(), copying.copied()) == (0, 2)


def test_an_origin_that_comes_back_as_it_was_keeps_what_its_copy_has_not_made_durable() -> None:
    copying = Copying(SOURCE)
    make_origin_again(copying)  # no time has passed: it is the same one
    copying.client.publish("o.a", b"acknowledged")
    copying.client.publish("$JS.API.CONSUMER.CREATE.O.b", json.dumps(consumer_of("b")).encode())
    copying.broker.settle()
    copying.look_for_unwanted()
    assert (copying.kept(), copying.copied()) == (1, 1)
    copying.let_disk_go_on()
    assert (copying.kept(), copying.copied()) == (0, 1)


def test_an_origin_keeps_for_a_consumer_that_is_offline_what_its_copy_holds() -> None:
    broker = SimBroker()
    broker.start()
    client = broker.connect()
    client.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"], "retention": "interest"})
    client.api("CONSUMER.CREATE.O.a", consumer_of("a"))
    client.api("STREAM.CREATE.M", {"name": "M", **SOURCE})
    consumers = broker.jetstream.consumers
    consumers.drop(consumers.entries["O"]["a"], "Server Shutdown")
    consumers.loader.offline.note(("O", "a"), FormatError("a.consumer", "not a consumer"), broker.clock.now_ns())
    consumers.settle(broker.jetstream.streams.streams["O"])
    assert client.request("o.a", b"for a").json() == {"stream": "O", "seq": 1}
    broker.settle()
    kept = [client.api(f"STREAM.INFO.{name}")["state"]["messages"] for name in "MO"]  # type: ignore[index]
    assert kept == [1, 1]
