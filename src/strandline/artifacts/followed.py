"""A followed fold that starts from artifacts, is repaired from them, and publishes its own.

    with strandline.follow(bucket, "prices.fold", bootstrap="s3://bucket/prices", export_every_s=600) as fold:
        fold.wait_current()

Invariants: those of `strandline.fold.followed_fold`. A fold that is absent, empty or damaged is made of the newest
artifact that fits; the watch then takes only what came after it, and decides as for every fold whether the log still
continues there. A failed export never ends the fold.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.errors import InvalidInput
from strandline.fold import ALL, Backend, Batching, Exports, FoldMode, RepairPolicy, Scope
from strandline.fold.followed_fold import FollowedFold
from strandline.fold.followed_fold import follow as follow_fold
from strandline.kv import UpdateBatch

if TYPE_CHECKING:
    from strandline.artifacts.published import PublishedArtifacts
    from strandline.artifacts.rounds import RoundResult
    from strandline.fold.background_watch import Companion, Connect
    from strandline.fold.store import SnapshotStore
    from strandline.nats.settings import NatsSettings

EXPORTED_SUFFIX = ".exported"


def follow(  # noqa: PLR0913 - each is a choice with a default
    bucket: "str | Connect",
    path: Path | str,
    *,
    scope: Scope = ALL,
    backend: Backend | None = None,
    mode: FoldMode | None = None,
    policy: RepairPolicy | None = None,
    batching: Batching | None = None,
    on_change: Callable[[UpdateBatch], object] | None = None,
    settings: "NatsSettings | None" = None,
    bootstrap: "str | PublishedArtifacts | None" = None,
    export_every_s: float | None = None,
    on_export: "Callable[[RoundResult | Exception], object] | None" = None,
) -> FollowedFold:
    """Keep a fold of a bucket up to date in the background; use it in a `with` block, or close it.

    `bucket` is an address (`nats://host:port/bucket`, `tls://user:password@host/bucket`), with `settings` for creds and
    certificates; or a callable that connects, for other sources. `path` is where the fold is kept, and its name or
    `backend` says by what (`strandline.fold.backends`). `mode` is what a new fold is to its bucket: a mirror drops what
    the bucket drops, an archive keeps it (`FoldMode`). `on_change` is called with every stored batch, in the
    background's thread; what it raises ends the fold. Returns when the watch has begun, not when it is current.

    `bootstrap` is the address of published artifacts (`s3://bucket/prices`): an absent or damaged fold is made of the
    newest that fits, and repairs take it. With `export_every_s` the fold is exported there, by one process of those
    that follow the bucket so; `on_export` is told how each round ended.
    """
    if export_every_s is not None and bootstrap is None:
        raise InvalidInput("exports need an address", hint="give bootstrap, such as s3://bucket/prices")
    if export_every_s is not None and export_every_s <= 0:
        raise InvalidInput(f"exports every {export_every_s} s are none")
    open_store: Callable[[], SnapshotStore] | None = None
    companion: Companion | None = None
    if bootstrap is not None:
        from strandline.artifacts.published import PublishedArtifacts  # noqa: PLC0415 - only with artifacts
        from strandline.artifacts.restorer import ArtifactRestorer, open_bootstrapped  # noqa: PLC0415

        if isinstance(bootstrap, str):
            artifacts = PublishedArtifacts.open(bootstrap, is_read_only=export_every_s is None)
        else:
            artifacts = bootstrap
        policy = policy or RepairPolicy()
        if policy.restorer is None:
            policy = replace(policy, restorer=ArtifactRestorer(artifacts, path, backend=backend))
        fold_mode = mode or policy.fold_mode
        open_store = partial(open_bootstrapped, artifacts, path, backend=backend, scope=scope, mode=fold_mode)
        if export_every_s is not None:
            companion = periodic_exports(artifacts, Path(path), export_every_s, on_export)
    return follow_fold(
        bucket,
        path,
        scope=scope,
        backend=backend,
        mode=mode,
        policy=policy,
        batching=batching,
        on_change=on_change,
        settings=settings,
        open_store=open_store,
        companion=companion,
    )


def periodic_exports(
    artifacts: "PublishedArtifacts",
    path: Path,
    every_s: float,
    on_export: "Callable[[RoundResult | Exception], object] | None" = None,
) -> "Companion":
    """Return what exports a watched fold again and again, one process of a fleet at a time."""
    from strandline.artifacts.export_lease import ExportLease, ObjectCell  # noqa: PLC0415 - only with artifacts
    from strandline.artifacts.rounds import run_export_round, watched_export  # noqa: PLC0415

    lease = ExportLease(ObjectCell(artifacts.objects), f"{socket.gethostname()}/{os.getpid()}", ttl_s=every_s)
    folder = path.with_name(f".{path.name}{EXPORTED_SUFFIX}")

    async def companion(exports: Exports) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                cursor = await exports.request(lambda _, cursor: cursor)
                if not cursor.revision:
                    continue  # there is nothing yet that an artifact could be of
                ended: RoundResult | Exception = await run_export_round(
                    lease, watched_export(exports), artifacts, folder
                )
            except Exception as error:  # noqa: BLE001 - a failed export never ends the fold; it is told
                if exports.is_closed:
                    return  # the fold ends, and the round with it
                ended = error
            if on_export is not None:
                on_export(ended)

    return companion
