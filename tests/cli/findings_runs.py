"""Running `strandline findings …` in this process."""

import json
from pathlib import Path
from typing import Any

from tests.cli.runs import Ran, run_command


def run(*arguments: str | Path, state: Path | str) -> Ran:
    """Run a command over a state, with errors reported as `main` does."""
    return run_command("findings", *arguments, "--state", state)


def done(*arguments: str | Path, state: Path | str) -> Ran:
    """Run a command that must do what it should."""
    ran = run(*arguments, state=state)
    assert ran.code == 0, ran.err
    return ran


def rows(*arguments: str | Path, state: Path | str) -> list[dict[str, Any]]:
    """Run a command that prints JSON lines, and return the objects."""
    return [json.loads(line) for line in done(*arguments, "--json", state=state).out.splitlines()]
