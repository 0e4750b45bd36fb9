"""A journal is scanned block by block: what grew is looked at again, what is gone is said to be gone."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError
from strandline.files import OsDisk
from strandline.journal import Journal, JournalConfig, JournalReader, apply_repair, plan_repair
from strandline.scan.sources import InputMissing, InputUnusable, ItemProblem, JournalSource, Part, Problem
from strandline.scan.sources.journals import BLOCK_OFFSETS, format_block, parse_block
from tests.scan.sources.helpers import listed, locators

SMALL = JournalConfig(segment_bytes_max=64 * 1024)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "events"


def append(folder: Path, count: int, first: int = 0, size: int = 0) -> None:
    with Journal.open(folder, SMALL) as journal:
        values = [b"value %d" % number + b"." * size for number in range(first, first + count)]
        for begin in range(0, count, 100):
            journal.append(values[begin : begin + 100])


def parts(source: JournalSource) -> list[Part]:
    with source.open() as reader:
        return [part for locator in locators(source) for part in reader.read(locator, None).parts]


def test_blocks_are_aligned_and_all_records_are_parts(folder: Path) -> None:
    append(folder, 2_500)
    source = JournalSource.at(folder)
    assert [parse_block(locator) for locator in locators(source)] == [0, 1, 2]
    found = parts(source)
    assert [part.data for part in found] == [b"value %d" % number for number in range(2_500)]
    assert [part.row for part in found] == [str(number) for number in range(2_500)]
    assert {part.path for part in found} == {"events"}
    assert source.display(format_block(2), None) == "events@2048"


def test_values_keys_and_headers_are_parts_of_their_own(folder: Path) -> None:
    with Journal.open(folder, SMALL) as journal:
        journal.append([b"value 0", b"value 1"], keys=[b"k0", b""], headers=[b"h0", b"h1"])
    found = {(part.row, part.field): part.data for part in parts(JournalSource.at(folder))}
    assert found == {
        ("0", ""): b"value 0",
        ("1", ""): b"value 1",
        ("0", "key"): b"k0",
        ("0", "headers"): b"h0",
        ("1", "headers"): b"h1",
    }


def test_a_block_that_grew_has_another_version_and_a_full_one_keeps_its_own(folder: Path) -> None:
    append(folder, 1_500)
    source = JournalSource.at(folder)
    before = [row["version"] for row in listed(source)]
    append(folder, 1_000, first=1_500)
    after = [row["version"] for row in listed(source)]
    assert after[0] == before[0]
    assert after[1] not in before
    assert len(after) == 3


def test_a_reader_returns_what_is_there_now_under_the_version_of_now(folder: Path) -> None:
    append(folder, 10)
    source = JournalSource.at(folder)
    (row,) = listed(source)
    append(folder, 10, first=10)
    with source.open() as reader:
        content = reader.read(row["locator"], None)
        assert content.version != row["version"]
        assert len(list(content.parts)) == 20
        assert content.version == source.version(0, 20)


def test_records_appended_while_a_block_is_read_are_not_in_its_version(folder: Path) -> None:
    append(folder, 10)
    source = JournalSource.at(folder)
    with source.open() as reader:
        content = reader.read(format_block(0), None)
        append(folder, 10, first=10)
        assert len(list(content.parts)) == 10


def test_an_empty_journal_has_an_empty_listing(folder: Path) -> None:
    append(folder, 0)
    assert listed(JournalSource.at(folder)) == []


def test_a_journal_made_anew_is_another_one(folder: Path) -> None:
    append(folder, 5)
    old = JournalSource.at(folder)
    named = JournalSource.at(folder, name="events")
    shutil.rmtree(folder)
    append(folder, 5)
    new = JournalSource.at(folder)
    assert new.instance != old.instance
    assert JournalSource.at(folder, name="events").instance == named.instance
    assert listed(JournalSource.at(folder, name="events"))[0]["version"] != named.version(0, 5)
    with old.open() as reader, pytest.raises(ItemProblem) as refused:
        reader.read(format_block(0), None)
    assert refused.value.code is Problem.VANISHED


def test_a_journal_made_anew_before_it_is_listed_is_refused(folder: Path) -> None:
    append(folder, 5)
    old = JournalSource.at(folder)
    shutil.rmtree(folder)
    append(folder, 5)
    with pytest.raises(InputUnusable, match="another"):
        listed(old)


def test_a_journal_made_anew_while_it_is_read_fails(folder: Path) -> None:
    append(folder, 5)
    source = JournalSource.at(folder)
    with source.open() as reader:
        reader.read(format_block(0), None)
        shutil.rmtree(folder)
        append(folder, 5)
        with pytest.raises(ItemProblem):
            list(reader.read(format_block(0), None).parts)


@pytest.fixture
def trimmed(folder: Path) -> tuple[Path, int]:
    """A journal of which retention has removed the beginning, and its first offset."""
    append(folder, 3_000, size=200)
    with Journal.open(folder, SMALL) as journal:
        journal.remove_below(1_500)
        first = journal.first_offset
    assert 0 < first <= 1_500
    return folder, first


def test_a_trimmed_journal_begins_where_it_can_be_read(trimmed: tuple[Path, int]) -> None:
    folder, first = trimmed
    source = JournalSource.at(folder)
    assert parse_block(locators(source)[0]) == first // BLOCK_OFFSETS
    assert [part.row for part in parts(source)] == [str(number) for number in range(first, 3_000)]


def test_a_block_that_was_trimmed_away_has_vanished(folder: Path) -> None:
    append(folder, 3_000, size=200)
    source = JournalSource.at(folder)
    with source.open() as reader:
        begun = iter(reader.read(format_block(0), None).parts)
        next(begun)
        later = reader.read(format_block(0), None)
        with Journal.open(folder, SMALL) as journal:
            journal.remove_below(2_500)
        with pytest.raises(ItemProblem) as gone:
            reader.read(format_block(0), None)
        with pytest.raises(ItemProblem) as changed:
            list(later.parts)
    assert gone.value.code is Problem.VANISHED
    assert changed.value.code is Problem.CHANGED_WHILE_READ


@pytest.fixture
def damaged(folder: Path) -> Path:
    """A journal with a broken batch in its first segment."""
    append(folder, 3_000, size=200)
    (segment, *_) = sorted(path for path in folder.iterdir() if path.stat().st_size > 50_000)
    with segment.open("r+b") as file:
        file.seek(30_000)
        file.write(b"\xff" * 100)
    return folder


def test_a_damaged_block_is_a_failure_and_others_are_read(damaged: Path) -> None:
    source = JournalSource.at(damaged)
    codes = []
    with source.open() as reader:
        for locator in locators(source):
            try:
                assert list(reader.read(locator, None).parts)
            except ItemProblem as error:
                codes.append(error.code)
    assert codes == [Problem.DAMAGED]


def test_offsets_that_a_repair_gave_up_are_counted_as_lost(damaged: Path) -> None:
    apply_repair(OsDisk(), damaged, plan_repair(OsDisk(), damaged))
    found = parts(JournalSource.at(damaged))
    lost = sum(part.lost for part in found)
    assert lost > 0
    read = [part.row for part in found if not part.lost]
    assert len(read) + lost == 3_000
    assert [part for part in found if part.lost][0].data == b""  # noqa: RUF015


def test_a_folder_without_a_journal_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputMissing) as missing:
        JournalSource.at(tmp_path / "missing")
    with pytest.raises(FormatError, match="no journal") as refused:
        JournalSource.at(tmp_path)
    assert missing.value.hint
    assert refused.value.hint


def test_sizes_are_about_what_is_stored(folder: Path) -> None:
    append(folder, 3_000, size=200)
    source = JournalSource.at(folder)
    listed_bytes = sum(row["size"] for row in listed(source))
    assert 0.9 < listed_bytes / sum(len(part.data) for part in parts(source)) < 1.3


def test_no_handle_stays_open(folder: Path) -> None:
    append(folder, 2_000)
    source = JournalSource.at(folder)
    parts(source)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted as it is
    for _ in range(3):
        parts(source)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - the same


def test_reading_takes_no_lock(folder: Path) -> None:
    append(folder, 10)
    with Journal.open(folder, SMALL) as journal:
        journal.append([b"while it is written"])
        assert parts(JournalSource.at(folder))[-1].data == b"while it is written"
        with JournalReader.open(folder) as reader:
            assert reader.next_offset == 11


@given(st.integers(0, 2**63 // BLOCK_OFFSETS))
def test_locators_are_read_back_and_sort(block: int) -> None:
    assert parse_block(format_block(block)) == block
    assert format_block(block) < format_block(block + 1)
