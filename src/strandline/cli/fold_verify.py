"""`strandline fold verify`: read a whole fold and print its hash; compare it with its bucket."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.fold_options import (
    Creds,
    FoldPath,
    Prefixes,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    connection_settings,
    open_existing,
)
from strandline.cli.output import AsJson, emit
from strandline.cli.shown import escape
from strandline.fold import Comparison, FoldReader, verify_against
from strandline.fold.addresses import connect_bucket
from strandline.fold.bucket_comparison import Keys
from strandline.fold.cursor import parse_fold_cursor
from strandline.fold.scopes import Scope
from strandline.nats.settings import NatsSettings

EXIT_DIFFERENT = 1


def verify(  # noqa: PLR0913, PLR0917 - one parameter for each option
    path: FoldPath,
    address: Annotated[
        str | None, typer.Option("--bucket", metavar="BUCKET", help="Compare with this bucket: nats://HOST:PORT/NAME.")
    ] = None,
    prefixes: Prefixes = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Read a whole fold and print "state at revision C has hash H"; the hash is the same on every backend.

    With --bucket, compare it with the bucket at that revision, key by key; exit code 1 if they differ. Keys that were
    written since are counted and not compared.
    """
    began = time.perf_counter()
    reader = open_existing(path)
    try:
        verified = reader.verify()
        revision = parse_fold_cursor(verified.cursor).revision
        found: Mapping[str, object] = {}
        is_equal = True
        if address is not None:
            settings = connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s)
            compared = asyncio.run(_compared(reader, address, settings, Scope.of(*(prefixes or ()))))
            found, is_equal = _found(compared), compared.is_equal
            verified, revision = compared.verified, compared.revision
    finally:
        reader.close()
    seconds = time.perf_counter() - began
    state = {"path": path, "revision": revision, "entries": verified.entries, "digest": verified.digest.hex()}
    if as_json:
        emit({**state, **found, "seconds": round(seconds, 6)}, as_json=True)
    else:
        _tell(path, state, found, is_equal=is_equal, seconds=seconds)
    if not is_equal:
        raise typer.Exit(EXIT_DIFFERENT)


async def _compared(reader: FoldReader, address: str, settings: NatsSettings, scope: Scope) -> Comparison:
    async with connect_bucket(address, settings) as bucket:
        return await verify_against(reader, bucket, scope)


def _found(compared: Comparison) -> Mapping[str, object]:
    return {
        "equal": compared.is_equal,
        "complete": compared.is_complete,
        "bucket_revision": compared.source_revision,
        "compared": compared.compared,
        "bucket_digest": compared.source_digest.hex(),
        "missing": _keys(compared.missing),
        "extra": _keys(compared.extra),
        "different": _keys(compared.different),
        "newer": _keys(compared.newer),
        "unaccounted": _keys(compared.unaccounted),
    }


def _keys(keys: Keys) -> Mapping[str, object]:
    return {"count": keys.count, "samples": [escape(key) for key in keys.samples]}


def _tell(
    path: Path, state: Mapping[str, object], found: Mapping[str, object], *, is_equal: bool, seconds: float
) -> None:
    print(f"{path}: {state['entries']:,} entries; state at revision {state['revision']:,} has hash {state['digest']}")
    for name in ("missing", "extra", "different", "newer", "unaccounted"):
        keys = found.get(name)
        if isinstance(keys, Mapping) and keys["count"]:
            samples = ", ".join(keys["samples"])
            print(f"{name}: {keys['count']:,} keys: {samples}{' …' if keys['count'] > len(keys['samples']) else ''}")
    if found:
        verdict = "the bucket says the same" if is_equal else "the bucket says otherwise"
        rest = "" if found["complete"] else "; the keys above could not be compared" if is_equal else ""
        print(f"{found['compared']:,} keys compared: {verdict}{rest}")
    print(f"read in {seconds:.2f} s")
