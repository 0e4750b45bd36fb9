"""A file that did not change is known without reading; one that did is always seen, whatever its timestamps say."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.scan.sources import VOUCHED, FileSource, StatCache, files
from strandline.scan.sources.row_index import Chunk, RowIndex
from strandline.scan.sources.source import Content
from strandline.scan.sources.stat_cache import RACY_MARGIN_NS, format_stat, vouching
from tests.scan.sources.helpers import listed, write

SECOND_NS = 1_000_000_000


def vouched(*rows: tuple[int, bytes, bytes, bytes]) -> pa.Table:
    whole = [(*row, row[3][:32].ljust(32, b".")) for row in rows]
    return pa.Table.from_pylist([dict(zip(VOUCHED.names, row, strict=True)) for row in whole], VOUCHED)


def cache_of(*tables: pa.Table) -> StatCache:
    return StatCache([RowIndex(VOUCHED, list(map(Chunk.of, tables))).rows])


def asked(cache: StatCache, number: int, *pairs: tuple[bytes, bytes | None]) -> list[bytes | None]:
    locators, stats = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
    versions, ovids = (column.to_pylist() for column in cache.known(number, locators, stats))
    assert ovids == [version and version[:32].ljust(32, b".") for version in versions]
    return list(versions)


class Scanner:
    """Lists and reads a folder as a scan does, with the cache."""

    def __init__(self, folder: Path) -> None:
        self.tables: list[pa.Table] = []
        self.source = FileSource.at(folder)

    def known(self) -> dict[bytes, bytes | None]:
        """Return the versions that are known without reading."""
        rows = listed(self.source)
        cache = cache_of(*self.tables)
        return {row["locator"]: asked(cache, 0, (row["locator"], row["stat"]))[0] for row in rows}

    def read(self, locator: bytes) -> Content:
        """Read a file and remember what may be remembered."""
        with self.source.open() as reader:
            content = reader.read(locator, None)
        if content.stat is not None:
            self.tables.append(vouched((0, locator, content.stat, content.version)))
        return content


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let reads happen some time after the files were written."""

    def set_clock(by_ns: int) -> None:
        now = time.time_ns
        monkeypatch.setattr("strandline.scan.sources.files.time.time_ns", lambda: now() + by_ns)

    return set_clock


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let reads happen when a file was just written, however long they take."""

    def set_clock(path: Path) -> None:
        written_ns = path.stat().st_mtime_ns
        monkeypatch.setattr("strandline.scan.sources.files.time.time_ns", lambda: written_ns + RACY_MARGIN_NS // 2)

    return set_clock


def test_a_file_that_was_left_alone_is_known(tmp_path: Path, later: Callable[[int], None]) -> None:
    write(tmp_path, {"a": b"content"})
    later(RACY_MARGIN_NS + SECOND_NS)
    scanner = Scanner(tmp_path)
    assert scanner.known() == {b"a": None}
    content = scanner.read(b"a")
    assert scanner.known() == {b"a": content.version}


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path, at_once: Callable[[Path], None]) -> None:
    write(tmp_path, {"a": b"content"})
    at_once(tmp_path / "a")
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


def test_a_write_that_no_timestamp_shows_is_never_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: Callable[[Path], None]
) -> None:
    """The same on a file system whose clock stood still: stat data are equal to the last bit."""
    path = tmp_path / "a"
    path.write_bytes(b"first")
    at_once(path)
    frozen = format_stat(path.stat())
    monkeypatch.setattr(files, "format_stat", lambda _: frozen)
    monkeypatch.setattr("strandline.scan.sources.walk.format_stat", lambda _: frozen)
    scanner = Scanner(tmp_path)
    scanner.read(b"a")
    path.write_bytes(b"other")
    assert scanner.known() == {b"a": None}


@given(mtime_ns=st.integers(-(2**40), 2**62), ctime_ns=st.integers(0, 2**62), looked_at_ns=st.integers(0, 2**62))
def test_only_stat_data_older_than_the_margin_vouch(mtime_ns: int, ctime_ns: int, looked_at_ns: int) -> None:
    found = os.stat_result((0o100644, 7, 3, 1, 0, 0, 5, 0, 0, 0, 0.0, 0.0, 0.0, 0, mtime_ns, ctime_ns))
    is_old = mtime_ns < looked_at_ns - RACY_MARGIN_NS and ctime_ns < looked_at_ns - RACY_MARGIN_NS
    assert vouching(format_stat(found), looked_at_ns) == (format_stat(found) if is_old else None)


def test_a_file_from_the_future_is_not_remembered(tmp_path: Path, later: Callable[[int], None]) -> None:
    write(tmp_path, {"a": b"content"})
    later(RACY_MARGIN_NS + SECOND_NS)
    ahead_ns = time.time_ns() + 3_600 * SECOND_NS
    os.utime(tmp_path / "a", ns=(ahead_ns, ahead_ns))
    assert Scanner(tmp_path).read(b"a").stat is None


def test_items_are_known_by_source_name_and_stat_data() -> None:
    cache = cache_of(vouched((0, b"a", b"old", b"1"), (0, b"b", b"x", b"2"), (1, b"a", b"old", b"3")))
    assert asked(cache, 0, (b"a", b"old"), (b"a", b"new"), (b"b", b"old"), (b"c", b"x"), (b"b", None)) == [
        b"1",
        *[None] * 4,
    ]
    assert asked(cache, 1, (b"a", b"old"), (b"b", b"x")) == [b"3", None]
    assert asked(cache, 2, (b"a", b"old")) == [None]


def test_of_several_tables_the_last_that_has_an_item_counts() -> None:
    old, new = vouched((0, b"a", b"old", b"1"), (0, b"b", b"x", b"3")), vouched((0, b"a", b"new", b"2"))
    both = [RowIndex(VOUCHED, [Chunk.of(table)]).rows for table in (old, new)]
    for cache in (cache_of(old, new), StatCache(both)):
        assert asked(cache, 0, (b"a", b"new"), (b"a", b"old"), (b"b", b"x")) == [b"2", None, b"3"]


def test_nothing_is_loaded_before_there_is_an_item() -> None:
    def load() -> pa.Table:
        raise AssertionError("nobody asked")

    StatCache([RowIndex(VOUCHED, [Chunk(1, load)]).rows])
