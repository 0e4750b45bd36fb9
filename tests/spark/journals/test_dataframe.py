"""A journal as one DataFrame of copies and the rest: the rows of the plain source, whatever happened meanwhile."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from strandline.errors import InvalidInput
from strandline.files import OsDisk
from strandline.journal import Journal
from strandline.spark import copy_segments, journal_dataframe
from tests.spark.journals.helpers import SMALL, damage, fill, trim

SEEDS = 3


def plain(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    return spark.read.format("strandline").options(**options).load(str(path))  # type: ignore[arg-type]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    table = frame.orderBy("offset").toArrow()
    return [tuple(row.values()) for row in table.to_pylist()]


def fill_at_random(path: Path, seed: int, count: int = 1200) -> None:
    """Append records with and without keys, headers and times of their own."""
    chance = random.Random(seed)
    with Journal.open(path, SMALL) as journal:
        while journal.next_offset < count:
            size = chance.choice([1, 3, 40])

            def column(size: int = size) -> list[bytes] | None:
                if chance.random() < 0.4:
                    return None
                return [chance.randbytes(chance.choice([0, 1, 50])) for _ in range(size)]

            times = [chance.randrange(-(2**62), 2**62) for _ in range(size)] if chance.random() < 0.5 else None
            values = [chance.randbytes(chance.randrange(60)) for _ in range(size)]
            journal.append(values, keys=column(), headers=column(), timestamps=times)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_it_has_the_rows_of_the_plain_source_to_the_byte(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "j"
    fill_at_random(path, seed)
    frame = journal_dataframe(spark, path)
    assert frame.columns == plain(spark, path).columns
    assert len(copy_segments(path).copies) > 3
    assert rows(frame) == rows(plain(spark, path))
    assert rows(frame.select("timestamp", "offset")) == rows(plain(spark, path).select("timestamp", "offset"))
    start, stop = sorted(random.Random(seed).sample(range(1200), 2))
    part = journal_dataframe(spark, path, columns=["key", "offset"], start=start, stop=stop)
    expected = plain(spark, path, startingOffset=start, endingOffset=stop).select("key", "offset")
    assert rows(part) == rows(expected)


def test_sealed_segments_are_read_from_copies_and_the_rest_from_the_journal(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path / "j", 1000)
    frame = journal_dataframe(spark, tmp_path / "j")
    done = copy_segments(tmp_path / "j")
    names = {Path(name).name for name in frame.inputFiles()}
    assert names == {copy.name for copy in done.copies}
    assert done.copies[-1].end_offset < 1000 == frame.count()


def test_columns_are_pruned_and_filters_reach_the_copies(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    frame = journal_dataframe(spark, tmp_path / "j").where("offset >= 100 AND offset < 200").select("offset")
    plan = frame._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 - there is no public way
    assert "ReadSchema: struct<offset:bigint>" in plan
    assert "GreaterThanOrEqual(offset,100), LessThan(offset,200)" in plan
    assert [offset for (offset,) in rows(frame)] == list(range(100, 200))


def test_a_range_has_only_the_copies_that_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    copies = copy_segments(tmp_path / "j").copies
    second = copies[1]
    frame = journal_dataframe(spark, tmp_path / "j", start=second.base_offset + 1, stop=second.end_offset - 1)
    assert [Path(name).name for name in frame.inputFiles()] == [second.name]
    assert [row[0] for row in rows(frame)] == list(range(second.base_offset + 1, second.end_offset - 1))


def test_a_young_journal_and_an_empty_one_are_read_too(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 0)
    assert journal_dataframe(spark, tmp_path / "j").count() == 0
    fill(tmp_path / "j", 10)
    assert rows(journal_dataframe(spark, tmp_path / "j")) == rows(plain(spark, tmp_path / "j"))


def test_an_unknown_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 10)
    with pytest.raises(InvalidInput, match="no column colour"):
        journal_dataframe(spark, tmp_path / "j", columns=["colour"])


def test_a_folder_with_an_odd_name_is_taken_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a [b] {c,d} *?%20 é" / "j=1"
    fill(path, 1000)
    assert rows(journal_dataframe(spark, path)) == rows(plain(spark, path))
    assert rows(journal_dataframe(spark, path, tmp_path / "copies*")) == rows(plain(spark, path))


def test_a_segment_without_a_copy_is_read_from_the_journal(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    done = copy_segments(tmp_path / "j")
    lock = OsDisk().lock(done.folder / "lock")  # another process makes copies at the moment
    (done.folder / done.copies[1].name).unlink()
    frame = journal_dataframe(spark, tmp_path / "j")
    lock.release()
    assert len(frame.inputFiles()) == len(done.copies) - 1
    assert rows(frame) == rows(plain(spark, tmp_path / "j"))


def replace(path: Path) -> None:
    """Make another journal in the place of one."""
    shutil.rmtree(path)
    fill(path, 1000)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: damage(path, 1), "changed since the DataFrame was made"),
        (lambda path: trim(path, 400), "were removed by retention"),
        (replace, "was replaced by another"),
    ],
    ids=["repaired", "trimmed", "replaced"],
)
def test_a_frame_from_before_a_change_is_refused(
    spark: SparkSession, tmp_path: Path, change: Callable[[Path], object], problem: str
) -> None:
    fill(tmp_path / "j", 1000)
    frame = journal_dataframe(spark, tmp_path / "j")
    assert frame.count() == 1000
    change(tmp_path / "j")
    for action in (frame.count, frame.first, lambda: frame.where("offset = 5").collect()):
        with pytest.raises(PySparkException, match=problem):
            action()


def test_a_frame_from_before_more_records_still_reads(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    frame = journal_dataframe(spark, tmp_path / "j")
    fill(tmp_path / "j", 1000)
    assert frame.count() == 1000
    assert journal_dataframe(spark, tmp_path / "j").count() == 2000


def test_lost_records_are_refused_as_the_plain_source_does(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    damage(tmp_path / "j", 1)
    with pytest.raises(PySparkException, match="lost to damage"):
        journal_dataframe(spark, tmp_path / "j").count()


def test_a_byte_that_changed_in_a_copy_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "j", 1000)
    frame = journal_dataframe(spark, tmp_path / "j")
    done = copy_segments(tmp_path / "j")
    file = done.folder / done.copies[1].name
    data = bytearray(file.read_bytes())
    at = data.index(b"value ")
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(Py4JJavaError, match="CRC checksum verification failed"):
        frame.selectExpr("max(value)").collect()
