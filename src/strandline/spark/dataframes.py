"""Findings as DataFrames, for notebooks and jobs: nothing is stored, and no row holds a secret.

    <key columns>       as the input has them; `path` for files
    rule                STRING, the rule that found it; null in a row of a problem
    field               STRING, the column with the secret; null for files
    start, end          BIGINT, bytes in the cell or the file
    line, column        INT, counted from 1
    confidence          INT, 1 to 10
    secret              BINARY, a hash under the secret key: equal secrets have equal hashes
    location            STRING, the place for people
    problem             STRING, why something was not scanned as a whole; null in a row of a finding

Invariants: a cell or file that could not be scanned as a whole has a row with the problem; a cell or file without a row
was scanned and holds nothing; findings that a comment allows are left out. Each Python worker builds its engine once.
"""

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from strandline.detect import Coverage, Engine, ItemResult, Limits, RuleSet, load_builtin, load_rules
from strandline.detect.locations import FILE, TABLE, Location, format_display, location_of, shown
from strandline.errors import InvalidInput
from strandline.pipeline.identity import DIGEST_BYTES, TenantSecretKey
from strandline.scan.sources import LISTING, FileSource, ItemProblem, ItemReader
from strandline.scan.sources.cells import Leaf, cells, leaves
from strandline.scan.worker.engine_cache import engine_for
from strandline.spark.error_transport import transported_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rules: TypeAlias = RuleSet | str | Path
FINDINGS = pa.schema(
    [
        ("rule", pa.string()),
        ("field", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("line", pa.int32()),
        ("column", pa.int32()),
        ("confidence", pa.int32()),
        ("secret", pa.binary()),
        ("location", pa.string()),
        ("problem", pa.string()),
    ]
)
FINDINGS_DDL = (
    "rule STRING, field STRING, start LONG, end LONG, line INTEGER, column INTEGER, confidence INTEGER, "
    "secret BINARY, location STRING, problem STRING"
)
CELLS_AT_ONCE = 4_096
FILES_PER_TASK = 500


@dataclass(frozen=True)
class Scanner:
    """The rules, limits and key of a task; its `repr` shows no key."""

    rules: RuleSet = field(repr=False)
    limits: Limits
    secret_key: TenantSecretKey = field(repr=False)
    name: str = ""

    def engine(self) -> Engine:
        """Return this process's engine."""
        return engine_for(self.rules, self.limits, self.secret_key)


def scan_dataframe(
    spark: "SparkSession",  # noqa: ARG001 - every function of the library begins with it
    df: "DataFrame",
    *,
    key: str | Sequence[str],
    columns: Sequence[str] | None = None,
    rules: Rules | None = None,
    limits: Limits | None = None,
    secret_key: TenantSecretKey | None = None,
    name: str = "dataframe",
) -> "DataFrame":
    """Return the findings in the columns of a DataFrame, each with the columns that are the key of its row.

    `columns` are the names of text or binary columns, also within structs, lists and maps (`address.street`); by
    default all there are, but for the key. Without a `secret_key` hashes can be compared within this DataFrame alone.
    """
    keys = [key] if isinstance(key, str) else list(key)
    missing = [name for name in keys if name not in df.columns]
    if not keys or missing:
        raise InvalidInput(f"the key {', '.join(missing)} is no column", hint=f"there are {', '.join(df.columns)}")
    taken = [name for name in keys if name in FINDINGS.names]
    if taken:
        raise InvalidInput(f"a key cannot be called {', '.join(taken)}", hint="rename it: findings have such a column")
    scanner = _scanner(rules, limits, secret_key, name)
    chosen = None if columns is None else tuple(columns)
    kept = df if chosen is None else df.select(*dict.fromkeys([*keys, *(name.split(".")[0] for name in chosen)]))
    schema = df.select(*keys).schema
    for name_and_type in FINDINGS_DDL.split(", "):
        column, _, kind = name_and_type.lower().partition(" ")
        schema = schema.add(column, kind)
    return kept.mapInArrow(partial(transported_batches, _scan_rows, scanner, tuple(keys), chosen), schema)


def scan_stream(
    spark: "SparkSession",
    stream: "DataFrame",
    *,
    key: str | Sequence[str],
    columns: Sequence[str] | None = None,
    rules: Rules | None = None,
    limits: Limits | None = None,
    secret_key: TenantSecretKey | None = None,
    name: str = "stream",
) -> "DataFrame":
    """Return the findings in a stream as a stream; see `scan_dataframe`. Its writer decides which rows are kept."""
    if not stream.isStreaming:
        raise InvalidInput("this DataFrame is no stream", hint="use scan_dataframe")
    return scan_dataframe(
        spark, stream, key=key, columns=columns, rules=rules, limits=limits, secret_key=secret_key, name=name
    )


def scan_files(
    spark: "SparkSession",
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    rules: Rules | None = None,
    limits: Limits | None = None,
    secret_key: TenantSecretKey | None = None,
) -> "DataFrame":
    """Return the findings in files and folders; their key is `path`. Files are listed now, and read when it runs."""
    chosen = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    sources = tuple(FileSource.at(path) for path in chosen)
    listed = pa.concat_tables([_listed(number, source) for number, source in enumerate(sources)])
    parts = max(1, min(len(os.sched_getaffinity(0)), listed.num_rows), listed.num_rows // FILES_PER_TASK)
    files = spark.createDataFrame(listed).repartition(parts)
    scanner = _scanner(rules, limits, secret_key, "")
    return files.mapInArrow(
        partial(transported_batches, _scan_listed, scanner, sources), f"path STRING, {FINDINGS_DDL}"
    )


def _scanner(rules: Rules | None, limits: Limits | None, key: TenantSecretKey | None, name: str) -> Scanner:
    chosen = load_builtin() if rules is None else rules if isinstance(rules, RuleSet) else load_rules(rules)
    return Scanner(chosen, limits or Limits(), key or TenantSecretKey(secrets.token_bytes(DIGEST_BYTES)), name)


# In tasks.


def _scan_rows(
    scanner: Scanner, keys: Sequence[str], columns: Sequence[str] | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    engine = scanner.engine()
    for batch in batches:
        chosen = _leaves(batch.schema, keys, columns)
        for at in range(0, batch.num_rows, CELLS_AT_ONCE):
            part = batch.slice(at, CELLS_AT_ONCE)
            places: list[int] = []
            rows: list[dict[str, Any]] = []
            for leaf in chosen:
                for number, found in _scan_cells(engine, scanner.name, part, leaf, keys):
                    places.append(number)
                    rows.append(found)
            if rows:
                findings = pa.RecordBatch.from_pylist(rows, FINDINGS)
                of_rows = part.select(list(keys)).take(pa.array(places, pa.int64()))
                yield pa.RecordBatch.from_arrays(
                    [*of_rows.columns, *findings.columns], schema=pa.schema([*of_rows.schema, *FINDINGS])
                )


def _leaves(schema: pa.Schema, keys: Sequence[str], columns: Sequence[str] | None) -> list[Leaf]:
    every = leaves(schema)
    if columns is None:
        return [leaf for leaf in every if leaf.column not in keys]
    chosen = [leaf for leaf in every if leaf.name in columns or leaf.column in columns]
    missing = [name for name in columns if not any(name in (leaf.name, leaf.column) for leaf in chosen)]
    if missing:
        names = ", ".join(leaf.name for leaf in every)
        raise InvalidInput(f"there is no text in {', '.join(missing)}", hint=f"there is in {names}")
    return chosen


def _scan_cells(
    engine: Engine, name: str, part: pa.RecordBatch, leaf: Leaf, keys: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the findings in a column, each with the number of its row."""
    values = [value or b"" for value in cells(part.column(leaf.column), leaf.path)]
    for number, result in sorted(engine.scan_many(values, name).items()):
        row = ",".join(shown(str(part.column(key)[number].as_py())) for key in keys)
        yield from ((number, {**found, "field": leaf.name}) for found in _found(result, TABLE, name, row, leaf.name))


def _scan_listed(
    scanner: Scanner, sources: Sequence[FileSource], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    engine = scanner.engine()
    schema = pa.schema([("path", pa.string()), *FINDINGS])
    for batch in batches:
        for row in batch.to_pylist():
            source = sources[row["source"]]
            with source.open() as reader:
                found = list(_scan_file(engine, reader, row["locator"], row["extra"], row["problem"]))
            path = shown(source.display(row["locator"], row["extra"]))
            if found:
                rows = [{"path": path, "location": path, **one} for one in found]
                yield pa.RecordBatch.from_pylist(rows, schema)


def _scan_file(
    engine: Engine, reader: ItemReader, locator: bytes, extra: bytes | None, problem: str | None
) -> Iterator[dict[str, Any]]:
    try:
        if problem is None:
            for part in reader.read(locator, extra).parts:
                yield from _found(engine.scan(part.data, part.path), FILE, part.path)
    except ItemProblem as error:
        problem = error.code
    if problem is not None:
        yield {"problem": problem}


def _found(result: ItemResult, source: str, path: str, row: str = "", column: str = "") -> Iterator[dict[str, Any]]:
    """Yield the rows of an item's result."""
    for found in result.findings:
        if found.comment:
            continue
        yield {
            "rule": found.rule_id,
            "start": found.start,
            "end": found.end,
            "line": found.line,
            "column": found.column,
            "confidence": found.confidence,
            "secret": bytes(found.secret),
            "location": format_display(location_of(source, found, row=row, field=column)),
        }
    for problem in _problems(result.coverage):
        yield {"problem": problem, "location": format_display(Location(source, path, row=row, field=column))}


def _problems(coverage: Coverage) -> list[str]:
    counts = {
        "MEMBERS_SKIPPED": coverage.members_skipped,
        "DECODES_SKIPPED": coverage.decodes_skipped,
        "FINDINGS_DROPPED": coverage.findings_dropped,
    }
    return [problem for problem, count in counts.items() if count]


def _listed(number: int, source: FileSource) -> pa.Table:
    """Return the files of a source, with its number."""
    table = pa.Table.from_batches(source.list_items(lambda _: None), LISTING).select(["locator", "extra", "problem"])
    return table.add_column(0, "source", pa.repeat(pa.scalar(number, pa.int32()), table.num_rows))
