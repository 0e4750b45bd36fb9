"""A scan on Spark: the same rows as without, and nothing of Spark where nothing is to be done."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from strandline.detect import expand, load_builtin
from strandline.errors import StrandlineError
from strandline.pipeline.stores import Stores
from strandline.protocol.shards import RunKey
from strandline.scan.errors import SourceNotShared, StateNotShared, WorkersFailed
from strandline.scan.events import Planned
from strandline.scan.parted.kept_stores import close_kept, kept_stores
from strandline.scan.parted.part_tasks import PartedPlan
from strandline.scan.run.progress import Progress
from strandline.scan.sources import Content, FileSource, InputRefused, ItemReader, Tell
from strandline.scan.workers import WorkerTask
from strandline.spark.error_transport import parse_error
from strandline.spark.workers import PartCalls, Task, check_shared, scan_on_spark
from tests.scan.fixtures import own_cache  # noqa: F401 - a fixture
from tests.scan.things import Reader, Thing, Things
from tests.scan.threaded_workers import TENANT, made, request_for, scanned
from tests.spark.rows import rows_of
from tests.spark.scripts import run
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Deadly(Things):
    """Items of which one kills whoever reads it first."""

    def open(self) -> AbstractContextManager[ItemReader]:
        return _Open(DeadlyReader(self))


@dataclass(frozen=True)
class Closed(Things):
    """Items that cannot be opened on an executor."""

    def open(self) -> AbstractContextManager[ItemReader]:
        raise InputRefused("the folder", "it is on another machine", hint="mount it")


@dataclass
class _Open(AbstractContextManager[ItemReader]):
    reader: ItemReader

    def __enter__(self) -> ItemReader:
        return self.reader

    def __exit__(self, *_: object) -> None:
        return None


class DeadlyReader(Reader):
    def read(self, locator: bytes, extra: bytes | None) -> Content:
        mark = self.source.file.with_name("died")
        if locator == b"item 0100" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(locator, extra)


def numbered(count: int) -> dict[str, Thing | str]:
    return {f"item {number:04}": f"text alpha_{number:03} beta_{number:03}" for number in range(count)}


def test_spark_gives_the_rows_that_threads_give(spark: "SparkSession", tmp_path: Path) -> None:
    things = Things(tmp_path / "things.json")
    things.write(numbered(1_000))
    alone, on_spark = (request_for(made(str(tmp_path / name)), things) for name in ("alone.db", "spark.db"))
    scanned(alone)
    looks: list[Progress] = []
    outcome = scan_on_spark(
        on_spark, lambda: spark, lambda event: looks.append(event) if isinstance(event, Progress) else None
    )
    assert outcome.is_whole
    assert len(outcome.findings) == 2_000
    assert looks[-1].done.items == 1_000
    assert looks[-1].shards_active == 0
    assert looks[-1].shards_done >= 2
    with alone.open_stores() as one, on_spark.open_stores() as other:
        assert rows_of(one, TENANT) == rows_of(other, TENANT)


def test_a_worker_does_not_keep_the_stores_of_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would have the tenant's ledger in memory twice."""
    close_kept()
    request = request_for(made(f"file://{tmp_path}/lake"), Things(tmp_path / "things.json"))
    closed: list[Stores] = []
    begun: list[list[Stores]] = []
    close = Stores.close

    def noted(self: Stores) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(Stores, "close", noted)
    monkeypatch.setattr("strandline.spark.workers.work", lambda _task, _prefer: begun.append(list(closed)))
    with kept_stores(request, 1) as kept:
        pass
    task = Task(WorkerTask(request, RunKey(TENANT, 1), 1, 1), [], is_local=True)
    numbers = pa.record_batch([pa.array([0], pa.int64())], ["id"])
    (answer,) = task(iter([numbers]))
    assert answer.to_pylist() == [{"worker": 0, "error": None}]
    assert begun == [[kept]]


@dataclass(frozen=True)
class Unlistable(Things):
    """Items that cannot be listed on an executor."""

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        if os.getpid() != int(self.name):
            raise InputRefused("the folder", "it is on another machine", hint="mount it")
        return super().list_items(tell)


def test_tasks_list_plan_and_settle_as_a_driver_alone_does(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    things = Things(tmp_path / "things.json")
    things.write(numbered(50))
    tree = tmp_path / "tree"
    for number in range(40):
        (tree / f"d{number % 5}").mkdir(parents=True, exist_ok=True)
        (tree / f"d{number % 5}" / f"{number}").write_text(f"alpha_{number:03}")
    alone, on_spark = (
        request_for(made(str(tmp_path / name)), things, FileSource.at(tree)) for name in ("alone.db", "spark.db")
    )
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    told: list[object] = []
    for new in (90, 0):
        expected, outcome = scanned(alone), scan_on_spark(on_spark, lambda: spark, told.append)
        assert (outcome.items, outcome.new_items, outcome.is_whole) == (90, new, True)
        assert (outcome.statuses, outcome.bytes_seen) == (expected.statuses, expected.bytes_seen)
    plans = [event.plan for event in told if isinstance(event, Planned)]
    assert [type(plan) for plan in plans] == [PartedPlan] * 2
    with alone.open_stores() as one, on_spark.open_stores() as other:
        assert rows_of(one, TENANT) == rows_of(other, TENANT)


def test_a_task_on_a_machine_without_a_source_lists_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    request = request_for(made(str(tmp_path / "state.db")), FileSource.at(tmp_path / "tree"))
    numbers = pa.record_batch([pa.array([0, 1], pa.int64())], ["id"])
    seen: list[int] = []

    def answers(*, is_local: bool) -> list[StrandlineError | None]:
        found = PartCalls(lambda _, task: seen.append(task), request, [10, 11], is_local=is_local)(iter([numbers]))
        return [parse_error(row["error"] or "") for batch in found for row in batch.to_pylist()]

    assert answers(is_local=False) == [None, None]
    (tmp_path / "tree").rmdir()
    assert [type(error) for error in answers(is_local=False)] == [SourceNotShared] * 2
    assert seen == [10, 11]


@pytest.mark.long
def test_an_error_of_a_listing_in_a_task_comes_back_as_it_is(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.scan.workers.LARGE_ITEMS", 1)
    things = Unlistable(tmp_path / "things.json", str(os.getpid()))
    things.write(numbered(3))
    with pytest.raises(InputRefused, match="it is on another machine") as caught:
        scan_on_spark(request_for(made(str(tmp_path / "spark.db")), things), lambda: spark)
    assert caught.value.hint == "mount it"


def test_a_worker_that_dies_is_replaced(spark: "SparkSession", tmp_path: Path) -> None:
    things = Deadly(tmp_path / "things.json")
    things.write(numbered(300))
    request = request_for(made(str(tmp_path / "spark.db")), things, lease_ttl_s=1.0)
    outcome = scan_on_spark(request, lambda: spark)
    assert (tmp_path / "died").exists()
    assert outcome.is_whole
    assert len(outcome.findings) == 600


def test_an_error_of_ours_comes_back_as_it_is(spark: "SparkSession", tmp_path: Path) -> None:
    things = Closed(tmp_path / "things.json")
    things.write(numbered(3))
    with pytest.raises(WorkersFailed, match="it is on another machine") as caught:
        scan_on_spark(request_for(made(str(tmp_path / "spark.db")), things, lease_ttl_s=1.0), lambda: spark)
    assert (caught.value.kind, caught.value.hint) == ("InputRefused", "mount it")


def test_leaving_early_ends_the_job(spark: "SparkSession", tmp_path: Path) -> None:
    things = Things(tmp_path / "things.json")
    things.write(numbered(2_000))
    request = request_for(made(str(tmp_path / "spark.db")), things, lease_ttl_s=1.0)

    def leaves(event: object) -> None:
        if isinstance(event, Progress):
            raise KeyboardInterrupt

    begun_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        scan_on_spark(request, lambda: spark, leaves)
    assert time.monotonic() - begun_s < PATIENCE_S
    outcome = scan_on_spark(request, lambda: spark)
    assert outcome.is_whole
    assert len(outcome.findings) == 4_000


def test_a_scan_with_nothing_to_do_imports_no_spark(tmp_path: Path) -> None:
    things = Things(tmp_path / "things.json")
    things.write(numbered(3))
    request = request_for(made(str(tmp_path / "state.db")), things)
    scanned(request)
    program = f"""
import json, sys
import pyarrow
class NoPandas:  # as the command line does: pyarrow looks for it once
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoPandas)
pyarrow.scalar(1)
sys.meta_path.remove(NoPandas)
from pathlib import Path
from strandline.scan import explain
from strandline.spark.workers import scan_on_spark
from tests.scan.threaded_workers import request_for
from tests.scan.things import Things
request = request_for({request.address!r}, Things(Path({str(things.file)!r})))
explain(request)
outcome = scan_on_spark(request, lambda: 1 / 0)
print(json.dumps([len(outcome.findings), sorted({{"pyspark", "py4j", "pandas"}} & set(sys.modules))]))
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [6, []]


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "yarn", "k8s://x", "localhost:1"])
def test_sqlite_with_a_cluster_is_refused_with_the_reason(tmp_path: Path, master: str) -> None:
    things = Things(tmp_path / "things.json")
    things.write(numbered(1))
    request = request_for(made(str(tmp_path / "state.db")), things)
    with pytest.raises(StateNotShared, match="files of this machine") as caught:
        scan_on_spark(request, lambda: 1 / 0, master=master)  # type: ignore[arg-type, return-value]
    assert caught.value.hint is not None
    assert "postgresql://" in caught.value.hint
    for fine in ("local", "local[2]", "local[2,4]", "local-cluster[2,1,1024]"):
        check_shared(request, fine)
    check_shared(request_for("postgresql://nobody@nowhere/none", things), master)


CONNECT = """
    from pyspark.sql import SparkSession
    from strandline.scan.state import open_state
    from strandline.detect import load_builtin
    from strandline.scan.sources import FileSource
    from strandline.scan import ScanRequest
    from strandline.spark.workers import scan_on_spark

    def remote():
        return SparkSession.builder.remote("local[2]").getOrCreate()

    with open_state(sys.argv[2], create=True) as state:
        rules = load_builtin().only(["github-pat"])
        request = ScanRequest((FileSource.at(sys.argv[1]),), rules, state.tenant, state.key, state.address)
        first, again = scan_on_spark(request, remote), scan_on_spark(request, remote)
    print(len(first.findings), first.progress.done.items, again.progress)
    remote().stop()
"""


@pytest.mark.long  # its server takes half a minute to start
def test_a_scan_runs_on_spark_connect(tmp_path: Path) -> None:
    here, tree = tmp_path / "here", tmp_path / "tree"
    here.mkdir()
    tree.mkdir()
    secret = expand(load_builtin().by_id["github-pat"].examples[0], "connect")
    for number in range(50):
        (tree / f"file{number}.txt").write_text(secret if number == 7 else f"nothing in {number}\n")
    ran = run(CONNECT, here, str(tree), str(tmp_path / "state"), PYSPARK_PYTHON=sys.executable)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.splitlines()[-1] == "1 50 None"
