"""Snapshots and restores within one account: what it may use holds for what comes back as well."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from strandline.broker import work_queue
from strandline.broker.snapshots import restore_service, service
from strandline.broker.snapshots.archive import END, MAGIC, format_uvarint
from strandline.broker.snapshots.restore import Restore
from strandline.broker.snapshots.s2 import BEGIN, BLOCK_MAX, _masked, format_chunks
from tests.broker.jetstream.fakes import FakeAccount
from tests.broker.snapshots.packing import packed, saved_consumer
from tests.broker.snapshots.recorded import REAL

ENTRY_HEAD = b"\x03\x00\x01\x00" + format_uvarint(1 << 20) + b"s.a"
"""What a message of a mebibyte begins with."""


def _bomb() -> bytes:
    """Return a chunk of few bytes that holds as much as one may: zeros."""
    repeat = b"\x1d\x00" + (BLOCK_MAX - 65 - 4 - (1 << 16)).to_bytes(3, "little")
    block = format_uvarint(BLOCK_MAX) + b"\x00\x00" + b"\xfe\x01\x00" + repeat
    body = _masked(bytes(BLOCK_MAX)).to_bytes(4, "little") + block
    return b"\x00" + len(body).to_bytes(3, "little") + body


BOMB = _bomb()
S2_BEGIN = b"\xff\x06\x00\x00S2sTwO"
"""With which a stream begins that may have blocks as large as that."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeAccount]:
    world = FakeAccount(tmp_path, inline=True)
    yield world
    world.close()


def _limit(world: FakeAccount, **limits: int) -> None:
    world.jetstream.streams.limits = replace(world.jetstream.streams.limits, **limits)  # type: ignore[arg-type]


def _begin(world: FakeAccount, name: str = "S") -> dict[str, Any]:
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"}
    return world.ask(f"STREAM.RESTORE.{name}", {"config": config})


def _end(world: FakeAccount, place: str) -> dict[str, Any]:
    world.routes.take()
    world.routes.publish((place, b"", "end"))
    world.settle()
    answer: dict[str, Any] = json.loads(next(payload for subject, payload in world.routes.take() if subject == "end"))
    return answer


def _restore(world: FakeAccount, name: str = "S") -> dict[str, Any]:
    place = _begin(world, name)["deliver_subject"]
    for at in range(0, len(REAL), 10_000):
        world.routes.publish((place, REAL[at : at + 10_000], "chunk"))
    return _end(world, place)


def test_a_stream_comes_back_where_there_is_room(world: FakeAccount) -> None:
    _limit(world, max_streams=1, max_memory=10_000_000, max_consumers=1)
    assert _restore(world)["state"]["messages"] == 22


def test_a_restore_that_is_one_stream_too_many_is_refused(world: FakeAccount) -> None:
    _limit(world, max_streams=1)
    world.stream("A", "a")
    assert _begin(world)["error"]["err_code"] == 10027


def test_of_two_restores_the_one_that_ends_too_late_is_refused(world: FakeAccount) -> None:
    _limit(world, max_streams=1)
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, REAL, "chunk"))
    world.stream("A", "a")
    assert _end(world, place)["error"]["err_code"] == 10027
    assert list(world.jetstream.streams.streams) == ["A"]


def test_a_restore_that_is_too_large_is_refused_and_takes_no_more(world: FakeAccount) -> None:
    _limit(world, max_memory=5_000)
    assert _restore(world)["error"]["err_code"] == 10028
    assert not world.jetstream.streams.streams


def test_a_restore_with_too_many_consumers_is_refused(world: FakeAccount) -> None:
    _limit(world, max_consumers=1)
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, REAL, "chunk"))
    world.settle()
    found = next(iter(world.jetstream.snapshots._restores.under_way.values())).restore.consumers  # noqa: SLF001
    found.append(found[0]._replace(name="d"))
    assert _end(world, place)["error"]["err_code"] == 10026
    assert not world.jetstream.streams.streams


def test_only_so_many_restores_are_under_way_at_once(world: FakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_service, "RESTORES_MAX", 2)
    assert all("error" not in _begin(world, name) for name in "ST")
    assert _begin(world, "U")["error"]["err_code"] == 10062


def _refused(world: FakeAccount, data: bytes) -> str:
    """Send something, and return why it is refused; whatever it is, nothing of it stays."""
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, data, "chunk"))
    error = _end(world, place)["error"]
    assert not world.jetstream.streams.streams
    assert not world.jetstream.snapshots._restores.under_way  # noqa: SLF001
    assert not world.paused
    assert "error" not in _restore(world)
    world.ask("STREAM.DELETE.S")
    return str(error["description"])


def test_a_consumer_whose_numbers_cannot_be_is_refused_and_nothing_stays(world: FakeAccount) -> None:
    for number in (2**70, -5):
        data = packed(saved_consumer(delivered={"consumer_seq": number, "stream_seq": 1}))
        assert "not a sequence" in _refused(world, data)


def test_two_consumers_of_one_name_are_refused(world: FakeAccount) -> None:
    assert "already exists" in _refused(world, packed(saved_consumer(), saved_consumer()))


@pytest.mark.parametrize("where", ["attach", "feed", "finish"])
def test_whatever_goes_wrong_is_answered_and_nothing_stays(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("surprise")

    if where == "attach":
        monkeypatch.setattr(world.jetstream.consumers, "add", fail)
    else:
        monkeypatch.setattr(Restore, "_learn" if where == "feed" else "finish", fail)
    assert "surprise" in _refused(world, REAL)


def test_a_bomb_is_refused_at_once(world: FakeAccount) -> None:
    after_the_end = S2_BEGIN + format_chunks(MAGIC + END) + BOMB * 150
    assert "after the end" in _refused(world, after_the_end)
    huge = MAGIC + b"\x03\x00\x01\x00" + format_uvarint(100 << 20) + b"s.a"
    assert "too large" in _refused(world, S2_BEGIN + format_chunks(huge) + BOMB * 25)


def test_what_a_message_unpacks_to_is_taken_in_turns_while_its_client_waits(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "BUDGET_NS", 1)
    monkeypatch.setattr(world.jetstream.clock, "now_ns", count(10**18).__next__)  # every look takes time
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, S2_BEGIN + format_chunks(MAGIC + ENTRY_HEAD) + BOMB, "chunk"))
    world.routes.publish((place, b"", "end"))
    passed = 0
    while world.posted:
        assert world.paused == [1] * all(subject != "end" for subject, _ in world.routes.sent)
        passed += 1
        world.posted.pop(0)()
    assert world.paused == []
    assert passed > 3
    assert [subject for subject, _ in world.routes.take() if subject in ("chunk", "end")] == ["chunk", "end"]


def test_a_restore_that_was_given_up_unpacks_no_more(world: FakeAccount) -> None:
    place = _begin(world)["deliver_subject"]
    world.routes.take()
    world.routes.publish((place, REAL, "chunk"))
    world.jetstream.snapshots.close()
    world.settle()
    assert world.paused == []
    assert world.routes.take() == []


def test_consumers_are_counted_while_they_come(world: FakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_service, "CONSUMERS_MAX", 3)
    four = [saved_consumer(name) for name in "CDEF"]
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, packed(*four, end=b""), "chunk"))
    world.settle()
    sink = next(iter(world.jetstream.snapshots._restores.under_way.values()))  # noqa: SLF001
    assert sink.problem is not None
    assert sink.restore.held_bytes == 0
    assert _end(world, place)["error"]["err_code"] == 10026


def test_restores_take_only_so_much_memory_together(world: FakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_service, "HELD_MAX", 150_000)
    part = BEGIN + format_chunks(MAGIC + ENTRY_HEAD + Random(1).randbytes(100_000))
    places = [_begin(world, name)["deliver_subject"] for name in "ST"]
    for place in places:
        world.routes.publish((place, part, "chunk"))
    world.settle()
    problems = [sink.problem for sink in world.jetstream.snapshots._restores.under_way.values()]  # noqa: SLF001
    assert problems[0] is None
    assert "too much" in str(problems[1])
    assert "too much" in _end(world, places[1])["error"]["description"]


# Out.


def test_only_so_many_snapshots_are_under_way_at_once(world: FakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SNAPSHOTS_MAX", 2)
    world.stream("S", "S.>", storage="memory")
    world.routes.listened.add(b"to")
    monkeypatch.setattr(world.routes, "room", lambda _: 0)  # so that they do not end
    asked = {"deliver_subject": "to"}
    assert all("error" not in world.ask("STREAM.SNAPSHOT.S", asked) for _ in range(2))
    assert world.ask("STREAM.SNAPSHOT.S", asked)["error"]["err_code"] == 10064
    world.jetstream.snapshots._senders[0].stop()  # noqa: SLF001


def _by_pattern(world: FakeAccount) -> None:
    """Begin a snapshot to where somebody listens by a pattern only, as the inbox of most clients is."""
    world.stream("S", "s.>", storage="memory")
    world.routes.publish(("s.a", b"x", ""))
    world.turn()
    world.settle()
    world.routes.listened.add(b"inbox.chunks")
    world.routes.matched.add(b"inbox.chunks")
    assert "error" not in world.ask("STREAM.SNAPSHOT.S", {"deliver_subject": "inbox.chunks"})
    world.settle()


def _chunks(world: FakeAccount) -> list[bytes]:
    return [payload for subject, payload in world.routes.take() if subject == "inbox.chunks"]


def test_a_snapshot_waits_for_a_subscription_to_its_own_subject(world: FakeAccount) -> None:
    _by_pattern(world)
    world.clock.advance(1)
    world.jetstream.tick(world.clock.now_ns())
    assert _chunks(world) == []
    world.routes.listen("inbox.chunks")
    archive, end = _chunks(world)
    assert archive.startswith(BEGIN)
    assert end == b""
    assert world.routes.watchers == []


def test_a_snapshot_is_sent_to_a_pattern_when_nobody_subscribes_for_two_seconds(world: FakeAccount) -> None:
    _by_pattern(world)
    for _ in range(2):
        assert _chunks(world) == []
        world.clock.advance(1)
        world.jetstream.tick(world.clock.now_ns())
    assert len(_chunks(world)) == 2
