"""A Spark session that starts quickly, keeps quiet and cleans up: for the command line, the tests and scripts.

Invariants: a process has one session at a time; all that Spark writes is in a folder of its own that goes away with the
process; nothing is printed; nothing listens beyond this machine unless the master is on another.

PySpark is imported when a session is made, not before. Java lives from the first session to the end of the process,
so its options are those of the first.
"""

import atexit
import contextlib
import importlib
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.errors import Conflict
from strandline.files import storage_errors
from strandline.spark.class_archive import archive_options
from strandline.spark.console import cancel_on_interrupt, silence_counters, silence_py4j
from strandline.spark.driver import Driver, SparkNotStarted, changed_environment, spark_home, worker_python
from strandline.spark.errors import first_cause, spark_errors
from strandline.spark.java import find_java
from strandline.spark.local_files import spare_processes
from strandline.spark.master import check_master
from strandline.spark.settings import default_master, java_options, spark_settings
from strandline.spark.workspace import Workspace

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_lock = threading.Lock()
_driver: Driver | None = None


class AnotherSession(Conflict):
    """A session is running in this process, and it is not set as the one asked for."""

    def __init__(self, name: str, running: str | None, wanted: str) -> None:
        super().__init__(
            f"a Spark session is running in this process with {name} {running}, and {wanted} was asked for",
            hint="stop() that session first, or use it as it is",
        )
        self.name = name
        self.running = running
        self.wanted = wanted


def session(
    *,
    master: str | None = None,
    app_name: str = "strandline",
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return a session tuned for Python jobs, on all usable cores of this machine unless `master` names a cluster.

    `settings` are Spark's own and win over ours; `THROUGHPUT` is a set of them. Where a session is running already, it
    is returned if it is what was asked for. It ends with the process; only to have another one must it be stopped.

    Raises `JavaMissing`, `SparkNotStarted`, `MasterUnreachable`, `AnotherSession`, or `InvalidInput` for a master that
    cannot be read.
    """
    given = dict(settings or {})
    with _lock, spark_errors():
        running = _running_context()
        if running is not None:
            return _as_asked(running, {**({"spark.master": master} if master else {}), **given})
        return start(master=master or default_master(), app_name=app_name, ui=ui, settings=given)


def start(
    *,
    master: str,
    app_name: str = "strandline",
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
    archive: Sequence[str] | None = None,
) -> "SparkSession":
    """Start a session where none is running; `archive` are the Java options in place of those that use the archive."""
    check_master(master)
    driver = _driver if _driver is not None and _driver.is_alive() else None
    java = find_java()
    with storage_errors(Path(tempfile.gettempdir())):
        home = spark_home()
        workspace = driver.workspace if driver is not None else Workspace()
    chosen = spark_settings(
        master=master,
        app_name=app_name,
        ui=ui,
        warehouse=workspace.warehouse,
        java=java_options(workspace.temporary) + list(archive_options(java, home) if archive is None else archive),
        given=settings or {},
    )
    if driver is None:
        driver = _keep(Driver(java, home, workspace, chosen))
    return _connected(driver, chosen)


def _keep(driver: Driver) -> Driver:
    global _driver  # noqa: PLW0603 - PySpark keeps one Java process for the life of this one, and so do we
    if _driver is None:
        atexit.register(end)
    else:
        _driver.end()
    _driver = driver
    return driver


def _connected(driver: Driver, chosen: Mapping[str, str]) -> "SparkSession":
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - imported while Java starts
    from pyspark.sql import SparkSession  # noqa: PLC0415

    silence_py4j()
    with contextlib.suppress(ImportError):
        # PySpark imports it, and pandas with it, at the first call of Java: sooner, Java starts meanwhile.
        importlib.import_module("pyspark.testing.utils")
    gateway = driver.connect()
    if SparkContext._gateway is not gateway:  # noqa: SLF001 - that of a session not made here, and stopped
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    conf = SparkConf(loadDefaults=False).setAll(list(chosen.items()))
    try:
        with changed_environment({"PYSPARK_PYTHON": worker_python()}):
            context = SparkContext(conf=conf, gateway=gateway)
    except Exception as error:
        raise SparkNotStarted(first_cause(error), "") from error
    silence_counters(context)
    cancel_on_interrupt(context)
    hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001 - the file system has no setting for it
    spare_processes(gateway.jvm, hadoop)
    gateway.jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop).setWriteChecksum(False)
    return SparkSession(context)


def _running_context() -> "SparkContext | None":
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - see the module's docstring

    if _driver is not None and not _driver.is_alive():
        # Java died under it: PySpark would go on asking a process that is gone.
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    return SparkContext._active_spark_context  # noqa: SLF001 - there is no public way to ask without making one


def _as_asked(context: "SparkContext", asked: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see the module's docstring

    for name, wanted in asked.items():
        running = context.getConf().get(name)
        if running != wanted:
            raise AnotherSession(name, running, wanted)
    if _driver is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        cancel_on_interrupt(context)  # it was made in another thread
    return SparkSession.builder.getOrCreate()


def end(within_s: float = 10.0) -> bool:
    """End Java, and with it the session; the process may start another. Python's exit does it by itself.

    Return whether Java ended in good order, not because it took too long.
    """
    if _driver is None:
        return False
    is_in_order = False
    with contextlib.suppress(Exception):  # Java may have ended already
        is_in_order = _driver.end(within_s)
    _running_context()
    return is_in_order
