"""The streams of an account: they are there after a restart, and gone after they were deleted."""

import json
from pathlib import Path

from strandline.broker.api.answers import SourceInfo
from strandline.broker.streams.service import StreamService
from strandline.clock import ManualClock
from strandline.journal import WRITTEN
from tests.broker.conversations import Talk

CREATE = b'{"name":"A","subjects":["a.>"]}'


def _service(folder: Path) -> StreamService:
    service = StreamService(folder=folder, clock=ManualClock(), durability=WRITTEN)
    service.open_all()
    return service


def test_streams_are_there_after_a_restart(tmp_path: Path) -> None:
    service = _service(tmp_path)
    talk = Talk(service)
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    talk.ask("a.x", b"1")
    talk.ask("$JS.API.STREAM.UPDATE.A", b'{"name":"A","subjects":["a.>"],"description":"new"}')
    before = talk.ask("$JS.API.STREAM.INFO.A", b"")
    service.close()
    assert Talk(_service(tmp_path)).ask("$JS.API.STREAM.INFO.A", b"") == before


def test_a_deleted_stream_leaves_nothing_and_may_be_made_again(tmp_path: Path) -> None:
    gone: list[str] = []
    service = _service(tmp_path)
    service.on_delete = gone.append
    talk = Talk(service)
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    talk.ask("a.x", b"1")
    talk.ask("$JS.API.STREAM.DELETE.A", b"")
    assert gone == ["A"]
    assert list(tmp_path.rglob("*")) == []
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    assert talk.ask("a.x", b"2") == '{"stream":"A","seq":1}'
    service.close()


def test_others_add_what_they_know(tmp_path: Path) -> None:
    service = _service(tmp_path)
    service.consumer_count = lambda name: len(name) + 1
    service.origins = lambda config: (None, (SourceInfo(config.name, lag=7),))
    talk = Talk(service)
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    answer = talk.ask("$JS.API.STREAM.INFO.A", b"")
    assert isinstance(answer, str)
    info = json.loads(answer)
    assert info["state"]["consumer_count"] == 2
    assert info["sources"] == [{"name": "A", "lag": 7, "active": -1}]
    service.close()


def test_what_was_answered_is_durable_once_the_barrier_is(tmp_path: Path) -> None:
    service = StreamService(folder=tmp_path)
    service.request("$JS.API.STREAM.CREATE.A", b"", CREATE, 1)
    assert all(ticket.result(10) is None for ticket in service.barrier())
    service.close()
    assert service.barrier() == []
