"""What a trace tells: every frame in nats-server's words, and no secret."""

import logging

import pytest

from strandline.broker.core.protocol_trace import ProtocolTracer
from strandline.broker.logs import TRACE
from strandline.broker.settings import LogSettings, ServerSettings
from tests.broker.core.world import CONNECT, InMemoryServer

WHO = "127.0.0.1:4711 - cid:1 - "


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(TRACE, "strandline.broker")
    return caplog


def traced(log: pytest.LogCaptureFixture, said: bytes, settings: LogSettings | None = None) -> list[str]:
    """Let a client say something, and return what the trace says of it."""
    client = InMemoryServer(ServerSettings(max_payload=100)).client(b"", port=4711)
    client.session.tracer = ProtocolTracer(client.session, settings or LogSettings())
    client.session.feed(said)
    assert {record.levelno for record in log.records} <= {TRACE, logging.ERROR}
    return [record.getMessage().removeprefix(WHO) for record in log.records if record.levelno == TRACE]


def test_frames_are_told_in_the_order_in_which_they_take_effect(log: pytest.LogCaptureFixture) -> None:
    said = (
        b"SUB a.* 1\r\nSUB b q 2\r\nPUB a.x 5\r\nhello\r\npub  a.y  r  0\r\n\r\n"
        b'HPUB b 12 15\r\nNATS/1.0\r\n\r\n\x00\xff"\r\nUNSUB 2 7\r\nUNSUB 1\r\nSUB a..b 3\r\nPING\r\n'
    )
    assert traced(log, CONNECT + said)[1:] == [
        "<<- [SUB a.* 1]",
        "<<- [SUB b q 2]",
        "<<- [PUB a.x 5]",
        '<<- MSG_PAYLOAD: ["hello"]',
        "->> [MSG a.x 1 5]",
        '->> MSG_PAYLOAD: ["hello"]',
        "<<- [PUB a.y r 0]",
        "->> [MSG a.y 1 r 0]",
        "<<- [HPUB b 12 15]",
        '<<- MSG_PAYLOAD: ["NATS/1.0\\r\\n\\r\\n\\x00\\xff\\""]',
        "->> [HMSG b 2 12 15]",
        '->> MSG_PAYLOAD: ["NATS/1.0\\r\\n\\r\\n\\x00\\xff\\""]',
        "<<- [UNSUB 2 7]",
        "<<- [UNSUB 1]",
        "<-> [DELSUB 1]",
        "<<- [SUB a..b 3]",
        "->> [-ERR Invalid Subject]",
        "<<- [PING]",
        "->> [PONG]",
    ]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"verbose":true,"pass":"hunter2","name":"n"}', '{"verbose":true,"pass":"[REDACTED]","name":"n"}'),
        ('{"PASS":"hunter2","p\\u0061ss":"hunter2"}', '{"PASS":"[REDACTED]","pass":"[REDACTED]"}'),
        (
            '{"auth_token":"hunter2","sig":"hunter2","jwt":"hunter2"}',
            '{"auth_token":"[REDACTED]","sig":"[REDACTED]","jwt":"[REDACTED]"}',
        ),
        ('{"pass":"hunter2"', "[REDACTED]"),
        ('"hunter2"', "[REDACTED]"),
    ],
)
def test_no_secret_is_told(log: pytest.LogCaptureFixture, said: str, told: str) -> None:
    assert traced(log, f"CONNECT {said}\r\n".encode())[0] == f"<<- [CONNECT {told}]"
    assert "hunter2" not in log.text


def test_nothing_that_a_client_sends_leaves_its_line(log: pytest.LogCaptureFixture) -> None:
    traced(log, CONNECT + b"SUB a\x1b[31m\xff 1\r\nPUB a\x0bb\x85 3\r\na\nb\r\n")
    assert all(record.getMessage().isprintable() for record in log.records)


def test_long_payloads_are_cut_where_somebody_wants_it(log: pytest.LogCaptureFixture) -> None:
    lines = traced(log, CONNECT + b"PUB a 8\r\n1234567\n\r\nPUB a 5\r\n12345\r\n", LogSettings(traced_bytes_max=5))
    assert lines[2::2] == ['<<- MSG_PAYLOAD: ["12345..."]', '<<- MSG_PAYLOAD: ["12345"]']


def test_a_trace_may_be_of_headers_alone(log: pytest.LogCaptureFixture) -> None:
    said = b"HPUB a 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPUB a 2\r\nab\r\n"
    lines = traced(log, CONNECT + said, LogSettings(trace_headers=True))
    assert lines[1:] == ["<<- [HPUB a 12 15]", '<<- MSG_PAYLOAD: ["NATS/1.0"]', "<<- [PUB a 2]"]


def test_what_is_said_to_who_is_sent_away_is_told(log: pytest.LogCaptureFixture) -> None:
    assert traced(log, CONNECT + b"PUB a 200\r\n")[1:] == ["->> [-ERR Maximum Payload Violation]"]
