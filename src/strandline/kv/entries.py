"""What a bucket holds and tells: entries, updates, versions, cursors, and many updates as columns.

Invariants: values here are immutable and compare by content. A `VersionToken` is at most ten bytes; the empty one means
that the version is not known, which is never the same as revision 0. Revisions are written as eight bytes, big-endian,
so tokens and cursors of one bucket sort as their revisions do. In a column of versions, 0 stands for unknown, because
no bucket gives revision 0 to a write.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.errors import FormatError, InvalidInput
from strandline.wire import binary_list, binary_spans

VersionToken = NewType("VersionToken", bytes)
"""The version of one key, for compare-and-swap: at most `VERSION_BYTES_MAX` bytes, opaque; empty if unknown."""

WatchCursor = NewType("WatchCursor", bytes)
"""Where a watch stands, to go on from there: opaque; empty before the first update."""

VERSION_BYTES_MAX = 10
REVISION_BYTES = 8
REVISION_MAX = 2**64 - 1
UNKNOWN_VERSION = VersionToken(b"")
NO_CURSOR = WatchCursor(b"")


def _packed(revision: int) -> bytes:
    if not 0 <= revision <= REVISION_MAX:
        raise InvalidInput(f"revision {revision} does not fit into 64 bits without sign")
    return revision.to_bytes(REVISION_BYTES, "big")


def _unpacked(token: bytes, what: str) -> int:
    if len(token) != REVISION_BYTES:
        raise FormatError(what, f"{len(token)} bytes are not a revision of {REVISION_BYTES}")
    return int.from_bytes(token, "big")


def format_revision(revision: int) -> VersionToken:
    """Return the token of a revision."""
    return VersionToken(_packed(revision))


def parse_revision(version: VersionToken) -> int | None:
    """Return the revision of a token, None for the unknown one; `FormatError` for a token of another kind of bucket."""
    return _unpacked(version, "a version token") if version else None


def format_cursor(revision: int) -> WatchCursor:
    """Return the cursor that stands after a revision; it sorts as the revision does."""
    return WatchCursor(_packed(revision))


def parse_cursor(cursor: WatchCursor) -> int | None:
    """Return the revision that a cursor stands after, None for no cursor; `FormatError` for one of another kind."""
    return _unpacked(cursor, "a watch cursor") if cursor else None


@dataclass(frozen=True, slots=True)
class KvEntry:
    """One key as it was read.

    `expires_ns` is when a value with a time to live of its own expires, 0 for never.
    """

    key: str
    value: bytes
    version: VersionToken
    created_ns: int = 0
    expires_ns: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """The key has this value from `version` on."""

    key: str
    value: bytes
    version: VersionToken


@dataclass(frozen=True, slots=True)
class Delete:
    """The key was deleted; its older values may still be in the bucket's history."""

    key: str
    version: VersionToken


@dataclass(frozen=True, slots=True)
class Purge:
    """The key was deleted together with its history."""

    key: str
    version: VersionToken


KvUpdate = Put | Delete | Purge
"""One change of a bucket, as a watcher tells it."""


class UpdateKind(IntEnum):
    """The kind of an update, as a column holds it."""

    PUT = 0
    DELETE = 1
    PURGE = 2


@dataclass(frozen=True, slots=True, eq=False)
class UpdateBatch:
    """Many updates as columns of one length, in the order they were told.

    `key_column` and `value_column` are Arrow columns of bytes without nulls; a key is any bytes, nearly always UTF-8.
    `versions` holds revisions, 0 for unknown; values are empty where the kind is not a put. `expires_ns` says when a
    value with a time to live of its own expires, by the bucket's clock, 0 for never; and of a purge that marks a value
    which expired, when that was. It is None if all are 0. Objects are made, for all rows at once, only when `keys`,
    `key_bytes`, `values` or updates are asked for.
    """

    key_column: pa.BinaryArray
    kinds: NDArray[np.uint8]
    versions: NDArray[np.uint64]
    value_column: pa.BinaryArray
    expires_ns: NDArray[np.uint64] | None = None

    def __post_init__(self) -> None:
        if self.expires_ns is not None and not self.expires_ns.any():
            object.__setattr__(self, "expires_ns", None)
        columns = (self.key_column, self.kinds, self.versions, self.value_column)
        lengths = {len(column) for column in columns} | (
            {len(self.expires_ns)} if self.expires_ns is not None else set()
        )
        if len(lengths) > 1:
            raise InvalidInput(f"columns of one batch have different lengths: {sorted(lengths)}")
        for column in (self.key_column, self.value_column):
            if not isinstance(column, pa.BinaryArray) or column.null_count:
                raise InvalidInput("keys and values are Arrow columns of bytes without nulls", hint="use from_columns")

    def __len__(self) -> int:
        return len(self.key_column)

    def __iter__(self) -> Iterator[KvUpdate]:
        return iter(self.to_updates())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UpdateBatch) and self.to_updates() == other.to_updates()

    __hash__ = None  # type: ignore[assignment]

    @property
    def keys(self) -> list[str]:
        """Return the keys as text; bytes that are not UTF-8 are escaped."""
        return [key.decode(errors="surrogateescape") for key in self.key_bytes]

    @property
    def key_bytes(self) -> list[bytes]:
        """Return the keys as bytes."""
        return binary_list(self.key_column)

    @property
    def values(self) -> list[bytes]:
        """Return the values as bytes."""
        return binary_list(self.value_column)

    @property
    def high(self) -> int:
        """Return the highest known revision, 0 if there is none."""
        return int(self.versions.max()) if len(self.versions) else 0

    @property
    def byte_count(self) -> int:
        """Return how many bytes keys and values are together."""
        edges = (binary_spans(column)[1] for column in (self.key_column, self.value_column))
        return sum(int(edge[-1] - edge[0]) for edge in edges)

    @staticmethod
    def from_columns(
        keys: Sequence[str],
        kinds: NDArray[np.uint8],
        versions: NDArray[np.uint64],
        values: Sequence[bytes | memoryview],
        expires_ns: NDArray[np.uint64] | None = None,
    ) -> "UpdateBatch":
        """Return columns of Python objects as a batch; values are copied."""
        encoded = [key.encode(errors="surrogateescape") for key in keys]
        return UpdateBatch(pa.array(encoded, pa.binary()), kinds, versions, pa.array(values, pa.binary()), expires_ns)

    @staticmethod
    def from_updates(updates: Iterable[KvUpdate]) -> "UpdateBatch":
        """Return updates as columns; `FormatError` if a version is not a revision."""
        rows = list(updates)
        return UpdateBatch.from_columns(
            [row.key for row in rows],
            np.fromiter((kind_of(row) for row in rows), np.uint8, len(rows)),
            np.fromiter((parse_revision(row.version) or 0 for row in rows), np.uint64, len(rows)),
            [row.value if isinstance(row, Put) else b"" for row in rows],
        )

    @staticmethod
    def concat(batches: Sequence["UpdateBatch"]) -> "UpdateBatch":
        """Return the rows of all batches, one after the other."""
        if len(batches) == 1:
            return batches[0]
        if not batches:
            return UpdateBatch.from_updates(())
        return UpdateBatch(
            pa.concat_arrays([batch.key_column for batch in batches]),
            np.concatenate([batch.kinds for batch in batches]),
            np.concatenate([batch.versions for batch in batches]),
            pa.concat_arrays([batch.value_column for batch in batches]),
            np.concatenate(list(map(_deadlines, batches))),
        )

    def to_updates(self) -> list[KvUpdate]:
        """Return the columns as one object per update."""
        versions = [format_revision(revision) if revision else UNKNOWN_VERSION for revision in self.versions.tolist()]
        rows = zip(self.keys, self.kinds.tolist(), versions, self.values, strict=True)
        return [make_update(kind, key, version, value) for key, kind, version, value in rows]

    def slice(self, start: int, stop: int) -> "UpdateBatch":
        """Return the rows from `start` to before `stop`; it shares the columns' memory."""
        rows = range(len(self))[start:stop]
        start, count = rows.start, len(rows)
        stop = start + count
        keys, values = (column.slice(start, count) for column in (self.key_column, self.value_column))
        expires_ns = None if self.expires_ns is None else self.expires_ns[start:stop]
        return UpdateBatch(keys, self.kinds[start:stop], self.versions[start:stop], values, expires_ns)

    def select(self, chosen: NDArray[np.bool_]) -> "UpdateBatch":
        """Return the rows that are chosen."""
        mask = pa.array(chosen)
        keys, values = (column.filter(mask) for column in (self.key_column, self.value_column))
        expires_ns = None if self.expires_ns is None else self.expires_ns[chosen]
        return UpdateBatch(keys, self.kinds[chosen], self.versions[chosen], values, expires_ns)

    @property
    def is_expiry(self) -> NDArray[np.bool_]:
        """Tell which rows are markers of values that expired, rather than deletes."""
        found: NDArray[np.bool_] = (self.kinds != UpdateKind.PUT) & (_deadlines(self) > 0)
        return found

    def to_arrow(self) -> pa.RecordBatch:
        """Return the columns as an Arrow batch of `UPDATE_SCHEMA`, which has no deadlines."""
        kinds, versions = pa.array(self.kinds, pa.uint8()), pa.array(self.versions, pa.uint64())
        return pa.RecordBatch.from_arrays([self.key_column, kinds, versions, self.value_column], schema=UPDATE_SCHEMA)

    @staticmethod
    def from_arrow(batch: pa.RecordBatch) -> "UpdateBatch":
        """Return a batch of `UPDATE_SCHEMA` as columns; `FormatError` for another schema."""
        if not batch.schema.equals(UPDATE_SCHEMA):
            raise FormatError("an update batch", f"the columns are {batch.schema.names}")
        keys, kinds, versions, values = batch.columns
        kinds, versions = kinds.to_numpy(zero_copy_only=False), versions.to_numpy(zero_copy_only=False)
        return UpdateBatch(keys, kinds, versions, values)


def _deadlines(batch: UpdateBatch) -> NDArray[np.uint64]:
    return np.zeros(len(batch), np.uint64) if batch.expires_ns is None else batch.expires_ns


UPDATE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("version", pa.uint64(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
"""The columns of an `UpdateBatch` in Arrow."""


def kind_of(update: KvUpdate) -> UpdateKind:
    """Return the kind of an update as a column holds it."""
    match update:
        case Put():
            return UpdateKind.PUT
        case Delete():
            return UpdateKind.DELETE
        case Purge():
            return UpdateKind.PURGE


def make_update(kind: int, key: str, version: VersionToken, value: bytes | memoryview = b"") -> KvUpdate:
    """Return the update of a kind; the value is copied out of its buffer."""
    match kind:
        case UpdateKind.PUT:
            return Put(key, bytes(value), version)
        case UpdateKind.DELETE:
            return Delete(key, version)
        case UpdateKind.PURGE:
            return Purge(key, version)
        case _:
            raise InvalidInput(f"there is no update of kind {kind}")
