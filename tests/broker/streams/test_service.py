"""The streams of an account: they are there after a restart, and gone after they were deleted."""

import json
import shutil
from pathlib import Path

import pytest

from strandline.broker.api import responses
from strandline.broker.api.responses import SourceInfo
from strandline.broker.streams.checkpoint import format_checkpoint, parse_checkpoint
from strandline.broker.streams.message_reader import MessageReader
from strandline.broker.streams.service import StreamService
from strandline.clock import ManualClock
from strandline.errors import Closed
from strandline.journal import WRITTEN, Journal
from tests.broker.conversations import Talk
from tests.waiting import PATIENCE_S

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
    assert all(ticket.result(PATIENCE_S) is None for ticket in service.barrier())
    service.close()
    assert service.barrier() == []


def _removed_by_halves(folder: Path, *, with_segments: bool) -> None:
    """Leave what a delete leaves that ended after its first step, or amid the segments of the journal."""
    service = _service(folder)
    talk = Talk(service)
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    for number in range(5):
        talk.ask("a.x", b"%d" % number)
    service.close()
    (folder / "A" / "front").unlink()
    if not with_segments:
        for segment in (folder / "A" / "journal").glob("*.journal"):
            segment.unlink()
    (folder / "A" / "consumers" / "C").mkdir(parents=True)
    (folder / "A" / "consumers" / "C.consumer").touch()


@pytest.mark.parametrize("with_segments", [True, False])
def test_a_delete_that_was_cut_short_is_finished_when_the_streams_are_opened(
    tmp_path: Path, *, with_segments: bool
) -> None:
    _removed_by_halves(tmp_path, with_segments=with_segments)
    service = _service(tmp_path)
    assert (service.streams, service.unreadable, list(tmp_path.rglob("*"))) == ({}, {}, [])


@pytest.mark.parametrize("with_segments", [True, False])
def test_a_stream_made_after_a_delete_that_was_cut_short_has_nothing_of_the_old_one(
    tmp_path: Path, *, with_segments: bool
) -> None:
    service = _service(tmp_path / "streams")
    _removed_by_halves(tmp_path / "streams", with_segments=with_segments)
    talk = Talk(service)
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    assert not (tmp_path / "streams" / "A" / "consumers").exists()
    assert [talk.ask("a.x", payload) for payload in (b"one", b"two")] == [
        '{"stream":"A","seq":1}',
        '{"stream":"A","seq":2}',
    ]
    shutil.copytree(tmp_path / "streams", tmp_path / "killed")
    service.close()
    again = _service(tmp_path / "killed")
    assert again.unreadable == {}
    assert (again.streams["A"].first_seq, again.streams["A"].last_seq) == (1, 2)
    again.close()


def test_an_index_of_another_stream_is_not_looked_at(tmp_path: Path) -> None:
    service = _service(tmp_path)
    talk = Talk(service)
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    talk.ask("a.x", b"1")
    service.close()
    front = tmp_path / "A" / "front"
    known = parse_checkpoint(front.read_bytes(), "")
    front.write_bytes(format_checkpoint(known._replace(created_ns=known.created_ns + 1)))
    again = _service(tmp_path)
    assert again.streams["A"].created_ns == known.created_ns + 1
    assert again.streams["A"].last_seq == 1
    again.close()


def test_what_is_no_stream_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    copy = tmp_path / "kept" / "A" / "front"
    copy.parent.mkdir(parents=True)
    copy.write_text("mine too")
    service = _service(tmp_path)
    assert (service.streams, copy.exists(), (tmp_path / "note.txt").exists()) == ({}, True, True)


def test_a_stream_that_another_process_is_making_is_left_alone(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "A" / "journal")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    service = _service(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    service.close()
    journal.close()


def test_one_stream_that_cannot_be_closed_does_not_keep_the_others_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = _service(tmp_path)
    talk = Talk(service)
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    talk.ask("$JS.API.STREAM.CREATE.B", b'{"name":"B"}')
    monkeypatch.setattr(service.streams["A"], "close", lambda: 1 // 0)
    service.close()
    with pytest.raises(Closed):
        service.streams["B"].expire(1)


def test_subjects_are_counted_once_and_shown_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "SUBJECTS_LIMIT", 2)
    counted: list[str] = []
    count = MessageReader.subject_counts

    def counting(reader: MessageReader, pattern: str, offset: int, limit: int) -> tuple[int, dict[str, int]]:
        counted.append(pattern)
        return count(reader, pattern, offset, limit)

    monkeypatch.setattr(MessageReader, "subject_counts", counting)
    service = _service(tmp_path)
    talk = Talk(service)
    talk.ask("$JS.API.STREAM.CREATE.A", CREATE)
    for subject in ("a.c", "a.a", "a.b", "a.c", "a.d"):
        talk.ask(subject, b"")
    pages = []
    for offset in range(0, 6, 2):
        answer = talk.ask("$JS.API.STREAM.INFO.A", b'{"subjects_filter":"a.*","offset":%d}' % offset)
        assert isinstance(answer, str)
        info = json.loads(answer)
        pages.append((info["total"], info["offset"], info["limit"], info["state"].get("subjects")))
    assert pages == [(4, 0, 2, {"a.a": 1, "a.b": 1}), (4, 2, 2, {"a.c": 2, "a.d": 1}), (4, 4, 2, None)]
    assert len(counted) == 3
    service.close()
