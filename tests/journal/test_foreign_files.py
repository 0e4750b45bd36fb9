"""Files of another journal, or of another time, among a journal's own: refused or reported, never served or hiding."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.errors import Damaged, FormatError
from strandline.files import OsDisk
from strandline.journal import (
    WRITTEN,
    Journal,
    JournalConfig,
    JournalReader,
    JournalSet,
    apply_repair,
    journal_reader,
    plan_repair,
)
from strandline.journal.batch import HEADER_BYTES, journal_tag
from strandline.journal.config import KiB
from strandline.journal.frontier import FRONTIER_NAME, Frontier, format_frontier, parse_frontier
from strandline.journal.index import format_index_name
from strandline.journal.manifest import MANIFEST_NAME
from strandline.journal.recovery import examine
from strandline.journal.segment import SEGMENT_HEADER_BYTES, SegmentHeader, format_segment_header, format_segment_name
from tests.journal.helpers import content, contents, numbered, plant, segments_in, values_of

CONFIG = JournalConfig(segment_bytes_max=KiB, reserve_bytes_max=0)
STRANGER = "belongs to another journal"


def make(folder: Path, letter: str, config: JournalConfig = CONFIG) -> Path:
    """Make a journal of 12 records in several segments; two of them differ in their letters and identity only."""
    with Journal.open(folder, config) as journal:
        for number in range(12):
            journal.append([f"{letter}{number:03d}".encode().ljust(300, b".")])
    return folder


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return make(tmp_path / "ours", "a")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return make(tmp_path / "theirs", "b")


def read_all(folder: Path) -> list[bytes]:
    with JournalReader.open(folder) as reader:
        return values_of(reader)


def open_and_scan(folder: Path) -> list[bytes]:
    with Journal.open(folder, CONFIG) as journal:
        return values_of(journal)


def look(folder: Path) -> list[bytes]:
    examine(OsDisk(), folder)
    return []


READERS = [read_all, open_and_scan, look]


class TestSegments:
    @pytest.mark.parametrize("number", [0, 1, -2, -1])
    @pytest.mark.parametrize("read", READERS)
    def test_a_segment_of_another_journal_is_refused(
        self, ours: Path, theirs: Path, number: int, read: Callable[[Path], list[bytes]]
    ) -> None:
        name = segments_in(ours)[number]
        assert (ours / name).stat().st_size == (theirs / name).stat().st_size, "only its identity tells it apart"
        shutil.copy(theirs / name, ours / name)
        before = contents(ours)
        with pytest.raises(FormatError, match=STRANGER) as caught:
            read(ours)
        assert caught.value.path == str(ours / name)
        assert caught.value.hint
        assert contents(ours) == before

    def test_a_reader_that_is_open_refuses_the_segment_that_it_opens_next(self, ours: Path, theirs: Path) -> None:
        with JournalReader.open(ours) as reader, Journal.open(ours, CONFIG) as journal:
            name = segments_in(ours)[1]
            shutil.copy(theirs / name, ours / name)
            for source in (reader, journal):
                with pytest.raises(FormatError, match=STRANGER):
                    values_of(source)
                with pytest.raises(FormatError, match=STRANGER):
                    source.fetch(int(name.split(".")[0]))

    @pytest.mark.parametrize("read", READERS)
    def test_a_segment_under_another_base_offset_is_refused(
        self, ours: Path, read: Callable[[Path], list[bytes]]
    ) -> None:
        first, second = segments_in(ours)[:2]
        shutil.copy(ours / first, ours / second)
        with pytest.raises(FormatError, match="the header says offset 0"):
            read(ours)

    def test_a_segment_of_another_journal_in_a_set_is_refused(self, tmp_path: Path, theirs: Path) -> None:
        with JournalSet.open(tmp_path / "set", CONFIG) as journals:
            journal = journals.journal("orders/0")
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
        folder = tmp_path / "set" / "orders" / "0"
        shutil.copy(theirs / segments_in(theirs)[0], folder)
        with JournalSet.open(tmp_path / "set", CONFIG) as journals, pytest.raises(FormatError, match=STRANGER):
            journals.journal("orders/0")

    @pytest.mark.parametrize("number", [0, -1])
    def test_batches_of_another_journal_under_our_header_are_damage(
        self, ours: Path, theirs: Path, number: int
    ) -> None:
        name = segments_in(ours)[number]
        (ours / name).write_bytes(
            (ours / name).read_bytes()[:SEGMENT_HEADER_BYTES] + (theirs / name).read_bytes()[SEGMENT_HEADER_BYTES:]
        )
        with pytest.raises(Damaged, match=STRANGER):
            read_all(ours)
        assert examine(OsDisk(), ours, deep=True).damage

    def test_a_damaged_header_of_a_sealed_segment_is_damage_and_repaired(self, ours: Path) -> None:
        name = segments_in(ours)[1]
        data = bytearray((ours / name).read_bytes())
        data[20] ^= 1
        (ours / name).write_bytes(data)
        for read in (read_all, open_and_scan):
            with pytest.raises(Damaged, match="the segment header is damaged"):
                read(ours)
        apply_repair(OsDisk(), ours, plan_repair(OsDisk(), ours))
        assert len(read_all(ours)) == 12


class TestIndexes:
    def test_the_index_of_another_segment_misleads_nobody(self, tmp_path: Path) -> None:
        config = JournalConfig(segment_bytes_max=400 * KiB)
        expected = numbered(0, 500, 3000)
        for name, size in (("ours", 3000), ("theirs", 2000)):
            with Journal.open(tmp_path / name, config) as journal:
                for number in range(500):
                    journal.append(numbered(number, number + 1, size), durability=WRITTEN)
        ours = tmp_path / "ours"
        shutil.copy(tmp_path / "theirs" / format_index_name(0), ours / format_index_name(0))
        with JournalReader.open(ours) as reader:
            assert [reader.fetch(offset).value for offset in range(0, 500, 7)] == expected[::7]
        with Journal.open(ours, config) as journal:
            assert values_of(journal, 60) == expected[60:]
            journal.append([b"more"])
            assert journal.fetch(500).value == b"more"

    def test_an_index_that_points_beyond_the_checkpoint_is_not_loaded(self, tmp_path: Path) -> None:
        for name, size in (("ours", 500), ("theirs", 3000)):
            with Journal.open(tmp_path / name) as journal:
                for number in range(300):
                    journal.append(numbered(number, number + 1, size), durability=WRITTEN)
        ours = tmp_path / "ours"
        shutil.copy(tmp_path / "theirs" / format_index_name(0), ours / format_index_name(0))
        (scan,) = examine(OsDisk(), ours).segments
        assert scan.index is None
        with Journal.open(ours) as journal:
            assert journal.fetch(299).value == numbered(299, 300, 500)[0]

    def test_a_record_that_holds_a_batch_of_another_journal_is_not_mistaken_for_one(self, tmp_path: Path) -> None:
        """An index may point into a record; what stands there is refused by its tag, whatever its offset says."""
        with Journal.open(tmp_path / "theirs") as journal:
            for number in range(200):
                journal.append([f"theirs {number}".encode().ljust(1024, b".")], durability=WRITTEN)
        data = (tmp_path / "theirs" / format_segment_name(0)).read_bytes()
        stolen = data[SEGMENT_HEADER_BYTES + HEADER_BYTES + 8 :]  # after our own headers, where it stood in theirs
        with Journal.open(tmp_path / "ours") as journal:
            journal.append([stolen])
            for _ in range(1, 200):
                journal.append([b"ours"], durability=WRITTEN)
        shutil.copy(tmp_path / "theirs" / format_index_name(0), tmp_path / "ours" / format_index_name(0))
        with JournalReader.open(tmp_path / "ours") as reader:
            assert {reader.fetch(offset).value for offset in range(1, 200)} == {b"ours"}


class TestManifests:
    @pytest.mark.parametrize("read", READERS)
    def test_the_manifest_of_another_journal_is_named(
        self, ours: Path, theirs: Path, read: Callable[[Path], list[bytes]]
    ) -> None:
        expected = read_all(ours)
        shutil.copy(theirs / MANIFEST_NAME, ours / MANIFEST_NAME)
        with pytest.raises(FormatError, match="the manifest belongs to another journal") as caught:
            read(ours)
        assert caught.value.path == str(ours / MANIFEST_NAME)
        (ours / MANIFEST_NAME).unlink()
        assert open_and_scan(ours) == read_all(ours) == expected

    def test_the_first_segment_and_the_manifest_missing_together_are_reported(self, ours: Path) -> None:
        (ours / segments_in(ours)[0]).unlink()
        (ours / MANIFEST_NAME).unlink()
        first = int(segments_in(ours)[0].split(".")[0])
        with pytest.raises(Damaged, match="segments before it are missing, and so is the manifest") as caught:
            open_and_scan(ours)
        assert f"offsets [0, {first}) cannot be read" in str(caught.value)
        assert caught.value.hint is not None
        assert "journal repair" in caught.value.hint
        with JournalReader.open(ours) as reader:
            assert reader.first_offset == 0
            with pytest.raises(Damaged, match="offset 0 is missing"):
                values_of(reader)
            whole = values_of(reader, first)
        apply_repair(OsDisk(), ours, plan_repair(OsDisk(), ours))
        with Journal.open(ours, CONFIG) as journal:
            assert values_of(journal, first)[: len(whole)] == whole
            assert journal.next_offset == 12

    def test_all_segments_missing_is_reported(self, ours: Path) -> None:
        for name in segments_in(ours):
            (ours / name).unlink()
        for read in (read_all, open_and_scan):
            with pytest.raises(Damaged, match="offsets that were durable are missing"):
                read(ours)

    def test_without_a_manifest_the_frontier_says_what_retention_removed(self, ours: Path) -> None:
        with Journal.open(ours, CONFIG) as journal:
            journal.remove_below(8)
            first = journal.first_offset
            expected = values_of(journal)
        (ours / MANIFEST_NAME).unlink()
        assert first > 0
        assert read_all(ours) == open_and_scan(ours) == expected


class TestFrontiers:
    def test_the_frontier_of_another_journal_is_not_believed(self, ours: Path, theirs: Path) -> None:
        expected = read_all(ours)
        shutil.copy(theirs / FRONTIER_NAME, ours / FRONTIER_NAME)
        assert read_all(ours) == expected
        (ours / MANIFEST_NAME).unlink()
        assert read_all(ours) == expected[:11], "the last batch is proved by nothing that is left"
        with JournalReader.open(ours, visibility=WRITTEN) as reader:
            assert values_of(reader) == expected

    @pytest.mark.parametrize("tells_place", [True, False])
    def test_a_stale_frontier_hides_nothing_that_the_files_prove(self, tmp_path: Path, tells_place: bool) -> None:
        folder = tmp_path / "j"
        stale: list[bytes] = []
        with Journal.open(folder, CONFIG) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
                journal.sync()
                stale.append((folder / FRONTIER_NAME).read_bytes())
        for data in stale:
            frontier = parse_frontier(data)
            assert frontier is not None
            assert frontier.active_bytes
            plant(folder / FRONTIER_NAME, data if tells_place else format_frontier(replace(frontier, active_bytes=0)))
            assert read_all(folder) == numbered(0, 12, 300)

    @pytest.mark.parametrize("tells_place", [True, False])
    def test_a_stale_frontier_of_one_segment_without_a_clean_end_hides_nothing_proved(
        self, tmp_path: Path, tells_place: bool
    ) -> None:
        """As in a copy of a folder whose frontier was copied first."""
        folder, copy = tmp_path / "j", tmp_path / "copy"
        with Journal.open(folder) as journal:
            journal.append([b"0"])
            journal.sync()
            frontier = parse_frontier((folder / FRONTIER_NAME).read_bytes())
            assert frontier is not None
            for number in range(1, 9):
                journal.append([b"%d" % number])
            journal.sync()
            shutil.copytree(folder, copy)
        plant(copy / FRONTIER_NAME, format_frontier(frontier if tells_place else replace(frontier, active_bytes=0)))
        assert read_all(copy) == [b"%d" % number for number in range(8)], "the last one is proved by nothing"
        with JournalReader.open(copy, visibility=WRITTEN) as reader:
            assert len(values_of(reader)) == 9
            assert list(reader.follow(9, timeout_s=0.01)) == []

    def test_a_frontier_that_goes_back_while_it_is_read_hides_nothing(self, tmp_path: Path) -> None:
        folder = tmp_path / "j"
        with Journal.open(folder, CONFIG) as journal:
            journal.append([b"0"])
            journal.sync()
            old = (folder / FRONTIER_NAME).read_bytes()
            journal.append([b"1"])
        with JournalReader.open(folder) as reader:
            assert reader.next_offset == 2
            plant(folder / FRONTIER_NAME, old)
            assert reader.next_offset == 2
            assert values_of(reader) == [b"0", b"1"]
            with Journal.open(folder, CONFIG) as journal:
                journal.append([b"2"])
            assert values_of(reader) == [b"0", b"1", b"2"]

    def test_the_word_of_a_busy_writer_is_believed_though_it_is_always_late(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every look finds another frontier, and the files ahead of each: opening waits once and examines nothing."""
        folder = tmp_path / "j"
        told: list[bytes] = []
        with Journal.open(folder, CONFIG) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
                journal.sync()
                told.append((folder / FRONTIER_NAME).read_bytes())
        waits: list[float] = []

        def tell_next(seconds: float) -> None:
            waits.append(seconds)
            plant(folder / FRONTIER_NAME, told[len(waits)])

        def refuse(*_: object) -> None:
            raise AssertionError("the files were examined")

        monkeypatch.setattr("strandline.journal.journal_reader.time.sleep", tell_next)
        monkeypatch.setattr(journal_reader, "examine", refuse)
        plant(folder / FRONTIER_NAME, told[0])
        with JournalReader.open(folder) as reader:
            assert reader.next_offset == 2
            plant(folder / FRONTIER_NAME, told[7])
            assert values_of(reader) == numbered(0, 8, 300)
        assert len(waits) == 1

    def test_a_frontier_ahead_of_the_files_is_damage_at_its_place(self, ours: Path) -> None:
        frontier = parse_frontier(content(ours / FRONTIER_NAME))
        assert frontier is not None
        ahead = Frontier(frontier.identity, 0, 20, 20, frontier.active_base, frontier.active_bytes)
        plant(ours / FRONTIER_NAME, format_frontier(ahead))
        with JournalReader.open(ours) as reader:
            assert sum(len(batch) for batch in reader.scan(0, stop=12)) == 12
            with pytest.raises(Damaged):
                values_of(reader)
        with pytest.raises(Damaged, match=r"offsets \[12, 20\)"):
            open_and_scan(ours)


def test_a_header_of_ours_on_nothing_is_an_empty_segment_of_ours(tmp_path: Path) -> None:
    """The check is of identity and base offset alone: a segment without batches passes it."""
    identity = bytes(range(16))
    folder = tmp_path / "j"
    folder.mkdir()
    plant(folder / format_segment_name(0), format_segment_header(SegmentHeader(identity, 0, 1)))
    with Journal.open(folder) as journal:
        assert journal.identity == identity
        journal.append([b"a"])
        assert next(iter(journal.scan(0))).tag == journal_tag(identity)
