"""Every metric is changed by a test that does the thing: here, or where a test calls `Scrapes.check_changed`.

The dashboard and the alert rules name metrics that exist, and labels that they have.
"""

import ast
import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from strandline.artifacts.metrics import ArtifactState
from strandline.broker.embedded_server import serve
from strandline.broker.metrics import loop_metrics, server_health, server_metrics
from strandline.broker.settings import ServerSettings
from strandline.clock import ManualClock
from strandline.events import Events
from strandline.fold import ALL, Hooks, MemoryStore
from strandline.fold.events import LagMeasured, RepairBegan, RepairEnded, SourceAway, StoreFailed
from strandline.fold.metrics import fold_metrics
from strandline.fold.progress import FoldProgress
from strandline.fold.watch import catch_up
from strandline.kv import Retention
from strandline.metrics import MetricSource, exposition, gauge, registry_of
from strandline.objects import MemoryObjects, RequestCounts, StoreRefused, StoreUnavailable
from strandline.objects.counted import CountedObjects
from strandline.protocol.repairs import RepairPlan
from strandline.queue import Queue, QueueConfig
from strandline.queue.metrics import queue_metrics
from strandline.replica import Follower, Maintenance, Node, Replicator, Role
from strandline.replica.metrics import FollowerCounts, maintenance_metrics, node_metrics, replicator_metrics
from strandline.scan import Event, NoExecutor, Progress
from strandline.scan.driver import scan_with
from strandline.scan.metrics import ScanCounts, follow_metrics
from strandline.scan.run.totals import Totals
from tests.artifacts.fleet import Fleet
from tests.broker.durability.damage import damage
from tests.calls import strings_in_calls
from tests.fold.buckets import Twin
from tests.metrics.scrapes import Scrapes
from tests.replica.databases import database, fill
from tests.replica.node_child import TIMING
from tests.scan.things import Things
from tests.scan.threaded_workers import ThreadWorkers, made, request_for
from tests.waiting import PATIENCE_S, eventually

TESTS = Path(__file__).resolve().parent.parent
SOURCES = TESTS.parent / "src" / "strandline"
DOCS = TESTS.parent / "docs"
DOCUMENT = DOCS / "metrics.md"
DASHBOARD = DOCS / "grafana-dashboard.json"
RULES = DOCS / "prometheus-alerts.yml"
NEVER_CHANGED = {"strandline_build_info"}
"""It is 1 as long as there is a page."""


async def broker(scrapes: Scrapes, folder: Path) -> None:
    """Connect, publish, deliver, redeliver, refuse, fail; then lose messages, and accept the loss."""

    def take(server: Any) -> dict[str, float]:  # noqa: ANN401 - a server
        return scrapes.take(lambda: list(loop_metrics(server)))

    async with serve(ServerSettings(port=0, store_dir=folder)) as server:
        take(server)
        client = await nats.connect(server.url, connect_timeout=PATIENCE_S)
        js = client.jetstream(timeout=PATIENCE_S)
        await js.add_stream(name="orders", subjects=["orders.>"], description="x", no_ack=False)
        for number in range(4):
            await js.publish(f"orders.{number}", b"payload %d" % number)
        with pytest.raises(Exception, match="not found"):
            await js.stream_info("nothing")
        config = ConsumerConfig(durable_name="worker", ack_policy=AckPolicy.EXPLICIT)
        await js.add_consumer("orders", config)
        pull = await js.pull_subscribe_bind(stream="orders", consumer="worker")
        first = (await pull.fetch(1, timeout=PATIENCE_S))[0]
        await first.ack_sync(timeout=PATIENCE_S)
        await (await pull.fetch(1, timeout=PATIENCE_S))[0].nak()
        await pull.fetch(1, timeout=PATIENCE_S)  # it came again, and is not acknowledged
        waiting = await js.add_consumer("orders", ConsumerConfig(durable_name="idle", filter_subject="orders.none"))
        idle = await js.pull_subscribe_bind(stream="orders", consumer=waiting.name)
        pending = asyncio.ensure_future(idle.fetch(1, timeout=PATIENCE_S))
        while not (found := take(server))["strandline_broker_consumer_waiting_pulls"]:
            await client.flush()
        pending.cancel()
        assert found["strandline_broker_stream_messages"] == 4
        assert found["strandline_broker_consumer_redelivered_messages"] >= 1
        assert found["strandline_broker_consumer_ack_floor_sequence"] == 1
        assert found["strandline_broker_sync_duration_seconds_count"] > 0
        server.jetstreams["$G"].failures["orders"] = "the disk is full"
        server.jetstreams["$G"].consumers.unreadable["orders", "old"] = "damaged"
        found = take(server)
        assert (found["strandline_broker_stream_failed"], found["strandline_broker_stream_offline_consumers"]) == (1, 1)
        health = await asyncio.to_thread(lambda: server_health(server).readiness())
        assert "orders" in (health.problems["jetstream"] or "")
        server.jetstreams["$G"].failures.clear()
        server.jetstreams["$G"].consumers.unreadable.clear()
        assert (await asyncio.to_thread(lambda: server_health(server).readiness())).is_well
        assert await asyncio.to_thread(lambda: {metric.name for metric in server_metrics(server)()}) <= scrapes.names
        await client.close()
    await asyncio.to_thread(damage, folder, b"payload 2")
    async with serve(ServerSettings(port=0, store_dir=folder)) as server:
        assert take(server)["strandline_broker_stream_lost_messages"] == 1
        client = await nats.connect(server.url, connect_timeout=PATIENCE_S)
        await client.request("$JS.API.STREAM.LOST.ACCEPT.orders", b"", timeout=PATIENCE_S)
        assert take(server)["strandline_broker_stream_lost_messages"] == 0
        await client.close()


def queue(scrapes: Scrapes, folder: Path) -> None:
    """Put, take, put off, and give up on messages."""
    with Queue.open(folder, QueueConfig(deliveries_max=2)) as opened:
        source = queue_metrics(opened, "q")
        scrapes.take(source)
        opened.add_group("g")
        opened.put_many([b"a", b"b", b"c"])
        jobs = opened.take("g", visibility_s=1000.0, wait_s=0)
        next(jobs).ack()
        late = next(jobs)
        assert scrapes.take(source)["strandline_queue_in_flight_messages"] == 1
        late.nack(1000.0)
        found = scrapes.take(source)
        assert (found["strandline_queue_acked_until_offset"], found["strandline_queue_next_offset"]) == (1, 3)
        for _ in range(2):
            next(opened.take("g", visibility_s=1000.0, wait_s=0)).nack(0.0)
        assert not list(opened.take("g", visibility_s=1000.0, wait_s=0))
        assert scrapes.take(source)["strandline_queue_dead_letters"] == 1


async def fold(scrapes: Scrapes, folder: Path) -> None:
    """Fold a bucket; then tell the fold's progress what its watch tells of trouble."""
    progress = FoldProgress()
    source = fold_metrics(progress, "f")
    scrapes.take(source)
    twin = await Twin().start()
    await twin.put("a=1", "b=2")
    store = MemoryStore()
    await catch_up(twin.store, ALL, lambda: store, hooks=Hooks(events=Events(progress)))
    found = scrapes.take(source)
    assert (found["strandline_fold_revision"], found["strandline_fold_updates_total"]) == (2, 2)
    assert found["strandline_fold_current"] == 1
    progress(LagMeasured(2, 9))
    progress(SourceAway("away", 1.0))
    assert scrapes.take(source)["strandline_fold_lag_revisions"] == 7
    progress(RepairBegan(RepairPlan.RELIST, "expired"))
    assert scrapes.take(source)["strandline_fold_repairing"] == 1
    progress(RepairEnded(RepairPlan.RELIST, 0, 3, 0.1))
    progress(StoreFailed(1, "full"))
    assert scrapes.take(source)["strandline_fold_repair_deletes_total"] == 3
    artifacts(scrapes, folder)


def artifacts(scrapes: Scrapes, folder: Path) -> None:
    """Publish an artifact; let the log's floor pass it."""
    clock = ManualClock(time.time_ns())
    fleet = Fleet(MemoryObjects(clock=clock), folder)
    state = ArtifactState("f", clock)
    scrapes.take(state.metrics)

    def retention(first: int) -> Retention:
        return Retention(False, first, first + 200, identity=b"identity")

    state.look(fleet.artifacts, retention(1))
    assert state.problem is not None, "there is none yet"
    fleet.write(*(f"key.{at}" for at in range(20)))
    fleet.artifacts.publish(fleet.export())
    state.look(fleet.artifacts, retention(3))
    found = scrapes.take(state.metrics)
    assert (found["strandline_artifact_continues"], found["strandline_artifact_revision"]) == (1, 20)
    state.look(fleet.artifacts, retention(90))
    assert scrapes.take(state.metrics)["strandline_artifact_continues"] == 0
    assert "older than the log's floor" in (state.problem or "")
    state.exported(StoreUnavailable("memory:", "away"))
    state.failed()
    scrapes.take(state.metrics)


def scan(scrapes: Scrapes, things: Things, address: str) -> None:
    """Scan items, with one that fails; wait for executors; follow a journal."""
    counts = ScanCounts()

    def told(event: Event) -> None:
        counts.tell(event)
        scrapes.take(counts.metrics)

    scrapes.take(counts.metrics)
    things.write({f"item {number}": f"text {number} alpha_{number + 100}" for number in range(30)})
    request = request_for(address, things)
    with request.open_stores() as stores:
        scan_with(
            stores,
            request,
            ThreadWorkers(),
            told,
        )
    found = scrapes.take(counts.metrics)
    assert found["strandline_scan_items_total"] == found["strandline_scan_listed_items"] == 30
    assert found["strandline_scan_findings_total"] == 30
    before = found["strandline_scan_items_total"]
    counts.tell(NoExecutor(5.0, "none"))
    assert not counts.health().readiness().is_well
    scrapes.take(counts.metrics)
    done = Totals(items=3, bytes=30, findings=1, failed=1, skipped=1)
    counts.tell(Progress(Totals(), 9, 90, 1, 0, 1))
    counts.tell(Progress(done, 9, 90, 1, 0, 1))
    found = scrapes.take(counts.metrics)
    assert found["strandline_scan_items_total"] == before + 3, "another run counts on"
    assert found["strandline_scan_remaining_seconds"] > 0
    assert "parked" in (counts.health().readiness().problems["shards"] or "")
    for offset, end, totals in ((0, 9, Totals()), (5, 9, done)):
        scrapes.take(lambda offset=offset, end=end, totals=totals: follow_metrics(offset, end, totals))  # type: ignore[misc]


def replica(scrapes: Scrapes, folder: Path) -> None:
    """Ship, fail, maintain, follow; lead and hand over."""
    inner, counts, state = MemoryObjects(), RequestCounts(), FollowerCounts("copy")
    store = CountedObjects(inner, counts)
    maintenance = Maintenance(store)
    with database(folder / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(folder / "a.db", store) as running:
            sources = [
                replicator_metrics(running),
                maintenance_metrics(maintenance, "a"),
                counts.metrics,
                state.metrics,
            ]
            scrapes.take(*sources)
            fill(connection, 2, seed=1)
            running.wait_durable(PATIENCE_S)
            inner.faults.fail("put", StoreUnavailable("memory:", "away"))
            fill(connection, 1, seed=7)
            eventually(lambda: scrapes.take(*sources)["strandline_replica_errors_total"], "an attempt failed")
            running.wait_durable(PATIENCE_S)
            maintenance.compact(1)
            maintenance.snapshot()
            maintenance.done["pruned"] += 1
            maintenance.done["errors"] += 1
            follower = Follower(store, folder / "copy.db")
            state.failed(StoreRefused("memory:", "no"))
            state.caught_up(follower.catch_up())
            follower.close()
            scrapes.take(*sources)
    shared = MemoryObjects()
    with database(folder / "x.db") as application:
        application.execute("CREATE TABLE t (value TEXT)")
    first, second = (
        Node(folder / f"{name}.db", shared, name, address=f"http://{name}", timing=TIMING, follow_every_s=0.05)
        for name in "xy"
    )
    told = node_metrics(first), node_metrics(second)
    scrapes.take(*told)
    with first:
        eventually(lambda: first.role is Role.LEADER, "it leads")
        with second:
            eventually(lambda: second.role is Role.FOLLOWER and second.health().txid, "it follows")
            eventually(lambda: scrapes.take(*told)["strandline_replica_node_lag_seconds"], "the lag of a follower")


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> Scrapes:
    """Drive every part once."""
    made, folder = Scrapes(), tmp_path_factory.mktemp("parts")
    for name in ("broker", "replica", "artifacts", "scan"):
        (folder / name).mkdir()
    asyncio.run(broker(made, folder / "broker"))
    queue(made, folder / "queue")
    asyncio.run(fold(made, folder / "artifacts"))
    replica(made, folder / "replica")
    return made


def metric_patterns(source: str) -> set[str]:
    """Return the names of metrics that a module makes; parts of a name that only a run knows are any word."""
    tree = ast.parse(source)
    prefixes = dict[str, set[str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            for name, given in pairs:
                if isinstance(name, ast.Name) and isinstance(given, ast.Constant):
                    prefixes.setdefault(name.id, set()).add(str(given.value))

    def pattern(node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.FormattedValue(value=ast.Name(id=name)) if name in prefixes:
                return f"(?:{'|'.join(sorted(one for one in prefixes[name] if one.startswith('strandline')))})"
            case ast.JoinedStr(values=parts):
                return "".join(map(pattern, parts))
            case _:
                return r"\w+"

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    makers = [
        one for one in calls if ast.unparse(one.func).rpartition(".")[2] in ("Metric", "gauge", "counter", "metric")
    ]
    return {found for one in makers if (found := pattern(one.args[0])).startswith(("strandline_", "(?:strandline_"))}


def documented() -> dict[str, tuple[str, ...]]:
    """Return the rows of the page by metric."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `strandline_")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): tuple(row[1:]) for row in rows}


def test_every_metric_changes_when_its_thing_is_done_and_is_documented(scrapes: Scrapes, tmp_path: Path) -> None:
    scan(scrapes, Things(tmp_path / "things.json"), made(str(tmp_path / "pipeline.db")))
    elsewhere = set[str]().union(*(strings_in_calls(file, "check_changed") for file in TESTS.rglob("test_*.py")))
    assert scrapes.names - set(documented()) == set()
    unchanged = set(documented()) - scrapes.changed - elsewhere - NEVER_CHANGED
    assert unchanged == set(), "no test changes them: do the thing, and call `Scrapes.check_changed`"


def test_every_metric_that_the_code_makes_is_documented_and_no_other() -> None:
    patterns = {pattern for file in SOURCES.rglob("*.py") for pattern in metric_patterns(file.read_text())}
    assert len(patterns) > 40
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in documented()), f"{pattern} is not documented"
    for name in documented():
        assert any(re.fullmatch(pattern, name) for pattern in patterns), f"nothing makes {name}"


def test_a_metric_that_nobody_changes_or_documents_is_noticed(tmp_path: Path) -> None:
    made = 'PREFIX = "strandline_new"\ngauge(f"{PREFIX}_depth", "…", 1)\nMetric(f"{PREFIX}_{part}_total", "…")\n'
    assert metric_patterns(made) == {"(?:strandline_new)_depth", r"(?:strandline_new)_\w+_total"}
    scrapes, value = Scrapes(), 3.0
    for _ in range(2):
        scrapes.take(lambda: [gauge("strandline_still", "Still.", value)])
    assert scrapes.changed == set(), "a value that was there at the first scrape is no change"
    with pytest.raises(AssertionError, match="strandline_still"):
        scrapes.check_changed("strandline_still")
    value = 4.0
    scrapes.take(lambda: [gauge("strandline_still", "Still.", value)])
    scrapes.check_changed("strandline_still")
    (tmp_path / "test_one.py").write_text('scrapes.check_changed(\n    "strandline_a",\n    "strandline_b",\n)\n')
    assert strings_in_calls(tmp_path / "test_one.py", "check_changed") == {"strandline_a", "strandline_b"}


def test_every_row_says_what_a_metric_means_and_which_alert_it_is_for() -> None:
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert len(alerts) >= 10
    named = set[str]()
    for name, (kind, _, meaning, alert) in documented().items():
        assert kind in {"gauge", "counter", "histogram"}, name
        assert meaning, name
        named |= set(re.findall(r"`(\w+)`", alert))
    assert named == alerts


def test_the_dashboard_and_the_rules_name_metrics_that_exist() -> None:
    known = set(documented())
    panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if "targets" in panel]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    expressions += re.findall(r"^\s+expr: (.*)$", RULES.read_text(), re.MULTILINE)
    assert len(expressions) > 20
    for expression in expressions:
        used = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"strandline_\w+", expression)}
        assert used, expression
        assert used <= known, expression


def test_the_registry_that_other_servers_mount_gives_both_formats(scrapes: Scrapes) -> None:
    progress = FoldProgress()
    sources: list[MetricSource] = [fold_metrics(progress, "f")]
    registry = registry_of(sources)
    assert b"strandline_fold_revision" in exposition(registry).body
    assert exposition(registry, "application/openmetrics-text").body.endswith(b"# EOF\n")
    assert scrapes.names
