"""Harm that comes to a journal's files: each function does it, and says what is lost and which bytes must be kept."""

import copy
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from strandline.clock import ManualClock
from strandline.files import Disk
from strandline.gather import InlineExecutor
from strandline.journal import Journal, JournalConfig, Record
from strandline.journal.batch import HEADER_BYTES
from strandline.journal.quarantine import format_stretch_name
from strandline.journal.segment import (
    SEGMENT_HEADER_BYTES,
    format_segment_name,
    parse_segment_name,
    walk,
)
from strandline.sim import SimDisk
from tests.journal.helpers import FOLDER, content, plant

CONFIG = JournalConfig(segment_bytes_max=1280, reserve_bytes_max=0)
CHANGES = frozenset({"create", "pwritev", "sync", "truncate", "rename", "remove", "sync_folder", "make_folder"})


@dataclass(frozen=True)
class Place:
    """Where a batch stands."""

    segment: int
    position: int
    size: int
    first: int
    end: int

    @property
    def path(self) -> Path:
        return FOLDER / format_segment_name(self.segment)

    @property
    def offsets(self) -> set[int]:
        return set(range(self.first, self.end))


@dataclass
class Ground:
    """A journal on a simulated disk, and what it held before anything happened to it."""

    disk: SimDisk = field(default_factory=SimDisk)
    records: dict[int, Record] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)

    def __deepcopy__(self, memo: dict[int, object]) -> "Ground":
        """Copy the disk; records and places are values."""
        return Ground(copy.deepcopy(self.disk, memo), dict(self.records), list(self.places))

    @property
    def bases(self) -> list[int]:
        return sorted({place.segment for place in self.places})

    def of(self, segment: int) -> list[Place]:
        return [place for place in self.places if place.segment == segment]

    def write(self, path: Path, position: int, data: bytes) -> bytes:
        """Overwrite bytes; return what stood there."""
        before = bytearray(content(path, self.disk))
        old = bytes(before[position : position + len(data)])
        before[position : position + len(data)] = data
        plant(path, bytes(before), self.disk)
        return old

    def flip(self, path: Path, position: int) -> None:
        (byte,) = content(path, self.disk)[position : position + 1]
        self.write(path, position, bytes([byte ^ 0x10]))

    def cut(self, path: Path, size: int) -> None:
        plant(path, content(path, self.disk)[:size], self.disk)

    def remove(self, name: str) -> None:
        self.disk.remove(FOLDER / name)
        self.disk.sync_folder(FOLDER)


def open_journal(disk: Disk, config: JournalConfig = CONFIG) -> Journal:
    return Journal.open(FOLDER, config, disk=disk, clock=ManualClock(), executor=InlineExecutor())


def places_of(disk: Disk) -> Iterator[Place]:
    for name in disk.names(FOLDER):
        base = parse_segment_name(name)
        if base is not None:
            with closing(disk.open(FOLDER / name, "read")) as file:
                for position, batch in walk(file, SEGMENT_HEADER_BYTES, base):
                    yield Place(base, position, batch.stored_bytes, batch.base_offset, batch.next_offset)


def make_ground(*, clean: bool = True) -> Ground:
    """Return four or five segments of batches of three, six with keys, all synced; `clean` closes the journal."""
    ground = Ground()
    journal = open_journal(ground.disk)
    for number in range(40):
        values = [f"{number}.{i}-".encode() * (1 + (number * 7 + i) % 5) for i in range(3)]
        keys = [b"k%d" % i for i in range(3)] if number % 6 == 0 else None
        journal.append(values, keys=keys)
    ground.records = {record.offset: record for batch in journal.scan(0) for record in batch.records()}
    if clean:
        journal.close()
    disk = ground.disk
    for name in disk.names(FOLDER):
        with closing(disk.open(FOLDER / name, "write")) as file:
            file.sync()
    disk.sync_folder(FOLDER)
    disk.crash(Random(0))
    ground.places = list(places_of(disk))
    assert len(ground.bases) >= 4
    assert len(ground.records) == 120
    return ground


CLEAN, CRASHED = make_ground(clean=True), make_ground(clean=False)


# Damage, each a function that does it and returns (what is lost, the bytes that must be kept by name).

Harm = Callable[[Ground], tuple[set[int], dict[str, bytes]]]


def stretch(place: Place, data: bytes) -> dict[str, bytes]:
    return {format_stretch_name(place.segment, place.position): data}


def harm_batch(ground: Ground, place: Place, at: int = HEADER_BYTES + 3) -> tuple[set[int], dict[str, bytes]]:
    ground.flip(place.path, place.position + at)
    data = content(place.path, ground.disk)[place.position : place.position + place.size]
    return place.offsets, stretch(place, data)


def flip_in_a_middle_batch(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_batch(ground, ground.of(ground.bases[-1])[2])


def flip_in_a_sealed_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_batch(ground, ground.of(ground.bases[1])[3])


def flip_in_the_first_batch_of_all(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_batch(ground, ground.places[0])


def flip_in_the_last_batch_of_a_sealed_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_batch(ground, ground.of(ground.bases[0])[-1])


def flip_in_the_last_batch_of_all(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_batch(ground, ground.places[-1])


def flip_in_a_batch_header(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_batch(ground, ground.of(ground.bases[2])[1], at=9)


def two_bad_stretches(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    first = harm_batch(ground, ground.of(ground.bases[1])[1])
    second = harm_batch(ground, ground.of(ground.bases[1])[4])
    third = harm_batch(ground, ground.of(ground.bases[3])[0])
    return first[0] | second[0] | third[0], first[1] | second[1] | third[1]


def neighbours_in_one_stretch(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    one, two = ground.of(ground.bases[1])[2:4]
    harm_batch(ground, one)
    harm_batch(ground, two)
    data = content(one.path, ground.disk)[one.position : two.position + two.size]
    return one.offsets | two.offsets, stretch(one, data)


def zeroed_page(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    """512 zeros from the middle of one batch to the middle of a later one."""
    base = ground.bases[2]
    begin = ground.of(base)[1].position + 24
    ground.write(FOLDER / format_segment_name(base), begin, bytes(512))
    hit = [place for place in ground.of(base) if place.position < begin + 512 and place.position + place.size > begin]
    data = content(hit[0].path, ground.disk)[hit[0].position : hit[-1].position + hit[-1].size]
    return set.union(*(place.offsets for place in hit)), stretch(hit[0], data)


def zeroed_from_a_batch_to_the_end_of_a_sealed_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    base = ground.bases[1]
    begin = ground.of(base)[3].position
    path = FOLDER / format_segment_name(base)
    ground.write(path, begin, bytes(len(content(path, ground.disk)) - begin))
    return set.union(*(place.offsets for place in ground.of(base)[3:])), {}


def zeroed_first_page_of_a_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    base = ground.bases[1]
    path = FOLDER / format_segment_name(base)
    ground.write(path, 0, bytes(512))
    hit = [place for place in ground.of(base) if place.position < 512]
    data = content(path, ground.disk)[SEGMENT_HEADER_BYTES : hit[-1].position + hit[-1].size]
    return set.union(*(place.offsets for place in hit)), {
        format_stretch_name(base, 0): bytes(64),
        format_stretch_name(base, SEGMENT_HEADER_BYTES): data,
    }


def harm_header(ground: Ground, base: int, position: int) -> tuple[set[int], dict[str, bytes]]:
    path = FOLDER / format_segment_name(base)
    ground.flip(path, position)
    return set(), {format_stretch_name(base, 0): content(path, ground.disk)[:SEGMENT_HEADER_BYTES]}


def flip_in_a_segment_header(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_header(ground, ground.bases[1], 20)


def flip_in_the_header_of_the_active_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_header(ground, ground.bases[-1], 41)


def flip_in_the_magic_of_a_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return harm_header(ground, ground.bases[1], 2)


def flip_in_a_segment_header_and_in_a_batch_behind_it(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    header = harm_header(ground, ground.bases[1], 20)
    batch = harm_batch(ground, ground.of(ground.bases[1])[2])
    return batch[0], header[1] | batch[1]


def deleted_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    ground.remove(format_segment_name(ground.bases[2]))
    return set.union(*(place.offsets for place in ground.of(ground.bases[2]))), {}


def deleted_first_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    ground.remove(format_segment_name(0))
    return set.union(*(place.offsets for place in ground.of(0))), {}


def deleted_last_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    ground.remove(format_segment_name(ground.bases[-1]))
    return set.union(*(place.offsets for place in ground.of(ground.bases[-1]))), {}


def all_segments_deleted(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    for base in ground.bases:
        ground.remove(format_segment_name(base))
    return set(ground.records), {}


def cut_sealed_segment_inside_a_batch(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return cut_inside(ground, ground.bases[1], 60)


def cut_sealed_segment_inside_a_batch_header(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return cut_inside(ground, ground.bases[1], 13)


def cut_inside(ground: Ground, base: int, left: int) -> tuple[set[int], dict[str, bytes]]:
    place = ground.of(base)[3]
    ground.cut(place.path, place.position + left)
    lost = set.union(*(place.offsets for place in ground.of(base)[3:]))
    return lost, stretch(place, content(place.path, ground.disk)[place.position :])


def cut_sealed_segment_between_batches(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    place = ground.of(ground.bases[1])[3]
    ground.cut(place.path, place.position)
    return set.union(*(place.offsets for place in ground.of(ground.bases[1])[3:])), {}


def cut_sealed_segment_to_nothing(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    ground.cut(FOLDER / format_segment_name(ground.bases[1]), 0)
    return set.union(*(place.offsets for place in ground.of(ground.bases[1]))), {}


def cut_sealed_segment_to_a_part_of_its_header(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    path = FOLDER / format_segment_name(ground.bases[1])
    ground.cut(path, 30)
    lost = set.union(*(place.offsets for place in ground.of(ground.bases[1])))
    return lost, {format_stretch_name(ground.bases[1], 0): content(path, ground.disk)}


def cut_below_durable(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    return cut_inside(ground, ground.bases[-1], 77)


def cut_below_durable_between_batches(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    last = ground.places[-1]
    ground.cut(last.path, last.position)
    return last.offsets, {}


def garbage_after_a_sealed_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    base = ground.bases[0]
    path = FOLDER / format_segment_name(base)
    whole = content(path, ground.disk)
    plant(path, whole + b"garbage that nobody wrote", ground.disk)
    return set(), {format_stretch_name(base, len(whole)): b"garbage that nobody wrote"}


def torn_tail(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    path = FOLDER / format_segment_name(ground.bases[-1])
    whole = content(path, ground.disk)
    plant(path, whole + b"SLB1 and then the power went", ground.disk)
    return set(), {format_stretch_name(ground.bases[-1], len(whole)): b"SLB1 and then the power went"}


def damage_and_a_torn_tail(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    damage = harm_batch(ground, ground.of(ground.bases[-1])[1])
    torn = torn_tail(ground)
    return damage[0], damage[1] | torn[1]


def damage_in_every_segment(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    harms = [harm_batch(ground, ground.of(base)[-1]) for base in ground.bases]
    return set.union(*(lost for lost, _ in harms)), {name: data for _, named in harms for name, data in named.items()}


def batch_taken_out_of_the_middle(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    place = ground.of(ground.bases[1])[2]
    data = content(place.path, ground.disk)
    plant(place.path, data[: place.position] + data[place.position + place.size :], ground.disk)
    return place.offsets, {}


def batch_shortened_below_a_header(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    place = ground.of(ground.bases[1])[2]
    data = content(place.path, ground.disk)
    plant(place.path, data[: place.position + 40] + data[place.position + place.size :], ground.disk)
    return place.offsets, stretch(place, data[place.position : place.position + 40])


def bytes_put_in_between(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    place = ground.of(ground.bases[1])[2]
    data = content(place.path, ground.disk)
    plant(place.path, data[: place.position] + b"x" * 64 + data[place.position :], ground.disk)
    return set(), stretch(place, b"x" * 64)


def taken_out_and_flipped_and_torn(ground: Ground) -> tuple[set[int], dict[str, bytes]]:
    base = ground.bases[-1]
    two, three = ground.of(base)[1:3]
    ground.flip(three.path, three.position + 60)
    data = content(three.path, ground.disk)
    bad = data[three.position : three.position + three.size]
    plant(two.path, data[: two.position] + data[three.position :] + b"torn", ground.disk)
    named = {format_stretch_name(base, two.position): bad, format_stretch_name(base, len(data) - two.size): b"torn"}
    return two.offsets | three.offsets, named


HARMS: list[Harm] = [
    flip_in_a_middle_batch,
    flip_in_a_sealed_segment,
    flip_in_the_first_batch_of_all,
    flip_in_the_last_batch_of_a_sealed_segment,
    flip_in_the_last_batch_of_all,
    flip_in_a_batch_header,
    two_bad_stretches,
    neighbours_in_one_stretch,
    zeroed_page,
    zeroed_from_a_batch_to_the_end_of_a_sealed_segment,
    zeroed_first_page_of_a_segment,
    flip_in_a_segment_header,
    flip_in_the_header_of_the_active_segment,
    flip_in_the_magic_of_a_segment,
    flip_in_a_segment_header_and_in_a_batch_behind_it,
    deleted_segment,
    deleted_first_segment,
    deleted_last_segment,
    all_segments_deleted,
    cut_sealed_segment_inside_a_batch,
    cut_sealed_segment_inside_a_batch_header,
    cut_sealed_segment_between_batches,
    cut_sealed_segment_to_nothing,
    cut_sealed_segment_to_a_part_of_its_header,
    cut_below_durable,
    cut_below_durable_between_batches,
    garbage_after_a_sealed_segment,
    torn_tail,
    damage_and_a_torn_tail,
    damage_in_every_segment,
    batch_taken_out_of_the_middle,
    batch_shortened_below_a_header,
    bytes_put_in_between,
    taken_out_and_flipped_and_torn,
]
