r"""New rows of the ledger as PostgreSQL's binary COPY, built by columns rather than row by row.

    signature, flags, extension        "PGCOPY\n\xff\r\n\0", two i32 of 0
    each row                           number of columns as i16; each column: its length as i32 (-1 is null), its bytes
    trailer                            i16 of -1

Rows of one status and error code have the same lengths everywhere, so such a group is one template, repeated, into
which the columns that differ are laid; the rows keep their order. The columns stand in the order of the table.
"""

import struct
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from strandline.pipeline.scope import WriteContext

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = struct.pack(">i", -1)
_VARYING = {
    "ovid": "V32",
    "weak": ">i1",
    "bytes_seen": ">i8",
    "findings_count": ">i4",
    "members_skipped": ">i8",
    "decodes_skipped": ">i8",
    "findings_dropped": ">i8",
    "started_at": ">i8",
    "finished_at": ">i8",
}


def copy_data(rows: Sequence[LedgerRecord], context: WriteContext, now_ns: int) -> bytes:
    """Return rows of one writer as the bytes of a COPY."""
    groups: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        groups[row.status, row.error_code].append(place)
    if len(groups) == 1:
        return b"".join([_HEADER, _group(rows, context, now_ns), _TRAILER])
    parts = [b""] * len(rows)  # each at its row's place: writers of the same rows lock them in the same order
    for places in groups.values():
        data = _group([rows[place] for place in places], context, now_ns)
        size = len(data) // len(places)
        for number, place in enumerate(places):
            parts[place] = data[number * size : (number + 1) * size]
    return b"".join([_HEADER, *parts, _TRAILER])


def _group(rows: Sequence[LedgerRecord], context: WriteContext, now_ns: int) -> bytes:
    """Return rows that share status and error code."""
    template, places = _template(rows[0], context, now_ns)
    table = np.tile(np.frombuffer(template, np.uint8), (len(rows), 1))
    columns = dict(zip(LedgerRecord._fields, zip(*rows, strict=True), strict=True))
    for name, at in places.items():
        data = _bytes_of(columns[name], _VARYING[name])
        table[:, at : at + data.shape[1]] = data
    return table.tobytes()


def _template(row: LedgerRecord, context: WriteContext, now_ns: int) -> tuple[bytes, dict[str, int]]:
    """Return a row as bytes, and where in it the columns begin that differ from row to row."""
    shared = {"status": struct.pack(">h", row.status), "tenant": bytes(context.tenant), "policy": bytes(context.policy)}
    shared |= {name: struct.pack(">q", getattr(context, name)) for name in ("run_id", "shard_id", "fence")}
    shared |= {} if row.error_code is None else {"error_code": row.error_code.encode()}
    firsts = {status: struct.pack(">q", now_ns) if status == row.status else None for status in DoneStatus}
    parts, places, size = [struct.pack(">h", len(row) + len(firsts))], {}, 2
    for name in LedgerRecord._fields:
        value = bytes(np.dtype(_VARYING[name]).itemsize) if name in _VARYING else shared.get(name)
        if name in _VARYING:
            places[name] = size + len(_NULL)
        parts.append(_field(value))
        size += len(parts[-1])
    return b"".join([*parts, *map(_field, firsts.values())]), places


def _field(value: bytes | None) -> bytes:
    return _NULL if value is None else struct.pack(">i", len(value)) + value


def _bytes_of(column: Sequence[Any], kind: str) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Return a column as a matrix of bytes, one row for each value."""
    data = b"".join(column) if kind.startswith("V") else np.array(column, kind).tobytes()
    return np.frombuffer(data, np.uint8).reshape(len(column), -1)
