"""Readers beside a writer: in another process, without a lock, within what they were promised, changing nothing."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.errors import (
    Closed,
    Damaged,
    FormatError,
    InvalidInput,
    OffsetBelowRetained,
    OffsetBeyondEnd,
    StorageRefused,
    StrandlineError,
)
from strandline.files import OsDisk
from strandline.journal import WRITTEN, Durability, Journal, JournalConfig, JournalReader, frontier_file
from strandline.journal.config import KiB
from strandline.journal.frontier import FRONTIER_NAME, Frontier, format_frontier, parse_frontier
from strandline.journal.segment import format_segment_name
from strandline.sim import SimDisk
from tests.journal.child import value_of
from tests.journal.helpers import (
    FOLDER,
    WAIT_S,
    Tally,
    WatchedDisk,
    content,
    contents,
    flip,
    numbered,
    open_descriptors,
    open_sim,
    plant,
    segments_in,
    values_of,
)

ROOT = Path(__file__).resolve().parent.parent.parent


class Writer:
    """A writer in another process."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self.child = child

    def say(self, *words: object) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(" ".join(map(str, words)) + "\n")
        self.child.stdin.flush()

    def hear(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def do(self, *words: object) -> str:
        self.say(*words)
        return self.hear()


@contextmanager
def writer(folder: Path, settings: str = '{"segment_bytes_max": 4096}') -> Iterator[Writer]:
    command = [sys.executable, "-m", "tests.journal.child", str(folder), settings]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        there = Writer(child)
        try:
            assert there.hear().startswith("open")
            yield there
        finally:
            child.kill()


def until(reader: JournalReader, offset: int) -> None:
    """Wait until the reader sees so far."""
    deadline = time.monotonic() + WAIT_S
    while reader.next_offset < offset:
        assert time.monotonic() < deadline, f"the reader sees {reader.next_offset}, not {offset}"
        time.sleep(0.001)


class TestALiveWriter:
    def test_what_is_durable_is_seen_and_what_is_written_only_on_request(self, tmp_path: Path) -> None:
        with writer(tmp_path / "j") as there:
            assert there.do("append", 3, 10, "synced") == "0 3 synced"
            with (
                JournalReader.open(tmp_path / "j") as reader,
                JournalReader.open(tmp_path / "j", visibility=WRITTEN) as eager,
            ):
                until(reader, 3)
                assert there.do("append", 2, 10, "written") == "3 2 written"
                until(eager, 5)
                assert (reader.next_offset, reader.durable_offset, eager.durable_offset) == (3, 3, 3)
                assert values_of(reader) == [value_of(offset, 10) for offset in range(3)]
                assert values_of(eager) == [value_of(offset, 10) for offset in range(5)]
                with pytest.raises(OffsetBeyondEnd) as caught:
                    reader.fetch(3)
                assert caught.value.next == 3
                assert eager.fetch(4).value == value_of(4, 10)
                assert there.do("sync") == "5"
                until(reader, 5)
                assert reader.fetch(4).value == value_of(4, 10)
                assert reader.identity == eager.identity

    @pytest.mark.parametrize("visibility", list(Durability))
    def test_a_follower_sees_every_record_once_across_rolls(self, tmp_path: Path, visibility: Durability) -> None:
        with (
            writer(tmp_path / "j", '{"segment_bytes_max": 2048}') as there,
            JournalReader.open(tmp_path / "j", visibility=visibility) as reader,
        ):
            for _ in range(30):
                there.do("append", 7, 60, "written")
            there.do("sync")
            seen = 0
            for batch in reader.follow(0, timeout_s=WAIT_S):
                for record in batch.records():
                    assert (record.offset, record.value) == (seen, value_of(seen, 60))
                    seen += 1
                if seen == 210:
                    there.say("append", 5, 60, "synced")
                if seen >= 215:
                    break
            assert seen == 215
            assert len(segments_in(tmp_path / "j")) > 5

    def test_a_follower_keeps_up_with_a_busy_writer_and_its_retention(self, tmp_path: Path) -> None:
        with writer(tmp_path / "j", '{"segment_bytes_max": 4096}') as there:
            there.say("hammer", 3000, 9, 40)
            drained = threading.Thread(target=lambda: [None for _ in iter(there.hear, "done")], daemon=True)
            drained.start()
            seen = overtaken = 0
            with JournalReader.open(tmp_path / "j") as reader:
                offset = 0
                while offset < 2990:
                    try:
                        for batch in reader.follow(offset, timeout_s=5):
                            assert batch.base_offset == offset
                            for record in batch.records():
                                assert record.value == value_of(record.offset, 40)
                                seen += 1
                            offset = batch.next_offset
                            if offset >= 2990:
                                break
                    except OffsetBelowRetained as error:
                        overtaken += 1
                        offset = error.first
            drained.join(WAIT_S)
            assert seen > 100

    def test_random_reads_beside_a_busy_writer_are_right_or_typed(self, tmp_path: Path) -> None:
        with writer(tmp_path / "j", '{"segment_bytes_max": 2048}') as there:
            there.say("hammer", 2500, 9, 40)
            drained = threading.Thread(target=lambda: [None for _ in iter(there.hear, "done")], daemon=True)
            drained.start()
            fetched = 0
            with JournalReader.open(tmp_path / "j") as reader:
                while drained.is_alive():
                    first, end = reader.first_offset, reader.next_offset
                    for offset in (first, (first + end) // 2, end - 1):
                        if not first <= offset < end:
                            continue
                        try:
                            assert reader.fetch(offset).value == value_of(offset, 40)
                            fetched += 1
                        except OffsetBelowRetained:
                            assert reader.first_offset > offset
                assert fetched > 50

    def test_a_writer_that_is_killed_leaves_a_journal_that_can_be_read(self, tmp_path: Path) -> None:
        with writer(tmp_path / "j") as there:
            there.do("append", 5, 10, "synced")
            there.do("append", 5, 10, "written")
            reader = JournalReader.open(tmp_path / "j", visibility=WRITTEN)
            until(reader, 10)
            there.child.kill()
            there.child.wait()
            assert values_of(reader) == [value_of(offset, 10) for offset in range(10)]
            assert list(reader.follow(10, timeout_s=0.05)) == []
            with Journal.open(tmp_path / "j") as journal:
                journal.append([b"next"])
                assert values_of(reader)[-1] == b"next"


class TestAlone:
    """Without a writer, on what one left behind."""

    def test_a_closed_journal_is_read_to_its_end_and_nothing_changes(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j", JournalConfig(segment_bytes_max=KiB)) as journal:
            for number in range(20):
                journal.append(numbered(number, number + 1, 200), durability=WRITTEN)
            journal.remove_below(8)
            first = journal.first_offset
        before = contents(tmp_path / "j")
        with JournalReader.open(tmp_path / "j") as reader:
            assert (reader.first_offset, reader.next_offset, reader.durable_offset) == (first, 20, 20)
            assert values_of(reader) == numbered(first, 20, 200)
            assert list(reader.follow(20, timeout_s=0.01)) == []
            assert reader.path == tmp_path / "j"
            with pytest.raises(OffsetBelowRetained):
                reader.scan(first - 1)
        assert contents(tmp_path / "j") == before

    @pytest.mark.parametrize("missing", [["frontier"], ["manifest"], ["frontier", "manifest"]])
    def test_a_copy_without_the_writers_word_is_read_as_far_as_it_proves_itself(self, missing: list[str]) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 200))
        for name in missing:
            disk.remove(FOLDER / name)
        before = contents(FOLDER, disk)
        reader = JournalReader.open(FOLDER, disk=disk)
        assert values_of(reader) == numbered(0, 11 if "manifest" in missing and len(missing) == 2 else 12, 200)
        eager = JournalReader.open(FOLDER, disk=disk, visibility=WRITTEN)
        assert values_of(eager) == numbered(0, 12, 200)
        assert contents(FOLDER, disk) == before

    def test_a_torn_end_is_not_shown_to_anybody(self) -> None:
        disk = SimDisk()
        journal = open_sim(disk)
        journal.append([b"a"])
        journal.append([b"b"], durability=WRITTEN)
        disk.kill()
        segment = FOLDER / format_segment_name(0)
        plant(segment, content(segment, disk)[:-3], disk)
        assert values_of(JournalReader.open(FOLDER, disk=disk)) == [b"a"]
        eager = JournalReader.open(FOLDER, disk=disk, visibility=WRITTEN)
        scan = eager.scan(0)
        assert next(scan).values() == [b"a"]
        with pytest.raises(OffsetBeyondEnd):
            next(scan)
        with pytest.raises(OffsetBeyondEnd):
            eager.fetch(1)
        disk.remove(FOLDER / "frontier")
        assert values_of(JournalReader.open(FOLDER, disk=disk, visibility=WRITTEN)) == [b"a"]

    @pytest.mark.parametrize("reserve", [0, 64 * KiB])
    def test_what_the_frontier_promises_and_the_file_does_not_hold_is_damage_not_a_hang(self, reserve: int) -> None:
        disk = SimDisk()
        journal = open_sim(disk, JournalConfig(reserve_bytes_max=reserve))
        journal.append([b"a"])
        journal.append([b"b"])
        disk.kill()
        segment = FOLDER / format_segment_name(0)
        for size in (64, 130, 0):
            data = content(segment, disk)[:size]
            plant(segment, data + bytes(reserve), disk)
            with pytest.raises(Damaged):
                values_of(JournalReader.open(FOLDER, disk=disk))
            with pytest.raises(Damaged):
                JournalReader.open(FOLDER, disk=disk).fetch(1)

    def test_a_frontier_older_than_the_files_is_not_believed(self) -> None:
        """It is never synced, so a crash may bring back one from before retention removed what it names."""
        disk = SimDisk()
        old: list[bytes] = []
        with open_sim(disk) as journal:
            for number in range(20):
                journal.append(numbered(number, number + 1, 300))
                old.append(content(FOLDER / "frontier", disk))
            journal.remove_below(15)
            first = journal.first_offset
        for frontier in old:
            plant(FOLDER / "frontier", frontier, disk)
            reader = JournalReader.open(FOLDER, disk=disk)
            assert reader.first_offset == first
            seen = values_of(reader)
            assert seen == numbered(first, first + len(seen), 300)
            assert reader.durable_offset == first + len(seen)

    def test_removals_of_which_a_crash_kept_some_are_not_a_hole(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(20):
                journal.append(numbered(number, number + 1, 300))
            frontier = content(FOLDER / "frontier", disk)
            kept = {name: content(FOLDER / name, disk) for name in segments_in(FOLDER, disk)[:1]}
            journal.remove_below(15)
            first = journal.first_offset
        for name, data in kept.items():
            plant(FOLDER / name, data, disk)
        plant(FOLDER / "frontier", frontier, disk)
        assert values_of(JournalReader.open(FOLDER, disk=disk)) == numbered(first, 20, 300)

    def test_a_missing_segment_is_reported(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
        names = segments_in(FOLDER, disk)
        disk.remove(FOLDER / names[2])
        reader = JournalReader.open(FOLDER, disk=disk)
        end = int(names[2].split(".")[0])
        assert [record.offset for batch in reader.scan(0, stop=end) for record in batch.records()] == list(range(end))
        with pytest.raises(StrandlineError):
            list(reader.scan(end - 1))
        with pytest.raises(StrandlineError):
            reader.fetch(int(names[2].split(".")[0]))
        disk.remove(FOLDER / names[0])
        reader = JournalReader.open(FOLDER, disk=disk)
        with pytest.raises(Damaged, match="offset 0 is missing"):
            values_of(reader)
        assert reader.fetch(2).value == numbered(2, 3, 300)[0]

    def test_damage_is_never_returned(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
        flip(FOLDER / segments_in(FOLDER, disk)[1], 300, disk)
        reader = JournalReader.open(FOLDER, disk=disk)
        with pytest.raises(Damaged):
            values_of(reader)


class TestTheFrontier:
    def test_a_torn_word_is_read_again(self) -> None:
        disk = SimDisk()
        journal = open_sim(disk)
        journal.append([b"a"])
        good = content(FOLDER / "frontier", disk)
        reads = 0

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            nonlocal reads
            if operation == "open" and path.name == "frontier":
                reads += 1
                plant(path, good if reads % 2 == 0 else good[:40] + bytes(24), disk)

        tally = Tally()
        reader = JournalReader.open(FOLDER, disk=WatchedDisk(WatchedDisk(disk, watch), tally))
        tally.clear()
        for _ in range(5):
            assert reader.next_offset == 1
        assert reads > 5
        assert {name for _, name in tally.log} == {"frontier"}, "there is no need to look at anything else"
        assert values_of(reader) == [b"a"]

    def test_a_segment_removed_between_two_looks_is_looked_for_again(self) -> None:
        """The frontier was read, then retention ran, then the names were listed."""
        disk = SimDisk()
        journal = open_sim(disk)
        for number in range(12):
            journal.append(numbered(number, number + 1, 300))
        reader_disk_armed = False

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            nonlocal reader_disk_armed
            if operation == "names" and reader_disk_armed:
                reader_disk_armed = False
                journal.remove_below(8)

        reader_disk_armed = True
        reader = JournalReader.open(FOLDER, disk=WatchedDisk(disk, watch))
        assert reader.first_offset == journal.first_offset == 8
        with pytest.raises(OffsetBelowRetained):
            reader.fetch(3)
        assert values_of(reader) == numbered(8, 12, 300)

    def test_it_says_what_the_writer_knows_once_the_writer_rests(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(
                    numbered(number, number + 1, 300), durability=WRITTEN if number % 2 else Durability.SYNCED
                )
                frontier = parse_frontier(content(FOLDER / "frontier", disk))
                assert frontier is not None
                assert frontier.identity == journal.identity
                assert (frontier.first_offset, frontier.written_offset) == (journal.first_offset, number + 1)
                assert frontier.durable_offset == journal.durable_offset
                assert frontier.active_base == int(segments_in(FOLDER, disk)[-1].split(".")[0])
            journal.remove_below(6)
            frontier = parse_frontier(content(FOLDER / "frontier", disk))
            assert frontier is not None
            assert frontier.first_offset == journal.first_offset == 6

    def test_it_never_goes_back_while_many_write(self, tmp_path: Path) -> None:
        """Commits, checkpoints and retention all tell of what they did; the last word must be the newest."""
        with Journal.open(tmp_path / "j", JournalConfig(segment_bytes_max=KiB)) as journal:
            stop = threading.Event()
            wrong: list[tuple[object, object]] = []

            def look() -> None:
                last = (0, 0, 0)
                while not stop.is_set():
                    frontier = parse_frontier((tmp_path / "j" / "frontier").read_bytes())
                    if frontier is not None:
                        now = (frontier.first_offset, frontier.written_offset, frontier.durable_offset)
                        if any(a > b for a, b in zip(last, now, strict=True)):
                            wrong.append((last, now))
                        last = now

            def produce() -> None:
                for number in range(40):
                    journal.append([bytes(200)], durability=WRITTEN if number % 2 else Durability.SYNCED)

            watcher = threading.Thread(target=look, daemon=True)
            producers = [threading.Thread(target=produce, daemon=True) for _ in range(4)]
            watcher.start()
            for thread in producers:
                thread.start()
            for _ in range(40):
                journal.sync()
                journal.remove_below(journal.durable_offset - 5 if journal.durable_offset > 5 else 0)
            for thread in producers:
                thread.join(WAIT_S)
            journal.sync()
            stop.set()
            watcher.join(WAIT_S)
            frontier = parse_frontier((tmp_path / "j" / "frontier").read_bytes())
            assert frontier is not None
            assert (frontier.written_offset, frontier.durable_offset) == (160, 160)
            assert not wrong

    def test_an_old_word_is_not_written_over_a_new_one(self, tmp_path: Path) -> None:
        """Whoever is slow to tell does so before anybody can have something newer to tell."""
        told, go_on = threading.Event(), threading.Event()
        armed = False

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if armed and operation == "pwritev" and path.name == "frontier" and not told.is_set():
                told.set()
                assert go_on.wait(WAIT_S)

        with Journal.open(tmp_path / "j", disk=WatchedDisk(OsDisk(), watch)) as journal:
            journal.append([b"a"], durability=WRITTEN)
            armed = True
            slow = threading.Thread(target=journal.sync, daemon=True)
            slow.start()
            assert told.wait(WAIT_S)
            quick = threading.Thread(target=journal.append, args=([b"b"],), daemon=True)
            quick.start()
            quick.join(0.1)
            go_on.set()
            for thread in (slow, quick):
                thread.join(WAIT_S)
                assert not thread.is_alive()
            frontier = parse_frontier((tmp_path / "j" / "frontier").read_bytes())
            assert frontier is not None
            assert (frontier.written_offset, frontier.durable_offset) == (2, 2)

    def test_another_journal_in_the_same_place_is_noticed(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"first"])
        reader = JournalReader.open(tmp_path / "j")
        assert values_of(reader) == [b"first"]
        (tmp_path / "j").rename(tmp_path / "old")
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"second"])
        with pytest.raises(FormatError, match="replaced"):
            values_of(reader)
        (tmp_path / "j" / "frontier").unlink()
        with pytest.raises(FormatError, match="replaced"):
            values_of(reader)

    @pytest.mark.parametrize(
        "word",
        [
            Frontier(b"i" * 16, 5, 4, 4, 0),
            Frontier(b"i" * 16, 0, 4, 5, 0),
            Frontier(b"i" * 16, 0, 4, 4, 5),
            Frontier(b"i" * 16, 4, 9, 3, 4),
        ],
        ids=str,
    )
    def test_a_word_that_contradicts_itself_is_none(self, word: Frontier) -> None:
        assert parse_frontier(format_frontier(word)) is None


class TestHowMuchIsRead:
    def test_a_follower_in_another_process_reads_each_byte_about_once(self, tmp_path: Path) -> None:
        """The index of the segment that is being written is not on the disk; a follower makes its own."""
        tally = Tally()
        with Journal.open(tmp_path / "j") as journal:
            journal.append([bytes(1000)])
            reader = JournalReader.open(tmp_path / "j", disk=WatchedDisk(OsDisk(), tally))
            follower = reader.follow(0)
            next(follower)
            for _ in range(2000):
                journal.append([bytes(1000)], durability=WRITTEN)
            journal.sync()
            seen = 1
            while seen < 2001:
                seen = next(follower).next_offset
            tally.clear()
            for _ in range(100):
                journal.append([bytes(1000)])
                assert next(follower).next_offset == journal.next_offset
            read = sum(1 for operation, name in tally.log if operation == "pread" and name.endswith(".journal"))
            assert read < 500
            assert tally.bytes["pread"] < 20_000_000, "not the whole segment each time"
            tally.clear()
            for offset in (0, 1000, 2050):
                assert reader.fetch(offset).offset == offset
            assert tally.bytes["pread"] < 3_000_000


class TestRefused:
    def test_no_journal_is_a_typed_error(self, tmp_path: Path) -> None:
        for folder in (tmp_path / "none", tmp_path):
            with pytest.raises(FormatError, match="no journal here") as caught:
                JournalReader.open(folder)
            assert caught.value.hint
        assert not (tmp_path / "none").exists()
        (tmp_path / "file").write_bytes(b"x")
        with pytest.raises(StorageRefused, match="ENOTDIR"):
            JournalReader.open(tmp_path / "file")

    def test_a_journal_that_goes_away_is_a_typed_error(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
        reader = JournalReader.open(tmp_path / "j")
        (tmp_path / "j").rename(tmp_path / "elsewhere")
        for call in (lambda: reader.fetch(0), lambda: reader.next_offset, lambda: list(reader.follow(0, timeout_s=0))):
            with pytest.raises(FormatError):
                call()

    def test_offsets_are_checked_as_the_journal_checks_them(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
        with JournalReader.open(tmp_path / "j") as reader:
            with pytest.raises(InvalidInput):
                reader.fetch(-1)
            with pytest.raises(OffsetBeyondEnd):
                reader.fetch(1)
            with pytest.raises(OffsetBeyondEnd):
                reader.scan(2)
            with pytest.raises(InvalidInput):
                reader.scan(0, max_records=-1)
            assert [b.values() for b in reader.scan(0, max_records=1, max_bytes=1)] == [[b"a"]]
            assert list(reader.scan(0, stop=0)) == []

    def test_a_visibility_that_is_none(self, tmp_path: Path) -> None:
        Journal.open(tmp_path / "j").close()
        with pytest.raises(InvalidInput, match="visibility"):
            JournalReader.open(tmp_path / "j", visibility="written")  # type: ignore[arg-type]

    def test_a_closed_reader_reads_no_more(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
        before = open_descriptors()
        with JournalReader.open(tmp_path / "j") as reader:
            values_of(reader)
        reader.close()
        assert open_descriptors() == before
        for call in (lambda: reader.fetch(0), lambda: reader.scan(0), lambda: reader.follow(0)):
            with pytest.raises(Closed):
                call()

    def test_an_error_of_the_device_is_typed(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            journal.append([b"a"])
        broken = ""

        def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001 - what a watch is called with
            if broken and operation in ("open", "pread") and path.name.endswith(broken):
                raise OSError(5, "no")

        for name in ("frontier", ".journal", "manifest"):
            broken = name
            with pytest.raises(StorageRefused, match="EIO"):
                values_of(JournalReader.open(FOLDER, disk=WatchedDisk(disk, watch)))
            broken = ""
            assert values_of(JournalReader.open(FOLDER, disk=WatchedDisk(disk, watch))) == [b"a"]


@pytest.mark.parametrize("tells", [True, False])
def test_a_writer_that_need_not_tell_readers_spares_a_lone_append_the_word(
    monkeypatch: pytest.MonkeyPatch, *, tells: bool
) -> None:
    monkeypatch.setattr(frontier_file, "STALE_S", float("inf"))
    disk = SimDisk()
    with open_sim(disk, JournalConfig(tells_readers=tells)) as journal:
        journal.append([b"one"])
        before = content(FOLDER / FRONTIER_NAME, disk)
        journal.append([b"two"])
        assert (content(FOLDER / FRONTIER_NAME, disk) != before) is tells
    with JournalReader.open(FOLDER, disk=disk) as reader:
        assert values_of(reader) == [b"one", b"two"]
