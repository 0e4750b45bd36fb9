"""Requests about consumers: what they are given, what is refused and why, and what is told of them."""

from typing import Any

import pytest

from tests.broker.clients.alike.conftest import Compare
from tests.broker.clients.alike.consumer_configs import BEGINNINGS, SELDOM, UPDATES, WRONG
from tests.broker.clients.raw import Script, Talk, json_of

API = "$JS.API"
SECOND_NS = 1_000_000_000
STAYS = {"inactive_threshold": 600 * SECOND_NS}
"""Of a consumer that is still there when a machine has stalled for seconds."""


def _stream(talk: Talk, name: str, messages: int = 6, **config: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **config})
    talk.publish_all((f"{name.lower()}.{number % 3}", f"m{number}") for number in range(messages))


def _consumer(talk: Talk, stream: str, consumer: str, *, action: str = "", tail: str = "", **config: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    body: dict[str, Any] = {"stream_name": stream, "config": config, **({"action": action} if action else {})}
    talk.ask(f"{API}.CONSUMER.CREATE.{stream}.{consumer}{tail}", body)


def configurations_right_and_wrong(talk: Talk) -> None:
    _stream(talk, "WRONG")
    for number, config in enumerate(WRONG):
        _consumer(talk, "WRONG", f"C{number}", **config)
        _consumer(
            talk,
            "WRONG",
            f"D{number}",
            durable_name=f"D{number}",
            **{k: v for k, v in config.items() if k != "durable_name"},
        )


def names_and_requests_right_and_wrong(talk: Talk) -> None:
    _stream(talk, "NAMES")
    for subject, body in (
        ("CREATE.NAMES.X", ""),
        ("CREATE.NAMES.X", "nope"),
        ("CREATE.NAMES.X", {}),
        ("CREATE.NAMES.X", {"stream_name": "OTHER", "config": {}}),
        ("CREATE.NAMES.X", {"stream_name": "NAMES"}),
        ("CREATE.NAMES.X", {"stream_name": "NAMES", "config": {"name": "X"}, "action": "nope"}),
        ("CREATE.NAMES.X", {"stream_name": "NAMES", "config": {"name": "X", "ack_policy": "nope"}, "pedantic": True}),
        ("CREATE.NAMES.X", {"stream_name": "NAMES", "config": {"name": "X", **STAYS}, "action": "create"}),
        ("CREATE.NAMES.Y", {"stream_name": "NAMES", "config": {"name": "Y"}, "action": "create", "pedantic": True}),
        ("DELETE.NAMES.Y", ""),
        (
            "CREATE.NAMES.F.names.1",
            {"stream_name": "NAMES", "config": {"name": "F", "filter_subject": "names.1", **STAYS}},
        ),
        ("CREATE.NAMES.F.names.1", {"stream_name": "NAMES", "config": {"name": "F", "filter_subject": "names.2"}}),
        ("CREATE.NAMES.F.names.1", {"stream_name": "NAMES", "config": {"name": "F"}}),
        (
            "CREATE.NAMES.F.names.1",
            {"stream_name": "NAMES", "config": {"name": "F", "filter_subjects": ["names.1", "names.2"]}},
        ),
        (
            "CREATE.NAMES.F.names.1",
            {"stream_name": "NAMES", "config": {"name": "F", "filter_subjects": ["names.1"], **STAYS}},
        ),
        ("CREATE.NAMES." + "x" * 256, {"stream_name": "NAMES", "config": {"name": "x" * 256}}),
        ("CREATE.NAMES.a/b", {"stream_name": "NAMES", "config": {"name": "a/b"}}),
        ("CREATE.NAMES.a*b", {"stream_name": "NAMES", "config": {"name": "a*b"}}),
        ("DURABLE.CREATE.NAMES.L", {"stream_name": "NAMES", "config": {"durable_name": "L", "ack_policy": "explicit"}}),
        ("DURABLE.CREATE.NAMES.L", {"stream_name": "NAMES", "config": {"durable_name": "M", "ack_policy": "explicit"}}),
        ("DURABLE.CREATE.NAMES.L", {"stream_name": "NAMES", "config": {"ack_policy": "explicit"}}),
        ("DURABLE.CREATE.OTHER.L", {"stream_name": "NAMES", "config": {"durable_name": "L"}}),
        ("CREATE.NAMES", {"stream_name": "NAMES", "config": {"durable_name": "L", "ack_policy": "explicit"}}),
        ("CREATE.OTHER", {"stream_name": "NAMES", "config": {}}),
        ("INFO.NAMES.L", ""),
        ("INFO.NAMES.L", "x"),
        ("INFO.NAMES.NONE", ""),
        ("INFO.NONE.NONE", ""),
        ("NAMES.NONE", ""),
        ("LIST.NONE", ""),
        ("NAMES.NAMES", "nope"),
        ("LIST.NAMES", "nope"),
        ("NAMES.NAMES", {"offset": 1}),
        ("NAMES.NAMES", {"offset": 99}),
        ("NAMES.NAMES", {"offset": -1}),
        ("LIST.NAMES", {"offset": 2}),
        ("DELETE.NAMES.L", "x"),
        ("DELETE.NAMES.L", ""),
        ("DELETE.NAMES.L", ""),
        ("DELETE.NONE.L", ""),
        ("PAUSE.NAMES.L", ""),
        ("UNPIN.NAMES.L", {"group": "a"}),
    ):
        talk.ask(f"{API}.CONSUMER.{subject}", body)
    talk.ask(f"{API}.CONSUMER.RESET.NAMES.L", answers=0)
    talk.ask(f"{API}.CONSUMER.RESET.NONE.L", answers=0)
    answer = talk.ask(f"{API}.CONSUMER.CREATE.NAMES", {"stream_name": "NAMES", "config": {"ack_policy": "explicit"}})
    name = json_of(answer[0])["name"] if answer else ""
    assert len(name) == 8
    talk.said[-1] = talk.said[-1].replace(name, "<made up>")


def changes_of_configuration(talk: Talk) -> None:
    _stream(talk, "CHANGES")
    base: dict[str, Any] = {"durable_name": "P", "ack_policy": "explicit"}
    _consumer(talk, "CHANGES", "P", action="update", **base)
    _consumer(talk, "CHANGES", "P", action="create", **base)
    _consumer(talk, "CHANGES", "P", action="create", **base)
    for change in UPDATES:
        _consumer(talk, "CHANGES", "P", action="create", **{**base, **change})
        _consumer(talk, "CHANGES", "P", action="update", **{**base, **change})
        _consumer(talk, "CHANGES", "P", **base)
    push: dict[str, Any] = {"durable_name": "Q", "ack_policy": "explicit", "deliver_subject": "d.q"}
    _consumer(talk, "CHANGES", "Q", **push)
    for change in (
        {"deliver_subject": "d.r"},
        {"deliver_subject": None},
        {"deliver_group": "g"},
        {"flow_control": True, "idle_heartbeat": SECOND_NS},
        {"rate_limit_bps": 1000},
        {"max_waiting": 3},
    ):
        _consumer(talk, "CHANGES", "Q", **{**push, **change})
    talk.ask(f"{API}.CONSUMER.LIST.CHANGES")


def where_consumers_begin(talk: Talk) -> None:
    _stream(talk, "BEGIN", 12)
    talk.ask(f"{API}.STREAM.MSG.DELETE.BEGIN", {"seq": 4})
    for number, config in enumerate(BEGINNINGS):
        _consumer(talk, "BEGIN", f"B{number}", name=f"B{number}", ack_policy="explicit", **config)
        talk.ask(f"{API}.CONSUMER.MSG.NEXT.BEGIN.B{number}", {"batch": 3, "no_wait": True}, answers=-3)
        talk.ask(f"{API}.CONSUMER.INFO.BEGIN.B{number}")


def work_queues(talk: Talk) -> None:
    _stream(talk, "WORK", retention="workqueue")
    for name, config in (
        ("A", {"ack_policy": "none"}),
        ("A", {"ack_policy": "all"}),
        ("A", {"ack_policy": "explicit", "deliver_policy": "new"}),
        ("A", {"ack_policy": "explicit", "filter_subject": "work.1"}),
        ("B", {"ack_policy": "explicit"}),
        ("B", {"ack_policy": "explicit", "filter_subject": "work.*"}),
        ("B", {"ack_policy": "explicit", "filter_subject": "work.2"}),
        ("C", {"ack_policy": "explicit", "filter_subjects": ["work.0", "work.1"]}),
        ("D", {"ack_policy": "none", "deliver_subject": "d.w", "filter_subject": "work.0"}),
    ):
        _consumer(talk, "WORK", name, durable_name=name, **config)
    heard = talk.ask(f"{API}.CONSUMER.MSG.NEXT.WORK.A", {"batch": 5, "no_wait": True}, answers=-5)
    talk.ask(f"{API}.STREAM.INFO.WORK", {"deleted_details": True})
    for message in heard[:-1]:
        talk.ask(message.split(" ")[2], "+ACK")
    talk.ask(f"{API}.STREAM.INFO.WORK", {"deleted_details": True})
    talk.ask(f"{API}.CONSUMER.INFO.WORK.A")
    talk.ask(f"{API}.CONSUMER.DELETE.WORK.A")
    talk.ask(f"{API}.STREAM.INFO.WORK", {"deleted_details": True})


def streams_kept_by_interest(talk: Talk) -> None:
    _stream(talk, "INTEREST", retention="interest")
    talk.ask(f"{API}.STREAM.INFO.INTEREST")
    _consumer(talk, "INTEREST", "A", durable_name="A", ack_policy="explicit")
    _consumer(talk, "INTEREST", "B", durable_name="B", ack_policy="explicit", filter_subject="interest.1")
    _consumer(talk, "INTEREST", "N", durable_name="N", ack_policy="none", filter_subject="interest.2")
    talk.publish_all((f"interest.{number % 3}", f"n{number}") for number in range(6))
    talk.ask(f"{API}.STREAM.INFO.INTEREST", {"deleted_details": True})
    for name in ("A", "B", "N"):
        for message in talk.ask(f"{API}.CONSUMER.MSG.NEXT.INTEREST.{name}", {"batch": 4, "no_wait": True}, answers=-4):
            if message.split(" ")[2].startswith("$JS.ACK"):
                talk.ask(message.split(" ")[2], "+ACK", answers=0 if name == "N" else 1)
        talk.ask(f"{API}.STREAM.INFO.INTEREST", {"deleted_details": True})
    talk.ask(f"{API}.CONSUMER.DELETE.INTEREST.A")
    talk.ask(f"{API}.STREAM.INFO.INTEREST", {"deleted_details": True})


def limits_of_consumers(talk: Talk) -> None:
    _stream(
        talk, "CLIMITS", max_consumers=2, consumer_limits={"max_ack_pending": 10, "inactive_threshold": 60 * SECOND_NS}
    )
    for name, config in (
        ("A", {"ack_policy": "explicit"}),
        ("B", {"ack_policy": "explicit", "max_ack_pending": 11}),
        ("B", {"ack_policy": "explicit", "inactive_threshold": 61 * SECOND_NS}),
        ("B", {"ack_policy": "explicit", "max_ack_pending": 5, "inactive_threshold": 59 * SECOND_NS}),
        ("C", {"ack_policy": "explicit"}),
    ):
        _consumer(talk, "CLIMITS", name, durable_name=name, **config)


def pauses_and_resets(talk: Talk) -> None:
    _stream(talk, "PAUSES", 9)
    _consumer(talk, "PAUSES", "P", durable_name="P", ack_policy="explicit")
    heard = talk.ask(f"{API}.CONSUMER.MSG.NEXT.PAUSES.P", {"batch": 4, "no_wait": True}, answers=4)
    for message in heard[:2]:
        talk.ask(message.split(" ")[2], "+ACK")
    for subject, body in (
        ("PAUSE.PAUSES.P", {"pause_until": "2099-01-01T00:00:00Z"}),
        ("INFO.PAUSES.P", ""),
        ("MSG.NEXT.PAUSES.P", {"batch": 1, "expires": 2 * talk.tenth_ns}),
        ("PAUSE.PAUSES.P", {"pause_until": "2024-01-01T00:00:00Z"}),
        ("PAUSE.PAUSES.P", "nope"),
        ("PAUSE.PAUSES.P", {}),
        ("PAUSE.PAUSES.P", ""),
        ("PAUSE.PAUSES.NONE", ""),
        ("INFO.PAUSES.P", ""),
        ("RESET.PAUSES.P", ""),
        ("INFO.PAUSES.P", ""),
        ("MSG.NEXT.PAUSES.P", {"batch": 1, "no_wait": True}),
        ("RESET.PAUSES.P", {"seq": 2}),
        ("MSG.NEXT.PAUSES.P", {"batch": 1, "no_wait": True}),
        ("RESET.PAUSES.P", {"seq": 99}),
        ("RESET.PAUSES.P", {"seq": 0}),
        ("RESET.PAUSES.P", "nope"),
        ("INFO.PAUSES.P", ""),
    ):
        talk.ask(f"{API}.CONSUMER.{subject}", body)
    _consumer(
        talk,
        "PAUSES",
        "S",
        durable_name="S",
        ack_policy="explicit",
        deliver_policy="by_start_sequence",
        opt_start_seq=3,
    )
    for body in ({"seq": 1}, {"seq": 3}, {"seq": 5}):
        talk.ask(f"{API}.CONSUMER.RESET.PAUSES.S", body)
    _consumer(talk, "PAUSES", "N", durable_name="N", ack_policy="none", deliver_policy="new")
    talk.ask(f"{API}.CONSUMER.RESET.PAUSES.N", {"seq": 1})


def refusals_seldom_met(talk: Talk) -> None:
    _stream(talk, "SELDOM", retention="interest")
    sid = talk.listen("d.seldom")
    for subject, config in SELDOM:
        talk.ask(f"{API}.CONSUMER.{subject}", {"stream_name": "SELDOM", "config": config})
    talk.raw(f"UNSUB {sid}\r\n".encode())
    _stream(talk, "SELMEM", storage="memory", max_consumers=1)
    for name in ("A", "A", "B"):
        _consumer(talk, "SELMEM", name, durable_name=name, ack_policy="explicit", num_replicas=0)


SCRIPTS: list[Script] = [
    refusals_seldom_met,
    configurations_right_and_wrong,
    names_and_requests_right_and_wrong,
    changes_of_configuration,
    where_consumers_begin,
    work_queues,
    streams_kept_by_interest,
    limits_of_consumers,
    pauses_and_resets,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_servers_say_the_same(compare: Compare, script: Script) -> None:
    compare(script)
