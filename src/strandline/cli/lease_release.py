"""`strandline lease release`: an operator revokes a lease."""

from typing import Annotated

import typer

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
from strandline.errors import InvalidInput
from strandline.lease import revoke

Epoch = Annotated[int, typer.Option("--epoch", min=1, help="The epoch that `lease show` prints.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", help="Confirm: the holder stops leading.")]


def release(  # noqa: PLR0913 - options
    address: LeaseAddress,
    key: LeaseKey = None,
    *,
    epoch: Epoch,
    yes: Yes = False,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Revoke a lease: its holder cannot renew, and others claim it after its time to live.

    The record keeps its epoch, and is changed only if it still has the given one.
    """
    if not yes:
        raise InvalidInput(f"the holder of epoch {epoch} would stop leading", hint="add --yes to revoke the lease")
    with lease_at(address, key, creds, (tls_ca, tls_cert, tls_key), timeout_s) as store:
        emit(lease_record(store.address, revoke(store, epoch)), as_json=as_json)
