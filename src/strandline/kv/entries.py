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
    """One key as it was read; an empty value may be the tombstone of `delete_with_version`."""

    key: str
    value: bytes
    version: VersionToken
    created_ns: int = 0


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

    `versions` holds revisions, 0 for unknown; `values` is empty where the kind is not a put. A value may be a view over
    the buffer it arrived in, which keeps the whole buffer alive: take `bytes(value)` to hold on to one of them.
    """

    keys: Sequence[str]
    kinds: NDArray[np.uint8]
    versions: NDArray[np.uint64]
    values: Sequence[bytes | memoryview]

    def __post_init__(self) -> None:
        lengths = {len(self.keys), len(self.kinds), len(self.versions), len(self.values)}
        if len(lengths) > 1:
            raise InvalidInput(f"columns of one batch have different lengths: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[KvUpdate]:
        return iter(self.to_updates())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UpdateBatch) and self.to_updates() == other.to_updates()

    __hash__ = None  # type: ignore[assignment]

    @property
    def high(self) -> int:
        """Return the highest known revision, 0 if there is none."""
        return int(self.versions.max()) if len(self.versions) else 0

    @staticmethod
    def from_updates(updates: Iterable[KvUpdate]) -> "UpdateBatch":
        """Return updates as columns; `FormatError` if a version is not a revision."""
        rows = list(updates)
        return UpdateBatch(
            [row.key for row in rows],
            np.fromiter((kind_of(row) for row in rows), np.uint8, len(rows)),
            np.fromiter((parse_revision(row.version) or 0 for row in rows), np.uint64, len(rows)),
            [row.value if isinstance(row, Put) else b"" for row in rows],
        )

    def to_updates(self) -> list[KvUpdate]:
        """Return the columns as one object per update."""
        versions = [format_revision(revision) if revision else UNKNOWN_VERSION for revision in self.versions.tolist()]
        rows = zip(self.keys, self.kinds.tolist(), versions, self.values, strict=True)
        return [make_update(kind, key, version, value) for key, kind, version, value in rows]

    def slice(self, start: int, stop: int) -> "UpdateBatch":
        """Return the rows from `start` to before `stop`."""
        columns = self.keys[start:stop], self.kinds[start:stop], self.versions[start:stop], self.values[start:stop]
        return UpdateBatch(*columns)

    def to_arrow(self) -> pa.RecordBatch:
        """Return the columns as an Arrow batch of `UPDATE_SCHEMA`."""
        columns = [
            pa.array(self.keys, pa.string()),
            pa.array(self.kinds, pa.uint8()),
            pa.array(self.versions, pa.uint64()),
            pa.array(self.values, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=UPDATE_SCHEMA)

    @staticmethod
    def from_arrow(batch: pa.RecordBatch) -> "UpdateBatch":
        """Return a batch of `UPDATE_SCHEMA` as columns; `FormatError` for another schema."""
        if not batch.schema.equals(UPDATE_SCHEMA):
            raise FormatError("an update batch", f"the columns are {batch.schema.names}")
        keys, kinds, versions, values = batch.columns
        kinds, versions = kinds.to_numpy(zero_copy_only=False), versions.to_numpy(zero_copy_only=False)
        return UpdateBatch(keys.to_pylist(), kinds, versions, values.to_pylist())


UPDATE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
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
