"""A published artifact as Arrow batches: the columns of a fold, read from its tables in object storage.

Invariants: the planner fixes one artifact for all tasks. Rows are those of the fold at the artifact's cursor. Tables
without increments are read file by file, in parallel; with increments, by one task that merges them. If the value is
left out it is not fetched; then the sums of Parquet's pages are checked, else the hash of each file. Tasks take the
credentials of the object store from their environment.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from strandline.artifacts import ArtifactFile, Form, Manifest, PublishedArtifacts
from strandline.artifacts.layout import format_file_key
from strandline.artifacts.runs import KEY_COLUMNS, merged, one_array, read_run, versions_of
from strandline.fold.columns import tokens_of
from strandline.objects.object_files import ObjectFile
from strandline.spark.errors import invalid_input
from strandline.spark.folds.reader import COLUMNS, revisions_of
from strandline.spark.logs.columns import resized
from strandline.spark.logs.options import ROWS_PER_BATCH, Given, parse_count

OPTIONS = ("artifact", "prefix", "rowsPerBatch")


@dataclass(frozen=True, slots=True)
class ArtifactOptions:
    """The address of the artifacts, the prefix of the keys, and the rows of a batch."""

    address: str
    prefix: bytes = b""
    rows_per_batch: int = ROWS_PER_BATCH


def parse_artifact_options(options: Mapping[str, str]) -> ArtifactOptions:
    """Return the options of an artifact."""
    given = Given(options, OPTIONS, "an artifact")
    prefix = (given.text("prefix") or "").encode()
    rows = given.take("rowsPerBatch", parse_count, default=ROWS_PER_BATCH)
    return ArtifactOptions(given.text("artifact") or "", prefix, rows)


def plan_parts(options: ArtifactOptions) -> list[Manifest]:
    """Return the newest artifact in parts, each with some of its files; `InvalidInput` for one of the raw form."""
    with PublishedArtifacts.open(options.address, is_read_only=True) as artifacts:
        manifest = artifacts.newest()
    if manifest.form is not Form.LOGICAL:
        raise invalid_input(
            f"the newest artifact at {options.address} has the files of {manifest.backend}, and no tables",
            "publish it as tables, which is the default, or import it and read it with option fold",
        )
    if len(manifest.runs) > 1:
        return [manifest]
    return [replace(manifest, files=(file,)) for file in manifest.files]


def read_artifact(
    address: str, columns: Sequence[str] | None = None, *, prefix: bytes = b"", rows_per_batch: int = ROWS_PER_BATCH
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the newest artifact as Arrow batches, without Spark."""
    options = ArtifactOptions(address, prefix, rows_per_batch)
    for part in plan_parts(options):
        yield from read_part(options, part, COLUMNS.chosen(columns))


def read_part(options: ArtifactOptions, part: Manifest, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part with the columns of `schema`."""
    has_value = "value" in schema.names
    with closing(PublishedArtifacts.open(options.address, is_read_only=True)) as artifacts:

        def open_file(file: ArtifactFile) -> pa.Buffer | pa.PythonFile:
            if has_value:
                return artifacts.read_file(file)
            return pa.PythonFile(ObjectFile(artifacts.objects, format_file_key(file), file.size))

        names = None if has_value else KEY_COLUMNS
        tables = merged([read_run(files, open_file, names) for files in part.runs.values()])
        yield from resized(_batches(tables, options.prefix, schema), options.rows_per_batch)


def _batches(tables: Iterator[pa.Table], prefix: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for table in tables:
        chosen = table.filter(pc.starts_with(table["key"], prefix)) if prefix else table
        if len(chosen):
            yield pa.RecordBatch.from_arrays([_column(chosen, field.name) for field in schema], schema=schema)


def _column(table: pa.Table, name: str) -> pa.Array:
    match name:
        case "key" | "value":
            return one_array(table[name])
        case "version":
            return tokens_of(versions_of(table))
        case _:
            return revisions_of(tokens_of(versions_of(table)))
