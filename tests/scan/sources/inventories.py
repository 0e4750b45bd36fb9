"""Inventories as S3 delivers them, written by tests."""

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq

from strandline.objects import ObjectStore

COLUMNS = ["Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate", "ETag"]
"""As AWS names them in the `fileSchema` of CSV; Parquet and ORC have them as `last_modified_date`."""
_SNAKES = ["bucket", "key", "version_id", "is_latest", "is_delete_marker", "size", "last_modified_date", "e_tag"]


def as_csv(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for row in rows:
        writer.writerow(
            [row[0], quote_plus(row[1], safe="/"), row[2], *(str(cell).lower() for cell in row[3:5]), *row[5:]]
        )
    return gzip.compress(text.getvalue().encode())


def as_table(rows: list[list[Any]]) -> pa.Table:
    return pa.table({name: list(column) for name, column in zip(_SNAKES, zip(*rows, strict=True), strict=True)})


def as_parquet(rows: list[list[Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(as_table(rows), sink, row_group_size=2)
    return sink.getvalue()


def as_orc(rows: list[list[Any]]) -> bytes:
    sink = io.BytesIO()
    po.write_table(as_table(rows), sink)
    return sink.getvalue()


WRITERS = {"CSV": as_csv, "Parquet": as_parquet, "ORC": as_orc}


def deliver(store: ObjectStore, form: str, rows: list[list[Any]], write: Callable[[list[list[Any]]], bytes]) -> str:
    """Put an inventory as S3 delivers it, and return the key of its manifest."""
    files = []
    for number, part in enumerate((rows[:3], rows[3:])):
        data = write(part)
        key = f"inventory/data/source/all/data/{number}.{form.lower()}"
        store.put(key, data)
        files.append(
            {"key": key, "size": len(data), "MD5checksum": hashlib.md5(data, usedforsecurity=False).hexdigest()}
        )
    manifest = {
        "sourceBucket": "source",
        "destinationBucket": "arn:aws:s3:::reports",
        "version": "2016-11-30",
        "creationTimestamp": "1514944800000",
        "fileFormat": form,
        "fileSchema": ", ".join(COLUMNS)
        if form == "CSV"
        else "message s3.inventory { required binary bucket (UTF8); }",
        "files": files,
    }
    store.put("inventory/2026-11-18T01-00Z/manifest.json", json.dumps(manifest).encode())
    return "inventory/2026-11-18T01-00Z/manifest.json"


ROWS: list[list[Any]] = [
    ["source", "logs/a b+c.txt", "v1", True, False, 9, "2026-11-17T10:00:00.000Z", "e1"],
    ["source", "logs/a b+c.txt", "v0", False, False, 5, "2026-11-16T10:00:00.000Z", "e0"],
    ["source", "logs/é.txt", "v1", True, False, 11, "2026-11-17T10:00:00.000Z", "e2-3"],
    ["source", "logs/gone.txt", "v2", True, True, 0, "2026-11-17T10:00:00.000Z", ""],
    ["source", "other/x", "v1", True, False, 7, "2026-11-17T10:00:00.000Z", "e3"],
]
