"""kill -9 of the driver, its Java and its workers in the middle of the sink: all is there once afterwards."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.spark.source import StrandlineSource
from strandline.spark.streams import Target
from tests.servers_nats import NatsServer
from tests.servers_spark import ROOT
from tests.spark.streams.child import BATCH, WINDOW, KilledSource, copy
from tests.spark.streams.helpers import ServerLog, numbered
from tests.waiting import PATIENCE_S

COUNT = 4 * BATCH
PUBLISHED = {"intent": 0, "window": 3 * WINDOW, "task": 3 * WINDOW, "published": BATCH, "done": BATCH}


@pytest.fixture
def target(nats_server: NatsServer, nats_bucket: str) -> Iterator[ServerLog]:
    # The shortest window that the sink takes: what is repeated here comes after the server has forgotten.
    with ServerLog(nats_server.url, Target("stream", f"{nats_bucket}-t"), duplicate_window=10**10) as world:
        yield world


def killed_in_the_sink(spark: SparkSession, stream: ServerLog, target: ServerLog, folder: Path, moment: str) -> None:
    stream.fill(COUNT)
    checkpoint = folder / "c"
    arguments = (stream.url, stream.name, target.name, str(checkpoint))
    command = [sys.executable, "-m", "tests.spark.streams.child", "sink", *arguments, moment]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=5 * PATIENCE_S)
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]
    assert sorted(file.name for file in (checkpoint / "commits").iterdir() if file.name.isdigit()) == ["0"]
    assert target.datas() == numbered(1, BATCH + PUBLISHED[moment] + 1)
    # As if the duplicate window were long over: nothing may depend on it.
    target.update(duplicate_window=10**10)
    stream.fill(BATCH)
    spark.dataSource.register(type("Same", (StrandlineSource,), {"name": classmethod(lambda _: KilledSource.name())}))
    copy(spark, *arguments, KilledSource.name())
    assert target.datas() == numbered(1, COUNT + BATCH + 1)


@pytest.mark.long
def test_t5_a_sink_killed_between_two_windows_has_every_row_once(
    spark: SparkSession, stream: ServerLog, target: ServerLog, tmp_path: Path
) -> None:
    killed_in_the_sink(spark, stream, target, tmp_path, "window")


@pytest.mark.long
@pytest.mark.parametrize("moment", ["intent", "published", "done", "task"])
def test_a_sink_killed_at_any_moment_has_every_row_once(
    spark: SparkSession, stream: ServerLog, target: ServerLog, tmp_path: Path, moment: str
) -> None:
    killed_in_the_sink(spark, stream, target, tmp_path, moment)
