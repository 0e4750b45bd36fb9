"""Mirrors, sources, snapshots and restores: what is copied and what is told of it."""

import base64
from typing import Any

import pytest

from tests.broker.clients.alike.conftest import Compare
from tests.broker.clients.raw import Body, Script, Talk, json_of

API = "$JS.API"


def _stream(talk: Talk, name: str, messages: int = 6, **config: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **config})
    talk.publish_all((f"{name.lower()}.{number % 3}", f"m{number}") for number in range(messages))


def _settled(talk: Talk, name: str, last: int) -> None:
    """Ask about a stream, and write the answer down, when it has caught up."""
    talk.wait_for(f"{API}.STREAM.INFO.{name}", lambda info: info["state"]["last_seq"] >= last)
    talk.pause(0.05)
    talk.ask(f"{API}.STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    for key in ('"lag":', '"active":'):
        assert key in talk.said[-1]


def mirrors(talk: Talk) -> None:
    _stream(talk, "MORIGIN", 6)
    talk.ask(f"{API}.STREAM.MSG.DELETE.MORIGIN", {"seq": 3})
    for name, mirror in (
        ("MALL", {"name": "MORIGIN"}),
        ("MSOME", {"name": "MORIGIN", "filter_subject": "morigin.1"}),
        ("MFROM", {"name": "MORIGIN", "opt_start_seq": 4}),
        ("MMOVED", {"name": "MORIGIN", "subject_transforms": [{"src": "morigin.*", "dest": "moved.{{wildcard(1)}}"}]}),
    ):
        talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, "mirror": mirror, "allow_direct": True})
        _settled(talk, name, 5)
        talk.ask(f"{API}.DIRECT.GET.{name}", {"seq": 5})
    talk.ask("morigin.1", "later", {"A": "b"})
    _settled(talk, "MALL", 7)
    talk.ask(f"{API}.DIRECT.GET.MALL", {"last_by_subj": "morigin.1"})
    talk.ask("MALL", "x")
    talk.ask(f"{API}.STREAM.UPDATE.MALL", {"name": "MALL", "mirror": {"name": "OTHER"}})
    talk.ask(f"{API}.STREAM.CREATE.MWRONG", {"name": "MWRONG", "mirror": {"name": "MORIGIN"}, "subjects": ["x"]})
    talk.ask(f"{API}.STREAM.CREATE.MNONE", {"name": "MNONE", "mirror": {"name": "NOTHERE"}})


def sources(talk: Talk) -> None:
    _stream(talk, "SONE", 3)
    talk.ask("sone.1", "headed", {"A": "b", "Nats-Msg-Id": "i"})
    talk.ask(f"{API}.STREAM.CREATE.SALL", {"name": "SALL", "subjects": ["sall.>"], "sources": [{"name": "SONE"}]})
    _settled(talk, "SALL", 4)
    transforms = [{"src": "sone.1", "dest": "moved.one"}, {"src": "sone.2", "dest": ""}]
    for name, source in (
        ("SSOME", {"name": "SONE", "filter_subject": "sone.1"}),
        ("SFROM", {"name": "SONE", "opt_start_seq": 3}),
        ("SMOVED", {"name": "SONE", "subject_transforms": transforms}),
    ):
        talk.ask(f"{API}.STREAM.CREATE.{name}", {"name": name, "sources": [source]})
        _settled(talk, name, 2)
    for name, last in (("SALL", 4), ("SSOME", 2), ("SMOVED", 2)):
        for line in talk.ask(f"{API}.STREAM.MSG.GET.{name}", {"seq": last}):
            talk.said[-1] = talk.said[-1].partition('"hdrs"')[0] + _headers_without_id(line)
    talk.ask("sall.own", "own")
    talk.ask("sone.1", "x", {"Nats-Stream-Source": "SONE 1 > > sone.1"})


def _headers_without_id(line: str) -> str:
    block = base64.b64decode(json_of(line)["message"]["hdrs"]).decode()
    return repr([header.rpartition(" ")[0] if "Source" in header else header for header in block.split("\r\n")])


SNAPSHOTS: list[Body] = [
    "",
    {},
    {"deliver_subject": ""},
    {"deliver_subject": "a..b"},
    "nope",
    {"deliver_subject": "nobody.there"},
]
RESTORES: list[Body] = ["", {}, "nope", {"config": {"name": "OTHER"}}, {"config": {"name": "SNAP"}, "state": {}}]


def snapshots(talk: Talk) -> None:
    _stream(talk, "SNAP", 20)
    talk.ask(
        f"{API}.CONSUMER.CREATE.SNAP.C",
        {"stream_name": "SNAP", "config": {"durable_name": "C", "ack_policy": "explicit"}},
    )
    for body in SNAPSHOTS:
        talk.ask(f"{API}.STREAM.SNAPSHOT.SNAP", body)
    talk.ask(f"{API}.STREAM.SNAPSHOT.NONE", {"deliver_subject": "x"})
    for body in RESTORES:
        talk.ask(f"{API}.STREAM.RESTORE.SNAP", body)


def a_snapshot_restored(talk: Talk) -> None:
    _stream(talk, "BACK", 20)
    talk.ask(f"{API}.STREAM.MSG.DELETE.BACK", {"seq": 7})
    talk.ask(
        f"{API}.CONSUMER.CREATE.BACK.C",
        {"stream_name": "BACK", "config": {"durable_name": "C", "ack_policy": "explicit"}},
    )
    heard = talk.ask(f"{API}.CONSUMER.MSG.NEXT.BACK.C", {"batch": 5, "no_wait": True}, answers=5)
    talk.ask(heard[0].split(" ")[2], "+ACK")
    chunks = _snapshot(talk, "BACK")
    talk.ask(f"{API}.STREAM.DELETE.BACK")
    saved = json_of(chunks.pop(0))
    answer = talk.ask(f"{API}.STREAM.RESTORE.BACK", {"config": saved["config"], "state": saved["state"]})
    to = json_of(answer[0])["deliver_subject"]
    talk.said[-1] = talk.said[-1].partition("$JS.SNAPSHOT")[0]
    said = len(talk.said)
    for chunk in chunks:
        talk.ask(to, chunk.encode("latin-1"))
    del talk.said[said:]
    talk.call(to, "<to>")
    talk.ask(to, "")
    talk.ask(f"{API}.STREAM.INFO.BACK", {"deleted_details": True, "subjects_filter": ">"})
    talk.ask(f"{API}.CONSUMER.INFO.BACK.C")
    talk.ask(f"{API}.STREAM.MSG.GET.BACK", {"seq": 20})


def _snapshot(talk: Talk, name: str) -> list[str]:
    sid = talk.listen("to.snapshot")
    answer = talk.ask(f"{API}.STREAM.SNAPSHOT.{name}", {"deliver_subject": "to.snapshot", "chunk_size": 1 << 20})
    chunks = [answer[0]]
    for _ in range(50):
        said = len(talk.said)
        message = talk.heard(sid, 1)[0]
        del talk.said[said:]
        chunk = message.removeprefix("MSG to.snapshot").removeprefix(" ")
        if message.startswith("HMSG") or not chunk:
            talk.note(f"< {message}")
            break
        if chunk.startswith("$JS.SNAPSHOT.ACK."):
            reply, _, chunk = chunk.partition(" ")
            talk.publish(reply)
        chunks.append(chunk)
    return chunks


SCRIPTS: list[Script] = [mirrors, sources, snapshots, a_snapshot_restored]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_both_servers_say_the_same(compare: Compare, script: Script) -> None:
    compare(script)
