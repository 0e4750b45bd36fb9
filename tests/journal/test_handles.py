"""A disk with few handles is the disk itself, only that an error of a forgotten handle is never forgotten."""

import errno
import threading
from pathlib import Path
from random import Random

import pytest

from strandline.errors import CommitFailed, Poisoned
from strandline.files import File, OsDisk
from strandline.gather import InlineExecutor
from strandline.journal import WRITTEN, Journal
from strandline.journal.handles import HandleDisk
from strandline.sim import Fault, SimDisk
from tests.journal.helpers import SMALL, WAIT_S, Tally, WatchedDisk, in_threads, open_sim, values_of

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
