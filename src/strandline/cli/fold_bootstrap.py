"""`strandline fold bootstrap`: a fold of the newest published artifact."""

from typing import Annotated

import typer

from strandline.artifacts import fetch_fold
from strandline.artifacts.importer import check_vacant, known_versions
from strandline.artifacts.manifest import check_fit
from strandline.cli.artifact_options import ArtifactsAddress, Quiet, TransferLine, artifacts_at, manifest_record
from strandline.cli.fold_options import BackendOption, FoldPath, ModeOption, Prefixes, fold_mode
from strandline.cli.output import AsJson, emit
from strandline.fold import Scope
from strandline.fold.backends import backend_of


def bootstrap(
    address: ArtifactsAddress,
    path: FoldPath,
    backend: BackendOption = None,
    prefixes: Prefixes = None,
    mode: ModeOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the artifact that would be fetched; fetch nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a fold of the newest published artifact, at a path where nothing is.

    `strandline fold run` then fetches only what came after the artifact. A download that was cut is continued by the
    same command. The object store is only read.
    """
    scope, wanted = Scope.of(*prefixes) if prefixes else None, fold_mode(mode)
    with (
        TransferLine("bootstrapping", quiet=quiet) as line,
        artifacts_at(address, is_read_only=True, counts=line.counts) as artifacts,
    ):
        newest = artifacts.newest()
        chosen = None if backend is None else backend.value
        check_fit(newest, address, backend=chosen, versions=known_versions(), scope=scope, mode=wanted)
        check_vacant(path)
        record = {"address": address, "path": path}
        if dry_run:
            emit({**record, **manifest_record(newest), "dry_run": True}, as_json=as_json)
            return
        manifest = fetch_fold(artifacts, path, backend=backend, scope=scope, mode=wanted)
    emit({**record, **manifest_record(manifest), "backend": backend_of(path).value}, as_json=as_json)
