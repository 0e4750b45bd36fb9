"""A published artifact as a DataFrame on a real session, and as Arrow batches without one."""

from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline.artifacts import PublishedArtifacts, export_fold
from strandline.errors import InvalidInput
from strandline.fold import open_fold
from strandline.objects import LocalObjects
from strandline.spark.folds.artifacts import parse_artifact_options, plan_parts, read_artifact
from tests.artifacts import fleet as fleets


@pytest.fixture
def fleet(tmp_path: Path) -> fleets.Fleet:
    """A fold of 300 keys whose base and one increment are published."""
    made = fleets.Fleet(LocalObjects(tmp_path / "objects"), tmp_path)
    made.write(*(f"key.{at:03d}" for at in range(300)))
    made.publish()
    return made


def change(fleet: fleets.Fleet) -> None:
    fleet.write("key.001", "other")
    fleet.delete("key.002")
    fleet.publish()


def expected(fleet: fleets.Fleet) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in fleet.store.range()}


@pytest.mark.parametrize("runs", [1, 2])
def test_an_artifact_is_a_dataframe(spark: SparkSession, fleet: fleets.Fleet, runs: int) -> None:
    if runs > 1:
        change(fleet)
    frame = spark.read.format("strandline").option("artifact", fleet.objects.address).load()
    assert frame.columns == ["key", "revision", "version", "value"]
    assert {bytes(row.key): bytes(row.value) for row in frame.collect()} == expected(fleet)
    pruned = spark.read.format("strandline").schema("revision BIGINT").option("artifact", fleet.objects.address).load()
    newest = max(int.from_bytes(entry.version, "big") for entry in fleet.store.range())
    assert pruned.agg({"revision": "max"}).first() == (newest,)


def test_what_an_artifact_cannot_do_is_told(spark: SparkSession, fleet: fleets.Fleet, tmp_path: Path) -> None:
    frame = spark.read.format("strandline").option("artifact", fleet.objects.address).load()
    with pytest.raises(PySparkException, match="an artifact cannot be written to"):
        frame.write.format("strandline").mode("append").option("artifact", fleet.objects.address).save()
    with pytest.raises(PySparkException, match="there is no artifact"):
        spark.read.format("strandline").option("artifact", (tmp_path / "none").as_uri()).load().count()


@pytest.mark.parametrize("runs", [1, 2])
def test_rows_are_read_without_spark_by_column_and_prefix(fleet: fleets.Fleet, runs: int) -> None:
    if runs > 1:
        change(fleet)
    rows = {key: value for batch in read_artifact(fleet.objects.address) for key, value in pairs(batch)}
    assert rows == expected(fleet)
    batches = list(read_artifact(fleet.objects.address, ["key", "revision"], prefix=b"key.00", rows_per_batch=3))
    found = {key: revision for batch in batches for key, revision in zip(*batch.to_pydict().values(), strict=True)}
    assert found == {entry.key: int.from_bytes(entry.version, "big") for entry in fleet.store.range(b"key.00")}
    assert max(map(len, batches)) <= 3


def pairs(batch: object) -> list[tuple[bytes, bytes]]:
    columns = batch.to_pydict()  # type: ignore[attr-defined]
    return list(zip(columns["key"], columns["value"], strict=True))


def test_an_artifact_of_raw_files_is_refused_with_a_hint(tmp_path: Path) -> None:
    with closing(open_fold(tmp_path / "fold")) as store:
        fleets.apply(store, 0, [(b"a", b"1")])
        export_fold(store, tmp_path / "raw")
    address = (tmp_path / "objects").as_uri()
    with PublishedArtifacts.open(address) as artifacts:
        artifacts.publish(tmp_path / "raw")
    with pytest.raises(InvalidInput, match="no tables") as refused:
        plan_parts(parse_artifact_options({"artifact": address}))
    assert refused.value.hint is not None
    assert "publish it as tables" in refused.value.hint
