"""Writes of a NATS bucket: each is one message, compared by the sequence of the key's last one.

Invariants: a write that compares is decided by the server, by code; a lost answer is never taken for a refusal, nor
sent again.
"""

import math
from collections.abc import Mapping

from strandline.errors import InvalidInput
from strandline.kv.entries import UpdateKind, VersionToken, format_revision, parse_revision
from strandline.kv.errors import AlreadyExists, RevisionMismatch
from strandline.kv.keys import validate_key
from strandline.kv.nats.bucket_api import BucketApi
from strandline.kv.nats.messages import DELETE_HEADERS, EXPECTED_REVISION, PURGE_HEADERS, TTL, format_ttl
from strandline.kv.nats.reader import read_last
from strandline.nats.streams import StreamState

TTL_S_MIN = 1.0
CREATE_ATTEMPTS = 8


class NatsWriter:
    """The writer of a NATS bucket."""

    def __init__(self, api: BucketApi, info: StreamState, subject_prefix: str) -> None:
        self._api = api
        self._info = info
        self._prefix = subject_prefix

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None) -> VersionToken:
        """Set a key, whatever it was; with a time to live, only for so long, in whole seconds, rounded up."""
        return await self._write(key, value, _ttl_headers(ttl_s))

    async def create(self, key: str, value: bytes, *, ttl_s: float | None = None) -> VersionToken:
        """Set a key that has no value, an empty one being one; else `AlreadyExists`."""
        headers = _ttl_headers(ttl_s)
        revision = 0
        for _ in range(CREATE_ATTEMPTS):
            try:
                return await self._write(key, value, {**headers, EXPECTED_REVISION: str(revision)})
            except RevisionMismatch:
                last = await read_last(self._api, self._info, key)
                if last is not None and last.kind is UpdateKind.PUT:
                    raise AlreadyExists(key) from None
                revision = last.revision if last is not None else 0
        raise RevisionMismatch(key)

    async def update(self, key: str, value: bytes, version: VersionToken) -> VersionToken:
        """Set a key whose last write has this version; else `RevisionMismatch`."""
        return await self._write(key, value, _version_headers(version))

    async def delete(self, key: str) -> VersionToken:
        """Mark a key as deleted, whether or not it has a value; its history stays."""
        return await self._write(key, b"", DELETE_HEADERS)

    async def delete_with_version(self, key: str, version: VersionToken) -> VersionToken:
        """Mark a key as deleted if its last write has this version; else `RevisionMismatch`."""
        return await self._write(key, b"", {**DELETE_HEADERS, **_version_headers(version)})

    async def purge(self, key: str) -> VersionToken:
        """Mark a key as deleted and remove its history."""
        return await self._write(key, b"", PURGE_HEADERS)

    async def _write(self, key: str, value: bytes, headers: Mapping[str, str]) -> VersionToken:
        subject = f"{self._prefix}{validate_key(key)}"
        return format_revision(await self._api.publish(subject, key, bytes(value), headers))


def _ttl_headers(ttl_s: float | None) -> dict[str, str]:
    if ttl_s is None:
        return {}
    if ttl_s < TTL_S_MIN:
        raise InvalidInput(f"a time to live of {ttl_s} s is shorter than a second")
    return {TTL: format_ttl(math.ceil(ttl_s))}


def _version_headers(version: VersionToken) -> dict[str, str]:
    revision = parse_revision(version)
    if revision is None:
        raise InvalidInput("an unknown version cannot be compared", hint="read the entry to learn its version")
    return {EXPECTED_REVISION: str(revision)}
