"""Recovery: a torn suffix is cut, damage is reported and left alone, and no more is read than has to be."""

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c

from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.files import OsDisk
from strandline.journal import (
    WRITTEN,
    Journal,
    JournalConfig,
    JournalReader,
    TornTailCut,
    examine,
)
from strandline.journal import recovery as recovery_module
from strandline.journal import segment as segment_module
from strandline.journal.batch import HEADER, MAGIC, format_batch, format_lost
from strandline.journal.columns import columns_of
from strandline.journal.config import KiB, MiB
from strandline.journal.frontier import Frontier, format_frontier, parse_frontier
from strandline.journal.index import format_index_name
from strandline.journal.manifest import Sealed, format_manifest, parse_manifest
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    format_segment_header,
    format_segment_name,
    parse_segment_header,
    walk,
)
from strandline.sim import SimDisk
from tests.journal.helpers import (
    FOLDER,
    SMALL,
    Heard,
    LaterExecutor,
    Tally,
    WatchedDisk,
    batches_at,
    content,
    contents,
    flip,
    numbered,
    open_sim,
    plant,
    segments_in,
    values_of,
)

ONE = JournalConfig(segment_bytes_max=64 * MiB, reserve_bytes_max=0)
"""Everything in one segment."""
SEGMENT = FOLDER / format_segment_name(0)


def small_reads(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Make recovery read in chunks of `size`, far smaller than a batch."""
    monkeypatch.setattr(recovery_module, "walk", partial(walk, read_bytes=size))
    monkeypatch.setattr(segment_module, "READ_BYTES", size)


def check_opens_with(disk: SimDisk, expected: list[bytes], *, torn: bool) -> None:
    """It opens with exactly these values, goes on after them, and opens with both again."""
    before = examine(disk, FOLDER, deep=True)
    assert not before.damage
    assert (before.torn is not None) == torn
    heard = Heard()
    with open_sim(disk, ONE, events=heard.hub) as journal:
        assert values_of(journal) == expected
        assert (journal.next_offset, journal.durable_offset) == (len(expected), len(expected))
        assert journal.append([b"new"]).base_offset == len(expected)
        cuts = heard.of(TornTailCut)
        assert len(cuts) == torn
        if torn:
            assert isinstance(cuts[0], TornTailCut)
            assert cuts[0].next_offset == len(expected)
            assert cuts[0].bytes > 0
    with open_sim(disk, ONE) as journal:
        assert values_of(journal) == [*expected, b"new"]
    after = examine(disk, FOLDER, deep=True)
    assert (after.damage, after.torn, after.next_offset) == ([], None, len(expected) + 1)


def check_damaged(folder: Path, disk: SimDisk | OsDisk, opening: Callable[[], Journal]) -> Damaged:
    """It does not open, says why and what is safe, and not a byte has changed."""
    before = contents(folder, disk)
    with pytest.raises(Damaged) as caught:
        opening()
    assert contents(folder, disk) == before
    assert "repair --dry-run" in caught.value.safe
    assert str(folder) in str(caught.value)
    deep = examine(disk, folder, deep=True)
    assert deep.damage
    return caught.value


def torn_off(last: list[bytes], size: int = 30) -> tuple[SimDisk, int, int]:
    """Return a disk whose last batch is written and not durable, and where that batch lies in the only segment."""
    disk = SimDisk()
    journal = open_sim(disk, ONE)
    journal.append(numbered(0, 3, size))
    journal.append(numbered(3, 4, size), keys=[b"key"])
    journal.append(last, durability=WRITTEN)
    disk.kill()
    position, length = list(batches_at(SEGMENT, disk))[-1]
    assert position + length == len(content(SEGMENT, disk))
    return disk, position, length


def forged_lost(base: int, durable: int) -> bytes:
    """Return a batch of lost offsets that claims to prove something, which no repair makes."""
    head = HEADER.pack(MAGIC, 0, 0, 1, base, durable, 0, 0, 0, 0)
    return head[:4] + struct.pack("<I", crc32c(head[8:])) + head[8:]


class TestTornTail:
    @pytest.mark.parametrize(("first", "read_bytes"), [(0, None), (1, 64), (2, 96), (3, 200)])
    def test_cut_at_every_byte_of_the_last_batch(
        self, monkeypatch: pytest.MonkeyPatch, first: int, read_bytes: int | None
    ) -> None:
        """The last batch spans many read buffers; wherever it is cut, it is gone and the rest is not.

        Every fourth byte with a size of buffers: together they are all of them.
        """
        self._cut(monkeypatch, read_bytes, first, 4)

    @pytest.mark.long
    @pytest.mark.parametrize("read_bytes", [None, 64, 96, 200])
    def test_the_same_at_every_byte_with_every_size_of_buffers(
        self, monkeypatch: pytest.MonkeyPatch, read_bytes: int | None
    ) -> None:
        self._cut(monkeypatch, read_bytes, 0, 1)

    def _cut(self, monkeypatch: pytest.MonkeyPatch, read_bytes: int | None, first: int, step: int) -> None:
        if read_bytes is not None:
            small_reads(monkeypatch, read_bytes)
        disk, position, length = torn_off([bytes([n]) * 70 for n in range(1, 9)])
        whole = content(SEGMENT, disk)
        saved = contents(FOLDER, disk)
        for cut in range(position + first, position + length, step):
            disk = SimDisk()
            disk.make_folder(FOLDER)
            for name, data in saved.items():
                plant(FOLDER / name, data, disk)
            plant(SEGMENT, whole[:cut], disk)
            check_opens_with(disk, numbered(0, 4, 30), torn=cut > position)

    @pytest.mark.parametrize("filling", ["zeros", "ones", "random", "old bytes"])
    def test_the_end_of_the_last_batch_was_not_written(self, filling: str) -> None:
        """The file is as long as it should be, and a part of it is not what it should be."""
        disk, position, length = torn_off([bytes([n]) * 70 for n in range(1, 9)])
        whole = content(SEGMENT, disk)
        saved = contents(FOLDER, disk)
        random = Random(1)
        for cut in range(position, position + length, 7):
            missing = position + length - cut
            fill = {
                "zeros": bytes(missing),
                "ones": b"\xff" * missing,
                "random": random.randbytes(missing),
                "old bytes": whole[64 : 64 + missing].ljust(missing, b"?"),
            }[filling]
            disk = SimDisk()
            disk.make_folder(FOLDER)
            for name, data in saved.items():
                plant(FOLDER / name, data, disk)
            plant(SEGMENT, whole[:cut] + fill, disk)
            is_clean = cut == position and filling == "zeros"
            check_opens_with(disk, numbered(0, 4, 30), torn=not is_clean)

    def test_any_sectors_of_the_last_write_may_be_missing(self) -> None:
        disk, position, _ = torn_off([bytes([n]) * 200 for n in range(1, 30)])
        whole = content(SEGMENT, disk)
        saved = contents(FOLDER, disk)
        for seed in range(60):
            random = Random(seed)
            data = bytearray(whole)
            for begin in range(position - position % 512, len(whole), 512):
                low, high = max(begin, position), min(begin + 512, len(whole))
                if random.random() < 0.4:
                    data[low:high] = bytes(high - low)
            if bytes(data) == whole:
                continue
            disk = SimDisk()
            disk.make_folder(FOLDER)
            for name, old in saved.items():
                plant(FOLDER / name, old, disk)
            plant(SEGMENT, bytes(data), disk)
            is_clean = not any(data[position:])
            check_opens_with(disk, numbered(0, 4, 30), torn=not is_clean)

    def test_a_batch_of_many_mebibytes(self, tmp_path: Path) -> None:
        """Longer than any read buffer, cut at each boundary, beside it, and at random."""
        random = Random(7)
        last = [random.randbytes(700_001) for _ in range(5)]
        with Journal.open(tmp_path / "j", ONE) as journal:
            journal.append(numbered(0, 3))
        folder = tmp_path / "j"
        saved = contents(folder)
        with Journal.open(folder, ONE) as journal:
            journal.append(last)
        segment = folder / format_segment_name(0)
        position, length = list(batches_at(segment))[-1]
        whole = segment.read_bytes()
        places = {
            position + 1,
            position + 47,
            position + 48,
            position + 49,
            position + length - 1,
            position + length - 8,
        }
        for boundary in range(MiB, len(whole), MiB):
            places |= {boundary - 1, boundary, boundary + 1, position + boundary - 1, position + boundary}
        places |= {random.randrange(position + 1, position + length) for _ in range(8)}
        for cut in sorted(place for place in places if position < place < position + length):
            for name, data in saved.items():
                (folder / name).write_bytes(data)
            segment.write_bytes(whole[:cut])
            heard = Heard()
            with Journal.open(folder, ONE, events=heard.hub) as journal:
                assert values_of(journal) == numbered(0, 3)
                (cut_off,) = heard.of(TornTailCut)
                assert isinstance(cut_off, TornTailCut)
                assert cut_off.bytes == cut - position
                journal.append([b"new"])
            assert segment.read_bytes()[:position] == whole[:position]
            assert len(segment.read_bytes()) < position + 200, "nothing lies behind the new record"

    def test_a_torn_segment_header_takes_its_segment_with_it(self) -> None:
        """Cut at every byte of the header, and of the one batch behind it."""
        disk = SimDisk()
        later = LaterExecutor()
        journal = Journal.open(FOLDER, SMALL, disk=disk, executor=later)
        journal.append([bytes(600)])
        journal.append([bytes(600)], durability=WRITTEN)
        disk.kill()
        saved = contents(FOLDER, disk)
        name = format_segment_name(1)
        assert name in saved
        for cut in range(len(saved[name])):
            disk = SimDisk()
            disk.make_folder(FOLDER)
            for other, data in saved.items():
                plant(FOLDER / other, data, disk)
            plant(FOLDER / name, saved[name][:cut], disk)
            with open_sim(disk) as journal:
                assert values_of(journal) == [bytes(600)]
                assert journal.append([b"new"]).base_offset == 1
            with open_sim(disk) as journal:
                assert values_of(journal) == [bytes(600), b"new"]

    def test_what_was_written_behind_a_lost_write_goes_with_it(self) -> None:
        """Writes are not ordered by the disk: a whole batch behind a hole was promised to nobody."""
        disk = SimDisk()
        journal = open_sim(disk)
        journal.append([b"kept"])
        for number in range(8):
            journal.append(numbered(number, number + 1, 300), durability=WRITTEN)
        names = segments_in(FOLDER, disk)
        assert len(names) > 2
        saved = contents(FOLDER, disk)
        later = journal.durable_offset
        disk.kill()
        for hole in range(later, 8):
            disk = SimDisk()
            disk.make_folder(FOLDER)
            for name, data in saved.items():
                plant(FOLDER / name, data, disk)
            segment = FOLDER / max(name for name in names if int(name.split(".")[0]) <= hole)
            base = int(segment.name.split(".")[0])
            position, _ = list(batches_at(segment, disk))[hole - base]
            flip(segment, position + 60, disk)
            with open_sim(disk) as journal:
                assert journal.next_offset == hole
                assert values_of(journal) == [b"kept", *numbered(0, 8, 300)][:hole]
                assert journal.append([b"new"]).base_offset == hole
            found = examine(disk, FOLDER, deep=True)
            assert (found.damage, found.torn, found.next_offset) == ([], None, hole + 1)

    def test_half_of_a_commit_of_two_batches_is_the_first_append_alone(self) -> None:
        disk = SimDisk()
        later = LaterExecutor()
        journal = Journal.open(FOLDER, ONE, disk=disk, executor=later)
        journal.append_soon([b"a", b"b"], durability=WRITTEN)
        journal.append_soon([b"c"], keys=[b"k"], durability=WRITTEN)
        later.run_all()
        disk.kill()
        data = content(SEGMENT, disk)
        plant(SEGMENT, data[:-1], disk)
        with open_sim(disk, ONE) as journal:
            assert values_of(journal) == [b"a", b"b"]

    def test_a_record_that_holds_a_batch_is_not_taken_for_one(self) -> None:
        """A torn write whose records are themselves batches, as in a journal of what another journal wrote."""
        inner, _ = format_batch(500, 400, 0, columns_of([b"not ours"], None, None, None, ONE))
        for record in (b"".join(inner), format_lost(500, 1, 64), forged_lost(500, 400)):
            disk, position, length = torn_off([record, bytes(100)])
            plant(SEGMENT, content(SEGMENT, disk)[: position + length - 8], disk)
            check_opens_with(disk, numbered(0, 4, 30), torn=True)

    @pytest.mark.parametrize("seed", range(16))
    def test_what_was_cut_off_does_not_come_back(self, seed: int) -> None:
        """A whole batch behind the torn one would fit exactly behind what is written in the torn one's place."""
        disk = SimDisk()
        journal = open_sim(disk, ONE)
        journal.append([b"kept"])
        journal.append([b"torn"], durability=WRITTEN)
        journal.append([b"gone"], durability=WRITTEN)
        disk.kill()
        disk.open(SEGMENT, "write").sync()  # the disk has it all
        position, _ = list(batches_at(SEGMENT, disk))[1]
        flip(SEGMENT, position + 60, disk)
        journal = open_sim(disk, ONE)
        assert values_of(journal) == [b"kept"]
        journal.append([b"new!"])
        disk.crash(Random(seed))
        with open_sim(disk, ONE) as journal:
            assert values_of(journal) == [b"kept", b"new!"]

    def test_cutting_survives_a_crash_of_its_own(self) -> None:
        disk, position, length = torn_off([bytes(400)] * 5)
        whole = content(SEGMENT, disk)
        plant(SEGMENT, whole[: position + length // 2], disk)
        saved = contents(FOLDER, disk)
        for changes in range(20):
            for seed in range(5):
                disk = SimDisk()
                disk.make_folder(FOLDER)
                for name, data in saved.items():
                    plant(FOLDER / name, data, disk)
                left = changes

                def watch(operation: str, path: Path, size: int) -> None:  # noqa: ARG001
                    nonlocal left
                    if operation in ("truncate", "sync", "pwritev", "create", "remove", "rename", "sync_folder"):
                        if not left:
                            raise OSError(5, "off")
                        left -= 1

                with suppress(StrandlineError):
                    open_sim(WatchedDisk(disk, watch), ONE)
                disk.crash(Random(seed))
                with open_sim(disk, ONE) as journal:
                    assert values_of(journal) == numbered(0, 4, 30)


class TestDurableBytes:
    def durable(self) -> SimDisk:
        """Return a disk with a journal that was killed; everything in it is durable, and the frontier says so."""
        disk = SimDisk()
        journal = open_sim(disk, ONE)
        for number in range(0, 12, 3):
            journal.append(numbered(number, number + 3, 40))
        disk.kill()
        return disk

    def test_a_flipped_bit_anywhere_is_damage(self) -> None:
        disk = self.durable()
        whole = content(SEGMENT, disk)
        for position in range(SEGMENT_HEADER_BYTES, len(whole), 5):
            changed = bytearray(whole)
            changed[position] ^= 1 << position % 8
            plant(SEGMENT, bytes(changed), disk)
            error = check_damaged(FOLDER, disk, lambda: open_sim(disk, ONE))
            assert "offsets [" in str(error)
            disk.kill()
        plant(SEGMENT, whole, disk)
        with open_sim(disk, ONE) as journal:
            assert values_of(journal) == numbered(0, 12, 40)

    def test_a_cut_anywhere_is_damage(self) -> None:
        disk = self.durable()
        whole = content(SEGMENT, disk)
        for size in range(0, len(whole), 7):
            plant(SEGMENT, whole[:size], disk)
            check_damaged(FOLDER, disk, lambda: open_sim(disk, ONE))
            disk.kill()

    def test_the_message_names_the_place_and_what_can_still_be_read(self) -> None:
        disk = self.durable()
        position, _ = list(batches_at(SEGMENT, disk))[2]
        flip(SEGMENT, position + 70, disk)
        error = check_damaged(FOLDER, disk, lambda: open_sim(disk, ONE))
        assert f"at byte {position:,}" in str(error)
        assert "offsets [6, 9) cannot be read" in str(error)
        assert "[0, 6) are whole" in error.safe
        found = examine(disk, FOLDER)
        assert [(damage.first_offset, damage.end_offset) for damage in found.damage] == [(6, 9)]
        disk.remove(FOLDER / "frontier")
        reader = JournalReader.open(FOLDER, disk=disk)
        assert [value for batch in reader.scan(0, stop=6) for value in batch.values()] == numbered(0, 6, 40)
        with pytest.raises(Damaged, match="does not match"):
            values_of(reader)

    def test_a_later_batch_proves_an_earlier_one_without_the_frontier(self) -> None:
        """Each batch carries what was durable when it was written, so only the last has no witness."""
        disk = self.durable()
        disk.remove(FOLDER / "frontier")
        disk.remove(FOLDER / "manifest")
        positions = [position for position, _ in batches_at(SEGMENT, disk)]
        whole = content(SEGMENT, disk)
        for position in positions[:-1]:
            plant(SEGMENT, whole, disk)
            flip(SEGMENT, position + 60, disk)
            check_damaged(FOLDER, disk, lambda: open_sim(disk, ONE))
            disk.kill()

    def test_the_frontier_proves_the_last_one(self) -> None:
        disk = self.durable()
        position, _ = list(batches_at(SEGMENT, disk))[-1]
        flip(SEGMENT, position + 60, disk)
        error = check_damaged(FOLDER, disk, lambda: open_sim(disk, ONE))
        assert "[9, 12)" in str(error)

    def test_the_manifest_proves_the_last_one_after_a_clean_shutdown(self) -> None:
        disk = SimDisk()
        with open_sim(disk, ONE) as journal:
            journal.append([b"a"])
            journal.append([b"b"], durability=WRITTEN)
        disk.remove(FOLDER / "frontier")
        whole = content(SEGMENT, disk)
        plant(SEGMENT, whole[:-8], disk)
        check_damaged(FOLDER, disk, lambda: open_sim(disk, ONE))

    def test_several_bad_places_are_all_found(self) -> None:
        disk = self.durable()
        positions = [position for position, _ in batches_at(SEGMENT, disk)]
        flip(SEGMENT, positions[0] + 60, disk)
        flip(SEGMENT, positions[2], disk)
        found = examine(disk, FOLDER, deep=True)
        assert [(damage.first_offset, damage.end_offset) for damage in found.damage] == [(0, 3), (6, 9)]
        assert "1 more place" in str(check_damaged(FOLDER, disk, lambda: open_sim(disk, ONE)))

    @pytest.mark.parametrize("read_bytes", [64, 200])
    def test_bad_places_are_found_in_small_reads_too(self, monkeypatch: pytest.MonkeyPatch, read_bytes: int) -> None:
        small_reads(monkeypatch, read_bytes)
        self.test_several_bad_places_are_all_found()
        self.test_the_message_names_the_place_and_what_can_still_be_read()


class TestSegments:
    def many(self, *, close: bool = True) -> SimDisk:
        disk = SimDisk()
        journal = open_sim(disk)
        for number in range(12):
            journal.append(numbered(number, number + 1, 300))
        if close:
            journal.close()
        disk.kill()
        assert [int(name.split(".")[0]) for name in segments_in(FOLDER, disk)] == [0, 2, 4, 6, 8, 10]
        return disk

    @pytest.mark.parametrize("close", [True, False])
    @pytest.mark.parametrize("base", [0, 2, 6, 10])
    def test_a_missing_one(self, base: int, close: bool) -> None:
        disk = self.many(close=close)
        disk.remove(FOLDER / format_segment_name(base))
        error = check_damaged(FOLDER, disk, lambda: open_sim(disk))
        assert f"[{base}, {base + 2})" in str(error)

    def test_all_missing(self) -> None:
        disk = self.many()
        for name in segments_in(FOLDER, disk):
            disk.remove(FOLDER / name)
        check_damaged(FOLDER, disk, lambda: open_sim(disk))
        disk.kill()
        disk.remove(FOLDER / "manifest")
        check_damaged(FOLDER, disk, lambda: open_sim(disk))  # the frontier remembers

    def test_a_missing_one_without_any_hint(self) -> None:
        disk = self.many()
        for name in disk.names(FOLDER):
            if name in ("manifest", "frontier") or name.endswith(".index"):
                disk.remove(FOLDER / name)
        disk.remove(FOLDER / format_segment_name(4))
        error = check_damaged(FOLDER, disk, lambda: open_sim(disk))
        assert "[4, 6)" in str(error)

    @pytest.mark.parametrize("hints", [True, False])
    def test_a_sealed_one_that_was_cut(self, hints: bool) -> None:
        for size in (0, 10, 64, 100, 64 + 376, 500):
            disk = self.many()
            if not hints:
                for name in ("manifest", "frontier"):
                    disk.remove(FOLDER / name)
            path = FOLDER / format_segment_name(4)
            plant(path, content(path, disk)[:size], disk)
            check_damaged(FOLDER, disk, lambda disk=disk: open_sim(disk))  # type: ignore[misc]

    def test_a_sealed_one_that_grew(self) -> None:
        disk = self.many()
        path = FOLDER / format_segment_name(4)
        whole = content(path, disk)
        plant(path, whole + bytes(100), disk)
        with open_sim(disk) as journal:
            assert values_of(journal) == numbered(0, 12, 300)  # zeros are only space
        plant(path, whole + b"more" * 10, disk)
        check_damaged(FOLDER, disk, lambda: open_sim(disk))

    def test_one_bit_of_a_sealed_one_is_found_when_it_is_read(self) -> None:
        disk = self.many()
        flip(FOLDER / format_segment_name(4), 200, disk)
        with open_sim(disk) as journal:  # it was not looked at
            assert journal.fetch(3).offset == 3
            with pytest.raises(Damaged):
                journal.fetch(4)
            with pytest.raises(Damaged):
                list(journal.scan(0))
        found = examine(disk, FOLDER, deep=True)
        assert [(damage.first_offset, damage.end_offset) for damage in found.damage] == [(4, 5)]

    def test_a_bad_header_of_a_sealed_one(self) -> None:
        for position in (8, 20, 40, 61):
            disk = self.many()
            disk.remove(FOLDER / "manifest")
            flip(FOLDER / format_segment_name(4), position, disk)
            error = check_damaged(FOLDER, disk, lambda disk=disk: open_sim(disk))  # type: ignore[misc]
            assert "[4, 6)" in str(error)

    @pytest.mark.parametrize("position", [20, 40, 100, 300])
    def test_one_that_lost_its_successor_is_looked_at_before_it_is_appended_to(self, position: int) -> None:
        disk = SimDisk()
        journal = open_sim(disk)
        for number in range(6):
            journal.append(numbered(number, number + 1, 300))
        journal.append(numbered(6, 7, 300), durability=WRITTEN)
        disk.kill()
        *_, sealed, active = segments_in(FOLDER, disk)
        assert active == format_segment_name(6)
        plant(FOLDER / active, content(FOLDER / active, disk)[:10], disk)  # torn, and promised to nobody
        flip(FOLDER / sealed, position, disk)
        check_damaged(FOLDER, disk, lambda: open_sim(disk))

    def test_overlapping_ones(self) -> None:
        disk = self.many()
        header = parse_segment_header(content(FOLDER / format_segment_name(4), disk)[:64], "")
        data = format_segment_header(SegmentHeader(header.identity, 5, 0))
        second = list(batches_at(FOLDER / format_segment_name(4), disk))[1]
        data += content(FOLDER / format_segment_name(4), disk)[second[0] : second[0] + second[1]]
        plant(FOLDER / format_segment_name(5), data, disk)
        error = check_damaged(FOLDER, disk, lambda: open_sim(disk))
        assert "overlap" in str(error)

    def test_exchanged_ones(self) -> None:
        disk = self.many()
        disk.remove(FOLDER / "manifest")
        paths = FOLDER / format_segment_name(2), FOLDER / format_segment_name(4)
        data = [content(path, disk) for path in paths]
        for path, other in zip(paths, reversed(data), strict=True):
            plant(path, other, disk)
        before = contents(FOLDER, disk)
        with pytest.raises(FormatError, match="the header says offset 4") as caught:
            open_sim(disk)
        assert "renamed" in (caught.value.hint or "")
        assert contents(FOLDER, disk) == before

    def test_one_of_another_journal(self) -> None:
        disk, other = self.many(), self.many()
        disk.remove(FOLDER / "manifest")
        name = format_segment_name(4)
        plant(FOLDER / name, content(FOLDER / name, other), disk)
        before = contents(FOLDER, disk)
        with pytest.raises(FormatError, match="another journal"):
            open_sim(disk)
        assert contents(FOLDER, disk) == before

    def test_one_of_a_later_version(self) -> None:
        disk = self.many()
        disk.remove(FOLDER / "manifest")
        path = FOLDER / format_segment_name(4)
        data = bytearray(content(path, disk))
        data[8] = 2
        data[60:64] = struct.pack("<I", crc32c(bytes(data[:60])))
        plant(path, bytes(data), disk)
        with pytest.raises(FormatError, match="version 2") as caught:
            open_sim(disk)
        assert "Strandline" in (caught.value.hint or "")

    def test_a_foreign_file_under_a_segments_name(self) -> None:
        disk = self.many()
        disk.remove(FOLDER / "manifest")
        plant(FOLDER / format_segment_name(12), b"Dear diary, ".ljust(500, b"x"), disk)
        before = contents(FOLDER, disk)
        with pytest.raises(FormatError, match="not a journal segment"):
            open_sim(disk)
        assert contents(FOLDER, disk) == before


class TestManifest:
    def crashed(self) -> SimDisk:
        disk = SimDisk()
        journal = open_sim(disk)
        for number in range(12):
            journal.append(numbered(number, number + 1, 300))
        disk.kill()
        return disk

    @pytest.mark.parametrize("harm", ["missing", "empty", "flipped", "cut", "text", "json"])
    def test_a_missing_or_damaged_one_only_costs_time(self, harm: str) -> None:
        disk = self.crashed()
        path = FOLDER / "manifest"
        whole = content(path, disk)
        harmed = {
            "empty": b"",
            "flipped": whole[:80] + bytes([whole[80] ^ 1]) + whole[81:],
            "cut": whole[:-10],
            "text": b"nothing like it\n",
            "json": b"strandline-manifest 1 crc32c=%08x\n[]\n" % crc32c(b"[]"),
        }
        identity = examine(disk, FOLDER).identity
        if harm == "missing":
            disk.remove(path)
        else:
            plant(path, harmed[harm], disk)
        with open_sim(disk) as journal:
            assert values_of(journal) == numbered(0, 12, 300)
            assert journal.identity == identity
            assert journal.append([b"on"]).base_offset == 12
        manifest = parse_manifest(content(path, disk), "")
        assert manifest is not None
        assert manifest.durable_offset == 13

    def test_without_it_the_first_segment_tells_where_the_journal_begins(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
            journal.remove_below(6)
        disk.remove(FOLDER / "manifest")
        with open_sim(disk) as journal:
            assert (journal.first_offset, journal.next_offset) == (6, 12)
            assert values_of(journal) == numbered(6, 12, 300)

    def test_an_old_one_is_true_and_less(self) -> None:
        """Its offsets are a floor, never a ceiling: what the scan finds beyond counts."""
        disk = SimDisk()
        manifests: list[bytes] = []
        journal = open_sim(disk)
        for number in range(30):
            journal.append(numbered(number, number + 1, 300))
            manifests.append(content(FOLDER / "manifest", disk))
        disk.kill()
        saved = contents(FOLDER, disk)
        assert len(set(manifests)) > 10
        for manifest in dict.fromkeys(manifests):
            disk = SimDisk()
            disk.make_folder(FOLDER)
            for name, data in saved.items():
                plant(FOLDER / name, data, disk)
            plant(FOLDER / "manifest", manifest, disk)
            with open_sim(disk) as journal:
                assert values_of(journal) == numbered(0, 30, 300)
                assert journal.append([b"on"]).base_offset == 30

    def test_an_old_one_from_before_retention_is_reported(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
            old = content(FOLDER / "manifest", disk)
            journal.remove_below(6)
        plant(FOLDER / "manifest", old, disk)
        check_damaged(FOLDER, disk, lambda: open_sim(disk))

    def test_one_of_a_later_version_is_left_alone(self) -> None:
        disk = self.crashed()
        body = content(FOLDER / "manifest", disk).split(b"\n", 1)[1].removesuffix(b"\n")
        plant(FOLDER / "manifest", b"strandline-manifest 2 crc32c=%08x\n" % crc32c(body) + body + b"\n", disk)
        before = contents(FOLDER, disk)
        with pytest.raises(FormatError, match="version 2") as caught:
            open_sim(disk)
        assert caught.value.hint
        assert contents(FOLDER, disk) == before

    def changed(self, disk: SimDisk, **changes: object) -> None:
        manifest = parse_manifest(content(FOLDER / "manifest", disk), "")
        assert manifest is not None
        plant(FOLDER / "manifest", format_manifest(replace(manifest, **changes)), disk)  # type: ignore[arg-type]

    def test_one_that_promises_more_than_there_is(self) -> None:
        disk = self.crashed()
        self.changed(disk, durable_offset=50, active_bytes=10**6)
        error = check_damaged(FOLDER, disk, lambda: open_sim(disk))
        assert "[12, 50)" in str(error)

    @pytest.mark.parametrize(
        "changes",
        [
            {"durable_offset": 11},
            {"active_bytes": 100},
            {"active_bytes": 8},
            {"active_base": 8},
            {"first_offset": 4},
            {"first_offset": 12},
            {"sealed": ()},
            {"sealed": (Sealed(0, 10, 1000, 0), Sealed(8, 10, 1000, 0))},
            {"sealed": (Sealed(0, 20, 1000, 0), Sealed(20, 10, 1000, 0))},
            {"identity": b"short"},
        ],
        ids=str,
    )
    def test_one_that_contradicts_itself_is_not_believed(self, changes: dict[str, object]) -> None:
        """It would have recovery begin in the wrong place, and take good batches there for torn ones."""
        disk = self.crashed()
        self.changed(disk, **changes)
        with open_sim(disk) as journal:
            assert values_of(journal) == numbered(0, 12, 300)


class TestFrontier:
    def crashed(self) -> SimDisk:
        disk = SimDisk()
        journal = open_sim(disk, ONE)
        for number in range(5):
            journal.append(numbered(number, number + 1, 30))
        disk.kill()
        return disk

    @pytest.mark.parametrize("harm", ["missing", "empty", "flipped", "cut", "longer", "zeros"])
    def test_a_missing_or_torn_one_costs_nothing(self, harm: str) -> None:
        disk = self.crashed()
        path = FOLDER / "frontier"
        whole = content(path, disk)
        harmed = {
            "empty": b"",
            "flipped": whole[:30] + bytes([whole[30] ^ 1]) + whole[31:],
            "cut": whole[:-1],
            "longer": whole + b"x",
            "zeros": bytes(64),
        }
        if harm == "missing":
            disk.remove(path)
        else:
            plant(path, harmed[harm], disk)
        assert values_of(JournalReader.open(FOLDER, disk=disk)) == numbered(0, 4, 30)  # what the batches prove
        with open_sim(disk, ONE) as journal:
            assert values_of(journal) == numbered(0, 5, 30)
            assert values_of(JournalReader.open(FOLDER, disk=disk)) == numbered(0, 5, 30)
        assert len(content(path, disk)) >= 64

    def test_one_that_is_ahead_means_that_something_durable_is_gone(self) -> None:
        disk = self.crashed()
        frontier = parse_frontier(content(FOLDER / "frontier", disk))
        assert frontier is not None
        assert frontier.durable_offset == 5
        ahead = Frontier(frontier.identity, 0, 7, 7, 0)
        plant(FOLDER / "frontier", format_frontier(ahead), disk)
        error = check_damaged(FOLDER, disk, lambda: open_sim(disk, ONE))
        assert "[5, 7)" in str(error)
        with pytest.raises(StrandlineError):
            values_of(JournalReader.open(FOLDER, disk=disk))

    def test_one_that_is_ahead_in_what_was_only_written_means_nothing(self) -> None:
        disk = self.crashed()
        frontier = parse_frontier(content(FOLDER / "frontier", disk))
        assert frontier is not None
        plant(FOLDER / "frontier", format_frontier(Frontier(frontier.identity, 0, 9, 5, 0)), disk)
        with open_sim(disk, ONE) as journal:
            assert values_of(journal) == numbered(0, 5, 30)

    def test_one_of_another_journal_proves_nothing(self) -> None:
        disk = self.crashed()
        plant(FOLDER / "frontier", format_frontier(Frontier(b"x" * 16, 0, 70, 70, 0)), disk)
        with open_sim(disk, ONE) as journal:
            assert values_of(journal) == numbered(0, 5, 30)


class TestLeftovers:
    def test_what_an_interrupted_step_left_is_taken_away(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
            removed = {
                name: content(FOLDER / name, disk) for name in disk.names(FOLDER) if name < format_segment_name(4)
            }
            journal.remove_below(6)
        for name, data in removed.items():
            plant(FOLDER / name, data, disk)  # as if the removal had not come to them
        plant(FOLDER / "manifest.tmp", b"half a mani", disk)
        assert examine(disk, FOLDER).leftovers == sorted([*removed, "manifest.tmp"])
        with open_sim(disk) as journal:
            assert journal.first_offset == 6
        assert not set(removed) & set(disk.names(FOLDER))
        assert "manifest.tmp" not in disk.names(FOLDER)

    def test_what_is_not_ours_is_left_alone(self) -> None:
        disk = SimDisk()
        open_sim(disk).close()
        foreign = {"thesis.tmp": b"years of work", "notes.txt": b"x", "a.index": b"y", "0.journal": b"z"}
        for name, data in foreign.items():
            plant(FOLDER / name, data, disk)
        found = examine(disk, FOLDER)
        assert set(found.foreign) == set(foreign)
        open_sim(disk).close()
        assert {name: content(FOLDER / name, disk) for name in foreign} == foreign

    def test_a_quarantine_is_left_alone(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append([b"a"])
        (tmp_path / "j" / "quarantine").mkdir()
        (tmp_path / "j" / "quarantine" / "x").write_bytes(b"kept")
        with Journal.open(tmp_path / "j") as journal:
            assert values_of(journal) == [b"a"]
        assert (tmp_path / "j" / "quarantine" / "x").read_bytes() == b"kept"
        assert not examine(OsDisk(), tmp_path / "j").foreign


class TestWhatIsRead:
    """How much of the disk opening looks at."""

    def read_while_opening(self, disk: SimDisk, config: JournalConfig = SMALL) -> Tally:
        tally = Tally()
        journal = open_sim(WatchedDisk(disk, tally), config)
        disk.kill()
        assert journal.next_offset
        return tally

    def test_after_a_clean_shutdown_it_does_not_depend_on_how_much_there_is(self) -> None:
        config = JournalConfig(reserve_bytes_max=0)
        sizes = []
        for records in (10, 1000, 20_000):
            disk = SimDisk()
            with open_sim(disk, config) as journal:
                for begin in range(0, records, 10):
                    journal.append(numbered(begin, begin + 10, 100), durability=WRITTEN)
            tally = self.read_while_opening(disk, config)
            sizes.append(tally.bytes["pread"])
            assert tally.times["pread"] < 15
        assert max(sizes) < 4 * KiB

    def test_with_many_segments_only_their_sizes_and_headers_are_looked_at(self) -> None:
        reads = []
        for records in (20, 400):
            disk = SimDisk()
            with open_sim(disk) as journal:
                for number in range(records):
                    journal.append(numbered(number, number + 1, 300), durability=WRITTEN)
            tally = self.read_while_opening(disk)
            reads.append(tally.bytes["pread"] - tally.bytes["pwritev"])
            assert tally.times["pread"] < 15 + len(segments_in(FOLDER, disk))
        row_and_header = 60 + SEGMENT_HEADER_BYTES
        assert reads[1] - reads[0] < row_and_header * 200, "each segment has a row in the manifest, and a header"

    def test_after_a_crash_only_what_follows_the_checkpoint_is_scanned(self) -> None:
        disk = SimDisk()
        journal = open_sim(disk, JournalConfig(segment_bytes_max=100 * KiB, reserve_bytes_max=0))
        for number in range(2000):
            journal.append(numbered(number, number + 1, 1000), durability=WRITTEN)
        journal.sync()
        active = len(content(FOLDER / segments_in(FOLDER, disk)[-1], disk))
        total = sum(map(len, contents(FOLDER, disk).values()))
        disk.kill()
        tally = self.read_while_opening(disk)
        assert total > 2_000_000
        read = sum(1 for operation, name in tally.log if operation == "pread" and name.endswith(".journal"))
        assert read < 12 + len(segments_in(FOLDER, disk)), "and the header of each"
        assert tally.bytes["pread"] < 2 * active + 10 * KiB

    def test_an_index_that_is_ahead_of_the_checkpoint_is_cut_to_it(self) -> None:
        """It is stored before what it names is synced, so a crash may keep it and take what it names."""
        config = JournalConfig(reserve_bytes_max=0)
        disk = SimDisk()
        with open_sim(disk, config) as journal:
            for begin in range(0, 1000, 100):
                journal.append(numbered(begin, begin + 100, 1000), durability=WRITTEN)
        checkpoint = contents(FOLDER, disk)
        with open_sim(disk, config) as journal:
            for begin in range(1000, 2000, 100):
                journal.append(numbered(begin, begin + 100, 1000), durability=WRITTEN)
        index = FOLDER / format_index_name(0)
        ahead = content(index, disk)
        assert len(ahead) > len(checkpoint[index.name])
        for name, data in checkpoint.items():
            plant(FOLDER / name, data, disk)
        plant(index, ahead, disk)
        with open_sim(disk, config) as journal:
            assert values_of(journal) == numbered(0, 1000, 1000)
        assert content(index, disk) == checkpoint[index.name]

    def test_a_clean_shutdown_is_a_checkpoint_also_inside_a_segment(self) -> None:
        config = JournalConfig(reserve_bytes_max=0)
        disk = SimDisk()
        with open_sim(disk, config) as journal:
            for begin in range(0, 10_000, 100):
                journal.append(numbered(begin, begin + 100, 100), durability=WRITTEN)
        journal = open_sim(disk, config)
        journal.append(numbered(10_000, 10_010, 100))
        disk.kill()
        tally = self.read_while_opening(disk, config)
        assert tally.bytes["pread"] < 10 * KiB
        with open_sim(disk, config) as journal:
            assert values_of(journal) == numbered(0, 10_010, 100)

    def test_everything_is_read_when_asked_to(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(40):
                journal.append(numbered(number, number + 1, 300), durability=WRITTEN)
        tally = Tally()
        told: list[tuple[int, int]] = []
        found = examine(WatchedDisk(disk, tally), FOLDER, deep=True, progress=lambda *step: told.append(step))
        assert found.next_offset == 40
        assert tally.bytes["pread"] >= 40 * 300
        assert told == sorted(told)
        assert told[-1][0] <= told[-1][1]
        assert sum(scan.batches for scan in found.segments) == 40


class TestCreation:
    def test_a_folder_that_is_missing_or_empty_is_no_journal_yet(self, tmp_path: Path) -> None:
        assert examine(OsDisk(), tmp_path / "missing").is_empty
        assert examine(OsDisk(), tmp_path).is_empty
        with Journal.open(tmp_path) as journal:
            assert journal.next_offset == 0
        assert not examine(OsDisk(), tmp_path).is_empty

    def test_folders_are_made_on_the_way(self, tmp_path: Path) -> None:
        with Journal.open(tmp_path / "a" / "b" / "c") as journal:
            journal.append([b"x"])
        assert (tmp_path / "a" / "b" / "c" / "manifest").exists()

    def test_a_relative_path_is_fine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with Journal.open("here") as journal:
            journal.append([b"x"])
        with Journal.open(os.fspath(tmp_path / "here")) as journal:
            assert values_of(journal) == [b"x"]

    def test_opening_and_closing_changes_nothing_that_matters(self) -> None:
        disk = SimDisk()
        with open_sim(disk) as journal:
            for number in range(12):
                journal.append(numbered(number, number + 1, 300))
        before = contents(FOLDER, disk)
        for _ in range(3):
            open_sim(disk).close()
        assert contents(FOLDER, disk) == before
