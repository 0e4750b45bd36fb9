"""Pulls: which messages come, with which reply subjects, and with which status each request ends."""

from typing import Any

import pytest

from tests.broker.clients.alike.conftest import Compare
from tests.broker.clients.raw import Script, Talk

API = "$JS.API"
SECOND_NS = 1_000_000_000
LONG_NS = 600 * SECOND_NS


def _stream(talk: Talk, name: str, messages: int = 6, **config: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **config})
    talk.publish_all((f"{name.lower()}.{number % 3}", f"m{number}") for number in range(messages))


def _consumer(talk: Talk, stream: str, consumer: str = "C", **config: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    config = {"durable_name": consumer, "ack_policy": "explicit", **config}
    talk.ask(f"{API}.CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config})


def _pull(talk: Talk, stream: str, body: Any, answers: int, consumer: str = "C") -> list[str]:  # noqa: ANN401
    return talk.ask(f"{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, answers=answers)


def _info(talk: Talk, stream: str, consumer: str = "C") -> None:
    talk.ask(f"{API}.CONSUMER.INFO.{stream}.{consumer}")


def _ack_subject(message: str) -> str:
    return message.split(" ")[2]


def how_requests_are_read(talk: Talk) -> None:
    _stream(talk, "READ", 40)
    _consumer(talk, "READ")
    for body, answers in (
        ("", 1),
        ("2", 2),
        ({}, 1),
        ({"batch": 2}, 2),
        ({"batch": 0}, 1),
        ({"batch": 3, "no_wait": True}, 3),
        ("x", 1),
        ("-1", 1),
        ("0", 1),
        ("{nope", 1),
        ({"batch": "x"}, 1),
        ({"batch": -1}, 1),
        ({"batch": 1, "expires": "x"}, 1),
        ({"batch": 1, "expires": -1}, 1),
        ({"batch": 1, "max_bytes": -1}, 1),
        ({"batch": 1, "idle_heartbeat": talk.tenth_ns}, 1),
        ({"batch": 1, "expires": talk.tenth_ns, "idle_heartbeat": talk.tenth_ns}, 1),
        ({"batch": 1, "group": "g"}, 1),
        ({"batch": 1, "id": "x"}, 1),
        ({"batch": 1, "min_pending": 3}, 1),
        ({"batch": 1, "priority": 3}, 1),
        ({"batch": 1, "unknown": 3}, 1),
    ):
        _pull(talk, "READ", body, answers)
    talk.ask(f"{API}.CONSUMER.MSG.NEXT.READ.C", {"batch": 1}, {"Nats-Required-Api-Level": "99"})
    _pull(talk, "READ", {"batch": 1}, 1, "NONE")
    _pull(talk, "NONE", {"batch": 1}, 1)
    _info(talk, "READ")


def how_requests_end(talk: Talk) -> None:
    _stream(talk, "ENDS", 5)
    _consumer(talk, "ENDS", ack_policy="none")
    _pull(talk, "ENDS", {"batch": 7, "expires": 2 * talk.tenth_ns}, 6)
    _pull(talk, "ENDS", {"batch": 7, "no_wait": True}, 1)
    _pull(talk, "ENDS", {"batch": 7, "no_wait": True, "expires": talk.tenth_ns}, 1)
    _pull(talk, "ENDS", {"batch": 7, "expires": 5 * talk.tenth_ns, "idle_heartbeat": talk.tenth_ns * 2}, 3)
    _pull(talk, "ENDS", {"batch": 7, "max_bytes": 500, "expires": talk.tenth_ns}, 1)
    talk.publish_all([("ends.1", "x" * 100), ("ends.1", "y" * 100), ("ends.1", "z" * 100)])
    _pull(talk, "ENDS", {"batch": 7, "max_bytes": 400, "expires": talk.tenth_ns}, -3)
    _pull(talk, "ENDS", {"batch": 7, "max_bytes": 400, "no_wait": True}, -3)
    _pull(talk, "ENDS", {"batch": 1, "max_bytes": 10, "no_wait": True}, -3)
    _info(talk, "ENDS")


def requests_that_wait(talk: Talk) -> None:
    _stream(talk, "WAITS", 0)
    _consumer(talk, "WAITS", max_waiting=3)
    for _ in range(3):
        _pull(talk, "WAITS", {"batch": 1, "expires": LONG_NS}, 0)
    _info(talk, "WAITS")
    _pull(talk, "WAITS", {"batch": 1, "expires": LONG_NS}, 1)
    _pull(talk, "WAITS", {"batch": 1, "no_wait": True}, 1)
    for number in range(4):
        talk.ask("waits.1", f"{number}", answers=2 if number < 3 else 1)
    _info(talk, "WAITS")
    _pull(talk, "WAITS", {"batch": 2, "expires": LONG_NS}, 1)
    talk.ask(f"{API}.CONSUMER.DELETE.WAITS.C", answers=2)
    _consumer(talk, "WAITS", deliver_policy="new")
    _pull(talk, "WAITS", {"batch": 2, "expires": LONG_NS}, 0)
    talk.ask(f"{API}.STREAM.DELETE.WAITS", answers=2)


def limits_on_requests(talk: Talk) -> None:
    _stream(talk, "ASKS", 9)
    _consumer(talk, "ASKS", max_batch=2, max_expires=SECOND_NS, max_bytes=100)
    for body, answers in (
        ({"batch": 3, "no_wait": True}, -2),
        ({"batch": 2, "no_wait": True}, -2),
        ({"batch": 1, "expires": 2 * SECOND_NS}, -1),
        ({"batch": 1, "expires": SECOND_NS, "max_bytes": 101}, -1),
        ({"batch": 1, "expires": SECOND_NS, "max_bytes": 100}, 2),
        ({"batch": 1}, -1),
        ("3", -1),
    ):
        _pull(talk, "ASKS", body, answers)
    _consumer(talk, "ASKS", "P", deliver_subject="d.asks")
    _pull(talk, "ASKS", {"batch": 1}, -1, "P")


def acknowledgements(talk: Talk) -> None:
    _stream(talk, "ACKS", 12)
    _consumer(talk, "ACKS")
    heard = _pull(talk, "ACKS", {"batch": 9, "no_wait": True}, 9)
    subjects = list(map(_ack_subject, heard))
    for number, body in enumerate(
        ("", "+ACK", "+OK", "+WPI", "-NAK", '-NAK {"delay": 100000000}', "-NAK 100ms", "+TERM", "+TERM why")
    ):
        talk.ask(subjects[number], body)
        _info(talk, "ACKS")
    talk.ask(subjects[0], "+ACK")
    for body in ("nonsense", "-NAK nonsense", "-NAK {", "+NXT nonsense"):
        talk.ask(subjects[3], body, answers=0)
    talk.ask("$JS.ACK.ACKS.C.1.99.99.1.0", "+ACK", answers=0)
    talk.ask("$JS.ACK.ACKS.NONE.1.1.1.1.0", "+ACK", answers=-1)
    talk.ask("$JS.ACK.ACKS.C", "+ACK", answers=-1)
    talk.pause(0.25)
    _pull(talk, "ACKS", {"batch": 9, "no_wait": True}, -7)
    _info(talk, "ACKS")
    talk.ask(subjects[3], '+NXT {"batch": 2, "no_wait": true}', answers=-2)
    talk.ask(subjects[3], "+NXT", answers=0)
    talk.ask(subjects[3], "+NXT 1", answers=0)
    talk.ask("acks.0", "more", answers=2)
    _info(talk, "ACKS")


def acknowledgements_of_all_before(talk: Talk) -> None:
    _stream(talk, "ALL", 8)
    _consumer(talk, "ALL", ack_policy="all")
    heard = _pull(talk, "ALL", {"batch": 6, "no_wait": True}, 6)
    talk.ask(_ack_subject(heard[3]), "+ACK")
    _info(talk, "ALL")
    talk.ask(_ack_subject(heard[1]), "+ACK", answers=-1)
    talk.ask(_ack_subject(heard[4]), "-NAK")
    _info(talk, "ALL")
    _pull(talk, "ALL", {"batch": 6, "no_wait": True}, -4)
    _info(talk, "ALL")


def redelivery(talk: Talk) -> None:
    _stream(talk, "AGAIN", 3)
    _consumer(talk, "AGAIN", ack_wait=2 * talk.tenth_ns, max_deliver=2)
    _consumer(talk, "AGAIN", "B", backoff=[talk.tenth_ns, 3 * talk.tenth_ns], max_deliver=3)
    _pull(talk, "AGAIN", {"batch": 2, "no_wait": True}, 2)
    _pull(talk, "AGAIN", {"batch": 1, "no_wait": True}, 1, "B")
    _pull(talk, "AGAIN", {"batch": 4, "expires": 8 * talk.tenth_ns}, 4)
    _info(talk, "AGAIN")
    _pull(talk, "AGAIN", {"batch": 9, "expires": 8 * talk.tenth_ns}, 1)
    _info(talk, "AGAIN")
    _pull(talk, "AGAIN", {"batch": 1, "no_wait": True}, 1, "B")
    _info(talk, "AGAIN", "B")


def no_more_than_may_be_pending(talk: Talk) -> None:
    _stream(talk, "FULL", 6)
    _consumer(talk, "FULL", max_ack_pending=2)
    heard = _pull(talk, "FULL", {"batch": 5, "expires": 2 * talk.tenth_ns}, 3)
    _pull(talk, "FULL", {"batch": 5, "no_wait": True}, 0)
    _info(talk, "FULL")
    talk.publish(_ack_subject(heard[0]), "+ACK")
    talk.heard("1", 1)
    _pull(talk, "FULL", {"batch": 5, "expires": 2 * talk.tenth_ns}, -3)
    _pull(talk, "FULL", {"batch": 5, "expires": 2 * talk.tenth_ns}, -3)
    talk.heard("1", 1)  # the second of these ends too: before that it may be waiting still, or not
    _info(talk, "FULL")


def headers_without_bodies(talk: Talk) -> None:
    _stream(talk, "HEADS", 2)
    talk.ask("heads.x", "body", {"A": "1"})
    talk.ask("heads.x", "")
    _consumer(talk, "HEADS", headers_only=True)
    _pull(talk, "HEADS", {"batch": 4, "no_wait": True}, 4)


def messages_that_went_away(talk: Talk) -> None:
    _stream(talk, "AWAY", 9)
    _consumer(talk, "AWAY")
    _pull(talk, "AWAY", {"batch": 3, "no_wait": True}, 3)
    talk.ask(f"{API}.STREAM.MSG.DELETE.AWAY", {"seq": 2})
    talk.ask(f"{API}.STREAM.MSG.DELETE.AWAY", {"seq": 5})
    _info(talk, "AWAY")
    _pull(talk, "AWAY", {"batch": 2, "no_wait": True}, 2)
    talk.ask(f"{API}.STREAM.PURGE.AWAY", {"filter": "away.1"})
    _info(talk, "AWAY")
    talk.ask(f"{API}.STREAM.PURGE.AWAY", {"seq": 9})
    _info(talk, "AWAY")
    talk.ask(f"{API}.STREAM.PURGE.AWAY")
    _info(talk, "AWAY")
    talk.ask("away.1", "new")
    _pull(talk, "AWAY", {"batch": 2, "no_wait": True}, -2)
    _info(talk, "AWAY")


def groups_with_a_pinned_client(talk: Talk) -> None:
    _stream(talk, "PINNED", 6)
    _consumer(talk, "PINNED", priority_groups=["g"], priority_policy="pinned_client", priority_timeout=LONG_NS)
    _pull(talk, "PINNED", {"batch": 1}, 1)
    _pull(talk, "PINNED", {"batch": 1, "group": "other"}, 1)
    heard = _pull(talk, "PINNED", {"batch": 1, "group": "g"}, 1)
    pin = heard[0].split("Nats-Pin-Id: ")[1].split("\\r")[0] if heard and "Nats-Pin-Id" in heard[0] else ""
    talk.call(pin, "<the pin>")
    _info(talk, "PINNED")
    _pull(talk, "PINNED", {"batch": 1, "group": "g", "no_wait": True}, 0)
    _pull(talk, "PINNED", {"batch": 1, "group": "g", "id": "wrong"}, 1)
    _pull(talk, "PINNED", {"batch": 2, "group": "g", "id": pin}, 2)
    talk.ask(f"{API}.CONSUMER.UNPIN.PINNED.C", {"group": "g"})
    talk.ask(f"{API}.CONSUMER.UNPIN.PINNED.C", {"group": "other"})
    talk.ask(f"{API}.CONSUMER.UNPIN.PINNED.C", "nope")
    talk.ask(f"{API}.CONSUMER.UNPIN.PINNED.C", "")


def groups_that_take_what_overflows(talk: Talk) -> None:
    _stream(talk, "OVER", 6)
    _consumer(talk, "OVER", priority_groups=["g"], priority_policy="overflow")
    _pull(talk, "OVER", {"batch": 1}, 1)
    _pull(talk, "OVER", {"batch": 1, "group": "g"}, 1)
    _pull(talk, "OVER", {"batch": 1, "group": "g", "min_pending": 3, "no_wait": True}, 1)
    _pull(talk, "OVER", {"batch": 1, "group": "g", "min_pending": 30, "no_wait": True}, 1)
    _pull(talk, "OVER", {"batch": 1, "group": "g", "min_pending": 30, "expires": talk.tenth_ns}, 1)
    _pull(talk, "OVER", {"batch": 1, "group": "g", "min_ack_pending": 1, "expires": talk.tenth_ns}, 1)
    _pull(talk, "OVER", {"batch": 1, "group": "g", "min_ack_pending": 30, "expires": talk.tenth_ns}, 1)
    _info(talk, "OVER")


def groups_by_priority(talk: Talk) -> None:
    _stream(talk, "PRIO", 0)
    _consumer(talk, "PRIO", priority_groups=["g"], priority_policy="prioritized")
    sids = []
    for number, priority in enumerate((5, 1, 3, 1)):
        sids.append(talk.listen(f"prio-inbox.{number}"))
        body = {"batch": 1, "group": "g", "priority": priority, "expires": LONG_NS}
        talk.publish(f"{API}.CONSUMER.MSG.NEXT.PRIO.C", body, reply=f"prio-inbox.{number}")
        talk.flush()
    _pull(talk, "PRIO", {"batch": 1, "group": "g", "priority": 10, "expires": 10 * talk.tenth_ns}, 1)
    for number in range(4):
        talk.ask("prio.1", f"{number}")
        talk.pause(0.03)
    for sid in sids:
        talk.heard(sid, 1)


def a_client_that_is_away_for_a_while(talk: Talk) -> None:
    _stream(talk, "ABSENT", 1)
    _consumer(talk, "ABSENT")
    client = talk.another()
    sid = client.listen("absent-inbox")
    body = {"batch": 3, "expires": LONG_NS}
    client.publish(f"{API}.CONSUMER.MSG.NEXT.ABSENT.C", body, reply="absent-inbox")
    (message,) = client.heard(sid, 1)
    client.ask(message.split(" ")[2], "+ACK")
    client.wire.close()
    talk.pause(1.3)
    _pull(talk, "ABSENT", {"batch": 1, "no_wait": True}, 1)
    client = talk.another()
    sid = client.listen("absent-inbox")
    talk.ask("absent.1", "back")
    client.heard(sid, 1)


SCRIPTS: list[Script] = [
    a_client_that_is_away_for_a_while,
    how_requests_are_read,
    how_requests_end,
    requests_that_wait,
    limits_on_requests,
    acknowledgements,
    acknowledgements_of_all_before,
    redelivery,
    no_more_than_may_be_pending,
    headers_without_bodies,
    messages_that_went_away,
    groups_with_a_pinned_client,
    groups_that_take_what_overflows,
    groups_by_priority,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_servers_say_the_same(compare: Compare, script: Script) -> None:
    compare(script)
