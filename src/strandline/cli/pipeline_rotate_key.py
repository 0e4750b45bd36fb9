"""`strandline pipeline rotate-key`: rotate a tenant's key without scanning again.

    tenant.key         the key, with a line for each epoch
    tenant.key.next    the key with one more, from before the rotation begins until it is the tenant's

Invariants: the new key is durable in its file before anything is stored under it; the old file is replaced after the
store accepts the new key alone; whatever is killed, the same command goes on.
"""

import os
import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.output import AsJson, progress, to_json
from strandline.cli.state_options import (
    DEFAULT_STATE,
    DEFAULT_TENANT,
    CoordinationOption,
    KeyFileOption,
    StateOption,
    TenantOption,
)
from strandline.errors import Conflict, Damaged, InvalidInput
from strandline.files import OsDisk, storage_errors
from strandline.pipeline.identity import DIGEST_BYTES, TenantId, TenantSecretKey
from strandline.pipeline.key_files import KeyMissing, TenantUnknown, make_key, next_key_path, read_key
from strandline.pipeline.rotation import Rotation, RotationPlan
from strandline.pipeline.stores import Stores, open_stores
from strandline.pipeline.tenant_keys import CHECK_KEY
from strandline.pipeline.verify import verify
from strandline.scan.run.scan_run import all_shards
from strandline.scan.state import StateMissing, state_folder, tenant_named

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the steps; change nothing.")]


def rotate_key(
    state: StateOption = DEFAULT_STATE,
    tenant: TenantOption = DEFAULT_TENANT,
    key_file: KeyFileOption = None,
    coordination: CoordinationOption = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Rotate a tenant's key; an interrupted rotation resumes.

    Findings get new ids; their decisions and times stay. No scan of the tenant may run meanwhile.
    """
    folder = state_folder(state)
    if folder is None and key_file is None:
        raise InvalidInput("a state on a server needs --key-file", hint="give the file with the tenant's key")
    if folder is not None and not (folder / "pipeline.db").exists():
        raise StateMissing(folder)
    path = key_file or (folder or Path()) / f"tenant-{tenant}.key"
    address = state if folder is None else str(folder / "pipeline.db")
    with open_stores(address, coordination=coordination) as stores:
        who = tenant_named(tenant)
        rotation = _rotation(stores, who, tenant, path, dry_run=dry_run)
        plan = rotation.plan()
        if not plan.is_begun:
            _refuse_scan_at_work(stores, who)
        if not dry_run:
            _run(stores, rotation, plan, path)
    _tell(tenant, path, plan, dry_run=dry_run, as_json=as_json)


def _rotation(stores: Stores, who: TenantId, tenant: str, path: Path, *, dry_run: bool) -> Rotation:
    """Return the rotation from the key in the file to the next one, which is created if it is missing."""
    (known,) = stores.state.multi_get(who, [CHECK_KEY])
    if known is None:
        raise TenantUnknown(tenant)
    old = read_key(path)
    if old is None:
        raise KeyMissing(path)
    new = read_key(next_key_path(path))
    if new is None:
        tried = TenantSecretKey(old + secrets.token_bytes(DIGEST_BYTES))
        Rotation(stores.sql, who, old, tried).plan()  # what is refused makes no file
        _refuse_scan_at_work(stores, who)
        new = tried if dry_run else make_key(next_key_path(path), before=old)
    return Rotation(stores.sql, who, old, new)


def _refuse_scan_at_work(stores: Stores, who: TenantId) -> None:
    """Raise `Conflict` while workers hold shards: their results would be rejected. A run without workers can wait."""
    now_ns = time.time_ns()
    after = None
    while page := stores.coordinator.list_runs(who, after):
        for run in page:
            if not run.over and any(shard.leased(now_ns) for shard in all_shards(stores.coordinator, run.key)):
                raise Conflict("a scan of this tenant is running", hint="rotate the key after it has ended")
        after = page[-1].run


def _run(stores: Stores, rotation: Rotation, plan: RotationPlan, path: Path) -> None:
    def check() -> None:
        found = verify(stores.database, lambda _: None)
        if found.problems:
            safe = "the rotation is not finished, and both keys are kept; look at `strandline pipeline verify`"
            raise Damaged(stores.database.describe(), found.problems[0].problem, safe=safe)

    with progress("rotating", plan.pages) as advance:
        rotation.run(check, lambda _, pages: advance(pages))
    with storage_errors(path):
        os.replace(next_key_path(path), path)  # noqa: PTH105 - what the crash tests stop
        OsDisk().sync_folder(path.parent)


def _tell(tenant: str, path: Path, plan: RotationPlan, *, dry_run: bool, as_json: bool) -> None:
    steps = [*plan.describe(), f"replace {path} by {next_key_path(path).name}, which begins with the same key"]
    if as_json:
        record = {"tenant": tenant, "findings": plan.findings, "pages": plan.pages, "resumed": plan.is_begun}
        print(to_json({**record, "steps": steps, "applied": not dry_run, "key_file": path}))
        return
    for step in steps:
        print(f"would {step}" if dry_run else f"done: {step}")
    if not dry_run:
        print(f"keep a copy of {path}; every machine that scans for this tenant needs it")
