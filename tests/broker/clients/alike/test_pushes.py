"""Consumers that push: heartbeats, flow control, queue groups; and what is told to whoever listens for events."""

from typing import Any

import pytest

from tests.broker.clients.alike.conftest import Compare
from tests.broker.clients.raw import Script, Talk

API = "$JS.API"
SECOND_NS = 1_000_000_000


def _stream(talk: Talk, name: str, messages: int = 6, **config: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **config})
    talk.publish_all((f"{name.lower()}.{number % 3}", f"m{number}") for number in range(messages))


def _consumer(talk: Talk, stream: str, consumer: str = "C", **config: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    config = {"durable_name": consumer, "ack_policy": "explicit", **config}
    talk.ask(f"{API}.CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config})


def _info(talk: Talk, stream: str, consumer: str = "C") -> None:
    talk.ask(f"{API}.CONSUMER.INFO.{stream}.{consumer}")


def messages_pushed(talk: Talk) -> None:
    _stream(talk, "PUSH")
    _consumer(talk, "PUSH", deliver_subject="to.push", ack_wait=2 * talk.tenth_ns, max_deliver=2)
    _info(talk, "PUSH")
    sid = talk.listen("to.push")
    heard = talk.heard(sid, 6)
    _info(talk, "PUSH")
    for message in heard[:5]:
        talk.ask(message.split(" ")[2], "+ACK")
    talk.heard(sid, 1)
    _info(talk, "PUSH")
    talk.ask("push.1", "later")
    talk.heard(sid, 1)
    talk.raw(f"UNSUB {sid}\r\n".encode())
    talk.ask("push.1", "latest")
    _info(talk, "PUSH")


def pushed_to_a_queue_group(talk: Talk) -> None:
    _stream(talk, "GROUP")
    _consumer(talk, "GROUP", deliver_subject="to.group", deliver_group="g")
    wrong = talk.listen("to.group")
    talk.heard(wrong, 0)
    _info(talk, "GROUP")
    right = talk.listen("to.group", "g")
    talk.heard(right, 6)
    _info(talk, "GROUP")
    talk.heard(wrong, 6)  # they are published, after all: whoever listens hears them too
    _consumer(talk, "GROUP", deliver_subject="to.group", deliver_group="g")


def headers_only_by_subject(talk: Talk) -> None:
    _stream(talk, "LASTS", 9)
    sid = talk.listen("to.lasts")
    _consumer(
        talk,
        "LASTS",
        deliver_subject="to.lasts",
        deliver_policy="last_per_subject",
        filter_subject="lasts.>",
        ack_policy="none",
        headers_only=True,
    )
    talk.heard(sid, 3)
    _info(talk, "LASTS")


def heartbeats(talk: Talk) -> None:
    _stream(talk, "BEATS", 2)
    sid = talk.listen("to.beats")
    _consumer(talk, "BEATS", deliver_subject="to.beats", idle_heartbeat=2 * talk.tenth_ns, ack_policy="none")
    talk.heard(sid, 4)
    talk.ask("beats.1", "more")
    talk.heard(sid, 2)


def flow_control(talk: Talk) -> None:
    _stream(talk, "FLOW", 0)
    body = "x" * 1000
    for _ in range(300):
        talk.publish("flow.1", body)
    talk.ask("flow.1", "the last")
    sid = talk.listen("to.flow")
    _consumer(
        talk, "FLOW", deliver_subject="to.flow", flow_control=True, idle_heartbeat=5 * SECOND_NS, ack_policy="none"
    )
    count = 0
    for _ in range(400):
        said = len(talk.said)
        heard = talk.heard(sid, 1)
        del talk.said[said:]
        if not heard:
            break
        if "FlowControl Request" in heard[0]:
            shown = heard[0].replace(heard[0].split(" ")[2], "<flow>")
            if not any("FlowControl" in line for line in talk.said):
                talk.note(f"< {shown}")
            talk.publish(heard[0].split(" ")[2])
        else:
            count += 1
        if count == 301:
            break
    talk.note(f"< {count} messages")


def ordered_consumers(talk: Talk) -> None:
    _stream(talk, "ORDER", 4)
    sid = talk.listen("to.order")
    config = {
        "deliver_subject": "to.order",
        "ack_policy": "none",
        "flow_control": True,
        "idle_heartbeat": 3 * talk.tenth_ns,
        "max_deliver": 1,
        "ack_wait": 79200 * SECOND_NS,
        "num_replicas": 1,
        "mem_storage": True,
        "name": "O",
    }
    talk.ask(f"{API}.CONSUMER.CREATE.ORDER.O", {"stream_name": "ORDER", "config": config})
    talk.heard(sid, 5)
    talk.ask(f"{API}.CONSUMER.DELETE.ORDER.O")
    again = {**config, "deliver_policy": "by_start_sequence", "opt_start_seq": 3}
    talk.ask(f"{API}.CONSUMER.CREATE.ORDER.O", {"stream_name": "ORDER", "config": again})
    talk.heard(sid, 2)


def pauses_of_a_push(talk: Talk) -> None:
    _stream(talk, "HOLD", 0)
    sid = talk.listen("to.hold")
    _consumer(talk, "HOLD", deliver_subject="to.hold")
    talk.ask(f"{API}.CONSUMER.PAUSE.HOLD.C", {"pause_until": "2099-01-01T00:00:00Z"})
    talk.ask("hold.1", "x")
    talk.heard(sid, 0)
    talk.ask(f"{API}.CONSUMER.PAUSE.HOLD.C")
    talk.ask("hold.1", "y")  # the real server does not stir before the next message
    heard = sorted(talk.heard(sid, 2), key=lambda line: line[-1])
    talk.said[-2:] = [line[:12] for line in heard]


def _events(talk: Talk, kind: str) -> str:
    return talk.listen(f"$JS.EVENT.{kind}")


def advisories_of_streams_and_consumers(talk: Talk) -> None:
    sids = [_events(talk, f"ADVISORY.{kind}") for kind in ("STREAM.*.ADV", "CONSUMER.*.ADV.*")]
    _stream(talk, "ADV", 1)
    talk.heard(sids[0], 1)
    talk.ask(f"{API}.STREAM.UPDATE.ADV", {"name": "ADV", "subjects": ["adv.>"], "max_msgs": 100})
    talk.heard(sids[0], 1)
    _consumer(talk, "ADV")
    talk.heard(sids[1], 1)
    _consumer(talk, "ADV", description="changed")
    talk.heard(sids[1], 0)
    talk.ask(f"{API}.CONSUMER.PAUSE.ADV.C", {"pause_until": "2099-01-01T00:00:00Z"})
    talk.heard(sids[1], 1)
    talk.ask(f"{API}.CONSUMER.PAUSE.ADV.C")
    talk.heard(sids[1], 1)
    talk.ask(f"{API}.CONSUMER.RESET.ADV.C", {"seq": 1})
    talk.heard(sids[1], 0)
    talk.ask(f"{API}.CONSUMER.DELETE.ADV.C")
    talk.heard(sids[1], 1)
    talk.ask(f"{API}.STREAM.PURGE.ADV")
    talk.heard(sids[0], 0)
    talk.ask(f"{API}.STREAM.DELETE.ADV")
    talk.heard(sids[0], 1)


def advisories_of_deliveries(talk: Talk) -> None:
    sid = _events(talk, "*.CONSUMER.*.EVENTS.>")
    _stream(talk, "EVENTS", 4)
    _consumer(talk, "EVENTS", ack_wait=talk.tenth_ns, max_deliver=1, sample_freq="100%")
    talk.heard(sid, 1)
    heard = talk.ask(f"{API}.CONSUMER.MSG.NEXT.EVENTS.C", {"batch": 3, "no_wait": True}, answers=3)
    talk.ask(heard[0].split(" ")[2], "+ACK")
    metric = talk.heard(sid, 1)
    assert not metric or "ack_time" in metric[0]
    talk.said[-1] = talk.said[-1].split('"ack_time"')[0]
    talk.ask(heard[1].split(" ")[2], "+TERM because")
    talk.heard(sid, 1)
    talk.heard(sid, 1)
    _consumer(talk, "EVENTS", "N")
    talk.heard(sid, 1)
    heard = talk.ask(f"{API}.CONSUMER.MSG.NEXT.EVENTS.N", {"batch": 1, "no_wait": True}, answers=1)
    talk.ask(heard[0].split(" ")[2], "-NAK")
    talk.heard(sid, 1)


def advisories_of_pins(talk: Talk) -> None:
    _stream(talk, "PINS", 4)
    _consumer(talk, "PINS", priority_groups=["g"], priority_policy="pinned_client", priority_timeout=600 * SECOND_NS)
    sid = _events(talk, "ADVISORY.CONSUMER.*.PINS.>")
    talk.ask(f"{API}.CONSUMER.MSG.NEXT.PINS.C", {"batch": 1, "group": "g"})
    talk.heard(sid, 1)
    talk.ask(f"{API}.CONSUMER.UNPIN.PINS.C", {"group": "g"})
    talk.heard(sid, 1)


def audits_of_requests(talk: Talk) -> None:
    sid = _events(talk, "ADVISORY.API")
    for subject, body in (
        ("STREAM.CREATE.AUDIT", {"name": "AUDIT"}),
        ("STREAM.INFO.AUDITNONE", ""),
        ("STREAM.CREATE.AUDIT", "no"),
    ):
        talk.ask(f"{API}.{subject}", body)
        for line in talk.heard(sid, 1):
            del talk.said[-1]
            talk.note(_without_client(line))


def _without_client(line: str) -> str:
    """Leave out what differs because two clients ask at two addresses."""
    start, _, rest = line.partition('"client":{')
    return f"{start}…{rest.partition('},')[2]}"


def an_abandoned_batch(talk: Talk) -> None:
    sid = _events(talk, "ADVISORY.STREAM.BATCH_ABANDONED.>")
    _stream(talk, "DROP", 0, allow_atomic=True)
    for number in (1, 3):
        talk.ask("drop.1", "x", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)})
    talk.heard(sid, 1)


def subscriptions_that_bind(talk: Talk) -> None:
    _stream(talk, "BIND", 1)
    for number, (listen, queue, group) in enumerate(
        [
            ("bound.x", "", ""),
            ("bound.>", "", ""),
            ("bound.x", "g", ""),
            ("bound.x", "", "g"),
            ("bound.x", "g", "g"),
            ("bound.*", "g", "g"),
            ("bound.x", "h", "g"),
        ]
    ):
        client = talk.another()
        sid = client.listen(listen, queue)
        config = {"durable_name": f"c{number}", "deliver_subject": "bound.x", "ack_policy": "none"}
        body = {"stream_name": "BIND", "config": config | ({"deliver_group": group} if group else {})}
        talk.ask(f"{API}.CONSUMER.CREATE.BIND.c{number}", body)
        client.heard(sid, int(queue == group and "*" not in listen and ">" not in listen))
        talk.ask(f"{API}.CONSUMER.INFO.BIND.c{number}")
        talk.ask(f"{API}.CONSUMER.DELETE.BIND.c{number}")
        client.wire.close()


SCRIPTS: list[Script] = [
    subscriptions_that_bind,
    messages_pushed,
    pushed_to_a_queue_group,
    headers_only_by_subject,
    heartbeats,
    flow_control,
    ordered_consumers,
    pauses_of_a_push,
    advisories_of_streams_and_consumers,
    advisories_of_deliveries,
    advisories_of_pins,
    audits_of_requests,
    an_abandoned_batch,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_servers_say_the_same(compare: Compare, script: Script) -> None:
    compare(script)
