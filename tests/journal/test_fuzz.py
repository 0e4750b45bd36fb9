"""Mutated files give right data or a typed error: never other records, never another exception, never a hang."""

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest
from crc32c import crc32c

from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.journal import SYNCED, WRITTEN, Journal, JournalConfig, JournalReader, Record, examine
from strandline.journal.batch import HEADER_BYTES
from strandline.journal.index import parse_index_name
from strandline.journal.segment import parse_segment_name
from strandline.sim import SimDisk
from tests.journal.helpers import FOLDER, contents, open_sim, plant, records_of, telling

CONFIG = JournalConfig(segment_bytes_max=1024, reserve_bytes_max=0)
RESERVING = JournalConfig(segment_bytes_max=1024, reserve_bytes_max=600)
Files = dict[str, bytes]


@dataclass(frozen=True)
class Ground:
    """A journal's files, and what it holds."""

    files: Files
    records: dict[int, Record]
    first: int
    durable: int
    """Everything below was acknowledged as synced."""


def append_all(journal: Journal, random: Random, count: int) -> None:
    for number in range(count):
        offsets = range(journal.next_offset, journal.next_offset + 1 + number % 3)
        values = [f"{offset}:".encode() + random.randbytes(random.randrange(150)) for offset in offsets]
        keys = [value[:5] for value in values] if number % 4 == 1 else None
        times = list(range(len(values))) if number % 5 == 2 else None
        journal.append(values, keys=keys, timestamps=times, durability=random.choice([SYNCED, SYNCED, WRITTEN]))


@cache
def grounds() -> tuple[Ground, ...]:
    """Return journals: closed, killed, killed with space reserved, closed with the oldest removed, and tiny."""
    made = []
    for kind in range(5):
        disk = SimDisk()
        journal = open_sim(disk, RESERVING if kind == 2 else CONFIG)
        append_all(journal, Random(kind), 1 if kind == 4 else 25)
        if kind == 3:
            journal.remove_below(20)
        durable, first = journal.durable_offset, journal.first_offset
        records = {r.offset: r for b in journal.scan(first, visibility=WRITTEN) for r in b.records()}
        if kind in (0, 3):
            journal.close()
            durable = max(records) + 1
        disk.kill()
        made.append(Ground(contents(FOLDER, disk), records, first, durable))
    return tuple(made)


def disk_of(files: Files) -> SimDisk:
    disk = SimDisk()
    disk.make_folder(FOLDER)
    for name, data in files.items():
        plant(FOLDER / name, data, disk)
    return disk


# Mutations.


def flip_bits(data: bytes, random: Random, _: bytes) -> bytes:
    changed = bytearray(data)
    for _number in range(random.choice([1, 1, 1, 2, 5, 40])):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(data: bytes, random: Random, _: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def zero(data: bytes, random: Random, _: bytes) -> bytes:
    begin = random.randrange(len(data) + 1)
    end = min(len(data), begin + random.choice([1, 8, 64, 512, 5000]))
    return data[:begin] + bytes(end - begin) + data[end:]


def scribble(data: bytes, random: Random, _: bytes) -> bytes:
    begin = random.randrange(len(data) + 1)
    end = min(len(data), begin + random.choice([1, 4, 8, 48, 300]))
    return data[:begin] + random.randbytes(end - begin) + data[end:]


def splice(data: bytes, random: Random, other: bytes) -> bytes:
    """Put a piece of another file, or of this one, over a place, aligned or not."""
    source = random.choice([data, other]) or b"\0"
    step = random.choice([1, 8])
    begin = random.randrange(len(source)) // step * step
    piece = source[begin : begin + random.choice([8, 64, 200, 1000])]
    at = random.randrange(len(data) + 1) // step * step
    return data[:at] + piece + data[at + len(piece) :]


def insert(data: bytes, random: Random, other: bytes) -> bytes:
    source = random.choice([data, other, random.randbytes(50)])
    step = random.choice([1, 8])
    at = random.randrange(len(data) + 1) // step * step
    begin = random.randrange(len(source) + 1) // step * step
    return data[:at] + source[begin : begin + random.choice([8, 100, 2000])] + data[at:]


def remove(data: bytes, random: Random, _: bytes) -> bytes:
    step = random.choice([1, 8])
    begin = random.randrange(len(data) + 1) // step * step
    return data[:begin] + data[begin + random.choice([1, 8, 48, 500]) :]


def extend(data: bytes, random: Random, other: bytes) -> bytes:
    return data + random.choice([bytes(random.randrange(3000)), random.randbytes(random.randrange(200)), other, data])


def replace(_: bytes, random: Random, other: bytes) -> bytes:
    return random.choice([other, b"", bytes(64), random.randbytes(random.randrange(1, 300))])


Mutation = Callable[[bytes, Random, bytes], bytes]
MUTATIONS: list[Mutation] = [flip_bits, flip_bits, cut, zero, scribble, splice, insert, remove, extend, replace]


def mutated(ground: Ground, random: Random, choose: Callable[[str], bool]) -> tuple[str, Files]:
    name = random.choice(sorted(filter(choose, ground.files)))
    other = ground.files[random.choice(sorted(ground.files))]
    data = ground.files[name]
    for _ in range(random.choice([1, 1, 1, 2])):
        data = random.choice(MUTATIONS)(data, random, other)
    files = dict(ground.files)
    if random.random() < 0.03:
        del files[name]
    else:
        files[name] = data
    return name, files


# What must hold.


def check_readers(disk: SimDisk, ground: Ground, random: Random) -> None:
    for visibility in (WRITTEN, SYNCED):
        with suppress(StrandlineError):
            reader = JournalReader.open(FOLDER, disk=disk, visibility=visibility)
            for offset in random.sample(sorted(ground.records), min(3, len(ground.records))):
                with suppress(StrandlineError):
                    assert reader.fetch(offset) == ground.records[offset]
            for record in records_of(reader):
                assert ground.records[record.offset] == record


def check_opened(journal: Journal, ground: Ground) -> int:
    """Everything that can be read is right; return how many records could be."""
    right = 0
    for offset in range(journal.first_offset, journal.next_offset):
        with suppress(Damaged):
            assert journal.fetch(offset) == ground.records[offset]
            right += 1
    with suppress(Damaged):
        for record in records_of(journal):
            assert ground.records[record.offset] == record
    return right


def check_mutated(ground: Ground, files: Files, random: Random) -> Journal | None:
    """Return the opened journal, or None where it was refused for a typed reason, and nothing was changed."""
    disk = disk_of(files)
    for deep in (False, True):
        with suppress(FormatError):
            examine(disk, FOLDER, deep=deep)
    check_readers(disk, ground, random)
    before = contents(FOLDER, disk)
    try:
        journal = open_sim(disk, CONFIG)
    except StrandlineError:
        assert contents(FOLDER, disk) == before
        return None
    end = journal.next_offset
    check_opened(journal, ground)
    assert journal.append([b"new"]).base_offset == end
    with suppress(Damaged):  # where it stands behind damaged bytes in the same stretch of the index
        assert journal.fetch(end).value == b"new"
    journal.close()
    with open_sim(disk, CONFIG) as again:
        assert (again.first_offset, again.next_offset) == (journal.first_offset, end + 1)
    return journal


MORE = [pytest.param(hundred, marks=pytest.mark.long) for hundred in range(1, 5)]
HUNDREDS = pytest.mark.parametrize("hundred", [0, *MORE])


def fuzz(kind: str, hundred: int, count: int, case: Callable[[Ground, Random], None]) -> None:
    """Run a case with many seeds; the seed is told with whatever fails."""
    for seed in range(count * hundred, count * (hundred + 1)):
        with telling(kind=kind, seed=seed):
            random = Random(f"{kind} {seed}")
            case(random.choice(grounds()), random)


@HUNDREDS
def test_a_mutated_segment_is_noticed(hundred: int) -> None:
    """It opens only if nothing durable was touched, or where it was, if that was never looked at."""

    def case(ground: Ground, random: Random) -> None:
        name, files = mutated(ground, random, lambda name: parse_segment_name(name) is not None)
        journal = check_mutated(ground, files, random)
        if journal is not None:
            # A sealed segment of the recorded size is believed until it is read, so its damage shows only then.
            assert journal.first_offset == ground.first, name
            assert journal.next_offset - 1 >= ground.durable, name

    fuzz("segment", hundred, 160, case)


@HUNDREDS
def test_a_mutated_index_costs_nothing(hundred: int) -> None:
    def case(ground: Ground, random: Random) -> None:
        name, files = mutated(ground, random, lambda name: parse_index_name(name) is not None)
        if name in files and random.random() < 0.3:
            files[name] = with_index_checksum(files[name])
        journal = check_mutated(ground, files, random)
        assert journal is not None
        assert journal.next_offset - 1 == max(ground.records) + 1
        with open_sim(disk_of(files), CONFIG) as journal:
            assert check_opened(journal, ground) == len(ground.records)

    fuzz("index", hundred, 60, case)


@HUNDREDS
def test_a_mutated_manifest_costs_only_time(hundred: int) -> None:
    def case(ground: Ground, random: Random) -> None:
        name, files = mutated(ground, random, lambda name: name == "manifest")
        if name in files and random.random() < 0.4:
            files[name] = with_manifest_checksum(files[name])
            check_mutated(ground, files, random)
            return
        journal = check_mutated(ground, files, random)
        if journal is None:
            assert b"strandline-manifest 1 " not in files.get(name, b""), "only a later version is refused"
        else:
            assert journal.next_offset - 1 == max(ground.records) + 1

    fuzz("manifest", hundred, 60, case)


@HUNDREDS
def test_a_mutated_frontier_costs_nothing(hundred: int) -> None:
    def case(ground: Ground, random: Random) -> None:
        name, files = mutated(ground, random, lambda name: name == "frontier")
        if len(files.get(name, b"")) == 64 and random.random() < 0.4:
            files[name] = files[name][:60] + struct.pack("<I", crc32c(files[name][:60]))
            check_mutated(ground, files, random)
            return
        journal = check_mutated(ground, files, random)
        assert journal is not None
        assert journal.next_offset - 1 == max(ground.records) + 1

    fuzz("frontier", hundred, 60, case)


@HUNDREDS
def test_everything_may_be_mutated_at_once(hundred: int) -> None:
    def case(ground: Ground, random: Random) -> None:
        files = dict(ground.files)
        for name in sorted(files):
            if random.random() < 0.5:
                other = random.choice(list(ground.files.values()))
                files[name] = random.choice(MUTATIONS)(files[name], random, other)
        check_mutated(ground, files, random)

    fuzz("all", hundred, 40, case)


@HUNDREDS
def test_a_segment_with_forged_checksums_raises_nothing_untyped(hundred: int) -> None:
    """Its records may be anybody's; but whoever reads them is told or not, and never surprised."""

    def case(ground: Ground, random: Random) -> None:
        name, files = mutated(ground, random, lambda name: parse_segment_name(name) is not None)
        files[name] = with_batch_checksums(files.get(name, b""))
        disk = disk_of(files)
        for call in (
            lambda: examine(disk, FOLDER),
            lambda: examine(disk, FOLDER, deep=True),
            lambda: records_of(JournalReader.open(FOLDER, disk=disk)),
            lambda: records_of(JournalReader.open(FOLDER, disk=disk, visibility=WRITTEN)),
            lambda: records_of(open_sim(disk, CONFIG)),
        ):
            with suppress(StrandlineError):
                call()

    fuzz("forged", hundred, 40, case)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("thousand", range(1, 11))
def test_many_more(thousand: int) -> None:
    for hundred in range(10 * thousand, 10 * thousand + 10):
        test_a_mutated_segment_is_noticed(hundred)
        test_a_mutated_index_costs_nothing(hundred)
        test_a_mutated_manifest_costs_only_time(hundred)
        test_a_mutated_frontier_costs_nothing(hundred)
        test_everything_may_be_mutated_at_once(hundred)
        test_a_segment_with_forged_checksums_raises_nothing_untyped(hundred)


# Checksums made right again, as only a writer, or a forger, would.


def with_index_checksum(data: bytes) -> bytes:
    if len(data) < 16:
        return data
    return data[:12] + struct.pack("<I", crc32c(data[:12], crc32c(data[16:]))) + data[16:]


def with_manifest_checksum(data: bytes) -> bytes:
    first, _, body = data.partition(b"\n")
    words = first.split(b" ")
    if len(words) != 3:
        return data
    return b" ".join([*words[:2], b"crc32c=%08x" % crc32c(body.removesuffix(b"\n"))]) + b"\n" + body


def with_batch_checksums(data: bytes) -> bytes:
    """Make the header and every batch check that still has a magic number and a possible length."""
    changed = bytearray(data)
    if len(changed) >= 64:
        changed[60:64] = struct.pack("<I", crc32c(bytes(changed[:60])))
    at = changed.find(b"SLB1")
    while at >= 0:
        if len(changed) - at >= HEADER_BYTES:
            (size,) = struct.unpack_from("<I", changed, at + 8)
            end = at + HEADER_BYTES + size
            if end <= len(changed):
                changed[at + 4 : at + 8] = struct.pack("<I", crc32c(bytes(changed[at + 8 : end])))
        at = changed.find(b"SLB1", at + 1)
    return bytes(changed)
