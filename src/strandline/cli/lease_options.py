"""Options that the commands of `strandline lease` share, and how a record is printed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.fold_options import Creds, Timeout, TlsCa, TlsCert, TlsKey, connection_settings
from strandline.lease import LeaseRecord, LeaseStore, open_lease_store

__all__ = ["Creds", "LeaseAddress", "LeaseKey", "Timeout", "TlsCa", "TlsCert", "TlsKey", "lease_at", "lease_record"]

LeaseAddress = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS",
        help="The store of the lease: s3://BUCKET/PREFIX, gs://…, az://…, file:///FOLDER, or nats://HOST:PORT/BUCKET/KEY.",
        show_default=False,
    ),
]
LeaseKey = Annotated[
    str | None, typer.Argument(metavar="KEY", help="The object, or the key of the bucket.", show_default=False)
]


@contextmanager
def lease_at(
    address: str,
    key: str | None,
    creds: Path | None,
    tls: tuple[Path | None, Path | None, Path | None],
    timeout_s: float,
) -> Iterator[LeaseStore]:
    """Open the store of a lease for the block, without writing to it."""
    store = open_lease_store(address, key, probe=False, nats=connection_settings(creds, *tls, timeout_s))
    try:
        yield store
    finally:
        store.close()


def lease_record(address: str, record: LeaseRecord | None, state: str | None = None) -> Mapping[str, object]:
    """Return a record as it is printed."""
    if record is None:
        return {"address": address, "state": state or "missing"}
    return {
        "address": address,
        "state": state or ("released" if record.released else "held"),
        "epoch": record.epoch,
        "holder": record.holder,
        "holder_address": record.address,
        "ttl_s": record.ttl_ns / 1e9,
        "session": record.session,
        "nonce": record.nonce,
    }
