"""A disk with few handles is the disk itself, only that an error of a forgotten handle is never forgotten."""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from strandline.errors import CommitFailed, Poisoned
from strandline.files import File, OpenMode, OsDisk
from strandline.gather import InlineExecutor
from strandline.groups.store import open_store
from strandline.journal import WRITTEN, Journal
from strandline.journal.handles import ROOM, HandleDisk
from strandline.sim import Fault, SimDisk
from tests.journal.helpers import SMALL, WAIT_S, Tally, WatchedDisk, in_threads, open_descriptors, open_sim, values_of

HOME = Path("/sim/home")


def few(limit: int = 2, tally: Tally | None = None) -> tuple[HandleDisk, SimDisk]:
    disk = SimDisk()
    disk.make_folder(HOME)
    return HandleDisk(disk if tally is None else WatchedDisk(disk, tally), limit), disk


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_it_does_what_the_disk_does_with_few_files_open(limit: int) -> None:
    shared, _ = few(limit)
    random = Random(limit)
    plain: dict[str, bytearray] = {}
    files: dict[str, File] = {}
    for step in range(600):
        name = f"{random.randrange(6)}"
        if name not in files:
            files[name] = shared.open(HOME / name, "write" if name in plain else "create")
            plain.setdefault(name, bytearray())
        file, expected = files[name], plain[name]
        match random.randrange(6):
            case 0 | 1:
                position, data = random.randrange(200), random.randbytes(random.randrange(1, 50))
                file.pwritev([data[:5], data[5:]], position, sync=random.random() < 0.3)
                expected.extend(bytes(max(0, position - len(expected))))
                expected[position : position + len(data)] = data
            case 2:
                size = random.randrange(200)
                file.truncate(size)
                del expected[size:]
                expected.extend(bytes(size - len(expected)))
            case 3:
                file.sync()
            case 4:
                file.close()
                del files[name]
            case _:
                assert file.pread(1000, 0) == bytes(expected)
                assert file.size() == len(expected)
        assert shared.open_files <= limit, step


def test_what_was_written_is_synced_before_its_handle_goes() -> None:
    tally = Tally()
    shared, _ = few(1, tally)
    first = shared.open(HOME / "first", "create")
    first.pwritev([b"x"], 0)
    tally.clear()
    shared.open(HOME / "second", "create")
    assert ("sync", "first") in tally.log
    tally.clear()
    assert first.pread(1, 0) == b"x"
    shared.open(HOME / "third", "create")
    assert ("sync", "first") not in tally.log, "nothing was written since"


@pytest.mark.parametrize("change", ["pwritev", "truncate", "allocate"])
def test_any_change_is_synced(change: str) -> None:
    tally = Tally()
    shared, _ = few(1, tally)
    first = shared.open(HOME / "first", "create")
    if change == "pwritev":
        first.pwritev([b"x"], 0)
    elif change == "truncate":
        first.truncate(10)
    else:
        first.allocate(10)
    tally.clear()
    shared.open(HOME / "second", "create")
    assert ("sync", "first") in tally.log


def test_a_synced_write_leaves_earlier_ones_to_be_synced() -> None:
    tally = Tally()
    shared, _ = few(1, tally)
    first = shared.open(HOME / "first", "create")
    first.pwritev([b"unsynced"], 0)
    first.pwritev([b"synced"], 100, sync=True)
    tally.clear()
    shared.open(HOME / "second", "create")
    assert ("sync", "first") in tally.log


def test_a_sync_that_fails_on_the_way_is_told_at_every_later_use() -> None:
    shared, disk = few(1)
    first = shared.open(HOME / "first", "create")
    first.pwritev([b"x"], 0)
    disk.fault = Fault(frozenset({"sync"}), 1)
    shared.open(HOME / "second", "create")  # is not to blame, and is not told
    for call in (first.sync, lambda: first.pwritev([b"y"], 1), lambda: first.pread(1, 0), first.size):
        with pytest.raises(OSError, match="Input/output error") as caught:
            call()
        assert caught.value.errno == errno.EIO
    first.close()


@pytest.mark.parametrize("use", ["append", "sync", "close"])
def test_a_sync_that_fails_on_the_way_poisons_the_journal(use: str) -> None:
    shared, disk = few(2)
    journal = Journal.open(HOME / "j", SMALL, disk=shared, executor=InlineExecutor())
    journal.append([b"a"])
    journal.append([b"w"], durability=WRITTEN)
    assert journal.durable_offset == 1
    disk.fault = Fault(frozenset({"sync"}), 1)
    for number in range(4):
        shared.open(HOME / f"{number}", "create")
    assert disk.fault.countdown <= 0, "the segment's handle was put away"
    calls = {"append": lambda: journal.append([b"b"]), "sync": journal.sync, "close": journal.close}
    with pytest.raises(CommitFailed):
        calls[use]()
    assert journal.durable_offset == 1
    if use != "close":
        with pytest.raises(Poisoned):
            journal.append([b"c"])
    disk.kill()
    again = Journal.open(HOME / "j", SMALL, disk=disk, executor=InlineExecutor())
    assert values_of(again)[0] == b"a"


def test_a_file_that_is_gone_is_missing_when_it_is_opened_again() -> None:
    shared, disk = few(1)
    first = shared.open(HOME / "first", "create")
    shared.open(HOME / "second", "create")
    disk.remove(HOME / "first")
    with pytest.raises(FileNotFoundError):
        first.pread(1, 0)


def test_a_closed_file_fails_and_closing_twice_is_harmless() -> None:
    shared, _ = few(1)
    file = shared.open(HOME / "first", "create")
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)
    assert shared.open_files == 0


def test_all_idle_handles_can_be_closed() -> None:
    shared, _ = few(5)
    files = [shared.open(HOME / f"{number}", "create") for number in range(4)]
    assert shared.open_files == 4
    shared.close_idle()
    assert shared.open_files == 0
    assert [file.size() for file in files] == [0] * 4


def test_a_file_in_use_is_not_put_away_under_its_user() -> None:
    """A slow operation on one file, and many others opened meanwhile."""
    entered, go_on = threading.Event(), threading.Event()

    def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
        if operation == "pwritev" and path.name == "slow":
            entered.set()
            assert go_on.wait(WAIT_S)

    disk = SimDisk()
    disk.make_folder(HOME)
    shared = HandleDisk(WatchedDisk(disk, watch), 1)
    slow = shared.open(HOME / "slow", "create")
    thread = threading.Thread(target=slow.pwritev, args=([b"done"], 0), daemon=True)
    thread.start()
    assert entered.wait(WAIT_S)
    others = [shared.open(HOME / f"{number}", "create") for number in range(5)]
    assert shared.open_files <= 2
    go_on.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert slow.pread(4, 0) == b"done"
    assert len(others) == 5


def test_many_threads_over_one_handle(tmp_path: Path) -> None:
    shared = HandleDisk(OsDisk(), 1)
    files = [shared.open(tmp_path / f"{number}", "create") for number in range(4)]

    def work(who: int) -> bool:
        for step in range(200):
            files[who].pwritev([b"%04d" % step], 4 * step)
            if files[who].pread(4, 4 * step) != b"%04d" % step:
                return False
        return True

    assert in_threads([lambda n=n: work(n) for n in range(4)]) == [True] * 4  # type: ignore[misc]
    for file in files:
        file.close()
    assert shared.open_files == 0


def test_a_journal_on_one_handle_is_a_journal() -> None:
    shared, disk = few(1)
    with Journal.open(HOME / "j", SMALL, disk=shared, executor=InlineExecutor()) as journal:
        for number in range(30):
            journal.append([b"%d" % number + bytes(200)])
        assert len(values_of(journal)) == 30
        journal.remove_below(20)
    with Journal.open(HOME / "j", SMALL, disk=disk, executor=InlineExecutor()) as journal:
        assert journal.next_offset == 30
    assert open_sim(SimDisk()).next_offset == 0


# Names.


def test_a_file_is_found_where_it_was_moved_to() -> None:
    shared, disk = few(1)
    moved = shared.open(HOME / "temporary", "create")
    moved.pwritev([b"new"], 0)
    replaced = shared.open(HOME / "name", "create")
    replaced.pwritev([b"old"], 0)
    shared.rename(HOME / "temporary", HOME / "name")
    shared.close_idle()
    assert moved.pread(3, 0) == b"new"
    disk.open(HOME / "temporary", "create").pwritev([b"another"], 0)
    shared.close_idle()
    assert moved.pread(3, 0) == b"new"
    shared.close_idle()
    with pytest.raises(FileNotFoundError):
        replaced.pread(3, 0)


def test_a_rename_that_fails_leaves_both_where_they_are() -> None:
    shared, disk = few(1)
    files = {name: shared.open(HOME / name, "create") for name in ("source", "target")}
    for name, file in files.items():
        file.pwritev([name.encode()], 0)
    disk.fault = Fault(frozenset({"rename"}), 1)
    with pytest.raises(OSError, match="Input/output error"):
        shared.rename(HOME / "source", HOME / "target")
    shared.close_idle()
    assert [file.pread(10, 0) for file in files.values()] == [b"source", b"target"]


@pytest.mark.parametrize("by", ["the same disk", "another"])
def test_a_file_that_came_in_the_place_of_another_is_not_read_for_it(by: str) -> None:
    shared, disk = few(1)
    old = shared.open(HOME / "name", "create")
    shared.close_idle()
    (shared if by == "the same disk" else disk).remove(HOME / "name")
    new = shared.open(HOME / "name", "create")
    new.pwritev([b"new"], 0)
    with pytest.raises(FileNotFoundError):
        old.pread(3, 0)
    assert new.pread(3, 0) == b"new"


def test_the_delta_of_a_group_is_written_where_it_is_after_a_compaction() -> None:
    shared, disk = few(1)
    store, _, _ = open_store(shared, HOME, "g", 0)
    store.append([b"a"], 1, sync=True)
    store.switch_delta(store.copy_delta(store.cut(), 2))
    shared.close_idle()
    store.append([b"b"], 3, sync=True)
    size = store.delta_bytes
    store.abandon()
    assert disk.open(HOME / "g.delta", "read").size() >= size
    assert not [name for name in disk.names(HOME) if name.endswith(".tmp")]


# Handles.


def test_a_file_nobody_has_any_more_holds_no_handle_and_so_no_room_on_the_disk(tmp_path: Path) -> None:
    shared = HandleDisk(OsDisk(), 10)
    before = open_descriptors()
    file = shared.open(tmp_path / "file", "create")
    file.pwritev([bytes(100)], 0)
    assert (open_descriptors(), shared.open_files) == (before + 1, 1)
    del file
    assert (open_descriptors(), shared.open_files) == (before, 0)


def test_handles_that_need_no_sync_go_first() -> None:
    tally = Tally()
    shared, _ = few(2, tally)
    dirty = shared.open(HOME / "dirty", "create")
    dirty.pwritev([b"x"], 0)
    shared.open(HOME / "clean", "create").size()
    kept = [shared.open(HOME / f"{number}", "create") for number in range(5)]
    assert ("sync", "dirty") not in tally.log
    assert len(kept) == 5


def test_a_sync_of_a_file_that_was_put_away_has_nothing_to_do() -> None:
    tally = Tally()
    shared, _ = few(1, tally)
    file = shared.open(HOME / "file", "create")
    file.pwritev([b"x"], 0)
    shared.close_idle()
    tally.clear()
    file.sync()
    assert tally.log == []


class Waiting:
    """Holds up one operation on one file until a test lets it go on."""

    def __init__(self, operation: str, name: str) -> None:
        self._what = (operation, name)
        self.entered, self.go_on = threading.Event(), threading.Event()

    def __call__(self, operation: str, path: Path, size: int) -> None:
        del size
        if (operation, path.name) == self._what and not self.go_on.is_set():
            self.entered.set()
            assert self.go_on.wait(WAIT_S)


def test_a_write_waits_for_no_sync_and_is_to_be_synced_after_it() -> None:
    waiting, disk, tally = Waiting("sync", "file"), SimDisk(), Tally()
    disk.make_folder(HOME)
    shared = HandleDisk(WatchedDisk(WatchedDisk(disk, waiting), tally), 1)
    file = shared.open(HOME / "file", "create")
    file.pwritev([b"x"], 0)
    thread = threading.Thread(target=file.sync, daemon=True)
    thread.start()
    assert waiting.entered.wait(WAIT_S)
    assert file.pwritev([b"y"], 1) == 1
    waiting.go_on.set()
    thread.join(WAIT_S)
    tally.clear()
    shared.close_idle()
    assert ("sync", "file") in tally.log


def test_a_file_that_is_closed_while_it_is_used_goes_with_its_last_user() -> None:
    waiting, disk = Waiting("sync", "file"), SimDisk()
    disk.make_folder(HOME)
    shared = HandleDisk(WatchedDisk(disk, waiting), 1)
    file = shared.open(HOME / "file", "create")
    file.pwritev([b"x"], 0)
    thread = threading.Thread(target=file.sync, daemon=True)
    thread.start()
    assert waiting.entered.wait(WAIT_S)
    file.close()
    assert shared.open_files == 1
    waiting.go_on.set()
    thread.join(WAIT_S)
    assert shared.open_files == 0


def test_who_has_an_executor_seldom_waits_for_a_sync() -> None:
    tally, disk = Tally(), SimDisk()
    disk.make_folder(HOME)
    shared = HandleDisk(WatchedDisk(disk, tally), 8, InlineExecutor())
    files = [shared.open(HOME / f"{number}", "create") for number in range(8)]
    for file in files[:6]:
        file.pwritev([b"x"], 0)
    assert not [name for operation, name in tally.log if operation == "sync"]
    shared.open(HOME / "one more", "create")
    assert sorted(name for operation, name in tally.log if operation == "sync") == ["0", "1", "2", "3"]


def test_a_sync_for_others_that_fails_is_told_to_its_owner_and_ends() -> None:
    disk = SimDisk()
    disk.make_folder(HOME)
    shared = HandleDisk(disk, 2, InlineExecutor())
    files = [shared.open(HOME / f"{number}", "create") for number in range(2)]
    for file in files:
        file.pwritev([b"x"], 0)
    disk.fault = Fault(frozenset({"sync"}), 1)
    shared.open(HOME / "one more", "create")
    with pytest.raises(OSError, match="Input/output error"):
        files[0].sync()
    with pytest.raises(OSError, match="Input/output error"):
        files[0].pwritev([b"y"], 1)
    files[1].sync()


def test_who_finds_that_others_were_quicker_tries_again() -> None:
    class Crowded(SimDisk):
        refusals = 0

        def open(self, path: Path, mode: OpenMode) -> File:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().open(path, mode)

    disk = Crowded()
    disk.make_folder(HOME)
    shared = HandleDisk(disk, 100)
    files = [shared.open(HOME / f"{number}", "create") for number in range(40)]
    disk.refusals = 3
    files.append(shared.open(HOME / "last", "create"))
    assert shared.open_files == 41 - 3 * ROOM
    disk.refusals = 100
    with pytest.raises(OSError, match="Too many open files"):
        shared.open(HOME / "one more", "create")
    disk.refusals = 0
    for file in files:
        file.close()


def test_while_somebody_else_has_all_handles_some_of_ours_go(tmp_path: Path) -> None:
    shared = HandleDisk(OsDisk(), 100)
    files = [shared.open(tmp_path / f"{number}", "create") for number in range(30)]
    with no_handles_left():
        files += [shared.open(tmp_path / f"{number}", "create") for number in range(30, 40)]
        assert len(shared.names(tmp_path)) == 40
        shared.sync_folder(tmp_path)
        assert [file.size() for file in files] == [0] * 40


@contextmanager
def no_handles_left() -> Iterator[None]:
    """Let this process have no more handles than it has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as taken:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 10, hard))
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with suppress(OSError):
            while True:
                taken.callback(os.close, os.dup(0))
        yield
