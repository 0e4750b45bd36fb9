"""Keys of shards: bytes that sort like the values they encode, and the cutting of ranges.

    manifest row key   manifest u64, row u64, big-endian: 16 bytes
    metadata           u32 length of the hint, hint, the connector's own bytes; empty is a range hint and nothing else
    hint               00                          keys of the range
                       01, u32 length, prefix      keys with the prefix
                       02, manifest u64, start u64, end u64    rows [start, end) of a manifest
                       numbers are big-endian

Invariants: `a < b` implies `format_…(a) < format_…(b)`; the parts of a cut range are exactly the range, and each part's
hint says no more than its range.
"""

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from strandline.errors import InvalidInput
from strandline.protocol.canonical import U64_MAX
from strandline.protocol.errors import SpecInvalid
from strandline.protocol.shards import KEY_BYTES_MAX, ShardSpec, spec_problem

_ROW = struct.Struct(">QQ")
_U32 = struct.Struct(">I")
_MANIFEST = struct.Struct(">QQQ")
_RANGE_TAG, _PREFIX_TAG, _MANIFEST_TAG = 0, 1, 2


class ManifestRowKey(NamedTuple):
    """A row of a manifest, such as one file of a list."""

    manifest: int
    row: int


class RangeHint(NamedTuple):
    """The shard is the keys of its range."""


class PrefixHint(NamedTuple):
    """The shard is every key with a prefix."""

    prefix: bytes

    def __repr__(self) -> str:
        return f"PrefixHint({len(self.prefix)} bytes)"


class ManifestHint(NamedTuple):
    """The shard is the rows `[start, end)` of a manifest."""

    manifest: int
    start: int
    end: int


Hint: TypeAlias = RangeHint | PrefixHint | ManifestHint


class Metadata(NamedTuple):
    """The metadata of a shard: a hint, and the connector's own bytes."""

    hint: Hint = RangeHint()
    extra: bytes = b""

    def __repr__(self) -> str:
        return f"Metadata({self.hint!r}, {len(self.extra)} bytes)"


def format_manifest_row(key: ManifestRowKey) -> bytes:
    """Return the key of a row."""
    if not all(0 <= number <= U64_MAX for number in key):
        raise InvalidInput("a manifest and its rows are numbered with 64 unsigned bits")
    return _ROW.pack(*key)


def parse_manifest_row(key: bytes) -> ManifestRowKey:
    """Return the row of a key."""
    if len(key) != _ROW.size:
        raise InvalidInput(f"a manifest row key has {_ROW.size} bytes, and this one {len(key)}")
    return ManifestRowKey(*_ROW.unpack(key))


def format_metadata(metadata: Metadata) -> bytes:
    """Return a shard's metadata as bytes."""
    hint = _format_hint(metadata.hint)
    return _U32.pack(len(hint)) + hint + metadata.extra


def parse_metadata(data: bytes) -> Metadata:
    """Return the metadata of a shard from bytes."""
    if not data:
        return Metadata()
    hint, extra = _take(data)
    return Metadata(_parse_hint(hint), extra)


def prefix_successor(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with a prefix, or None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def cut_spec(spec: ShardSpec, cuts: Sequence[bytes]) -> tuple[ShardSpec, ...]:
    """Return the parts of a range cut at the given keys, each with its own hint."""
    metadata = parse_metadata(spec.metadata)
    bounds = [spec.start, *cuts, spec.end]
    parts = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        last = number == len(cuts)
        part = ShardSpec(start, end, spec.metadata)
        if problem := spec_problem(part) or (None if end or last else "a cut is empty"):
            raise SpecInvalid(problem)
        if spec.metadata:
            hint = narrow_hint(metadata.hint, part)
            part = part._replace(metadata=format_metadata(metadata._replace(hint=hint)))
        parts.append(part)
    return tuple(parts)


def narrow_hint(hint: Hint, part: ShardSpec) -> Hint:
    """Return the hint of a part of a shard."""
    match hint:
        case RangeHint():
            return hint
        case PrefixHint(prefix):
            end = prefix_successor(prefix)
            if part.start < prefix or (end is not None and not (part.end and part.end <= end)):
                raise SpecInvalid("a part reaches beyond the prefix of its shard")
            return RangeHint()
        case ManifestHint(manifest, start, end):
            first = _row_of(part.start, manifest) if part.start else start
            after = _row_of(part.end, manifest) if part.end else end
            if not start <= first < after <= end:
                raise SpecInvalid("a part reaches beyond the rows of its shard")
            return ManifestHint(manifest, first, after)


def _row_of(key: bytes, manifest: int) -> int:
    found = parse_manifest_row(key)
    if found.manifest != manifest:
        raise SpecInvalid("a part is cut at a row of another manifest")
    return found.row


def _format_hint(hint: Hint) -> bytes:
    match hint:
        case RangeHint():
            return bytes([_RANGE_TAG])
        case PrefixHint(prefix):
            return bytes([_PREFIX_TAG]) + _U32.pack(len(prefix)) + prefix
        case ManifestHint(_, start, end):
            if not (start < end and all(0 <= number <= U64_MAX for number in hint)):
                raise SpecInvalid("the rows of a manifest hint are empty, or not of 64 unsigned bits")
            return bytes([_MANIFEST_TAG]) + _MANIFEST.pack(*hint)


def _parse_hint(data: bytes) -> Hint:
    tag, rest = data[:1], data[1:]
    if tag == bytes([_RANGE_TAG]) and not rest:
        return RangeHint()
    if tag == bytes([_PREFIX_TAG]):
        prefix, more = _take(rest)
        if not more and len(prefix) <= KEY_BYTES_MAX:
            return PrefixHint(prefix)
    if tag == bytes([_MANIFEST_TAG]) and len(rest) == _MANIFEST.size:
        hint = ManifestHint(*_MANIFEST.unpack(rest))
        if hint.start < hint.end:
            return hint
    raise SpecInvalid("its metadata has an unknown or broken hint")


def _take(data: bytes) -> tuple[bytes, bytes]:
    """Return length-prefixed bytes, and the rest."""
    if len(data) < _U32.size:
        raise SpecInvalid("its metadata ends too early")
    (size,) = _U32.unpack_from(data)
    if size > len(data) - _U32.size:
        raise SpecInvalid("its metadata ends too early")
    return data[_U32.size : _U32.size + size], data[_U32.size + size :]
