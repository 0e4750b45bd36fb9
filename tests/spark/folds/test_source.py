"""A fold as a DataFrame on a real session."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strandline.fold.backends import Backend
from tests.spark.folds.helpers import fill


@pytest.mark.parametrize("backend", list(Backend))
def test_a_fold_of_any_backend_is_a_dataframe(spark: SparkSession, tmp_path: Path, backend: Backend) -> None:
    fill(tmp_path / "f", backend, 1500)
    frame = spark.read.format("strandline").option("fold", str(tmp_path / "f")).load()
    assert frame.columns == ["key", "revision", "version", "value"]
    assert frame.count() == 1500
    (row,) = frame.filter("CAST(key AS STRING) = 'k00007'").collect()
    assert (bytes(row.value), row.revision) == (b"value 7", 8)
    pruned = spark.read.format("strandline").schema("revision BIGINT").option("fold", str(tmp_path / "f")).load()
    assert pruned.agg({"revision": "max"}).first() == (1500,)


def test_what_a_fold_cannot_do_is_told(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "f", Backend.APPEND_LOG, 3)
    options = {"fold": str(tmp_path / "f")}
    frame = spark.read.format("strandline").options(**options).load()
    with pytest.raises(PySparkException, match="a fold cannot be written to"):
        frame.write.format("strandline").mode("append").options(**options).save()
    stream = spark.readStream.format("strandline").options(**options).load()
    with pytest.raises(PySparkException, match="a fold cannot be read as a stream"):
        stream.writeStream.format("noop").start().awaitTermination()
    with pytest.raises(PySparkException, match="there is no fold at"):
        spark.read.format("strandline").option("fold", str(tmp_path / "g")).load().count()
