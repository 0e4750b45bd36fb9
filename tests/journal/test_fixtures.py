"""Old bytes load for ever: the folders under `tests/fixtures/journal/v1` were written once and are never written again.

They were made by `python -m tests.journal.test_fixtures <folder>`, which runs `make` below. It is kept so that a later
version can be given a folder of its own, `v2`, in the same way; it must not be run over an existing one.

    closed      several segments with every mixture of columns, the oldest removed, a clean shutdown
    killed      a process that died: space reserved, records that were only written, and half a batch at the end
    bare        the same as closed, of which only the segments were kept
"""

import shutil
import sys
from pathlib import Path

import pytest

from strandline.clock import ManualClock
from strandline.files import OsDisk
from strandline.gather import InlineExecutor
from strandline.journal import WRITTEN, Journal, JournalConfig, JournalReader, Record, examine
from strandline.journal.segment import parse_segment_name
from tests.journal.helpers import contents, records_of

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "journal" / "v1"
NAMES = ["closed", "killed", "bare"]


def record(offset: int) -> Record:
    """Return the record that stands at an offset of every fixture."""
    value = f"value {offset} ".encode() * (offset % 7)
    key = f"key {offset}".encode() if offset % 2 else None
    headers = b"\0\xff" * (offset % 3) if offset % 4 < 2 else None
    return Record(offset, value, key, headers, 1_700_000_000_000_000_000 + offset if offset % 8 < 5 else None)


def append(journal: Journal, end: int) -> None:
    """Append one record at a time, or several alike."""
    while journal.next_offset < end:
        one = record(journal.next_offset)
        journal.append(
            [one.value],
            keys=None if one.key is None else [one.key],
            headers=None if one.headers is None else [one.headers],
            timestamps=None if one.timestamp_ns is None else [one.timestamp_ns],
            durability=WRITTEN,
        )


def make(place: Path) -> None:
    """Write the fixtures into a new folder."""
    small = JournalConfig(segment_bytes_max=1024, reserve_bytes_max=0)
    with Journal.open(place / "closed", small, clock=ManualClock(), executor=InlineExecutor()) as journal:
        append(journal, 50)
        journal.sync()
        journal.remove_below(10)
    shutil.copytree(place / "closed", place / "bare")
    for path in (place / "bare").iterdir():
        if parse_segment_name(path.name) is None:
            path.unlink()
    reserving = JournalConfig(segment_bytes_max=4096, reserve_bytes_max=1000)
    journal = Journal.open(place / "killed", reserving, clock=ManualClock(), executor=InlineExecutor())
    append(journal, 40)
    journal.sync()
    append(journal, 45)
    shutil.copytree(place / "killed", place / "copy")
    journal.close()
    shutil.rmtree(place / "killed")
    (place / "copy").rename(place / "killed")
    last = max(path for path in (place / "killed").iterdir() if parse_segment_name(path.name) is not None)
    batches = last.read_bytes().rstrip(b"\0")
    batches += bytes(-len(batches) % 8)
    last.write_bytes(batches + batches[64:90] + bytes(300))
    for lock in place.rglob("lock"):
        lock.unlink()


@pytest.fixture(params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a fixture, which may be changed."""
    shutil.copytree(FIXTURES / request.param, tmp_path / request.param)
    return tmp_path / str(request.param)


def test_there_are_as_many_as_are_named() -> None:
    assert sorted(path.name for path in FIXTURES.iterdir()) == sorted(NAMES)


def test_it_opens_with_every_record_in_its_place(folder: Path) -> None:
    with Journal.open(folder) as journal:
        first, end = journal.first_offset, journal.next_offset
        assert (first > 0, end) == ((False, 45) if folder.name == "killed" else (True, 50))
        assert records_of(journal) == [record(offset) for offset in range(first, end)]
        assert [journal.fetch(offset) for offset in (first, 30, end - 1)] == [record(o) for o in (first, 30, end - 1)]
        assert journal.append([record(end).value]).base_offset == end
    with Journal.open(folder) as journal:
        assert len(records_of(journal)) == end - first + 1


def test_it_can_be_read_without_being_opened(folder: Path) -> None:
    before = contents(folder)
    with JournalReader.open(folder) as reader:
        found = records_of(reader)
        assert found == [record(offset) for offset in range(reader.first_offset, reader.next_offset)]
        assert len(found) >= 28
    with JournalReader.open(folder, visibility=WRITTEN) as eager:
        end = 45 if folder.name == "killed" else 50
        assert len(records_of(eager)) == end - eager.first_offset
    assert contents(folder) == before


def test_it_is_whole_but_for_the_end_of_the_killed_one(folder: Path) -> None:
    found = examine(OsDisk(), folder, deep=True)
    assert not found.damage
    assert (found.torn is not None) == (folder.name == "killed")
    assert not found.foreign
    assert found.identity == (
        examine(OsDisk(), FIXTURES / "closed").identity if folder.name == "bare" else found.identity
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
