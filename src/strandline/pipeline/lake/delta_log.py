"""Delta tables of folded pages: the log of a table, read and written through the store of the lake.

    tables/<table>/_delta_log/<version, 20 digits>.json     a commit: one JSON action a line, created if absent
    tables/<table>/<name>.parquet                           a data file, named by a digest of its bytes

This is the Delta protocol (reader 1, writer 2) in the part that a table without partitions, deletion vectors and
checkpoints needs: `protocol`, `metaData`, `add`, `remove`, `txn` and `commitInfo`. Any Delta reader takes it.

Invariants: a commit is one conditional put, so versions are in one order for all; data files are durable before the
commit that adds them. Every commit is ours, by its `txn`: a table that another tool has written is `TableAltered`, and
nothing is changed.
"""

import json
import secrets
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from strandline.errors import Damaged
from strandline.objects import ObjectConflict, ObjectStore, WriteUnknown
from strandline.pipeline.lake.columns import TABLES
from strandline.version import __version__

APP = "strandline"
_TYPES = {
    pa.binary(): "binary",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int32(): "integer",
    pa.int64(): "long",
}
NS_PER_MS = 1_000_000
_LOOKS_MAX = 3
"""A first commit that is listed and was not there may have been made between; it is there the next time."""


class TableAltered(Damaged):
    """A table of folded pages was written by another tool."""

    def __init__(self, where: str, version: int, engine: str) -> None:
        super().__init__(
            where,
            f"version {version} was written by {engine}, and only Strandline may write here",
            safe="read the table with other tools, and write to a copy; delete the commits from that version on",
        )
        self.version = version
        self.engine = engine


@dataclass(frozen=True)
class DataFile:
    """A data file of a table."""

    path: str
    size: int
    rows: int


@dataclass
class TableVersion:
    """The files of a table at a version; -1 is before the first commit."""

    version: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    removed: dict[str, datetime] = field(default_factory=dict)
    """When each file that it no longer has was removed, by the time of the store."""


def format_commit_key(table: str, version: int) -> str:
    """Return the key of a commit."""
    return f"{format_log_prefix(table)}{version:020}.json"


def parse_commit_key(key: str) -> int | None:
    """Return the version of a commit, or None where the key is that of something else."""
    name = key.rsplit("/", 1)[1].removesuffix(".json")
    return int(name) if key.endswith(".json") and name.isdigit() else None


def format_log_prefix(table: str) -> str:
    """Return the prefix of a table's log."""
    return f"tables/{table}/_delta_log/"


def format_data_key(table: str, path: str) -> str:
    """Return the key of a data file."""
    return f"tables/{table}/{path}"


class DeltaLog:
    """The log of one table."""

    def __init__(self, store: ObjectStore, table: str) -> None:
        self._store = store
        self._table = table
        self._last = TableVersion()
        self._is_checked = False

    def latest(self) -> TableVersion:
        """Return the current version of the table."""
        for _ in range(_LOOKS_MAX):
            current = self._read_on()
            if current.version >= 0 or self._is_checked or not self._has_begun():
                self._is_checked = True
                self._last = current
                return TableVersion(current.version, dict(current.files), dict(current.removed))
        raise Damaged(
            f"{self._store.address}/{format_commit_key(self._table, 0)}",
            "the store lists it, and says that it is not there when it is read",
            safe="see whether a cache or proxy answers for the store; otherwise restore the object from a copy",
        )

    def commit(self, before: TableVersion, add: Iterable[DataFile], remove: Iterable[str], now_ns: int) -> int | None:
        """Write the next version; return its number, or None if another compactor has written it."""
        version, named = before.version + 1, secrets.token_hex(16)
        actions = [*self._head(version, named, now_ns)]
        actions += [_remove(before.files[path], now_ns) for path in remove]
        actions += [_add(file, now_ns) for file in add]
        key = format_commit_key(self._table, version)
        body = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()
        try:
            self._store.put(key, body, if_absent=True)
        except ObjectConflict:
            return None
        except WriteUnknown:
            found = self._store.get(key)
            if found is None:
                raise
            return version if named.encode() in found.body else None
        return version

    def _read_on(self) -> TableVersion:
        """Return what the commits after the last known one make of the table."""
        current = TableVersion(self._last.version, dict(self._last.files), dict(self._last.removed))
        while (found := self._store.get(format_commit_key(self._table, current.version + 1))) is not None:
            self._apply(current, found.body, found.info.modified)
        return current

    def _head(self, version: int, named: str, now_ns: int) -> list[dict[str, Any]]:
        now_ms = now_ns // NS_PER_MS
        info = {"timestamp": now_ms, "operation": "WRITE", "engineInfo": f"{APP} {__version__}", "commitId": named}
        head: list[dict[str, Any]] = [{"commitInfo": info}]
        if version == 0:
            head.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
            head.append({"metaData": _metadata(self._table, now_ms)})
        head.append({"txn": {"appId": APP, "version": version, "lastUpdated": now_ms}})
        return head

    def _apply(self, table: TableVersion, body: bytes, modified: datetime) -> None:
        version = table.version + 1
        where = f"{self._store.address}/tables/{self._table}"
        try:
            actions = [json.loads(line) for line in body.splitlines() if line.strip()]
            merged: dict[str, Any] = {key: value for action in actions for key, value in action.items()}
            engine = str(merged.get("commitInfo", {}).get("engineInfo", "another tool"))
            is_ours = merged.get("txn", {}).get("appId") == APP and merged["txn"]["version"] == version
            if not is_ours:
                raise TableAltered(where, version, engine)
            for action in actions:
                if "remove" in action:
                    table.files.pop(action["remove"]["path"], None)
                    table.removed[action["remove"]["path"]] = modified
                elif "add" in action:
                    added = action["add"]
                    rows = json.loads(added["stats"])["numRecords"]
                    table.files[added["path"]] = DataFile(added["path"], added["size"], rows)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(where, f"commit {version} cannot be read", safe="restore it from a copy") from error
        table.version = version

    def _has_begun(self) -> bool:
        """Tell a table whose first commits were removed from one that does not exist, or was made just now."""
        listed = [info.key for info in self._store.list(format_log_prefix(self._table))]
        if listed and format_commit_key(self._table, 0) not in listed:
            where = f"{self._store.address}/tables/{self._table}"
            raise TableAltered(where, 0, f"a tool that removed it, and left {listed[0]}")
        return bool(listed)


def _metadata(table: str, now_ms: int) -> dict[str, Any]:
    fields = [
        {"name": column.name, "type": _TYPES[column.type], "nullable": True, "metadata": {}} for column in TABLES[table]
    ]
    return {
        "id": str(uuid.uuid4()),
        "name": table,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": now_ms,
    }


def _add(file: DataFile, now_ns: int) -> dict[str, Mapping[str, Any]]:
    known = {"path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": now_ns // NS_PER_MS}
    return {"add": {**known, "dataChange": True, "stats": json.dumps({"numRecords": file.rows})}}


def _remove(file: DataFile, now_ns: int) -> dict[str, Mapping[str, Any]]:
    known = {"path": file.path, "deletionTimestamp": now_ns // NS_PER_MS, "dataChange": True}
    return {"remove": {**known, "extendedFileMetadata": True, "partitionValues": {}, "size": file.size}}
