"""What a real nats-server 2.15.1 answered, ours answers too, ids and times aside."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from strandline.broker.streams import Reply
from strandline.broker.streams.service import StreamService
from strandline.clock import ManualClock
from strandline.journal import WRITTEN
from tests.broker.conversations import SERVER, Talk, expanded, read_fixture, shown

UNSUPPORTED = ("SNAPSHOT", "RESTORE")
"""What is refused on purpose, or answered elsewhere."""


@pytest.fixture(params=["file", "memory"])
def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Talk:
    folder = tmp_path if request.param == "file" else None
    return Talk(StreamService(folder=folder, clock=ManualClock(), durability=WRITTEN, server_name=SERVER))


def _expected_replies(lines: list[str]) -> list[tuple[dict[str, str], bytes]]:
    if lines[0].startswith("HDR "):
        return [(json.loads(lines[0].removeprefix("HDR ")), lines[1].encode())]
    parts = (line.removeprefix("hdr=").rsplit(" data=", 1) for line in lines)
    return [(ast.literal_eval(headers), ast.literal_eval(data)) for headers, data in parts]


def test_the_transcripts_are_answered_alike(tmp_path: Path) -> None:
    talk = Talk(StreamService(folder=tmp_path, clock=ManualClock(), durability=WRITTEN, server_name=SERVER))
    for exchange in read_fixture("transcripts.jsonl"):
        if exchange["title"] == "stream info":
            for number in range(5):
                talk.ask(f"s1.m.{number}", b"m%d" % number)
        answer = talk.ask(exchange["subject"], exchange["payload"].encode(), exchange["headers"])
        if isinstance(answer, list):
            assert list(map(shown, answer)) == _expected_replies(exchange["answers"]), exchange["title"]
        else:
            assert [answer] == exchange["answers"], exchange["title"]


def _is_known_difference(exchange: dict[str, Any]) -> bool:
    return any(word in json.dumps(exchange) for word in UNSUPPORTED)


@pytest.mark.parametrize("name", ["configs", "requests"])
def test_refusals_and_defaults_are_the_servers(tmp_path: Path, name: str) -> None:
    talk = Talk(StreamService(folder=tmp_path, clock=ManualClock(), durability=WRITTEN, server_name=SERVER))
    for exchange in read_fixture(f"nats-server-2.15.1-{name}.jsonl"):
        if _is_known_difference(exchange):
            continue
        subject, payload = expanded(exchange["subject"]), expanded(exchange["payload"])
        body = payload if isinstance(payload, str) else json.dumps(payload)
        answer = talk.ask(subject, body.encode(), expanded(exchange["headers"]))
        assert _without_use(answer) == _without_use(exchange["answer"]), (subject, body[:200], exchange["headers"])


def _without_use(answer: str | list[Reply]) -> str:
    """Leave out how often the API was used: some requests of the fixture are not put here."""
    return re.sub(r'"total":\d+,"errors":\d+', "", str(answer))


_FEATURES: dict[str, dict[str, str]] = {
    "stream": {"Nats-Expected-Stream": "ZZ"},
    "last": {"Nats-Expected-Last-Sequence": "77"},
    "lastsub": {"Nats-Expected-Last-Subject-Sequence": "66"},
    "nosub": {"Nats-Expected-Last-Subject-Sequence-Subject": "p.q"},
    "dup": {"Nats-Msg-Id": "dup"},
    "lastid": {"Nats-Expected-Last-Msg-Id": "zz"},
    "rollup": {"Nats-Rollup": "foo"},
    "ttl": {"Nats-TTL": "bad"},
    "ttlok": {"Nats-TTL": "5s"},
    "incr": {"Nats-Incr": "1"},
    "source": {"Nats-Stream-Source": "q"},
    "batch": {"Nats-Batch-Id": "q"},
    "sched": {"Nats-Schedule": "q"},
    "size": {},
    "hdr": {"A": "y" * 70000},
}
_STREAMS: dict[str, dict[str, Any]] = {
    "P": {"allow_rollup_hdrs": True, "allow_msg_ttl": True, "max_msg_size": 100000},
    "N": {"max_msg_size": 100000},
    "K": {"allow_msg_counter": True, "max_msg_size": 100000},
    "F": {"discard": "new", "max_msgs": 1},
}


def test_of_two_things_wrong_the_same_one_is_told(talk: Talk) -> None:
    for name, extra in _STREAMS.items():
        talk.ask(
            f"$JS.API.STREAM.CREATE.{name}",
            json.dumps({"name": name, "subjects": [f"{name.lower()}.>"], **extra}).encode(),
        )
        increment = {"Nats-Incr": "1"} if name == "K" else {}
        talk.ask(f"{name.lower()}.a", b"" if increment else b"x", {**increment, "Nats-Msg-Id": "dup"})
    for stream, one, other, expected in read_fixture("nats-server-2.15.1-order.jsonl"):
        payload = b"" if stream == "k" else b"x"
        if "size" in (one, other):
            payload = b"x" * 100001
        answer = talk.ask(f"{stream}.a", payload, {**_FEATURES[one], **_FEATURES[other]})
        assert isinstance(answer, str)
        assert _without_numbers(answer) == _without_numbers(expected), (stream, one, other)


def _without_numbers(answer: str) -> str:
    """Leave out sequences: the order in which messages came is not the point here."""
    parsed = json.loads(answer.replace('"seq":N', '"seq":1'))
    return str((parsed.get("error", {}).get("err_code"), parsed.get("duplicate"), bool(parsed["seq"])))


def test_a_direct_get_of_many_is_cut_at_its_bytes(talk: Talk) -> None:
    talk.ask("$JS.API.STREAM.CREATE.D", b'{"name":"D","subjects":["d.>"],"allow_direct":true}')
    for number in range(5):
        talk.ask(f"d.{number}", b"x" * 10)
    answer = talk.ask("$JS.API.DIRECT.GET.D", b'{"batch":5,"seq":1,"max_bytes":20}')
    assert isinstance(answer, list)
    assert [headers.get("Nats-Sequence") for headers, _ in map(shown, answer)] == ["1", "2", None]
    assert shown(answer[-1])[0]["Nats-Num-Pending"] == "3"


def test_a_direct_get_of_too_many_subjects_is_refused(talk: Talk) -> None:
    talk.ask("$JS.API.STREAM.CREATE.D", b'{"name":"D","subjects":["d.>"],"allow_direct":true}')
    for number in range(1025):
        talk.ask(f"d.{number}", b"x")
    answer = talk.ask("$JS.API.DIRECT.GET.D", b'{"multi_last":["d.>"]}')
    assert isinstance(answer, list)
    assert [shown(reply)[0] for reply in answer] == [{"Status": "413", "Description": "Too Many Results"}]
    assert isinstance(answer[0], Reply)
