"""The end of a restore: beside the loop, as a whole, in nobody's way, and over when its server is."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strandline.broker import work_queue
from strandline.broker.consumers.files import ConsumerRecord
from strandline.broker.consumers.restore import RestoredConsumer, add_restored, settle_restored, write_restored
from strandline.broker.consumers.state import SavedPosition
from strandline.broker.snapshots import restore as restore_module
from strandline.broker.snapshots.restore import Restore
from strandline.errors import Closed
from tests.broker.jetstream.fakes import FakeAccount
from tests.broker.snapshots.packing import done_with, messages, packed, saved_consumer
from tests.waiting import PATIENCE_S


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeAccount]:
    """Return an account where everything is done at once."""
    world = FakeAccount(tmp_path, inline=True)
    yield world
    world.close()


@pytest.fixture
def threaded(tmp_path: Path) -> Iterator[FakeAccount]:
    """Return an account that has threads for its disk."""
    with ThreadPoolExecutor(2) as executor:
        world = FakeAccount(tmp_path, executor=executor)
        yield world
        world.close()


class Gate:
    """Holds restores up just before they are put in their place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.passed: list[str] = []
        place = Restore._place  # noqa: SLF001

        def wait(restore: Restore, aside: Path, home: Path) -> None:
            self.reached.set()
            assert self.open.wait(PATIENCE_S)
            restore._refuse_if_stopped()  # noqa: SLF001
            place(restore, aside, home)
            self.passed.append(restore.config.name)

        monkeypatch.setattr(Restore, "_place", wait)


def _until(is_so: Callable[[], object]) -> None:
    stop = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < stop
        time.sleep(0.001)


def _begin(world: FakeAccount, name: str = "S", **config: object) -> dict[str, Any]:
    plain = {"name": name, "subjects": [f"{name}.>"], "storage": "file", **config}
    return world.ask(f"STREAM.RESTORE.{name}", {"config": plain})


def _send(world: FakeAccount, data: bytes, **config: object) -> None:
    """Send a whole restore, and let it be unpacked."""
    place = _begin(world, "S", **config)["deliver_subject"]
    world.routes.publish((place, data, "chunk"))
    world.routes.publish((place, b"", "end"))
    world.settle()


def _answers(world: FakeAccount) -> list[dict[str, Any]]:
    return [json.loads(payload) for subject, payload in world.routes.take() if subject == "end"]


def _answered(world: FakeAccount) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        world.settle()
        found.extend(_answers(world))
        return bool(found)

    _until(is_there)
    return found[0]


def _restore_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "strandline-restore"]


# Servers that end.


def test_a_server_that_ends_waits_for_its_restores_and_nothing_of_them_follows(
    threaded: FakeAccount, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, order = Gate(monkeypatch), []
    _send(threaded, packed(*messages(3)))
    assert gate.reached.wait(PATIENCE_S)
    sink = next(iter(threaded.jetstream.snapshots._restores.under_way.values()))  # noqa: SLF001

    def close() -> None:
        threaded.jetstream.snapshots.close()
        order.append(_restore_threads())

    closing = threading.Thread(target=close)
    closing.start()
    _until(lambda: sink.restore._is_stopped)  # noqa: SLF001
    closing.join(0.1)
    assert order == []
    gate.open.set()
    closing.join(PATIENCE_S)
    assert order == [[]]
    assert gate.passed == []
    assert list((tmp_path / "streams").iterdir()) == []
    assert list((tmp_path / "restoring").iterdir()) == []
    threaded.settle()
    assert not threaded.jetstream.streams.streams


def test_what_is_in_its_place_when_the_server_ends_stays_and_can_be_opened(
    threaded: FakeAccount, tmp_path: Path
) -> None:
    _send(threaded, packed(saved_consumer(), *messages(3)))
    _until(lambda: threaded.posted)  # which is told, and not heard any more
    threaded.close()
    threaded.settle()
    assert not threaded.jetstream.streams.streams
    again = FakeAccount(tmp_path)
    assert again.jetstream.failures == {}
    assert again.ask("STREAM.INFO.S")["state"]["messages"] == 3
    assert again.ask("CONSUMER.INFO.S.C")["name"] == "C"
    again.close()


def test_consumers_that_are_being_opened_when_the_server_ends_are_closed_with_their_stream(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(work_queue, "BUDGET_NS", 1)
    monkeypatch.setattr(world.jetstream.clock, "now_ns", count(10**18).__next__)
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, packed(*map(saved_consumer, "CDE"), *messages(3)), "chunk"), (place, b"", "end"))
    while len(world.jetstream.consumers.entries.get("S", {})) < 2:
        world.posted.pop(0)()
    world.jetstream.snapshots.close()
    assert not world.jetstream.consumers.entries
    world.close()
    monkeypatch.undo()
    again = FakeAccount(tmp_path)
    assert again.ask("STREAM.INFO.S")["state"]["consumer_count"] == 3
    assert again.jetstream.consumers.unreadable == {}
    again.close()


def test_a_stream_that_is_in_the_way_is_not_touched(world: FakeAccount) -> None:
    streams = world.jetstream.streams
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, packed(*messages(3)), "chunk"))
    world.settle()
    restore = next(iter(world.jetstream.snapshots._restores.under_way.values())).restore  # noqa: SLF001
    world.stream("S", "S.>")
    with pytest.raises(Exception, match="already in use"):
        restore.finish()
    restore.remove()
    world.ask("STREAM.PURGE.S")
    assert streams.folder is not None
    assert (streams.folder / "S" / "front").exists()


# Nobody in the way.


def test_while_a_stream_is_put_in_its_place_nobody_takes_its_name_subjects_or_room(
    threaded: FakeAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    threaded.stream("A", "a", storage="memory")
    streams = threaded.jetstream.streams
    _send(threaded, packed(*messages(3)), max_bytes=1000)
    assert gate.reached.wait(PATIENCE_S)

    def make(name: str, subject: str) -> int:
        answer = threaded.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject], "storage": "memory"})
        return int(answer.get("error", {}).get("err_code", 0))

    assert make("T", "S.a") == 10065
    assert make("S", "b") == 10058
    changed = {"name": "A", "subjects": ["a", "S.*"], "storage": "memory"}
    assert threaded.ask("STREAM.UPDATE.A", changed)["error"]["err_code"] == 10065
    assert _begin(threaded)["error"]["err_code"] == 10130
    assert _begin(threaded, "T", subjects=["S.x"])["error"]["err_code"] == 10065
    assert (streams.used().streams, sum(streams.used().reserved.values())) == (2, 1000)
    gate.open.set()
    assert _answered(threaded)["state"]["messages"] == 3
    assert make("T", "S.a") == 10065
    assert (streams.used().streams, sum(streams.used().reserved.values())) == (2, 1000)
    threaded.ask("STREAM.DELETE.S")
    assert make("T", "S.a") == 0


def test_after_a_restore_has_failed_its_name_is_free(threaded: FakeAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Restore, "finish", lambda _: json.loads("{"))
        _send(threaded, packed(*messages(3)))
        assert "error" in _answered(threaded)
    assert threaded.jetstream.streams.coming == {}
    _send(threaded, packed(*messages(3)))
    assert _answered(threaded)["state"]["messages"] == 3


# Consumers.


def test_consumers_are_opened_in_turns_and_the_stream_is_there_after_the_last(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "BUDGET_NS", 1)
    monkeypatch.setattr(world.jetstream.clock, "now_ns", count(10**18).__next__)  # every look takes time
    place = _begin(world)["deliver_subject"]
    world.routes.publish((place, packed(*map(saved_consumer, "CDEF"), *messages(3)), "chunk"))
    world.routes.publish((place, b"", "end"))
    seen = []
    while "S" not in world.jetstream.streams.streams:
        world.posted.pop(0)()
        seen.append(len(world.jetstream.consumers.entries.get("S", {})))
    assert [seen.count(number) > 0 for number in range(1, 5)] == [True] * 4
    world.settle()
    assert _answers(world)[0]["state"]["consumer_count"] == 4


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_nothing_goes_from_a_stream_whose_consumers_are_not_all_there(world: FakeAccount, storage: str) -> None:
    consumers = [*(done_with(name, 10) for name in "CDE"), saved_consumer("LATE")]
    _send(world, packed(*consumers, *messages(10)), retention="interest", storage=storage)
    assert _answers(world)[0]["state"]["messages"] == 10
    world.jetstream.consumers.delete("S", "LATE")
    assert world.jetstream.streams.find("S").state().messages == 0


def test_what_a_consumer_acknowledges_stays_until_all_of_them_are_there(world: FakeAccount) -> None:
    _send(world, packed(*map(saved_consumer, "CD"), *messages(2)), retention="interest", storage="memory")
    registry = world.jetstream.consumers
    stream = world.jetstream.streams.find("S")
    found = [registry.entry("S", name) for name in "CD"]
    registry.entries.pop("S")
    done = SavedPosition((2, 2), (2, 2), {})
    arriving = [RestoredConsumer(ConsumerRecord(entry.created_ns, entry.config), done) for entry in found]
    steps = add_restored(registry, stream, arriving)
    next(steps)
    first = registry.entries["S"]["C"].consumer
    assert first.on_done is not None
    first.on_done(np.array([1], np.uint64))
    assert stream.state().messages == 2
    assert list(steps) == [None]
    settle_restored(registry, stream)
    assert stream.state().messages == 0


@pytest.mark.parametrize("cut", [0, 2])
def test_a_crash_leaves_a_stream_with_all_its_consumers_or_nothing(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut: int
) -> None:
    """A crash is one before the stream is there for anybody: in the middle of its consumers, or after them."""
    written: list[object] = []

    def write_some(*arguments: Any) -> None:  # noqa: ANN401 - those of what it stands for
        if cut and len(written) == cut:
            raise Closed("the process")
        write_restored(*arguments)
        written.append(arguments)

    monkeypatch.setattr(restore_module, "write_restored", write_some)
    place = _begin(world, retention="interest")["deliver_subject"]
    consumers = [*(done_with(name, 10) for name in "CDE"), saved_consumer("LATE")]
    world.routes.publish((place, packed(*consumers, *messages(10)), "chunk"))
    world.settle()
    restore = next(iter(world.jetstream.snapshots._restores.under_way.values())).restore  # noqa: SLF001
    if cut:
        with pytest.raises(Closed):
            restore.finish()
    else:
        restore.finish()
        restore.hand_over().close()
    again = FakeAccount(tmp_path / "copy")
    again.close()
    (tmp_path / "copy" / "streams").rmdir()
    (tmp_path / "streams").rename(tmp_path / "copy" / "streams")
    again = FakeAccount(tmp_path / "copy")
    if cut:
        assert again.ask("STREAM.INFO.S")["error"]["err_code"] == 10059
    else:
        state = again.ask("STREAM.INFO.S")["state"]
        assert (state["messages"], state["consumer_count"]) == (10, 4)
    again.close()
    (tmp_path / "copy" / "streams").rename(tmp_path / "streams")


def test_consumers_of_a_work_queue_that_share_messages_are_refused(world: FakeAccount) -> None:
    _send(world, packed(*map(saved_consumer, "CD"), *messages(2)), retention="workqueue")
    refused = _answers(world)[0]["error"]
    assert refused["err_code"] == 10062
    assert refused["description"].endswith("(10100)")
    assert not world.jetstream.streams.streams


def test_a_consumer_in_memory_comes_back_as_one(world: FakeAccount) -> None:
    memory = done_with("M", 2, mem_storage=True)
    _send(world, packed(memory, done_with("C", 1), *messages(3)))
    assert _answers(world)[0]["state"]["consumer_count"] == 2
    assert world.ask("CONSUMER.INFO.S.M")["num_pending"] == 1
    assert world.ask("CONSUMER.INFO.S.C")["num_pending"] == 2
    assert not world.jetstream.consumers.entry("S", "M").is_kept
    assert world.jetstream.consumers.entry("S", "C").is_kept


# Chunks.


def test_chunks_of_two_clients_are_unpacked_in_their_order_and_each_is_answered(
    world: FakeAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "BUDGET_NS", 1)
    monkeypatch.setattr(world.jetstream.clock, "now_ns", count(10**18).__next__)
    place = _begin(world)["deliver_subject"]
    world.routes.take()
    data = packed(*messages(50))
    parts = [data[at : at + 100] for at in range(0, len(data), 100)]
    world.routes.publish((place, parts[0], "chunk"))
    while not world.routes.sent:
        world.posted.pop(0)()
    for number, part in enumerate(parts[1:], 2):
        world.routes.publish((place, part, "chunk"), client=number)
    world.settle()
    assert [subject for subject, _ in world.routes.take()].count("chunk") == len(parts)
    world.routes.publish((place, b"", "end"))
    world.settle()
    assert _answers(world)[0]["state"]["messages"] == 50
