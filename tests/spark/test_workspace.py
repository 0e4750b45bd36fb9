"""The folder of a running Spark: gone with its process, however that ends. And the folder of caches."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from strandline.cache import cache_folder
from strandline.spark.workspace import PREFIX, Workspace


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("strandline.spark.workspace._PATH_MAX", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_removed_with_all_that_is_in_it(temporary: Path) -> None:
    workspace = Workspace()
    (workspace.temporary / "file").write_text("x")
    workspace.remove()
    workspace.remove()
    assert not list(temporary.iterdir())


def test_the_folder_of_a_dead_process_is_swept_and_that_of_a_living_one_is_not(temporary: Path) -> None:
    script = (
        "import sys, time, tempfile\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        "import strandline.spark.workspace as w\n"
        "w._PATH_MAX = 1000\n"
        "print(w.Workspace().path, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        theirs = Path(child.stdout.readline().strip())
        Workspace().remove()
        assert theirs.exists()
        child.kill()
    assert theirs.exists()
    ours = Workspace()
    assert [path.name for path in temporary.glob(PREFIX + "*")] == [ours.path.name]
    ours.remove()


def test_a_folder_that_is_not_ours_is_left_alone(temporary: Path) -> None:
    (temporary / f"{PREFIX}other").mkdir()
    Workspace().remove()
    assert (temporary / f"{PREFIX}other").exists()


def test_sockets_fit_in_it_however_deep_the_temp_folder_is(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.spark.workspace._PATH_MAX", 60)
    deep = temporary / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    workspace = Workspace()
    workspace.remove()
    assert len(str(workspace.temporary)) + len("/.12345678-1234-1234-1234-123456789012.sock") < 108


def test_a_forked_child_removes_nothing() -> None:
    workspace = Workspace()
    child = os.fork()
    if child == 0:
        workspace.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert workspace.path.exists()
    workspace.remove()


def test_the_log_may_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_SPARK_LOG", str(tmp_path / "kept.log"))
    workspace = Workspace()
    workspace.log.write_text("one\ntwo\n")
    workspace.remove()
    assert workspace.last_lines() == "one\ntwo"


def test_caches_are_in_the_users_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "strandline"
    assert cache_folder().stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the convention says to ignore
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "strandline"


def test_a_cache_folder_that_others_may_write_to_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder().chmod(0o777)
    assert cache_folder() == tmp_path / f"strandline-cache-{os.geteuid()}"
    cache_folder().chmod(0o777)
    last = cache_folder()
    assert last.name.startswith("strandline-cache-")
    assert last.stat().st_mode & 0o777 == 0o700
