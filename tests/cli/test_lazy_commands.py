"""Commands are imported when they run, and with them only what they need."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from strandline.cli import app as root
from strandline.cli.lazy_commands import LazyCommand, load

HEAVY = {
    "grpc",
    "hyperscan",
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow",
    "pyspark",
    "strandline.journal",
    "strandline.detect",
}
RUN = """
import json, sys
from strandline.cli.app import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def imported(folder: Path, *arguments: str) -> set[str]:
    """Run a command line in a process of its own; return the modules that it imported."""
    command = [sys.executable, "-c", RUN, *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stderr.splitlines()[-1]))


def entries(commands: tuple[LazyCommand, ...] = root.COMMANDS) -> Iterator[LazyCommand]:
    """Yield every command and group of the command line."""
    for entry in commands:
        yield entry
        module, _, name = entry.place.partition(":")
        found = sys.modules.get(f"strandline.cli.{module}") or __import__(f"strandline.cli.{module}", fromlist=[name])
        if isinstance(getattr(found, name), typer.Typer):
            yield from entries(found.COMMANDS)


@pytest.mark.parametrize("arguments", [["--help"], ["findings", "--help"], ["journal", "--help"], ["--version"]])
def test_help_imports_no_command(tmp_path: Path, arguments: list[str]) -> None:
    modules = imported(tmp_path, *arguments)
    assert not modules & HEAVY
    assert not [name for name in modules if name.startswith("strandline.cli.findings_")]


def test_a_command_imports_no_driver_of_a_server_and_no_pandas_unless_it_needs_them(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("nothing\n")
    unneeded = {"aetcd", "grpc", "pandas", "psycopg", "pyspark", "strandline.journal"}
    unneeded |= {"pyarrow.parquet", "pydantic", "rich.console"}  # a tenth of a second each
    assert not imported(tmp_path, "scan", "--without-spark", "tree") & unneeded
    assert not imported(tmp_path, "findings", "list") & unneeded
    assert not imported(tmp_path, "scan", "tree") & unneeded  # there is nothing to do


def test_a_line_of_help_is_the_first_of_the_commands_own() -> None:
    for entry in entries():
        assert entry.help == " ".join(inspect.cleandoc(load(entry).help).split("\n\n")[0].split()), entry.name


def test_commands_are_listed_in_order_and_a_wrong_name_is_answered_with_a_near_one(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RUN, "finding"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "Did you mean 'findings'?" in ran.stderr


def test_pandas_is_there_for_whoever_asks_for_it_after_pyarrow_did_not_find_it(tmp_path: Path) -> None:
    code = (
        "import pyarrow as pa\n"
        "from strandline.lazy_imports import leave_pandas_out\n"
        "leave_pandas_out()\n"
        "import sys; pa.array([1, None]); assert 'pandas' not in sys.modules\n"
        "import pandas; assert pandas.Series([1]).sum() == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


THREADS = """
import os, sys
from strandline.cli.entry import main
sys.argv = ["strandline", "--version"]
try:
    main()
except SystemExit:
    import numpy
print(len(os.listdir("/proc/self/task")))
"""


def test_numpy_starts_no_threads() -> None:
    ran = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "1"


def test_a_scan_of_files_imports_no_client_of_other_sources(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("nothing")
    modules = imported(tmp_path, "scan", "tree", "--state", "state")
    assert "strandline.scan.sources.files" in modules
    clients = {"http.client", "ssl", "xml.parsers.expat", "pyarrow.dataset", "pyarrow.fs", "pyarrow.parquet"}
    assert not modules & {*clients, "strandline.objects", "strandline.nats", "strandline.scan.sources.registry"}
