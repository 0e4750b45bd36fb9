"""The driver's local file system sets permissions as Hadoop's own does, and starts no process for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.spark import local_files
from strandline.spark.local_files import NAME, spare_processes

_FAULTS_OF_CHILDREN = 10


@pytest.fixture
def java(spark: SparkSession) -> Iterator[tuple[Any, Any, Any]]:
    """Return Java, its Hadoop configuration and its local file system, which is put back afterwards."""
    jvm, hadoop = spark._jvm, spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no public way
    assert jvm is not None
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop)
    field = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("fs")
    field.setAccessible(True)
    before = field.get(local)
    yield jvm, hadoop, local
    field.set(local, before)


def faults_of_children(jvm: Any) -> int:  # noqa: ANN401 - py4j has no types
    """Return how many page faults the processes had that Java started and waited for: each process has some."""
    pid = jvm.java.lang.ProcessHandle.current().pid()
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_FAULTS_OF_CHILDREN - 2])


def set_mode(jvm: Any, local: Any, path: Path, mode: int) -> int:  # noqa: ANN401 - py4j has no types
    """Set a file's permissions through Hadoop; return those that it has then."""
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:04o}")
    local.setPermission(jvm.org.apache.hadoop.fs.Path(str(path)), permission)
    return path.stat().st_mode & 0o7777


def test_permissions_are_set_without_a_process(java: tuple[Any, Any, Any], tmp_path: Path) -> None:
    jvm, _, local = java
    assert local.getRawFileSystem().getClass().getName() == NAME
    (tmp_path / "file").touch()
    before = faults_of_children(jvm)
    for mode in (0o600, 0o640, 0o755, 0o777, 0o000, 0o644):
        assert set_mode(jvm, local, tmp_path / "file", mode) == mode
    local.create(jvm.org.apache.hadoop.fs.Path(str(tmp_path / "made"))).close()
    assert faults_of_children(jvm) == before
    (tmp_path / "folder").mkdir()
    assert set_mode(jvm, local, tmp_path / "folder", 0o1777) == 0o1777
    assert faults_of_children(jvm) > before  # so a process does show


def test_the_class_is_compiled_once_and_loaded_from_the_cache_afterwards(
    java: tuple[Any, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm, hadoop, local = java
    monkeypatch.setattr(local_files, "cache_folder", lambda: tmp_path)
    spare_processes(jvm, hadoop)
    (made,) = (tmp_path / "local-files").iterdir()
    content = made.read_bytes()
    assert content[:4] == b"\xca\xfe\xba\xbe"
    monkeypatch.setattr(local_files, "write_cached", None)
    spare_processes(jvm, hadoop)
    assert local.getRawFileSystem().getClass().getName() == NAME
    (tmp_path / "file").touch()
    assert set_mode(jvm, local, tmp_path / "file", 0o640) == 0o640


def test_hadoops_own_stays_where_the_class_cannot_be_loaded(
    java: tuple[Any, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    jvm, hadoop, local = java
    before = local.getRawFileSystem().hashCode()
    monkeypatch.setattr(local_files, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(local_files, "read_cached", lambda _: b"no class")
    spare_processes(jvm, hadoop)
    assert local.getRawFileSystem().hashCode() == before
    assert "each file of a checkpoint takes a process" in caplog.text
