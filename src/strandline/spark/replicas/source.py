"""Spark's reader of a table of a replica: the planner fixes one position and shares the pages out; tasks read them."""

import os
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.spark.replicas.reader import (
    SQL_TYPES,
    TablePart,
    find_schema,
    parse_replica_options,
    plan_parts,
    read_part,
)


class TablePartition(InputPartition):
    """A part of a table."""

    def __init__(self, part: TablePart) -> None:
        super().__init__(part)
        self.part = part


class ReplicaReader(DataSourceReader):
    """Reads a table of a replica at one position, which the planner fixes for all tasks."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._options = parse_replica_options(options)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Find the pages of the table, and share them out."""
        parts_max = self._options.partitions or len(os.sched_getaffinity(0))
        return [TablePartition(part) for part in plan_parts(self._options, self._schema, parts_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part; Spark hands a partition of its own making where there are none."""
        if isinstance(partition, TablePartition):
            yield from read_part(self._options, partition.part, self._schema)


def replica_ddl(options: Mapping[str, str]) -> str:
    """Return the columns of a table of a replica."""
    schema = find_schema(parse_replica_options(options))
    quoted = ((field.name.replace("`", "``"), SQL_TYPES[field.type]) for field in schema)
    return ", ".join(f"`{name}` {kind}" for name, kind in quoted)
