"""`strandline fold export`: a fold as an artifact in a folder, as tables or in the files of its store."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from strandline.artifacts import ReaderSnapshot, export_fold, export_logical, local_previous
from strandline.artifacts.exporter import check_destination
from strandline.artifacts.logical import goes_on
from strandline.cli.artifact_options import ArtifactFolder, Quiet, TransferLine, manifest_record
from strandline.cli.fold_options import FoldPath, check_existing
from strandline.cli.output import AsJson, emit
from strandline.errors import InvalidInput
from strandline.fold import open_fold, parse_fold_cursor


def export_(
    path: FoldPath,
    folder: ArtifactFolder,
    raw: Annotated[
        bool, typer.Option("--raw", help="Copy the store's own files; `fold run` must not keep the fold meanwhile.")
    ] = False,
    since: Annotated[
        Path | None,
        typer.Option("--since", metavar="FOLDER", help="Write only what changed since this artifact, where that pays."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be exported; write nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Export a fold to a folder, as Parquet tables that a fold of any backend can be made of.

    Works while `fold run` runs, except with --raw. The artifact is read again and compared with the fold before it gets
    its name.
    """
    if raw and since is not None:
        raise InvalidInput("--raw and --since exclude each other", hint="increments are tables: leave --raw out")
    check_existing(path)
    previous = None if since is None else local_previous(since)
    if dry_run:
        check_destination(folder)
        with closing(ReaderSnapshot(path)) as snapshot:
            record = {
                "revision": parse_fold_cursor(snapshot.cursor()).revision,
                "form": "raw" if raw else "logical",
                "increment": previous is not None and goes_on(previous.manifest, snapshot),
                "dry_run": True,
            }
        emit({"path": path, "artifact": folder, **record}, as_json=as_json)
        return
    with TransferLine("exporting", quiet=quiet) as line:
        if raw:
            with closing(open_fold(path)) as store:
                manifest = export_fold(store, folder)
        else:
            with closing(ReaderSnapshot(path, line.add_rows)) as snapshot:
                manifest = export_logical(snapshot, folder, previous=previous)
    emit({"path": path, "artifact": folder, **manifest_record(manifest)}, as_json=as_json)
