"""A stream that failed is opened again beside the loop: it holds nobody up, is read meanwhile, and ends in time.

The disk has real threads here; the loop is the test's own.
"""

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from strandline.broker.consumers.stream_events import StreamEvents
from strandline.broker.jetstream.stream_recovery import RETRY_MIN_NS
from strandline.broker.streams import Stream
from strandline.broker.streams.registry import Streams
from strandline.clock import NS_PER_S
from strandline.errors import Closed, StorageRefused
from strandline.files import OsDisk
from tests.broker.jetstream.fakes import FakeAccount
from tests.journal.helpers import WatchedDisk
from tests.waiting import PATIENCE_S


class Gate:
    """Holds up whoever opens a stream again, on another thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.refusals: list[StorageRefused] = []
        self.opened: list[Stream] = []
        self.ended = threading.Event()
        real, here = Streams._open, threading.current_thread()  # noqa: SLF001

        def opens(streams: Streams, folder: Path) -> Stream:
            if threading.current_thread() is here:
                pytest.fail("the loop waits")
            self.reached.set()
            assert self.open.wait(PATIENCE_S)
            if self.refusals:
                raise self.refusals.pop()
            self.opened.append(real(streams, folder))
            self.ended.set()
            return self.opened[-1]

        monkeypatch.setattr(Streams, "_open", opens)


class StreamRecovery:
    """An account with threads for its disk, one of whose streams fails when it is told to."""

    def __init__(self, folder: Path, executor: ThreadPoolExecutor) -> None:
        self.folder = folder / "streams" / "BAD"
        self.fails = False
        self.world = FakeAccount(folder, executor=executor, disk=WatchedDisk(OsDisk(), self._watch))
        self.asked = 0
        for name in ("BAD", "GOOD"):
            config = {"name": name, "subjects": [f"{name}.*"], "allow_direct": True}
            assert "error" not in self.ask(f"$JS.API.STREAM.CREATE.{name}", config)
            assert self.ask(f"{name}.a", b"before") == {"stream": name, "seq": 1}

    def _watch(self, operation: str, path: Path, size: int) -> None:
        del size
        if self.fails and "BAD" in path.parts and operation == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def until(self, is_so: Callable[[], object]) -> None:
        """Have turns until something is so."""
        stop = time.monotonic() + PATIENCE_S
        while not is_so():
            self.turn()
            assert time.monotonic() < stop
            time.sleep(0.001)

    def turn(self) -> None:
        self.world.turn()
        self.world.jetstream.tick(self.world.clock.now_ns())
        while self.world.posted:
            self.world.posted.pop(0)()

    def raw(self, subject: str, body: object = b"") -> bytes:
        """Ask something, and return the answer."""
        self.asked += 1
        reply, found = f"answer.{self.asked}", list[bytes]()

        def is_answered() -> bool:
            found.extend(payload for to, payload in self.world.routes.take() if to == reply)
            return bool(found)

        self.world.routes.publish((subject, body if isinstance(body, bytes) else json.dumps(body).encode(), reply))
        self.until(is_answered)
        return found[0]

    def ask(self, subject: str, body: object = b"") -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.raw(subject, body))
        return answer

    def fail(self) -> None:
        """Let a publish fail, and wait until it is known what is durable."""
        self.fails = True
        assert "error" in self.ask("BAD.a", b"never")
        self.until(lambda: self.world.jetstream.streams.streams["BAD"].failure is None)
        self.fails = False

    def pause(self) -> None:
        self.world.clock.advance(2 * RETRY_MIN_NS / NS_PER_S)

    @property
    def is_well(self) -> bool:
        return not self.world.jetstream.failures


@pytest.fixture
def mending(tmp_path: Path) -> Iterator[StreamRecovery]:
    with ThreadPoolExecutor(3) as executor:
        made = StreamRecovery(tmp_path, executor)
        yield made
        made.turn()
        made.world.jetstream.close()


@pytest.fixture
def gate(mending: StreamRecovery, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Let a stream be opened again, but not yet."""
    made = Gate(monkeypatch)
    config = {"durable_name": "c", "ack_policy": "none", "mem_storage": True}
    assert "error" not in mending.ask("$JS.API.CONSUMER.CREATE.BAD.c", {"stream_name": "BAD", "config": config})
    mending.fail()
    mending.pause()
    mending.until(made.reached.is_set)
    yield made
    made.open.set()


def _is_read(mending: StreamRecovery) -> None:
    assert mending.raw("$JS.API.DIRECT.GET.BAD", b'{"seq":1}') == b"before"
    assert mending.raw("$JS.API.CONSUMER.MSG.NEXT.BAD.c", b"1") == b"before"
    assert mending.ask("$JS.API.STREAM.INFO.BAD")["state"]["messages"] == 1


def test_everybody_is_served_while_a_stream_is_opened_again(mending: StreamRecovery, gate: Gate) -> None:
    assert mending.ask("GOOD.a", b"meanwhile")["seq"] == 2
    _is_read(mending)
    assert "error" in mending.ask("BAD.a", b"too early")
    changed = {"name": "BAD", "subjects": ["BAD.*"], "allow_direct": True, "description": "new"}
    assert "error" in mending.ask("$JS.API.STREAM.UPDATE.BAD", changed)
    assert "error" in mending.ask("$JS.API.STREAM.RESTORE.BAD", {"config": changed})
    old = mending.world.jetstream.streams.streams["BAD"]
    gate.open.set()
    mending.until(lambda: mending.is_well)
    with pytest.raises(Closed):
        old.get(1)
    assert mending.ask("BAD.a", b"after")["seq"] > 1
    assert mending.ask("$JS.API.CONSUMER.INFO.BAD.c")["name"] == "c"


def test_a_stream_that_cannot_be_opened_yet_can_still_be_read(mending: StreamRecovery, gate: Gate) -> None:
    gate.refusals.append(StorageRefused("journal", "it fails again", "EIO"))
    gate.reached.clear()
    gate.open.set()
    mending.until(lambda: not gate.refusals)
    gate.open.clear()
    mending.turn()
    _is_read(mending)
    for _ in range(5):
        mending.pause()
        mending.turn()
    mending.until(gate.reached.is_set)
    gate.open.set()
    mending.until(lambda: mending.is_well)
    assert mending.ask("BAD.a", b"after")["seq"] > 1


def test_a_stream_is_not_removed_while_it_is_opened_again(mending: StreamRecovery, gate: Gate) -> None:
    error = mending.ask("$JS.API.STREAM.DELETE.BAD")["error"]
    assert (error["code"], error["err_code"]) == (500, 10050)
    assert "is being opened again" in error["description"]
    _is_read(mending)
    gate.open.set()
    mending.until(lambda: mending.is_well)
    assert mending.ask("$JS.API.STREAM.DELETE.BAD")["success"]
    assert not mending.folder.exists()


def test_a_stream_that_is_removed_just_when_it_was_opened_again_is_gone_and_let_go_of(
    mending: StreamRecovery, gate: Gate
) -> None:
    gate.open.set()
    assert gate.ended.wait(PATIENCE_S)  # and the loop has not heard of it
    assert mending.ask("$JS.API.STREAM.DELETE.BAD")["success"]
    assert not mending.folder.exists()
    with pytest.raises(Closed):
        gate.opened[0].compact_step()
    config = {"name": "BAD", "subjects": ["BAD.*"], "allow_direct": True}
    assert "error" not in mending.ask("$JS.API.STREAM.CREATE.BAD", config)
    assert mending.ask("BAD.a", b"another") == {"stream": "BAD", "seq": 1}
    assert mending.raw("$JS.API.DIRECT.GET.BAD", b'{"seq":1}') == b"another"
    assert len(gate.opened) == 1


def test_a_server_that_ends_waits_for_a_stream_that_is_opened_again_and_lets_go_of_it(
    mending: StreamRecovery, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jetstream = mending.world.jetstream
    closing = threading.Thread(target=jetstream.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    gate.open.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert len(gate.opened) == 1
    monkeypatch.undo()
    mending.turn()
    after = FakeAccount(tmp_path)
    assert not after.jetstream.failures
    assert after.ask("STREAM.INFO.BAD")["state"]["messages"] in (1, 2)
    after.close()


def test_a_removal_that_fails_does_not_end_the_mending(
    mending: StreamRecovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    mending.fail()
    mending.pause()
    mending.world.jetstream.tick(mending.world.clock.now_ns())  # which probes the disk

    def refuse(following: StreamEvents, name: str) -> None:
        del following
        raise StorageRefused(name, "it fails again", "EIO")

    with monkeypatch.context() as patch:
        patch.setattr(StreamEvents, "deleting", refuse)
        assert "error" in mending.ask("$JS.API.STREAM.DELETE.BAD")
    for _ in range(5):
        mending.pause()
        mending.turn()
    mending.until(lambda: mending.is_well)
    assert mending.ask("BAD.a", b"after")["seq"] > 1


def test_a_stream_is_not_opened_again_before_it_is_known_what_of_it_can_be_shown(tmp_path: Path) -> None:
    world = FakeAccount(tmp_path)
    world.stream("S")
    stream = world.jetstream.streams.streams["S"]
    stream._store.append = Mock(side_effect=StorageRefused("S", "it fails", "EIO"))  # type: ignore[method-assign] # noqa: SLF001
    world.routes.publish(("S", b"1", "one"))
    world.turn()
    for _ in range(3):
        world.clock.advance(60)
        world.jetstream.tick(world.clock.now_ns())
        assert len(world.disk.waiting) == 1
        assert world.jetstream.streams.streams["S"] is stream
    world.settle()
    assert world.jetstream.streams.streams["S"] is not stream
    world.clock.advance(60)
    world.jetstream.tick(world.clock.now_ns())
    world.settle()
    world.settle()
    assert not world.jetstream.failures
    world.close()
