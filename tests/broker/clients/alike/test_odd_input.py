"""Odd integers, halves of characters, wrong types and long names: both servers answer alike, and ours does not fail."""

import pytest

from tests.broker.clients.alike.conftest import Compare
from tests.broker.clients.raw import Script, Talk

HALF = b"\\ud800"
ODD_NUMBERS = (
    b"0",
    b"00",
    b"1",
    b"+1",
    b"-1",
    b"1_0",
    b"0x1",
    b"1.0",
    b"1e0",
    b"999999999",
    b"9999999999",
    b"99999999999999999999",
    b"9" * 400,
    b"\xd9\xa3",
    "²".encode(),
    b"nan",
    b"\x00",
)
"""Numbers, and what only some languages take for one: signs, underscores, digits of other scripts."""

CONNECT_FIELDS = (
    b"verbose",
    b"pedantic",
    b"protocol",
    b"name",
    b"lang",
    b"version",
    b"user",
    b"pass",
    b"auth_token",
    b"tls_required",
    b"account",
)
ODD_VALUES = (
    b"null",
    b"true",
    b"1",
    b"1.5",
    b"1e2",
    b"-1",
    b"99999999999999999999",
    b'"x"',
    b'"' + HALF + b'"',
    b'"\\udc00\\ud800"',
    b'"\\u0000"',
    b'"\xff\xfe"',
    b"[]",
    b"{}",
    b"NaN",
    b"-Infinity",
)


def connects(talk: Talk) -> None:
    for field in CONNECT_FIELDS:
        for value in ODD_VALUES:
            talk.another(None).raw(b'CONNECT {"%b":%b,"verbose":false}\r\n' % (field, value))
    for text in (
        b'{"verbose":true,"verbose":false}',
        b'{"Verbose":false,"NAME":"n"}',
        b'{"name":"%b"}' % HALF,
        b'{"%b":1}' % HALF,
        b'{"name":"' + b"x" * 3000 + b'"}',
        b'{"verbose":false}x',
        b'{"verbose":false} ',
        b"\xff\xfe{\x00}\x00",
        b'{"x":' + b"[" * 500 + b"]" * 500 + b',"verbose":false}',
        b'{"x":NaN,"verbose":false}',
        b'{"x":' + b"9" * 1000 + b',"verbose":false}',
    ):
        talk.another(None).raw(b"CONNECT " + text + b"\r\n")


def numbers_of_the_protocol(talk: Talk) -> None:
    for number in ODD_NUMBERS:
        talk.another().raw(b"SUB a %b\r\nPUB a 1\r\nx\r\n" % number)
        talk.another().raw(b"SUB a 1\r\nUNSUB 1 %b\r\nPUB a 1\r\nx\r\nPUB a 1\r\ny\r\n" % number)
        talk.another().raw(b"SUB a 1\r\nUNSUB %b\r\nPUB a 1\r\nx\r\n" % number)
        talk.another().raw(b"SUB a 1\r\nPUB a %b\r\nx\r\n" % number)
        talk.another().raw(b"SUB a 1\r\nHPUB a %b 13\r\nNATS/1.0\r\n\r\nx\r\n" % number)
        talk.another().raw(b"SUB a 1\r\nHPUB a 12 %b\r\nNATS/1.0\r\n\r\n\r\n" % number)


def names_of_consumers(talk: Talk) -> None:
    talk.ask("$JS.API.STREAM.CREATE.LONG", {"name": "LONG", "subjects": ["long"]})
    for length in (1, 100, 240, 241, 242, 243, 244, 245, 249, 250, 254, 255, 256, 300):
        name = "n" * length
        for config in ({"durable_name": name}, {"name": name}):
            body = {"stream_name": "LONG", "config": {**config, "ack_policy": "explicit"}}
            talk.ask(f"$JS.API.CONSUMER.CREATE.LONG.{name}", body)
        talk.ask(f"$JS.API.CONSUMER.DELETE.LONG.{name}")
    for length in (100, 240, 250, 254, 255, 256, 300):
        name = "S" * length
        talk.ask(f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": ["s"]})
        talk.ask(f"$JS.API.STREAM.DELETE.{name}")


def times_to_live(talk: Talk) -> None:
    talk.ask("$JS.API.STREAM.CREATE.ODDTTL", {"name": "ODDTTL", "subjects": ["oddttl"], "allow_msg_ttl": True})
    for text in ("1", "٣", "²", "1_0", "+5", "-5", "0", "00010", "5s", "٣s", "1_0s", "1.5s", "1h٣m", "never", "NEVER"):
        talk.ask("oddttl", "x", {"Nats-TTL": text})
    for text in ("9" * 20, "9" * 400, "9" * 5000, "9" * 400 + "s", "1" + "0" * 30 + "h"):
        talk.ask("oddttl", "x", {"Nats-TTL": text})
    for name in ("Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence"):
        for text in ("٣", "1_0", "+1", "-1", "0x1", "9" * 19, "9" * 20, "9" * 400, "x"):
            talk.ask("oddttl", "x", {name: text})


def pulls(talk: Talk) -> None:
    talk.ask("$JS.API.STREAM.CREATE.PULL", {"name": "PULL", "subjects": ["pull"]})
    config = {"durable_name": "c", "ack_policy": "explicit"}
    talk.ask("$JS.API.CONSUMER.CREATE.PULL.c", {"stream_name": "PULL", "config": config})
    for value in (*ODD_VALUES, b"1_0", b"9" * 5000, b"-", b"-x", b"1.", b"1.x", b"1e", b"1e+x", "٣".encode()):
        body = b'{"batch":%b,"no_wait":true}' % value
        talk.ask("$JS.API.CONSUMER.MSG.NEXT.PULL.c", body)
    for count in ("1", "+1", "-1", "0", "٣", "1_0", " 2 ", "9" * 400, "x"):
        talk.publish("$JS.API.CONSUMER.MSG.NEXT.PULL.c", count, reply="pulled")


def counters(talk: Talk) -> None:
    config = {"name": "ODDCOUNT", "subjects": ["oddcount"], "allow_msg_counter": True, "allow_direct": True}
    talk.ask("$JS.API.STREAM.CREATE.ODDCOUNT", config)
    for text in ("1", "+1", "-1", "0", "٣", "1_0", "0x1", "1.0", "1e3", "x", "9" * 40):
        talk.ask("oddcount", "", {"Nats-Incr": text})


def schedules(talk: Talk) -> None:
    config = {"name": "ODDSCHED", "subjects": ["oddsched.>"], "allow_msg_schedules": True, "allow_msg_ttl": True}
    talk.ask("$JS.API.STREAM.CREATE.ODDSCHED", config)
    for text in ("@at 2099-01-01T00:00:0٣Z", "@every ٣s", "@every 1_0s", "٣ * * * * *", "0/٣ * * * * *"):
        talk.ask("oddsched.a", "", {"Nats-Schedule": text, "Nats-Schedule-Target": "oddsched.b"})


def transforms(talk: Talk) -> None:
    for number, word in enumerate(("$1", "$٣", "{{wildcard(٣)}}", "{{wildcard(1_0)}}", "{{wildcard( 1 )}}", "$1_0")):
        transform = {"src": "t.*", "dest": f"u.{word}"}
        config = {"name": f"TR{number}", "subjects": [f"tr{number}"], "subject_transform": transform}
        talk.ask(f"$JS.API.STREAM.CREATE.TR{number}", config)


@pytest.mark.parametrize(
    "conversation",
    [connects, numbers_of_the_protocol, names_of_consumers, times_to_live, pulls, counters, schedules, transforms],
)
def test_odd_input_is_answered_alike(conversation: Script, compare: Compare) -> None:
    compare(conversation)
