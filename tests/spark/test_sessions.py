"""A session of ours: its settings take effect, it keeps quiet, and it leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from strandline.errors import Damaged
from strandline.spark.error_transport import TaskCrashed
from strandline.spark.errors import WorkerLost, spark_errors
from strandline.spark.sessions import AnotherSession, session
from tests.spark import scripts
from tests.spark.tasks import ABOUT, DieOnce, about_the_worker, crash, damaged, die
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return an empty folder to run a script in; its parent is the script's temp folder, short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as temporary:
        inner = Path(temporary) / "cwd"
        inner.mkdir()
        yield inner


def about(spark: SparkSession) -> list[Row]:
    return spark.range(2, numPartitions=2).mapInArrow(about_the_worker, ABOUT).collect()


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    assert {row.python for row in about(spark)} == {sys.executable}
    assert not any(".zip" in row.pyspark for row in about(spark))


def test_workers_freeze_their_heap_after_the_first_task(spark: SparkSession) -> None:
    # A worker that is started for the second look has not frozen yet: then there is a third.
    assert eventually(lambda: all(row.frozen > 1000 for row in about(spark)))


def test_tasks_talk_over_unix_sockets(spark: SparkSession) -> None:
    assert {row.sockets for row in about(spark)} == {"true"}
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"


def test_files_are_written_without_checksums_beside_them(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "rows"))
    assert list((tmp_path / "rows").glob("*.parquet"))
    assert not list((tmp_path / "rows").glob(".*.crc"))
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 10


def test_a_stateful_stream_runs_on_the_state_store_that_wants_sparks_own_file_system(
    spark: SparkSession, tmp_path: Path
) -> None:
    """T11: the quicker file system for `file:` breaks the RocksDB state store."""
    spark.range(10).write.parquet(str(tmp_path / "rows"))
    name = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(name, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    seen: list[Row] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(batch.collect())

    try:
        counts = spark.readStream.schema("id long").parquet(str(tmp_path / "rows")).groupBy("id").count()
        stream = counts.writeStream.foreachBatch(keep).outputMode("complete").trigger(availableNow=True)
        assert (
            stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(int(PATIENCE_S))
        )
    finally:
        spark.conf.unset(name)
    assert len(seen) == 10
    assert not list((tmp_path / "checkpoint").rglob("*.crc"))


def test_a_process_has_one_session(spark: SparkSession) -> None:
    assert session() is spark
    assert session(master="local[2,4]", settings={"spark.driver.host": "127.0.0.1"}) is spark
    with pytest.raises(AnotherSession, match=r"with spark\.master local\[2,4\], and local\[1\] was asked for"):
        session(master="local[1]")
    with pytest.raises(AnotherSession, match=r"spark\.speculation None, and true"):
        session(settings={"spark.speculation": "true"})


def test_a_killed_worker_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(10, numPartitions=2).mapInArrow(DieOnce(tmp_path / "marker"), "id long").collect()
    assert sorted(row.id for row in rows) == list(range(10))
    assert (tmp_path / "marker").exists()


def test_a_task_that_kills_its_worker_each_time_is_told_as_that(spark: SparkSession) -> None:
    with pytest.raises(WorkerLost), spark_errors():
        spark.range(1, numPartitions=1).mapInArrow(die, "id long").collect()


def test_an_error_of_ours_raised_in_a_task_comes_back_as_itself(spark: SparkSession) -> None:
    with pytest.raises(Damaged, match="a/b: torn") as caught, spark_errors():
        spark.range(2).mapInArrow(damaged, "id long").collect()
    assert (caught.value.path, caught.value.problem, caught.value.safe) == ("a/b", "torn", "repair it")


def test_an_error_of_ours_comes_back_from_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "rows")).mapInArrow(damaged, "id long")
    stream = rows.writeStream.format("noop").trigger(availableNow=True)
    with pytest.raises(Damaged, match="a/b: torn"), spark_errors():
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()


def test_another_error_of_a_task_is_named_and_not_quoted(spark: SparkSession) -> None:
    with pytest.raises(TaskCrashed, match=r"ValueError at tasks\.py:\d+") as caught, spark_errors():
        spark.range(2).mapInArrow(crash, "id long").collect()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("made_in", ["the main thread", pytest.param("another", marks=pytest.mark.long)])
def test_ctrl_c_cancels_the_job_silently_and_ends_everything(folder: Path, made_in: str) -> None:
    script = f"""
        import threading
        from py4j.protocol import Py4JNetworkError
        if {made_in == "another"}:
            making = threading.Thread(target=lambda: session(master="local[2,4]"))
            making.start()
            making.join()
        spark = session(master="local[2,4]")
        print("ready", flush=True)
        try:
            spark.range(2, numPartitions=2).mapInArrow(Sleep(Path("../begun")), "id long").collect()
        except (KeyboardInterrupt, Py4JNetworkError) as error:
            # PySpark calls Java on the way out, and that call may meet the connection that Ctrl-C closed.
            assert isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt)
            print("interrupted", spark.range(3).count())  # Java was not, and its slots are free again
            sys.exit(130)
    """
    begun = folder.parent / "begun"
    begun.mkdir()
    with started(script.replace("../begun", str(begun)), folder) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        eventually(lambda: len(list(begun.iterdir())) == 2, "both tasks sleep")
        family = psutil.Process(child.pid).children(recursive=True)
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to the whole group
        out, err = child.communicate(timeout=5 * PATIENCE_S)
    assert (out, err, child.returncode) == ("interrupted 3\n", "", 130)
    assert_gone(family)
    assert not scripts.workspaces(folder.parent)


def test_sessions_follow_one_another_and_print_and_leave_nothing(folder: Path) -> None:
    """One whose Java is killed, one that ends in order, and one with a setting that Spark refuses.

    The first has all that makes Spark talk (failing tasks, workers that print, a table in the warehouse), and the web
    interface, which listens on this machine alone.
    """
    done = scripts.run(
        """
        from strandline.spark.driver import SparkNotStarted
        from strandline.spark.errors import SparkEnded
        import logging, psutil
        spark = session(master="local[2,4]", settings={"spark.sql.shuffle.partitions": "3"}, ui=True)
        assert spark.sparkContext.master == "local[2,4]"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
        spark.range(3).write.saveAsTable("kept")
        assert spark.table("kept").mapInArrow(about_the_worker, ABOUT).count() > 0
        try:
            with spark_errors():
                spark.range(2).mapInArrow(crash, "id long").collect()
        except Exception as error:
            print(error.hint)
        (java,) = [child for child in psutil.Process().children() if child.name() == "java"]
        print({each.laddr.ip for each in java.net_connections() if each.status == "LISTEN"})
        print(spark.sparkContext.uiWebUrl)
        java.kill()
        java.wait()
        try:
            with spark_errors():
                spark.range(5).count()
        except SparkEnded as error:
            print(error)
        with session() as spark:
            assert spark.sparkContext.uiWebUrl is None
            print(spark.range(6).count())
        try:
            session(settings={"spark.memory.fraction": "nonsense"})
        except SparkNotStarted as error:
            print(error)
        assert logging.getLogger().filters  # of calls that the end of Java cuts short nothing is printed either
        """,
        folder,
    )
    assert done.stderr == ""
    hint, listening, address, ended, count, refused = done.stdout.splitlines()
    assert hint == "this is a defect: please report it with this line"
    assert (ended, count) == ("Spark's Java process has ended", "6")
    assert "spark.memory.fraction" in refused
    assert set(eval(listening)) <= {"127.0.0.1", "::ffff:127.0.0.1"}  # noqa: S307 - our own
    assert address.startswith("http://127.0.0.1:")
    assert not list(folder.iterdir())
    assert not scripts.workspaces(folder.parent)


def test_without_java_a_user_is_told_what_to_do(folder: Path) -> None:
    done = scripts.run(
        """
        sys.prefix = "/nowhere"
        import strandline.spark.java as java
        java.find_spec = lambda _: None
        try:
            session()
        except java.JavaMissing as error:
            print(error)
        """,
        folder,
        PATH="",
        JAVA_HOME="",
    )
    assert (done.stdout, done.stderr) == ("Spark needs Java 17 or 21, and there is none\n", "")


def test_a_java_that_cannot_start_is_quoted(folder: Path) -> None:
    java = folder.parent / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    (java.parent.parent / "release").write_text('JAVA_VERSION="17.0.1"\n')
    java.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 3\n")
    java.chmod(0o755)
    done = scripts.run(
        """
        from strandline.spark.driver import SparkNotStarted
        try:
            session()
        except SparkNotStarted as error:
            print(error)
        """,
        folder,
        JAVA_HOME=str(java.parent.parent),
    )
    assert done.stdout.startswith("Spark did not start: Java ended with code ")
    assert "the disk is on fire" in done.stdout
    assert done.stderr == ""
    assert not scripts.workspaces(folder.parent)


@pytest.mark.long
def test_a_session_runs_on_a_wrapped_java(folder: Path) -> None:
    """T12: a packaged Java refuses a module that Spark's launcher always asks for; the wrapper drops the argument."""
    done = scripts.run(
        """
        from strandline.spark import java
        real = java.find_java().home / "bin" / "java"
        picky = Path("../picky")
        refuse = f'for a do [ "$a" = {java.DROPPED_ARGUMENT} ] && exit 1; done'
        picky.write_text(f'#!/bin/sh\\n{refuse}\\nexec {real} "$@"\\n')
        picky.chmod(0o755)
        os.environ["JAVA_HOME"] = str(java._wrapped(picky.resolve()))
        print(session().range(5).count())
        """,
        folder,
        XDG_CACHE_HOME=str(folder.parent / "cache"),
    )
    assert (done.stdout, done.stderr) == ("5\n", "")


@contextlib.contextmanager
def started(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a script in a process group of its own, and end it with the block."""
    with subprocess.Popen(
        scripts.command(script),
        cwd=folder,
        env=scripts.environment(folder.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def assert_gone(family: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert not alive


@pytest.mark.long
def test_a_connect_session_runs_our_code_and_gives_our_errors_back(folder: Path) -> None:
    """Spark Connect takes any session of Spark's; a local server of its own stands for one elsewhere."""
    done = scripts.run(
        """
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.remote("local[2]").getOrCreate()
        rows = spark.range(2, numPartitions=2).mapInArrow(about_the_worker, ABOUT).collect()
        print({row.python for row in rows} == {sys.executable})
        try:
            with spark_errors():
                spark.range(2).mapInArrow(damaged, "id long").collect()
        except Exception as error:
            print(repr(error), error.safe)
        spark.stop()
        """,
        folder,
        PYSPARK_PYTHON=sys.executable,
    )
    assert "True\nDamaged('a/b: torn') repair it\n" in done.stdout
