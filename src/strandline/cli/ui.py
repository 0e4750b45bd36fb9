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
from strandline.errors import InvalidInput
from strandline.nats import NatsSettings
from strandline.scan.state import StateMissing, open_state
from strandline.web import Listening, Parts, Site, access_of, bind, serving
from strandline.web.parts.folds import FoldPart
from strandline.web.parts.journals import JournalPart
from strandline.web.parts.replicas import ReplicaPart
from strandline.web.parts.scans import ScanPart
from strandline.web.parts.streams import ServerPart

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
Server = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="URL", help="A nats-server or `strandline serve`: nats://HOST:PORT."),
]
JournalFolder = Annotated[
    list[Path] | None,
    typer.Option("--journal", metavar="DIR", help="The folder of a journal or of a queue; may be repeated."),
]
Fold = Annotated[
    list[str] | None,
    typer.Option(
        "--fold",
        metavar="PATH[=BUCKET[=ARTIFACTS]]",
        help="A fold, with its bucket (nats://HOST:PORT/NAME) and artifacts (s3://…, file:///…), if any.",
    ),
]
Replica = Annotated[
    list[str] | None,
    typer.Option("--replica", metavar="URL", help="A replica: s3://BUCKET/PREFIX, file:///FOLDER; may be repeated."),
]
Creds = Annotated[
    Path | None, typer.Option("--creds", envvar="NATS_CREDS", help="A creds file, or a file with an nkey's seed.")
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
Demo = Annotated[bool, typer.Option("--demo", help="Show every page over parts that are made for it, and move.")]
By = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Who decides.", show_default="the login name")]


def ui(  # noqa: PLR0913, PLR0917 - one for each option
    state: StateOption = None,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    coordination: CoordinationOption = None,
    server: Server = None,
    creds: Creds = None,
    journal: JournalFolder = None,
    fold: Fold = None,
    replica: Replica = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    allow_changes: AllowChanges = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    plain_http: PlainHttp = False,
    public_url: PublicUrl = None,
    by: By = None,
    demo: Demo = False,
    as_json: AsJson = False,
) -> None:
    """Show all of it in a browser: findings, coverage, runs, streams, folds, replicas.

    The address that is printed has a token in it, without which no page is shown. Nothing can be changed without
    --allow-changes. Ctrl-C ends it.
    """
    listening = Listening(host, port, tls_cert, tls_key, public_url, plain_http)
    listening.check()
    with ExitStack() as stack, ending_signals() as ending:
        if demo:
            from strandline.cli.ui_demo import demo_parts  # noqa: PLC0415 - it needs every extra

            print("Making something to show…", file=sys.stderr)
            parts = stack.enter_context(demo_parts())
        else:
            parts = Parts(
                scans=stack.enter_context(_scans(state, tenant, key_file, coordination)),
                servers=[ServerPart(NatsSettings(url, creds_file=str(creds or ""))) for url in server or ()],
                journals=[JournalPart(folder) for folder in journal or ()],
                folds=[_fold(text) for text in fold or ()],
                replicas=[ReplicaPart(address) for address in replica or ()],
            )
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
def _scans(
    state: str | None, tenant: str, key_file: Path | None, coordination: str | None
) -> Iterator[ScanPart | None]:
    with ExitStack() as stack:
        scans = None
        try:
            opened = open_state(state or DEFAULT_STATE, tenant=tenant, key_file=key_file, coordination=coordination)
            scans = ScanPart(stack.enter_context(opened))
        except StateMissing:
            if state is not None:
                raise
        yield scans


def _fold(text: str) -> FoldPart:
    """Return a fold from `PATH`, `PATH=BUCKET` or `PATH=BUCKET=ARTIFACTS`."""
    path, *rest = text.split("=")
    if not path or len(rest) > 2:  # noqa: PLR2004 - a bucket and an address of artifacts
        raise InvalidInput(f"--fold {text}: not a fold", hint="give PATH, PATH=BUCKET or PATH=BUCKET=ARTIFACTS")
    bucket, artifacts = (*rest, "", "")[:2]
    return FoldPart(Path(path), bucket or None, artifacts or None)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
