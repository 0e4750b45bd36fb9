"""`strandline fold build`: build the fold of a bucket or a stream of any size with Spark."""

import time
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.fold_options import (
    BackendOption,
    BucketAddress,
    Creds,
    FoldPath,
    ModeOption,
    TlsCa,
    TlsCert,
    TlsKey,
    fold_mode,
)
from strandline.cli.output import AsJson, emit
from strandline.fold.addresses import parse_address
from strandline.protocol.fold_modes import FoldMode


def build(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    address: BucketAddress,
    path: FoldPath,
    stream: Annotated[bool, typer.Option("--stream", help="NAME is a stream; its subjects are the keys.")] = False,
    prefix: Annotated[str, typer.Option(help="Only keys below this prefix, which ends with a dot.")] = "",
    backend: BackendOption = None,
    mode: ModeOption = None,
    master: Annotated[
        str | None,
        typer.Option(envvar="STRANDLINE_MASTER", help="Spark's master.", show_default="all cores of this machine"),
    ] = None,
    publish: Annotated[
        str | None, typer.Option("--publish", metavar="ADDRESS", help="Also publish the fold as an artifact there.")
    ] = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: AsJson = False,
) -> None:
    """Build a new fold of a bucket or a stream with Spark, in parallel.

    The fold holds the last value of each key. `strandline fold run` keeps the fold of a bucket up to date afterwards.
    """
    if stream and prefix:
        raise typer.BadParameter("--prefix is for buckets")
    settings, name = parse_address(address)
    paths: dict[str, Path | None] = {"credsFile": creds, "tlsCa": tls_ca, "tlsCert": tls_cert, "tlsKey": tls_key}
    options = {option: str(given) for option, given in paths.items() if given is not None}
    options |= {"servers": ",".join(settings.urls), "stream" if stream else "bucket": name}
    if settings.user_info:
        options["userSecret"] = settings.user_info
    if prefix:
        options["prefix"] = prefix
    from strandline.spark import fold_build, session  # noqa: PLC0415 - its help needs no Spark

    began = time.monotonic()
    built = fold_build(session(master=master), options, path, backend, mode=fold_mode(mode), publish=publish)
    record = {
        "path": built.path,
        "backend": built.backend.value,
        "mode": built.cursor.mode.name.lower(),
        "complete_from": built.cursor.floor if built.cursor.mode is FoldMode.ARCHIVE else None,
        "revision": built.cursor.revision,
        "messages": built.messages,
        "entries": built.entries,
        "published": None if built.published is None else built.published.outcome.name.lower(),
        "seconds": round(time.monotonic() - began, 3),
    }
    emit(record, as_json=as_json)
