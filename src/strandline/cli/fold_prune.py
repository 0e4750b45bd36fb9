"""`strandline fold prune`: remove published artifacts that nothing points to."""

from typing import Annotated

import typer

from strandline.cli.artifact_options import ArtifactsAddress, artifacts_at
from strandline.cli.output import AsJson, emit

HOUR_S = 3600.0


def prune(
    address: ArtifactsAddress,
    grace_s: Annotated[
        float,
        typer.Option(
            "--grace", min=0.0, help="Keep what was written in the last so many seconds, by the store's clock."
        ),
    ] = HOUR_S,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed; remove nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the artifacts that the pointer has left, and the files that no artifact uses.

    The newest artifact and all of its files stay. `fold run --publish` does this after each export. Choose a grace that
    is longer than a download takes.
    """
    with artifacts_at(address, is_read_only=dry_run) as artifacts:
        pruned = artifacts.prune(grace_s, dry_run=dry_run)
    record = {"address": address, "manifests": pruned.manifests, "files": pruned.files, "bytes": pruned.bytes}
    emit({**record, "dry_run": True} if dry_run else record, as_json=as_json)
