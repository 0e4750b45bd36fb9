"""The options that name the state of scans: `--state`, `--tenant`, `--key-file` and `--coordination`."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_STATE = ".strandline"
DEFAULT_TENANT = "default"

StateOption = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="DIR|postgresql://…|s3://…",
        envvar="STRANDLINE_STATE",
        help="State of scans: a local folder, a PostgreSQL database, or a prefix of a bucket.",
    ),
]
TenantOption = Annotated[
    str, typer.Option("--tenant", metavar="NAME", envvar="STRANDLINE_TENANT", help="Tenant that owns the results.")
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        envvar="STRANDLINE_KEY_FILE",
        help="Key that hashes secrets; by default a file in the state folder.",
    ),
]
CoordinationOption = Annotated[
    str | None,
    typer.Option(
        "--coordination",
        metavar="etcd://…",
        envvar="STRANDLINE_COORDINATION",
        help="Keep runs and shards in etcd instead of the state's database.",
    ),
]
