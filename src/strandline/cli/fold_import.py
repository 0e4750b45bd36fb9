"""`strandline fold import`: a fold of an artifact in a folder."""

from typing import Annotated

import typer

from strandline.artifacts import import_fold, read_artifact
from strandline.artifacts.importer import check_vacant, known_versions
from strandline.artifacts.manifest import check_fit
from strandline.cli.artifact_options import ArtifactFolder, Quiet, TransferLine, manifest_record
from strandline.cli.fold_options import BackendOption, FoldPath, ModeOption, Prefixes, fold_mode
from strandline.cli.output import AsJson, emit
from strandline.fold import Scope
from strandline.fold.backends import backend_of


def import_(
    folder: ArtifactFolder,
    path: FoldPath,
    backend: BackendOption = None,
    prefixes: Prefixes = None,
    mode: ModeOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check names, sizes and whether the artifact fits; write nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a fold of an artifact in a folder, at a path where nothing is.

    Every hash is checked, and an artifact that is not whole or does not fit is refused. With --prefix and --mode the
    artifact must hold those keys, and be of an archive where an archive is wanted.
    """
    scope = Scope.of(*prefixes) if prefixes else None
    if dry_run:
        manifest = read_artifact(folder)
        wanted = None if backend is None else backend.value
        check_fit(manifest, str(folder), backend=wanted, versions=known_versions(), scope=scope, mode=fold_mode(mode))
        check_vacant(path)
        emit({"artifact": folder, "path": path, **manifest_record(manifest), "dry_run": True}, as_json=as_json)
        return
    with TransferLine("importing", quiet=quiet):
        manifest = import_fold(folder, path, backend=backend, scope=scope, mode=fold_mode(mode))
    record = {"artifact": folder, "path": path, **manifest_record(manifest), "backend": backend_of(path).value}
    emit(record, as_json=as_json)
