"""`strandline pipeline copy`: copy a state into another one."""

import time
from typing import Annotated

import typer

from strandline.cli.output import AsJson, to_json

_KINDS = "a SQLite file, postgresql://user@host/database, or a lake: s3://bucket/prefix, file:///folder."
Source = Annotated[str, typer.Argument(metavar="FROM", help=f"The state to read: {_KINDS}")]
Target = Annotated[str, typer.Argument(metavar="TO", help="The state to write; it is made if it does not exist.")]


def copy(source: Source, target: Target, as_json: AsJson = False) -> None:
    """Copy a pipeline's state into another one; rows that are there already are merged.

    A copy that was interrupted continues with the same command. Copy while no scan runs, so that runs are copied whole.
    The key file of a tenant is not part of a state: keep it.
    """
    from strandline.pipeline.copy import copy_state  # noqa: PLC0415 - only this command needs it

    began = time.perf_counter()
    counts = copy_state(source, target)
    seconds = time.perf_counter() - began
    if as_json:
        print(to_json({"rows": counts, "seconds": round(seconds, 6)}))
        return
    for table, rows in counts.items():
        print(f"{table}: {rows:,}")
    print(f"copied in {seconds:.2f} s")
