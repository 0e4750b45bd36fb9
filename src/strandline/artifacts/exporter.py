"""Export of a fold as an artifact: a snapshot between two batches, then files beside the batches that follow.

    snapshot = take_snapshot(store)                     in the store's thread: milliseconds
    manifest = export_snapshot(snapshot, "prices.art")  anywhere: copies, verifies, syncs, renames

Invariants: data and cursor of an artifact are of one moment. Before the manifest is written the copy is opened again,
and its cursor and digest must be those of the snapshot. The manifest is written last, and the whole is renamed: an
artifact that exists is whole.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from blake3 import blake3

from strandline.artifacts.errors import ArtifactInvalid, ArtifactUnfit, DestinationTaken, Refusal
from strandline.artifacts.manifest import DATA_FOLDER, MANIFEST_NAME, ArtifactFile, Form, Manifest, format_manifest
from strandline.artifacts.staging import is_own, own_name, publish_stage, remove_tree, staged
from strandline.clock import NS_PER_S, Clock, SystemClock
from strandline.fold import PutColumns, SnapshotStore, StoreSnapshot, Verified, parse_fold_cursor
from strandline.fold.columns import numbers_of
from strandline.fold.copies import verify_copy
from strandline.fold.digests import digest_columns
from strandline.fold.paths import COPY_NAME
from strandline.fold.store import PAGE_ROWS

HASHED_BYTES = 1 << 20
SNAPSHOT_MARK = ".snapshot-"


def take_snapshot(store: SnapshotStore) -> StoreSnapshot:
    """Take a moment of a store, in the thread that applies batches; close it after the export."""
    paths = store.files().paths
    base = paths[0] if paths else Path.cwd() / "memory"
    prefix = f".{base.name}{SNAPSHOT_MARK}"
    for path in base.parent.iterdir():  # only the writer of a fold makes them, and it has the fold's lock
        if path.name.startswith(prefix) and not is_own(path.name):
            remove_tree(path)
    return store.snapshot(base.with_name(own_name(prefix)))


def prepare_snapshot(store: SnapshotStore) -> None:
    """Do beforehand, beside batches, what would make the next snapshot slow; for stores that have such work."""
    prepare: Callable[[], None] | None = getattr(store, "prepare_snapshot", None)
    if prepare is not None:
        prepare()


def export_fold(store: SnapshotStore, destination: Path | str, *, clock: Clock | None = None) -> Manifest:
    """Export a store that nothing changes meanwhile, in its own files, and return the manifest."""
    snapshot = take_snapshot(store)
    try:
        return export_snapshot(snapshot, destination, clock=clock)
    finally:
        snapshot.close()


def export_snapshot(snapshot: StoreSnapshot, destination: Path | str, *, clock: Clock | None = None) -> Manifest:
    """Make a new folder that holds a snapshot in its store's own files (`Form.RAW`)."""
    destination = Path(destination)
    check_destination(destination)
    check_cursor(snapshot, destination)
    with staged(destination) as stage:
        stage.mkdir()
        data = stage / DATA_FOLDER
        snapshot.copy_to(data)
        entries, digest = digest_columns(checked_rows(snapshot, destination))
        check_copy(str(destination), verify_copy(data / COPY_NAME), Verified(snapshot.cursor(), entries, digest))
        files = hashed_files(stage, parse_fold_cursor(snapshot.cursor()).revision)
        manifest = Manifest(
            Form.RAW,
            snapshot.backend,
            snapshot.version,
            snapshot.cursor(),
            entries,
            digest.hex(),
            now_unix(clock),
            tuple(files),
        )
        finish(stage, destination, manifest)
    return manifest


def finish(stage: Path, destination: Path, manifest: Manifest) -> None:
    """Write the manifest, the last of an artifact's files, and put the artifact in its place."""
    (stage / MANIFEST_NAME).write_bytes(format_manifest(manifest))
    publish_stage(stage, destination)


def check_destination(destination: Path) -> None:
    """Refuse to export to where something is; an empty folder is nothing."""
    if destination.is_symlink() or (destination.exists() and not is_empty_folder(destination)):
        raise DestinationTaken(str(destination), "something")


def is_empty_folder(path: Path) -> bool:
    """Tell whether a path is a folder, and nothing is in it."""
    return path.is_dir() and not path.is_symlink() and next(path.iterdir(), None) is None


def check_cursor(snapshot: StoreSnapshot, destination: Path) -> None:
    """Refuse to export data of which nothing says up to where it is complete."""
    if not snapshot.cursor() and next(iter(snapshot.rows(1)), None) is not None:
        hint = "catch up with the bucket first: its first batch was cut short"
        raise ArtifactUnfit(str(destination), Refusal.NO_CURSOR, "the fold has data and no cursor", hint=hint)


def checked_rows(snapshot: StoreSnapshot, destination: Path, rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
    """Yield the rows of a snapshot; refuse one whose data is ahead of its cursor, for it is not of a single moment."""
    revision = parse_fold_cursor(snapshot.cursor()).revision
    for rows in snapshot.rows(rows_max):
        if (found := int(numbers_of(rows.versions)[0].max(initial=0))) > revision:
            problem = f"the fold has an entry of revision {found}, and its cursor stands at {revision}"
            hint = "catch up with the bucket first: a batch or a repair was cut short"
            raise ArtifactUnfit(str(destination), Refusal.CURSOR_MISMATCH, problem, hint=hint)
        yield rows


def check_copy(path: str, found: Verified, wanted: Verified) -> None:
    """Raise `ArtifactInvalid` unless a copy that was opened again holds what it should."""
    if found.cursor != wanted.cursor:
        problem = f"the data stands at cursor {found.cursor.hex() or 'none'}, not {wanted.cursor.hex() or 'none'}"
        raise ArtifactInvalid(path, Refusal.CURSOR_MISMATCH, problem)
    if found != wanted:
        problem = f"{found.entries:,} entries with digest {found.digest.hex()[:16]}… are there, "
        problem += f"not {wanted.entries:,} with {wanted.digest.hex()[:16]}…"
        raise ArtifactInvalid(path, Refusal.TAMPERED, problem)


def hashed_files(stage: Path, rank: int) -> Iterable[ArtifactFile]:
    """Return the files below `data/`, with their hashes, in the order of their paths."""
    for path in sorted((stage / DATA_FOLDER).rglob("*")):
        if path.is_file():
            yield ArtifactFile(path.relative_to(stage).as_posix(), path.stat().st_size, hash_of(path), rank)


def hash_of(path: Path) -> str:
    """Return the BLAKE3 hash of a file."""
    digest = blake3()
    with path.open("rb") as file:
        while part := file.read(HASHED_BYTES):
            digest.update(part)
    return digest.hexdigest()


def now_unix(clock: Clock | None) -> int:
    """Return the time that a manifest says, for people."""
    return (clock or SystemClock()).now_ns() // NS_PER_S
