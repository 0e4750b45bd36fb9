"""The command of Java that is learned is the one that `spark-submit` runs, where nothing else has a say in it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.spark.driver import Driver, child_environment, spark_home
from strandline.spark.java import Java, find_java
from strandline.spark.launch_command import (
    LaunchCommand,
    arguments,
    is_learnable,
    learn_command,
    read_command,
)
from strandline.spark.settings import JAVA_OPTIONS
from strandline.spark.workspace import Workspace
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

WITHOUT_METADATA = """
from importlib import metadata

def from_name(name, real=metadata.Distribution.from_name):
    if name == "pyspark":
        raise metadata.PackageNotFoundError(name)
    return real(name)

metadata.Distribution.from_name = staticmethod(from_name)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in os.environ:
        if name.startswith(("SPARK_", "HADOOP_")):
            monkeypatch.delenv(name)


def launched(settings: dict[str, str], java: Java | None = None) -> tuple[list[str], dict[str, str]]:
    """Return what `spark-submit` becomes, and its environment; what is learned of it is kept."""
    java, home = java or find_java(), spark_home()
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
        pytest.param({JAVA_OPTIONS: "-Da=1 -Xmx2g"}, {}, id="an option that spark-submit refuses"),
        pytest.param({JAVA_OPTIONS: "-Dspark.a=1"}, {}, id="a setting that spark-submit refuses"),
        pytest.param({}, {"SPARK_SUBMIT_OPTS": "-Dx=1"}, id="options of spark-submit"),
        pytest.param({}, {"SPARK_CONF_DIR": "/x"}, id="a folder of settings"),
        pytest.param({}, {"SPARK_HOME": "/x"}, id="a home of one's own"),
        pytest.param({}, {"HADOOP_CONF_DIR": "/x"}, id="a folder of Hadoop's settings"),
    ],
)
def test_where_something_else_has_a_say_spark_submit_runs(
    tmp_path: Path, settings: dict[str, str], environ: dict[str, str]
) -> None:
    assert is_learnable(find_java(), tmp_path, SETTINGS, {"PATH": "/bin", "SPARK_LOCAL_IP": "127.0.0.1"})
    assert not is_learnable(find_java(), tmp_path, {**SETTINGS, **settings}, environ)


def test_settings_in_the_home_have_a_say(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    assert not is_learnable(find_java(), tmp_path, SETTINGS, {})


def test_a_script_in_place_of_java_has_a_say(tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\nexec {find_java().home}/bin/java $OPTIONS_OF_MINE "$@"\n')
    assert not is_learnable(Java(tmp_path / "java", "17.0.1"), tmp_path, SETTINGS, {})


def test_what_a_name_led_to_before_is_not_run(tmp_path: Path) -> None:
    real = find_java()
    link = tmp_path / "default-java"
    link.symlink_to(real.home)
    launched(SETTINGS, Java(link, real.version))
    assert read_command(Java(link, real.version), spark_home()) is not None
    assert read_command(real, spark_home()) is None, "it would run whatever the link leads to by now"


def test_a_variable_that_the_scripts_set_is_learned_where_a_user_set_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    launched(SETTINGS)
    learned = read_command(find_java(), spark_home())
    assert learned is not None
    assert learned.environment["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"head": []}',
        b'{"head": [1], "tail": [], "environment": {}}',
        b'{"head": ["x"], "tail": [], "environment": {"A": 1}}',
        b'{"head": "java", "tail": [], "environment": {}}',
    ],
)
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


def run_session(**environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", REPORT, "spark.app.name=x"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})


def test_a_session_starts_where_what_was_learned_does_not(tmp_path: Path) -> None:
    launched(SETTINGS)
    (path,) = (tmp_path / "cache").rglob("launch-commands/*.json")
    learned = json.loads(path.read_bytes())
    path.write_text(json.dumps({**learned, "head": [learned["head"][0], "-cp", "/none"]}))
    done = run_session()
    assert done.stdout.split() == ["10", "x"], done.stderr
    assert done.stderr == ""
    assert json.loads(path.read_bytes()) == learned, "learned anew from spark-submit"


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(["/none/bin/java"], id="no such program"),
        pytest.param([], id="no program"),
        pytest.param(["/bin/false"], id="a program that fails"),
        pytest.param(["a\0b"], id="no word"),
    ],
)
def test_a_command_that_does_not_start_is_forgotten(tmp_path: Path, head: list[str]) -> None:
    launched(SETTINGS)
    (path,) = (tmp_path / "cache").rglob("launch-commands/*.json")
    path.write_text(json.dumps({"head": head, "tail": [], "environment": {}}))
    scripts = spark_home() / "bin"
    scripts.unlink()
    scripts.mkdir()
    script = scripts / "spark-submit"
    script.write_text('#!/bin/sh\nprintf answer > "$_PYSPARK_DRIVER_CONN_INFO_PATH"\nread -r line\n')
    script.chmod(0o755)
    driver = Driver(find_java(), spark_home(), Workspace(), SETTINGS)
    try:
        assert driver._answered() == b"answer"  # noqa: SLF001 - a whole connection takes PySpark
        assert not path.exists()
    finally:
        driver.end()


def test_a_pyspark_that_was_not_installed_starts(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "pyspark").symlink_to(Path(spec.origin).parent)
    (tmp_path / "python" / "sitecustomize.py").write_text(WITHOUT_METADATA)
    done = run_session(PYTHONPATH=str(tmp_path / "python"))
    assert done.stdout.split() == ["10", "x"], done.stderr
