"""The inventory of a stream: what was committed is in it, what was not goes, and it is shown once it is whole."""

from itertools import pairwise
from pathlib import Path

import pytest

from strandline.detect import load_builtin
from strandline.journal import Journal
from strandline.pipeline.identity import TenantSecretKey
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import MemoryState
from strandline.scan.inventory import read_inventories
from strandline.scan.request import ScanRequest
from strandline.scan.sources import JournalSource
from strandline.scan.state import tenant_named
from strandline.spark.journal_scan import inventory
from strandline.spark.journal_scan.blocks import BlockPart
from strandline.spark.journal_scan.inventory import StreamInventory

TENANT = tenant_named("t")


class ScannedJournal:
    """A journal, a state, and streams over them."""

    def __init__(self, folder: Path) -> None:
        with Journal.open(folder / "j") as journal:
            journal.append([b"x"])
        self.source = JournalSource.at(folder / "j")
        key = TenantSecretKey(b"k" * 32)
        self.request = ScanRequest((self.source,), load_builtin(), TENANT, key, str(folder / "none.db"))
        self.fence = 1
        self.state = MemoryState(lambda _tenant, _run, _shard: self.fence)

    def stream(self, *, done: int, end: int, begin: int = 0, fence: int = 1) -> StreamInventory:
        writer = WriteContext(TENANT, self.request.policy_hash, 1, 0, fence)
        return StreamInventory(self.state, self.request, self.source, writer, begin=begin, done=done, end=end)

    def listed(self) -> list[bytes]:
        """Return the beginnings of the versions that are shown."""
        return [
            version.rpartition(b":")[0]
            for inventory in read_inventories(self.state, TENANT)
            for items in inventory.items(self.state, TENANT)
            for version in items["version"].to_pylist()
        ]


def parts(*bounds: int) -> list[BlockPart]:
    return [
        BlockPart(first, next_, dict.fromkeys(("records", "bytes"), next_ - first), [])
        for first, next_ in pairwise(bounds)
    ]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScannedJournal:
    monkeypatch.setattr(inventory, "CHUNK_ROWS", 3)
    return ScannedJournal(tmp_path)


def test_every_part_is_listed_in_order_over_many_chunks(world: ScannedJournal) -> None:
    inventory = world.stream(done=0, end=10)
    for at in range(0, 20, 2):
        inventory.add(parts(at, at + 1, at + 2))
    assert world.listed() == [b"blk:%d:%d" % (at, at + 1) for at in range(20)]
    (head,) = read_inventories(world.state, TENANT)
    assert (head.rows, head.chunks) == (20, 7)


def test_what_was_never_committed_goes_when_the_next_begins(world: ScannedJournal) -> None:
    world.stream(done=0, end=5).add(parts(0, 5, 9))
    world.stream(done=5, end=9).add(parts(5, 7))
    assert world.listed() == [b"blk:0:5", b"blk:5:7"]


def test_what_retention_took_goes_when_the_next_begins(world: ScannedJournal) -> None:
    world.stream(done=0, end=5).add(parts(0, 5, 9))
    world.stream(done=9, end=9, begin=5)
    assert world.listed() == [b"blk:5:9"]


def test_it_is_shown_once_the_stream_has_come_to_where_the_journal_ended(world: ScannedJournal) -> None:
    inventory = world.stream(done=0, end=10)
    inventory.add(parts(0, 4))
    assert world.listed() == []
    inventory = world.stream(done=4, end=12)
    inventory.add(parts(4, 11))
    assert world.listed() == []
    inventory.add(parts(11, 12))
    assert world.listed() == [b"blk:0:4", b"blk:4:11", b"blk:11:12"]
    world.stream(done=12, end=99)
    assert len(world.listed()) == 3, "and stays shown"


def test_a_stream_that_lost_its_shard_changes_nothing(world: ScannedJournal) -> None:
    old = world.stream(done=0, end=5)
    old.add(parts(0, 5))
    world.fence = 2
    world.stream(done=5, end=5, fence=2).add(parts(5, 6))
    with pytest.raises(Exception, match="fence"):
        old.add(parts(5, 9))
    assert world.listed() == [b"blk:0:5", b"blk:5:6"]


def test_nothing_is_left_of_chunks_that_were_replaced(world: ScannedJournal) -> None:
    for done in range(5):
        world.stream(done=done, end=5).add(parts(done, done + 1))
    (head,) = read_inventories(world.state, TENANT)
    chunks = [key for key in vars(world.state)["_values"] if b"/" in key[1].removeprefix(b"inventory/")[32:]]
    assert len(chunks) == head.chunks
