"""Import of an artifact as a fold: refused by rule before anything is opened, staged, verified, renamed.

Invariants: the delivery of an artifact is not trusted. Names, links and sizes are checked first, then each hash before
anything reads the file, then cursor and digest: of a raw copy as its store reads it, of tables while their rows are
written into the new fold. The fold's lock is held meanwhile. A bad artifact never becomes a fold; a crash leaves
nothing at the destination.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from blake3 import blake3

from strandline.artifacts.errors import ArtifactInvalid, DestinationTaken, Refusal
from strandline.artifacts.exporter import HASHED_BYTES, check_copy, is_empty_folder
from strandline.artifacts.manifest import (
    DATA_FOLDER,
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    ArtifactFile,
    Form,
    Manifest,
    check_fit,
    parse_manifest,
)
from strandline.artifacts.read_ahead import read_ahead
from strandline.artifacts.runs import OpenFile, merged, read_run, rows_of
from strandline.artifacts.staging import publish_stage, staged
from strandline.errors import Damaged, FormatError, InvalidInput
from strandline.files import OsDisk, storage_errors
from strandline.fold import Backend, FoldMode, PutColumns, Scope, Verified, backend_of
from strandline.fold.append_log import CLEAN_SUFFIX, INDEX_SUFFIX
from strandline.fold.batches import check_columns
from strandline.fold.copies import make_copy, verify_copy
from strandline.fold.digests import FoldDigest
from strandline.fold.log_format import VERSION as LOG_VERSION
from strandline.fold.paths import COPY_NAME, LOCK_SUFFIX

SIDE_SUFFIXES = ("-wal", "-shm", "-journal", CLEAN_SUFFIX, INDEX_SUFFIX)
"""Files that a store has beside its path; left over from another fold, they would become part of the new one."""


def import_fold(
    artifact: Path | str,
    destination: Path | str,
    *,
    backend: Backend | None = None,
    scope: Scope | None = None,
    mode: FoldMode | None = None,
    identity: bytes | None = None,
) -> Manifest:
    """Make a fold of an artifact, at a path where nothing is, and return the artifact's manifest.

    An artifact in the logical form becomes a fold of any backend: of `backend`, or of the one that the name of the
    destination says.

    `backend`, `scope`, `mode` and `identity` (of the bucket) are what the fold has to be, where that is known.
    `ArtifactInvalid` or `ArtifactUnfit` name the rule that the artifact breaks.
    """
    artifact, destination = Path(artifact), Path(destination)
    manifest = read_artifact(artifact)
    check_fit(
        manifest,
        str(artifact),
        backend=None if backend is None else backend.value,
        versions=known_versions(),
        scope=scope,
        mode=mode,
        identity=identity,
    )
    with vacant(destination):
        place_fold(
            str(artifact),
            manifest,
            destination,
            backend,
            bring=lambda stage: _copy_files(artifact, manifest, stage),
            open_file=lambda file: read_checked(artifact, file),
        )
    return manifest


@contextlib.contextmanager
def vacant(destination: Path) -> Iterator[None]:
    """Hold the lock of a fold that is about to be made, where nothing is."""
    with storage_errors(destination):
        OsDisk().make_folder(destination.parent)
        lock = OsDisk().lock(destination.with_name(destination.name + LOCK_SUFFIX))
    try:
        check_vacant(destination)
        yield
    finally:
        lock.release()


def place_fold(
    name: str,
    manifest: Manifest,
    destination: Path,
    backend: Backend | None,
    *,
    bring: Callable[[Path], Path],
    open_file: OpenFile,
) -> None:
    """Make a fold of an artifact whose names were checked, in a stage, and rename it into its place.

    `bring` has all files of the raw form below the folder that it returns, which may be the stage; `open_file` opens
    one of the logical form. Both check hashes.
    """
    with staged(destination) as stage:
        if manifest.form is Form.RAW:
            _check_names(name, manifest)
            made = bring(stage) / DATA_FOLDER / COPY_NAME
            _check_raw(name, manifest, made)
        else:
            made = stage / DATA_FOLDER / COPY_NAME
            made.parent.mkdir(parents=True)
            _make_of_runs(name, manifest, open_file, made, backend_of(destination, backend))
        publish_stage(made, destination)
        move_hints(made, destination)


def move_hints(made: Path, destination: Path) -> None:
    """Move what the store left beside its log, which makes the first opening quick; it may be missing after a crash."""
    for suffix in (INDEX_SUFFIX, CLEAN_SUFFIX):
        if (beside := made.with_name(made.name + suffix)).exists():
            OsDisk().rename(beside, destination.with_name(destination.name + suffix))


def read_artifact(artifact: Path) -> Manifest:
    """Return the manifest of an artifact whose names, links and sizes are in order; no data is read."""
    manifest = parse_manifest(read_manifest(artifact), str(artifact))
    found = {path: info for path, info in _walked(artifact, artifact) if path != MANIFEST_NAME}
    wanted = {file.path: file for file in manifest.files}
    if extra := found.keys() - wanted.keys():
        raise ArtifactInvalid(str(artifact), Refusal.EXTRA_FILE, f"{min(extra)!r} is not in the manifest")
    for path, file in wanted.items():
        if path not in found:
            raise ArtifactInvalid(str(artifact), Refusal.MISSING_FILE, f"{path} is missing")
        if found[path].st_size != file.size:
            problem = f"{path} has {found[path].st_size:,} bytes, and the manifest says {file.size:,}"
            raise ArtifactInvalid(str(artifact), Refusal.TAMPERED, problem)
    return manifest


def check_vacant(destination: Path) -> None:
    """Refuse a destination at which something is, or beside which a fold that is gone left files."""
    if destination.is_symlink() or (destination.exists() and not is_empty_folder(destination)):
        raise DestinationTaken(str(destination), "something")
    for suffix in SIDE_SUFFIXES:
        if (beside := destination.with_name(destination.name + suffix)).exists():
            raise DestinationTaken(str(destination), f"{beside.name}, of another fold,")


def known_versions() -> dict[str, int]:
    """Return the backends whose files can be imported here, and the version of each one's format."""
    versions = {Backend.APPEND_LOG.value: LOG_VERSION}
    for name, found in (("sqlite", _sqlite_version), ("rocksdb", _rocksdb_version)):
        try:
            versions[name] = found()
        except ModuleNotFoundError:
            continue
    return versions


def _sqlite_version() -> int:
    from strandline.fold.sqlite import SCHEMA_VERSION  # noqa: PLC0415 - needs the extra `sqlite`

    return SCHEMA_VERSION


def _rocksdb_version() -> int:
    from strandline.fold.rocksdb import FORMAT_VERSION  # noqa: PLC0415 - needs the extra `rocksdb`

    return FORMAT_VERSION


def _copy_files(artifact: Path, manifest: Manifest, stage: Path) -> Path:
    for file in manifest.files:
        (stage / file.path).parent.mkdir(parents=True, exist_ok=True)
        copy_checked(artifact, file, stage / file.path)
    return stage


def _check_names(name: str, manifest: Manifest) -> None:
    """Refuse files beside a raw copy: its store would read them with it, and they would not become part of the fold."""
    copy = f"{DATA_FOLDER}/{COPY_NAME}"
    for file in manifest.files:
        if file.path != copy and not file.path.startswith(f"{copy}/"):
            raise ArtifactInvalid(name, Refusal.EXTRA_FILE, f"{file.path!r} is no part of {copy}")


def _check_raw(name: str, manifest: Manifest, copied: Path) -> None:
    """Read a raw copy as its store does, and compare it with the manifest."""
    if not copied.exists():
        raise ArtifactInvalid(name, Refusal.MISSING_FILE, f"it has no {DATA_FOLDER}/{COPY_NAME}")
    try:
        found = verify_copy(copied, leaves_hints=True)
    except (FormatError, Damaged) as error:
        raise ArtifactInvalid(name, Refusal.TAMPERED, f"its store refuses it: {error}") from error
    check_copy(name, found, Verified(manifest.cursor, manifest.entries, bytes.fromhex(manifest.digest)))


def _make_of_runs(name: str, manifest: Manifest, open_file: OpenFile, made: Path, backend: Backend) -> None:
    """Make a fold of the runs of an artifact; they are read and checked in a thread, beside the writing of the fold."""
    digest = FoldDigest()
    with read_ahead(_checked_rows(name, manifest, open_file, digest)) as pages:
        make_copy(made, backend, pages, manifest.cursor)
    found = Verified(manifest.cursor, digest.entries, digest.digest())
    check_copy(name, found, Verified(manifest.cursor, manifest.entries, bytes.fromhex(manifest.digest)))


def _checked_rows(name: str, manifest: Manifest, open_file: OpenFile, digest: FoldDigest) -> Iterator[PutColumns]:
    """Yield the rows of an artifact by key, none that a store would not take, and take them into the digest."""
    runs = manifest.runs.values()
    for table in merged([read_run(files, open_file, name=name, rank=manifest.rank, is_hashed=True) for files in runs]):
        rows = rows_of(table)
        try:
            check_columns(rows)
        except InvalidInput as error:
            raise ArtifactInvalid(name, Refusal.TAMPERED, f"its tables cannot be read: {error}") from error
        digest.update(rows)
        yield rows


def read_checked(artifact: Path, file: ArtifactFile) -> pa.Buffer:
    """Return a file of the logical form, which is small; refused unless it is the one of the manifest."""
    try:
        descriptor = os.open(artifact / file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise ArtifactInvalid(str(artifact), Refusal.MISSING_FILE, f"{file.path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb", buffering=0) as reader:
        data = reader.read(file.size + 1) if file.size else b""
    check_bytes(str(artifact), file, data or b"")
    return pa.py_buffer(data)


def check_bytes(name: str, file: ArtifactFile, data: bytes) -> None:
    """Refuse bytes that are not those of a file."""
    if len(data) != file.size or blake3(data).hexdigest() != file.blake3:
        raise ArtifactInvalid(name, Refusal.TAMPERED, f"{file.path} has not the hash that the manifest says")


def copy_checked(artifact: Path, file: ArtifactFile, target: Path) -> None:
    """Copy a file, and refuse it unless it has the size and the hash of the manifest."""
    digest, size = blake3(), 0
    try:
        source = os.open(artifact / file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise ArtifactInvalid(str(artifact), Refusal.MISSING_FILE, f"{file.path}: {error.strerror}") from error
    with os.fdopen(source, "rb", buffering=0) as reader, target.open("xb") as writer:
        while part := reader.read(HASHED_BYTES):
            digest.update(part)
            size += len(part)
            writer.write(part)
    if (size, digest.hexdigest()) != (file.size, file.blake3):
        problem = f"{file.path} has not the hash that the manifest says"
        raise ArtifactInvalid(str(artifact), Refusal.TAMPERED, problem)


def read_manifest(artifact: Path) -> bytes:
    """Return the bytes of an artifact's manifest, a byte more than it may have if it is too large."""
    path = artifact / MANIFEST_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            problem = f"there is no {MANIFEST_NAME}" if artifact.is_dir() else "there is no such folder"
            safe = "give the folder of an artifact; nothing was changed"
        else:
            problem, safe = f"{MANIFEST_NAME} cannot be read: {error.strerror}", None
        raise ArtifactInvalid(str(artifact), Refusal.NOT_A_MANIFEST, problem, safe=safe) from error
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MANIFEST_BYTES_MAX + 1)


def _walked(folder: Path, root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a folder; anything that is neither file nor folder is refused."""
    with os.scandir(folder) as found:
        for entry in found:
            info = entry.stat(follow_symlinks=False)
            path = Path(entry.path).relative_to(root).as_posix()
            if stat.S_ISDIR(info.st_mode):
                yield from _walked(Path(entry.path), root)
            elif stat.S_ISREG(info.st_mode):
                yield path, info
            else:
                raise ArtifactInvalid(str(root), Refusal.SYMLINK, f"{path!r} is a link or a device, and no file")
