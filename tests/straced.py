"""strace beside a process that a test started: to kill it at a system call, to make a call fail, or to count them."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests import tally

STRACE = shutil.which("strace")
PR_SET_PTRACER = 0x59616D61


@cache
def strace_problem() -> str | None:
    """Return why strace cannot be used here, or None."""
    if STRACE is None:
        return "strace is not installed"
    probe = subprocess.run([STRACE, "-f", "-qq", "-o", "/dev/null", "true"], check=False, capture_output=True)
    return None if probe.returncode == 0 else f"strace cannot trace here: {probe.stderr.decode().strip()}"


def let_anyone_trace() -> None:
    """Let strace attach to this process where only its parents may."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(-1 % 2**64), 0, 0, 0)


@contextmanager
def traced(pid: int, *arguments: str, log: Path = Path("/dev/null")) -> Iterator[None]:
    """Attach strace to a process and all its threads; the block begins when it is attached and ends with it."""
    tally.count(tally.KILLS, any("signal=SIGKILL" in argument for argument in arguments))
    command = [str(STRACE), "-f", "-o", str(log), *arguments, "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        told = tracer.stderr.readline()
        if "attached" not in told:
            pytest.skip(f"strace cannot attach here: {told.strip()}")
        try:
            yield
        finally:
            tracer.terminate()
