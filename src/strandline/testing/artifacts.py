"""Export and import of a fold as checks, each a function of an empty store and an empty folder.

The store is one of the package, or one whose snapshots are files of such a store. Tests that kill the process
check that a crash leaves no partial artifact.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from strandline.artifacts import (
    ArtifactInvalid,
    ArtifactUnfit,
    DestinationTaken,
    Manifest,
    Refusal,
    export_fold,
    export_snapshot,
    import_fold,
    take_snapshot,
)
from strandline.artifacts.manifest import DATA_FOLDER, MANIFEST_NAME
from strandline.fold import Backend, FoldCursor, FoldMode, Scope, SnapshotStore, format_fold_cursor, open_fold
from strandline.fold.paths import COPY_NAME
from strandline.testing.contract import ContractBroken, expect, named, refuses, same
from strandline.testing.snapshot_stores import changes, everything


@dataclass(slots=True)
class CheckedArtifact:
    """A store under check, and an empty folder on its file system."""

    store: SnapshotStore
    folder: Path

    @property
    def artifact(self) -> Path:
        """Return the path of the artifact."""
        return self.folder / "artifact"

    @property
    def copy(self) -> Path:
        """Return the path of the imported fold."""
        return self.folder / "copy"

    def exported(self, cursor: FoldCursor | None = None) -> Manifest:
        """Fill the store, with this cursor last if one is given, and export it."""
        self.store.apply(*changes(1, *((b"key %d" % at, b"value %d" % at) for at in range(300))))
        self.store.apply(*changes(301, (b"key 7", None), (b"key 8", b""), (b"key 9", b"new")))
        if cursor is not None:
            self.store.apply(changes(1)[0], format_fold_cursor(cursor))
        return export_fold(self.store, self.artifact)

    def refused(self, refusal: Refusal, **asked: Any) -> None:  # noqa: ANN401 - what `import_fold` takes
        """Expect that the import is refused by this rule, and that nothing is at the destination."""
        try:
            import_fold(self.artifact, self.copy, **asked)
        except (ArtifactInvalid, ArtifactUnfit) as error:
            same("the rule", error.refusal, refusal)
            expect(error.hint, "the refusal should say what to do")
        else:
            raise ContractBroken("", f"the import should be refused: {refusal.value}")
        left = [path.name for path in self.folder.iterdir() if path.name.lstrip(".").startswith("copy")]
        same("what is at the destination", [name for name in left if not name.endswith(".lock")], [])

    def edit(self, **fields: Any) -> None:  # noqa: ANN401 - any field of a manifest
        """Change fields of the manifest."""
        path = self.artifact / MANIFEST_NAME
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    def largest_file(self) -> Path:
        """Return the largest file of the artifact."""
        files = [path for path in (self.artifact / DATA_FOLDER).rglob("*") if path.is_file()]
        return max(files, key=lambda path: path.stat().st_size)


ArtifactCheck = Callable[[CheckedArtifact], None]
OpenArtifactStore = Callable[[], AbstractContextManager[CheckedArtifact]]
"""Opens an empty store, and a folder on its file system."""


def export_import_round_trip(checked: CheckedArtifact) -> None:
    """What is imported is what was exported: every entry, the cursor, and the digest that the manifest says."""
    manifest = checked.exported()
    same("the imported manifest", import_fold(checked.artifact, checked.copy), manifest)
    with closing(open_fold(checked.copy)) as copy:
        same("the fold", everything(copy), everything(checked.store))
        found = copy.verify()
        same("the digest", (found.entries, found.digest.hex()), (manifest.entries, manifest.digest))
    same("the revision", manifest.rank, 303)


def import_resume_continues_fold(checked: CheckedArtifact) -> None:
    """An imported fold takes the next batches as the exported one does, and both end equal."""
    checked.exported()
    import_fold(checked.artifact, checked.copy)
    delta = changes(304, (b"key 1", b"later"), (b"key 2", None), (b"new", b"x"))
    checked.store.apply(*delta)
    with closing(open_fold(checked.copy)) as copy:
        copy.apply(*delta)
        same("the fold", everything(copy), everything(checked.store))
    with closing(open_fold(checked.copy)) as again:
        same("the fold when opened again", again.verify(), checked.store.verify())


def export_is_of_the_moment_of_its_snapshot(checked: CheckedArtifact) -> None:
    """Batches that are applied while a snapshot is exported are not in the artifact, nor is their cursor."""
    checked.store.apply(*changes(1, (b"a", b"1"), (b"b", b"1")))
    before = everything(checked.store)
    snapshot = take_snapshot(checked.store)
    try:
        checked.store.apply(*changes(3, (b"a", b"2"), (b"b", None), (b"c", b"2")))
        same("the revision", export_snapshot(snapshot, checked.artifact).rank, 2)
    finally:
        snapshot.close()
    import_fold(checked.artifact, checked.copy)
    with closing(open_fold(checked.copy)) as copy:
        same("the fold", everything(copy), before)


def equal_states_are_exported_alike(checked: CheckedArtifact) -> None:
    """Exporting twice gives the same digest and cursor, and the artifact does not change the store."""
    first = checked.exported()
    second = export_fold(checked.store, checked.folder / "second")
    same(
        "the second export", (second.digest, second.cursor, second.entries), (first.digest, first.cursor, first.entries)
    )


def export_empty_store(checked: CheckedArtifact) -> None:
    """An empty fold is exported and imported too."""
    manifest = export_fold(checked.store, checked.artifact)
    same("the entries and revision", (manifest.entries, manifest.rank), (0, 0))
    import_fold(checked.artifact, checked.copy)
    with closing(open_fold(checked.copy)) as copy:
        same("load", copy.load(), None)


def export_rejects_nonempty_dest(checked: CheckedArtifact) -> None:
    """An export never replaces what is there."""
    checked.artifact.mkdir()
    (checked.artifact / "mine").write_bytes(b"mine")
    refuses("the export", DestinationTaken, export_fold, checked.store, checked.artifact)
    same("what is there", [path.name for path in checked.artifact.iterdir()], ["mine"])
    same("stages that are left", sorted(path.name for path in checked.folder.glob(".artifact*")), [])


def export_rejects_data_without_cursor(checked: CheckedArtifact) -> None:
    """Of data without a cursor nothing says up to where it is complete, so it is not exported."""
    checked.store.apply(changes(1, (b"a", b"1"))[0], changes(1)[1][:0])  # type: ignore[arg-type]
    try:
        export_fold(checked.store, checked.artifact)
    except ArtifactUnfit as error:
        same("the rule", error.refusal, Refusal.NO_CURSOR)
    else:
        raise ContractBroken("", "the export should be refused")
    expect(not checked.artifact.exists(), "a refused export should leave nothing")


def import_rejects_tampered_payload(checked: CheckedArtifact) -> None:
    """One changed bit is refused."""
    checked.exported()
    file = checked.largest_file()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    checked.refused(Refusal.TAMPERED)
    file.write_bytes(bytes(data[:-1]))
    checked.refused(Refusal.TAMPERED)


def import_rejects_missing_payload_file(checked: CheckedArtifact) -> None:
    """Every file of the manifest has to be there."""
    checked.exported()
    checked.largest_file().unlink()
    checked.refused(Refusal.MISSING_FILE)


def import_rejects_undeclared_extra_file(checked: CheckedArtifact) -> None:
    """No file may be there that the manifest does not name, nor one that it names beside the files of the store."""
    checked.exported()
    extra = checked.artifact / DATA_FOLDER / f"{COPY_NAME}-wal"  # a store would read it, and the fold not have it
    extra.write_bytes(b"")
    checked.refused(Refusal.EXTRA_FILE)
    listed = json.loads((checked.artifact / MANIFEST_NAME).read_text())["files"]
    path = extra.relative_to(checked.artifact).as_posix()
    checked.edit(files=[*listed, {**listed[0], "path": path, "size": 0, "blake3": blake3().hexdigest()}])
    checked.refused(Refusal.EXTRA_FILE)


def import_rejects_symlink_in_payload(checked: CheckedArtifact) -> None:
    """A link is refused, also one to the right bytes, and also a folder that is one."""
    checked.exported()
    file, moved = checked.largest_file(), checked.folder / "moved"
    shutil.move(file, moved)
    file.symlink_to(moved)
    checked.refused(Refusal.SYMLINK)
    file.unlink()
    shutil.move(moved, file)
    (checked.artifact / DATA_FOLDER).rename(moved)
    (checked.artifact / DATA_FOLDER).symlink_to(moved)
    checked.refused(Refusal.SYMLINK)


def import_rejects_path_outside(checked: CheckedArtifact) -> None:
    """A path that leads out of the artifact is refused, whatever it is called."""
    checked.exported()
    (listed,) = json.loads((checked.artifact / MANIFEST_NAME).read_text())["files"][:1]
    for path in ("data/../../etc/passwd", "/etc/passwd", "data//x", "other/x", "data/./x", "data\\..\\x", "data"):
        checked.edit(files=[{**listed, "path": path}])
        checked.refused(Refusal.UNSAFE_PATH)


def import_rejects_wrong_backend(checked: CheckedArtifact) -> None:
    """Files of one backend are not taken for another's, whether asked for or claimed."""
    manifest = checked.exported()
    other = next(backend for backend in Backend if backend.value != manifest.backend)
    checked.refused(Refusal.BACKEND, backend=other)
    checked.edit(backend="another")
    checked.refused(Refusal.BACKEND)


def import_rejects_schema_version(checked: CheckedArtifact) -> None:
    """A manifest of another schema is refused by its number."""
    checked.exported()
    checked.edit(schema=2)
    checked.refused(Refusal.SCHEMA)


def import_rejects_backend_version(checked: CheckedArtifact) -> None:
    """Another version of the backend's format is refused before the store sees it."""
    manifest = checked.exported()
    checked.edit(backend_version=manifest.backend_version + 1)
    checked.refused(Refusal.BACKEND_VERSION)


def import_rejects_cursor_mismatch(checked: CheckedArtifact) -> None:
    """The data must stand at the manifest's cursor, and the manifest agree with itself."""
    checked.exported()
    checked.edit(revision=304)
    checked.refused(Refusal.CURSOR_MISMATCH)
    checked.edit(revision=304, cursor=(304).to_bytes(8, "big").hex())
    checked.refused(Refusal.CURSOR_MISMATCH)


def import_rejects_nonempty_dest(checked: CheckedArtifact) -> None:
    """An import never replaces what is there, nor takes over what a fold that is gone left beside it."""
    checked.exported()
    checked.copy.write_bytes(b"mine")
    refuses("the import", DestinationTaken, import_fold, checked.artifact, checked.copy)
    same("what is there", checked.copy.read_bytes(), b"mine")
    checked.copy.unlink()
    checked.copy.with_name("copy-wal").write_bytes(b"of another fold")
    refuses("the import beside a log of another fold", DestinationTaken, import_fold, checked.artifact, checked.copy)


def import_rejects_scope_that_does_not_cover(checked: CheckedArtifact) -> None:
    """An artifact of some keys is no fold of others."""
    checked.exported(FoldCursor(303, scope=Scope.of("a."), mode=FoldMode.MIRROR))
    checked.refused(Refusal.SCOPE, scope=Scope.of("b."))
    checked.refused(Refusal.SCOPE, scope=Scope())
    import_fold(checked.artifact, checked.copy, scope=Scope.of("a.b."))


def import_rejects_mirror_for_archive(checked: CheckedArtifact) -> None:
    """An archive is never made of a mirror, which lacks what was evicted."""
    checked.exported(FoldCursor(303, mode=FoldMode.MIRROR))
    checked.refused(Refusal.MODE, mode=FoldMode.ARCHIVE)
    import_fold(checked.artifact, checked.copy, mode=FoldMode.MIRROR)


def import_rejects_another_bucket(checked: CheckedArtifact) -> None:
    """An artifact of a bucket that was made anew, or of another one, is refused."""
    checked.exported(FoldCursor(303, identity=b"identity"))
    checked.refused(Refusal.IDENTITY, identity=b"anothers")
    import_fold(checked.artifact, checked.copy, identity=b"identity")


def import_rejects_what_is_no_manifest(checked: CheckedArtifact) -> None:
    """Not JSON, unknown or missing fields, more than a mebibyte, or nothing at all."""
    checked.exported()
    path = checked.artifact / MANIFEST_NAME
    whole = path.read_bytes()
    for data in (b"", b"[]", b"{", b"{}", whole + b" " * (1 << 20), whole.replace(b'"entries"', b'"entrys"')):
        path.write_bytes(data)
        checked.refused(Refusal.NOT_A_MANIFEST)
    path.write_bytes(whole)
    checked.edit(unknown=1)
    checked.refused(Refusal.NOT_A_MANIFEST)
    path.unlink()
    checked.refused(Refusal.NOT_A_MANIFEST)


ARTIFACT_CHECKS: tuple[ArtifactCheck, ...] = (
    export_import_round_trip,
    import_resume_continues_fold,
    export_is_of_the_moment_of_its_snapshot,
    equal_states_are_exported_alike,
    export_empty_store,
    export_rejects_nonempty_dest,
    export_rejects_data_without_cursor,
    import_rejects_tampered_payload,
    import_rejects_missing_payload_file,
    import_rejects_undeclared_extra_file,
    import_rejects_symlink_in_payload,
    import_rejects_path_outside,
    import_rejects_wrong_backend,
    import_rejects_schema_version,
    import_rejects_backend_version,
    import_rejects_cursor_mismatch,
    import_rejects_nonempty_dest,
    import_rejects_scope_that_does_not_cover,
    import_rejects_mirror_for_archive,
    import_rejects_another_bucket,
    import_rejects_what_is_no_manifest,
)


def run_artifact_check(check: ArtifactCheck, open_store: OpenArtifactStore) -> None:
    """Run one check over a store of its own; `ContractBroken` carries its name."""
    with named(check.__name__), open_store() as checked:
        check(checked)


def check_artifacts(open_store: OpenArtifactStore) -> None:
    """Run every check; `ContractBroken` names the first that fails."""
    for check in ARTIFACT_CHECKS:
        run_artifact_check(check, open_store)
