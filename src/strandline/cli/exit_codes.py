"""Errors as messages and exit codes, the same for every command."""

import sys

from strandline.cli.vocabulary import in_cli_words
from strandline.errors import Damaged, StrandlineError

EXIT_FAILED = 1
EXIT_DAMAGED = 3


def report(error: StrandlineError) -> int:
    """Explain an error on standard error and return the exit code for it."""
    print(f"error: {error}", file=sys.stderr)
    if error.hint:
        print(f"hint: {in_cli_words(error.hint)}", file=sys.stderr)
    return EXIT_DAMAGED if isinstance(error, Damaged) else EXIT_FAILED
