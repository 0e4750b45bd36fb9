"""Identities: ids derived from content, the same for ever and on every machine.

Every id is 32 bytes of BLAKE3, in derive-key mode under a context of its own, over the canonical encoding of its parts:

    instance    connector instance           item         tag, instance, locator
    version     version bytes                ovid         item, strong or weak, version
    rule        the rule's content           policy       versions, key mode, digest of all that decides findings
    secret      keyed per tenant: norm hash  finding      tenant, item, rule, secret
    occurrence  finding, version, span       observation  tenant, policy, occurrence

So a secret at an item is one finding for ever, a version and a span make it an occurrence, and a policy makes that an
observation. Running again yields the same ids: sinks merge by id, and at-least-once execution becomes exactly-once in
effect. Each derivation has a form for one and a form for columns; the latter returns an Arrow column.

Invariants: the same bytes give the same id on every machine; ids that touch a secret are keyed per tenant and say
nothing without the key; what is derived from a secret never shows its bytes in `repr`. Contexts and layouts are those
of the reference system, whose published vectors are tests, except `rule` and the rules digest, which cover content
here (`strandline.pipeline.policy`).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NewType, Self, TypeAlias

import pyarrow as pa
from blake3 import blake3

from strandline.errors import InvalidInput
from strandline.protocol.blake3_columns import FixedColumn, derive_fixed_rows, derive_prefixed_rows
from strandline.protocol.canonical import derive, prefixed, u8, u64

DIGEST_BYTES = 32
TAG_BYTES = 8
EPOCHS_MAX = 64

Column: TypeAlias = Sequence[bytes] | pa.Array
"""Many values: a list, or an Arrow array of bytes."""

TenantId = NewType("TenantId", bytes)
ConnectorInstanceId = NewType("ConnectorInstanceId", bytes)
StableItemId = NewType("StableItemId", bytes)
ObjectVersionId = NewType("ObjectVersionId", bytes)
OvidHash = NewType("OvidHash", bytes)
RuleFingerprint = NewType("RuleFingerprint", bytes)
RulesDigest = NewType("RulesDigest", bytes)
PolicyHash = NewType("PolicyHash", bytes)
FindingId = NewType("FindingId", bytes)
OccurrenceId = NewType("OccurrenceId", bytes)
ObservationId = NewType("ObservationId", bytes)


class Secret32(bytes):
    """Thirty-two bytes that derive from a secret or protect one; `repr` never shows them."""

    __slots__ = ()

    def __new__(cls, data: bytes) -> Self:
        """Refuse bytes of another length, without showing them."""
        if len(data) != DIGEST_BYTES:
            raise InvalidInput(f"a {cls.__name__} has {DIGEST_BYTES} bytes, not {len(data)}")
        return super().__new__(cls, data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


class NormHash(Secret32):
    """The digest of a secret's bytes, before the tenant's key; it can be guessed, and is never stored."""

    __slots__ = ()


class SecretHash(Secret32):
    """The hash of a secret under the tenant's key."""

    __slots__ = ()


class TenantSecretKey(Secret32):
    """The key that hides a tenant's secrets: 32 bytes, and 32 more for each time that it was rotated."""

    __slots__ = ()

    def __new__(cls, data: bytes) -> Self:
        """Refuse bytes that are no key, without showing them."""
        if not data or len(data) % DIGEST_BYTES or len(data) > EPOCHS_MAX * DIGEST_BYTES:
            hint = f"a key has {DIGEST_BYTES} bytes for each of at most {EPOCHS_MAX} epochs"
            raise InvalidInput(f"a {cls.__name__} has {DIGEST_BYTES} bytes, not {len(data)}", hint=hint)
        return bytes.__new__(cls, data)

    @property
    def epochs(self) -> tuple[Secret32, ...]:
        """The keys of its epochs, oldest first: a secret is hashed under one after another."""
        return tuple(Secret32(self[at : at + DIGEST_BYTES]) for at in range(0, len(self), DIGEST_BYTES))


class VersionKind(IntEnum):
    """Whether a version changes whenever the content does; a weak one never suppresses a rescan."""

    STRONG = 0
    WEAK = 1


def tenant_id(data: bytes) -> TenantId:
    """Return bytes as a tenant's id, if they are 32."""
    return TenantId(_digest(data, "tenant id"))


def connector_instance_id(instance: bytes) -> ConnectorInstanceId:
    """Return the id of a connector's installation."""
    return ConnectorInstanceId(derive("gossip/connector-instance-id/v1", prefixed(instance)))


def stable_item_id(tag: str, instance: ConnectorInstanceId, locator: bytes) -> StableItemId:
    """Return the id of an item; `tag` is the connector's name, at most eight bytes."""
    return StableItemId(derive("gossip/item-id/v1", _tag(tag) + instance + prefixed(locator)))


def stable_item_ids(tag: str, instance: ConnectorInstanceId, locators: Column) -> pa.Array:
    """Return the ids of many items of one connector."""
    return _prefixed_ids("gossip/item-id/v1", _tag(tag) + instance, locators)


def object_version_id(version: bytes) -> ObjectVersionId:
    """Return the id of a version, as the source names it: a commit, an etag, a content hash."""
    return ObjectVersionId(derive("gossip/object-version/v1", prefixed(version)))


def object_version_ids(versions: Column) -> pa.Array:
    """Return the ids of many versions."""
    return _prefixed_ids("gossip/object-version/v1", b"", versions)


def ovid_hash(item: StableItemId, version: ObjectVersionId, kind: VersionKind) -> OvidHash:
    """Return the ledger's key of an item at a version."""
    return OvidHash(derive("gossip/persistence/v1/ovid", item + u8(kind) + version))


def ovid_hashes(items: Column, versions: Column, kind: VersionKind) -> pa.Array:
    """Return the ledger's keys of many items at their versions."""
    return _fixed_ids("gossip/persistence/v1/ovid", _digests(items), u8(kind), _digests(versions))


def norm_hash(secret: bytes) -> NormHash:
    """Return the digest of a secret's bytes as they were found: folding case or space would make two secrets one."""
    return NormHash(blake3(secret).digest())


def secret_hash(key: TenantSecretKey, norm: NormHash) -> SecretHash:
    """Return the stored form of a secret: its hash under the tenant's key."""
    if len(key) == DIGEST_BYTES:
        return SecretHash(blake3(_SECRET_DOMAIN + norm, key=key).digest())
    first, *later = key.epochs
    hashed = SecretHash(blake3(_SECRET_DOMAIN + norm, key=first).digest())
    for epoch in later:
        hashed = rotated_hash(epoch, hashed)
    return hashed


def rotated_hash(epoch: Secret32, hashed: SecretHash) -> SecretHash:
    """Return the stored form of a secret after one more rotation, from the form before it."""
    return SecretHash(blake3(_ROTATION_DOMAIN + hashed, key=epoch).digest())


def finding_id(tenant: TenantId, item: StableItemId, rule: RuleFingerprint, secret: SecretHash) -> FindingId:
    """Return the id of a finding, which no version and no policy changes."""
    return FindingId(derive("gossip/finding/v1", tenant + item + rule + secret))


def finding_ids(tenant: TenantId, items: Column, rules: Column, secrets: Column) -> pa.Array:
    """Return the ids of many findings of one tenant."""
    return _fixed_ids("gossip/finding/v1", tenant, *map(_digests, (items, rules, secrets)))


def occurrence_id(finding: FindingId, version: ObjectVersionId, offset: int, length: int) -> OccurrenceId:
    """Return the id of a finding at a span of a version."""
    return OccurrenceId(derive("gossip/occurrence/v1", finding + version + u64(offset) + u64(length)))


def occurrence_ids(findings: Column, versions: Column, offsets: Sequence[int], lengths: Sequence[int]) -> pa.Array:
    """Return the ids of many occurrences."""
    parts = _digests(findings), _digests(versions), _numbers(offsets), _numbers(lengths)
    return _fixed_ids("gossip/occurrence/v1", *parts)


def observation_id(tenant: TenantId, policy: PolicyHash, occurrence: OccurrenceId) -> ObservationId:
    """Return the id of an occurrence as seen under a policy."""
    return ObservationId(derive("gossip/observation/v1", tenant + policy + occurrence))


def observation_ids(tenant: TenantId, policy: PolicyHash, occurrences: Column) -> pa.Array:
    """Return the ids of many occurrences as seen by one tenant under one policy."""
    return _fixed_ids("gossip/observation/v1", tenant, policy, _digests(occurrences))


_SECRET_DOMAIN = b"gossip/secret-hash/v1"
_ROTATION_DOMAIN = b"strandline/secret-hash/rotated/v1"


def _prefixed_ids(context: str, begin: bytes, values: Column) -> pa.Array:
    """Return the derivations of values behind their lengths and the same beginning."""
    column = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
    if column.null_count:
        raise InvalidInput(f"a column to hash has {column.null_count} nulls")
    return _column(derive_prefixed_rows(context, begin, column))


def _fixed_ids(context: str, *parts: bytes | FixedColumn) -> pa.Array:
    """Return the derivations of the rows of a table made of constants and columns."""
    counts = {len(part) for part in parts if isinstance(part, FixedColumn)}
    if len(counts) != 1:
        raise InvalidInput(f"columns differ in length: {sorted(counts)}")
    return _column(derive_fixed_rows(context, parts, *counts))


def _column(digests: bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(DIGEST_BYTES), len(digests) // DIGEST_BYTES, [None, pa.py_buffer(digests)])


def _digest(data: bytes, what: str) -> bytes:
    if len(data) != DIGEST_BYTES:
        raise InvalidInput(f"a {what} has {DIGEST_BYTES} bytes, not {len(data)}")
    return bytes(data)


def _tag(tag: str) -> bytes:
    data = tag.encode()
    if not 0 < len(data) <= TAG_BYTES:
        raise InvalidInput(f"a connector's tag has 1 to {TAG_BYTES} bytes, and {tag!r} has {len(data)}")
    return data.ljust(TAG_BYTES, b"\0")


def _values(column: Column) -> Sequence[bytes]:
    if not isinstance(column, pa.Array):
        return column
    if column.null_count:
        raise InvalidInput(f"a column to hash has {column.null_count} nulls")
    values: list[bytes] = column.to_pylist()
    return values


def _digests(column: Column) -> FixedColumn:
    if isinstance(column, pa.Array) and column.type == pa.binary(DIGEST_BYTES) and not column.null_count:
        first, end = (DIGEST_BYTES * at for at in (column.offset, column.offset + len(column)))
        return FixedColumn(memoryview(column.buffers()[1])[first:end], DIGEST_BYTES)
    values = _values(column)
    if set(map(len, values)) - {DIGEST_BYTES}:
        raise InvalidInput(f"a column of ids holds values that are not {DIGEST_BYTES} bytes")
    return FixedColumn(b"".join(values), DIGEST_BYTES)


def _numbers(values: Sequence[int]) -> FixedColumn:
    try:
        return FixedColumn(b"".join([value.to_bytes(8, "little") for value in values]), 8)
    except (AttributeError, OverflowError) as error:
        raise InvalidInput("offsets and lengths are whole numbers, 0 or more, of 64 bits") from error
