"""Workers share a run: they split, wait, die, wake up as zombies, and put aside what kills them."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline.clock import SystemClock
from strandline.errors import StrandlineError, Unavailable
from strandline.journal import Journal
from strandline.pipeline.held_shard import HeldShard, claim
from strandline.protocol.shards import ShardStatus
from strandline.scan import retries
from strandline.scan.plan.planner import Reason
from strandline.scan.run import shard_cuts
from strandline.scan.run.scan_run import all_shards, begin_run, end_run, find_run, parked_runs, parked_shards
from strandline.scan.sources import Content, JournalSource
from strandline.scan.worker import shard_scanner
from strandline.scan.worker.worker import work
from strandline.scan.workers import WorkerTask
from tests.scan.dying import LEASE_S, forked, hours_later
from tests.scan.things import READS, Thing, Things
from tests.scan.threaded_workers import TENANT, ThreadWorkers, made, on_each_look, plan_of, request_for, scanned
from tests.servers_postgres import running_postgres
from tests.spark.rows import rows_of
from tests.waiting import PATIENCE_S


def numbered(count: int, text: str = "alpha_{number:03}") -> dict[str, Thing | str]:
    return {f"item {number:04}": text.format(number=number) for number in range(count)}


def test_two_drivers_work_on_one_run(things: Things, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_scanner, "PAGE_ITEMS_MAX", 5)
    things.write(numbered(120))
    request = request_for(address, things)
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda _: scanned(request, ThreadWorkers(1)), range(3)))
    assert [len(outcome.findings) for outcome in outcomes] == [120] * 3
    with request.open_stores() as stores:
        rows = rows_of(stores, TENANT)
        done = [run.run for run in stores.coordinator.list_runs(TENANT)]
    assert len(rows["observations"]) == len(rows["ledger"]) == 120
    assert max(READS.values()) <= len(outcomes), "an item is read again only by a driver that planned it too early"
    assert len(done) <= 3


def test_two_plans_of_one_scan_come_to_one_run(things: Things, address: str) -> None:
    things.write(numbered(5))
    request = request_for(address, things)
    with request.open_stores() as stores:
        plans = [plan_of(stores, request) for _ in range(2)]
        one, is_ours = begin_run(stores, request, plans[0])
        other, is_theirs = begin_run(stores, request, plans[1])
        assert (is_ours, is_theirs) == (True, False)
        assert one == other
        assert find_run(stores, request) == one
        assert not end_run(stores, request, one), "shards are left"


def test_a_zombie_whose_lease_is_gone_changes_nothing(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    things.write(numbered(6))
    request = request_for(address, things, lease_ttl_s=0.3)
    sleeping, awake = threading.Event(), threading.Event()

    def sleeps(_: Content) -> None:
        if threading.current_thread().name == "zombie" and not awake.is_set():
            sleeping.set()
            awake.wait(PATIENCE_S)

    on_each_look(monkeypatch, sleeps)
    with request.open_stores() as stores:
        run, _ = begin_run(stores, request, plan_of(stores, request))
        task = WorkerTask(request, run.key, run.manifest.number, 2)
        zombie = threading.Thread(target=work, args=(task, 0), name="zombie")
        zombie.start()
        assert sleeping.wait(PATIENCE_S)
        work(task, None)
        shards = all_shards(stores.coordinator, run.key)
        before = rows_of(stores, TENANT), shards
        assert [shard.status for shard in shards] == [ShardStatus.DONE]
        awake.set()
        zombie.join(PATIENCE_S)
        assert not zombie.is_alive()
        assert (rows_of(stores, TENANT), all_shards(stores.coordinator, run.key)) == before
        assert len(before[0]["observations"]) == 6


def test_a_long_shard_is_split_while_it_runs(things: Things, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_scanner, "PAGE_ITEMS_MAX", 4)
    monkeypatch.setattr(shard_scanner, "SPLIT_LOOK_S", 0.0)
    monkeypatch.setattr(shard_cuts, "SPLIT_WEIGHT_MIN", 8 * 4096)
    on_each_look(monkeypatch, lambda _: time.sleep(0.005))
    things.write(numbered(200))
    request = request_for(address, things)
    outcome = scanned(request, ThreadWorkers(4))
    assert outcome.is_whole
    assert max(READS.values()) <= 2
    with request.open_stores() as stores:
        (run,) = stores.coordinator.list_runs(TENANT)
        shards = all_shards(stores.coordinator, run.key)
    assert sum(shard.parent is not None for shard in shards) >= 3
    assert {shard.status for shard in shards} == {ShardStatus.DONE}
    assert outcome.progress is not None
    assert outcome.progress.done.items == 200


def poisoned(task: WorkerTask) -> None:
    """Work in children, each of which dies at the item that kills."""

    def dies(content: Content) -> None:
        if content.size == 7:
            os.kill(os.getpid(), signal.SIGKILL)

    on_each_look(pytest.MonkeyPatch(), dies)
    work(task, None)


class DyingWorkers(ThreadWorkers):
    """Workers in children; a new one for each that dies."""

    deaths = 0

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:  # noqa: ARG002
        while self._dies(task(1)):
            self.deaths += 1
            assert self.deaths < 40
            poll()

    def _dies(self, task: WorkerTask) -> bool:
        with hours_later(self.deaths):
            return forked(lambda: poisoned(task)) == -signal.SIGKILL


def test_an_item_that_kills_is_put_aside_alone_and_can_be_tried_again(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_scanner, "PAGE_ITEMS_MAX", 4)
    things.write({**numbered(20), "item 0010": "killing", "item 0011": "alpha_777"})
    request = request_for(address, things, lease_ttl_s=LEASE_S)
    workers = DyingWorkers()
    outcome = scanned(request, workers)
    assert workers.deaths >= shard_scanner.PARKED_AFTER
    assert (outcome.parked_shards, outcome.unseen) == (1, 1)
    assert [(note.path, note.code) for note in outcome.notes] == [("item 0010", "NOT_SEEN")]
    assert len(outcome.findings) == 19
    with request.open_stores() as stores:
        (run,) = parked_runs(stores, request)
        (shard,) = parked_shards(stores, run)
    again = DyingWorkers()
    assert scanned(request, again).reasons == {Reason.DONE: 19, Reason.PARKED: 1}
    assert again.deaths == 0
    last = scanned(request_for(address, things, retry_parked=True))
    assert (last.parked_shards, last.unseen, last.is_whole) == (0, 0, True)
    with request.open_stores() as stores:
        assert parked_runs(stores, request) == []
        assert find_run(stores, request) is None
    assert scanned(request).reasons == {Reason.DONE: 20}
    assert shard.status == ShardStatus.PARKED


def test_what_an_earlier_scan_read_says_nothing_of_what_is_put_aside(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_scanner, "PARKED_AFTER", 1)

    def append(*values: bytes) -> None:
        with Journal.open(tmp_path / "j") as journal:
            journal.append(values)

    class Later(ThreadWorkers):
        def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
            append(b"nothing")
            return super().run(task, shards, poll)

    append(b"alpha_100")
    request = request_for(address, JournalSource.at(tmp_path / "j"), lease_ttl_s=LEASE_S)
    first = scanned(request, Later())
    assert (first.unseen, len(first.findings)) == (0, 1)
    append(*[b"and more"] * 5)  # seven are what kills
    outcome = scanned(request, DyingWorkers())
    assert (outcome.parked_shards, outcome.unseen, outcome.is_whole) == (1, 1, False)


def test_a_server_that_is_gone_is_waited_for(things: Things, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_scanner, "PAGE_ITEMS_MAX", 3)
    things.write(numbered(30))
    with running_postgres() as server:
        address = made(server.address("postgres"))
        request = request_for(address, things, lease_ttl_s=30.0)
        first, stopped, mended, over = threading.Lock(), threading.Event(), threading.Event(), threading.Event()

        def stops(_: Content) -> None:
            if len(READS) > 10 and first.acquire(blocking=False):
                server.stop()
                stopped.set()

        def mends() -> None:
            stopped.wait()
            server.start()
            mended.set()
            over.wait()  # the server ends with the thread that started it

        on_each_look(monkeypatch, stops)
        mending = threading.Thread(target=mends)
        mending.start()
        try:
            assert scanned(request).is_whole
            assert mended.is_set()
        finally:
            stopped.set()
            over.set()
            mending.join()


def test_a_server_that_stays_away_is_a_typed_error_and_the_next_run_finishes(
    things: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_scanner, "PAGE_ITEMS_MAX", 3)
    monkeypatch.setattr(retries, "PATIENCE_S", 0.2)
    things.write(numbered(30))
    with running_postgres() as server:
        request = request_for(made(server.address("postgres")), things, lease_ttl_s=LEASE_S)
        stopped = threading.Event()

        def stops(_: Content) -> None:
            if len(READS) > 10 and not stopped.is_set():
                stopped.set()
                server.stop()

        on_each_look(monkeypatch, stops)
        with pytest.raises(StrandlineError) as caught:
            scanned(request)
        assert caught.value.retryable
        assert isinstance(caught.value, Unavailable)
        server.start()
        with hours_later():
            outcome = scanned(request)
        assert outcome.is_whole
        assert len(outcome.findings) == 30


def test_a_shard_of_a_worker_that_died_is_taken_over_when_its_lease_ends(things: Things, address: str) -> None:
    things.write(numbered(3))
    request = request_for(address, things, lease_ttl_s=0.5)
    with request.open_stores() as stores:
        run, _ = begin_run(stores, request, plan_of(stores, request))
        begun_s = time.monotonic()
        assert isinstance(claim(stores.coordinator, run.key, 7, SystemClock()), HeldShard)
        work(WorkerTask(request, run.key, run.manifest.number, 1), 0)
        assert 0.4 < time.monotonic() - begun_s < PATIENCE_S
        assert len(rows_of(stores, TENANT)["ledger"]) == 3
