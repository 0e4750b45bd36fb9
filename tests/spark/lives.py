"""The real `strandline scan` in processes of its own: starting it, finding what it started, and disturbing that.

Invariants: whatever a life started is found by a mark in its environment, whoever adopted it meanwhile, and `Lives`
leaves none of it behind.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from strandline.spark.workspace import sweep
from tests.spark.scripts import workspaces
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
MAIN = "from strandline.cli.app import main; main()"
_MARK = "STRANDLINE_TEST_LIFE"
_DAEMON = "strandline.spark.daemon"


class Life:
    """One run of the command, with all that it starts."""

    def __init__(self, arguments: Sequence[str], environ: dict[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self._is_clustered = any(word.startswith("spark://") for word in arguments)
        marked = ["--conf", f"spark.executorEnv.{_MARK}={self._mark}"] if self._is_clustered else []
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` does it
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.task_deaths = 0
        self.is_doomed = False
        """Whether it was struck so that it cannot go on."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *arguments, *marked],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env={"STRANDLINE_SCAN_EXIT_ZERO": "1", **environ, _MARK: self._mark},
            start_new_session=True,
        )

    @property
    def is_over(self) -> bool:
        """Whether the command ended."""
        return self._process.poll() is not None

    def wait(self, within_s: float = 5 * PATIENCE_S) -> int:
        """Return how the command ended."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the command does not end: {self.err}") from None

    @property
    def out(self) -> str:
        """What it printed."""
        return _content(self._out).decode()

    @property
    def err(self) -> str:
        """What it said on standard error."""
        return _content(self._err).decode(errors="replace")  # it may be about to write the rest of a letter

    @property
    def summary(self) -> dict[str, Any]:
        """The last line of `--json`."""
        summary: dict[str, Any] = json.loads(self.out.splitlines()[-1])["summary"]
        return summary

    def family(self) -> list[psutil.Process]:
        """Return every process of this life that is there, adopted ones included."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == self._mark:
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """Return the Python processes that run tasks: children of Spark's daemon."""
        daemons = {process.pid: process for process in self._children() if _is_daemon(process)}
        return [process for process in daemons.values() if _parent(process) in daemons]

    def java(self) -> list[psutil.Process]:
        """Return the Java process of the driver."""
        return [process for process in self._javas() if not _is_executor(process)]

    def executors(self) -> list[psutil.Process]:
        """Return the Java processes that run tasks, where they are not the driver's own."""
        return [process for process in self._javas() if _is_executor(process)]

    def _javas(self) -> list[psutil.Process]:
        found = []
        for process in self._children():
            with contextlib.suppress(psutil.Error):
                found += [process] if process.name() == "java" else []
        return found

    def _children(self) -> list[psutil.Process]:
        if self._is_clustered:
            return self.family()
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def kill_driver(self) -> None:
        """Kill the command alone; what it started notices that by itself."""
        self.is_doomed = True
        self._process.kill()
        self._process.wait()

    def lose_power(self) -> None:
        """Kill everything at one moment."""
        self.is_doomed = True
        while family := self.family():
            for one in family:
                with contextlib.suppress(psutil.Error):
                    one.suspend()
            for one in family:
                with contextlib.suppress(psutil.Error):
                    one.kill()
        self._process.wait()

    def close(self) -> list[str]:
        """Wait until all of it is gone; return what is not, and end that."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := self.family()) and time.monotonic() < deadline:
            time.sleep(0.05)
        names = [f"{one.pid} {one.name()}" for one in left]
        self.lose_power()
        self._out.close()
        self._err.close()
        return names


class Lives:
    """Runs of one scan: the same arguments, and a temporary folder that all of them share."""

    def __init__(self, arguments: Sequence[str], **environ: str) -> None:
        self._arguments = list(arguments)
        self._folder = Path(tempfile.mkdtemp(prefix="lives-", dir="/tmp"))
        self._environ = os.environ | {"TMPDIR": str(self._folder), **environ}
        self._lives: list[Life] = []

    def start(self, *more: str) -> Life:
        """Start the command."""
        life = Life([*self._arguments, *more], self._environ)
        self._lives.append(life)
        return life

    def finish(self, *more: str) -> Life:
        """Run the command to its end, which must be a good one."""
        life = self.start(*more)
        code = life.wait()
        assert code == 0, life.err
        return life

    def close(self) -> None:
        """Look that nothing is left of any life: no process, and no folder that the next start would not sweep."""
        left = {number: names for number, life in enumerate(self._lives) if (names := life.close())}
        sweep(self._folder)
        # A kill between making a folder and locking it leaves it empty.
        folders = [folder for folder in workspaces(self._folder) if any(folder.iterdir())]
        shutil.rmtree(self._folder, ignore_errors=True)
        assert not left, f"processes were left behind: {left}"
        assert not folders, f"folders of Spark were left behind: {folders}"


@contextlib.contextmanager
def living(arguments: Sequence[str], **environ: str) -> Iterator[Lives]:
    """Run a scan any number of times; nothing may be left of them in the end."""
    lives = Lives(arguments, **environ)
    try:
        yield lives
    finally:
        lives.close()


def wait_for(is_so: Callable[[], object], life: Life, within_s: float = 2 * PATIENCE_S) -> bool:
    """Wait until something is so, and return True; False if the command ended before."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if life.is_over:
            return False
        assert time.monotonic() < deadline, f"it does not happen: {life.err}"
        time.sleep(0.03)
    return True


def _content(file: IO[bytes]) -> bytes:
    """Return what is in a file and leave its position alone, which is also where the command writes."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _is_daemon(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return _DAEMON in process.cmdline()
    return False


def _is_executor(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    return False


def _parent(process: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return None


def pause(process: psutil.Process, seconds: float) -> None:
    """Stop a process wherever it is, and let it go on later; it does not notice."""
    with contextlib.suppress(psutil.Error):
        process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            process.send_signal(signal.SIGCONT)
