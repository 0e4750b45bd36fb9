"""The range reader: all of a range or an error, and what is gone is told."""

import logging
import os
import pickle
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError, InvalidInput
from strandline.files import OsDisk
from strandline.journal import WRITTEN, Journal, JournalReader, apply_repair, plan_repair
from strandline.spark.journals import RecordsMissing, read_journal
from strandline.spark.journals.log import JournalLog
from strandline.spark.logs.ranges import Range, split_range
from tests.spark.journals.helpers import SMALL, batch_reader, fill, fill_at, numbered, offsets_of, rows_of, trim

SECOND_NS = 1_000_000_000


def test_plain_python_reads_a_journal_as_arrow_batches(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    read = [value for batch in read_journal(str(tmp_path / "j"), ["value"]) for value in batch["value"].to_pylist()]
    assert read == numbered(0, 1000)
    (batch,) = read_journal(str(tmp_path / "j"), ["offset"], start=10, stop=20)
    assert batch["offset"].to_pylist() == list(range(10, 20))


@given(st.integers(0, 50), st.integers(0, 1000), st.integers(1, 9), st.integers(1, 100))
def test_a_range_is_cut_into_contiguous_parts(start: int, count: int, parts_max: int, rows_min: int) -> None:
    parts = split_range(Range(("",), start, start + count), parts_max, rows_min)
    assert [offset for part in parts for offset in range(part.start, part.stop)] == list(range(start, start + count))
    assert len(parts) <= parts_max
    assert len(parts) <= 1 or all(part.stop - part.start >= rows_min for part in parts)


def test_parts_are_as_many_as_cores_where_there_is_enough_to_read(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    cores = len(os.sched_getaffinity(0))
    assert len(batch_reader(tmp_path / "j", rowsPerBatch=10).partitions()) == cores
    assert len(batch_reader(tmp_path / "j", rowsPerBatch=10, partitions=7).partitions()) == 7
    assert len(batch_reader(tmp_path / "j").partitions()) == 1


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_partitions_together_read_all_records_in_order(tmp_path: Path, partitions: int) -> None:
    fill(tmp_path / "j", 1000, batch=37)
    reader = batch_reader(tmp_path / "j", rowsPerBatch=10, partitions=partitions, startingOffset=5, endingOffset=990)
    parts = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 - as Spark sends them
    assert offsets_of(reader, parts) == list(range(5, 990))


def test_a_range_is_fixed_when_it_is_planned(tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    reader = batch_reader(tmp_path / "j")
    parts = reader.partitions()
    fill(tmp_path / "j", 100)
    assert offsets_of(reader, parts) == list(range(100))


def test_an_empty_journal_and_an_empty_range_have_no_rows(tmp_path: Path) -> None:
    fill(tmp_path / "j", 0)
    reader = batch_reader(tmp_path / "j")
    assert offsets_of(reader, reader.partitions()) == []
    fill(tmp_path / "j", 100)
    reader = batch_reader(tmp_path / "j", startingOffset=50, endingOffset=50)
    assert offsets_of(reader, reader.partitions()) == []


@pytest.mark.parametrize("option", ["startingOffset", "endingOffset"])
def test_an_offset_beyond_the_end_is_refused(tmp_path: Path, option: str) -> None:
    fill(tmp_path / "j", 100)
    with pytest.raises(InvalidInput, match="101 is beyond the end, 100"):
        batch_reader(tmp_path / "j", **cast("dict[str, Any]", {option: 101})).partitions()


def test_a_folder_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no journal here") as refusal:
        batch_reader(tmp_path).partitions()
    assert "same path on the driver and all executors" in "".join(refusal.value.__notes__)


def test_a_trimmed_start_is_refused_or_passed_over_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path / "j", 1000)
    first = trim(tmp_path / "j", 500)
    with pytest.raises(RecordsMissing, match=rf"\[10, {first}\) were removed"):
        batch_reader(tmp_path / "j", startingOffset=10).partitions()
    lenient = batch_reader(tmp_path / "j", startingOffset=10, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "strandline"):
        assert offsets_of(lenient, lenient.partitions()) == list(range(first, 1000))
    assert "were removed" in caplog.text
    whole = batch_reader(tmp_path / "j")
    assert offsets_of(whole, whole.partitions()) == list(range(first, 1000)), "earliest is no loss"


def test_records_trimmed_between_planning_and_reading_are_refused_or_passed_over(tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    strict, lenient = batch_reader(tmp_path / "j"), batch_reader(tmp_path / "j", failOnDataLoss="false")
    parts = strict.partitions()
    first = trim(tmp_path / "j", 500)
    with pytest.raises(RecordsMissing, match="removed by retention"):
        rows_of(strict, parts)
    assert offsets_of(lenient, parts) == list(range(first, 1000))


def test_another_journal_in_the_same_folder_is_never_read_for_the_planned_one(tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    for options in ({}, {"failOnDataLoss": "false"}):
        reader = batch_reader(tmp_path / "j", **options)
        parts = reader.partitions()
        shutil.rmtree(tmp_path / "j")
        fill(tmp_path / "j", 100)
        with pytest.raises(RecordsMissing, match="replaced by another"):
            rows_of(reader, parts)


def test_a_journal_that_is_shorter_than_planned_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.spark.journals.log._LOOK_AGAIN_S", 0)
    path = tmp_path / "j"
    fill(path, 100)
    shutil.copytree(path, tmp_path / "old")
    fill(path, 100)
    strict, lenient = batch_reader(path), batch_reader(path, failOnDataLoss="false")
    parts = strict.partitions()
    shutil.rmtree(path)
    (tmp_path / "old").rename(path)
    with pytest.raises(RecordsMissing, match="ends at 100, before the 200"):
        rows_of(strict, parts)
    assert offsets_of(lenient, parts) == list(range(100))


def test_offsets_lost_to_damage_are_refused_or_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "j"
    fill(path, 900)
    segment = sorted(path.glob("*.journal"))[1]
    data = bytearray(segment.read_bytes())
    data[200] ^= 0xFF
    segment.write_bytes(data)
    apply_repair(OsDisk(), path, plan_repair(OsDisk(), path))
    strict, lenient = batch_reader(path), batch_reader(path, failOnDataLoss="false")
    with pytest.raises(RecordsMissing, match="lost to damage"):
        rows_of(strict, strict.partitions())
    read = offsets_of(lenient, lenient.partitions())
    assert 0 < len(read) < 900
    assert read == sorted(set(read))
    assert read[-1] == 899


def test_a_time_finds_the_first_record_appended_then_or_later(tmp_path: Path) -> None:
    times = [(1000 + 10 * at) * SECOND_NS for at in range(50)]
    fill_at(tmp_path / "j", times)
    with JournalReader.open(tmp_path / "j") as reader:
        for at, time_ns in enumerate(times):
            assert JournalLog(reader).find_time(time_ns) == 10 * at
            assert JournalLog(reader).find_time(time_ns - SECOND_NS) == 10 * at
            assert JournalLog(reader).find_time(time_ns + SECOND_NS) == 10 * at + 10


def test_times_bound_a_read(tmp_path: Path) -> None:
    fill_at(tmp_path / "j", [second * SECOND_NS for second in (1000, 2000, 3000, 4000)])
    options = {"startingTimestamp": "1970-01-01T00:33:20Z", "endingTimestamp": "1970-01-01T01:00:00Z"}
    reader = batch_reader(tmp_path / "j", **options)
    assert offsets_of(reader, reader.partitions()) == list(range(10, 30))


def test_only_what_is_durable_is_read(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j", SMALL) as journal:
        journal.append([b"safe"])
        journal.append([b"written"], durability=WRITTEN)
        (batch,) = read_journal(str(tmp_path / "j"), ["value"])
        assert batch["value"].to_pylist() == [b"safe"]
