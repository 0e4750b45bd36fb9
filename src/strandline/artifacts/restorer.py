"""Folds from published artifacts: for a fold that is absent or damaged, and for the repair of one that fell behind.

Invariants: a fold that is whole is never touched here; one that is damaged is moved aside, never removed, and not
before the fold that takes its place is whole. The fold's lock is held meanwhile, so that of two processes one goes on.
An artifact is used only if it covers the scope, and an archive is never made of a mirror. Whether the log still
continues an artifact is for the watch to decide, by the artifact's cursor, as for every fold.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from strandline.artifacts.errors import ArtifactInvalid, ArtifactUnfit, NoArtifact
from strandline.artifacts.importer import SIDE_SUFFIXES, known_versions, move_hints, place_fold, vacant
from strandline.artifacts.manifest import ArtifactFile, Manifest, check_fit
from strandline.artifacts.published import PublishedArtifacts
from strandline.artifacts.staging import remove_tree
from strandline.artifacts.transfers import Fetching, fetch_stage
from strandline.errors import Damaged, StorageRefused
from strandline.files import OsDisk, storage_errors
from strandline.fold import (
    Backend,
    FoldEntry,
    FoldMode,
    FoldReader,
    Held,
    Pages,
    Scope,
    SnapshotStore,
    Verified,
    existing_backend,
    open_fold,
    open_read_only,
)
from strandline.fold.paths import LOCK_SUFFIX
from strandline.fold.store import PAGE_ROWS
from strandline.journal import SYNCED, Durability
from strandline.kv import WatchCursor

FETCHED_SUFFIX = ".artifact"
FETCHED_BEFORE_SUFFIX = ".artifact-before"
RESTORED_SUFFIX = ".restored"


class ArtifactRestorer:
    """A `Restorer`: the newest published artifact as a fold beside `path`, removed when it is closed."""

    def __init__(self, artifacts: PublishedArtifacts, path: Path | str, *, backend: Backend | None = None) -> None:
        self._artifacts = artifacts
        self._path = Path(path)
        self._backend = backend

    async def newest(self, scope: Scope) -> FoldReader | None:
        """Return the newest artifact that holds at least this scope as a fold; None if there is none."""
        return await asyncio.to_thread(self._newest, scope)

    def _newest(self, scope: Scope) -> FoldReader | None:
        restored = restored_path(self._path)
        _remove_fold(restored)
        try:
            fetch_fold(self._artifacts, restored, backend=self._backend, scope=scope)
        except (NoArtifact, ArtifactUnfit):
            return None
        return RestoredFold(restored)


class RestoredFold:
    """A `FoldReader` of a fold that is removed when it is closed."""

    def __init__(self, path: Path) -> None:
        self._reader = open_read_only(path)
        self._path = path

    def load(self) -> Held | None:
        """Return where the fold stands, or None if there is nothing."""
        return self._reader.load()

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        return self._reader.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        """Return an entry or None for each key."""
        return self._reader.multi_get(keys)

    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        """Return the entries whose key begins so, by key."""
        return self._reader.range(prefix)

    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        """Hand over the entries of a range one by one, and return how many."""
        return self._reader.for_each_in_range(prefix, visit)

    def pages(self, prefix: bytes = b"", rows_max: int = PAGE_ROWS) -> Pages:
        """Return a range as columns, and the cursor of the same moment."""
        return self._reader.pages(prefix, rows_max)

    def cursor(self) -> WatchCursor:
        """Return the cursor that it was stored with."""
        return self._reader.cursor()

    def verify(self) -> Verified:
        """Read everything, and return its digest."""
        return self._reader.verify()

    def close(self) -> None:
        """Close the fold, and remove it; twice is harmless."""
        self._reader.close()
        _remove_fold(self._path)


def fetch_fold(
    artifacts: PublishedArtifacts,
    path: Path | str,
    *,
    backend: Backend | None = None,
    scope: Scope | None = None,
    mode: FoldMode | None = None,
    identity: bytes | None = None,
) -> Manifest:
    """Make a fold of the newest published artifact at a path where nothing is; `NoArtifact` if there is none.

    Tables become a fold while others are still being fetched; files of the raw form become the fold once all are
    there. What a process fetched before it was killed is not fetched again.
    """
    path = Path(path)
    fetched = path.with_name(f".{path.name}{FETCHED_SUFFIX}")
    before = path.with_name(f".{path.name}{FETCHED_BEFORE_SUFFIX}")
    stage = fetch_stage(fetched)

    def make(manifest: Manifest) -> Manifest:
        wanted = None if backend is None else backend.value
        check_fit(
            manifest,
            artifacts.address,
            backend=wanted,
            versions=known_versions(),
            scope=scope,
            mode=mode,
            identity=identity,
        )
        with artifacts.fetching(manifest, stage, reuse=before) as fetching:
            place_fold(
                artifacts.address,
                manifest,
                path,
                backend,
                bring=lambda _: _wait_for_all(fetching, manifest, stage),
                open_file=partial(_opened, fetching),
            )
        return manifest

    with vacant(path):
        with storage_errors(path):
            if fetched.exists():
                remove_tree(before)
                fetched.rename(before)
        try:
            manifest = artifacts.of_newest(make)
        except (ArtifactInvalid, ArtifactUnfit, NoArtifact):
            remove_tree(stage)
            remove_tree(before)
            raise
        remove_tree(stage)
        remove_tree(before)
    return manifest


def _wait_for_all(fetching: Fetching, manifest: Manifest, stage: Path) -> Path:
    """Return where the files are; they stay there until the fold is verified, so that none is fetched again."""
    for file in manifest.files:
        fetching.wait(file)
    return stage


def _opened(fetching: Fetching, file: ArtifactFile) -> pa.NativeFile:
    """Return a table whose hash was checked as it came; its rows are compared with the digest of the fold besides."""
    return pa.OSFile(str(fetching.wait(file)))


def open_bootstrapped(
    artifacts: PublishedArtifacts,
    path: Path | str,
    *,
    backend: Backend | None = None,
    scope: Scope | None = None,
    mode: FoldMode | None = None,
    sync: Durability = SYNCED,
    on_bootstrap: Callable[[Manifest], object] | None = None,
) -> SnapshotStore:
    """Open the fold at `path`; one that is absent, empty or damaged is made of the newest artifact first, if one fits.

    A damaged fold is moved aside, once there is an artifact to take its place. What is no fold, or one of another
    backend or a later version, is refused as `open_fold` does, and left alone. `on_bootstrap` is told what was used.
    """

    def bootstrap(*, is_damaged: bool = False) -> bool:
        manifest = _bootstrap(artifacts, Path(path), backend, scope, mode, is_damaged=is_damaged)
        if manifest is not None and on_bootstrap is not None:
            on_bootstrap(manifest)
        return manifest is not None

    if existing_backend(path) is None:
        bootstrap()
        return open_fold(path, backend, sync=sync)
    try:
        store = open_fold(path, backend, sync=sync)
    except Damaged:
        if not bootstrap(is_damaged=True):
            raise
        return open_fold(path, backend, sync=sync)
    if store.load() is not None:
        return store
    store.close()
    bootstrap()
    return open_fold(path, backend, sync=sync)


def bootstrap_fold(
    artifacts: PublishedArtifacts,
    path: Path | str,
    *,
    backend: Backend | None = None,
    scope: Scope | None = None,
    mode: FoldMode | None = None,
) -> Manifest | None:
    """Make a fold of the newest artifact that fits; an empty or damaged one at `path` is moved aside.

    None if there is no artifact, or it does not fit, or a whole fold is there: then nothing was done.
    """
    return _bootstrap(artifacts, Path(path), backend, scope, mode, is_damaged=False)


def _bootstrap(
    artifacts: PublishedArtifacts,
    path: Path,
    backend: Backend | None,
    scope: Scope | None,
    mode: FoldMode | None,
    *,
    is_damaged: bool,
) -> Manifest | None:
    wanted = None if backend is None else backend.value
    try:
        newest = artifacts.newest()
        check_fit(newest, artifacts.address, backend=wanted, versions=known_versions(), scope=scope, mode=mode)
    except (NoArtifact, ArtifactUnfit):
        return None
    with storage_errors(path):
        OsDisk().make_folder(path.parent)
        lock = OsDisk().lock(path.with_name(path.name + LOCK_SUFFIX))
    try:
        if not is_damaged and _is_whole(path):
            return None  # another process made it meanwhile
        restored = restored_path(path)
        _remove_fold(restored)
        try:
            manifest = fetch_fold(artifacts, restored, backend=backend, scope=scope, mode=mode)
            _move_aside(path)
            with storage_errors(path):
                OsDisk().rename(restored, path)
                OsDisk().sync_folder(path.parent)
                move_hints(restored, path)
        finally:
            _remove_fold(restored)
    finally:
        lock.release()
    return manifest


def restored_path(path: Path) -> Path:
    """Return where a fold is made before it takes the place of another; its name says the same backend."""
    return path.with_name(f".{path.stem}{RESTORED_SUFFIX}{path.suffix}")


def _is_whole(path: Path) -> bool:
    """Tell whether there is a fold that holds anything."""
    if existing_backend(path) is None:
        return False
    try:
        with contextlib.closing(open_read_only(path)) as fold:
            return fold.load() is not None
    except (Damaged, StorageRefused):
        return False


def _move_aside(path: Path) -> None:
    """Rename what is at a path, with what is beside it, to the first free name; nothing is removed."""
    present = [file for file in _with_side_files(path) if file.exists() or file.is_symlink()]
    if not present:
        return
    number = 1
    while path.with_name(f"{path.name}.aside-{number}").exists():
        number += 1
    with storage_errors(path):
        for file in present:
            file.rename(path.with_name(f"{path.name}.aside-{number}{file.name[len(path.name) :]}"))
        OsDisk().sync_folder(path.parent)


def _remove_fold(path: Path) -> None:
    """Remove a fold, with what is beside it."""
    for file in (*_with_side_files(path), path.with_name(path.name + LOCK_SUFFIX)):
        remove_tree(file)


def _with_side_files(path: Path) -> Sequence[Path]:
    return [path, *(path.with_name(path.name + suffix) for suffix in SIDE_SUFFIXES)]
