"""A DataFrame is scanned durably: each row once by key and version, and a scan that is killed goes on."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from strandline.detect import Rule, RuleSet
from strandline.errors import InvalidInput
from strandline.findings.report_builder import scan_report
from strandline.pipeline.sql import SqliteDatabase
from strandline.scan import open_state
from strandline.scan.request import ScanRequest
from strandline.spark.table_scan import FrameSource, scan_table
from strandline.spark.table_scan import scan as scan_module
from strandline.spark.table_scan.rows import scan_rows
from strandline.spark.table_scan.scan import TableScanned, commit_rows
from tests.scan.dying import LEASE_S, die_at, forked, hours_later
from tests.scan.threaded_workers import TENANT, made, request_for
from tests.spark.rows import rows_of

RULES = RuleSet((Rule("alpha", r"\balpha_[0-9]{3,}\b"),))


def table(rows: int = 40) -> pa.RecordBatch:
    texts = [f"alpha_{100 + number}" if number % 4 == 0 else "nothing" for number in range(rows)]
    return pa.record_batch({"id": list(range(rows)), "changed": [1] * rows, "text": texts})


def request(folder: Path, name: str, **more: Any) -> ScanRequest:  # noqa: ANN401
    source = FrameSource.named("orders", key="id", **more)
    return request_for(made(str(folder / name)), source, rules=RULES, lease_ttl_s=LEASE_S)


def scan(wanted: ScanRequest, *batches: pa.RecordBatch) -> TableScanned:
    """Do what Spark's tasks and the driver do, without Spark."""
    rows = [row for batch in scan_rows(wanted, batches) for row in batch.to_pylist()]
    return commit_rows(wanted, rows)


def test_rows_are_scanned_once_by_key_and_content(tmp_path: Path) -> None:
    wanted = request(tmp_path, "a.db")
    assert scan(wanted, table()) == TableScanned(40, 40, 10, 0)
    assert scan(wanted, table(20), table(42).slice(20)) == TableScanned(42, 2, 1, 0), "however Spark cuts the table"
    changed = table().to_pandas()
    changed.loc[3, "text"] = "alpha_999"
    assert scan(wanted, pa.RecordBatch.from_pandas(changed)) == TableScanned(40, 1, 1, 0)


def test_a_version_column_decides_instead_of_the_content(tmp_path: Path) -> None:
    wanted = request(tmp_path, "a.db", version="changed", columns=["text"])
    scan(wanted, table())
    texts = table().set_column(2, "text", pa.array(["alpha_555"] * 40))
    assert scan(wanted, texts).scanned == 0
    again = texts.set_column(1, "changed", pa.array([2] * 40, pa.int64()))
    assert scan(wanted, again) == TableScanned(40, 40, 40, 0)


def test_keys_that_are_missing_or_there_twice_are_refused(tmp_path: Path) -> None:
    wanted = request(tmp_path, "a.db")
    with pytest.raises(InvalidInput, match="there twice"):
        scan(wanted, table(3), table(3))
    with hours_later(), pytest.raises(InvalidInput, match="has no id"):
        scan(wanted, table(2).set_column(0, "id", pa.array([1, None])))


@pytest.mark.parametrize("writes", [4, 7, 10, *(pytest.param(at, marks=pytest.mark.long) for at in range(11, 25))])
def test_a_scan_that_is_killed_goes_on_to_the_rows_of_a_calm_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    monkeypatch.setattr(scan_module, "PAGE_ITEMS", 5)
    calm, killed = request(tmp_path, "calm.db"), request(tmp_path, "killed.db")
    scan(calm, table())

    def die() -> None:
        die_at(SqliteDatabase, "write", writes, after=bool(writes % 2))
        scan(killed, table())

    assert forked(die) == -signal.SIGKILL
    with hours_later():
        assert scan(killed, table()).rows == 40
    with calm.open_stores() as one, killed.open_stores() as other:
        assert rows_of(one, TENANT) == rows_of(other, TENANT)


def places(report: Any) -> Sequence[str]:  # noqa: ANN401
    return sorted(finding.location.row for finding in report.findings)


def test_a_dataframe_of_spark_is_scanned_into_a_state(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(table().to_pandas()).repartition(3)
    with open_state(str(tmp_path / "state"), create=True) as state:
        first = scan_table(spark, frame, state, name="orders", key="id", version="changed", rules=RULES)
        again = scan_table(spark, frame.repartition(2), state, name="orders", key="id", version="changed", rules=RULES)
        assert (first, again) == (TableScanned(40, 40, 10, 0), TableScanned(40, 0, 0, 0))
        source = FrameSource.named("orders", key="id", version="changed")
        wanted = ScanRequest((source,), RULES, state.tenant, state.key, state.address)
        assert places(scan_report(state, wanted.inputs_digest)) == sorted(str(number) for number in range(0, 40, 4))
        with pytest.raises(InvalidInput, match="no column nothing"):
            scan_table(spark, frame, state, name="orders", key="nothing")


@pytest.mark.long
def test_a_table_behind_jdbc_is_scanned_by_its_key_however_it_is_cut(spark: SparkSession, tmp_path: Path) -> None:
    """Derby comes with Spark, so its driver is on the class path; other databases need theirs in `spark.jars`."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the property is one of Java
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url, properties = (
        f"jdbc:derby:memory:{tmp_path.name};create=true",
        {"driver": "org.apache.derby.jdbc.EmbeddedDriver"},
    )

    def stored(frame: pa.RecordBatch) -> None:
        spark.createDataFrame(frame.to_pandas()).write.jdbc(url, "orders", "overwrite", properties)

    def scan(partitions: int) -> TableScanned:
        cut = {"column": "id", "lowerBound": 0, "upperBound": 40, "numPartitions": partitions}
        frame = spark.read.jdbc(url, "orders", properties=properties, **cut)
        return scan_table(spark, frame, state, name="orders", key="id", version="changed", rules=RULES)

    with open_state(str(tmp_path / "state"), create=True) as state:
        stored(table())
        assert scan(3) == TableScanned(40, 40, 10, 0)
        assert scan(2) == TableScanned(40, 0, 0, 0)
        rows = table().to_pylist()
        rows[1] |= {"changed": 2, "text": "alpha_777"}
        stored(pa.RecordBatch.from_pylist(rows))
        assert scan(1) == TableScanned(40, 1, 1, 0)
