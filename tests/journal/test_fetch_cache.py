"""Fetching one record: what is kept between fetches is checked, durable, bounded, and never needed."""

import random
import subprocess
import sys
import tracemalloc
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from strandline.errors import Damaged, OffsetBelowRetained, OffsetBeyondEnd
from strandline.files import OsDisk
from strandline.journal import WRITTEN, Journal, JournalConfig, JournalReader
from strandline.journal.fetch_cache import OWN_BYTES, SHARED, FetchCache, Stretch
from strandline.journal.index import INDEX_STRIDE_BYTES
from strandline.sim import SimDisk
from tests.journal.helpers import FOLDER, SMALL, flip, numbered, open_sim, records_of, segments_in

ROOMY = JournalConfig(segment_bytes_max=16 * INDEX_STRIDE_BYTES)


def fill(journal: Journal, seed: int) -> None:
    """Append batches of many shapes, enough for several index entries and segments."""
    rng = random.Random(seed)
    for _ in range(120):
        count = rng.choice((1, 1, 2, 30))
        values = [rng.randbytes(rng.choice((0, 7, 300, 4000))) for _ in range(count)]
        keys = [rng.randbytes(5) for _ in values] if rng.random() < 0.4 else None
        headers = [rng.randbytes(9) for _ in values] if rng.random() < 0.4 else None
        times = [rng.randrange(2**40) for _ in values] if rng.random() < 0.4 else None
        journal.append(values, keys=keys, headers=headers, timestamps=times, durability=WRITTEN)
    journal.sync()


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_fetches_returns_what_a_scan_returns(seed: int) -> None:
    with open_sim(SimDisk(), ROOMY) as journal:
        fill(journal, seed)
        expected = records_of(journal)
        assert len(segments_in(FOLDER, journal._disk)) > 1  # noqa: SLF001
        order = list(range(len(expected))) * 2
        random.Random(seed).shuffle(order)
        for offset in order:
            assert journal.fetch(offset) == expected[offset]


def test_a_record_of_a_stretch_that_grew_is_found() -> None:
    with open_sim(SimDisk()) as journal:
        for number in range(40):
            journal.append(numbered(number, number + 1))
            assert journal.fetch(number).value == numbered(number, number + 1)[0]
            assert journal.fetch(0).value == b"0:"


def test_what_is_only_written_is_not_kept() -> None:
    with open_sim(SimDisk(), ROOMY) as journal:
        journal.append([b"written"], durability=WRITTEN)
        before = len(SHARED)
        assert journal.fetch(0, visibility=WRITTEN).value == b"written"
        assert len(SHARED) == before
        with pytest.raises(OffsetBeyondEnd):
            journal.fetch(0)
        journal.sync()
        assert journal.fetch(0).value == b"written"
        assert len(SHARED) > before


def test_a_batch_that_was_not_fetched_yet_is_checked(tmp_path: Path) -> None:
    """The stretch is in memory; each batch of it must still pass its checksum before it is handed out."""
    with Journal.open(tmp_path / "j") as journal:
        journal.append([b"a" * 100])
        journal.append([b"b" * 100])
        (name,) = segments_in(tmp_path / "j")
        data = (tmp_path / "j" / name).read_bytes()
        flip(tmp_path / "j" / name, data.index(b"b" * 100) + 50)
        assert journal.fetch(0).value == b"a" * 100
        for _ in range(2):
            with pytest.raises(Damaged):
                journal.fetch(1)
        assert journal.fetch(0).value == b"a" * 100


def test_what_was_removed_is_not_served() -> None:
    with open_sim(SimDisk()) as journal:
        for number in range(40):
            journal.append([b"x" * 200])
            journal.fetch(number)
        journal.remove_below(30)
        with pytest.raises(OffsetBelowRetained):
            journal.fetch(0)
        assert journal.fetch(39).value == b"x" * 200


def test_closing_a_journal_lets_its_stretches_go() -> None:
    before = len(SHARED)
    with open_sim(SimDisk()) as journal:
        journal.append([b"x" * 300])
        journal.fetch(0)
        assert len(SHARED) > before
    assert len(SHARED) == before


def test_a_reader_of_another_process_keeps_nothing(tmp_path: Path) -> None:
    """A repair by another process may put lost offsets where a batch was."""
    with Journal.open(tmp_path / "j") as journal:
        for _ in range(3):
            journal.append([b"x" * INDEX_STRIDE_BYTES])
    before = len(SHARED)
    with JournalReader.open(tmp_path / "j") as reader:
        for offset in (0, 1, 0, 1):
            assert reader.fetch(offset).value == b"x" * INDEX_STRIDE_BYTES
        assert len(SHARED) == before


def test_the_second_fetch_of_a_stretch_reads_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reads: Counter[str] = Counter()
    with Journal.open(tmp_path / "j") as journal:
        journal.append(numbered(0, 50))
        journal.append(numbered(50, 100))
        journal.fetch(0)
        with closing(OsDisk().open(tmp_path / "j" / "frontier", "read")) as file:
            plain = type(file).pread

            def pread(self: object, count: int, position: int) -> bytes:
                reads["pread"] += 1
                return plain(self, count, position)  # type: ignore[arg-type]

            monkeypatch.setattr(type(file), "pread", pread)
        assert [journal.fetch(offset).value for offset in range(100)] == numbered(0, 100)
        assert not reads


def test_the_cache_is_bounded_and_lets_go_of_what_was_used_longest_ago() -> None:
    size = OWN_BYTES + 300
    cache = FetchCache(3 * size + 100)
    for number in range(5):
        cache.put((0, 0, number), Stretch(bytes(300), number, number + 1, 0))
        assert cache.get((0, 0, 0)) is not None
    assert len(cache) == 3 * size
    assert [number for number in range(5) if cache.get((0, 0, number))] == [0, 3, 4]
    cache.forget(0)
    assert len(cache) == 0


@pytest.mark.parametrize("config", [ROOMY, SMALL], ids=["many batches in a stretch", "many stretches"])
def test_what_is_kept_takes_about_as_much_memory_as_is_counted(config: JournalConfig) -> None:
    """A batch of one small record must not cost many times its bytes, or the bound would be none."""
    with open_sim(SimDisk(), config) as journal:
        for _ in range(2000):
            journal.append([b"small"], durability=WRITTEN)
        journal.sync()
        before = len(SHARED)
        tracemalloc.start()
        try:
            for offset in range(2000):
                journal.fetch(offset)
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert taken < 1.6 * (len(SHARED) - before)


def test_small_segments_are_fetched_from() -> None:
    with open_sim(SimDisk(), SMALL) as journal:
        for number in range(30):
            journal.append([f"{number}".encode() * 100])
        for offset in [*range(30), *range(29, -1, -1)]:
            assert journal.fetch(offset).value == f"{offset}".encode() * 100


FORK = """
import os
from strandline.journal.fetch_cache import SHARED, Stretch

SHARED.put((0, 0, 0), Stretch(bytes(300), 0, 1, 0))
with SHARED._lock:  # as another thread may hold it, which the child does not have
    child = os.fork()
    if not child:
        os._exit(0 if SHARED._lock.acquire(blocking=False) and not len(SHARED) else 1)
assert len(SHARED) and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_forked_child_waits_for_no_thread_that_it_does_not_have() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True)
