"""The index beside a log makes opening it faster and changes nothing else, whatever became of the two."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from strandline.errors import Damaged
from strandline.files import OsFile
from strandline.fold import AppendLogStore, append_log, log_index
from strandline.fold.log_index import format_index, parse_index
from strandline.fold.log_scan import NOTHING, Known
from strandline.journal import WRITTEN
from strandline.sim import SimDisk
from strandline.sim.disk import Fault
from strandline.testing.snapshot_stores import changes, entry, everything
from tests.effort import Part, parts
from tests.fold.bytes_of_logs import disk_with

PLACE = Path("/folds/fold.log")
INDEX = Path("/folds/fold.log.index")


@pytest.fixture(autouse=True)
def _every_log_has_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_log, "INDEX_BYTES_MIN", 0)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Known]:
    """Return what was known of each log that is opened from now on."""
    found: list[Known] = []

    def noted(content: bytes, log: bytes) -> Known | None:
        found.append(parse_index(content, log) or NOTHING)
        return found[-1]

    monkeypatch.setattr(append_log, "parse_index", noted)
    return found


def fill(store: AppendLogStore, batches: int = 4, first: int = 1) -> None:
    for at in range(first, first + batches):
        rows = [(b"key %d" % (number % (5 + at)), b"%d" % number * at) for number in range(9)]
        store.apply(*changes(100 * at, *rows, (b"key %d" % at, None), (b"gone", None)))


def log_and_index(*, ask: bool = False, settle: bool = False) -> tuple[bytes, bytes]:
    """Return a log that was closed properly, and its index."""
    disk = SimDisk()
    with AppendLogStore.open(PLACE, disk=disk) as store:
        fill(store)
        if ask:
            store.range()
        if settle:
            store.settle()
    return content(disk, PLACE), content(disk, INDEX)


def content(disk: SimDisk, path: Path) -> bytes:
    return disk.open(path, "read").pread(1 << 20, 0)


def placed(log: bytes, index: bytes | None) -> SimDisk:
    disk = disk_with(log)
    if index is not None:
        disk.open(INDEX, "create").pwritev([index], 0)
    return disk


def outcome(log: bytes, index: bytes | None) -> object:
    """Return what opening a log comes to: its state, or what is wrong with it."""
    try:
        store = AppendLogStore.open(PLACE, disk=placed(log, index))
    except Damaged as damaged:
        return damaged.problem
    return everything(store), store.verify()


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize("settle", [False, True])
def test_a_whole_index_knows_all_of_the_log(ask: bool, settle: bool, used: list[Known]) -> None:
    log, index = log_and_index(ask=ask, settle=settle)
    assert outcome(log, index) == outcome(log, None)
    assert [known.end for known in used] == [len(log)]


@parts(4)
def test_an_index_that_is_behind_its_log_knows_the_beginning(used: list[Known], part: Part) -> None:
    disk = SimDisk()
    with AppendLogStore.open(PLACE, disk=disk) as store:
        fill(store)
    behind = content(disk, INDEX)
    size = len(content(disk, PLACE))
    with AppendLogStore.open(PLACE, disk=disk) as store:
        fill(store, 3, 5)
    log = content(disk, PLACE)
    used.clear()
    for cut in part.of(range(size, len(log))):
        assert outcome(log[:cut], behind) == outcome(log[:cut], None)
        assert used.pop().end == size


def test_an_index_cut_anywhere_is_none(used: list[Known]) -> None:
    log, index = log_and_index()
    wanted = outcome(log, None)
    for cut in range(len(index)):
        assert outcome(log, index[:cut]) == wanted
        assert used.pop() is NOTHING
    assert outcome(log, index + b"\0") == wanted
    assert used.pop() is NOTHING


def test_an_index_with_a_flipped_bit_is_none(used: list[Known]) -> None:
    log, index = log_and_index()
    wanted = outcome(log, None)
    for at in range(len(index)):
        assert outcome(log, flipped(index, at, at % 8)) == wanted
        assert used.pop() is NOTHING


def test_the_index_of_another_log_is_none(used: list[Known]) -> None:
    log, _ = log_and_index()
    disk = SimDisk()
    with AppendLogStore.open(PLACE, disk=disk) as store:
        fill(store, 5)
    assert outcome(log, content(disk, INDEX)) == outcome(log, None)
    assert used.pop() is NOTHING


def test_an_index_of_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    log, index = log_and_index()
    known = parse_index(index, log)
    assert known is not None
    assert format_index([memoryview(log)], known.rows, known.cursor) == index
    monkeypatch.setattr(log_index, "VERSION", 2)
    assert parse_index(index, log) is None


@pytest.mark.parametrize("settle", [False, True])
def test_a_flipped_bit_in_the_log_is_found_under_a_whole_index_as_without_one(settle: bool) -> None:
    log, index = log_and_index(settle=settle)
    for at in range(6, len(log)):
        harmed = flipped(log, at, at % 8)
        assert outcome(harmed, index) == outcome(harmed, None), at


def test_a_log_cut_anywhere_under_its_index_is_as_without_one() -> None:
    log, index = log_and_index()
    for cut in range(0, len(log), 3):
        assert outcome(log[:cut], index) == outcome(log[:cut], None)


def test_bytes_overwritten_at_random_come_to_the_same_with_and_without_an_index() -> None:
    log, index = log_and_index()
    random = Random(3)
    for _ in range(300):
        at = random.randrange(6, len(log))
        junk = random.choice([random.randbytes(random.randrange(1, 60)), bytes(random.randrange(1, 60))])
        harmed = (log[:at] + junk + log[at + len(junk) :])[: random.choice([len(log), random.randrange(6, len(log))])]
        assert outcome(harmed, index) == outcome(harmed, None)


@pytest.mark.parametrize("operation", ["create", "pwritev", "rename", "remove"])
def test_an_index_that_cannot_be_written_is_only_missing(operation: str) -> None:
    disk = SimDisk()
    store = AppendLogStore.open(PLACE, disk=disk)
    fill(store)
    before = everything(store)
    disk.open(PLACE.with_name("fold.log.index.tmp"), "create")
    disk.fault = Fault(frozenset({operation}), 1)
    store.close()
    disk.fault = None
    with AppendLogStore.open(PLACE, disk=disk) as again:
        assert everything(again) == before
        again.apply(*changes(9000, (b"new", b"x")))
        assert again.get(b"new") == entry(b"new", b"x", 9000)


def test_an_index_that_cannot_be_read_is_only_missing(tmp_path: Path) -> None:
    path = tmp_path / "fold.log"
    with AppendLogStore.open(path) as store:
        fill(store)
        wanted = everything(store)
    path.with_name("fold.log.index").unlink()
    path.with_name("fold.log.index").mkdir()
    with AppendLogStore.open(path) as store:
        assert everything(store) == wanted
    assert AppendLogStore.open_read_only(path).range() == wanted[1]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Return where files are written to from now on, and how many bytes."""
    found: list[tuple[int, int]] = []
    whole = OsFile.pwritev

    def noted(self: OsFile, buffers: list[bytes], position: int, *, sync: bool = False) -> int:
        found.append((position, sum(map(len, buffers))))
        return whole(self, buffers, position, sync=sync)

    monkeypatch.setattr(OsFile, "pwritev", noted)
    return iter([found])


def test_what_an_index_vouches_for_is_not_written_back_after_a_kill(
    written: Iterator[list[tuple[int, int]]], tmp_path: Path
) -> None:
    path, left = tmp_path / "fold" / "fold.log", tmp_path / "left" / "fold.log"
    writes = next(written)
    with AppendLogStore.open(path) as store:
        fill(store)
    covered = path.stat().st_size
    with AppendLogStore.open(path, sync=WRITTEN) as store:
        fill(store, 2, 7)
        shutil.copytree(path.parent, left.parent)  # what a killed process would leave
        wanted = everything(store)
    writes.clear()
    with AppendLogStore.open(left) as again:
        assert writes == [(covered, left.stat().st_size - covered)]
        assert everything(again) == wanted


def test_a_log_that_was_never_synced_gets_no_index(tmp_path: Path) -> None:
    path, left = tmp_path / "fold" / "fold.log", tmp_path / "left" / "fold.log"
    with AppendLogStore.open(path, sync=WRITTEN) as store:
        fill(store)
        shutil.copytree(path.parent, left.parent)
    index = left.with_name("fold.log.index")
    index.unlink(missing_ok=True)
    AppendLogStore.open(left, sync=WRITTEN).close()
    assert not index.exists(), "what it read may be in memory only"


def test_a_small_log_has_no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(append_log, "INDEX_BYTES_MIN", 1024 * 1024)
    path = tmp_path / "fold.log"
    with AppendLogStore.open(path) as store:
        fill(store)
    assert not path.with_name("fold.log.index").exists()
    with AppendLogStore.open(path) as store:
        store.apply(*changes(9000, (b"large", bytes(1024 * 1024))))
    assert path.with_name("fold.log.index").exists()


def test_an_index_stays_while_little_follows_what_it_covers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, used: list[Known]
) -> None:
    """A log of any size is closed without reading all of it again."""
    monkeypatch.setattr(append_log, "INDEX_BYTES_MIN", 4096)
    path, sizes = tmp_path / "fold.log", []
    for revision, length in ((1, 9000), (2, 1000), (3, 1000), (4, 4000), (5, 10)):
        with AppendLogStore.open(path) as store:
            store.apply(*changes(revision, (b"key %d" % revision, bytes(length))))
        sizes.append(path.stat().st_size)
        assert len(AppendLogStore.open_read_only(path).range()) == revision
    assert [known.end for known in used[0::2]] == [sizes[0], sizes[0], sizes[0], sizes[3], sizes[3]]


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
