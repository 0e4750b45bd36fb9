"""Files: everything is written or it raises, replacement is old or new, one lock, and typed errors."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest

from strandline.errors import Locked, StorageRefused
from strandline.files import (
    IOV_MAX,
    TEMP_SUFFIX,
    Disk,
    OpenMode,
    OsDisk,
    OsFile,
    read_file,
    remove_if_there,
    replace_file,
    storage_error,
    storage_errors,
    storage_hint,
)
from strandline.sim import Fault, SimDisk
from tests.journal.helpers import Tally, WatchedDisk

HOME = Path("/sim/home")


def descriptors_of(path: Path) -> int:
    """Return how many descriptors of this process are of one file: other threads open and close others meanwhile."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += each.readlink() == path
    return found


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OsFile]:
    opened = OsDisk().open(tmp_path / "file", "create")
    assert isinstance(opened, OsFile)
    with closing(opened):
        yield opened


class TestOsFile:
    @pytest.mark.parametrize("sync", [False, True])
    def test_buffers_are_written_one_after_another(self, file: OsFile, sync: bool) -> None:
        assert file.pwritev([b"ab", memoryview(b"cde")[1:], bytearray(b"f"), b""], 3, sync=sync) == 5
        assert file.pread(100, 0) == b"\0\0\0abdef"
        assert file.size() == 8

    @pytest.mark.parametrize("sync", [False, True])
    @pytest.mark.parametrize("count", [1, IOV_MAX, IOV_MAX + 1, 3 * IOV_MAX + 7])
    def test_any_number_of_buffers(self, file: OsFile, count: int, sync: bool) -> None:
        buffers = [b"%07d" % number for number in range(count)]
        assert file.pwritev(buffers, 0, sync=sync) == 7 * count
        assert file.pread(10**6, 0) == b"".join(buffers)

    @pytest.mark.parametrize("sync", [False, True])
    @pytest.mark.parametrize("most", [1, 3, 5, 64])
    def test_a_short_write_is_gone_on_with(
        self, file: OsFile, monkeypatch: pytest.MonkeyPatch, most: int, sync: bool
    ) -> None:
        """The system may write less than it was given; every part is as durable as the whole was to be."""
        real = os.pwritev
        flags_seen = set()

        def short(fd: int, buffers: list[bytes], position: int, flags: int = 0) -> int:
            flags_seen.add(flags)
            return real(fd, [b"".join(buffers)[:most]], position, flags)

        monkeypatch.setattr(os, "pwritev", short)
        data = [b"one", b"two", b"three"]
        assert file.pwritev(data, 10, sync=sync) == 11
        assert file.pread(100, 10) == b"onetwothree"
        assert flags_seen == {os.RWF_DSYNC if sync else 0}

    def test_a_write_that_fails_in_the_middle_raises_and_is_not_tried_again(
        self, file: OsFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.pwritev
        calls: list[int] = []

        def failing(fd: int, buffers: list[bytes], position: int, flags: int = 0) -> int:
            calls.append(position)
            if len(calls) > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(fd, [b"".join(buffers)[:4]], position, flags)

        monkeypatch.setattr(os, "pwritev", failing)
        with pytest.raises(OSError, match="No space"):
            file.pwritev([b"123456789"], 0)
        assert calls == [0, 4]

    def test_a_short_read_is_gone_on_with(self, file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
        file.pwritev([b"0123456789"], 0)
        real = os.pread
        monkeypatch.setattr(os, "pread", lambda fd, count, position: real(fd, min(count, 3), position))
        assert file.pread(8, 1) == b"12345678"
        assert file.pread(100, 4) == b"456789"
        assert file.pread(5, 10) == b""
        assert file.pread(0, 0) == b""

    def test_truncate_and_allocate(self, file: OsFile) -> None:
        file.pwritev([b"0123456789"], 0)
        file.truncate(4)
        assert file.pread(100, 0) == b"0123"
        file.allocate(8)
        assert file.pread(100, 0) == b"0123\0\0\0\0"
        file.allocate(2)
        assert file.size() == 8

    def test_a_closed_file_fails_and_closing_twice_does_not(self, file: OsFile) -> None:
        file.close()
        file.close()
        for call in (lambda: file.pread(1, 0), lambda: file.pwritev([b"x"], 0), file.sync, file.size):
            with pytest.raises(OSError, match="Bad file descriptor"):
                call()

    def test_the_last_reference_closes(self, tmp_path: Path) -> None:
        opened = OsDisk().open(tmp_path / "other", "create")
        assert descriptors_of(tmp_path / "other") == 1
        del opened
        assert descriptors_of(tmp_path / "other") == 0


class TestOsDisk:
    def test_modes(self, tmp_path: Path) -> None:
        disk: Disk = OsDisk()
        path = tmp_path / "file"
        modes: list[OpenMode] = ["read", "write"]
        for mode in modes:
            with pytest.raises(FileNotFoundError):
                disk.open(path, mode)
        disk.open(path, "create").close()
        with pytest.raises(FileExistsError):
            disk.open(path, "create")
        with closing(disk.open(path, "read")) as file, pytest.raises(OSError, match="Bad file descriptor"):
            file.pwritev([b"x"], 0)

    def test_names_are_sorted_and_changes_are_seen(self, tmp_path: Path) -> None:
        disk = OsDisk()
        for name in ("b", "a", "c"):
            disk.open(tmp_path / name, "create").close()
        assert disk.names(tmp_path) == ["a", "b", "c"]
        disk.rename(tmp_path / "a", tmp_path / "c")
        disk.remove(tmp_path / "b")
        disk.sync_folder(tmp_path)
        assert disk.names(tmp_path) == ["c"]
        with pytest.raises(FileNotFoundError):
            disk.names(tmp_path / "none")

    def test_folders_are_made_with_their_parents_and_each_parent_is_synced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = OsDisk()
        synced: list[Path] = []
        real = disk.sync_folder

        def watched(folder: Path) -> None:
            synced.append(folder)
            real(folder)

        monkeypatch.setattr(disk, "sync_folder", watched)
        disk.make_folder(tmp_path / "a" / "b" / "c")
        assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
        synced.clear()
        disk.make_folder(tmp_path / "a" / "b" / "c")
        assert synced == []

    def test_a_file_in_the_way_of_a_folder(self, tmp_path: Path) -> None:
        disk = OsDisk()
        disk.open(tmp_path / "file", "create").close()
        with pytest.raises(NotADirectoryError):
            disk.make_folder(tmp_path / "file" / "folder")
        disk.make_folder(tmp_path / "file")
        with pytest.raises(NotADirectoryError):
            disk.names(tmp_path / "file")

    def test_descriptors_are_not_inherited(self, tmp_path: Path) -> None:
        disk = OsDisk()
        file = disk.open(tmp_path / "file", "create")
        lock = disk.lock(tmp_path / "lock")
        inherited = "for each in /proc/self/fd/*; do readlink $each; done"
        command = ["/bin/sh", "-c", inherited]
        listed = subprocess.run(command, check=False, capture_output=True, close_fds=False, text=True).stdout
        file.close()
        lock.release()
        assert "pipe:" in listed
        assert str(tmp_path) not in listed


FORKING = """
import os, sys
from pathlib import Path
from strandline.errors import Locked
from strandline.files import OsDisk
path = Path(sys.argv[1])
lock = OsDisk().lock(path)
(done, ready), (ended, end) = os.pipe(), os.pipe()
if not os.fork():
    {released}
    os.write(ready, b".")
    os.close(end)
    os.read(ended, 1)
    os._exit(0)
os.read(done, 1)
try:
    OsDisk().lock(path)
except Locked:
    print("held")
if not os.fork():
    os.write(ready, b".")
    os.close(end)
    os.read(ended, 1)
    os._exit(0)
os.read(done, 1)
lock.release()
OsDisk().lock(path).release()
print("free")
"""


class TestLock:
    def test_it_is_exclusive_within_a_process_and_releasing_twice_is_harmless(self, tmp_path: Path) -> None:
        disk = OsDisk()
        lock = disk.lock(tmp_path / "lock")
        with pytest.raises(Locked, match=str(tmp_path)):
            disk.lock(tmp_path / "lock")
        lock.release()
        again = disk.lock(tmp_path / "lock")
        lock.release()
        with pytest.raises(Locked):
            disk.lock(tmp_path / "lock")
        again.release()

    def test_a_refused_lock_leaves_no_descriptor(self, tmp_path: Path) -> None:
        disk = OsDisk()
        lock = disk.lock(tmp_path / "lock")
        for _ in range(5):
            with pytest.raises(Locked):
                disk.lock(tmp_path / "lock")
        assert descriptors_of(tmp_path / "lock") == 1
        lock.release()

    def test_it_goes_with_its_process(self, tmp_path: Path) -> None:
        code = (
            "import os, sys\nfrom pathlib import Path\nfrom strandline.files import OsDisk\n"
            "lock = OsDisk().lock(Path(sys.argv[1]))\nprint('held', flush=True)\nsys.stdin.read()\nos._exit(0)\n"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "lock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"held\n"
            with pytest.raises(Locked):
                OsDisk().lock(tmp_path / "lock")
            child.kill()
        OsDisk().lock(tmp_path / "lock").release()

    @pytest.mark.parametrize("released", ["lock.release()", "del lock"])
    def test_a_forked_child_neither_keeps_what_its_parent_released_nor_releases_what_it_holds(
        self, tmp_path: Path, released: str
    ) -> None:
        command = [sys.executable, "-c", FORKING.format(released=released), str(tmp_path / "lock")]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "held\nfree\n"


class TestReplaceFile:
    @pytest.mark.parametrize("old", [None, b"old" * 400])
    def test_a_crash_at_any_point_leaves_the_old_or_the_new(self, old: bytes | None) -> None:
        """Every operation may be the last one; and the leftover of an earlier attempt may be in the way."""
        new = b"new content" * 200
        seen: set[bytes | None] = set()
        for stop in range(1, 12):
            for seed in range(40):
                disk = SimDisk()
                disk.make_folder(HOME)
                if old is not None:
                    replace_file(disk, HOME / "file", old)
                if seed % 2:
                    disk.open(HOME / f"file{TEMP_SUFFIX}", "create").pwritev([b"left over"], 0)
                operations = frozenset({"create", "pwritev", "sync", "rename", "remove", "sync_folder"})
                disk.fault = Fault(operations, stop, sticky=True)
                done = False
                try:
                    replace_file(disk, HOME / "file", new)
                    done = True
                except OSError:
                    pass
                disk.crash(Random(1000 * stop + seed))
                found = read_file(disk, HOME / "file")
                assert found in (old, new)
                assert found == new or not done, "when it returns, it is for good"
                seen.add(found)
                replace_file(disk, HOME / "file", b"next")
                assert read_file(disk, HOME / "file") == b"next"
        assert seen == {old, new}

    def test_on_the_real_disk(self, tmp_path: Path) -> None:
        for content in (b"first", b"", b"x" * 100_000):
            replace_file(OsDisk(), tmp_path / "file", content)
            assert read_file(OsDisk(), tmp_path / "file") == content
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_the_order_is_temp_sync_rename_sync(self) -> None:
        tally = Tally()
        disk = SimDisk()
        disk.make_folder(HOME)
        replace_file(WatchedDisk(disk, tally), HOME / "file", b"x")
        steps = [step for step in tally.log if step[0] != "remove"]
        temporary = f"file{TEMP_SUFFIX}"
        assert steps == [
            ("create", temporary),
            ("pwritev", temporary),
            ("sync", temporary),
            ("rename", "file"),
            ("sync_folder", "home"),
        ]


def test_a_missing_file_reads_as_none_and_may_be_removed(tmp_path: Path) -> None:
    assert read_file(OsDisk(), tmp_path / "none") is None
    remove_if_there(OsDisk(), tmp_path / "none")
    (tmp_path / "there").write_bytes(b"x")
    assert read_file(OsDisk(), tmp_path / "there") == b"x"
    remove_if_there(OsDisk(), tmp_path / "there")
    assert not (tmp_path / "there").exists()
    with pytest.raises(IsADirectoryError):
        read_file(OsDisk(), tmp_path)


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (errno.ENOSPC, "space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.EPERM, "permissions"),
        (errno.ENOTDIR, "folder"),
        (errno.EMFILE, "ulimit"),
        (errno.EIO, "device"),
    ],
)
def test_what_the_system_says_becomes_a_typed_error_with_a_hint(code: int, word: str) -> None:
    error = OSError(code, os.strerror(code))
    refused = storage_error(Path("a/b"), error)
    assert (refused.path, refused.code, refused.reason) == ("a/b", errno.errorcode[code], os.strerror(code))
    assert word in (refused.hint or "")
    assert storage_hint(error) == refused.hint
    with pytest.raises(StorageRefused) as caught, storage_errors(Path("a/b")):
        raise error
    assert caught.value.__cause__ is error


def test_what_has_no_number_is_typed_too_and_others_pass() -> None:
    assert storage_error(Path("a"), OSError("strange")).code == "unknown"
    assert storage_hint(ValueError()) is None
    with pytest.raises(ValueError, match="mine"), storage_errors(Path("a")):
        raise ValueError("mine")
