"""Build the archive of Java classes by which sessions start quickly, once per machine.

`python -m strandline.spark.class_archive_builder` runs a small Spark job of each kind and keeps the classes that Java
loaded for them (`class_archive`).
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from strandline.errors import StrandlineError, Unavailable
from strandline.spark.class_archive import archive_path, forget_unused
from strandline.spark.driver import spark_home
from strandline.spark.errors import spark_errors
from strandline.spark.java import find_java
from strandline.spark.sessions import end, start

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

_DUMPS_WITHIN_S = 120.0


class NoArchive(Unavailable):
    """This Java cannot keep the classes it loaded."""

    retryable = False

    def __init__(self) -> None:
        super().__init__("this Java wrote no archive of classes", hint="another Java 17 or 21 may")


def build_class_archive() -> Path:
    """Make the archive of classes where it is missing; return where it is."""
    forget_unused(time.time())
    archive = archive_path(find_java(), spark_home())
    if archive.exists():
        return archive
    made = archive.with_name(f"{archive.name}.{os.getpid()}.tmp")
    try:
        with spark_errors():
            spark = start(master="local[2,4]", archive=[f"-XX:ArchiveClassesAtExit={made}"])
            _exercise(spark)
            is_whole = end(within_s=_DUMPS_WITHIN_S)
        if not is_whole or not made.exists():  # a Java that is killed may leave a part of one
            raise NoArchive
        made.replace(archive)
    finally:
        end(within_s=0)
        made.unlink(missing_ok=True)
    return archive


def _exercise(spark: "SparkSession") -> None:
    rows = spark.range(100).selectExpr("id", "string(id) AS name", "CAST(string(id) AS binary) AS data")
    with TemporaryDirectory() as folder:
        rows.write.parquet(f"{folder}/rows")
        counts = spark.read.parquet(f"{folder}/rows").groupBy("name").count()
        counts.mapInArrow(_same, counts.schema).toArrow()
        rows.join(rows.selectExpr("id + 1 AS id"), "id").orderBy("name").toPandas()
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        query = (
            stream.mapInArrow(_same, stream.schema)
            .writeStream.foreachBatch(_look)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .start()
        )
        while query.lastProgress is None and query.isActive:
            query.awaitTermination(0.1)  # type: ignore[arg-type]
        query.stop()


def _same(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    return batches


def _look(batch: "DataFrame", _: int) -> None:
    batch.toArrow()


def main() -> int:
    """Build the archive, and print the result in one line."""
    try:
        archive = build_class_archive()
    except (StrandlineError, OSError) as error:
        sys.stderr.write(f"sessions will start more slowly: {error}\n")
        return 1
    sys.stdout.write(f"Spark's classes are in {archive}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
