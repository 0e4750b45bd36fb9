"""`strandline fold publish`: a fold, or an artifact in a folder, as the newest published artifact."""

from pathlib import Path
from typing import Annotated

import typer

from strandline.artifacts import (
    Outcome,
    Publication,
    PublishedArtifacts,
    parse_manifest,
    publish_fold,
)
from strandline.artifacts.layout import format_file_key, state_of
from strandline.artifacts.manifest import MANIFEST_NAME
from strandline.cli.artifact_options import ArtifactsAddress, Quiet, TransferLine, artifacts_at, manifest_record
from strandline.cli.fold_options import check_existing
from strandline.cli.output import AsJson, emit
from strandline.protocol.artifacts import pointer_publish_allowed

SOURCE = "The path of the fold, or the folder of an artifact."


def publish(
    source: Annotated[Path, typer.Argument(metavar="PATH", help=SOURCE, show_default=False)],
    address: ArtifactsAddress,
    whole: Annotated[
        bool, typer.Option("--whole", help="Export all of the fold, and not only what changed since the last artifact.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Export, print what would be uploaded, and upload nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Publish a fold, or an artifact that `fold export` made, as the newest artifact at an address.

    Works while `fold run` runs. The pointer to the newest artifact moves last, and never to an older revision: exit
    code 1 if a newer artifact is there.
    """
    is_artifact = (source / MANIFEST_NAME).exists()
    if not is_artifact:
        check_existing(source)  # before the address, which is made where it is a folder
    with (
        TransferLine("publishing", quiet=quiet) as line,
        artifacts_at(address, is_read_only=dry_run, must_exist=False, counts=line.counts) as artifacts,
    ):
        if is_artifact:
            publication = _published(source, artifacts, dry_run=dry_run)
        else:
            publication = publish_fold(
                source,
                artifacts,
                is_whole=whole,
                on_rows=line.add_rows,
                publish=lambda folder: _published(folder, artifacts, dry_run=dry_run),
            )
    record = {
        "path": source,
        "address": address,
        "outcome": publication.outcome.name.lower(),
        "uploaded_bytes": publication.uploaded_bytes,
        **manifest_record(publication.manifest),
    }
    emit({**record, "dry_run": True} if dry_run else record, as_json=as_json)
    if publication.outcome is not Outcome.PUBLISHED:
        raise typer.Exit(1)


def _published(folder: Path, artifacts: PublishedArtifacts, *, dry_run: bool) -> Publication:
    return _planned(folder, artifacts) if dry_run else artifacts.publish(folder)


def _planned(folder: Path, artifacts: PublishedArtifacts) -> Publication:
    """Return what a publication would do, as far as the object store can tell now."""
    manifest = parse_manifest((folder / MANIFEST_NAME).read_bytes(), str(folder))
    pointer = artifacts.pointer()
    known = {format_file_key(file) for file in artifacts.newest().files} if pointer else set()
    size = sum(file.size for file in manifest.files if format_file_key(file) not in known)
    is_allowed = pointer_publish_allowed(state_of(pointer) if pointer else None, manifest.rank)
    return Publication(Outcome.PUBLISHED if is_allowed else Outcome.SUPERSEDED, manifest, size)
