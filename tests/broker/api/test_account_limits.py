"""An account gets no more than it may use."""

import json

import pytest

from strandline.broker.api.responses import AccountLimits
from strandline.broker.streams.service import StreamService
from strandline.clock import ManualClock
from tests.broker.conversations import Talk


def _talk(limits: AccountLimits) -> Talk:
    return Talk(StreamService(clock=ManualClock(), limits=limits))


def _make(talk: Talk, name: str, verb: str = "CREATE", **config: object) -> int:
    asked = json.dumps({"name": name, "subjects": [f"{name}.>"], **config}).encode()
    answer = talk.ask(f"$JS.API.STREAM.{verb}.{name}", asked)
    assert isinstance(answer, str)
    code: int = json.loads(answer).get("error", {}).get("err_code", 0)
    return code


def test_what_is_reserved_counts() -> None:
    talk = _talk(AccountLimits(max_storage=5000, max_memory=1000))
    assert _make(talk, "A", max_bytes=6000) == 10047
    assert _make(talk, "A", max_bytes=3000) == 0
    assert _make(talk, "B", max_bytes=3000) == 10047
    assert _make(talk, "B", storage="memory", max_bytes=2000) == 10028
    assert _make(talk, "B", storage="memory") == 0
    assert _make(talk, "A", verb="UPDATE", max_bytes=5001) == 10047
    assert _make(talk, "A", verb="UPDATE", max_bytes=5000) == 0
    assert _make(talk, "C") == 10047


def test_there_are_no_more_streams_than_there_may_be() -> None:
    talk = _talk(AccountLimits(max_streams=1))
    assert _make(talk, "A") == 0
    assert _make(talk, "A") == 0
    assert _make(talk, "B") == 10027


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_nothing_is_stored_beyond_what_there_is_room_for(storage: str) -> None:
    talk = _talk(AccountLimits(max_memory=1000, max_storage=1000))
    assert _make(talk, "A", storage=storage) == 0
    answers = [str(talk.ask("A.x", b"y" * 400)) for _ in range(3)]
    assert answers[:2] == ['{"stream":"A","seq":1}', '{"stream":"A","seq":2}']
    assert '"err_code":10002' in answers[2]
    assert '"limits":{"max_memory":1000,"max_storage":1000,' in str(talk.ask("$JS.API.INFO", b""))


def test_streams_may_have_to_say_how_large_they_get() -> None:
    talk = _talk(AccountLimits(max_bytes_required=True))
    assert _make(talk, "A") == 10113
    assert _make(talk, "A", max_bytes=10) == 0
    assert _make(_talk(AccountLimits(storage_max_stream_bytes=5)), "A", max_bytes=10) == 10122
