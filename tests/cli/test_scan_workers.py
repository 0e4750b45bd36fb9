"""`strandline scan` takes Spark for much work, and none for little, unless told; the results are the same."""

import json
from pathlib import Path

import pytest

from strandline import spark
from strandline.cli import scan_workers
from strandline.cli.scan_workers import WorkerOptions
from strandline.errors import InvalidInput
from strandline.scan import LocalWorkers, WorkersBySize
from strandline.spark.workers import SparkWorkers
from tests.cli.scan_command import Here


class Asked(Exception):
    """A session was asked for."""


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise Asked

    monkeypatch.setattr(spark, "session", refuse)


def options(*, with_spark: bool = False, without_spark: bool = False, has_options: bool = False) -> WorkerOptions:
    return WorkerOptions(lambda: pytest.fail("a session"), None, with_spark, without_spark, has_options)


@pytest.mark.usefixtures("no_session")
def test_few_items_need_no_session_and_an_option_asks_for_one(here: Here) -> None:
    here.write(one="alpha_12345678", two="nothing")
    assert here.found()[0] == ["one:1:1"]
    here.write(two="beta_12345678")
    for option in (["--with-spark"], ["--master", "local[1]"], ["--conf", "spark.app.name=x"]):
        with pytest.raises(Asked):
            here.scan(*option)
    assert here.found()[0] == ["one:1:1", "two:1:1"]


@pytest.mark.usefixtures("spark")
def test_findings_have_the_same_ids_on_either(tmp_path: Path) -> None:
    ids = []
    for number, option in enumerate(["--with-spark", "--without-spark"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        here = Here(folder)
        here.files = tmp_path / "files"
        here.files.mkdir(exist_ok=True)
        here.write(one="alpha_12345678\nbeta_12345678", two="beta_00000001")
        here.state.mkdir()
        (here.state / "tenant.key").write_text("5a" * 32 + "\n")
        (here.state / "tenant.key").chmod(0o600)
        rows = here.done(option, "--json", "--key-file", here.state / "tenant.key").out.splitlines()[:-1]
        ids.append([json.loads(row)["finding_id"] for row in rows])
    assert len(ids[0]) == 3
    assert ids[0] == ids[1]


def test_the_rule_is_one_and_explained(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_workers, "_cores", lambda: 4)
    little = "this machine, without Spark, on up to 4 cores"
    assert options().explained(0) == "none: there is nothing to scan"
    assert options().explained(1_999) == f"{little} (fewer than 2,000 items; --with-spark for Spark)"
    assert options().explained(2_000).startswith("Spark, local[*] (2,000 items or more")
    assert options(without_spark=True).explained(10**6) == f"{little} (--without-spark)"
    assert options(with_spark=True).explained(1) == "Spark, local[*] (--with-spark)"
    monkeypatch.setattr(scan_workers, "_has_spark", lambda: False)
    assert options().explained(2_000) == f"{little} (PySpark is not installed)"
    here.write(one="x")
    said = f"workers: {little} (fewer than 2,000 items; --with-spark for Spark)"
    assert here.done("--explain").out.splitlines()[-1] == said
    assert f"workers: {json.loads(here.done('--explain', '--json').out)['workers']}" == said


def test_what_lists_and_plans_is_explained(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    little = "this process (fewer than 200,000 listed items)"
    assert [options().planner_explained(items) for items in (0, 199_999)] == [little] * 2
    assert options().planner_explained(200_000) == "tasks of Spark (200,000 listed items or more)"
    assert options(with_spark=True).planner_explained(1) == little
    assert options(without_spark=True).planner_explained(10**6) == "this process"
    here.write(one="x")
    assert json.loads(here.done("--explain", "--json").out)["planner"] == little
    assert f"listed and planned by: {little}" in here.done("--explain").out.splitlines()
    monkeypatch.setattr(scan_workers, "_has_spark", lambda: False)
    assert options().planner_explained(10**6) == "this process"


def test_what_is_explained_is_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: object) -> None:
        pass

    assert isinstance(options().workers(silent), WorkersBySize)
    assert isinstance(options(with_spark=True).workers(silent), SparkWorkers)
    assert isinstance(options(has_options=True).workers(silent), SparkWorkers)
    assert isinstance(options(without_spark=True).workers(silent), LocalWorkers)
    monkeypatch.setattr(scan_workers, "_has_spark", lambda: False)
    assert isinstance(options().workers(silent), LocalWorkers)


def test_options_that_exclude_each_other_are_told() -> None:
    with pytest.raises(InvalidInput, match="--with-spark and --without-spark"):
        options(with_spark=True, without_spark=True)
    with pytest.raises(InvalidInput, match="--without-spark excludes the options of Spark"):
        options(without_spark=True, has_options=True)
