"""What a session is set to, as pure functions of what was asked."""

from pathlib import Path

import pytest

from strandline.spark.settings import (
    THROUGHPUT,
    default_master,
    is_loopback,
    java_options,
    local_cores,
    spark_settings,
    usable_cores,
)


def chosen(master: str = "local[3,4]", ui: bool = False, **given: str) -> dict[str, str]:
    settings = {name.replace("_", "."): value for name, value in given.items()}
    return spark_settings(
        master=master, app_name="a", ui=ui, warehouse=Path("/w"), java=java_options(Path("/t")), given=settings
    )


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[3,4]", 3), ("local[*]", usable_cores()), ("local[*,2]", usable_cores())],
)
def test_the_cores_of_a_local_master_are_known(master: str, cores: int) -> None:
    assert local_cores(master) == cores
    assert chosen(master)["spark.sql.shuffle.partitions"] == str(cores)


@pytest.mark.parametrize(
    "master", ["spark://10.0.0.1:7077", "yarn", "k8s://https://host:443", "local-cluster[2,1,1024]"]
)
def test_the_cores_of_a_cluster_are_its_own_business(master: str) -> None:
    assert local_cores(master) is None
    assert "spark.sql.shuffle.partitions" not in chosen(master)


def test_a_task_is_tried_four_times_by_default() -> None:
    assert default_master() == f"local[{usable_cores()},4]"


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077", "spark://localhost:7077"])
def test_nothing_listens_beyond_the_machine_where_the_master_is_on_it(master: str) -> None:
    assert is_loopback(master)
    assert chosen(master)["spark.driver.bindAddress"] == chosen(master)["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("master", ["spark://10.0.0.1:7077", "yarn", "spark://localhost.example.org:7077"])
def test_a_cluster_elsewhere_can_reach_the_driver(master: str) -> None:
    assert not is_loopback(master)
    assert "spark.driver.bindAddress" not in chosen(master)


def test_no_function_of_ours_is_written_to_a_file_on_its_way_to_tasks() -> None:
    assert int(chosen()["spark.broadcast.UDFCompressionThreshold"]) >= 1 << 30


def test_what_is_given_wins_and_java_options_are_added() -> None:
    assert chosen(spark_sql_shuffle_partitions="7")["spark.sql.shuffle.partitions"] == "7"
    both = spark_settings(
        master="local", app_name="a", ui=False, warehouse=Path("/w"), java=java_options(Path("/t")), given=THROUGHPUT
    )["spark.driver.extraJavaOptions"].split()
    assert both[0] == "-XX:TieredStopAtLevel=1"
    assert [each for each in both if "Tiered" in each][-1] == "-XX:TieredStopAtLevel=4"  # Java obeys the last


def test_the_web_interface_is_off_unless_asked_for() -> None:
    assert chosen()["spark.ui.enabled"] == "false"
    assert chosen(ui=True)["spark.ui.enabled"] == "true"


def test_the_file_that_java_logs_by_is_part_of_the_package() -> None:
    (option,) = [each for each in java_options(Path("/t")) if "log4j2" in each]
    assert Path(option.partition("file://")[2]).is_file()
