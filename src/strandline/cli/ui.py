"""`strandline ui`: pages over everything that Strandline keeps, for a browser on this machine."""

import getpass
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.ending_signals import ending_signals
from strandline.cli.output import AsJson, print_line, to_json
from strandline.cli.state_options import DEFAULT_STATE, DEFAULT_TENANT, CoordinationOption, KeyFileOption, TenantOption
from strandline.scan.state import StateMissing, open_state
from strandline.web import Listening, Parts, Site, access_of, bind, serving
from strandline.web.parts.scans import ScanPart

StateOption = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="DIR|postgresql://…",
        envvar="STRANDLINE_STATE",
        help="State of scans: a local folder or a PostgreSQL database.",
        show_default=f"{DEFAULT_STATE}, if it is there",
    ),
]
Host = Annotated[str, typer.Option("--host", help="Listen at this address; one of other machines needs TLS.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Listen at this port; 0 is any free one.")]
AllowChanges = Annotated[
    bool, typer.Option("--allow-changes", help="Let pages decide about findings and unpark shards.")
]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate of this server (PEM).")]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Key of the certificate (PEM).")]
PlainHttp = Annotated[
    bool,
    typer.Option(
        "--plain-http", help="Accept that others on the network can read the token, and so everything, without TLS."
    ),
]
PublicUrl = Annotated[
    str | None,
    typer.Option(
        "--public-url", metavar="URL", help="The address that browsers use, behind a proxy: https://host/path."
    ),
]
By = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Who decides.", show_default="the login name")]


def ui(  # noqa: PLR0913, PLR0917 - one for each option
    state: StateOption = None,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    coordination: CoordinationOption = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    allow_changes: AllowChanges = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    plain_http: PlainHttp = False,
    public_url: PublicUrl = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Show all of it in a browser: findings, coverage, runs, streams, folds, replicas.

    The address that is printed has a token in it, without which no page is shown. Nothing can be changed without
    --allow-changes. Ctrl-C ends it.
    """
    listening = Listening(host, port, tls_cert, tls_key, public_url, plain_http)
    listening.check()
    with ExitStack() as stack, ending_signals() as ending:
        parts = stack.enter_context(_parts(state, tenant, key_file, coordination))
        bound = bind(listening)
        access = access_of(listening, bound.getsockname()[1], allow_changes=allow_changes)
        site = Site(access, parts, who=by or _user())
        stack.enter_context(serving(site, listening, bound))
        if as_json:
            print_line(to_json({"address": access.address, "token": access.token, "entry": access.entry}))
        else:
            print_line(f"Open {access.entry}")
            print("Ctrl-C ends it.", file=sys.stderr)
        ending.wait()


@contextmanager
def _parts(state: str | None, tenant: str, key_file: Path | None, coordination: str | None) -> Iterator[Parts]:
    with ExitStack() as stack:
        scans = None
        try:
            opened = open_state(state or DEFAULT_STATE, tenant=tenant, key_file=key_file, coordination=coordination)
            scans = ScanPart(stack.enter_context(opened))
        except StateMissing:
            if state is not None:
                raise
        yield Parts(scans=scans)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
