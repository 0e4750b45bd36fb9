"""`strandline ui`: pages over everything that Strandline keeps, for a browser on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.output import AsJson
from strandline.cli.state_options import DEFAULT_STATE, DEFAULT_TENANT, CoordinationOption, KeyFileOption, TenantOption

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
NatsTlsCa = Annotated[
    Path | None,
    typer.Option("--nats-tls-ca", metavar="FILE", envvar="NATS_CA", help="The authority of the NATS servers (PEM)."),
]
NatsTlsCert = Annotated[
    Path | None,
    typer.Option(
        "--nats-tls-cert", metavar="FILE", envvar="NATS_CERT", help="The certificate shown to NATS servers (PEM)."
    ),
]
NatsTlsKey = Annotated[
    Path | None,
    typer.Option("--nats-tls-key", metavar="FILE", envvar="NATS_KEY", help="The key of that certificate (PEM)."),
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
    ctx: typer.Context,
    state: StateOption = None,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    coordination: CoordinationOption = None,
    server: Server = None,
    creds: Creds = None,
    nats_tls_ca: NatsTlsCa = None,
    nats_tls_cert: NatsTlsCert = None,
    nats_tls_key: NatsTlsKey = None,
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
    from strandline.cli.without_pandas import let_arrow_skip_pandas  # noqa: PLC0415 - it imports pyarrow

    let_arrow_skip_pandas()
    from strandline.cli.alarm_options import alarms_of  # noqa: PLC0415 - it imports receivers
    from strandline.cli.fold_options import connection_settings  # noqa: PLC0415 - it imports folds
    from strandline.cli.ui_pages import Shown, serve_pages  # noqa: PLC0415 - it needs the extra `web`
    from strandline.web import Listening  # noqa: PLC0415 - the same
    from strandline.web.parts.folds import TIMEOUT_S  # noqa: PLC0415 - the same

    listening = Listening(host, port, tls_cert, tls_key, public_url, plain_http)
    shown = Shown(
        *(state, tenant, key_file, coordination, server or ()),
        connection_settings(creds, nats_tls_ca, nats_tls_cert, nats_tls_key, TIMEOUT_S),
        *(journal or (), fold or (), replica or (), demo),
    )
    serve_pages(shown, listening, alarms_of(ctx), allow_changes=allow_changes, by=by, as_json=as_json)
