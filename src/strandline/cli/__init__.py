"""The command line: `strandline`, one file per command, grouped by the package that a command speaks for."""

from strandline.cli.entry import main

__all__ = ["main"]
