"""A stream's decisions, called as Spark calls them: constant beginnings, growing positions, loud losses."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from strandline.errors import InvalidInput
from strandline.journal import JournalReader
from strandline.spark.journals import RecordsMissing
from strandline.spark.logs.readers import LogBatchReader, LogStreamReader
from tests.spark.journals.helpers import fill, fill_at, offsets_of, stream_reader, trim

SECOND_NS = 1_000_000_000
ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.spark.journals.log._LOOK_AGAIN_S", 0)


def batch(reader: LogStreamReader, start: dict[str, Any], limit: Any = ALL) -> tuple[dict[str, Any], list[int]]:  # noqa: ANN401
    """Plan and read a batch; return its end and the offsets that it has."""
    end = reader.latestOffset(start, limit)
    return end, offsets_of(reader, reader.partitions(start, end))


def at(identity: bytes, offset: int) -> dict[str, Any]:
    return {"journal": identity.hex(), "offset": offset}


def test_batches_follow_one_another_without_gaps(tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    reader = stream_reader(tmp_path / "j")
    position, seen = batch(reader, reader.initialOffset())
    assert seen == list(range(100))
    assert reader.latestOffset(position, ALL) == position, "nothing new"
    fill(tmp_path / "j", 50)
    position, seen = batch(reader, position)
    assert seen == list(range(100, 150))


def test_t10_a_batch_has_at_most_the_records_that_the_limit_allows(tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    reader = stream_reader(tmp_path / "j", maxRecordsPerTrigger=30)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(max_rows=30)
    position, sizes = reader.initialOffset(), []
    for _ in range(4):
        position, seen = batch(reader, position, limit)
        sizes.append(len(seen))
    assert sizes == [30, 30, 30, 10]


@pytest.mark.parametrize("options", [{}, {"startingOffset": 40}, {"startingTimestamp": "1970-01-01T00:16:50Z"}])
def test_t2_the_first_position_is_a_constant_of_the_query(tmp_path: Path, options: dict[str, Any]) -> None:
    fill_at(tmp_path / "j", [second * SECOND_NS for second in range(1000, 1200)])
    first = stream_reader(tmp_path / "j", **options).initialOffset()
    fill_at(tmp_path / "j", [second * SECOND_NS for second in range(2000, 2100)])
    assert stream_reader(tmp_path / "j", **options).initialOffset() == first
    if not options:
        assert trim(tmp_path / "j", 1500) > 0
        assert stream_reader(tmp_path / "j").initialOffset() == first


def test_t2_a_start_that_moves_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    with pytest.raises(InvalidInput, match="another offset each time"):
        stream_reader(tmp_path / "j", startingOffset="latest")
    with pytest.raises(InvalidInput, match="names no offset yet"):
        stream_reader(tmp_path / "j", startingTimestamp="2099-01-01T00:00:00Z").initialOffset()


def test_t2_the_first_batch_is_replayed_as_it_was_planned(tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    before = stream_reader(tmp_path / "j")
    end = before.latestOffset(before.initialOffset(), ReadMaxRows(60))
    fill(tmp_path / "j", 100)
    after = stream_reader(tmp_path / "j")
    assert offsets_of(after, after.partitions(after.initialOffset(), end)) == list(range(60))


def test_t3_a_journal_that_shrank_is_refused_or_the_jump_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j"
    fill(path, 100)
    shutil.copytree(path, tmp_path / "old")
    identity = fill(path, 100)
    shutil.rmtree(path)
    (tmp_path / "old").rename(path)
    with pytest.raises(RecordsMissing, match="ends at 100, before the 200 that was read already"):
        stream_reader(path).latestOffset(at(identity, 200), ALL)
    lenient = stream_reader(path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "strandline"):
        position, seen = batch(lenient, at(identity, 200))
    assert (position, seen) == (at(identity, 100), [])
    assert "before the 200 that was read already" in caplog.text
    fill(path, 10)
    assert batch(lenient, position)[1] == list(range(100, 110))


def test_t3_a_batch_that_goes_backwards_is_refused(tmp_path: Path) -> None:
    identity = fill(tmp_path / "j", 100)
    with pytest.raises(RecordsMissing, match="that ends at 30 would have to begin at 60"):
        stream_reader(tmp_path / "j").partitions(at(identity, 60), at(identity, 30))


def test_t3_a_recreated_journal_is_refused_or_read_from_its_beginning(tmp_path: Path) -> None:
    old = fill(tmp_path / "j", 100)
    shutil.rmtree(tmp_path / "j")
    new = fill(tmp_path / "j", 300)
    with pytest.raises(RecordsMissing, match="it was made again and begins at 0"):
        stream_reader(tmp_path / "j").latestOffset(at(old, 100), ALL)
    with pytest.raises(RecordsMissing, match="planned on another one"):
        stream_reader(tmp_path / "j").partitions(at(old, 0), at(old, 100))
    lenient = stream_reader(tmp_path / "j", failOnDataLoss="false")
    assert batch(lenient, at(old, 100)) == (at(new, 300), list(range(300)))


def test_a_journal_trimmed_past_the_cursor_is_refused_or_passed_over(tmp_path: Path) -> None:
    identity = fill(tmp_path / "j", 1000)
    first = trim(tmp_path / "j", 500)
    with pytest.raises(RecordsMissing, match=rf"\[100, {first}\) were removed"):
        stream_reader(tmp_path / "j").latestOffset(at(identity, 100), ALL)
    lenient = stream_reader(tmp_path / "j", failOnDataLoss="false")
    assert batch(lenient, at(identity, 100)) == (at(identity, 1000), list(range(first, 1000)))


def test_a_query_that_begins_with_the_earliest_record_loses_nothing_to_earlier_retention(tmp_path: Path) -> None:
    identity = fill(tmp_path / "j", 1000)
    first = trim(tmp_path / "j", 500)
    reader = stream_reader(tmp_path / "j")
    assert reader.initialOffset() == {"journal": identity.hex(), "offset": "earliest"}
    assert batch(reader, reader.initialOffset())[1] == list(range(first, 1000))


def test_available_now_ends_where_the_journal_ended_when_it_began(tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    reader = stream_reader(tmp_path / "j")
    reader.prepareForTriggerAvailableNow()
    fill(tmp_path / "j", 100)
    position, seen = batch(reader, reader.initialOffset(), ReadMaxRows(70))
    position, more = batch(reader, position, ReadMaxRows(70))
    assert seen + more == list(range(100))
    assert reader.latestOffset(position, ReadMaxRows(70)) == position


def test_the_lag_can_be_seen(tmp_path: Path) -> None:
    identity = fill(tmp_path / "j", 100)
    reader = stream_reader(tmp_path / "j")
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert reader.reportLatestOffset() == at(identity, 100)


def test_an_empty_journal_has_nothing_to_plan(tmp_path: Path) -> None:
    fill(tmp_path / "j", 0)
    reader = stream_reader(tmp_path / "j")
    first = reader.initialOffset()
    assert reader.latestOffset(first, ALL) == first
    assert json.dumps(reader.latestOffset(first, ALL)) == json.dumps(first), "Spark compares the text"


def test_a_frontier_that_is_torn_for_a_moment_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = fill(tmp_path / "j", 100)
    shown = iter([50, 50])
    monkeypatch.setattr(JournalReader, "next_offset", property(lambda _: next(shown, 100)))
    assert stream_reader(tmp_path / "j").latestOffset(at(identity, 100), ALL) == at(identity, 100)


def test_t1_no_filter_is_ever_pushed_into_a_reader() -> None:
    assert LogBatchReader.pushFilters is DataSourceReader.pushFilters
