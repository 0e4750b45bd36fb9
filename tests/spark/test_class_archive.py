"""The archive of Spark's classes: named by what it fits, used where it is, and never needed."""

import os
import subprocess
from pathlib import Path

import pytest

from strandline.spark import class_archive_builder
from strandline.spark.class_archive import archive_options, archive_path, forget_unused, format_archive_name
from strandline.spark.driver import spark_home
from strandline.spark.java import Java, JavaMissing, find_java
from tests.spark import scripts

JAVA = Java(Path("/opt/java"), "17.0.15+6")
HOME = Path("/opt/spark")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "strandline"


def test_it_is_named_by_the_java_and_the_spark_it_fits() -> None:
    names = {
        format_archive_name(JAVA, HOME),
        format_archive_name(Java(JAVA.home, "17.0.16+1"), HOME),
        format_archive_name(Java(Path("/opt/other"), JAVA.version), HOME),
        format_archive_name(JAVA, Path("/opt/spark2")),
    }
    assert len(names) == 4
    assert format_archive_name(JAVA, HOME) in names


def test_it_is_used_where_it_is_and_not_missed_where_it_is_not() -> None:
    assert archive_options(JAVA, HOME) == []
    archive_path(JAVA, HOME).touch()
    assert f"-XX:SharedArchiveFile={archive_path(JAVA, HOME)}" in archive_options(JAVA, HOME)


def test_archives_that_nobody_used_for_a_month_are_removed(cache: Path) -> None:
    used, unused = archive_path(JAVA, HOME), archive_path(JAVA, Path("/opt/older"))
    for each in (used, unused):
        each.touch()
        os.utime(each, (0, 0))
    assert archive_options(JAVA, HOME)
    forget_unused(used.stat().st_mtime + 86_400)
    assert list(cache.iterdir()) == [used]


def test_what_is_prepared_already_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive_builder, "find_java", lambda: JAVA)
    monkeypatch.setattr(class_archive_builder, "spark_home", lambda: HOME)
    archive_path(JAVA, HOME).touch()
    assert class_archive_builder.build_class_archive() == archive_path(
        JAVA, HOME
    )  # it would fail to start the Java that is not there


def test_failing_to_prepare_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> Java:
        raise JavaMissing

    monkeypatch.setattr(class_archive_builder, "find_java", missing)
    assert class_archive_builder.main() == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("sessions will start more slowly: Spark needs Java")


def test_java_ignores_a_broken_archive_silently() -> None:
    java, home = find_java(), spark_home()
    archive_path(java, home).write_bytes(b"not an archive" * 1000)
    options = archive_options(java, home)
    assert options
    with_it, without = (
        subprocess.run([java.home / "bin" / "java", *given, "--list-modules"], capture_output=True, check=True)
        for given in (options, [])
    )
    assert (with_it.stdout, with_it.stderr) == (without.stdout, b"")
    assert b"java.base" in without.stdout


@pytest.mark.long
def test_a_session_ignores_a_broken_archive_silently(tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    done = scripts.run(
        """
        from strandline.spark.class_archive import archive_path
        from strandline.spark.java import find_java
        from strandline.spark.driver import spark_home
        archive_path(find_java(), spark_home()).write_bytes(b"not an archive" * 1000)
        print(session(master="local[1]").range(5).count())
        """,
        folder,
    )
    assert (done.stdout, done.stderr) == ("5\n", "")


@pytest.mark.parametrize("in_good_order", [True, False])
def test_what_a_killed_java_wrote_is_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, in_good_order: bool
) -> None:
    def started(*, master: str, archive: list[str]) -> None:  # noqa: ARG001 - as `start` has it
        Path(archive[0].partition("=")[2]).write_bytes(b"a part")

    monkeypatch.setattr(class_archive_builder, "start", started)
    monkeypatch.setattr(class_archive_builder, "end", lambda within_s: in_good_order)  # noqa: ARG005
    monkeypatch.setattr(class_archive_builder, "_exercise", lambda _: None)
    if in_good_order:
        assert class_archive_builder.build_class_archive().exists()
    else:
        with pytest.raises(class_archive_builder.NoArchive):
            class_archive_builder.build_class_archive()
        assert list(cache.glob("classes-*")) == []


@pytest.mark.long
def test_preparing_makes_an_archive_that_sessions_use(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    done = scripts.run(
        "from strandline.spark import class_archive_builder; sys.exit(class_archive_builder.main())", folder
    )
    (archive,) = cache.glob("classes-*.jsa")
    assert (done.stdout, done.stderr) == (f"Spark's classes are in {archive}\n", "")
    done = scripts.run(
        """
        spark = session(settings={"spark.driver.extraJavaOptions": "-Xlog:class+load"})
        spark.range(5).count()
        import strandline.spark.sessions
        driver = sys.modules["strandline.spark.sessions"]._driver
        print(driver.workspace.log.read_text().count("shared objects file (top)") > 5000)
        """,
        folder,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
