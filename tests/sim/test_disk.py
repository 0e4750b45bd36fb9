"""The simulated disk forgets like a real one, never what was synced, and always the same way from the same seed."""

import errno
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from strandline.errors import Locked
from strandline.files import Disk, File
from strandline.sim import Fault, SimDisk

HOME = Path("/sim/home")
FILE = HOME / "file"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_folder(HOME)
    return disk


def made(disk: Disk, path: Path = FILE, data: bytes = b"") -> File:
    """Create a file with synced content under a synced name."""
    file = disk.open(path, "create")
    if data:
        file.pwritev([data], 0)
    file.sync()
    disk.sync_folder(path.parent)
    return file


def read(disk: Disk, path: Path = FILE) -> bytes:
    with closing(disk.open(path, "read")) as file:
        return file.pread(10**6, 0)


def outcomes(disk_of: object, count: int = 200) -> set[bytes | None]:
    """Return what crashes with many seeds leave of the file; None where it is gone."""
    assert callable(disk_of)
    found: set[bytes | None] = set()
    for seed in range(count):
        disk = disk_of()
        disk.crash(Random(seed))
        found.add(read(disk) if FILE.name in disk.names(HOME) else None)
    return found


class TestFiles:
    def test_what_is_written_is_seen_at_once(self, disk: SimDisk) -> None:
        file = disk.open(FILE, "create")
        assert file.pwritev([b"ab", memoryview(b"cd"), bytearray(b"e")], 0) == 5
        assert file.pwritev([b"X"], 8) == 1
        assert (file.pread(100, 0), file.pread(2, 1), file.size()) == (b"abcde\0\0\0X", b"bc", 9)
        assert file.pread(5, 100) == b""
        file.truncate(3)
        assert read(disk) == b"abc"
        file.allocate(6)
        assert read(disk) == b"abc\0\0\0"
        file.allocate(2)
        assert file.size() == 6

    def test_modes_are_as_on_the_real_disk(self, disk: SimDisk) -> None:
        with pytest.raises(FileNotFoundError):
            disk.open(FILE, "read")
        with pytest.raises(FileNotFoundError):
            disk.open(FILE, "write")
        made(disk)
        with pytest.raises(FileExistsError):
            disk.open(FILE, "create")
        with pytest.raises(OSError, match="Bad file descriptor"):
            disk.open(FILE, "read").pwritev([b"x"], 0)
        file = disk.open(FILE, "write")
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.pread(1, 0)
        with pytest.raises(FileNotFoundError):
            disk.open(HOME / "none" / "file", "create")

    def test_a_removed_file_lives_on_in_its_handle(self, disk: SimDisk) -> None:
        file = made(disk, data=b"abc")
        disk.remove(FILE)
        assert disk.names(HOME) == []
        assert file.pread(3, 0) == b"abc"
        with pytest.raises(FileNotFoundError):
            disk.remove(FILE)

    def test_a_rename_replaces(self, disk: SimDisk) -> None:
        made(disk, data=b"new")
        made(disk, HOME / "target", b"old")
        disk.rename(FILE, HOME / "target")
        assert disk.names(HOME) == ["target"]
        assert read(disk, HOME / "target") == b"new"
        with pytest.raises(FileNotFoundError):
            disk.rename(FILE, HOME / "target")

    def test_a_rename_from_folder_to_folder(self, disk: SimDisk) -> None:
        disk.make_folder(HOME / "other")
        made(disk, data=b"moved")
        disk.rename(FILE, HOME / "other" / "file")
        assert read(disk, HOME / "other" / "file") == b"moved"
        with pytest.raises(FileNotFoundError):
            disk.rename(FILE, HOME / "other" / "file")


class TestCrashes:
    def test_what_was_synced_stays(self, disk: SimDisk) -> None:
        for seed in range(100):
            disk = SimDisk()
            disk.make_folder(HOME)
            made(disk, data=b"abc" * 1000)
            disk.crash(Random(seed))
            assert read(disk) == b"abc" * 1000

    def test_a_write_may_be_lost_torn_or_whole(self) -> None:
        def one() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            made(disk, data=b"-" * 2048).pwritev([b"x" * 2048], 0)
            return disk

        found = outcomes(one)
        assert b"-" * 2048 in found
        assert b"x" * 2048 in found
        assert len(found) > 20
        by_sector = {
            data for data in found if data and all(len(set(data[i : i + 512])) == 1 for i in range(0, 2048, 512))
        }
        assert len(by_sector) > 4, "sectors come through in any combination"

    def test_writes_are_not_ordered(self) -> None:
        def two() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            file = made(disk, data=b"--")
            file.pwritev([b"1"], 0)
            file.pwritev([b"2"], 1)
            return disk

        assert {b"--", b"1-", b"-2", b"12"} <= outcomes(two)

    def test_a_new_name_a_rename_and_a_removal_may_be_lost(self) -> None:
        def new() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            file = disk.open(FILE, "create")
            file.pwritev([b"x"], 0)
            file.sync()
            return disk

        def renamed() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            made(disk, data=b"old")
            made(disk, HOME / "new", b"new")
            disk.rename(HOME / "new", FILE)
            return disk

        def removed() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            made(disk, data=b"x")
            disk.remove(FILE)
            return disk

        assert outcomes(new) == {None, b"x"}
        assert outcomes(renamed) == {b"old", b"new"}
        assert outcomes(removed) == {None, b"x"}

    def test_a_synced_folder_does_not_sync_its_files(self) -> None:
        def unsynced() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            disk.open(FILE, "create").pwritev([b"xyz"], 0)
            disk.sync_folder(HOME)
            return disk

        found = outcomes(unsynced)
        assert None not in found
        assert {b"", b"xyz"} <= found

    def test_a_synced_file_does_not_sync_its_name(self) -> None:
        def unnamed() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            file = disk.open(FILE, "create")
            file.pwritev([b"xyz"], 0)
            file.sync()
            return disk

        assert outcomes(unnamed) == {None, b"xyz"}

    def test_a_synced_write_is_certain_and_makes_no_other_so(self) -> None:
        def synced() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            file = made(disk, data=b"--")
            file.pwritev([b"1"], 0)
            file.pwritev([b"2"], 1, sync=True)
            return disk

        assert outcomes(synced) == {b"-2", b"12"}

    def test_a_truncation_may_be_lost(self) -> None:
        def cut() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            made(disk, data=b"abcdef").truncate(2)
            return disk

        assert outcomes(cut) == {b"ab", b"abcdef"}

    def test_handles_and_locks_are_dead_afterwards(self, disk: SimDisk) -> None:
        file = made(disk)
        lock = disk.lock(HOME / "lock")
        disk.crash(Random(0))
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.pwritev([b"x"], 0)
        again = disk.lock(HOME / "lock")
        lock.release()  # of another life
        with pytest.raises(Locked):
            disk.lock(HOME / "lock")
        again.release()

    def test_the_same_seed_leaves_the_same(self) -> None:
        def run(seed: int) -> dict[str, bytes]:
            disk = SimDisk()
            disk.make_folder(HOME)
            for number in range(10):
                file = disk.open(HOME / f"{number}", "create")
                file.pwritev([bytes([number]) * 3000], 0)
                if number % 3 == 0:
                    file.sync()
            disk.rename(HOME / "1", HOME / "2")
            disk.crash(Random(seed))
            return {name: read(disk, HOME / name) for name in disk.names(HOME)}

        assert run(5) == run(5)
        assert len({str(run(seed)) for seed in range(10)}) > 5

    def test_a_killed_process_loses_its_handles_and_locks_and_nothing_else(self, disk: SimDisk) -> None:
        file = disk.open(FILE, "create")
        file.pwritev([b"unsynced"], 0)
        disk.lock(HOME / "lock")
        disk.kill()
        assert read(disk) == b"unsynced"
        disk.lock(HOME / "lock").release()
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.pread(1, 0)


class TestFaults:
    def test_the_chosen_operation_fails_once(self, disk: SimDisk) -> None:
        file = made(disk, data=b"abcd")
        disk.fault = Fault(frozenset({"pwritev"}), 2, errno.ENOSPC)
        file.pwritev([b"1"], 0)
        file.sync()
        with pytest.raises(OSError, match="No space left") as caught:
            file.pwritev([b"2345"], 0)
        assert caught.value.errno == errno.ENOSPC
        assert read(disk) == b"23cd", "a part of it was written"
        file.pwritev([b"6"], 0)

    def test_a_sticky_one_fails_for_ever(self, disk: SimDisk) -> None:
        file = made(disk, data=b"abcd")
        disk.fault = Fault(frozenset({"sync", "truncate"}), 1, sticky=True)
        for _ in range(3):
            with pytest.raises(OSError, match="Input/output error"):
                file.sync()
            with pytest.raises(OSError, match="Input/output error"):
                file.truncate(1)

    def test_a_failed_sync_forgets_what_it_did_not_write(self) -> None:
        def failed() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            file = made(disk, data=b"old")
            file.pwritev([b"certain"], 3, sync=True)
            file.pwritev([b"new"], 0)
            disk.fault = Fault(frozenset({"sync"}), 1)
            with pytest.raises(OSError, match="Input/output error"):
                file.sync()
            file.sync()  # succeeds, as on Linux, and means nothing
            assert read(disk) == b"newcertain"
            return disk

        assert outcomes(failed) == {b"oldcertain"}

    def test_a_failed_synced_write_is_seen_and_never_on_the_disk(self) -> None:
        def failed() -> SimDisk:
            disk = SimDisk()
            disk.make_folder(HOME)
            file = made(disk, data=b"old")
            disk.fault = Fault(frozenset({"sync"}), 1)
            with pytest.raises(OSError, match="Input/output error"):
                file.pwritev([b"new"], 0, sync=True)
            file.sync()
            assert read(disk) == b"new"
            return disk

        assert outcomes(failed) == {b"old"}

    def test_every_change_is_counted(self, disk: SimDisk) -> None:
        before = disk.operations
        file = disk.open(FILE, "create")
        file.pwritev([b"x"], 0)
        file.sync()
        disk.sync_folder(HOME)
        disk.rename(FILE, HOME / "other")
        disk.remove(HOME / "other")
        assert disk.operations == before + 6


def test_a_lock_is_held_once_and_released_once(disk: SimDisk) -> None:
    first = disk.lock(HOME / "lock")
    with pytest.raises(Locked):
        disk.lock(HOME / "lock")
    first.release()
    second = disk.lock(HOME / "lock")
    first.release()  # releasing twice is harmless to whoever has it now
    with pytest.raises(Locked):
        disk.lock(HOME / "lock")
    second.release()


class DiskMachine(RuleBasedStateMachine):
    """A file whose content after a crash must be made of what was synced and what was written since."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.disk.make_folder(HOME)
        self.file = made(self.disk)
        self.seen = b""
        self.choices: list[set[int]] = []
        """For each byte, what it may be after a crash."""

    @rule(position=st.integers(0, 1500), data=st.binary(min_size=1, max_size=1200), sync=st.booleans())
    def write(self, position: int, data: bytes, sync: bool) -> None:
        self.file.pwritev([data], position, sync=sync)
        end = position + len(data)
        self.seen = self.seen.ljust(end, b"\0")
        self.seen = self.seen[:position] + data + self.seen[end:]
        self.choices += [{0} for _ in range(end - len(self.choices))]
        for at in range(position, end):
            byte = data[at - position]
            self.choices[at] = {byte} if sync else self.choices[at] | {byte}

    @rule()
    def sync(self) -> None:
        self.file.sync()
        self.choices = [{byte} for byte in self.seen]

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        self.disk.crash(Random(seed))
        left = read(self.disk)
        assert len(left) <= len(self.choices)
        assert all(byte in allowed for byte, allowed in zip(left, self.choices, strict=False))
        assert all(0 in allowed or len(allowed) > 1 or at < len(left) for at, allowed in enumerate(self.choices))
        self.seen = left
        self.choices = [{byte} for byte in left]
        self.file = self.disk.open(FILE, "write")

    @invariant()
    def what_is_seen_is_what_was_written(self) -> None:
        assert read(self.disk) == self.seen


TestDisk = DiskMachine.TestCase
TestDisk.settings = settings(stateful_step_count=20)
