"""Metrics of replicas: what was done is on the page, and the page of the documentation names all of them."""

import re
import time
from pathlib import Path

import pytest

from strandline.errors import Unavailable
from strandline.metrics import serve_metrics
from strandline.objects import MemoryObjects, RequestCounts, StoreRefused, StoreUnavailable
from strandline.objects.counted import CountedObjects
from strandline.replica import Follower, Maintenance, Node, ReplicaPool, Replicator
from strandline.replica.metrics import FollowerCounts, maintenance_metrics, node_metrics, replicator_metrics
from strandline.replica.pace import REFUSED_PAUSE_S, Pause
from strandline.replica.wakeups import FileChanges
from tests.metrics.scrapes import Scrapes
from tests.replica.databases import database, fill
from tests.scraped import names, page
from tests.waiting import PATIENCE_S, eventually

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "metrics.md"


def test_what_was_done_is_on_the_page(tmp_path: Path) -> None:
    began_s = time.time()
    inner, counts, name = MemoryObjects(), RequestCounts(), str(tmp_path / "a.db")
    store, state = CountedObjects(inner, counts), FollowerCounts("copy")
    maintenance = Maintenance(store)
    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        sources = maintenance_metrics(maintenance, name), counts.metrics, state.metrics
        with (
            Replicator(tmp_path / "a.db", store) as running,
            serve_metrics(0, replicator_metrics(running), *sources) as served,
        ):
            assert served is not None
            for number in range(3):
                fill(connection, 2, seed=number)
                position = running.wait_durable(PATIENCE_S)
            label = f"{{database={name}}}"
            found = page(served.address)
            assert found[f"strandline_replica_txid{label}"] == position.txid
            assert found[f"strandline_replica_transactions_total{label}"] == position.txid
            assert found[f"strandline_replica_snapshots_total{label}"] == 1
            assert found[f"strandline_replica_lag_seconds{label}"] == 0
            assert found[f"strandline_replica_failing{label}"] == 0
            assert found[f"strandline_replica_last_success_timestamp_seconds{label}"] >= began_s
            files = [info for info in inner.list() if info.key.endswith(".ltx")]
            assert found[f"strandline_replica_shipped_bytes_total{label}"] == sum(info.size for info in files)
            assert found["strandline_object_requests_total{operation=put,outcome=ok}"] >= position.txid

            inner.faults.fail("put", StoreUnavailable("memory:", "away"))
            fill(connection, 1, seed=7)
            running.wait_durable(PATIENCE_S)
            found = page(served.address)
            assert found[f"strandline_replica_errors_total{label}"] == 1
            assert found["strandline_object_requests_total{operation=put,outcome=unavailable}"] == 1

            maintenance.compact(1)
            maintenance.snapshot()
            follower = Follower(store, tmp_path / "copy.db")
            state.failed(Unavailable("no"))
            state.caught_up(follower.catch_up())
            follower.close()
            found = page(served.address)
            assert found[f"strandline_replica_compactions_total{{database={name},level=1}}"] == 1
            assert found[f"strandline_replica_maintenance_snapshots_total{label}"] == 1
            assert found["strandline_replica_follower_txid{database=copy}"] == running.position.txid
            assert found["strandline_replica_follower_errors_total{database=copy}"] == 1
            assert 0 <= found["strandline_replica_follower_lag_seconds{database=copy}"] < PATIENCE_S
            assert found["strandline_replica_follower_last_success_timestamp_seconds{database=copy}"] >= began_s
    node = Node(tmp_path / "b.db", MemoryObjects(), "b")
    told = {metric.name for metric in node_metrics(node)()}
    documented = set(re.findall(r"^\| `(strandline_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    assert names(found) | told <= documented


def test_the_lag_of_a_store_that_is_away_grows_and_is_gone_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryObjects()
    put = store.put

    def away(*_: object, **__: object) -> str:
        raise StoreUnavailable("memory:", "away")

    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", store) as running:
            running.wait_durable(PATIENCE_S)
            metrics = replicator_metrics(running)

            def value(name: str) -> float:
                (found,) = [
                    metric.samples[0].value for metric in metrics() if metric.name == f"strandline_replica_{name}"
                ]
                return found

            monkeypatch.setattr(store, "put", away)
            fill(connection, 1, seed=1)
            eventually(lambda: value("failing") == 1 and value("lag_seconds") > 0, "the lag of a store that is away")
            before_s = value("last_success_timestamp_seconds")
            eventually(lambda: value("errors_total") > 1, "a second attempt")
            assert value("last_success_timestamp_seconds") == before_s
            monkeypatch.setattr(store, "put", put)
            running.wait_durable(PATIENCE_S)
            assert (value("failing"), value("lag_seconds")) == (0, 0)
            assert value("last_success_timestamp_seconds") > before_s


@pytest.mark.parametrize("in_pool", [False, True], ids=["thread", "pool"])
def test_a_commit_that_waits_for_the_pace_of_uploads_is_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_pool: bool
) -> None:
    monkeypatch.setattr("strandline.replica.pace.BURST", 1)
    with database(tmp_path / "a.db") as connection, ReplicaPool(workers=1) as pool:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        replicator = Replicator(tmp_path / "a.db", MemoryObjects(), upload_every_s=6000)
        running = pool.start(replicator) if in_pool else replicator.start()
        shipped = running.wait_durable(PATIENCE_S)
        assert running.status().lag_s == 0
        fill(connection, 1, seed=1)
        eventually(lambda: running.status().lag_s > 0, "a commit waits")
        assert (running.position, running.status().error) == (shipped, None), "it waits for the pace alone"
        running.wait_durable(PATIENCE_S)
        assert running.status().lag_s == 0
        running.close()


def test_lag_counts_from_the_commit_and_not_from_when_it_was_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.replica.pace.BURST", 1)
    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)
        running = Replicator(tmp_path / "a.db", MemoryObjects(), upload_every_s=6000)
        running.open(FileChanges(tmp_path / "a.db-wal"), lambda: None)
        assert running.step() == Pause(0), "the first snapshot"
        pause = running.step()
        assert pause is not None
        assert not pause.is_pace, "a commit ends it"
        assert running.status().lag_s == 0
        fill(connection, 1, seed=1)
        committed_s = time.monotonic()
        pause = running.step()
        assert pause is not None
        assert pause.is_pace, "a waiter ends it, and no other commit"
        waited_s = time.monotonic() - committed_s
        assert running.status().lag_s >= waited_s
        running.close(flush=False)


def test_a_refusal_of_the_store_is_said_and_tried_again_after_a_long_pause(tmp_path: Path) -> None:
    class Refusing(MemoryObjects):
        is_refusing = False

        def put(self, key: str, *arguments: object, **options: object) -> str:
            if self.is_refusing:
                raise StoreRefused("memory:", "the token has expired")
            return super().put(key, *arguments, **options)  # type: ignore[arg-type]

    store = Refusing()
    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)
        running = Replicator(tmp_path / "a.db", store)
        running.open(FileChanges(tmp_path / "a.db-wal"), lambda: None)
        scrapes, source = Scrapes(), replicator_metrics(running)
        scrapes.take(source)
        store.is_refusing = True
        for _ in range(3):
            assert running.step() == Pause(REFUSED_PAUSE_S, is_backoff=True)
        status = running.status()
        assert (status.is_refused, status.errors, running.failure) == (True, 3, None)
        assert "the token has expired" in (status.error or "")
        assert scrapes.take(source)["strandline_replica_refused"] == 1
        store.is_refusing = False
        assert running.step() == Pause(0)
        assert (running.status().is_refused, running.status().error, running.position.txid) == (False, None, 1)
        assert scrapes.take(source)["strandline_replica_refused"] == 0
        scrapes.check_changed("strandline_replica_refused")
        running.close(flush=False)


def test_a_store_that_refuses_at_the_start_is_an_error(tmp_path: Path) -> None:
    store = MemoryObjects()
    store.faults.fail("put", StoreRefused("memory:", "AccessDenied"))
    with database(tmp_path / "a.db") as connection:
        fill(connection, 3)
        with pytest.raises(StoreRefused, match="AccessDenied") as refused:
            Replicator(tmp_path / "a.db", store).start()
        assert "credentials" in (refused.value.hint or "")
