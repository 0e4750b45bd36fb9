"""Columns: the very schema that Spark expects, pruned by what was asked for, in batches of a size that suits."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from strandline.errors import InvalidInput
from strandline.journal import Journal
from strandline.spark.journals import read_journal
from strandline.spark.journals.columns import SCHEMA
from strandline.spark.logs.columns import resized
from tests.spark.journals.helpers import batch_reader, fill, rows_of, schema


def test_the_arrow_schema_is_the_one_spark_compares_with() -> None:
    assert to_arrow_schema(schema(), timezone="UTC").equals(SCHEMA)


@pytest.mark.parametrize(
    "ddl", ["value BINARY", "timestamp TIMESTAMP, offset BIGINT NOT NULL", "key BINARY, headers BINARY"]
)
def test_a_reader_yields_the_columns_that_the_schema_names_and_no_others(tmp_path: Path, ddl: str) -> None:
    fill(tmp_path / "j", 10)
    reader = batch_reader(tmp_path / "j", ddl)
    (batch,) = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert batch.schema.equals(to_arrow_schema(schema(ddl), timezone="UTC"))
    assert batch.num_rows == 10


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("value STRING", "cannot be read as string"),
        ("offset BINARY", "cannot be read as binary"),
        ("payload BINARY", "no column payload"),
        ("key BINARY NOT NULL", "cannot be declared NOT NULL"),
        ("Value BINARY", "no column Value"),
        ("value BINARY, value BINARY", "once each"),
    ],
)
def test_a_schema_that_the_journal_cannot_give_is_refused(tmp_path: Path, ddl: str, problem: str) -> None:
    fill(tmp_path / "j", 10)
    with pytest.raises(InvalidInput, match=problem):
        batch_reader(tmp_path / "j", ddl)


def test_records_come_out_as_they_went_in(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.open(path) as journal:
        journal.append([b"a", b""], keys=[b"k1", b""], headers=[b"h", b"\xff"], timestamps=[1_500, -1])
        journal.append([b"c"])
    reader = batch_reader(path)
    rows = rows_of(reader, reader.partitions()).to_pylist()
    assert [tuple(row.values())[:4] for row in rows] == [
        (0, b"k1", b"a", b"h"),
        (1, b"", b"", b"\xff"),
        (2, None, b"c", None),
    ]
    assert rows[0]["timestamp"] == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert rows[1]["timestamp"] == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert abs((datetime.now(UTC) - rows[2]["timestamp"]).total_seconds()) < 60, "the time of the append"


def test_small_batches_are_joined_and_large_ones_cut(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.open(path) as journal:
        for at in range(30):
            journal.append([b"%d" % at])
        journal.append([b"x"] * 25)
    sizes = [batch.num_rows for batch in read_journal(str(path), rows_per_batch=10)]
    assert sizes == [10, 10, 10, 10, 10, 5]


@given(st.lists(st.integers(1, 40), max_size=12), st.integers(1, 15), st.integers(8, 200))
def test_resizing_keeps_every_row_in_order(lengths: list[int], rows_max: int, bytes_max: int) -> None:
    numbers = iter(range(1000))
    batches = [pa.record_batch({"n": [next(numbers) for _ in range(length)]}) for length in lengths]
    out = list(resized(batches, rows_max, bytes_max))
    assert [n for batch in out for n in batch["n"].to_pylist()] == list(range(sum(lengths)))
    assert all(0 < batch.num_rows <= rows_max for batch in out)


def test_values_are_views_over_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.open(path) as journal:
        journal.append([b"v" * 1000] * 5000)
    before = pa.total_allocated_bytes()
    held = list(read_journal(str(path), ["value"]))
    assert sum(batch.num_rows for batch in held) == 5000
    assert pa.total_allocated_bytes() - before < 100_000
