"""Columns of pages and tables: the rows of the pipeline as Arrow, and Arrow as Parquet.

    ledger      one row for each (tenant, policy, ovid), with the time at which each status was first committed
    findings    findings (layer 1), occurrences (2) and observations (3) of one page, so that a page is one object
    triage      decisions

Invariants: rows that are written and read again are equal; a column that a table must have and a file lacks is
`Damaged`, as is a file that is no Parquet.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from blake3 import blake3

from strandline.errors import Damaged
from strandline.pipeline.findings import FindingRecord, FindingsBatch, ObservationRecord, OccurrenceRecord
from strandline.pipeline.identity import SecretHash
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.page_rows import PageRows
from strandline.pipeline.triage import TriageEvent, TriageState, event_id

FINDING, OCCURRENCE, OBSERVATION = 1, 2, 3
TIMES = ("retryable_ns", "permanent_ns", "skipped_ns", "partial_ns", "clean_ns", "with_findings_ns")
"""The time at which a row of the ledger first had each status, in the order of `DoneStatus`."""


def _needed(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


LEDGER = pa.schema(
    [
        *(_needed(name, pa.binary()) for name in ("tenant", "policy", "ovid")),
        _needed("weak", pa.bool_()),
        _needed("status", pa.int8()),
        _needed("bytes_seen", pa.int64()),
        _needed("findings_count", pa.int32()),
        *(_needed(name, pa.int64()) for name in ("members_skipped", "decodes_skipped", "findings_dropped")),
        *(_needed(name, pa.int64()) for name in ("run_id", "shard_id", "fence", "started_at", "finished_at")),
        pa.field("error_code", pa.string()),
        *(pa.field(name, pa.int64()) for name in TIMES),
    ]
)
FINDINGS = pa.schema(
    [
        _needed("layer", pa.int8()),
        _needed("tenant", pa.binary()),
        *(pa.field(name, pa.binary()) for name in ("finding_id", "item", "rule", "secret")),
        *(pa.field(name, pa.binary()) for name in ("occurrence_id", "version")),
        *(pa.field(name, pa.int64()) for name in ("byte_offset", "byte_length")),
        *(pa.field(name, pa.binary()) for name in ("observation_id", "policy", "ovid")),
        *(pa.field(name, pa.int64()) for name in ("run_id", "shard_id", "fence", "seen_at", "location_seen_at")),
        *(pa.field(name, pa.string()) for name in ("location_display", "location_url")),
        _needed("committed_ns", pa.int64()),
    ]
)
TRIAGE = pa.schema(
    [
        *(_needed(name, pa.binary()) for name in ("tenant", "finding_id", "event_id")),
        _needed("state", pa.int8()),
        _needed("when_ns", pa.int64()),
        *(_needed(name, pa.string()) for name in ("who", "why")),
        _needed("committed_ns", pa.int64()),
    ]
)
_LAYERS: dict[str, tuple[int, tuple[str, ...]]] = {
    "findings": (FINDING, FindingRecord._fields),
    "occurrences": (OCCURRENCE, OccurrenceRecord._fields),
    "observations": (OBSERVATION, ObservationRecord._fields),
}
TABLES: dict[str, pa.Schema] = {
    "ledger": LEDGER,
    **{
        name: pa.schema([FINDINGS.field(one) for one in (*fields, "committed_ns")])
        for name, (_, fields) in _LAYERS.items()
    },
    "triage": TRIAGE,
}
"""The columns of the tables that pages are folded into."""
SCHEMAS: dict[str, pa.Schema] = {"ledger": LEDGER, "findings": FINDINGS, "triage": TRIAGE}
_SHARED = [field.name for field in LEDGER if not field.nullable and field.name != "ovid"]
_WHEN = {"committed_ns", *TIMES}
_BATCH_ROWS = 1 << 16
_STATUSES = {int(status): status for status in DoneStatus}
_TIME_OF = {int(status): name for status, name in zip(DoneStatus, TIMES, strict=True)}
ROW_GROUP_ROWS = 1 << 16
_REPEATED = ["tenant", "policy", "error_code", "rule", "run_id", "shard_id", "fence", "status", "who", *TIMES]
"""Columns whose values repeat; digests never do, and a dictionary of them would be larger than they are."""
_SORTED = ["ovid", "finding_id", "occurrence_id", "observation_id"]
_DELTA = "DELTA_BYTE_ARRAY"
"""Sorted digests begin as the one before, and have no length of their own."""


def ledger_table(rows: Sequence[LedgerRecord], now_ns: int) -> pa.Table:
    """Return rows of the ledger as columns, first committed now."""
    columns = dict(zip(LedgerRecord._fields, zip(*rows, strict=True), strict=True))
    for status, name in _TIME_OF.items():
        columns[name] = tuple(now_ns if row.status == status else None for row in rows)
    return pa.table([pa.array(columns[name], LEDGER.field(name).type) for name in LEDGER.names], schema=LEDGER)


def page_table(rows: PageRows, now_ns: int) -> pa.Table:
    """Return the rows of a page as columns, first committed now; those of clean items are never made one by one."""
    clean, context = rows.clean, rows.scope.context
    count = len(clean.ovids)
    numbers = pa.array(clean.numbers, pa.int64())
    started = pc.multiply(numbers, 2)
    same = {**context._asdict(), "weak": False, "status": int(DoneStatus.SCANNED_CLEAN)}
    columns = {name: pa.repeat(pa.scalar(same.get(name, 0), LEDGER.field(name).type), count) for name in _SHARED}
    columns |= {name: pa.nulls(count, LEDGER.field(name).type) for name in ("error_code", *TIMES)}
    columns |= {
        "ovid": pa.array(clean.ovids, pa.binary()),
        "bytes_seen": pa.array(clean.bytes_seen, pa.int64()),
        "started_at": started,
        "finished_at": pc.add(started, 1),
        _TIME_OF[int(DoneStatus.SCANNED_CLEAN)]: pa.repeat(pa.scalar(now_ns, pa.int64()), count),
    }
    table = pa.table([columns[name] for name in LEDGER.names], schema=LEDGER)
    return pa.concat_tables([table, ledger_table(rows.others, now_ns)]) if rows.others else table


def ledger_rows(table: pa.Table, where: str) -> list[LedgerRecord]:
    """Return columns as rows of the ledger."""
    columns = [table[name].to_pylist() for name in LedgerRecord._fields]
    columns[4] = [_status(rank, where) for rank in columns[4]]
    return list(map(LedgerRecord, *columns))


def _status(rank: int, where: str) -> DoneStatus:
    status = _STATUSES.get(rank)
    if status is None:
        raise Damaged(
            where,
            f"a row of the ledger has the status {rank}, which does not exist",
            safe="find the writer of the row; unknown values are never read as a default",
        )
    return status


def findings_table(batch: FindingsBatch, now_ns: int) -> pa.Table:
    """Return the three layers of a page as columns, first committed now."""
    layers: list[tuple[int, tuple[str, ...], Iterable[tuple[object, ...]]]] = [
        (FINDING, FindingRecord._fields, ((*row[:4], bytes(row.secret)) for row in batch.findings)),
        (OCCURRENCE, OccurrenceRecord._fields, batch.occurrences),
        (OBSERVATION, ObservationRecord._fields, batch.observations),
    ]
    cells: dict[str, list[object]] = {name: [] for name in FINDINGS.names}
    for layer, fields, rows in layers:
        for row in rows:
            known = dict(zip(fields, row, strict=True), layer=layer, committed_ns=now_ns)
            for name, column in cells.items():
                column.append(known.get(name))
    return pa.table([pa.array(cells[name], FINDINGS.field(name).type) for name in FINDINGS.names], schema=FINDINGS)


def layer_table(table: pa.Table, name: str) -> pa.Table:
    """Return the rows of one layer of findings as the table that they are folded into."""
    layer, _ = _LAYERS[name]
    return table.filter(pc.equal(table["layer"], layer)).select(TABLES[name].names).cast(TABLES[name])


def with_layer(table: pa.Table, name: str) -> list[dict[str, Any]]:
    """Return rows of a folded table as those of a page."""
    layer, _ = _LAYERS[name]
    return [{"layer": layer, **row} for row in table.to_pylist()]


def finding_row(row: dict[str, Any]) -> FindingRecord:
    """Return a row of layer 1."""
    return FindingRecord(row["tenant"], row["finding_id"], row["item"], row["rule"], SecretHash(row["secret"]))


def occurrence_row(row: dict[str, Any]) -> OccurrenceRecord:
    """Return a row of layer 2."""
    return OccurrenceRecord(*(row[name] for name in OccurrenceRecord._fields))


def observation_row(row: dict[str, Any]) -> ObservationRecord:
    """Return a row of layer 3."""
    return ObservationRecord(*(row[name] for name in ObservationRecord._fields))


def triage_table(events: Sequence[TriageEvent], now_ns: int) -> pa.Table:
    """Return decisions as columns, first committed now."""
    rows = sorted((*event[:2], event_id(event), int(event.state), *event[3:], now_ns) for event in events)
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(cells, field.type) for cells, field in zip(columns, TRIAGE, strict=True)], schema=TRIAGE)


def triage_row(row: dict[str, Any]) -> TriageEvent:
    """Return a decision."""
    return TriageEvent(
        row["tenant"], row["finding_id"], TriageState(row["state"]), row["when_ns"], row["who"], row["why"]
    )


def digest_of(table: pa.Table) -> bytes:
    """Return a digest of rows, from which a page has its name: the same rows have the same name at any time.

    Other versions of Arrow may lay the same columns out otherwise; a page under another name merges with this one.
    """
    hashed = blake3()
    for batch in (
        table.drop_columns([name for name in table.column_names if name in _WHEN]).combine_chunks().to_batches()
    ):
        hashed.update(batch.serialize())
    return hashed.digest(16)


def format_parquet(table: pa.Table) -> bytes:
    """Return a table as one Parquet file."""
    file = _File(table.schema)
    for group in _row_groups([table], ROW_GROUP_ROWS):
        file.write(group)
    return file.close()


def format_files(tables: Iterable[pa.Table], schema: pa.Schema, rows: int) -> Iterator[tuple[bytes, int]]:
    """Yield the rows of tables as Parquet files of about so many rows, each with its number of rows.

    The same rows make the same files, however they are cut into tables.
    """
    file = _File(schema)
    for group in _row_groups(tables, min(ROW_GROUP_ROWS, rows)):
        file.write(group)
        if file.rows >= rows:
            yield file.close(), file.rows
            file = _File(schema)
    if file.rows:
        yield file.close(), file.rows


def _row_groups(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the rows of tables in tables of `rows` rows each; the last one may have fewer."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += len(table)
        while count >= rows:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, rows)
            waiting = [whole.slice(rows)]
            count -= rows
    if count:
        yield pa.concat_tables(waiting)


class _File:
    """A Parquet file that is being written in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = pa.BufferOutputStream()
        repeated = [name for name in _REPEATED if name in schema.names]
        delta = {name: _DELTA for name in _SORTED if name in schema.names}
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", use_dictionary=repeated, column_encoding=delta
        )
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add a row group."""
        self._writer.write_table(table.combine_chunks(), row_group_size=max(1, len(table)))
        self.rows += len(table)

    def close(self) -> bytes:
        """Return the bytes of the file."""
        self._writer.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        return data


def parse_batches(data: bytes, schema: pa.Schema, where: str) -> Iterator[pa.Table]:
    """Yield the rows of a Parquet file some ten thousand at a time, with exactly the columns that it must have."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        for batch in file.iter_batches(_BATCH_ROWS, columns=schema.names, use_threads=False):
            yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _broken(where) from error


def parse_parquet(data: bytes, schema: pa.Schema, where: str) -> pa.Table:
    """Return the table of a Parquet file, with exactly the columns that it must have."""
    try:
        table = pq.read_table(pa.BufferReader(data), partitioning=None, use_threads=False)
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _broken(where) from error


def _broken(where: str) -> Damaged:
    problem = "it is no Parquet file of this table, or is no longer whole"
    return Damaged(where, problem, safe="nothing was changed; restore the object from a copy")
