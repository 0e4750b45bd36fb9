"""What a command costs before it does anything, against the least that a process with Arrow costs."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ARROW = "import numpy, pyarrow, pyarrow.compute"
MAIN = "from strandline.cli.entry import main; main()"


def seconds(folder: Path, environ: dict[str, str], code: str, *arguments: str) -> float:
    """Return the processor time of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, env=environ, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.long
def test_a_scan_of_few_files_costs_few_times_what_arrow_costs(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ |= {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "tree").mkdir()
    for number in range(16):
        (tmp_path / "tree" / f"{number}.py").write_text(f"x = {number}\n")
    times: dict[str, list[float]] = {"arrow": [], "scan": [], "list": [], "help": []}
    for round_ in range(5):  # the first fills the caches
        state = ("--state", f"state-{round_}")
        times["arrow"].append(seconds(tmp_path, environ, ARROW))
        times["scan"].append(seconds(tmp_path, environ, MAIN, "scan", "tree", *state))
        times["list"].append(seconds(tmp_path, environ, MAIN, "findings", "list", *state))
        times["help"].append(seconds(tmp_path, environ, MAIN, "--help"))
    least = {name: min(each[1:]) for name, each in times.items()}
    assert least["scan"] < 4 * least["arrow"], least
    assert least["list"] < 3 * least["arrow"], least
    assert least["help"] < 2 * least["arrow"], least
