"""Of several things wrong with a consumer, the one is told that nats-server 2.15.1 tells of."""

from typing import Any

from strandline.broker.api.codes import ApiError
from strandline.broker.api.consumer_checks import check_consumer
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.json_text import read_json, write_json
from strandline.broker.api.responses import AccountLimits
from strandline.broker.api.schema import from_plain
from strandline.broker.consumers.registry import Registry
from strandline.broker.consumers.service import ConsumerService
from strandline.broker.streams.service import StreamService
from strandline.clock import ManualClock
from tests.broker.consumers.helpers import ORIGIN, RecordingRoutes
from tests.broker.conversations import expanded, read_fixture

SECOND = 1_000_000_000
STREAMS: dict[str, dict[str, Any]] = {
    "S": {},
    "W": {"retention": "workqueue"},
    "L": {"consumer_limits": {"max_ack_pending": 50, "inactive_threshold": 10 * SECOND}},
    "I": {"retention": "interest"},
}


def _consumers() -> Registry:
    streams = StreamService(clock=ManualClock())
    consumers = Registry(
        streams, RecordingRoutes(), tell=lambda _: None, request_turn=lambda _: None, post=lambda call: call()
    )
    for name, extra in STREAMS.items():
        payload = write_json({"name": name, "subjects": [f"{name.lower()}.>"], **extra})
        assert b"error" not in (streams.request(f"$JS.API.STREAM.CREATE.{name}", b"", payload, 0) or b"error")
    return consumers


def _asked(stream: str, features: list[str], known: dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    config: dict[str, Any] = {}
    request: dict[str, Any] = {"stream_name": stream, "config": config}
    name = "c"
    for feature in features:
        for key, value in known[feature].items():
            if key == "@name":
                name = value
            elif key.startswith("@"):
                request[key[1:]] = value
            else:
                config[key] = expanded(value)
    return f"$JS.API.CONSUMER.CREATE.{stream}.{name}", request


def test_of_several_things_wrong_the_same_one_is_told() -> None:
    consumers = _consumers()
    known, *rows = read_fixture("nats-server-2.15.1-consumer-order.jsonl")
    for stream, *features, code in rows:
        subject, request = _asked(stream, features, known)
        answer = ConsumerService(consumers).request(subject, b"", write_json(request), b"", ORIGIN, 0)
        assert answer is not None
        text = answer[0].payload if isinstance(answer, list) else answer
        assert read_json(text).get("error", {}).get("err_code", 0) == code, (stream, features)
        for name in list(consumers.shown(stream)) + [one.name for one in consumers.of(stream)]:
            if consumers.find(stream, name) is not None:
                consumers.delete(stream, name)


def test_a_checked_configuration_is_complete() -> None:
    for plain in ({"ack_policy": "explicit"}, {"deliver_subject": "d", "ack_policy": "flow_control"}, {"name": "x"}):
        config = from_plain(ConsumerConfig, plain)
        for name in STREAMS:
            stream = _consumers().streams.streams[name].config
            try:
                checked = check_consumer(config, stream, AccountLimits())
            except ApiError:
                continue
            assert check_consumer(checked, stream, AccountLimits()) == checked


def test_limits_of_an_account_bound_its_consumers() -> None:
    consumers = _consumers()
    consumers.streams.limits = AccountLimits(max_consumers=1, max_ack_pending=10)
    create = "$JS.API.CONSUMER.CREATE.S."
    asked = b'{"stream_name":"S","config":{"ack_policy":"explicit"}}'
    first = ConsumerService(consumers).request(f"{create}a", b"", asked, b"", ORIGIN, 0)
    assert isinstance(first, bytes)
    assert b'"max_ack_pending":10,' in first
    second = ConsumerService(consumers).request(f"{create}b", b"", asked, b"", ORIGIN, 0)
    assert isinstance(second, bytes)
    assert b'"err_code":10026' in second
    more = b'{"stream_name":"S","config":{"ack_policy":"explicit","max_ack_pending":11}}'
    third = ConsumerService(consumers).request(f"{create}a", b"", more, b"", ORIGIN, 0)
    assert isinstance(third, bytes)
    assert b'"err_code":10121' in third
