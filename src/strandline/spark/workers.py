"""Workers as tasks of a Spark job: one partition for each, which gets its first shard by its number.

    spark.range(workers) → mapInArrow(Task(task)) → one row for each worker: nothing, or why it gave up

Nothing else goes through Spark: executors open the stores, read the items and commit the pages themselves, so that a
task which is retried, runs twice or returns after it was given up does no harm: it claims other shards, or none.

Invariants: SQLite is used only by workers of this machine; an error of ours that ends a worker comes back as a row, so
that Spark does not repeat what a worker already repeated; leaving this function early cancels the job.

It imports no PySpark, and is given a session.
"""

import json
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from strandline.errors import StrandlineError
from strandline.pipeline.sql.sqlite import SqliteDatabase
from strandline.pipeline.stores import open_database
from strandline.scan.driver import scan
from strandline.scan.errors import StateNotShared, WorkersFailed
from strandline.scan.events import NoExecutor, StateNearby, Tell, silent
from strandline.scan.parted.kept_stores import close_kept
from strandline.scan.request import ScanRequest
from strandline.scan.retries import retried
from strandline.scan.settle.outcome import Outcome
from strandline.scan.source_visibility import check_sources
from strandline.scan.worker.engine_cache import engine_for
from strandline.scan.worker.worker import work
from strandline.scan.workers import WorkerTask
from strandline.spark.error_transport import format_error, parse_error, transport_errors
from strandline.spark.errors import spark_errors
from strandline.spark.executor_watch import watch_executors
from strandline.spark.worker_login import request_for_workers, worker_error

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

REPORT = pa.schema([("worker", pa.int64()), ("error", pa.string())])
_REPORT_SQL = "worker long, error string"
ANSWER = pa.schema([("part", pa.int64()), ("answer", pa.binary()), ("error", pa.string())])
_ANSWER_SQL = "part long, answer binary, error string"
TASKS_PER_SLOT = 8
"""Tasks among which the parts of a large scan are divided, for each slot: uneven ones even out."""
POLL_S = 0.2
T = TypeVar("T")
R = TypeVar("R")


def scan_on_spark(
    request: ScanRequest,
    session_factory: "Callable[[], SparkSession]",
    tell: Tell = silent,
    *,
    master: str | None = None,
) -> Outcome:
    """Do a scan on Spark; `session_factory` is called only if there is something to do.

    `master` is what the session will have, so that a state which its workers cannot share is refused before anything.
    """
    return scan(request, SparkWorkers(session_factory, master, tell), tell)


class Task:
    """The body of a worker's task; it pickles by its fields."""

    def __init__(self, task: WorkerTask, shards: Sequence[int], *, is_local: bool) -> None:
        self._task = task
        self._shards = tuple(shards)
        self._is_local = is_local

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Work on the run, beginning with the shard of this partition's number, if it has one."""
        with transport_errors():
            close_kept()  # the work opens stores of its own, and has the ledger on its disk once
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield self._report(number)

    def _report(self, number: int) -> pa.RecordBatch:
        prefer = self._shards[number] if number < len(self._shards) else None
        problem = None
        try:
            if not self._is_local:
                check_sources(self._task.request)
            work(self._task, prefer)
        except StrandlineError as error:
            problem = json.dumps([type(error).__name__, str(error), error.hint])
        columns = [[number], [problem]]
        return pa.record_batch([pa.array(cell, kind) for cell, kind in zip(columns, REPORT.types, strict=True)], REPORT)


class PartCalls:
    """The body of a task that makes the calls of its partition's numbers; it pickles by its fields."""

    def __init__(
        self, call: Callable[[ScanRequest, T], R], request: ScanRequest, tasks: Sequence[T], *, is_local: bool
    ) -> None:
        self._call = call
        self._request = request
        self._tasks = tasks
        self._is_checked = is_local

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the answers, pickled."""
        with transport_errors():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield self._answer(number)

    def _answer(self, number: int) -> pa.RecordBatch:
        answer, problem = None, None
        try:
            if not self._is_checked:
                check_sources(self._request)
                self._is_checked = True
            answer = pickle.dumps(retried(lambda: self._call(self._request, self._tasks[number])))
        except StrandlineError as error:
            problem = format_error(error)
        cells = ([number], [answer], [problem])
        return pa.record_batch([pa.array(cell, kind) for cell, kind in zip(cells, ANSWER.types, strict=True)], ANSWER)


class WarmUp:
    """The body of a task that loads the modules and the engine of a worker before there is work."""

    def __init__(self, request: ScanRequest) -> None:
        self._engine = request.rules, request.limits, request.key

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Load, and say nothing."""
        with transport_errors():
            for _ in batches:
                engine_for(*self._engine)
        yield from ()


class SparkWorkers:
    """Workers of a Spark session, which is made when there is something to do."""

    def __init__(
        self,
        session_factory: Callable[[], "SparkSession"],
        master: str | None = None,
        warn: Callable[[NoExecutor | StateNearby], None] = lambda _: None,
    ) -> None:
        self._session_factory = session_factory
        self._master = master
        self._warn = warn
        self._made: SparkSession | None = None
        self._making = threading.Lock()

    @property
    def are_here(self) -> bool:
        """Whether the master is this process, as one is that was not needed."""
        return self._made is None or _is_local(self._made.conf.get("spark.master", "local") or "local")

    def make_ready(self, request: ScanRequest) -> None:
        """Start Spark and its Python workers in a thread; an error there is raised again by `run`."""

        def warm() -> None:
            with suppress(Exception):
                spark = self._session()
                slots = _slots(spark, spark.conf.get("spark.master", "local") or "local", request.parallelism)
                spark.range(0, slots, 1, slots).mapInArrow(WarmUp(request), "id long").collect()

        threading.Thread(target=warm, name="strandline-warm", daemon=True).start()

    def _session(self) -> "SparkSession":
        """Return the session, made once: another thread may be about to."""
        with self._making:
            if self._made is None:
                self._made = self._session_factory()
            return self._made

    def check(self, request: ScanRequest) -> None:
        """Refuse a SQLite state for a master that is not on this machine."""
        if self._master is not None:
            check_shared(request, self._master)

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work in tasks until no shard of the run is active."""
        spark = self._session()
        master = spark.conf.get("spark.master", "local") or "local"
        slots = _slots(spark, master, task(1).request.parallelism)
        given = task(slots)
        check_shared(given.request, master)
        if not _is_local(master):
            given = replace(given, request=request_for_workers(given.request, master, _setting(spark), self._warn))
        workers = max(1, slots if len(shards) > 1 else 1)
        frame = spark.range(0, workers, 1, workers).mapInArrow(
            Task(given, shards, is_local=_is_local(master)), _REPORT_SQL
        )
        with spark_errors():
            rows = _polled(spark, frame.collect, self._watched(spark, poll))
        failed = [row.error for row in rows if row.error is not None]
        if failed:
            raise worker_error(*json.loads(failed[0]))

    def map_parts(self, call: Callable[[ScanRequest, T], R], request: ScanRequest, tasks: Sequence[T]) -> Iterator[R]:
        """Call in tasks, a few for each slot, and yield the answers in order."""
        if not tasks:
            return
        spark = self._session()
        master = spark.conf.get("spark.master", "local") or "local"
        check_shared(request, master)
        given, is_local = request, _is_local(master)
        if not is_local:
            given = request_for_workers(request, master, _setting(spark), self._warn)
        slots = min(len(tasks), TASKS_PER_SLOT * _slots(spark, master, request.parallelism))
        calls = PartCalls(call, given, tasks, is_local=is_local)
        frame = spark.range(0, len(tasks), 1, slots).mapInArrow(calls, _ANSWER_SQL)
        with spark_errors():
            rows = _polled(spark, frame.collect, self._watched(spark, lambda: None))
        for error in (parse_error(row.error) for row in rows if row.error is not None):
            raise WorkersFailed("WorkersFailed", "a part failed without an error of ours") if error is None else error
        for row in sorted(rows, key=lambda row: int(row.part)):
            answer: R = pickle.loads(row.answer)  # noqa: S301 - our own task made it
            yield answer

    def _watched(self, spark: "SparkSession", poll: Callable[[], None]) -> Callable[[], None]:
        """Return `poll`, which on a cluster warns where no executor was granted."""
        executors = watch_executors(spark)
        if executors is None:
            return poll

        def watched() -> None:
            poll()
            missing = executors.missing()
            if missing is not None:
                self._warn(missing)

        return watched


def check_shared(request: ScanRequest, master: str) -> None:
    """Refuse a state that the workers of a master could not share."""
    if _is_local(master):
        return
    with open_database(request.address) as database:
        if isinstance(database, SqliteDatabase) or request.address.startswith(("file://", "memory://")):
            raise StateNotShared(master)


def _slots(spark: "SparkSession", master: str, expected: int) -> int:
    """Return how many tasks run at once; a cluster may still be gathering its executors."""
    known = 1 if _is_connect(spark) else int(spark.sparkContext.defaultParallelism)
    return known if _is_local(master) and not _is_connect(spark) else max(known, expected)


def _setting(spark: "SparkSession") -> Callable[[str], str]:
    """Return a function that reads a setting of a session, empty where it has none."""
    if _is_connect(spark):
        return lambda name: spark.conf.get(name, "") or ""
    conf = spark.sparkContext.getConf()
    return lambda name: conf.get(name, "") or ""


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith(("local[", "local-cluster["))


def _is_connect(spark: "SparkSession") -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _polled(spark: "SparkSession", collect: Callable[[], list["Row"]], poll: Callable[[], None]) -> list["Row"]:
    """Run a job in a thread of its own, and poll meanwhile."""
    results: list[list[Row]] = []
    errors: list[BaseException] = []
    tag = f"strandline-scan-{uuid.uuid4().hex}"

    def run() -> None:
        if not _is_connect(spark):
            spark.sparkContext.setInterruptOnCancel(interruptOnCancel=True)
        spark.addTag(tag)
        try:
            results.append(collect())
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name=tag, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_S)
            poll()
    except BaseException:
        spark.interruptTag(tag)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return results[0]
