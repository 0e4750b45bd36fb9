"""Spark's reader of a published artifact: the planner fixes one artifact and shares its files out; tasks read them."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.artifacts import Manifest
from strandline.spark.folds.artifacts import parse_artifact_options, plan_parts, read_part
from strandline.spark.folds.reader import COLUMNS


class ArtifactPartition(InputPartition):
    """Some files of an artifact."""

    def __init__(self, part: Manifest) -> None:
        super().__init__(part)
        self.part = part


class ArtifactReader(DataSourceReader):
    """Reads the newest artifact, which the planner fixes for all tasks."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        COLUMNS.check(schema)
        self._options = parse_artifact_options(options)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Find the newest artifact, and share its files out."""
        return [ArtifactPartition(part) for part in plan_parts(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; Spark hands a partition of its own making where there are none."""
        if isinstance(partition, ArtifactPartition):
            yield from read_part(self._options, partition.part, self._schema)
