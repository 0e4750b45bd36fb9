"""`strandline fold run`: keep a fold of a bucket up to date until it is stopped."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from strandline.alarms import Condition
from strandline.artifacts import (
    ArtifactRestorer,
    Manifest,
    PublishedArtifacts,
    RoundOutcome,
    RoundResult,
    publish_fold,
)
from strandline.artifacts.followed import periodic_exports
from strandline.artifacts.metrics import ArtifactState
from strandline.artifacts.restorer import open_bootstrapped
from strandline.cli.alarm_options import alarms_of
from strandline.cli.artifact_options import TransferLine, artifacts_at
from strandline.cli.command_log import LogFormat, LogFormatOption, command_log
from strandline.cli.fold_display import FoldDisplay
from strandline.cli.fold_options import (
    BackendOption,
    BootstrapOption,
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
from strandline.cli.metrics_options import MetricsHost, MetricsPort, Monitoring
from strandline.cli.output import AsJson, emit
from strandline.errors import Closed, InvalidInput, StrandlineError
from strandline.events import Events
from strandline.fold import Exports, SnapshotStore
from strandline.fold.addresses import connect_bucket, parse_address
from strandline.fold.backends import Backend, open_fold
from strandline.fold.background_watch import Companion
from strandline.fold.cursor import FoldCursor
from strandline.fold.last_repair import RepairRecorder
from strandline.fold.metrics import fold_health, fold_metrics
from strandline.fold.repair import RepairPolicy
from strandline.fold.scopes import Scope
from strandline.fold.watch import Hooks, catch_up, watch_applied
from strandline.journal import SYNCED, WRITTEN
from strandline.kv import KvStore
from strandline.metrics import HOST, MetricSource
from strandline.nats.settings import NatsSettings

EXPORT_EVERY_S = 600.0
ARTIFACT_LOOK_EVERY_S = 15.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(  # noqa: PLR0913, PLR0917 - one parameter for each option
    ctx: typer.Context,
    address: BucketAddress,
    path: FoldPath,
    prefixes: Prefixes = None,
    backend: BackendOption = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when the fold is up to date.")] = False,
    mode: ModeOption = None,
    repair: RepairOption = Repair.AUTO,
    bootstrap: BootstrapOption = None,
    publish: Annotated[
        str | None,
        typer.Option("--publish", metavar="ADDRESS", help="Publish artifacts of the fold there, one process of many."),
    ] = None,
    export_every_s: Annotated[
        float | None,
        typer.Option(
            "--export-every",
            min=0.1,
            metavar="SECONDS",
            help="Publish so often.",
            show_default=f"{EXPORT_EVERY_S:g} with --publish",
        ),
    ] = None,
    written: Annotated[
        bool, typer.Option("--written", help="Do not sync each batch; a power cut may lose the last seconds.")
    ] = False,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HOST,
    log_format: LogFormatOption = LogFormat.TEXT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep a local copy of a bucket up to date until Ctrl-C or SIGTERM; run it again to resume.

    Data and cursor are one durable write. After a crash only missing updates are fetched. If the bucket has removed
    updates before they were fetched, the fold is repaired first: a mirror from the bucket's listing, an archive from a
    complete listing or an artifact. If neither exists, the command fails with the reason.

    With --publish the fold is exported again and again, by one of the processes that publish there, and old artifacts
    are removed; a failed export is shown and does not end the command. With --once it is published at the end.
    """
    if export_every_s is not None and publish is None and bootstrap is None:
        raise InvalidInput("--export-every needs an address", hint="give --publish ADDRESS")
    if once and export_every_s is not None:
        raise InvalidInput("--once and --export-every exclude each other", hint="--once publishes at the end")
    publish = bootstrap if publish is None and export_every_s is not None else publish
    settings = connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s)
    _, bucket = parse_address(address, settings)
    scope = Scope.of(*(prefixes or ()))
    began = time.monotonic()
    with ExitStack() as stack:
        monitoring = Monitoring(stack.enter_context(command_log("fold", log_format)), metrics_port, metrics_host)
        target = None if publish is None else stack.enter_context(artifacts_at(publish))
        with FoldDisplay(quiet=quiet, log=monitoring.log) as display:
            policy = RepairPolicy(mode=repair.mode, fold_mode=fold_mode(mode))
            fold = _Fold(path, backend, scope, policy, display, synced=not written)
            if bootstrap is not None:
                source = artifacts_at(bootstrap, is_read_only=True, must_exist=False)
                fold.start_from(target if target and bootstrap == publish else stack.enter_context(source))
            exports = None if target is None or once else fold.exports_to(target, export_every_s or EXPORT_EVERY_S)
            alarms = alarms_of(ctx, fold.conditions)
            health = fold_health(display.progress)
            with monitoring.serve(*fold.metric_sources, alarms.metrics, health=health), alarms:
                cursor = asyncio.run(fold.keep(address, settings, exports, once=once))
        if once and target is not None:
            with TransferLine("publishing", quiet=quiet) as line:
                publication = publish_fold(path, target, on_rows=line.add_rows)
                line.say(f"{publication.outcome.name.lower()}: the artifact of revision {publication.manifest.rank:,}")
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
        self,
        path: Path,
        backend: Backend | None,
        scope: Scope,
        policy: RepairPolicy,
        display: FoldDisplay,
        *,
        synced: bool,
    ) -> None:
        self._path = path
        self._backend = backend
        self._scope = scope
        self._policy = policy
        self._display = display
        self._hooks = Hooks(events=Events(display.tell, RepairRecorder(path)))
        self._sync = SYNCED if synced else WRITTEN
        self.artifact = ArtifactState(str(path))
        self._watched: PublishedArtifacts | None = None
        self._open: Callable[[], SnapshotStore] = lambda: open_fold(path, backend, sync=self._sync)

    @property
    def metric_sources(self) -> tuple[MetricSource, ...]:
        """What the fold says of itself, and of its artifacts where it has some."""
        own = fold_metrics(self._display.progress, str(self._path))
        return (own,) if self._watched is None else (own, self.artifact.metrics)

    def conditions(self) -> list[Condition]:
        """Return whether a new fold can start from the newest artifact, once that is known."""
        if self._watched is None or not self.artifact.is_known:
            return []
        return [Condition("artifact_below_floor", str(self._path), self.artifact.problem)]

    def start_from(self, artifacts: PublishedArtifacts) -> None:
        """Make the fold of the newest artifact where it is missing or damaged, and repair it from there."""

        def tell(manifest: Manifest) -> None:
            self._display.say(f"made of the artifact of revision {manifest.rank:,}, {manifest.entries:,} entries")

        self._watched = artifacts
        restorer = ArtifactRestorer(artifacts, self._path, backend=self._backend)
        self._policy = replace(self._policy, restorer=restorer)
        self._open = lambda: open_bootstrapped(
            artifacts,
            self._path,
            backend=self._backend,
            scope=self._scope,
            mode=self._policy.fold_mode,
            sync=self._sync,
            on_bootstrap=tell,
        )

    def exports_to(self, artifacts: PublishedArtifacts, every_s: float) -> Companion:
        """Return what publishes artifacts beside the watch."""
        self._watched = artifacts

        def tell(ended: RoundResult | Exception) -> None:
            if isinstance(ended, Closed):
                return  # the watch has ended
            self.artifact.exported(ended)
            if isinstance(ended, Exception):
                self._display.warn(f"export failed: {ended}; the next one is due in {every_s:g} s")
            elif ended.outcome is RoundOutcome.PUBLISHED and ended.manifest is not None:
                size = f"{ended.uploaded_bytes / 1e6:,.1f} MB uploaded"
                self._display.say(f"published the artifact of revision {ended.manifest.rank:,}, {size}")
                if ended.prune_trouble is not None:
                    self._display.warn(f"old artifacts were not removed: {ended.prune_trouble}")

        return periodic_exports(artifacts, self._path, every_s, tell)

    async def keep(
        self, address: str, settings: NatsSettings, companion: Companion | None, *, once: bool
    ) -> FoldCursor:
        """Connect, and keep the fold up to date until a signal, or once; return its cursor."""
        async with connect_bucket(address, settings) as store:
            if once:
                return await catch_up(store, self._scope, self._open, policy=self._policy, hooks=self._hooks)
            stop = asyncio.Event()
            for number in _STOP_SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            exports = Exports()
            beside = [] if companion is None else [asyncio.ensure_future(companion(exports))]
            if self._watched is not None:
                beside.append(asyncio.ensure_future(self._look_at_artifacts(store, self._watched)))
            try:
                return await watch_applied(
                    store,
                    self._scope,
                    self._open,
                    policy=self._policy,
                    hooks=self._hooks,
                    exports=exports,
                    stop=stop,
                )
            finally:
                for task in beside:
                    task.cancel()
                if beside:
                    await asyncio.wait(beside)

    async def _look_at_artifacts(self, store: KvStore, artifacts: PublishedArtifacts) -> None:
        """Compare the newest artifact with the log of the bucket, now and then."""
        watcher = store.watcher()
        while watcher is not None:
            try:
                retention = await watcher.retention()
                await asyncio.to_thread(self.artifact.look, artifacts, retention)
            except (StrandlineError, OSError):
                self.artifact.failed()  # counted; the next look comes soon
            await asyncio.sleep(ARTIFACT_LOOK_EVERY_S)
