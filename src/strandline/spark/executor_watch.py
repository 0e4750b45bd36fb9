"""A watch over the executors of a session: whether the cluster granted any, and the reason if its manager gives one.

The master of a standalone cluster is asked over Spark's own RPC, which needs neither its web page nor the port of one.
Other managers keep the reason to themselves.

Invariants: it only reads, and never raises: a question that fails yields an answer with less detail.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.scan.events import NoExecutor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAID_AFTER_S = 10.0
LOOK_EVERY_S = 2.0
_ADDRESS = re.compile(r"\[?(?P<host>[^,]+?)\]?:(?P<port>\d+)$")
_MIB = {"k": 2**-10, "m": 1.0, "g": 2.0**10, "t": 2.0**20}


class Wanted(NamedTuple):
    """The needs of each executor; `cores` is 0 where it takes as many as it is granted."""

    memory_mib: int
    cores: int = 0


class MasterWorker(NamedTuple):
    """A living worker of a standalone cluster."""

    cores: int
    cores_free: int
    memory_mib: int
    memory_free_mib: int


class MasterState(NamedTuple):
    """A standalone master: its status, living workers, other applications, executors of ours that ended."""

    status: str
    workers: Sequence[MasterWorker]
    others: Sequence[str]
    ended: int


class ExecutorWatch:
    """Watches over the executors of a session on a cluster."""

    def __init__(self, spark: "SparkSession", master: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._spark = spark
        self._master = master
        self._clock = clock
        self._without_since_s = clock()
        self._looked_s = float("-inf")

    def missing(self) -> NoExecutor | None:
        """Return that there is no executor, and why, if it is time to say so; looks once in a while."""
        now_s = self._clock()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return None
        self._looked_s = now_s
        if _granted(self._spark):
            self._without_since_s = now_s
        waited_s = now_s - self._without_since_s
        return NoExecutor(waited_s, self._reason()) if waited_s >= SAID_AFTER_S else None

    def _reason(self) -> str:
        if self._master.startswith("spark://"):
            state = _ask_master(self._spark, self._master)
            if state is not None:
                return reason(self._master, state, _wanted(self._spark))
        return (
            f"{self._master} has not said why: see there whether the application waits for a queue, a quota, "
            "machines or an image"
        )


def watch_executors(spark: "SparkSession") -> ExecutorWatch | None:
    """Return a watch over the executors of a session; None where this process runs the tasks, or cannot tell."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    master = spark.sparkContext.master or "local"
    return None if master.startswith("local") else ExecutorWatch(spark, master)


def reason(master: str, state: MasterState, wanted: Wanted) -> str:
    """Return why a standalone master grants nothing."""
    if state.status != "ALIVE":
        return f"{master} is {state.status}, and not the master that grants executors"
    if state.ended:
        return f"{state.ended:,} executors were started and ended at once: see their logs in the workers' work folders"
    if not state.workers:
        return f"no worker is registered with {master}: start some there"
    return _shortage(state, wanted) or f"{_counted(state)} of {master} have room for one, which is about to start"


def _shortage(state: MasterState, wanted: Wanted) -> str | None:
    """Return the resource that an executor needs and no worker has, or has free."""
    cores = max(wanted.cores, 1)
    memory = f"{wanted.memory_mib:,} MiB of memory (spark.executor.memory)"
    largest_mib = max(one.memory_mib for one in state.workers)
    if largest_mib < wanted.memory_mib:
        return f"an executor needs {memory}; the largest of {_counted(state)} has {largest_mib:,} MiB"
    most = max(one.cores for one in state.workers)
    if most < cores:
        return f"an executor needs {cores} cores (spark.executor.cores); the largest of {_counted(state)} has {most}"
    if any(one.memory_free_mib >= wanted.memory_mib and one.cores_free >= cores for one in state.workers):
        return None
    free = sum(one.cores_free for one in state.workers), sum(one.memory_free_mib for one in state.workers)
    held = f", held by {', '.join(state.others[:3])}" if state.others else ""
    return (
        f"an executor needs {cores} {'core' if cores == 1 else 'cores'} and {memory} on one worker; "
        f"{_counted(state)} have {free[0]:,} free cores and {free[1]:,} MiB free in all{held}"
    )


def parse_mib(text: str) -> int:
    """Return a size as Spark writes it (`512m`, `4g`), in MiB; a plain number is MiB."""
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower())
    return 0 if found is None else int(int(found[1]) * _MIB[found[2] or "m"])


def _counted(state: MasterState) -> str:
    count = len(state.workers)
    return "1 worker" if count == 1 else f"{count:,} workers"


def _wanted(spark: "SparkSession") -> Wanted:
    conf = spark.sparkContext.getConf()
    memory = sum(
        parse_mib(conf.get(name, default) or default)
        for name, default in (("spark.executor.memory", "1g"), ("spark.executor.pyspark.memory", "0"))
    )
    return Wanted(memory, int(conf.get("spark.executor.cores", "0") or 0))


def _granted(spark: "SparkSession") -> bool:
    """Return whether there is an executor beside the driver; True where that cannot be told."""
    try:
        return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) > 1  # noqa: SLF001 - no public way
    except Exception:  # noqa: BLE001 - Java may be gone, which the job itself tells
        return True


def _ask_master(spark: "SparkSession", master: str) -> MasterState | None:
    """Ask the masters of an address, one after another, for the one that is in charge; None where none answers."""
    answers: list[MasterState] = []
    for found in map(_ADDRESS.match, master.removeprefix("spark://").split(",")):
        if found is not None:
            with suppress(Exception):  # it is away, or its Spark is another
                answers.append(_ask(spark, found["host"], int(found["port"])))
    return max(answers, key=lambda one: one.status == "ALIVE", default=None)


def _ask(spark: "SparkSession", host: str, port: int) -> MasterState:
    context: Any = spark.sparkContext
    java = context._jvm  # noqa: SLF001 - the status of a master has no public face

    def load(name: str) -> Any:  # noqa: ANN401 - a class of Java's
        return java.java.lang.Class.forName(f"org.apache.spark.deploy.DeployMessages${name}")

    tags = java.java.lang.Class.forName("scala.reflect.ClassTag$").getField("MODULE$").get(None)
    question = load("RequestMasterState$").getField("MODULE$").get(None)
    rpc = context._jsc.sc().schedulerBackend().rpcEnv()  # noqa: SLF001
    endpoint = rpc.setupEndpointRef(java.org.apache.spark.rpc.RpcAddress(host, port), "Master")
    answer = endpoint.askSync(question, tags.apply(load("MasterStateResponse")))
    workers = [one for one in answer.workers() if one.state().toString() == "ALIVE"]
    apps = list(answer.activeApps())
    ours = [app for app in apps if app.id() == context.applicationId]
    return MasterState(
        str(answer.status().toString()),
        [MasterWorker(one.cores(), one.coresFree(), one.memory(), one.memoryFree()) for one in workers],
        [str(app.desc().name()) for app in apps if app.id() != context.applicationId and app.coresGranted()],
        sum(int(app.removedExecutors().size()) for app in ours),
    )
