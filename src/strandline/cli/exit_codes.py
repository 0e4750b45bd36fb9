"""Exit codes, and how an error is printed, the same for every command."""

import sys

from strandline.cli.vocabulary import in_cli_words
from strandline.errors import Damaged, StrandlineError

EXIT_FAILED = 1
EXIT_DAMAGED = 3


def report(error: StrandlineError) -> int:
    """Print an error and its hint to standard error; return its exit code."""
    print(f"error: {error}", file=sys.stderr)
    if error.hint:
        print(f"hint: {in_cli_words(error.hint)}", file=sys.stderr)
    return exit_code(error)


def exit_code(error: StrandlineError) -> int:
    """Return the exit code of an error."""
    return EXIT_DAMAGED if isinstance(error, Damaged) else EXIT_FAILED
