"""Workers that meet: what tests of several stores let them do, and what must hold afterwards."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from strandline.errors import Unavailable, UnknownOutcome
from strandline.pipeline.coordination import Coordinator, NoneAvailable, RecordStore, Throttled
from strandline.pipeline.coordination.record_store import Plan, Result, RunChange, ShardChange
from strandline.protocol.errors import AlreadyLeased, Contended, LeaseLost, ShardTerminal
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard, Progress, RunStatus
from strandline.protocol.shards import Cursor, Lease, RunKey, ShardKey, ShardSpec
from tests.waiting import PATIENCE_S

TENANT = b"\xa1" * 32
OTHER_TENANT = b"\xa2" * 32
RUN = RunKey(TENANT, 7)
SECOND_NS = 1_000_000_000
TTL_NS = 10 * SECOND_NS
CHECKPOINTS = 4
T = TypeVar("T")


def begin_run(store: RecordStore, shards: int, run: RunKey = RUN) -> Coordinator:
    """Make a run of shards that each cover all keys, and return a coordinator over it."""
    coordinator = Coordinator(store, lease_ttl_ns=TTL_NS)
    coordinator.create_run(1, run, op_id=1)
    coordinator.register_shards(1, run, [InitialShard(shard, ShardSpec()) for shard in range(shards)], op_id=2)
    return coordinator


def at_once(count: int, work: Callable[[int], object], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Run something in several threads that begin together, and something else here; the first error is raised."""
    ready = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            ready.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        meanwhile()
    finally:
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def claim_all(coordinator: Coordinator, now: int, worker: int) -> list[Lease]:
    """Claim until nothing is left."""
    claimed = []
    while True:
        match coordinator.claim_next_available(now, RUN, worker):
            case Acquired(lease=lease):
                claimed.append(lease)
            case Throttled(retry_after_ns=wait_ns):
                time.sleep(wait_ns / SECOND_NS)
                now += wait_ns
            case NoneAvailable():
                return claimed


def claim_twice_over(store: RecordStore, workers: int, shards: int) -> None:
    """Let workers claim every shard at once, and again when the leases ended: one winner each, under a new fence."""
    begin_run(store, shards)
    for fence, now in ((1, 100), (2, 100 + 3 * TTL_NS)):
        claimed: list[Lease] = []
        coordinators = [Coordinator(store, lease_ttl_ns=TTL_NS) for _ in range(workers)]

        def claim(
            number: int, made: Sequence[Coordinator] = coordinators, into: list[Lease] = claimed, now: int = now
        ) -> None:
            into.extend(claim_all(made[number], now, number))

        at_once(workers, claim)
        assert sorted(lease.shard for lease in claimed) == list(range(shards))
        assert {lease.fence for lease in claimed} == {fence}


def acquire_one(store: RecordStore, workers: int) -> None:
    """Let workers take the same shard at once, and only one of them have it."""
    begin_run(store, 1)
    won: list[Lease] = []

    def acquire(number: int) -> None:
        with suppress(AlreadyLeased, Contended):
            won.append(Coordinator(store, lease_ttl_ns=TTL_NS).acquire_and_restore(50, ShardKey(*RUN, 0), number).lease)

    at_once(workers, acquire)
    assert len(won) == 1
    assert Coordinator(store).get_shard(ShardKey(*RUN, 0)).owner == won[0].worker


def survive_outage(store: RecordStore, outage: Callable[[], None], shards: int = 60, workers: int = 4) -> None:
    """Let workers scan while the server is lost and comes back: every shard is done, to its end."""
    coordinator = begin_run(store, shards)
    until = time.monotonic() + PATIENCE_S

    def lose_server() -> None:
        time.sleep(0.15)
        outage()

    at_once(workers, lambda number: _scan_all(Coordinator(store, lease_ttl_ns=SECOND_NS), number, until), lose_server)
    assert coordinator.progress(RUN) == Progress(done=shards)
    assert {shard.cursor.key for shard in coordinator.list_shards(RUN)} == {_key(CHECKPOINTS + 1)}


def _scan_all(coordinator: Coordinator, worker: int, until: float) -> None:
    """Claim shards and scan them to their end, as a worker does that an outage only delays."""
    while True:
        match insisted(lambda: coordinator.claim_next_available(time.time_ns(), RUN, worker), until):
            case Acquired() as acquired:
                with suppress(LeaseLost, ShardTerminal):
                    _scan(coordinator, acquired, until)
            case Throttled(retry_after_ns=wait_ns):
                time.sleep(wait_ns / SECOND_NS)
            case NoneAvailable(earliest_deadline=None):
                return
            case NoneAvailable():
                time.sleep(0.02)


def _scan(coordinator: Coordinator, acquired: Acquired, until: float) -> None:
    lease = acquired.lease
    for number in range(int(acquired.cursor.key or 0) + 1, CHECKPOINTS + 2):
        act = coordinator.checkpoint if number <= CHECKPOINTS else coordinator.complete
        do = partial(act, lease=lease, cursor=Cursor(_key(number)), op_id=100 * lease.fence + number)
        insisted(lambda do=do: do(time.time_ns()), until)  # type: ignore[misc]
        # What was acknowledged is there, whatever happened to the server meanwhile.
        assert insisted(lambda: coordinator.get_shard(lease.key), until).cursor.key >= _key(number)


def _key(number: int) -> bytes:
    return b"%04d" % number


def insisted(call: Callable[[], T], until: float) -> T:
    """Repeat a call while it fails in ways that allow to repeat it."""
    while True:
        try:
            return call()
        except (Unavailable, UnknownOutcome):
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def refuse_stale_plans(store: RecordStore) -> None:
    """Commit plans of which one record is not as it was read: all of each is refused, and nothing written."""
    begin_run(store, 3)
    keys = [ShardKey(*RUN, 0), ShardKey(*RUN, 1)]
    first, second = store.load_shards(keys)
    run = store.load_run(RUN)
    assert first is not None
    assert second is not None
    assert run is not None
    moved = ShardChange(first, first.record._replace(fence=1))
    stale = ShardChange(second._replace(version=second.version + 1), second.record._replace(fence=1))
    again = ShardChange(None, second.record)
    failed = run.record._replace(status=RunStatus.FAILED, completed_at=5)
    older = run._replace(version=run.version - 1)
    for plan in (
        Plan(5, (moved, stale)),
        Plan(5, (moved, again)),
        Plan(5, (moved,), RunChange(older, failed)),
        Plan(5, (moved,), RunChange(None, failed)),
        Plan(5, (moved,), unchanged_run=older),
    ):
        assert store.commit(plan) is Result.CHANGED
    assert store.load_shards(keys) == [first, second]
    assert store.load_run(RUN) == run
    assert store.commit(Plan(5, (moved,), unchanged_run=run)) is Result.DONE
    assert store.commit(Plan(5, (moved,), unchanged_run=run)) is Result.CHANGED


def processes_meet(store: RecordStore, kind: str, where: str, name: str) -> None:
    """Let processes take one shard in turns: every fence is given once, and each process sees them grow."""
    begin_run(store, 1)
    wins, root = 8, Path(__file__).parents[3]
    command = [sys.executable, "-m", "tests.pipeline.coordination.rival", kind, where, name, str(wins)]
    rivals = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        fences = [[int(line) for line in rival.communicate(timeout=PATIENCE_S)[0].split()] for rival in rivals]
    finally:
        for rival in rivals:
            rival.kill()
    assert [rival.returncode for rival in rivals] == [0] * len(rivals)
    assert all(won == sorted(set(won)) for won in fences)
    assert sorted(fence for won in fences for fence in won) == list(range(1, wins * len(rivals) + 1))
