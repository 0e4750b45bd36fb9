"""The entry point: `serve` starts without typer, because it has to start fast; typer runs every other command.

Invariants: `strandline serve …` does the same through here and through the list of commands; only what is imported
before differs.
"""

import gc
import os
import sys

from strandline.cli.exit_codes import report
from strandline.errors import StrandlineError

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts a thread for each core, and no algebra is done
    gc.disable()  # imported modules hold no garbage; the collector starts again before a command runs
    if sys.argv[1:2] != ["serve"]:
        from strandline.cli.app import main as run_commands  # noqa: PLC0415 - typer takes a tenth of a second

        return run_commands()
    try:
        from strandline.cli.serve_run import run  # noqa: PLC0415 - as above

        code = run(sys.argv[2:])
    except StrandlineError as error:
        code = report(error)
    except KeyboardInterrupt:  # before the server had begun to listen to signals
        code = EXIT_INTERRUPTED
    sys.exit(code)
