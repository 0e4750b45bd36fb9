"""The place of a lease by its address.

    s3://bucket/prefix, file:///folder, …   and a key: an object below it
    nats://host:port/bucket/key             a key of a bucket that exists; tls:// too
    nats://host:port/bucket                 and a key

Invariants: a store that ignores conditions is refused before a lease is taken in it. Requests are not repeated by the
client of a store: the lease reads back.
"""

from collections.abc import Mapping
from dataclasses import replace
from os import environ as _environ
from typing import TYPE_CHECKING

from strandline.lease.errors import InvalidLease
from strandline.lease.stores import LeaseStore, ObjectLeaseStore
from strandline.objects import Retries, RetryingObjects, open_objects, probe_conditions, validate_key

if TYPE_CHECKING:
    from strandline.lease.buckets import BucketLeaseStore
    from strandline.nats.settings import NatsSettings

HINT = "give file:///folder, s3://bucket/prefix, … and a key, or nats://host:port/bucket/key"
ONCE = Retries(attempts=1)
REQUEST_S = 10.0
_BUCKET_SCHEMES = ("nats://", "tls://")


def open_lease_store(
    address: str,
    key: str | None = None,
    *,
    probe: bool = True,
    nats: "NatsSettings | None" = None,
    environ: Mapping[str, str] = _environ,
) -> LeaseStore:
    """Open the place of a lease; without `probe`, for reading only, conditions are not tried."""
    if address.startswith(_BUCKET_SCHEMES):
        return _open_bucket(address, key, nats)
    if not key:
        raise InvalidLease("a lease in object storage needs a key", hint=HINT)
    validate_key(key)
    objects = open_objects(address, environ=environ, retries=ONCE)
    try:
        if probe:
            probe_conditions(RetryingObjects(objects))
    except BaseException:
        objects.close()
        raise
    return ObjectLeaseStore(objects, key)


def _open_bucket(address: str, key: str | None, nats: "NatsSettings | None") -> "BucketLeaseStore":
    from strandline.kv.nats.connection import NatsConnection  # noqa: PLC0415 - only users of NATS pay for it
    from strandline.lease.buckets import BucketLeaseStore  # noqa: PLC0415
    from strandline.nats.settings import NatsSettings  # noqa: PLC0415

    scheme, _, rest = address.partition("://")
    servers, *names = rest.split("/")
    if key:
        names.append(key)
    if not servers or len(names) != 2 or not all(names):  # noqa: PLR2004 - a bucket and a key
        raise InvalidLease("the address does not name a bucket and a key", hint=HINT)
    given = NatsSettings(f"{scheme}://{servers}", timeout_s=REQUEST_S)
    if nats is not None:
        given = replace(nats, servers=given.servers, user_info=given.user_info or nats.user_info)
    return BucketLeaseStore(NatsConnection(given), names[0], names[1], server=given.urls[0])
