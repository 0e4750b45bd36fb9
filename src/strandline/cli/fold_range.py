"""`strandline fold range`: the entries below a prefix, in the order of their keys."""

import sys
from typing import Annotated

import typer

from strandline.cli.fold_options import FoldPath, entry_record, open_existing
from strandline.cli.output import AsJson, to_json
from strandline.fold import FoldEntry


class _Enough(Exception):
    """The limit is reached."""


def range_(
    path: FoldPath,
    prefix: Annotated[str, typer.Argument(help="Prefix of the keys.", show_default="all keys")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of entries.", show_default="all")] = None,
    keys_only: Annotated[bool, typer.Option("--keys", help="Print keys only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the entries below a prefix, one per line, at one cursor. Works while `fold run` runs."""
    printed = 0

    def show(entry: FoldEntry) -> None:
        nonlocal printed
        if limit is not None and printed >= limit:
            raise _Enough
        printed += 1
        record = entry_record(entry, as_json=as_json)
        if keys_only:
            record = {name: value for name, value in record.items() if name.startswith("key")}
        sys.stdout.write((to_json(record) if as_json else "  ".join(map(str, record.values()))) + "\n")

    reader = open_existing(path)
    try:
        reader.for_each_in_range(prefix.encode(), show)
    except _Enough:
        print(f"stopped after {limit:,} entries", file=sys.stderr)
    finally:
        reader.close()
