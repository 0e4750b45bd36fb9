"""The run of a scan: found, begun or joined, and ended.

    run id       derived from the scan (tenant, policy, sources) and an ordinal
    runs/<digest of the scan>       u64 ordinal from which to look for the current run: a hint, which may be old
    parked/<digest of the scan>     u64 ordinals of runs with parked shards

Two drivers of one scan derive the same run. Each writes a manifest of its own; the one whose shards are registered
first has begun the run, and the other joins it. A run that is over is never touched again: the next run has the next
ordinal.

Invariants: a run has shards only after its manifest is durable; it is completed only when no shard is active or parked;
a manifest is deleted only after its run is over.
"""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from strandline.pipeline.coordination import Coordinator
from strandline.pipeline.state import Put
from strandline.pipeline.stores import Stores
from strandline.protocol.canonical import derive_64, to_signed, u64
from strandline.protocol.errors import (
    RegistrationPending,
    RunExists,
    RunNotFound,
    RunNotInitializing,
    RunTerminal,
    RunUnfinished,
    ShardNotParked,
    ShardTerminal,
)
from strandline.protocol.operations import op_id
from strandline.protocol.runs import InitialShard, RunRecord, RunStatus
from strandline.protocol.shards import OpKind, RunKey, ShardRecord, ShardStatus
from strandline.scan.plan.planner import Plan
from strandline.scan.policies import remember_policy
from strandline.scan.request import ScanRequest
from strandline.scan.run.manifest import Manifest, delete_manifest, read_manifest, rows_of, write_head, write_manifest
from strandline.scan.run.orphan_manifests import delete_orphans, forget_manifest, record_manifest
from strandline.scan.run.shard_cuts import initial_shards, shards_of_chunks

_PENDING_PATIENCE_S = 5.0
_PENDING_PAUSE_S = 0.2


@dataclass(frozen=True)
class ScanRun:
    """A run that has shards, and its manifest."""

    key: RunKey
    ordinal: int
    manifest: Manifest


def run_key(request: ScanRequest, ordinal: int) -> RunKey:
    """Return the key of a scan's run."""
    return RunKey(request.tenant, derive_64("strandline/scan-run/v1", request.digest + u64(ordinal)) >> 1)


def find_run(stores: Stores, request: ScanRequest) -> ScanRun | None:
    """Return the current run of a scan, if it has shards; None if no run can be resumed."""
    ordinal, record = _current(stores, request)
    if record is None or record.status != RunStatus.ACTIVE:
        return None
    found = _opened(stores, request, ordinal)
    if found is None:  # its manifest is gone: no driver can resume it
        with suppress(RunTerminal):
            stores.coordinator.fail_run(time.time_ns(), record.key, _op(record.key, OpKind.FAIL_RUN))
        return find_run(stores, request)
    return found


def begin_run(stores: Stores, request: ScanRequest, plan: Plan) -> tuple[ScanRun, bool]:
    """Begin a run over the items of a plan, or join another driver's; return it, and whether it is ours."""
    remember_policy(stores, request.tenant, request.policy.record)
    state, number, now = stores.state, secrets.randbits(63), time.time_ns()
    used = {
        run.manifest.number for run in (find_run(stores, request), *parked_runs(stores, request)) if run is not None
    }
    delete_orphans(state, request.tenant, request.digest, used, now)
    record_manifest(state, request.tenant, request.digest, number, now)
    manifest = write_manifest(state, request.tenant, number, plan.todo(), [base.policy for base in plan.bases])
    shards = initial_shards(manifest, (batch["size"] for batch in plan.todo()), request.parallelism)
    run, is_ours = _begun(stores, request, shards, manifest)
    forget_manifest(state, request.tenant, request.digest, number)
    return run, is_ours


def begin_written_run(stores: Stores, request: ScanRequest, manifest: Manifest) -> tuple[ScanRun, bool]:
    """Begin a run over a manifest whose chunks tasks wrote, or join another driver's; see `begin_run`."""
    remember_policy(stores, request.tenant, request.policy.record)
    write_head(stores.state, request.tenant, manifest)
    run, is_ours = _begun(stores, request, shards_of_chunks(manifest, request.parallelism), manifest)
    forget_manifest(stores.state, request.tenant, request.digest, manifest.number)
    return run, is_ours


def _begun(
    stores: Stores, request: ScanRequest, shards: Sequence[InitialShard], manifest: Manifest
) -> tuple[ScanRun, bool]:
    while True:
        ordinal, record = _current(stores, request)
        key = run_key(request, ordinal)
        if record is None or record.status == RunStatus.INITIALIZING:
            if _registered(stores.coordinator, key, manifest, shards):
                return ScanRun(key, ordinal, manifest), True
        elif (found := find_run(stores, request)) is not None:
            delete_manifest(stores.state, request.tenant, manifest)
            return found, False


def end_run(stores: Stores, request: ScanRequest, run: ScanRun) -> bool:
    """End a run without active shards, and return True; a run with parked shards is kept for later."""
    now = time.time_ns()
    progress = stores.coordinator.progress(run.key)
    if progress.active:
        return False
    aside = set(parked_ordinals(stores, request))
    if progress.parked:
        aside.add(run.ordinal)
    else:
        try:
            stores.coordinator.complete_run(now, run.key, _op(run.key, OpKind.COMPLETE_RUN))
        except RunUnfinished:
            return False
        except RunTerminal:
            pass
        aside.discard(run.ordinal)
    hint = max(_hint(stores, request), run.ordinal + 1)
    ordinals = b"".join(map(u64, sorted(aside)))
    puts = [Put(_hint_key(request), u64(hint)), Put(_parked_key(request), ordinals)]
    stores.state.apply_batch(request.tenant, puts)
    if not progress.parked:
        delete_manifest(stores.state, request.tenant, run.manifest)
    return True


def parked_ordinals(stores: Stores, request: ScanRequest) -> list[int]:
    """Return the ordinals of runs with parked shards."""
    (value,) = stores.state.multi_get(request.tenant, [_parked_key(request)])
    ordinals: list[int] = np.frombuffer(value or b"", "<u8").tolist()
    return ordinals


def parked_runs(stores: Stores, request: ScanRequest) -> list[ScanRun]:
    """Return the runs of a scan with parked shards."""
    found = [_opened(stores, request, ordinal) for ordinal in parked_ordinals(stores, request)]
    return [run for run in found if run is not None]


def all_shards(coordinator: Coordinator, run: RunKey) -> list[ShardRecord]:
    """Return the shards of a run."""
    shards: list[ShardRecord] = []
    while page := coordinator.list_shards(run, shards[-1].shard if shards else None):
        shards += page
    return shards


def parked_shards(stores: Stores, run: ScanRun) -> list[ShardRecord]:
    """Return the parked shards of a run."""
    return [shard for shard in all_shards(stores.coordinator, run.key) if shard.status == ShardStatus.PARKED]


def unpark(stores: Stores, run: ScanRun) -> dict[int, int]:
    """Make the parked shards of a run active again; return under which fence each starts anew."""
    forgiven = {}
    for shard in parked_shards(stores, run):
        op = op_id(run.key.run, shard.shard, shard.fence, OpKind.UNPARK)
        with suppress(ShardNotParked, ShardTerminal):  # another driver was first
            stores.coordinator.unpark_shard(time.time_ns(), shard.key, op)
        forgiven[shard.shard] = shard.fence + 1
    return forgiven


def _current(stores: Stores, request: ScanRequest) -> tuple[int, RunRecord | None]:
    """Return the first ordinal whose run is not over, from the hint on, and that run if there is one."""
    ordinal = _hint(stores, request)
    aside = set(parked_ordinals(stores, request))
    while True:
        try:
            record = stores.coordinator.get_run(run_key(request, ordinal))
        except RunNotFound:
            return ordinal, None
        if not record.over and ordinal not in aside:
            return ordinal, record
        ordinal += 1


def _opened(stores: Stores, request: ScanRequest, ordinal: int) -> ScanRun | None:
    key = run_key(request, ordinal)
    try:
        first = stores.coordinator.list_shards(key, shards_max=1)
    except RunNotFound:
        return None
    manifest = read_manifest(stores.state, request.tenant, rows_of(first[0].spec).manifest) if first else None
    return None if manifest is None else ScanRun(key, ordinal, manifest)


def _registered(coordinator: Coordinator, key: RunKey, manifest: Manifest, shards: Sequence[InitialShard]) -> bool:
    """Give a run its shards; return False if another driver did, or was about to."""
    with suppress(RunExists):  # long ago: its first operation is forgotten
        coordinator.create_run(time.time_ns(), key, _op(key, OpKind.CREATE_RUN))
    op = op_id(key.run, to_signed(manifest.number), 0, OpKind.REGISTER_SHARDS)
    give_up_s = time.monotonic() + _PENDING_PATIENCE_S
    while True:
        try:
            coordinator.register_shards(time.time_ns(), key, shards, op)
        except (RunNotInitializing, RunTerminal):
            return False
        except RegistrationPending:
            if time.monotonic() >= give_up_s:  # the driver that began it is gone
                coordinator.cancel_run(time.time_ns(), key, _op(key, OpKind.CANCEL_RUN))
                return False
            time.sleep(_PENDING_PAUSE_S)
        else:
            return True


def _op(key: RunKey, kind: OpKind) -> int:
    return op_id(key.run, 0, 0, kind)


def _hint_key(request: ScanRequest) -> bytes:
    return b"runs/" + request.digest


def _parked_key(request: ScanRequest) -> bytes:
    return b"parked/" + request.digest


def _hint(stores: Stores, request: ScanRequest) -> int:
    (value,) = stores.state.multi_get(request.tenant, [_hint_key(request)])
    return 0 if value is None else int.from_bytes(value, "little")
