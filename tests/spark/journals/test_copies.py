"""Parquet copies of segments: equal to what they are copies of, and never used for anything else."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.errors import FormatError, Locked
from strandline.files import OsDisk
from strandline.journal import Journal, JournalConfig, JournalReader
from strandline.spark import RecordsMissing, copy_segments, read_journal
from strandline.spark.journals import segment_copies
from strandline.spark.journals.columns import SCHEMA
from strandline.spark.journals.segment_copies import (
    COPIES_VERSION,
    SETTLED_NS,
    CopiesInUse,
    SegmentCopy,
    Stamp,
    format_copies,
    format_copy_name,
    load_copies,
    parse_copies,
    parse_copy_name,
    read_stamp,
    settled,
)
from tests.effort import examples
from tests.spark.journals.helpers import SMALL, damage, fill, trim

BYTES = st.binary(max_size=40)
TIMES = st.integers(-(2**62), 2**62)
TINY = JournalConfig(segment_bytes_max=1024, reserve_bytes_max=0)


@st.composite
def appends(draw: st.DrawFn) -> dict[str, list[bytes] | list[int] | None]:
    count = draw(st.integers(1, 30))

    def column(of: st.SearchStrategy[object]) -> list[object] | None:
        return draw(st.none() | st.lists(of, min_size=count, max_size=count))

    values = draw(st.lists(BYTES, min_size=count, max_size=count))
    return {"values": values, "keys": column(BYTES), "headers": column(BYTES), "timestamps": column(TIMES)}  # type: ignore[dict-item]


def copied_rows(folder: Path, copies: Iterable[SegmentCopy]) -> pa.Table:
    """Read the copies back, without Spark."""
    tables = [pq.read_table(folder / copy.name, page_checksum_verification=True) for copy in copies]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def plain_rows(path: Path, stop: int) -> pa.Table:
    """Read a journal's records below an offset."""
    return pa.Table.from_batches(list(read_journal(str(path), stop=stop)), SCHEMA)


@given(st.lists(appends(), max_size=40))
@example([{"values": [b"v"] * 30, "keys": None, "headers": None, "timestamps": [-(2**62)] * 30}] * 20)
@examples(40)
def test_copies_have_the_rows_of_their_segments_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory, parts: list[dict[str, list[bytes]]]
) -> None:
    path = tmp_path_factory.mktemp("journals") / "j"
    with Journal.open(path, TINY) as journal:
        for part in parts:
            journal.append(**part)  # type: ignore[arg-type]
    with JournalReader.open(path) as reader:
        segments = reader.sealed_segments()
    done = copy_segments(path)
    assert [(copy.base_offset, copy.end_offset) for copy in done.copies] == [segment[1:] for segment in segments]
    stop = segments[-1].end_offset if segments else 0
    assert copied_rows(done.folder, done.copies).combine_chunks().equals(plain_rows(path, stop).combine_chunks())


def test_a_second_call_makes_nothing_and_a_longer_journal_only_what_is_new(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    first = copy_segments(tmp_path / "j")
    assert first.made == len(first.copies) > 3
    assert copy_segments(tmp_path / "j")[2:] == (0, 0)
    fill(tmp_path / "j", 500)
    third = copy_segments(tmp_path / "j")
    assert third.made == len(third.copies) - len(first.copies) > 0
    assert [copy.digest for copy in third.copies[: len(first.copies)]] == [copy.digest for copy in first.copies]


def test_the_active_segment_has_no_copy(tmp_path: Path) -> None:
    fill(tmp_path / "j", 10)
    assert copy_segments(tmp_path / "j").copies == ()


def test_a_repaired_segment_has_no_copy_any_more(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    before = copy_segments(tmp_path / "j")
    damage(tmp_path / "j", 1)
    after = copy_segments(tmp_path / "j")
    others = [copy.digest for copy in before.copies if copy is not before.copies[1]]
    assert [copy.digest for copy in after.copies] == others
    assert after.removed == 1
    assert not (after.folder / before.copies[1].name).exists()


def test_a_copy_goes_with_its_segment(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    before = copy_segments(tmp_path / "j")
    first = trim(tmp_path / "j", 400)
    after = copy_segments(tmp_path / "j")
    assert after.copies[0].base_offset == first > 0
    assert after.removed == sum(copy.base_offset < first for copy in before.copies) > 0
    assert len(list(after.folder.glob("*.parquet"))) == len(after.copies)


def test_copies_of_another_journal_of_the_same_name_are_removed(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    before = copy_segments(tmp_path / "j")
    shutil.rmtree(tmp_path / "j")
    fill(tmp_path / "j", 1000)
    after = copy_segments(tmp_path / "j")
    assert not {copy.digest for copy in before.copies} & {copy.digest for copy in after.copies}
    assert (after.made, after.removed) == (len(after.copies), len(before.copies))
    stop = after.copies[-1].end_offset
    assert (
        copied_rows(after.folder, after.copies)
        .combine_chunks()
        .equals(plain_rows(tmp_path / "j", stop).combine_chunks())
    )


def test_a_segment_of_the_same_size_and_time_but_other_batches_is_copied_anew(tmp_path: Path) -> None:
    """As after a restore from a backup of another state: only the time of the change of the file differs."""
    for name, value in (("one", b"a"), ("two", b"b")):
        with Journal.open(tmp_path / name, SMALL) as journal:
            for _ in range(100):
                journal.append([value * 10] * 10)
    before = copy_segments(tmp_path / "one")
    (tmp_path / "one.copies").rename(tmp_path / "two.copies")
    with JournalReader.open(tmp_path / "two") as reader:
        stamps = [read_stamp(segment.path) for segment in reader.sealed_segments()]
        forged = [copy._replace(stamp=None) for copy in before.copies]
        (tmp_path / "two.copies" / "copies").write_bytes(format_copies(reader.identity, forged))
    assert len(stamps) == len(forged)
    after = copy_segments(tmp_path / "two")
    assert after.made == len(after.copies) == len(before.copies)
    values = copied_rows(after.folder, after.copies)["value"].to_pylist()
    assert set(values) == {b"b" * 10}


def test_a_touched_segment_keeps_its_copy(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    copy_segments(tmp_path / "j")
    for file in (tmp_path / "j").glob("*.journal"):
        os.utime(file, (1, 1))
    assert copy_segments(tmp_path / "j")[2:] == (0, 0)


def test_a_fresh_stamp_is_not_relied_upon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 10**18
    assert settled(Stamp(1, now - SETTLED_NS - 1, now - SETTLED_NS - 1), now) is not None
    assert settled(Stamp(1, now - SETTLED_NS - 1, now - SETTLED_NS + 1), now) is None
    assert settled(Stamp(1, now - SETTLED_NS + 1, now - SETTLED_NS - 1), now) is None
    fill(tmp_path / "j", 1000)
    assert {copy.stamp for copy in copy_segments(tmp_path / "j").copies} == {None}
    monkeypatch.setattr(segment_copies, "SETTLED_NS", -(10**12))
    copies = copy_segments(tmp_path / "j").copies
    assert all(copy.stamp is not None for copy in copies)


def test_what_an_interrupted_call_left_is_removed_and_never_used(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    before = copy_segments(tmp_path / "j")
    (before.folder / "00000000000000000000.tmp").write_bytes(b"half")
    unknown = before.folder / format_copy_name(0, "0" * 32)
    shutil.copy(before.folder / before.copies[0].name, unknown)
    after = copy_segments(tmp_path / "j")
    assert (after.copies, after.made, after.removed) == (before.copies, 0, 2)
    assert sorted(file.name for file in after.folder.iterdir()) == sorted(
        ["copies", "lock", *(copy.name for copy in after.copies)]
    )


@pytest.mark.parametrize("what", ["cut", "gone"])
def test_a_copy_that_is_not_whole_is_made_again(tmp_path: Path, what: str) -> None:
    fill(tmp_path / "j", 1000)
    before = copy_segments(tmp_path / "j")
    file = before.folder / before.copies[2].name
    file.write_bytes(file.read_bytes()[:-1]) if what == "cut" else file.unlink()
    with JournalReader.open(tmp_path / "j") as reader:
        assert len(load_copies(before.folder, reader.identity)) == len(before.copies) - 1
    after = copy_segments(tmp_path / "j")
    assert (after.made, after.copies) == (1, before.copies)
    assert file.stat().st_size == before.copies[2].bytes


@pytest.mark.parametrize("content", [b"", b"strandline-copies 1 crc32c=00000000\n{}\n", b"\xff" * 100])
def test_without_a_whole_index_there_are_no_copies(tmp_path: Path, content: bytes) -> None:
    fill(tmp_path / "j", 1000)
    before = copy_segments(tmp_path / "j")
    (before.folder / "copies").write_bytes(content)
    with JournalReader.open(tmp_path / "j") as reader:
        assert load_copies(before.folder, reader.identity) == ()
    assert copy_segments(tmp_path / "j").made == len(before.copies)


def test_an_index_of_a_later_version_is_refused() -> None:
    data = format_copies(bytes(16), []).replace(f" {COPIES_VERSION} ".encode(), b" 9 ")
    with pytest.raises(FormatError, match="version 9"):
        parse_copies(data, "p", bytes(16))


@given(
    st.lists(
        st.builds(
            SegmentCopy,
            st.integers(0, 2**63),
            st.integers(0, 2**63),
            st.binary(min_size=16, max_size=16).map(bytes.hex),
            st.integers(0, 2**40),
            st.none() | st.builds(Stamp, st.integers(0, 2**40), st.integers(0, 2**62), st.integers(0, 2**62)),
        )
    ).map(tuple)
)
def test_an_index_and_names_come_back_as_they_were(copies: tuple[SegmentCopy, ...]) -> None:
    identity = bytes(range(16))
    data = format_copies(identity, copies)
    assert parse_copies(data, "p", identity) == copies
    assert parse_copies(data, "p", bytes(16)) == ()
    assert [parse_copy_name(copy.name) for copy in copies] == [(copy.base_offset, copy.digest) for copy in copies]
    assert parse_copy_name("00000000000000000000.journal") is None


def test_one_process_at_a_time_makes_copies(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    folder = copy_segments(tmp_path / "j").folder
    lock = OsDisk().lock(folder / "lock")
    with pytest.raises(Locked):
        copy_segments(tmp_path / "j")
    lock.release()


def test_journals_that_share_a_folder_keep_their_copies_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(tmp_path / name / "j", 1000)
    first = copy_segments(tmp_path / "a" / "j", tmp_path / "shared")
    second = copy_segments(tmp_path / "b" / "j", tmp_path / "shared")
    assert first.folder != second.folder
    assert first.folder.parent == second.folder.parent == tmp_path / "shared"
    assert copy_segments(tmp_path / "a" / "j", tmp_path / "shared")[2:] == (0, 0)


def in_use(path: Path) -> CopiesInUse:
    done = copy_segments(path)
    with JournalReader.open(path) as reader:
        return CopiesInUse(str(path), reader.identity, reader.first_offset, done.copies)


def test_a_query_is_refused_once_a_segment_changed(tmp_path: Path) -> None:
    fill(tmp_path / "repaired", 1000)
    claim = in_use(tmp_path / "repaired")
    claim.check()
    damage(tmp_path / "repaired", 1)
    with pytest.raises(RecordsMissing, match="changed since the DataFrame was made"):
        claim.check()


def test_a_query_is_refused_once_records_were_removed(tmp_path: Path) -> None:
    fill(tmp_path / "trimmed", 1000)
    claim = in_use(tmp_path / "trimmed")
    trim(tmp_path / "trimmed", 400)
    with pytest.raises(RecordsMissing, match="were removed by retention"):
        claim.check()


def test_a_query_is_refused_once_the_journal_was_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "replaced", 1000)
    claim = in_use(tmp_path / "replaced")
    shutil.rmtree(tmp_path / "replaced")
    fill(tmp_path / "replaced", 1000)
    with pytest.raises(RecordsMissing, match="was replaced by another"):
        claim.check()


def test_a_query_goes_on_where_the_journal_only_grew(tmp_path: Path) -> None:
    fill(tmp_path / "grown", 1000)
    claim = in_use(tmp_path / "grown")
    fill(tmp_path / "grown", 1000)
    claim.check()
