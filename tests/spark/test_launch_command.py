"""The command of Java that is learned is the one that `spark-submit` runs, where nothing else has a say in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.spark.driver import child_environment, spark_home
from strandline.spark.java import find_java
from strandline.spark.launch_command import (
    LaunchCommand,
    arguments,
    is_learnable,
    learn_command,
    read_command,
)
from strandline.spark.settings import JAVA_OPTIONS
from tests.waiting import eventually

SETTINGS = {"spark.master": "local[2]", "spark.app.name": "x", JAVA_OPTIONS: "-XX:+UseSerialGC -Dfirst=1"}
OTHERS = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    JAVA_OPTIONS: "-XX:-UsePerfData -Dsecond=two -Dthird=3",
}

REPORT = """
import sys
from strandline.spark.sessions import session
with session(settings=dict(part.split("=", 1) for part in sys.argv[1:])) as spark:
    print(spark.range(10).count(), spark.conf.get("spark.app.name"))
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in os.environ:
        if name.startswith(("SPARK_", "HADOOP_")):
            monkeypatch.delenv(name)


def launched(settings: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return what `spark-submit` becomes, and its environment; what is learned of it is kept."""
    java, home = find_java(), spark_home()
    environ = child_environment(java, home, settings) | {"_PYSPARK_DRIVER_CONN_INFO_PATH": "/none/of/these"}
    command = [str(home / "bin" / "spark-submit"), *arguments(settings)]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        words = Path(f"/proc/{process.pid}/cmdline")
        eventually(lambda: b"java\0-cp" in words.read_bytes())
        command = os.fsdecode(words.read_bytes()).split("\0")[:-1]
        environment = os.fsdecode(Path(f"/proc/{process.pid}/environ").read_bytes()).split("\0")[:-1]
        learn_command(java, home, settings, environ, process.pid)
        process.kill()
    return command, dict(word.partition("=")[::2] for word in environment)


def test_what_is_learned_from_one_start_is_the_command_of_another() -> None:
    java, home = find_java(), spark_home()
    assert read_command(java, home) is None
    launched(SETTINGS)
    learned = read_command(java, home)
    assert learned is not None
    expected, environment = launched(OTHERS)
    mine = learned.command(OTHERS)
    at = mine.index("--conf")
    assert mine[:at] == expected[:at]
    assert sorted(mine[at:]) == sorted(expected[at:]), "the launcher sorts settings in its own way"
    ours = child_environment(java, home, OTHERS) | learned.environment
    names = {name for name in (*environment, *ours) if name.startswith(("SPARK_", "PYTHON", "JAVA_", "PYSPARK_"))}
    assert {name: environment.get(name) for name in names} == {name: ours.get(name) for name in names}


def test_nothing_of_a_user_is_kept(tmp_path: Path) -> None:
    settings = {**SETTINGS, "spark.hadoop.fs.s3a.secret.key": "zebra", JAVA_OPTIONS: "-Dpassword=crossing"}
    launched(settings)
    kept = [path.read_text() for path in (tmp_path / "cache").rglob("*.json")]
    assert len(kept) == 1
    assert "zebra" not in kept[0]
    assert "crossing" not in kept[0]


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        pytest.param({"spark.driver.memory": "2g"}, {}, id="memory"),
        pytest.param({"spark.driver.extraClassPath": "/x"}, {}, id="class path"),
        pytest.param({"spark.driver.extraLibraryPath": "/x"}, {}, id="library path"),
        pytest.param({"spark.submit.deployMode": "cluster"}, {}, id="a driver elsewhere"),
        pytest.param({JAVA_OPTIONS: "-Da='b c'"}, {}, id="quotes"),
        pytest.param({}, {"SPARK_SUBMIT_OPTS": "-Dx=1"}, id="options of spark-submit"),
        pytest.param({}, {"SPARK_CONF_DIR": "/x"}, id="a folder of settings"),
        pytest.param({}, {"SPARK_HOME": "/x"}, id="a home of one's own"),
        pytest.param({}, {"HADOOP_CONF_DIR": "/x"}, id="a folder of Hadoop's settings"),
    ],
)
def test_where_something_else_has_a_say_spark_submit_runs(
    tmp_path: Path, settings: dict[str, str], environ: dict[str, str]
) -> None:
    assert is_learnable(tmp_path, SETTINGS, {"PATH": "/bin", "SPARK_LOCAL_IP": "127.0.0.1"})
    assert not is_learnable(tmp_path, {**SETTINGS, **settings}, environ)


def test_settings_in_the_home_have_a_say(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    assert not is_learnable(tmp_path, SETTINGS, {})


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"head": []}'])
def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path, damage: bytes) -> None:
    launched(SETTINGS)
    (path,) = (tmp_path / "cache").rglob("launch-commands/*.json")
    path.write_bytes(damage)
    assert read_command(find_java(), spark_home()) is None


def test_a_command_is_filled_in_with_options_and_settings() -> None:
    learned = LaunchCommand(["java", "-cp", "x"], ["-Xlast"], {})
    options = ["-XX:+UseSerialGC", "-Dfirst=1"]
    assert learned.command(SETTINGS)[:7] == [
        "java",
        "-cp",
        "x",
        *options,
        "-Xlast",
        "org.apache.spark.deploy.SparkSubmit",
    ]


def test_sessions_after_the_first_start_without_the_script() -> None:
    for name in ("first", "second"):
        command = [sys.executable, "-c", REPORT, f"spark.app.name={name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["10", name]
        scripts = spark_home() / "bin"
        if name == "first":
            scripts.unlink()
            scripts.mkdir()  # so that there is no script for the second
