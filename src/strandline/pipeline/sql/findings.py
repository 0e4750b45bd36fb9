"""Findings in the tables `findings`, `occurrences` and `observations`: one transaction, one statement for each layer.

Invariants: a batch is written whole or not at all; findings and occurrences that are there already are left as they
are, and compared; parents are looked for before the rows are sent, so that no error of a database quotes an id; the
foreign keys hold whatever else writes to the tables.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from strandline.pipeline.errors import ContentConflict, KeyMismatch, MissingParent
from strandline.pipeline.findings import FindingRecord, FindingsBatch, ObservationRecord, OccurrenceRecord
from strandline.pipeline.receipts import FindingsReceipt
from strandline.pipeline.sql import arrays
from strandline.pipeline.sql.database import AnyConnection, Database
from strandline.pipeline.sql.fences import check_fence, check_key
from strandline.pipeline.sql.policies import SqlPolicies
from strandline.pipeline.sql.sqlite_rows import insert_or_merge, send
from strandline.pipeline.sql.statements import statements
from strandline.pipeline.sql.triage import SqlTriage

Rows: TypeAlias = Sequence[tuple[Any, ...]]
Shared: TypeAlias = Mapping[str, Any]
"""The columns that all rows of a batch share, by name."""

_id = itemgetter(1)


class SqlFindings(SqlTriage, SqlPolicies, ABC):
    """The code that both dialects share: all but the sending of rows."""

    def __init__(self, database: Database, key_check: bytes | None = None, *, is_fenced: bool = True) -> None:
        """`key_check` is of the key that findings are derived with; they are refused when the tenant's is another.

        Only a copy of rows that were accepted elsewhere is not fenced.
        """
        super().__init__(database)
        self._is_fenced = is_fenced
        self._key_check = key_check
        self._sql = statements(database.dialect, "findings")

    def upsert_batch(self, batch: FindingsBatch) -> FindingsReceipt:
        """Write a page's findings, all or none, and return once they are durable; what is there already is merged."""
        folded = batch.folded()
        # Sorted, so that two writers of the same rows wait for one another instead of deadlocking.
        findings, occurrences, observations = (
            sorted(layer, key=_id) for layer in (folded.findings, folded.occurrences, folded.observations)
        )
        context = batch.scope.context

        def write(connection: AnyConnection) -> None:
            if self._key_check is not None and (findings or occurrences or observations):
                check_key(connection, self._database.dialect, context.tenant, self._key_check)
            if self._is_fenced:
                check_fence(connection, self._database.dialect, context)
            shared = context._asdict() | {"now_ns": self._database.clock.now_ns()}
            self._insert(connection, "findings", findings, shared)
            self._check_parents(connection, "occurrences", "findings", occurrences, findings)
            self._insert(connection, "occurrences", occurrences, shared)
            self._check_parents(connection, "observations", "occurrences", observations, occurrences)
            if observations and self._send(connection, "observations", observations, shared) != len(observations):
                raise KeyMismatch("observations", "identity")

        self._database.write(write)
        return FindingsReceipt(batch.scope, len(findings), len(occurrences), len(observations))

    def _insert(self, connection: AnyConnection, layer: str, rows: Rows, shared: Shared) -> None:
        """Insert rows that never change; what is stored already must be the same."""
        if not rows or self._send(connection, layer, rows, shared) == len(rows):
            return
        if self._matching(connection, layer, rows, shared) != len(rows):
            raise ContentConflict(layer)

    def _check_parents(self, connection: AnyConnection, layer: str, parent: str, rows: Rows, parents: Rows) -> None:
        """Refuse rows whose parents are neither in the batch nor stored; a row's third column names its parent."""
        missing = {row[2] for row in rows} - {row[1] for row in parents}
        if missing and self._count(connection, parent, rows[0][0], missing) != len(missing):
            raise MissingParent(layer, parent)

    @abstractmethod
    def _send(self, connection: AnyConnection, layer: str, rows: Rows, shared: Shared) -> int:
        """Write distinct rows and return how many of them were inserted or merged."""

    @abstractmethod
    def _matching(self, connection: AnyConnection, layer: str, rows: Rows, shared: Shared) -> int:
        """Return how many of the rows are stored as they are."""


class SqliteFindings(SqlFindings):
    """Findings in SQLite."""

    def _send(self, connection: AnyConnection, layer: str, rows: Rows, shared: Shared) -> int:
        write, rest = self._sql[f"write_{layer}"], (shared["now_ns"],)
        if layer == "observations":
            return insert_or_merge(connection, self._sql["insert_observations"], write, rows, rest)
        return send(connection, write, rows, rest)

    def _matching(self, connection: AnyConnection, layer: str, rows: Rows, shared: Shared) -> int:  # noqa: ARG002
        return sum(1 for _ in connection.executemany(self._sql[f"matching_{layer}"], rows))


class PostgresFindings(SqlFindings):
    """Findings in PostgreSQL."""

    def _send(self, connection: AnyConnection, layer: str, rows: Rows, shared: Shared) -> int:
        return int(connection.execute(self._sql[f"write_{layer}"], _arguments(layer, rows, shared)).rowcount)

    def _matching(self, connection: AnyConnection, layer: str, rows: Rows, shared: Shared) -> int:
        row = connection.execute(self._sql[f"matching_{layer}"], _arguments(layer, rows, shared)).fetchone()
        return int(row[0])


_ENCODERS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "findings": (
        FindingRecord._fields,
        dict.fromkeys(("finding_id", "item", "rule", "secret"), arrays.digests),
    ),
    "occurrences": (
        OccurrenceRecord._fields,
        dict.fromkeys(("occurrence_id", "finding_id", "version"), arrays.digests)
        | dict.fromkeys(("byte_offset", "byte_length"), arrays.int8s),
    ),
    "observations": (
        ObservationRecord._fields,
        dict.fromkeys(("observation_id", "occurrence_id", "ovid"), arrays.digests)
        | {
            "seen_at": arrays.int8s,
            "location_seen_at": arrays.optional_int8s,
            "location_display": arrays.optional_texts,
            "location_url": arrays.optional_texts,
        },
    ),
}


def _arguments(layer: str, rows: Rows, shared: Shared) -> dict[str, Any]:
    """Return what every row shares as it is, and the other columns as arrays."""
    fields, encoders = _ENCODERS[layer]
    columns = dict(zip(fields, zip(*rows, strict=True), strict=True))
    return {**shared, **{name: encode(columns[name]) for name, encode in encoders.items()}}
