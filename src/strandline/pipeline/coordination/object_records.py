"""Coordination records as objects: their names, and the envelope around each record.

    coordination/runs/<tenant, 64 hex>/<run, 16 hex>                 a run
    coordination/shards/<tenant, 64 hex>/<run, 16 hex>/<shard, 16 hex>   a shard

    envelope    "SLR1", version u64, write 16 bytes, applied 16 bytes, intent (bytes), record (bytes); little-endian
    intent      id 16 bytes, shard i64, version of the shard before u64, run after (bytes), shard after (bytes)

`version` grows by one with each write; `write` is drawn anew for each, so that a writer whose answer was lost finds its
own write. A run with an `intent` is about to change together with one shard: `applied` of that shard is the intent's id
once it was changed so, and stays until the next intent.

Invariants: `parse_…(format_…(x)) == x`; bytes that no writer produces are `Damaged`, and never read as a default.
"""

import struct
from typing import NamedTuple

from strandline.errors import Damaged
from strandline.protocol.canonical import prefixed, to_signed, to_unsigned
from strandline.protocol.shards import RunKey, ShardKey

NONCE_BYTES = 16
NO_NONCE = bytes(NONCE_BYTES)
_MAGIC = b"SLR1"
_HEAD = struct.Struct("<4sQ16s16s")
_INTENT = struct.Struct("<16sqQ")
_U32 = struct.Struct("<I")


class Envelope(NamedTuple):
    """A record with its version, as one object holds it."""

    version: int
    write: bytes
    record: bytes
    applied: bytes = NO_NONCE
    intent: bytes = b""


class Intent(NamedTuple):
    """A change of a run together with one of its shards."""

    id: bytes
    shard: int
    before_version: int
    run_after: bytes
    shard_after: bytes


def format_run_key(key: RunKey) -> str:
    """Return the name of a run's object."""
    return f"{format_runs_prefix(key.tenant)}{to_unsigned(key.run):016x}"


def format_runs_prefix(tenant: bytes) -> str:
    """Return the prefix of a tenant's runs."""
    return f"coordination/runs/{tenant.hex()}/"


def parse_run_key(name: str) -> RunKey:
    """Return the run of an object's name."""
    *_, tenant, run = name.split("/")
    return RunKey(bytes.fromhex(tenant), to_signed(int(run, 16)))


def format_shard_key(key: ShardKey) -> str:
    """Return the name of a shard's object."""
    return f"{format_shards_prefix(RunKey(key.tenant, key.run))}{to_unsigned(key.shard):016x}"


def format_shards_prefix(run: RunKey) -> str:
    """Return the prefix of a run's shards."""
    return f"coordination/shards/{run.tenant.hex()}/{to_unsigned(run.run):016x}/"


def parse_shard_key(name: str) -> ShardKey:
    """Return the shard of an object's name."""
    *_, tenant, run, shard = name.split("/")
    return ShardKey(bytes.fromhex(tenant), to_signed(int(run, 16)), to_signed(int(shard, 16)))


def format_envelope(envelope: Envelope) -> bytes:
    """Return an envelope as bytes."""
    head = _HEAD.pack(_MAGIC, envelope.version, envelope.write, envelope.applied)
    return head + prefixed(envelope.intent) + prefixed(envelope.record)


def parse_envelope(data: bytes, where: str) -> Envelope:
    """Return the envelope of an object."""
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise damaged(where, "it is no record of coordination")
    _, version, write, applied = _HEAD.unpack_from(data)
    intent, record = _fields(data, _HEAD.size, where)
    return Envelope(version, write, record, applied, intent)


def format_intent(intent: Intent) -> bytes:
    """Return an intent as bytes."""
    head = _INTENT.pack(intent.id, intent.shard, intent.before_version)
    return head + prefixed(intent.run_after) + prefixed(intent.shard_after)


def parse_intent(data: bytes, where: str) -> Intent:
    """Return an intent from its bytes."""
    if len(data) < _INTENT.size:
        raise damaged(where, "its intent ends too early")
    named, shard, before_version = _INTENT.unpack_from(data)
    return Intent(named, shard, before_version, *_fields(data, _INTENT.size, where))


def _fields(data: bytes, at: int, where: str) -> tuple[bytes, bytes]:
    """Return the two fields, each behind its length, that must fill the rest."""
    found = []
    for _ in range(2):
        if len(data) < at + _U32.size:
            raise damaged(where, "it ends too early")
        (size,) = _U32.unpack_from(data, at)
        at += _U32.size + size
        found.append(data[at - size : at])
    if at != len(data):
        raise damaged(where, "it ends too early" if at > len(data) else "bytes follow its end")
    return found[0], found[1]


def damaged(where: str, problem: str) -> Damaged:
    """Return the error of an object that no writer left so."""
    return Damaged(where, problem, safe="nothing was changed; restore the object, or cancel its run")
