"""Runs a command on a terminal of its own, as a person would."""

import os
import pty
import subprocess
from contextlib import suppress

from tests.cli.journal_runs import SCRIPT


def run_on_terminal(*arguments: str, typed: str = "") -> tuple[int, str]:
    """Run `strandline journal …` with a terminal for its input and output; return its exit code and what it showed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*SCRIPT, *arguments], stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        with suppress(OSError):  # the terminal hangs up when the command ends
            while data := os.read(ours, 65536):
                shown += data
    os.close(ours)
    return child.returncode, shown.decode()
