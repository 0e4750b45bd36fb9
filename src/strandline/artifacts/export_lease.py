"""One exporter for each fleet and round: a record with its expiry inside, in a bucket or in object storage.

    {"holder": "node-a", "acquired_unix": 1790000000, "expires_unix": 1790000300, "released": false,
     "completed_revision": null, "completed_unix": null, "nonce": "4f0c…"}

Invariants: the lease saves work and decides nothing else: two exporters at once only do the same twice, for the pointer
moves under its own rule. So it goes by wall clocks, and a record that cannot be read, or is of the future, is taken
over. Every change is a conditional write upon the record that was read; giving a round back writes `released`, for
object storage has no conditional delete.
"""

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol

from strandline.clock import NS_PER_S, Clock, SystemClock
from strandline.errors import Conflict, InvalidInput
from strandline.kv import KvStore, NotSupported, VersionToken
from strandline.objects import ObjectStore
from strandline.protocol import artifacts as rules

LEASE_KEY = "export-lease.json"
HOLDER_MAX = 1024


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """Who exports, until when, and the last revision that was exported under this record."""

    holder: str
    acquired_unix: int
    expires_unix: int
    released: bool = False
    completed_revision: int | None = None
    completed_unix: int | None = None
    nonce: str = ""


class Stored(NamedTuple):
    """The bytes of a record, and the version that a write is conditional on."""

    data: bytes
    version: str


class RecordCell(Protocol):
    """Where the record is: read with its version, and replaced if it still has that version."""

    @property
    def address(self) -> str:
        """Return where it is, for messages."""
        ...

    async def read(self) -> Stored | None:
        """Return the record, None where there is none."""
        ...

    async def write(self, data: bytes, expected: str | None) -> str:
        """Replace the record of this version, None where there is none; `Conflict` if it is another."""
        ...


class ObjectCell:
    """The record as an object, beside the artifacts that it is about; its ETag is the version."""

    def __init__(self, objects: ObjectStore, key: str = LEASE_KEY) -> None:
        self._objects = objects
        self._key = key
        self.address = f"{objects.address}/{key}"

    async def read(self) -> Stored | None:
        """Return the record, None where there is none."""
        found = await asyncio.to_thread(self._objects.get, self._key)
        return None if found is None else Stored(found.body, found.info.etag)

    async def write(self, data: bytes, expected: str | None) -> str:
        """Replace the record of this version."""
        return await asyncio.to_thread(
            lambda: self._objects.put(self._key, data, if_absent=expected is None, if_match=expected)
        )


class BucketCell:
    """The record as a key of a bucket; the key's version is the version."""

    def __init__(self, bucket: KvStore, key: str) -> None:
        writer = bucket.writer()
        if writer is None:
            raise NotSupported(f"writing to bucket {bucket.name!r}")
        self._reader, self._writer = bucket.reader(), writer
        self._key = key
        self.address = f"{bucket.name}/{key}"

    async def read(self) -> Stored | None:
        """Return the record, None where there is none."""
        found = await self._reader.get(self._key)
        return None if found is None else Stored(found.value, found.version.hex())

    async def write(self, data: bytes, expected: str | None) -> str:
        """Replace the record of this version."""
        if expected is None:
            return (await self._writer.create(self._key, data)).hex()
        return (await self._writer.update(self._key, data, VersionToken(bytes.fromhex(expected)))).hex()


class ExportLease:
    """The lease of a fleet's exports; a round lasts `ttl_s`, completed or not."""

    def __init__(self, cell: RecordCell, holder: str, *, ttl_s: float, clock: Clock | None = None) -> None:
        if not holder or len(holder) > HOLDER_MAX or ttl_s <= 0:
            raise InvalidInput(f"a lease has a holder of 1 to {HOLDER_MAX} characters and lasts longer than 0 s")
        self._cell = cell
        self._holder = holder
        self._clock = clock or SystemClock()
        self.ttl_s = ttl_s

    @property
    def grace_s(self) -> float:
        """Return how long payloads are kept that nothing points to."""
        return rules.GRACE_TTLS * self.ttl_s

    async def current(self) -> ExportRecord | None:
        """Return the record, None if there is none that can be read."""
        found = await self._cell.read()
        return None if found is None else parse_export_record(found.data)

    async def try_acquire(self) -> "ExportRound | None":
        """Take the round, None if another has it; a record that expired or cannot be read is taken over."""
        found = await self._cell.read()
        before = None if found is None else parse_export_record(found.data)
        now_s = self._now_s()
        if before is not None and not self._is_free(before, now_s):
            return None
        record = ExportRecord(
            self._holder,
            int(now_s),
            int(now_s + self.ttl_s),
            completed_revision=before.completed_revision if before else None,
            completed_unix=before.completed_unix if before else None,
            nonce=uuid.uuid4().hex,
        )
        try:
            version = await self._cell.write(format_export_record(record), found.version if found else None)
        except Conflict:
            return None
        return ExportRound(self._cell, record, version, self._now_s)

    def _is_free(self, record: ExportRecord, now_s: float) -> bool:
        """Tell whether the round is over; one that begins far in the future is of a clock that was wrong."""
        if record.acquired_unix > now_s + self.ttl_s:
            return True
        return rules.lease_is_free(now_s, record.expires_unix, released=record.released)

    def _now_s(self) -> float:
        return self._clock.now_ns() / NS_PER_S


class ExportRound:
    """A round that was taken; complete it or abandon it. One that is forgotten ends with its expiry."""

    def __init__(self, cell: RecordCell, record: ExportRecord, version: str, now_s: Callable[[], float]) -> None:
        self._cell = cell
        self._version = version
        self._now_s = now_s
        self.record = record

    async def complete(self, revision: int) -> bool:
        """Leave on the record what was exported, for the fleet to see; False if another has taken over."""
        return await self._write(replace(self.record, completed_revision=revision, completed_unix=int(self._now_s())))

    async def abandon(self) -> bool:
        """Give the round back, so that another may take it at once; False if another has taken over."""
        return await self._write(replace(self.record, released=True))

    async def _write(self, record: ExportRecord) -> bool:
        record = replace(record, nonce=uuid.uuid4().hex)
        try:
            self._version = await self._cell.write(format_export_record(record), self._version)
        except Conflict:
            return False
        self.record = record
        return True


def format_export_record(record: ExportRecord) -> bytes:
    """Return a record's bytes."""
    return json.dumps(asdict(record), ensure_ascii=False).encode()


def parse_export_record(data: bytes) -> ExportRecord | None:
    """Return the record of some bytes, None for bytes that are none: those may be taken over."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != _KINDS.keys():
        return None
    if not all(type(found[name]) in kinds for name, kinds in _KINDS.items()):
        return None
    return ExportRecord(**found)


_KINDS: dict[str, tuple[type, ...]] = {
    "holder": (str,),
    "acquired_unix": (int,),
    "expires_unix": (int,),
    "released": (bool,),
    "completed_revision": (int, type(None)),
    "completed_unix": (int, type(None)),
    "nonce": (str,),
}
