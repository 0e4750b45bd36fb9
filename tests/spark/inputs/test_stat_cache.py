"""A file that did not change is known without reading; one that did is always seen, whatever its timestamps say."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipeline.identity import TenantId
from strandline.pipeline.state import MemoryState
from strandline.spark.inputs import FileSource, StatCache, files
from strandline.spark.inputs.source import Content
from strandline.spark.inputs.stat_cache import (
    RACY_MARGIN_NS,
    Entry,
    format_entry,
    format_stat,
    parse_entry,
    path_key,
    remembered,
    version_of,
)
from tests.spark.inputs.helpers import listed, write

TENANT = TenantId(bytes(32))
SECOND_NS = 1_000_000_000


class Scanner:
    """Lists and reads a folder as a scan does, with the cache."""

    def __init__(self, folder: Path) -> None:
        self.state = MemoryState()
        self.cache = StatCache(self.state, TENANT)
        self.source = FileSource.at(folder)

    def known(self) -> dict[bytes, bytes | None]:
        """Return the versions that are known without reading."""
        rows = listed(self.source)
        names = [row["locator"] for row in rows]
        versions = self.cache.versions(self.source, names, [row["stat"] for row in rows])
        return dict(zip(names, versions, strict=True))

    def read(self, locator: bytes) -> Content:
        """Read a file and remember what may be remembered."""
        with self.source.open() as reader:
            content = reader.read(locator, None)
        puts = self.cache.puts(self.source, [(locator, content.stat)])
        self.state.apply_batch(TENANT, puts)
        return content


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let reads happen some time after the files were written."""

    def set_clock(by_ns: int) -> None:
        now = time.time_ns
        monkeypatch.setattr("strandline.spark.inputs.files.time.time_ns", lambda: now() + by_ns)

    return set_clock


def test_a_file_that_was_left_alone_is_known(tmp_path: Path, later: Callable[[int], None]) -> None:
    write(tmp_path, {"a": b"content"})
    later(RACY_MARGIN_NS + SECOND_NS)
    scanner = Scanner(tmp_path)
    assert scanner.known() == {b"a": None}
    content = scanner.read(b"a")
    assert scanner.known() == {b"a": content.version}


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"content"})
    scanner = Scanner(tmp_path)
    assert scanner.read(b"a").stat is None
    assert scanner.known() == {b"a": None}


@pytest.mark.parametrize("how", ["content", "touch", "chmod", "replaced", "mtime set back"])
def test_a_file_that_changed_is_not_known(tmp_path: Path, later: Callable[[int], None], how: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    later(RACY_MARGIN_NS + SECOND_NS)
    scanner = Scanner(tmp_path)
    scanner.read(b"a")
    found = path.stat()
    time.sleep(0.02)  # beyond a tick of the file system's clock
    match how:
        case "content":
            path.write_bytes(b"CONTENT")
        case "touch":
            path.touch()
        case "chmod":
            path.chmod(0o600)
        case "replaced":
            (tmp_path / "b").write_bytes(b"CONTENT")
            (tmp_path / "b").replace(path)
        case _:
            path.write_bytes(b"CONTENT")
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert scanner.known() == {b"a": None}


def test_a_write_within_the_same_tick_is_never_missed(tmp_path: Path) -> None:
    """Write, read and remember, write again at once with the old modification time: the second must be seen."""
    path = tmp_path / "a"
    scanner = Scanner(tmp_path)
    for number in range(200):
        path.write_bytes(b"first %06d" % number)
        old = path.stat()
        scanner.read(b"a")
        path.write_bytes(b"other %06d" % number)
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
        assert scanner.known() == {b"a": None}


def test_a_write_that_no_timestamp_shows_is_never_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on a file system whose clock stood still: stat data are equal to the last bit."""
    path = tmp_path / "a"
    path.write_bytes(b"first")
    frozen = format_stat(path.stat())
    monkeypatch.setattr(files, "format_stat", lambda _: frozen)
    monkeypatch.setattr("strandline.spark.inputs.walk.format_stat", lambda _: frozen)
    scanner = Scanner(tmp_path)
    scanner.read(b"a")
    path.write_bytes(b"other")
    assert scanner.known() == {b"a": None}


def test_an_entry_that_was_racy_never_counts_however_old_it_gets(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"content"})
    found = format_stat((tmp_path / "a").stat())
    racy = Entry(found, (tmp_path / "a").stat().st_ctime_ns + RACY_MARGIN_NS, b"version")
    scanner = Scanner(tmp_path)
    scanner.state.apply_batch(TENANT, scanner.cache.puts(scanner.source, [(b"a", format_entry(racy))]))
    assert scanner.known() == {b"a": None}


@given(mtime_ns=st.integers(-(2**40), 2**62), ctime_ns=st.integers(0, 2**62), looked_at_ns=st.integers(0, 2**62))
def test_only_entries_older_than_the_margin_are_kept(mtime_ns: int, ctime_ns: int, looked_at_ns: int) -> None:
    found = os.stat_result((0o100644, 7, 3, 1, 0, 0, 5, 0, 0, 0, 0.0, 0.0, 0.0, 0, mtime_ns, ctime_ns))
    kept = remembered(format_stat(found), looked_at_ns, b"version")
    is_old = mtime_ns < looked_at_ns - RACY_MARGIN_NS and ctime_ns < looked_at_ns - RACY_MARGIN_NS
    assert (kept is not None) == is_old
    if kept is not None:
        assert parse_entry(kept) == Entry(format_stat(found), looked_at_ns, b"version")
        assert version_of(kept, format_stat(found)) == b"version"


def test_a_file_from_the_future_is_not_remembered(tmp_path: Path, later: Callable[[int], None]) -> None:
    write(tmp_path, {"a": b"content"})
    later(RACY_MARGIN_NS + SECOND_NS)
    ahead_ns = time.time_ns() + 3_600 * SECOND_NS
    os.utime(tmp_path / "a", ns=(ahead_ns, ahead_ns))
    assert Scanner(tmp_path).read(b"a").stat is None


@given(st.binary(max_size=60))
def test_what_is_no_entry_counts_as_none(value: bytes) -> None:
    stat = value[:40].ljust(40, b"\0")
    assert version_of(value[:48], stat) is None
    assert version_of(None, stat) is None
    assert version_of(value, None) is None


def test_look_ups_are_asked_in_batches_that_the_store_takes(tmp_path: Path) -> None:
    asked: list[int] = []

    class Counting(MemoryState):
        def multi_get(self, tenant: TenantId, keys: object) -> list[bytes | None]:
            assert isinstance(keys, list)
            asked.append(len(keys))
            return super().multi_get(tenant, keys)

    names = [b"%d" % number for number in range(25_000)]
    versions = StatCache(Counting(), TENANT).versions(FileSource.at(tmp_path), names, [bytes(40)] * len(names))
    assert versions == [None] * len(names)
    assert asked == [10_000, 10_000, 5_000]


def test_items_without_stat_data_are_not_asked_for(tmp_path: Path) -> None:
    cache = StatCache(MemoryState(), TENANT)
    assert cache.versions(FileSource.at(tmp_path), [b"a", b"b"], [None, None]) == [None, None]
    assert cache.puts(FileSource.at(tmp_path), [(b"a", None)]) == []


def test_paths_have_keys_of_their_own_and_tenants_do_not_share(tmp_path: Path, later: Callable[[int], None]) -> None:
    assert path_key(b"/a") != path_key(b"/b")
    assert path_key(b"/a").startswith(b"fs1")
    write(tmp_path, {"a": b"content"})
    later(RACY_MARGIN_NS + SECOND_NS)
    scanner = Scanner(tmp_path)
    scanner.read(b"a")
    other = StatCache(scanner.state, TenantId(bytes([1]) * 32))
    (row,) = listed(scanner.source)
    assert other.versions(scanner.source, [b"a"], [row["stat"]]) == [None]
