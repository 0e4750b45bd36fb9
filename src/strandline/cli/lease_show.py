"""`strandline lease show`: the record of a lease, read once."""

from strandline.cli.lease_options import (
    Creds,
    LeaseAddress,
    LeaseKey,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    lease_at,
    lease_record,
)
from strandline.cli.output import AsJson, emit


def show(
    address: LeaseAddress,
    key: LeaseKey = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show the record of a lease: its holder, epoch and time to live.

    One read cannot tell whether the holder is alive: `strandline lease watch` can.
    """
    with lease_at(address, key, creds, (tls_ca, tls_cert, tls_key), timeout_s) as store:
        found = store.read()
        emit(lease_record(store.address, found.record if found else None), as_json=as_json)
