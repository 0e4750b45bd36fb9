"""The command line: `strandline`, one file per command, grouped by the package that a command speaks for."""

from strandline.cli.app import main

__all__ = ["main"]
