"""`strandline fold repair`: compare a fold with its bucket and repair it, or print what a repair would change."""

import asyncio
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from strandline.artifacts import ArtifactRestorer
from strandline.cli.artifact_options import artifacts_at
from strandline.cli.fold_display import FoldDisplay
from strandline.cli.fold_options import (
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
    check_existing,
    connection_settings,
    fold_mode,
    open_existing,
)
from strandline.cli.output import AsJson, emit, to_json
from strandline.cli.shown import escape, json_field
from strandline.events import Events
from strandline.fold.addresses import connect_bucket, parse_address
from strandline.fold.backends import open_fold
from strandline.fold.cursor import FoldCursor
from strandline.fold.last_repair import RepairRecorder
from strandline.fold.repair import KeyRepair, RepairPolicy, RepairPreview, preview_repair
from strandline.fold.scopes import Scope
from strandline.fold.watch import Hooks, repair_fold
from strandline.nats.settings import NatsSettings


def repair_(  # noqa: PLR0913, PLR0917 - one parameter for each option
    address: BucketAddress,
    path: FoldPath,
    prefixes: Prefixes = None,
    mode: ModeOption = None,
    repair: RepairOption = Repair.AUTO,
    bootstrap: BootstrapOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print which keys would change and why; change nothing.")
    ] = False,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    as_json: AsJson = False,
) -> None:
    """Make a fold equal to its bucket, whatever its cursor says; also after --prefix has changed.

    An archive whose bucket evicts current values (by age, by a time to live, because it is full) is not repaired from
    the listing, because a missing key may not have been deleted. `--mode mirror` turns an archive into a mirror, and
    removes all keys that the bucket no longer has.
    """
    settings = connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s)
    _, bucket = parse_address(address, settings)
    scope, policy = Scope.of(*(prefixes or ())), RepairPolicy(mode=repair.mode, fold_mode=fold_mode(mode))
    check_existing(path)
    with ExitStack() as stack:
        if bootstrap is not None:
            artifacts = stack.enter_context(artifacts_at(bootstrap, is_read_only=True))
            policy = replace(policy, restorer=ArtifactRestorer(artifacts, path))
        if dry_run:
            _tell(asyncio.run(_preview(address, settings, path, scope, policy)), as_json=as_json)
            return
        display = stack.enter_context(FoldDisplay())
        hooks = Hooks(events=Events(display.tell, RepairRecorder(path)))
        cursor = asyncio.run(_repair(address, settings, path, scope, policy, hooks))
    emit(
        {
            "bucket": bucket,
            "path": path,
            "scope": str(scope),
            "mode": cursor.mode.name.lower(),
            "revision": cursor.revision,
        },
        as_json=as_json,
    )


async def _preview(
    address: str, settings: NatsSettings, path: Path, scope: Scope, policy: RepairPolicy
) -> RepairPreview:
    fold = open_existing(path)
    try:
        async with connect_bucket(address, settings) as store:
            return await preview_repair(store, scope, fold, policy)
    finally:
        fold.close()


async def _repair(
    address: str, settings: NatsSettings, path: Path, scope: Scope, policy: RepairPolicy, hooks: Hooks
) -> FoldCursor:
    async with connect_bucket(address, settings) as store:
        return await repair_fold(store, scope, lambda: open_fold(path), policy=policy, hooks=hooks)


def _tell(preview: RepairPreview, *, as_json: bool) -> None:
    for change in preview.changes:
        action = "delete" if change.action is KeyRepair.DELETE else "take"
        if as_json:
            print(to_json(dict([json_field("key", change.key), ("action", action), ("why", change.why)])))
        else:
            print(f"{action}  {escape(change.key)}  ({change.why})")
    counts = Counter(change.action for change in preview.changes)
    summary = {
        "plan": preview.plan,
        "reason": preview.reason,
        "needed": preview.is_needed,
        "refused": preview.refusal,
        "take": counts[KeyRepair.TAKE],
        "delete": counts[KeyRepair.DELETE],
    }
    emit(summary if as_json else {**summary, "plan": preview.plan.name.lower().replace("_", " ")}, as_json=as_json)
