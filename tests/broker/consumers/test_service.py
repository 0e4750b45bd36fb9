"""What a real nats-server 2.15.1 answered about consumers, ours answers too, ids and times aside."""

import json
import re
from pathlib import Path

import pytest

from strandline.broker.consumers.registry import Registry
from strandline.broker.consumers.service import ConsumerService
from strandline.broker.streams import PublishBatch
from strandline.broker.streams.service import StreamService
from strandline.clock import ManualClock
from strandline.journal import WRITTEN
from strandline.sim import SimDisk
from tests.broker.consumers.helpers import ORIGIN, SECOND, RecordingRoutes
from tests.broker.conversations import SERVER, TIMEOUT, expanded, read_fixture, without_times
from tests.waiting import PATIENCE_S


def _consumers(*, is_kept: bool) -> Registry:
    streams = StreamService(
        folder=Path("/sim") if is_kept else None,
        disk=SimDisk(),
        clock=ManualClock(1_794_000_000 * SECOND),
        durability=WRITTEN,
        server_name=SERVER,
    )
    return Registry(
        streams,
        RecordingRoutes(),
        tell=lambda _: None,
        request_turn=lambda _: None,
        post=lambda call: call(),
    )


def _ask(consumers: Registry, subject: str, payload: bytes) -> str:
    now_ns = consumers.streams.clock.now_ns()
    if subject.startswith("$JS.API.CONSUMER."):
        answer = ConsumerService(consumers).request(subject, b"", payload, b"", ORIGIN, now_ns)
    else:
        answer = consumers.streams.request(subject, b"", payload, now_ns)
    if answer is None:
        return TIMEOUT
    return (answer[0].payload if isinstance(answer, list) else answer).decode()


def _without_ids(text: str) -> str:
    text = re.sub(r'"name":"[A-Za-z0-9]{8}","created"', '"name":"<id>","created"', without_times(text))
    text = re.sub(r'"name":"([a-z]+)-[A-Za-z0-9]{8}"', r'"name":"\1-<id>"', text)
    return re.sub(r'"pause_remaining":\d+', '"pause_remaining":<ns>', text)


@pytest.mark.parametrize("is_kept", [True, False])
def test_every_exchange_is_answered_as_by_the_server(*, is_kept: bool) -> None:
    consumers = _consumers(is_kept=is_kept)
    for exchange in read_fixture("nats-server-2.15.1-consumers.jsonl"):
        payload = exchange["payload"]
        if "publish" in exchange:
            stream = consumers.streams.streams["S"]
            batch = PublishBatch([exchange["publish"].encode()], [payload.encode()])
            stream.publish(batch, consumers.streams.clock.now_ns()).ticket.result(PATIENCE_S)
            continue
        subject = expanded(exchange["subject"])
        body = payload if isinstance(payload, str) else json.dumps(expanded(payload))
        answer = _without_ids(_ask(consumers, subject, body.encode()))
        assert answer == expanded(exchange["answer"]), (subject[:100], body[:200])
    consumers.close()
    consumers.streams.close()
