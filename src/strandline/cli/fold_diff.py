"""`strandline fold diff`: the differences between two folds."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.fold_options import FoldPath, open_existing, revision_of
from strandline.cli.output import AsJson, to_json
from strandline.cli.shown import escape, json_field
from strandline.fold import Difference, FoldEntry, FoldReader, diff
from strandline.fold.records import split_version

EXIT_DIFFERENT = 1


def diff_(
    path: FoldPath,
    other: Annotated[
        Path | None, typer.Argument(metavar="[OTHER]", help="Another fold, of any backend.", show_default=False)
    ] = None,
    since: Annotated[
        int | None, typer.Option(min=0, help="Instead of another fold: keys put after this revision.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Only keys that begin with this.")] = "",
    as_json: AsJson = False,
) -> None:
    """Print the keys that differ between two folds, or that changed since a revision; exit code 1 if there are any.

    `-` is only in the first fold, `+` only in the second, `~` in both with different values. With --since, `+` is a key
    that was put after that revision; a fold keeps no deletes, so none are shown.
    """
    if (other is None) == (since is None):
        raise typer.BadParameter("give another fold, or --since")
    with ExitStack() as opened:
        left = opened.enter_context(closing(open_existing(path)))
        if other is not None:
            right = opened.enter_context(closing(open_existing(other)))
            found = diff(left, right, prefix.encode())
        else:
            found = _since(left, since or 0, prefix.encode())
        differences = 0
        for difference in found:
            differences += 1
            print(_to_json(difference) if as_json else _to_text(difference))
    if differences:
        raise typer.Exit(EXIT_DIFFERENT)


def _since(fold: FoldReader, revision: int, prefix: bytes) -> Iterator[Difference]:
    """Yield what a fold holds of updates after a revision."""
    with closing(fold.pages(prefix).columns) as pages:
        for page in pages:
            for key, value, stored in zip(*(column.to_pylist() for column in page), strict=True):
                version, expires_ns = split_version(stored)
                if (revision_of(version) or 0) > revision:
                    yield Difference(key, None, FoldEntry(key, value, version, expires_ns))


def _to_text(difference: Difference) -> str:
    match difference:
        case Difference(key, FoldEntry() as entry, None):
            return f"- {escape(key)}  revision {revision_of(entry.version)}  {escape(entry.value)}"
        case Difference(key, None, FoldEntry() as entry):
            return f"+ {escape(key)}  revision {revision_of(entry.version)}  {escape(entry.value)}"
        case Difference(key, FoldEntry() as before, FoldEntry() as after):
            revisions = f"revision {revision_of(before.version)} → {revision_of(after.version)}"
            values = escape(before.value)
            if before.value != after.value:
                values += f" → {escape(after.value)}"
            return f"~ {escape(key)}  {revisions}  {values}"
        case _:
            raise AssertionError(difference)


def _to_json(difference: Difference) -> str:
    fields: dict[str, object] = dict([json_field("key", difference.key)])
    for side, entry in (("left", difference.left), ("right", difference.right)):
        if entry is not None:
            fields[side] = dict([("revision", revision_of(entry.version)), json_field("value", entry.value)])
    return to_json(fields)
