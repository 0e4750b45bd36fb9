"""A folder as an object store: many processes, killed ones, and what a user finds in the folder."""

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.errors import StorageRefused
from strandline.objects import InvalidObjectKey, LocalObjects, StoreUnavailable, probe_conditions
from strandline.objects import local as local_module

COUNTER = """
import sys
from pathlib import Path
from strandline.objects import LocalObjects, ObjectConflict
store, done = LocalObjects(Path(sys.argv[1])), 0
while done < int(sys.argv[2]):
    found = store.get("counter")
    try:
        if found is None:
            store.put("counter", b"1", if_absent=True)
        else:
            store.put("counter", b"%d" % (int(found.body) + 1), if_match=found.info.etag)
    except ObjectConflict:
        continue
    done += 1
    print(done, flush=True)
"""


def counting(folder: Path, times: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", COUNTER, str(folder), str(times)], stdout=subprocess.PIPE, text=True)


def test_of_many_processes_that_count_none_is_lost(tmp_path: Path) -> None:
    processes = [counting(tmp_path, 40) for _ in range(4)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    found = LocalObjects(tmp_path).get("counter")
    assert found is not None
    assert found.body == b"160"


def test_what_a_killed_process_was_told_is_there(tmp_path: Path) -> None:
    told = 0
    for _ in range(6):
        process = counting(tmp_path, 1_000_000)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(25)]
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        told += sum(line.endswith("\n") for line in lines)
    store = LocalObjects(tmp_path)
    found = store.get("counter")
    assert found is not None
    assert told <= int(found.body) <= told + 6  # each was killed with at most one write that it had not been told of
    probe_conditions(store)  # and none of them left a lock behind


def test_a_process_that_stands_still_with_the_lock_stops_no_one_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module, "LOCKS", 1)
    holder = """
import os, signal, sys
from pathlib import Path
from strandline.objects import LocalObjects, local
local.LOCKS = 1
class Standing(LocalObjects):
    def _rename(self, *args):
        print("held", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        super()._rename(*args)
Standing(Path(sys.argv[1])).put("a", b"1")
print("done", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        store = LocalObjects(tmp_path, lock_wait_s=0.2)
        with pytest.raises(StoreUnavailable, match="held the lock"):
            store.put("b", b"1")
        assert store.get("a") is None
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "done\n"
        store.put("b", b"1")
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_an_object_is_a_file_with_its_bytes_and_nothing_else(tmp_path: Path) -> None:
    store = LocalObjects(tmp_path)
    store.put("db/0000/1.ltx", b"body", metadata={"a": "1"})
    assert (tmp_path / "db/0000/1.ltx").read_bytes() == b"body"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".strandline", "db"]
    assert list((tmp_path / ".strandline/temporary").iterdir()) == []


FORKING = """
import os, sys
from pathlib import Path
from strandline.objects import LocalObjects
ended, end = os.pipe()
rename = os.rename
def forking(path, target):
    os.rename = rename
    if not os.fork():
        os.close(end)
        os.read(ended, 1)
        os._exit(0)
    rename(path, target)
store = LocalObjects(Path(sys.argv[1]), lock_wait_s=0.5)
os.rename = forking
store.put("key", b"1")
assert os.rename is rename
store.put("key", b"2")
print(store.get("key").body)
"""


def test_a_child_that_is_forked_during_a_write_holds_no_lock_afterwards(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "b'2'\n"


def test_two_writes_within_one_tick_of_the_clock_have_two_etags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    store = LocalObjects(tmp_path)
    etags = [store.put("a", b"x") for _ in range(20)]
    assert len(set(etags)) == 20


def test_a_write_that_another_overtakes_has_a_later_time_and_its_own_etag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both begin at one time; the one that is acknowledged last must not have the time of the other."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    store, other = LocalObjects(tmp_path), LocalObjects(tmp_path)
    overtaken: list[str] = []
    fsync = os.fsync

    def overtake(descriptor: int) -> None:
        fsync(descriptor)
        if not overtaken:
            overtaken.append("")
            overtaken[0] = other.put("a", b"x")

    monkeypatch.setattr(os, "fsync", overtake)
    last = store.put("a", b"x")
    assert last != overtaken[0]
    assert (tmp_path / "a").stat().st_mtime_ns == 1_800_000_000_000_000_001
    found = store.head("a")
    assert found is not None
    assert found.etag == last


@pytest.mark.parametrize("key", ["a", "folder/a"])
def test_a_write_syncs_its_file_once_and_its_folder_once(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalObjects(tmp_path)
    store.put(key, b"before")  # makes the folder
    synced: list[str] = []
    fsync = os.fsync

    def counted(descriptor: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    store.put(key, b"body")
    assert synced == ["file", "folder"]


def test_a_file_that_was_put_there_by_hand_is_an_object(tmp_path: Path) -> None:
    store = LocalObjects(tmp_path)
    (tmp_path / "by").mkdir()
    (tmp_path / "by/hand").write_bytes(b"1")
    found = store.get("by/hand")
    assert found is not None
    assert store.put("by/hand", b"2", if_match=found.info.etag) != found.info.etag


def test_metadata_of_replaced_and_removed_objects_goes(tmp_path: Path) -> None:
    store = LocalObjects(tmp_path)
    for n in range(3):
        store.put("a", b"x", metadata={"n": str(n)})
    kept = [path for path in (tmp_path / ".strandline/metadata").rglob("*") if path.is_file()]
    assert len(kept) == 1
    store.delete("a")
    assert not [path for path in (tmp_path / ".strandline/metadata").rglob("*") if path.is_file()]


def test_a_key_cannot_be_the_folder_of_another(tmp_path: Path) -> None:
    store = LocalObjects(tmp_path)
    store.put("a/b", b"1")
    with pytest.raises(InvalidObjectKey, match="name of a folder"):
        store.put("a", b"2")
    with pytest.raises(InvalidObjectKey):
        store.put("a/b/c", b"2")
    with pytest.raises(InvalidObjectKey, match="reserved"):
        store.put(".strandline/locks/00", b"2")


def test_folders_that_are_empty_do_not_block_a_key(tmp_path: Path) -> None:
    store = LocalObjects(tmp_path)
    store.put("a/b/c", b"1")
    store.delete("a/b/c")
    assert (tmp_path / "a/b").is_dir()
    store.put("a", b"2")
    assert [found.key for found in store.list()] == ["a"]


def test_old_leftovers_of_killed_writers_go_and_young_ones_stay(tmp_path: Path) -> None:
    LocalObjects(tmp_path)
    old, young = (tmp_path / ".strandline/temporary" / name for name in ("old", "young"))
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    os.utime(old, (1, 1))
    LocalObjects(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageRefused):
        LocalObjects(tmp_path / "file")


def test_what_is_no_object_is_not_listed_and_stops_no_listing(tmp_path: Path) -> None:
    store = LocalObjects(tmp_path / "store")
    store.put("f/a", b"1")
    folder = tmp_path / "store/f"
    (folder / "loop").symlink_to(folder)
    (folder / "again").symlink_to(folder)
    (tmp_path / "outside").write_bytes(b"2")
    (folder / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(folder / "pipe")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b"3")
    (folder / "line\nbreak").write_bytes(b"4")
    assert [info.key for info in store.list()] == ["f/a"]
    assert [info.key for info in store.list("f/", start_after="f/9")] == ["f/a"]
    assert [store.get(f"f/{name}") for name in ("link", "pipe", "loop")] == [None, None, None]
    store.put("f/link", b"5", if_absent=True)
    assert (tmp_path / "outside").read_bytes() == b"2"


def test_a_reader_of_an_object_that_is_replaced_meanwhile_gets_the_metadata_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalObjects(tmp_path)
    store.put("a", b"1", metadata={"n": "1"})
    read_bytes, left = Path.read_bytes, [2, 3]

    def replaced_first(path: Path) -> bytes:
        if left:
            number = left.pop(0)
            store.put("a", b"%d" % number, metadata={"n": str(number)})
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", replaced_first)
    found = store.get("a")
    assert found is not None
    assert (found.body, dict(found.info.metadata)) == (b"3", {"n": "3"})


def test_metadata_that_cannot_be_removed_does_not_fail_the_write_that_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalObjects(tmp_path)
    store.put("a", b"1", metadata={"n": "1"})

    def fail(_: Path) -> Iterator[Path]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "iterdir", fail)
    store.put("a", b"2", metadata={"n": "2"})
    found = store.get("a")
    assert found is not None
    assert (found.body, dict(found.info.metadata)) == (b"2", {"n": "2"})


def test_a_listing_that_starts_behind_a_key_looks_at_no_file_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalObjects(tmp_path)
    for number in range(20):
        store.put(f"f/{number:02d}", b"")
    lstat, looked_at = Path.lstat, list[str]()

    def watched(path: Path) -> os.stat_result:
        looked_at.append(path.name)
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", watched)
    assert [info.key for info in store.list("f/", start_after="f/17")] == ["f/18", "f/19"]
    assert looked_at == ["18", "19"]
