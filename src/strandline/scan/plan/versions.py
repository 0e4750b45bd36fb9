"""Versions of items: from the listing, from the stat cache, or late, from reading.

    late/<item, 32 bytes>     u8 kind, 16 bytes of BLAKE3 over what was listed, then the version

A *late* version is known only from reading, and the stat cache may not vouch for it: the file was too fresh, could not
be read, or changed after its listing. It names the committed version of an item whose listing is unchanged (the same
stat data, or the same version if it has none), so that results can be gathered; it never spares the next read.

Invariants: a strong version comes from the source or the stat cache alone; an item with a problem has a weak version.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from blake3 import blake3

from strandline.lazy_imports import deferred
from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import (
    OvidHash,
    StableItemId,
    TenantId,
    VersionKind,
    object_version_ids,
    ovid_hashes,
    stable_item_ids,
)
from strandline.pipeline.state import Put, ScannerState
from strandline.scan.sources.source import LISTING, Source

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from strandline.scan.sources.stat_cache import StatCache
else:  # reports need the schemas alone, and it takes a tenth of their time
    pc = deferred("pyarrow.compute")

DIGEST = pa.binary(32)
LISTED = pa.schema(
    [
        pa.field("source", pa.int16(), nullable=False),
        *LISTING,
        ("item", DIGEST),
        ("ovid", DIGEST),
        pa.field("weak", pa.bool_(), nullable=False),
        pa.field("is_sure", pa.bool_(), nullable=False),
    ]
)
"""A listing with identities: `ovid` is null if only reading gives the version; `is_sure` is true otherwise.
`item` is null where the last scan settles an item, so that nothing is derived for it."""
_LISTED_BYTES = 16


class Late(NamedTuple):
    """The committed version of an item whose version is known only from reading."""

    kind: VersionKind
    listed: bytes | None
    version: bytes


def listed_as(stat: bytes | None, version: bytes | None) -> bytes | None:
    """Return the listed state of an item: its stat data, or its version if it has none."""
    return version if stat is None else stat


def format_late(late: Late) -> bytes:
    """Return a late version as stored."""
    return bytes([late.kind]) + _listed_digest(late.listed) + late.version


def parse_late(value: bytes | None, listed: bytes | None) -> Late | None:
    """Return the late version of an item with this listed state (`listed_as`); None if there is none."""
    begin = 1 + _LISTED_BYTES
    if value is None or len(value) <= begin or value[0] not in set(VersionKind):
        return None
    if value[1:begin] != _listed_digest(listed):
        return None
    return Late(VersionKind(value[0]), listed, value[begin:])


def late_put(item: StableItemId, late: Late) -> Put:
    """Return the write of a late version."""
    return Put(_late_key(item, late.listed), format_late(late))


def late_versions(
    state: ScannerState, tenant: TenantId, items: Sequence[StableItemId], listed: Sequence[bytes | None]
) -> list[Late | None]:
    """Return the late versions of items with these listed states (`listed_as`)."""
    found: list[Late | None] = []
    for begin in range(0, len(items), BATCH_ROWS_MAX):
        part = slice(begin, begin + BATCH_ROWS_MAX)
        values = state.multi_get(tenant, list(map(_late_key, items[part], listed[part])))
        found += map(parse_late, values, listed[part])
    return found


def identified(number: int, source: Source, batch: pa.RecordBatch, cache: "StatCache") -> pa.RecordBatch:
    """Return a batch of a listing with identities, as far as they are known without reading."""
    items = stable_item_ids(source.tag, source.instance, batch["locator"])
    return _identified(number, batch, items, cache)


def identified_again(listed: pa.RecordBatch, cache: "StatCache") -> pa.RecordBatch:
    """Return listed items of one source with identities, as far as they are known now; those that were known stay."""
    return _identified(listed["source"][0].as_py(), listed, listed["item"], cache, listed["ovid"])


def _identified(
    number: int, batch: pa.RecordBatch, items: pa.Array, cache: "StatCache", known: pa.Array | None = None
) -> pa.RecordBatch:
    weak = pc.is_valid(batch["problem"])
    is_known = known is not None and known.null_count == batch["version"].null_count
    named = known if is_known else ovid_column(items, batch["version"], weak)
    versions, ovids = _with_cached(number, batch, cache, named)
    rest = [batch[name] for name in LISTING.names[2:]]
    numbers = pa.repeat(pa.scalar(number, pa.int16()), len(batch))
    columns = [numbers, batch["locator"], versions, *rest, items, ovids, weak, pc.is_valid(versions)]
    return pa.record_batch(columns, LISTED)


def ovid_column(items: pa.Array, versions: pa.Array, weak: pa.Array) -> pa.Array:
    """Return the ledger's keys of items; null where the version is null."""
    ovids = pa.nulls(len(items), DIGEST)
    if versions.null_count == len(versions):
        return ovids
    known = pc.is_valid(versions)
    for kind in VersionKind:
        mask = pc.and_(known, weak if kind is VersionKind.WEAK else pc.invert(weak))
        if pc.any(mask).as_py():
            chosen = object_version_ids(versions.filter(mask))
            ovids = pc.replace_with_mask(ovids, mask, ovid_hashes(items.filter(mask), chosen, kind))
    return ovids


def ovids_of(items: Sequence[StableItemId], versions: Sequence[bytes], kind: VersionKind) -> list[OvidHash]:
    """Return the ledger's keys of items at versions, as the sources name them."""
    if not items:
        return []
    keys: list[OvidHash] = ovid_hashes(list(items), object_version_ids(list(versions)), kind).to_pylist()
    return keys


def late_ovids(items: Sequence[StableItemId], late: Sequence[Late | None]) -> list[OvidHash | None]:
    """Return the ledger's keys of items at their late versions; None where there is none."""
    found: list[OvidHash | None] = [None] * len(items)
    for kind in VersionKind:
        at = [(place, one.version) for place, one in enumerate(late) if one is not None and one.kind is kind]
        keys = ovids_of([items[place] for place, _ in at], [version for _, version in at], kind)
        for (place, _), key in zip(at, keys, strict=True):
            found[place] = key
    return found


def _with_cached(number: int, batch: pa.RecordBatch, cache: "StatCache", ovids: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the versions of a batch and the ledger's keys, with those that the stat cache knows."""
    versions = batch["version"]
    asked = pc.and_(pc.is_null(versions), pc.and_(pc.is_valid(batch["stat"]), pc.is_null(batch["problem"])))
    if not pc.any(asked).as_py():
        return versions, ovids
    known = cache.known(number, batch["locator"].filter(asked), batch["stat"].filter(asked))
    versions, ovids = (pc.replace_with_mask(*pair) for pair in ((versions, asked, known[0]), (ovids, asked, known[1])))
    return versions, ovids


def _late_key(item: bytes, listed: bytes | None) -> bytes:
    """Return the key of a late version: each listed version of a path in a history has its own."""
    is_version = listed is not None and listed.startswith(b"git:")
    return b"late/" + item + (_listed_digest(listed) if is_version else b"")


def listed_key(item: bytes, version: bytes | None, stat: bytes | None) -> bytes:
    """Return the key of a listed item; an item of which a listing has several versions has a key for each."""
    return item + version if stat is None and version is not None and version.startswith(b"git:") else item


def _listed_digest(listed: bytes | None) -> bytes:
    return bytes(_LISTED_BYTES) if listed is None else blake3(listed).digest()[:_LISTED_BYTES]
