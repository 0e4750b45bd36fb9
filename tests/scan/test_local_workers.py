"""Workers of this machine: one process or several, with the same rows, and no Spark for few items."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.protocol.shards import RunKey
from strandline.scan import local_workers
from strandline.scan.driver import scan
from strandline.scan.errors import WorkersFailed
from strandline.scan.local_workers import LocalWorkers
from strandline.scan.request import ScanRequest
from strandline.scan.run.totals import Totals
from strandline.scan.sources import FileSource
from strandline.scan.worker import processes
from strandline.scan.workers import FEW_ITEMS, WorkersBySize, WorkerTask
from tests.scan.threaded_workers import TENANT, made, request_for
from tests.spark.rows import Rows, rows_of
from tests.waiting import PATIENCE_S

FILES = 700
"""So many items weigh more than one shard."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number:03}").write_text(f"alpha_{number:03}\n" if number % 7 == 0 else "nothing\n")
    return folder


def stored(request: ScanRequest) -> Rows:
    with request.open_stores() as stores:
        return rows_of(stores, TENANT)


def request_over(tree: Path, state: Path) -> ScanRequest:
    return request_for(made(str(state)), FileSource.at(tree, name="tree"))


def test_processes_leave_the_rows_that_one_worker_leaves(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = request_over(tree, tmp_path / "alone.db")
    assert scan(alone, LocalWorkers()).is_whole
    monkeypatch.setattr(local_workers, "OTHERS_WEIGHT_MIN", 0)
    # This process does nothing: what is done, the other one does.
    monkeypatch.setattr(local_workers, "work", lambda *_: Totals())
    both = request_over(tree, tmp_path / "both.db")
    assert scan(both, LocalWorkers(processes=2)).is_whole
    assert stored(both) == stored(alone)


def test_little_work_starts_no_process(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    assert scan(request_over(tree, tmp_path / "state.db"), LocalWorkers(processes=8)).is_whole


def test_a_process_that_is_killed_leaves_its_shards_to_the_others(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_workers, "OTHERS_WEIGHT_MIN", 0)
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", killed))
    outcome = scan(request_over(tree, tmp_path / "state.db"), LocalWorkers(processes=2))
    assert (outcome.is_whole, len(outcome.findings)) == (True, FILES // 7)


def test_a_process_that_gives_up_ends_the_scan_with_its_reason(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_workers, "OTHERS_WEIGHT_MIN", 0)
    said = """print('["Unavailable", "the disk is full", "make room"]')"""
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-c", f"import sys; sys.stdin.buffer.read(1); {said}"))
    with pytest.raises(WorkersFailed, match="the disk is full") as caught:
        scan(request_over(tree, tmp_path / "state.db"), LocalWorkers(processes=2))
    assert caught.value.hint == "make room"


def test_a_process_works_without_pandas(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_workers, "OTHERS_WEIGHT_MIN", 0)
    monkeypatch.setattr(local_workers, "work", lambda *_: Totals())
    code = (
        "import sys, strandline.scan.worker.processes as p\n"
        "p.main()\n"
        '\'pandas\' in sys.modules and print(\'["Imported", "pandas is here", ""]\')'
    )
    monkeypatch.setattr(processes, "_COMMAND", (sys.executable, "-P", "-c", code))
    assert scan(request_over(tree, tmp_path / "state.db"), LocalWorkers(processes=2)).is_whole


def test_a_process_ends_with_its_parent() -> None:
    code = (
        "import threading, strandline.scan.worker.processes as p\n"
        "p.work = lambda *_: (print('at work', flush=True), threading.Event().wait())\n"
        "p.main()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps((None, 0)))
        process.stdin.flush()
        assert process.stdout.readline() == b"at work\n"
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 1


class Noted:
    """Workers that note who ran."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.are_here = name == "few"
        self._name = name
        self._notes = notes

    def check(self, request: ScanRequest) -> None:  # noqa: ARG002 - as the others have it
        """Note it."""
        self._notes.append(f"{self._name} checked")

    def make_ready(self, request: ScanRequest) -> None:  # noqa: ARG002 - as above
        """Note it."""
        self._notes.append(f"{self._name} ready")

    def run(self, task: Callable[[int], WorkerTask], *_: object) -> None:
        """Note it."""
        self._notes.append(f"{self._name} ran {task(1).items}")


def test_the_number_of_items_decides_who_works(tree: Path) -> None:
    notes: list[str] = []
    workers = WorkersBySize(Noted("few", notes), Noted("many", notes))
    request = request_for("unused", FileSource.at(tree))
    workers.check(request)
    workers.make_ready(request)
    assert workers.are_here
    for items in (FEW_ITEMS - 1, FEW_ITEMS):

        def task(slots: int, count: int = items) -> WorkerTask:
            return WorkerTask(request, RunKey(TENANT, 1), 0, slots, items=count)

        workers.run(task, [0], lambda: None)
    assert notes == ["few checked", "many checked", "many ready", "few ran 1999", "many ran 2000"]
    assert not workers.are_here
