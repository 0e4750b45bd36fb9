"""The set-up script: what it makes of the Javas it meets, and when it has nothing to do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser
from tools import setup

VENV = Path("/nowhere/.venv")
REPORT = """Property settings:
    java.home = {home}
    java.io.tmpdir = /tmp

openjdk version "{version}" 2025-04-15
OpenJDK Runtime Environment (build 1)
"""


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{REPORT.format(home=home, version=version)}END\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("21", 21), ("21.0.8", 21), ("1.8.0_392", 8), ("25-ea", 25), ("11.0.2-internal", 11)],
)
def test_the_major_version_is_read_from_any_style_of_version(version: str, major: int) -> None:
    assert setup.parse_java(REPORT.format(home="/opt/java", version=version)) == (Path("/opt/java"), major)


@pytest.mark.parametrize("report", ["", "command not found", 'version "17"', "java.home = /opt/java"])
def test_what_is_no_report_of_a_java_is_no_java(report: str) -> None:
    assert setup.parse_java(report) is None


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    at_home, on_path = tmp_path / "home", tmp_path / "path"
    fake_java(at_home, "21.0.1")
    fake_java(on_path, "17.0.1")
    path = f"{on_path / 'bin'}:/usr/bin:/bin"
    assert setup.find_java({"JAVA_HOME": str(at_home), "PATH": path}, VENV) == (at_home, 21)
    assert setup.find_java({"PATH": path}, VENV) == (on_path, 17)
    assert setup.find_java({"JAVA_HOME": str(at_home), "PATH": path, "STRANDLINE_SETUP_JAVA": "bundled"}, VENV) is None


def test_a_java_of_another_version_or_a_broken_one_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    fake_java(tmp_path / "good", "17.0.1")
    assert setup.find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)}, VENV) is None
    for home in ("old", "absent"):
        environ = {"JAVA_HOME": str(tmp_path / home), "PATH": f"{tmp_path / 'good' / 'bin'}:/usr/bin:/bin"}
        assert setup.find_java(environ, VENV) == (tmp_path / "good", 17)


def test_the_java_of_an_earlier_set_up_is_not_taken_for_the_machines_own(tmp_path: Path) -> None:
    fake_java(tmp_path / ".venv" / "jdk", "21.0.8")
    environ = {"JAVA_HOME": str(tmp_path / ".venv" / "jdk"), "PATH": "/nowhere"}
    assert setup.find_java({**environ, "PATH": "/usr/bin:/bin"}, VENV) == (tmp_path / ".venv" / "jdk", 21)
    assert setup.find_java(environ, tmp_path / ".venv") is None


@pytest.mark.parametrize(
    "kept",
    [
        [],
        ["-version"],
        ["-Dname=two words", "", "a'b\"c", "$HOME", "*", "--add-modules=jdk.other"],
    ],
)
def test_the_wrapper_drops_one_argument_and_keeps_all_others(tmp_path: Path, kept: list[str]) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nfor argument do printf "%s\\0" "$argument"; done\n')
    real.chmod(0o755)
    setup.write_java_home(tmp_path / "java-home", real)
    for given in ([setup.DROPPED_ARGUMENT, *kept], [*kept, setup.DROPPED_ARGUMENT], kept):
        command = [str(tmp_path / "java-home" / "bin" / "java"), *given]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert output.split("\0")[:-1] == kept


def test_the_fingerprint_follows_every_input(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    for name in setup.INPUTS:
        (tmp_path / name).write_text(name)
    seen = {setup.fingerprint(tmp_path, {}), setup.fingerprint(tmp_path, {"STRANDLINE_SETUP_JAVA": "bundled"})}
    for name in setup.INPUTS:
        (tmp_path / name).write_text("changed")
        seen.add(setup.fingerprint(tmp_path, {}))
    assert len(seen) == 2 + len(setup.INPUTS)


def test_a_second_run_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools").mkdir()
    for name in setup.INPUTS:
        (tmp_path / name).write_text(name)
    steps: list[object] = []
    monkeypatch.setattr(setup, "make_venv", lambda venv: venv.mkdir(exist_ok=True))
    monkeypatch.setattr(setup, "pip_install", lambda *arguments: steps.append(arguments))
    monkeypatch.setattr(setup, "set_up_java", lambda venv, _: venv / "java-home")
    monkeypatch.setattr(setup, "set_up_packages", lambda: None)
    monkeypatch.setattr(setup, "prepare_spark", lambda *_: None)
    setup.set_up(tmp_path, {})
    assert len(steps) == 2
    assert f"export JAVA_HOME := {tmp_path}/.venv/java-home\n" in (tmp_path / ".venv" / "env.mk").read_text()
    setup.set_up(tmp_path, {})
    assert len(steps) == 2
    (tmp_path / "requirements.lock").write_text("changed")
    setup.set_up(tmp_path, {})
    assert len(steps) == 4


@pytest.mark.parametrize(("program", "note"), [("exit 0", False), ("echo noise >&2; exit 1", True), (None, True)])
def test_spark_is_prepared_and_failing_at_it_is_only_a_note(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], program: str | None, note: bool
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    if program is not None:
        python.write_text(f'#!/bin/sh\necho "$JAVA_HOME $*" > {tmp_path}/ran\n{program}\n')
        python.chmod(0o755)
    setup.prepare_spark(tmp_path, Path("/opt/java"))
    said = capfd.readouterr()
    assert said.err == ""
    assert ("note: Spark could not be prepared" in said.out) == note
    if program is not None:
        assert (tmp_path / "ran").read_text() == "/opt/java -m strandline.spark.class_archive_builder\n"


@pytest.mark.parametrize(
    ("there", "user", "code", "said", "ran"),
    [
        ("browser", 0, 0, "", ""),
        ("apt-get", 1000, 0, "note: browser is missing; the tests in a browser will skip", ""),
        ("", 0, 0, "note: browser is missing; the tests in a browser will skip", ""),
        ("apt-get", 0, 0, "installing browser", "install -y -qq --no-install-recommends browser"),
        ("apt-get", 0, 1, "note: browser could not be installed; the tests in a browser will skip", "update -qq"),
    ],
)
def test_a_package_of_tests_is_installed_where_that_is_possible_and_failing_at_it_is_only_a_note(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    there: str,
    user: int,
    code: int,
    said: str,
    ran: str,
) -> None:
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    if there:
        program = tmp_path / "bin" / there
        program.write_text(f'#!/bin/sh\necho "$@" >> {log}\necho noise >&2\nexit {code}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    setup.set_up_package("browser", ("browser",), "in a browser")
    told = capfd.readouterr()
    assert (said in told.out, told.err) == (True, "")
    assert (ran in log.read_text(), bool(log.read_text())) == (True, bool(ran))


def test_the_browsers_are_those_that_tests_look_for() -> None:
    assert setup.BROWSERS == browser.NAMES


def test_an_old_python_is_told_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "PYTHON_MIN", (99, 0))
    with pytest.raises(setup.SetupError, match=r"too old; 99\.0 is needed"):
        setup.set_up(tmp_path, {})


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("made_by", "is_set_up"), [(sys.version_info[:2], False), ((3, 9), True), (None, True)])
def test_an_environment_of_another_python_is_set_up_again(
    tmp_path: Path, made_by: tuple[int, int] | None, is_set_up: bool
) -> None:
    root = Path(setup.__file__).resolve().parent.parent
    shutil.copy(root / "Makefile", tmp_path)
    for name in setup.INPUTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tools" / "setup.py").write_text(
        "from pathlib import Path; Path('.venv').mkdir(exist_ok=True); Path('.venv/env.mk').touch(); print('set up')"
    )
    if made_by is not None:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"home = /usr\nversion = {made_by[0]}.{made_by[1]}.7\n")
        (tmp_path / ".venv" / "env.mk").touch()
    command = ["make", "-n", f"PYTHON={sys.executable}", "run"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environ)
    assert ("set up" in ran.stdout) is is_set_up
