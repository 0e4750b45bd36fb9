"""`strandline fold get`: the values of some keys, from a local fold."""

import sys
from typing import Annotated

import typer

from strandline.cli.fold_options import FoldPath, entry_record, open_existing
from strandline.cli.output import AsJson, emit_rows

EXIT_MISSING = 1


def get(
    path: FoldPath,
    keys: Annotated[list[str], typer.Argument(metavar="KEY…", help="The keys.", show_default=False)],
    raw: Annotated[bool, typer.Option("--raw", help="Write only the bytes of the value; for one key.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the entries of some keys; exit code 1 if one is missing. Works while `fold run` runs."""
    if raw and len(keys) > 1:
        raise typer.BadParameter("--raw takes one key")
    reader = open_existing(path)
    try:
        found = reader.multi_get([key.encode() for key in keys])
    finally:
        reader.close()
    there = [entry for entry in found if entry is not None]
    if raw and there:
        sys.stdout.buffer.write(there[0].value)
    elif not raw:
        emit_rows((entry_record(entry, as_json=as_json) for entry in there), as_json=as_json)
    missing = [key for key, entry in zip(keys, found, strict=True) if entry is None]
    for key in missing:
        print(f"{key}: no such key", file=sys.stderr)
    if missing:
        raise typer.Exit(EXIT_MISSING)
