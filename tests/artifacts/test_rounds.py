"""Rounds of a fleet: one exporter at a time, and each failure leaves only what the next round clears."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strandline.artifacts import (
    BucketCell,
    ExportLease,
    Manifest,
    ObjectCell,
    Outcome,
    Previous,
    PublishedArtifacts,
    RecordCell,
    RoundOutcome,
    export_lease,
    parse_manifest,
    run_export_round,
    watched_export,
)
from strandline.artifacts.layout import format_file_key
from strandline.clock import ManualClock
from strandline.errors import InvalidInput, StorageRefused
from strandline.fold import ALL, Exports, open_fold, watch_applied
from strandline.kv import Connection, MemoryConnection, MemoryServer, StoreConfig
from strandline.kv.nats import NatsConnection
from strandline.objects import LocalObjects, MemoryObjects, StoreUnavailable
from tests.artifacts.fleet import Fleet, advance
from tests.fold.buckets import Twin
from tests.servers_nats import NatsServer, running_nats

TTL_S = 100.0
CELLS = ["objects", "bucket", "nats"]


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_nats() as running:
        yield running


@asynccontextmanager
async def opened(kind: str, server: NatsServer) -> AsyncIterator[RecordCell]:
    """Open a cell that holds nothing."""
    if kind == "objects":
        yield ObjectCell(MemoryObjects())
        return
    connection: Connection = NatsConnection(server.url) if kind == "nats" else MemoryConnection(MemoryServer())
    await connection.connect()
    try:
        bucket = await connection.store("leases", StoreConfig())
        cell = BucketCell(bucket, "export")
        writer = bucket.writer()
        assert writer is not None
        await writer.purge("export")
        yield cell
    finally:
        await connection.shutdown()


def over(kind: str, server: NatsServer, check: Callable[[RecordCell], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(kind, server) as cell:
            await check(cell)

    asyncio.run(main())


@pytest.mark.parametrize("kind", CELLS)
class TestLease:
    def test_one_of_many_takes_a_round_and_its_end_frees_it(self, kind: str, server: NatsServer) -> None:
        async def check(cell: RecordCell) -> None:
            clock = ManualClock()
            leases = [ExportLease(cell, f"node-{at}", ttl_s=TTL_S, clock=clock) for at in range(5)]
            rounds = [found for found in [await lease.try_acquire() for lease in leases] if found]
            assert [found.record.holder for found in rounds] == ["node-0"]
            assert await rounds[0].complete(7)
            assert await leases[1].try_acquire() is None  # the round lasts, also when its work is done
            clock.advance(TTL_S)
            later = await leases[1].try_acquire()
            assert later is not None
            current = await leases[2].current()
            assert current is not None
            assert (current.holder, current.completed_revision) == ("node-1", 7)
            assert not await rounds[0].complete(8)

        over(kind, server, check)

    def test_a_round_that_is_abandoned_is_free_at_once(self, kind: str, server: NatsServer) -> None:
        async def check(cell: RecordCell) -> None:
            lease = ExportLease(cell, "node", ttl_s=TTL_S, clock=ManualClock())
            first = await lease.try_acquire()
            assert first is not None
            assert await first.abandon()
            assert await lease.try_acquire() is not None
            assert not await first.abandon()

        over(kind, server, check)

    def test_a_record_that_cannot_be_read_is_taken_over(self, kind: str, server: NatsServer) -> None:
        async def check(cell: RecordCell) -> None:
            for data in (b"not JSON", b"[]", b"{}", b'{"holder": 1, "acquired_unix": 0, "expires_unix": 9e99}'):
                found = await cell.read()
                await cell.write(data, found.version if found else None)
                lease = ExportLease(cell, "node", ttl_s=TTL_S, clock=ManualClock())
                assert await lease.current() is None
                assert await lease.try_acquire() is not None

        over(kind, server, check)

    def test_a_record_of_the_future_is_taken_over(self, kind: str, server: NatsServer) -> None:
        """An exporter whose clock was a year ahead would end all exports for a year."""

        async def check(cell: RecordCell) -> None:
            clock, ahead = ManualClock(), ManualClock()
            ahead.advance(365 * 86_400)
            assert await ExportLease(cell, "ahead", ttl_s=TTL_S, clock=ahead).try_acquire() is not None
            lease = ExportLease(cell, "node", ttl_s=TTL_S, clock=clock)
            assert await lease.try_acquire() is not None
            assert await lease.try_acquire() is None

        over(kind, server, check)

    def test_of_two_that_read_the_same_record_one_wins(
        self, kind: str, server: NatsServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def check(cell: RecordCell) -> None:
            both = asyncio.Barrier(2)
            read = cell.read

            async def together() -> export_lease.Stored | None:
                found = await read()
                await both.wait()
                return found

            monkeypatch.setattr(cell, "read", together)
            leases = [ExportLease(cell, f"node-{at}", ttl_s=TTL_S, clock=ManualClock()) for at in range(2)]
            rounds = await asyncio.gather(*(lease.try_acquire() for lease in leases))
            assert len([found for found in rounds if found]) == 1

        over(kind, server, check)


def test_a_lease_without_holder_or_time_is_refused() -> None:
    for holder, ttl_s in (("", 1.0), ("x" * 2000, 1.0), ("node", 0.0)):
        with pytest.raises(InvalidInput):
            ExportLease(ObjectCell(MemoryObjects()), holder, ttl_s=ttl_s)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(MemoryObjects(clock=ManualClock()), tmp_path)
    fleet.write(*(f"key.{at:03d}" for at in range(50)))
    return fleet


def lease_of(fleet: Fleet, clock: ManualClock | None = None) -> ExportLease:
    return ExportLease(ObjectCell(fleet.objects), "node", ttl_s=TTL_S, clock=clock or ManualClock())


def export_of(fleet: Fleet, error: Exception | None = None) -> Callable[[Path, Previous | None], Awaitable[Manifest]]:
    async def export_to(path: Path, previous: Previous | None) -> Manifest:
        fleet.export(previous).rename(path)
        if error is not None:
            raise error
        return parse_manifest((path / "MANIFEST.json").read_bytes(), "")

    return export_to


def test_a_round_publishes_completes_removes_and_leaves_nothing_here(fleet: Fleet) -> None:
    clock, folder = ManualClock(), fleet.folder / "round"
    for number in range(1, 4):
        fleet.write(f"round.{number}")
        result = asyncio.run(run_export_round(lease_of(fleet, clock), export_of(fleet), fleet.artifacts, folder))
        assert (result.outcome, result.prune_trouble) == (RoundOutcome.PUBLISHED, None)
        assert not folder.exists()
        current = asyncio.run(lease_of(fleet).current())
        assert current is not None
        assert current.completed_revision == fleet.revision
        again = asyncio.run(run_export_round(lease_of(fleet, clock), export_of(fleet), fleet.artifacts, folder))
        assert again.outcome is RoundOutcome.NOT_OURS
        clock.advance(TTL_S)
        advance(fleet, 4 * TTL_S + 1)
    assert result.pruned is not None
    assert result.pruned.manifests == 1
    fleet.check_whole()


@pytest.mark.parametrize("error", [StorageRefused("x", "full", "ENOSPC"), StoreUnavailable("x", "no"), OSError("x")])
def test_a_round_that_fails_gives_the_lease_back_and_leaves_nothing_here(error: Exception, fleet: Fleet) -> None:
    folder = fleet.folder / "round"
    with pytest.raises(type(error)):
        asyncio.run(run_export_round(lease_of(fleet), export_of(fleet, error), fleet.artifacts, folder))
    assert not folder.exists()
    assert fleet.artifacts.pointer() is None
    result = asyncio.run(run_export_round(lease_of(fleet), export_of(fleet), fleet.artifacts, folder))
    assert result.outcome is RoundOutcome.PUBLISHED


def test_a_round_that_is_superseded_ends_cleanly(fleet: Fleet) -> None:
    slow = fleet.export()

    async def export_to(path: Path, _: Previous | None) -> Manifest:
        slow.rename(path)
        fleet.write("later")
        assert fleet.artifacts.publish(fleet.export()).outcome is Outcome.PUBLISHED
        return parse_manifest((path / "MANIFEST.json").read_bytes(), "")

    result = asyncio.run(run_export_round(lease_of(fleet), export_to, fleet.artifacts, fleet.folder / "round"))
    assert result.outcome is RoundOutcome.SUPERSEDED
    assert not (fleet.folder / "round").exists()
    record = asyncio.run(lease_of(fleet).current())
    assert record is not None
    assert record.released
    fleet.check_whole()


def test_an_increment_that_lost_its_base_is_exported_whole(fleet: Fleet) -> None:
    fleet.publish()
    fleet.write("mine")
    calls: list[Previous | None] = []

    async def export_to(path: Path, previous: Previous | None) -> Manifest:
        calls.append(previous)
        fleet.export(previous).rename(path)
        if previous is not None:  # another exporter, with a base of its own
            assert fleet.artifacts.publish(fleet.export()).outcome is Outcome.PUBLISHED
        return parse_manifest((path / "MANIFEST.json").read_bytes(), "")

    result = asyncio.run(run_export_round(lease_of(fleet), export_to, fleet.artifacts, fleet.folder / "round"))
    assert result.outcome is RoundOutcome.PUBLISHED
    assert [previous is None for previous in calls] == [False, True]
    fleet.check_whole()


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_file_that_was_lost_in_the_store_is_repaired_by_the_next_round(is_changed: bool, fleet: Fleet) -> None:
    """A rule of the store removed it, or bytes of it went bad."""
    (base,) = fleet.publish().manifest.files
    if is_changed:
        fleet.objects.put(format_file_key(base), bytes(base.size))
    else:
        fleet.objects.delete(format_file_key(base))
    fleet.write("later")
    result = asyncio.run(run_export_round(lease_of(fleet), export_of(fleet), fleet.artifacts, fleet.folder / "round"))
    assert result.outcome is RoundOutcome.PUBLISHED
    fleet.check_whole()


def test_a_store_that_is_away_during_an_export_is_told_as_that(fleet: Fleet) -> None:
    """It is not taken for an artifact that is damaged."""
    fleet.publish()
    fleet.write("later")
    previous = fleet.artifacts.previous()
    assert isinstance(fleet.objects, MemoryObjects)
    fleet.objects.faults.fail("get", StoreUnavailable("memory://", "no"))
    with pytest.raises(StoreUnavailable):
        fleet.export(previous)


def test_a_removal_that_fails_does_not_fail_the_round(fleet: Fleet) -> None:
    assert isinstance(fleet.objects, MemoryObjects)
    fleet.objects.faults.fail("list", StoreUnavailable("memory://", "no"))
    result = asyncio.run(run_export_round(lease_of(fleet), export_of(fleet), fleet.artifacts, fleet.folder / "round"))
    assert result.outcome is RoundOutcome.PUBLISHED
    assert result.prune_trouble


def test_a_watched_fold_is_exported_round_by_round(tmp_path: Path) -> None:
    async def main() -> None:
        twin, exports, stop = await Twin().start(), Exports(), asyncio.Event()
        artifacts = PublishedArtifacts(LocalObjects(tmp_path / "objects"))
        clock = ManualClock()
        lease = ExportLease(ObjectCell(artifacts.objects), "node", ttl_s=TTL_S, clock=clock)
        watch = asyncio.create_task(
            watch_applied(twin.store, ALL, lambda: open_fold(tmp_path / "fold"), exports=exports, stop=stop)
        )
        for number in range(1, 4):
            await twin.writer.put(f"key.{number}", b"x")
            while (await exports.request(lambda _, cursor: cursor)).revision < number:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
            result = await run_export_round(lease, watched_export(exports), artifacts, tmp_path / "round")
            assert result.outcome is RoundOutcome.PUBLISHED
            assert artifacts.newest().rank == number
            clock.advance(TTL_S)
        stop.set()
        await watch

    asyncio.run(main())
