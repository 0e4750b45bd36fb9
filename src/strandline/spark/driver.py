"""The Java process of Spark's driver; its output, and that of its children, goes to a log and not to the terminal.

A learned command that does not start is forgotten, and `spark-submit` starts Java instead.

Invariants: it ends with this process, however that ends (it reads our end of a pipe); Ctrl-C is ours alone; the
environment of this process is as before when a call returns.
"""

import contextlib
import hashlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from strandline.cache import cache_folder
from strandline.errors import Unavailable
from strandline.files import storage_errors
from strandline.spark.java import Java
from strandline.spark.launch_command import arguments, forget_command, is_learnable, learn_command, read_command
from strandline.spark.package import package_folder
from strandline.spark.settings import is_loopback
from strandline.spark.workspace import Workspace

_STARTS_WITHIN_S = 120.0
_ENDS_WITHIN_S = 10.0
_LINKED = ("bin", "jars", "sbin")


class SparkNotStarted(Unavailable):
    """Spark's Java process ended, or did not answer, while it was starting; `log` is the end of its output."""

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(f"Spark did not start: {reason}\n{log}".rstrip(), hint="see the output of Java above")
        self.reason = reason
        self.log = log


def spark_home() -> Path:
    """Return a home of Spark without its zipped copy of PySpark, which every Python worker would import from, slowly.

    It is a folder of links into the installed package, in the cache: one name for as long as the package is the same,
    because a class-data archive holds the paths of its jars. A home named by SPARK_HOME is taken as it is.
    """
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    package = package_folder()
    home = cache_folder() / f"spark-home-{hashlib.sha256(os.fsencode(package)).hexdigest()[:16]}"
    home.mkdir(exist_ok=True)
    for name in _LINKED:
        with contextlib.suppress(FileExistsError):
            (home / name).symlink_to(package / name)
    return home


def child_environment(java: Java, home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the Java process, which its Python workers get too."""
    environ = dict(os.environ)
    environ |= {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
        "PYSPARK_PYTHON": worker_python(),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if is_loopback(settings["spark.master"]):
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the web interface obeys nothing else
        paths = [settings.get("spark.executorEnv.PYTHONPATH"), environ.get("PYTHONPATH")]
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return environ


def worker_python() -> str:
    """Return the Python that workers run: this one; Spark's own default is `python3` on PATH."""
    return os.environ.get("PYSPARK_PYTHON") or sys.executable


class Driver:
    """The Java process, started at once and not waited for; `connect` returns PySpark's gateway to it."""

    def __init__(self, java: Java, home: Path, workspace: Workspace, settings: Mapping[str, str]) -> None:
        self.workspace = workspace
        self._answer = workspace.path / "connection"
        self._gateway: Any = None
        environ = child_environment(java, home, settings)
        self._run_script = partial(self._run, [str(home / "bin" / "spark-submit"), *arguments(settings)], environ)
        self._learn: Callable[[int], None] | None = None
        self._forget: Callable[[], None] | None = None
        """Set while a learned command starts, which may be one that no longer does."""
        known = None
        if is_learnable(java, home, settings, os.environ):
            self._learn = partial(learn_command, java, home, settings, environ)
            known = read_command(java, home)
        if known is None:
            self._process = self._run_script()
            return
        self._forget = partial(forget_command, java, home)
        try:
            self._process = self._run(known.command(settings), {**environ, **known.environment})
        except (OSError, ValueError):  # there is no such program, or its words are none
            self._start_by_script(self._forget)

    def _run(self, command: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
        with storage_errors(self.workspace.log):
            log = self.workspace.log.open("ab")
        with log:
            return subprocess.Popen(  # noqa: S603 - our own arguments
                command,
                env={**environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - it only calls signal
            )

    def _start_by_script(self, forget: Callable[[], None]) -> None:
        forget()
        self._forget = None
        self._process = self._run_script()

    def is_alive(self) -> bool:
        """Tell whether Java runs."""
        return self._process.poll() is None

    def connect(self) -> Any:  # noqa: ANN401 - py4j has no types
        """Wait until Java answers, and return the gateway to it."""
        if self._gateway is not None:
            return self._gateway
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - only a session needs PySpark

        answer = self._answered()
        if self._learn is not None and self._forget is None:
            self._learn(self._process.pid)
        port, length = struct.unpack_from(">ii", answer)
        secret = answer[8 : 8 + length].decode()
        with changed_environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
        jvm = self._gateway.jvm
        folder = jvm.java.io.File(str(self.workspace.path))
        # If this process is killed, Java ends too, and its shutdown hook removes the folder.
        jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(folder)
        return self._gateway

    def end(self, within_s: float = _ENDS_WITHIN_S) -> bool:
        """End Java in good order, or at once if it takes too long, and remove the folder; twice is harmless.

        Return whether it ended in good order.
        """
        if not self.workspace.is_owner():
            return False
        try:
            self._process.communicate(timeout=within_s)  # closes its standard input, which tells it to end
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # a second Ctrl-C ends it at once
            self._process.kill()
            self._process.wait()
        self.workspace.remove()
        return self._process.returncode == 0

    def _answered(self) -> bytes:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while not self._answer.exists():
            if not self.is_alive() and self._forget is not None:
                self._process.communicate()  # closes its standard input
                self._start_by_script(self._forget)
            if not self.is_alive():
                raise SparkNotStarted(f"Java ended with code {self._process.returncode}", self.workspace.last_lines())
            if time.monotonic() > deadline:
                if self._forget is not None:
                    self._forget()
                raise SparkNotStarted(f"no answer within {_STARTS_WITHIN_S:.0f} s", self.workspace.last_lines())
            time.sleep(0.01)
        answer = self._answer.read_bytes()
        self._answer.unlink()  # it holds the key to the gateway
        return answer


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change environment variables of this process for a while."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
