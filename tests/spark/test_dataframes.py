"""Findings as DataFrames: files, cells and streams, with problems told and nothing of a secret in them."""

import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.detect import Engine, Limits, expand, load_builtin
from strandline.errors import InvalidInput
from strandline.journal import Journal
from strandline.pipeline.identity import TenantSecretKey
from strandline.spark.dataframes import FINDINGS, Scanner, scan_dataframe, scan_files, scan_stream

KEY = TenantSecretKey(b"k" * 32)
RULE = "github-pat"


def line(seed: int) -> str:
    """Return a line with a fake token that the rule finds."""
    return expand("GITHUB_TOKEN={{github-crc32:ghp_}}", str(seed))


def test_cells_of_a_dataframe_are_scanned_and_named_by_their_row_and_column(spark: SparkSession) -> None:
    rows = [(number, f"note {number}", [line(number)] if number % 100 == 7 else []) for number in range(1000)]
    frame = spark.createDataFrame(rows, "id BIGINT, note STRING, tags ARRAY<STRING>")
    found = scan_dataframe(spark, frame, key="id", secret_key=KEY, name="orders").orderBy("id").collect()
    assert [row.id for row in found] == list(range(7, 1000, 100))
    assert {(row.rule, row.field, row.line, row.problem) for row in found} == {(RULE, "tags", 1, None)}
    assert found[0].location == "orders#7/tags:1:14"
    (alone,) = Engine(load_builtin(), key=KEY).scan(line(7).encode()).findings
    assert (found[0].start, found[0].end, bytes(found[0].secret)) == (alone.start, alone.end, bytes(alone.secret))


def test_columns_can_be_chosen_and_rows_may_have_several_keys(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("eu", 1, line(1), line(2))], "region STRING, id INT, a STRING, b STRING")
    found = scan_dataframe(spark, frame, key=["region", "id"], columns=["b"])
    assert found.columns == ["region", "id", *FINDINGS.names]
    assert [(row.region, row.id, row.field) for row in found.collect()] == [("eu", 1, "b")]


@pytest.mark.parametrize(
    ("key", "columns", "problem"), [("no", None, "no is no column"), ("rule", None, "cannot be called rule")]
)
def test_a_key_that_cannot_be_is_refused(
    spark: SparkSession, key: str, columns: list[str] | None, problem: str
) -> None:
    frame = spark.createDataFrame([(1, "x")], "rule INT, text STRING")
    with pytest.raises(InvalidInput, match=problem):
        scan_dataframe(spark, frame, key=key, columns=columns)
    with pytest.raises(InvalidInput, match="no stream"):
        scan_stream(spark, frame, key="text")


def test_files_are_scanned_with_their_archives_and_problems_are_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.env").write_text(line(1) + "\n")
    (tmp_path / "src" / "allowed.env").write_text(line(2) + " # strandline:allow\n")
    (tmp_path / "src" / "clean.txt").write_text("nothing\n")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("in/c.env", line(3))
    (tmp_path / "link").symlink_to("src")
    found = scan_files(spark, tmp_path, secret_key=KEY).orderBy("path").collect()
    assert [(row.path, row.rule, row.location, row.problem) for row in found] == [
        ("b.zip", RULE, "b.zip!in/c.env:1:14", None),
        ("link", None, "link", "SYMLINK"),
        ("src/a.env", RULE, "src/a.env:1:14", None),
    ]


def test_a_stream_of_a_journal_is_a_stream_of_findings(spark: SparkSession, tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j") as journal:
        journal.append([line(number).encode() if number == 30 else b"clean" for number in range(100)])
    stream = spark.readStream.format("strandline").option("maxRecordsPerTrigger", 40).load(str(tmp_path / "j"))
    found = scan_stream(spark, stream, key="offset", columns=["value"], secret_key=KEY, name="events")
    sink = found.writeStream.format("memory").queryName("found").option("checkpointLocation", str(tmp_path / "c"))
    sink.trigger(availableNow=True).start().awaitTermination()
    assert [(row.offset, row.location) for row in spark.table("found").collect()] == [(30, "events#30/value:1:14")]


def test_what_a_limit_cut_off_has_a_row(spark: SparkSession, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("big", b"x" * 10_000)
    (row,) = scan_files(spark, tmp_path, limits=Limits(archive_depth=0)).collect()
    assert (row.path, row.rule, row.problem) == ("b.zip", None, "MEMBERS_SKIPPED")


def test_no_key_is_shown() -> None:
    assert "k" * 8 not in repr(Scanner(load_builtin(), Limits(), KEY))
