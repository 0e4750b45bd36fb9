"""Running `strandline findings …` in this process."""

import io
import json
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from strandline.cli.app import report
from strandline.cli.findings import app
from strandline.errors import StrandlineError
from tests.cli.runs import Ran


def run(*arguments: str | Path, state: Path | str) -> Ran:
    """Run a command over a state, with errors reported as `main` does."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--state", str(state)])
    if isinstance(result.exception, StrandlineError):
        said = io.StringIO()
        with redirect_stderr(said):
            code = report(result.exception)
        return Ran(code, result.stdout, result.stderr + said.getvalue())
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def done(*arguments: str | Path, state: Path | str) -> Ran:
    """Run a command that must do what it should."""
    ran = run(*arguments, state=state)
    assert ran.code == 0, ran.err
    return ran


def rows(*arguments: str | Path, state: Path | str) -> list[dict[str, Any]]:
    """Run a command that prints JSON lines, and return the objects."""
    return [json.loads(line) for line in done(*arguments, "--json", state=state).out.splitlines()]
