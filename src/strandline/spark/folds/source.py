"""Spark's reader of a fold: one task, because the rows are of one moment and a moment is one process's."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.spark.folds.reading import COLUMNS, FoldOptions, open_reader, parse_fold_options, read_entries

COLUMNS_DDL = "key BINARY NOT NULL, revision BIGINT, version BINARY NOT NULL, value BINARY NOT NULL"

__all__ = ["COLUMNS_DDL", "FoldBatchReader", "parse_fold_options"]


class FoldBatchReader(DataSourceReader):
    """Reads a fold as it is when its one task begins."""

    def __init__(self, options: FoldOptions, schema: pa.Schema) -> None:
        COLUMNS.check(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Make sure that there is a fold; there is one part."""
        open_reader(self._options.path).close()
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """Yield the entries."""
        return read_entries(self._options, self._schema)
