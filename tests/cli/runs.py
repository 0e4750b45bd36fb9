"""Running commands in this process."""

import io
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.exit_codes import report
from strandline.errors import StrandlineError


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def run_command(*arguments: str | Path) -> Ran:
    """Run `strandline …` in this process, with errors reported as `main` does."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, StrandlineError):
        said = io.StringIO()
        with redirect_stderr(said):
            code = report(result.exception)
        return Ran(code, result.stdout, result.stderr + said.getvalue())
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)
