"""`strandline fold run`: keep a fold of a bucket up to date until it is stopped."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.fold_display import FoldDisplay
from strandline.cli.fold_options import (
    BucketAddress,
    Creds,
    FoldPath,
    ModeOption,
    Prefixes,
    Repair,
    RepairOption,
    Timeout,
    TlsCa,
    TlsCert,
    TlsKey,
    connection_settings,
    fold_mode,
)
from strandline.cli.output import AsJson, emit
from strandline.events import Events
from strandline.fold.addresses import connect_bucket, parse_address
from strandline.fold.backends import Backend, open_fold
from strandline.fold.cursor import FoldCursor
from strandline.fold.repair import RepairPolicy
from strandline.fold.scopes import Scope
from strandline.fold.watch import Hooks, catch_up, watch_applied
from strandline.journal import SYNCED, WRITTEN
from strandline.nats.settings import NatsSettings

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(  # noqa: PLR0913, PLR0917 - one parameter for each option
    address: BucketAddress,
    path: FoldPath,
    prefixes: Prefixes = None,
    backend: Annotated[
        Backend | None, typer.Option(help="The store of a new fold.", show_default="by the name of PATH")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when the fold is up to date.")] = False,
    mode: ModeOption = None,
    repair: RepairOption = Repair.AUTO,
    written: Annotated[
        bool, typer.Option("--written", help="Do not sync each batch; a power cut may lose the last seconds.")
    ] = False,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep a local copy of a bucket up to date until Ctrl-C or SIGTERM; run it again to resume.

    Data and cursor are one durable write. After a crash only missing updates are fetched. If the bucket has removed
    updates before they were fetched, the fold is repaired first: a mirror from the bucket's listing, an archive from a
    complete listing or another fold. If neither exists, the command fails with the reason.
    """
    settings = connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s)
    _, bucket = parse_address(address, settings)
    scope = Scope.of(*(prefixes or ()))
    began = time.monotonic()
    with FoldDisplay(quiet=quiet) as display:
        hooks = Hooks(events=Events(display.tell))
        policy = RepairPolicy(mode=repair.mode, fold_mode=fold_mode(mode))
        fold = _Fold(path, backend, scope, policy, hooks, synced=not written)
        cursor = asyncio.run(fold.keep(address, settings, once=once))
    record = {
        "bucket": bucket,
        "path": path,
        "scope": str(scope),
        "mode": cursor.mode.name.lower(),
        "revision": cursor.revision,
        "updates": display.status().updates,
        "repairs": display.status().repairs,
        "seconds": round(time.monotonic() - began, 3),
    }
    emit(record, as_json=as_json)


class _Fold:
    """A fold and its settings."""

    def __init__(
        self, path: Path, backend: Backend | None, scope: Scope, policy: RepairPolicy, hooks: Hooks, *, synced: bool
    ) -> None:
        self._open = lambda: open_fold(path, backend, sync=SYNCED if synced else WRITTEN)
        self._scope = scope
        self._policy = policy
        self._hooks = hooks

    async def keep(self, address: str, settings: NatsSettings, *, once: bool) -> FoldCursor:
        """Connect, and keep the fold up to date until a signal, or once; return its cursor."""
        async with connect_bucket(address, settings) as store:
            if once:
                return await catch_up(store, self._scope, self._open, policy=self._policy, hooks=self._hooks)
            stop = asyncio.Event()
            for number in _STOP_SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            return await watch_applied(
                store, self._scope, self._open, policy=self._policy, hooks=self._hooks, stop=stop
            )
