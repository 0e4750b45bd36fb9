"""The power goes at every change of the disk while a stream is removed and another of its name is made."""

import contextlib
from random import Random

import pytest

from strandline.broker.api.checks import check_create
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.streams import PublishBatch, Stream, remove_stream, stream_exists
from strandline.broker.streams.files import remove_leftovers
from strandline.clock import ManualClock
from strandline.errors import StrandlineError
from strandline.files import Disk
from strandline.gather import InlineExecutor
from strandline.sim import SimDisk
from tests.broker.streams.helpers import FOLDER
from tests.journal.helpers import WatchedDisk, telling
from tests.journal.model import PowerCut
from tests.waiting import PATIENCE_S

CONFIG = check_create(StreamConfig(name="S", subjects=("s",)), Neighbours())


class Life:
    """One stream after another in one folder, up to the moment when the power goes."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.cut = PowerCut()
        self.clock = ManualClock()
        self.acknowledged: list[str] = []

    def run(self, words: tuple[str, ...], *, keep_index: bool) -> None:
        disk = WatchedDisk(self.disk, self.cut)
        for word in words:
            self.clock.advance(1)
            stream = self.make(disk)
            self.publish(stream, word)
            stream.close(keep_index=keep_index)
            if word != words[-1]:
                self.acknowledged = []
                remove_stream(disk, FOLDER)

    def make(self, disk: Disk) -> Stream:
        return Stream.create(FOLDER, CONFIG, disk=disk, clock=self.clock, executor=InlineExecutor())

    def publish(self, stream: Stream, word: str) -> None:
        for number in range(3):
            payload = f"{word} {number}"
            stream.publish(PublishBatch([b"s"], [payload.encode()]), self.clock.now_ns()).ticket.result(PATIENCE_S)
            self.acknowledged.append(payload)

    def held(self) -> list[str]:
        stream = Stream.open(FOLDER, disk=self.disk, clock=self.clock, executor=InlineExecutor())
        found = stream.read(stream.next_sequences(stream.filter(()), 0, 100))
        assert found.sequences.tolist() == list(range(1, len(found.sequences) + 1))
        stream.close()
        return [payload.decode() for payload in found.payloads]


@pytest.mark.parametrize("keep_index", [True, False])
def test_one_stream_is_there_or_the_other_or_none_and_never_both(*, keep_index: bool) -> None:
    words = ("old", "new")
    whole = Life()
    whole.run(words, keep_index=keep_index)
    for changes in range(whole.cut.seen + 1):
        with telling(changes=changes):
            life = Life()
            life.cut.left = changes
            with contextlib.suppress(StrandlineError):
                life.run(words, keep_index=keep_index)
            life.disk.crash(Random(changes))
            held = life.held() if stream_exists(life.disk, FOLDER) else []
            assert len({payload.split()[0] for payload in held}) <= 1
            assert set(life.acknowledged) <= set(held)
            if not stream_exists(life.disk, FOLDER):
                life.publish(life.make(life.disk), "after")
                life.disk.kill()
                assert life.held() == ["after 0", "after 1", "after 2"]


def test_what_is_left_of_a_removal_goes_only_when_the_stream_cannot_come_back() -> None:
    def begin() -> Life:
        life = Life()
        life.run(("old",), keep_index=True)
        return life

    whole = begin()
    before = whole.cut.seen
    remove_stream(WatchedDisk(whole.disk, whole.cut), FOLDER)
    for changes in range(whole.cut.seen - before):
        for seed in range(12):
            with telling(changes=changes, seed=seed):
                life = begin()
                life.cut.left = changes
                with contextlib.suppress(StrandlineError):
                    remove_stream(WatchedDisk(life.disk, life.cut), FOLDER)
                life.disk.kill()
                remove_leftovers(life.disk, FOLDER)
                life.disk.crash(Random(seed))
                if stream_exists(life.disk, FOLDER):
                    assert life.held() == life.acknowledged
