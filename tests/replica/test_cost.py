"""The estimate of costs: requests as the code makes them, rates as they are, prices as they are given."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from strandline.objects import MemoryObjects, Object, ObjectInfo
from strandline.replica import LtxFile, Maintenance, MaintenancePolicy, Replicator
from strandline.replica.cost import HOURS_PER_MONTH, Line, Prices, Usage, estimate, measure_database, measure_replica
from strandline.replica.errors import DatabaseRefused
from tests.replica.databases import database, fill
from tests.waiting import PATIENCE_S

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOURLY = MaintenancePolicy(level_every_s=(3600.0,))


class Counted(MemoryObjects):
    """A store that counts requests by their price."""

    writes = reads = 0

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Count a read."""
        self.reads += 1
        return super().get(key, start=start, stop=stop)

    def head(self, key: str) -> ObjectInfo | None:
        """Count a read."""
        self.reads += 1
        return super().head(key)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Count a write, as stores do."""
        self.writes += 1
        return super().list(prefix, start_after=start_after)

    def put(self, *args: object, **more: object) -> str:
        """Count a write."""
        self.writes += 1
        return super().put(*args, **more)  # type: ignore[arg-type]

    def put_stream(self, *args: object, **more: object) -> str:
        """Count a write, and the look at what was written that buckets need."""
        self.writes, self.reads = self.writes + 1, self.reads + 1
        return super().put_stream(*args, **more)  # type: ignore[arg-type]


def line(lines: list[Line], what: str) -> Line:
    """Return the one line of a part."""
    (found,) = [line for line in lines if line.what.startswith(what)]
    return found


def test_the_requests_of_merges_and_of_retention_are_those_that_are_made(tmp_path: Path) -> None:
    store = Counted()
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", store) as running:
            for number in range(9):
                fill(connection, 2, seed=number)
                count = running.wait_durable(PATIENCE_S).txid
    lines = estimate(Usage(count, 2000, 10_000), HOURLY)
    maintenance = Maintenance(store)
    store.writes = store.reads = 0
    assert maintenance.compact(1) == 1
    assert (store.writes, store.reads) == (
        line(lines, "level 1").writes_per_hour,
        line(lines, "level 1").reads_per_hour,
    )
    store.writes = store.reads = 0
    maintenance.prune()
    assert store.writes * 12 == line(lines, "retention").writes_per_hour


def test_an_idle_database_costs_its_listings_and_its_snapshot() -> None:
    lines = estimate(Usage(0, 0, 5_000_000_000), prices=Prices(1, 0, 0))
    assert line(lines, "transactions").writes_per_hour == 0
    assert line(lines, "level 1").writes_per_hour == 240
    assert line(lines, "total").monthly_cost == pytest.approx(
        HOURS_PER_MONTH * line(lines, "total").writes_per_hour / 1000
    )
    assert line(estimate(Usage(0, 0, 5_000_000_000), prices=Prices(0, 0, 1)), "total").monthly_cost == pytest.approx(5)


def test_commits_between_two_uploads_share_one() -> None:
    slow, quick = (estimate(Usage(1e6, 1000, 0), upload_every_s=every_s)[0] for every_s in (0.1, 0.001))
    assert (slow.writes_per_hour, quick.writes_per_hour) == (36_000, 1e6)
    assert slow.uploaded_bytes_per_hour == quick.uploaded_bytes_per_hour == 1e9


def test_without_maintenance_everything_of_a_month_is_kept() -> None:
    only, total = estimate(Usage(10, 1000, 0), is_maintained=False)
    assert total[1:] == only[1:]
    assert only.objects_kept == 10 * HOURS_PER_MONTH


def test_the_rate_of_a_replica_is_that_of_its_last_hour() -> None:
    def file(level: int, first: int, last: int, size: int, minutes: float) -> LtxFile:
        return LtxFile(level, first, last, f"{level}/{first}", size, NOW - timedelta(minutes=minutes))

    files = [
        file(9, 1, 500, 9_000, 90),
        file(1, 501, 520, 800, 61),
        file(0, 521, 521, 100, 30),
        file(0, 522, 522, 300, 1),
    ]
    assert measure_replica(files, NOW) == Usage(2, 200, 9_000)
    assert measure_replica(files[:2], NOW + timedelta(days=1)) == Usage(0, 40, 9_000)
    young = [file(0, 1, 1, 5_000, 6), file(0, 2, 7, 100, 1)]
    assert measure_replica(young, NOW).commits_per_hour == pytest.approx(60)
    assert young[0].size < measure_replica(young, NOW).snapshot_bytes == 5_100, "a database that was shipped in parts"
    assert measure_replica([], NOW) == Usage(0, 0, 0)


def test_the_rate_of_a_database_is_seen_in_its_log(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as connection:
        fill(connection, 50)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fill(connection, 5)
        usage = measure_database(tmp_path / "a.db", 36.0, lambda _: fill(connection, 20))
        assert usage.commits_per_hour == 2000
        assert 1000 < usage.transaction_bytes < 20_000
        (pages,) = next(iter(connection.execute("PRAGMA page_count")))
        assert 20_000 < usage.snapshot_bytes <= pages * 4096 * 1.1
        before = (tmp_path / "a.db-wal").read_bytes()
        assert measure_database(tmp_path / "a.db", 1.0, lambda _: None).commits_per_hour == 0
        assert (tmp_path / "a.db-wal").read_bytes() == before
        connection.execute("PRAGMA journal_mode = delete")
    with pytest.raises(DatabaseRefused, match="not wal"):
        measure_database(tmp_path / "a.db", 1.0, lambda _: None)
