"""Every operation and every field with values that are none: each is answered, nothing unexpected happens.

A failure is a line of the log with an exception that nobody expected, a neighbour that is no longer answered, or a
server that cannot open what it has kept. Which answer is right is for `clients/alike/test_odd_input.py` to say.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.consumer_requests import PullRequest
from strandline.broker.embedded_server import running
from strandline.broker.settings import ServerSettings
from strandline.broker.streams import headers
from tests.broker.socket_client import Ended, SocketClient, pub_frame

NUMBERS = [b"0", b"-1", b"+1", b"1_0", b"1.0", b"9" * 10, b"9" * 20, b"9" * 5000, b"\xd9\xa3", b"\x00", b"\xff", b""]
DEEP = b"[" * 100_000
VALUES = [
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1.5",
    b"1e400",
    b"9" * 20,
    b"9" * 5000,
    b"NaN",
    b"-Infinity",
    b'""',
    b'"x"',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff"',
    '"٣"'.encode(),
    b'"1_0"',
    b'"' + b"n" * 300 + b'"',
    b'"a.*.>"',
    b'".."',
    b'"2024-01-01T00:00:00Z"',
    b"[]",
    b'["\\ud800"]',
    b"[[]]",
    b"[1]",
    b"[{}]",
    b"{}",
    b'{"\\ud800":"\\udfff"}',
    b'{"name":1,"src":1,"dest":[],"api":{}}',
    b"[" * 500 + b"]" * 500,
    DEEP,
]
STREAM_FIELDS = [*(field.name for field in fields(StreamConfig)), "pedantic"]
CONSUMER_FIELDS = [field.name for field in fields(ConsumerConfig)]
GET_FIELDS = "seq last_by_subj next_by_subj batch max_bytes start_time multi_last up_to_seq up_to_time"
REQUESTS = {
    "STREAM.PURGE.KEPT": "filter seq keep",
    "STREAM.MSG.GET.KEPT": f"{GET_FIELDS} no_hdr",
    "STREAM.MSG.DELETE.KEPT": "seq no_erase",
    "STREAM.INFO.KEPT": "deleted_details subjects_filter offset",
    "STREAM.NAMES": "offset subject",
    "STREAM.LIST": "offset subject",
    "STREAM.SNAPSHOT.KEPT": "deliver_subject no_consumers chunk_size window_size jsck",
    "STREAM.RESTORE.BACK": "config state",
    "CONSUMER.NAMES.KEPT": "offset subject",
    "CONSUMER.LIST.KEPT": "offset",
    "CONSUMER.PAUSE.KEPT.kept": "pause_until",
    "CONSUMER.RESET.KEPT.kept": "seq",
    "CONSUMER.UNPIN.KEPT.kept": "group",
    "CONSUMER.MSG.NEXT.KEPT.kept": " ".join(field.name for field in fields(PullRequest)),
    "DIRECT.GET.KEPT": GET_FIELDS,
    "INFO": "x",
}
HEADERS = [value for value in vars(headers).values() if isinstance(value, bytes) and value.startswith(headers.MARK)]


@contextmanager
def undisturbed(folder: Path, caplog: pytest.LogCaptureFixture) -> Iterator[int]:
    """Run a server with a neighbour; see afterwards that nothing unexpected happened and that it starts again."""
    settings = ServerSettings(port=0, store_dir=folder, max_control_line=8192, ping_interval_s=3600)
    with caplog.at_level(logging.WARNING), running(settings) as url:
        port = urlsplit(url).port or 0
        with SocketClient(port) as neighbour:
            neighbour.subscribe("echo", "echo")
            config = {"name": "KEPT", "subjects": ["kept.>"], "allow_direct": True, "allow_msg_ttl": True}
            neighbour.api("STREAM.CREATE.KEPT", config)
            body = {"stream_name": "KEPT", "config": {"durable_name": "kept", "ack_policy": "explicit"}}
            neighbour.api("CONSUMER.CREATE.KEPT.kept", body)
            yield port
            neighbour.publish("echo", b"still here")
            assert neighbour.next().payload == b"still here"
            neighbour.flush()
    with caplog.at_level(logging.WARNING), running(settings) as url, SocketClient(urlsplit(url).port or 0) as client:
        assert "error" not in client.request("$JS.API.STREAM.INFO.KEPT").json()
    failed = [
        record.getMessage() for record in caplog.records if record.exc_info or "cannot be opened" in record.message
    ]
    assert not failed, failed[:5]


def _tell(port: int, data: bytes) -> None:
    """Say something as a client of its own, and wait until the server has read it, or ends the connection."""
    with SocketClient(port) as client:
        try:
            client.send(data)
            client.flush()
        except Ended:
            pass


def _ask(port: int, questions: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]]) -> None:
    """Publish requests whose answers nobody waits for, then see that the server has been through all of them."""
    with SocketClient(port, {"no_responders": False}) as client:
        for subject, payload in questions:
            client.send(pub_frame(subject, payload, reply="nobody.listens"))
        assert "streams" in client.request("$JS.API.INFO").json()


def test_operations_with_odd_arguments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [b"UNSUB 1 %b", b"UNSUB %b", b"SUB a %b", b"SUB %b 1", b"SUB a %b 1", b"PUB a %b", b"PUB %b 0\r\n"]
    lines += [b"HPUB a %b 12\r\nNATS/1.0\r\n\r\n", b"HPUB a 12 %b\r\nNATS/1.0\r\n\r\n", b"PUB a %b 0\r\n"]
    lines += [b"CONNECT %b", b"INFO %b", b"-ERR %b", b"+OK %b", b"PING %b", b"PONG %b", b"MSG a 1 %b", b"%b"]
    with undisturbed(tmp_path, caplog) as port:
        for line in lines:
            for number in NUMBERS:
                _tell(port, b"SUB a 1\r\n" + line % number + b"\r\n")


def test_connects_with_odd_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = b"verbose pedantic echo headers no_responders protocol name lang version user pass auth_token nkey sig jwt"
    with undisturbed(tmp_path, caplog) as port:
        for field in (*names.split(), b"\\ud800", b"x"):
            for value in VALUES:
                _tell(port, b'CONNECT {"%b":%b,"%b":%b}\r\n' % (field, value[:2000], field, value[:2000]))


def test_requests_with_odd_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with undisturbed(tmp_path, caplog) as port:
        questions = [
            (f"$JS.API.{verb}", b'{"%b":%b}' % (field.encode(), value))
            for verb, names in REQUESTS.items()
            for field in names.split()
            for value in VALUES
        ]
        _ask(port, questions)
        _ask(port, [(f"$JS.API.{verb}", value) for verb in REQUESTS for value in (*VALUES, b"", b"\xff", b"{", DEEP)])


def _config(known: dict[str, object], field: str, value: bytes) -> bytes:
    """Return a configuration with a field in it once more, as its last."""
    return json.dumps(known).encode()[:-1] + b', "%b":%b}' % (field.encode(), value)


def test_streams_with_odd_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known: dict[str, object] = {"name": "ODD", "subjects": ["odd"]}
    with undisturbed(tmp_path, caplog) as port:
        for field in STREAM_FIELDS:
            questions = []
            for value in VALUES:
                config = _config(known, field, value)
                questions += [("$JS.API.STREAM.CREATE.ODD", config), ("$JS.API.STREAM.UPDATE.ODD", config)]
                questions += [("odd", b"x"), ("$JS.API.STREAM.DELETE.ODD", b"")]
            _ask(port, questions)


def test_consumers_with_odd_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known: dict[str, object] = {"name": "odd", "ack_policy": "explicit"}
    with undisturbed(tmp_path, caplog) as port:
        _ask(port, [("kept.x", b"x")] * 3)
        for field in CONSUMER_FIELDS:
            questions = []
            for value in VALUES:
                body = b'{"stream_name":"KEPT","config":' + _config(known, field, value) + b"}"
                questions += [("$JS.API.CONSUMER.CREATE.KEPT.odd", body)] * 2
                questions += [("$JS.API.CONSUMER.MSG.NEXT.KEPT.odd", b"1"), ("$JS.API.CONSUMER.DELETE.KEPT.odd", b"")]
            _ask(port, questions)


def test_messages_with_odd_headers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kinds = [
        {"allow_msg_ttl": True, "allow_atomic": True, "allow_rollup_hdrs": True},
        {"allow_msg_counter": True},
        {"allow_msg_schedules": True, "allow_msg_ttl": True},
    ]
    texts = [*NUMBERS, b"x", b"never", b"@every 1s", b"@at 9999-99-99T00:00:00Z", b"all", b"\xff\xfe", b"9" * 30 + b"h"]
    with undisturbed(tmp_path, caplog) as port, SocketClient(port) as client:
        for number, kind in enumerate(kinds):
            client.api(f"STREAM.CREATE.H{number}", {"name": f"H{number}", "subjects": [f"h{number}.>"], **kind})
            for name in HEADERS:
                for text in texts:
                    block = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (name, text)
                    client.publish(f"h{number}.a", b"1", reply="nobody.listens", headers=block)
            client.flush()


def test_acknowledgements_with_odd_payloads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with undisturbed(tmp_path, caplog) as port, SocketClient(port) as client:
        for number in range(40):
            client.publish("kept.x", b"%d" % number)
        client.subscribe(client.inbox, "1")
        client.publish("$JS.API.CONSUMER.MSG.NEXT.KEPT.kept", b"40", reply=client.inbox)
        for number in range(40):
            reply = client.next().reply
            value = VALUES[number % len(VALUES)]
            for payload in (b"-NAK " + value, b'-NAK {"delay":%b}' % value, b"+NXT " + value, b"+TERM " + value, value):
                client.publish(reply, payload)
            for odd in NUMBERS:
                parts = reply.split(".")
                parts[number % len(parts)] = odd[:100].decode("latin-1").replace("\x00", "0") or "0"
                client.send(pub_frame(".".join(parts), b"+ACK"))
        client.flush()
