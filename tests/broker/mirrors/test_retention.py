"""Origins that keep messages only for those who want them keep them for their copies too."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from strandline.broker.embedded_server import running
from tests.broker.mirrors.hub import Hub
from tests.waiting import PATIENCE_S


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with running(store_dir=tmp_path) as url, closing(Hub(url)) as hub:
        yield hub


def until_empty(hub: Hub, name: str) -> None:
    stop = time.monotonic() + PATIENCE_S
    while hub.api(f"STREAM.INFO.{name}")["state"]["messages"]:
        assert time.monotonic() < stop, "messages stay"
        time.sleep(0.01)


def test_a_copy_is_interest_and_what_it_holds_goes(hub: Hub) -> None:
    hub.create("I", subjects=["i.>"], retention="interest")
    hub.publish("i.0")
    hub.create("M", mirror={"name": "I", "filter_subject": "i.1"})
    hub.publish("i.1", "i.2", "i.1")
    hub.until("M", 4)
    assert [message.sequence for message in hub.messages("M")] == [2, 4]
    until_empty(hub, "I")


def test_a_message_stays_while_a_full_copy_has_no_room_for_it(hub: Hub) -> None:
    hub.create("W", subjects=["w"], retention="workqueue")
    hub.create("F", sources=[{"name": "W"}], max_msgs=2, discard="new")
    hub.publish(*["w"] * 4)
    hub.until("F", 2)
    consumer = {"durable_name": "c", "name": "c", "ack_policy": "explicit"}
    hub.api("CONSUMER.CREATE.W.c", {"stream_name": "W", "config": consumer})
    for _ in range(4):
        hub.take("W", "c")
    hub.api("STREAM.PURGE.F")
    hub.until("F", 4)
    assert [message.payload for message in hub.messages("F")] == [b"2", b"3"]
    until_empty(hub, "W")
