"""Spark's settings for a session, and the reason for each: pure functions of the caller's wishes.

Each setting was measured; `docs/decisions/0012-a-tuned-spark-session.md` has the figures.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_LOCAL = re.compile(r"local(\[(?P<cores>\d+|\*)?(,\d+)?\])?$")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("log4j2.properties")

_ALWAYS = {
    # Over TCP a task waits about 40 ms for its first bytes; over a unix socket it does not.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "strandline.spark.daemon",
    # The default manager starts about twenty processes for each file of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.showConsoleProgress": "false",
    # A function that pickles to more (a megabyte, by default) goes through a file, and ours holds a tenant's key.
    "spark.broadcast.UDFCompressionThreshold": str(1 << 30),
}

# For sessions that move many rows through Java: slower to start, and up to twice as fast after a while. Arrow's checks
# of bounds and nulls guard against mistakes in Java code that reads batches, and that code is Spark's.
THROUGHPUT: Mapping[str, str] = {
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=4 "
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
}


def default_master() -> str:
    """Return a master that uses the cores this process may use, and tries a task four times before it fails."""
    return f"local[{usable_cores()},4]"


def usable_cores() -> int:
    """Return how many cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_cores(master: str) -> int | None:
    """Return how many tasks a local master runs at once; None for a cluster."""
    found = _LOCAL.match(master)
    if found is None:
        return None
    cores = found["cores"] or "1"
    return usable_cores() if cores == "*" else int(cores)


def is_loopback(master: str) -> bool:
    """Tell whether the master, with all its workers, can be reached over the loopback interface alone."""
    if local_cores(master) is not None:
        return True
    places = master.removeprefix("spark://").split(",") if master.startswith("spark://") else []
    return bool(places) and all(place.rstrip("/").rpartition(":")[0].strip("[]") in LOOPBACK for place in places)


def java_options(temporary: Path) -> list[str]:
    """Return Java's own options: a scan is Python's work, so starting quickly counts and compiling well does not."""
    return [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={temporary}",
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    ]


def spark_settings(
    *, master: str, app_name: str, ui: bool, warehouse: Path, java: Sequence[str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of a session; those that were given win, and Java options are added to ours."""
    settings = {
        **_ALWAYS,
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.ui.enabled": str(ui).lower(),
        "spark.sql.warehouse.dir": warehouse.as_uri(),
    }
    cores = local_cores(master)
    if cores is not None:
        settings["spark.sql.shuffle.partitions"] = str(cores)
    if is_loopback(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings |= given
    settings[JAVA_OPTIONS] = " ".join([*java, *filter(None, [given.get(JAVA_OPTIONS)])])
    return settings
