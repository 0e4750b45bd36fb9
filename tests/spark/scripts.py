"""Run a piece of Python in a process of its own, as a user would, and see what it printed and left."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from strandline.spark.workspace import PREFIX
from tests.waiting import PATIENCE_S

PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from strandline.spark.errors import spark_errors
from strandline.spark.sessions import session
from tests.spark.tasks import *
"""
ROOT = Path(__file__).resolve().parent.parent.parent


def command(script: str, *arguments: str) -> list[str]:
    """Return the command that runs `script`, with the names above at hand."""
    return [sys.executable, "-c", PRELUDE + textwrap.dedent(script), *arguments]


def environment(temporary: Path, **changes: str) -> dict[str, str]:
    """Return an environment whose temp folder is `temporary`, and where tasks of the tests can be imported."""
    return {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), **changes}


def run(script: str, folder: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in an empty `folder`; its temp files go to the folder around that."""
    return subprocess.run(
        command(script, *arguments),
        cwd=folder,
        env=environment(folder.parent, **changes),
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * PATIENCE_S,  # it may start Java several times
    )


def workspaces(temporary: Path) -> list[Path]:
    """Return the folders of Spark under a temp folder."""
    return sorted(temporary.glob(PREFIX + "*"))
