"""kill -9 of the driver, its Java and its workers: the next driver goes on, and all is there once."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.spark.source import StrandlineSource
from tests.servers_spark import ROOT
from tests.spark.journals.child import BATCH, KilledSource, copy, fold
from tests.spark.journals.helpers import fill, numbered, values
from tests.waiting import PATIENCE_S

COUNT = 2 * BATCH


def run_child(mode: str, journal: Path, target: Path, checkpoint: Path, moment: str) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.spark.journals.child",
        mode,
        str(journal),
        str(target),
        str(checkpoint),
        moment,
    ]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=5 * PATIENCE_S)
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]


def killed_in_the_sink(spark: SparkSession, folder: Path, moment: str) -> None:
    journal, target, checkpoint = folder / "j", folder / "t", folder / "c"
    fill(journal, COUNT)
    run_child("sink", journal, target, checkpoint, moment)
    assert sorted(file.name for file in (checkpoint / "commits").iterdir() if file.name.isdigit()) == ["0"]
    assert values(target) == numbered(0, BATCH if moment == "intent" else 2 * BATCH)
    fill(journal, BATCH)
    spark.dataSource.register(type("Same", (StrandlineSource,), {"name": classmethod(lambda _: KilledSource.name())}))
    copy(spark, str(journal), str(target), str(checkpoint), KilledSource.name())
    assert values(target) == numbered(0, COUNT + BATCH)


def killed_in_foreach(spark: SparkSession, folder: Path, moment: str) -> None:
    journal, effects, checkpoint = folder / "j", folder / "effects", folder / "c"
    fill(journal, COUNT)
    run_child("foreach", journal, effects, checkpoint, moment)
    fill(journal, BATCH)
    fold(spark, str(journal), str(effects), str(checkpoint))
    with closing(sqlite3.connect(effects)) as database:
        assert [row[0] for row in database.execute("SELECT offset FROM applied")] == list(range(COUNT + BATCH))


def test_t5_a_sink_killed_between_its_append_and_its_note_has_every_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    killed_in_the_sink(spark, tmp_path, "append")


@pytest.mark.long
def test_a_batch_killed_after_its_effects_is_replayed_with_the_same_range(spark: SparkSession, tmp_path: Path) -> None:
    killed_in_foreach(spark, tmp_path, "after")


@pytest.mark.long
@pytest.mark.parametrize("moment", ["intent", "done"])
def test_a_sink_killed_at_any_moment_has_every_row_once(spark: SparkSession, tmp_path: Path, moment: str) -> None:
    killed_in_the_sink(spark, tmp_path, moment)


@pytest.mark.long
def test_a_batch_killed_before_its_effects_is_applied_by_the_next_driver(spark: SparkSession, tmp_path: Path) -> None:
    killed_in_foreach(spark, tmp_path, "before")
