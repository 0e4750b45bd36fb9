"""Files of an artifact on their way: uploaded once, fetched in ranges side by side and hashed as they come.

Invariants: a file that is not the one of its manifest is neither uploaded nor kept; a file that was fetched in part is
continued; the bytes on their way are bounded (`PARALLEL`, `CHUNK_BYTES`, `RANGES_AHEAD`). Nothing is synced here.
"""

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

from blake3 import blake3

from strandline.artifacts.errors import ArtifactInvalid, ArtifactUnfit, Refusal
from strandline.artifacts.exporter import hash_of
from strandline.artifacts.importer import check_bytes, read_manifest
from strandline.artifacts.layout import format_file_key
from strandline.artifacts.manifest import MANIFEST_NAME, ArtifactFile, Manifest, parse_manifest
from strandline.artifacts.staging import link_or_copy, remove_tree
from strandline.files import OsDisk, storage_errors
from strandline.objects import Object, ObjectStore

PARALLEL = 4
WHOLE_BYTES_MAX = 16 * 1024 * 1024 + 4096
"""A larger file is uploaded in parts, by itself."""
CHUNK_BYTES = 8 * 1024 * 1024
RANGES_AHEAD = 2
"""So many ranges of a file are on their way at once."""
FETCH_MARK = ".fetched"
T = TypeVar("T")


class Fetching:
    """The files of an artifact that are being fetched."""

    def __init__(self, files: Mapping[str, Future[Path]]) -> None:
        self._files = files

    def wait(self, file: ArtifactFile) -> Path:
        """Return where a file is, when it is there and its hash was checked; raises the error if it cannot be."""
        return self._files[file.path].result()


class Downloads:
    """Fetches files of artifacts into stages."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    @contextlib.contextmanager
    def into(self, stage: Path, manifest: Manifest, *, reuse: Path | str | None = None) -> Iterator[Fetching]:
        """Fetch the files of an artifact into a stage, several at once, while those that came are used.

        Files that `reuse` or the stage has are not fetched again; nothing is synced. At the end what has not begun is
        given up.
        """
        with storage_errors(stage):
            OsDisk().make_folder(stage.parent)
            stage.mkdir(exist_ok=True)
            known = _known_files(None if reuse is None else Path(reuse))
            keep_only(stage, {path for file in manifest.files for path in (file.path, _part_name(file))})
        with (
            ThreadPoolExecutor(PARALLEL, "strandline-ranges") as ranges,
            ThreadPoolExecutor(PARALLEL, "strandline-artifacts") as threads,
        ):
            files = {
                file.path: threads.submit(self._fetch_file, file, stage, known, ranges)
                for file in _by_turns(manifest.files)
            }
            try:
                yield Fetching(files)
            finally:
                for future in files.values():
                    future.cancel()

    def _fetch_file(self, file: ArtifactFile, stage: Path, known: dict[str, Path], ranges: ThreadPoolExecutor) -> Path:
        """Return the path of a file that is there, and has its hash."""
        target, part = stage / file.path, stage / _part_name(file)
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if _is_that(target, file):
                return target
            target.unlink(missing_ok=True)
            if file.blake3 in known:
                link_or_copy(known[file.blake3], target)
                if _is_that(target, file):
                    return target
                target.unlink()
            digest, size = blake3(), 0
            with part.open("a+b") as writer:
                writer.seek(0)
                while data := writer.read(CHUNK_BYTES):
                    digest.update(data)
                    size += len(data)
                for data in self._ranges(file, size, ranges):
                    digest.update(data)
                    size += len(data)
                    writer.write(data)
            if (size, digest.hexdigest()) != (file.size, file.blake3):
                part.unlink()
                problem = f"{format_file_key(file)} has not the hash that the manifest says"
                raise ArtifactInvalid(self._objects.address, Refusal.TAMPERED, problem)
            part.rename(target)
        return target

    def _ranges(self, file: ArtifactFile, start: int, threads: ThreadPoolExecutor) -> Iterator[bytes]:
        """Yield the bytes of a file from a position on; the ranges behind the one that is used are on their way."""
        key, waiting = format_file_key(file), deque[Future[Object | None]]()
        starts = iter(range(start, file.size, CHUNK_BYTES))
        while True:
            for at in islice(starts, RANGES_AHEAD - len(waiting)):
                stop = min(file.size, at + CHUNK_BYTES)
                waiting.append(threads.submit(self._objects.get, key, start=at, stop=stop))
            if not waiting:
                return
            found = waiting.popleft().result()
            if found is None:
                raise missing_file(self._objects, file)
            if not found.body:
                return
            yield found.body


class Uploads:
    """The uploads of one publication; a file is uploaded once, however often the pointer is tried."""

    def __init__(self, objects: ObjectStore, folder: Path) -> None:
        self._objects = objects
        self._folder = folder
        self._lock = threading.Lock()
        self._done: set[str] = set()
        self.bytes = 0

    def shared(self, manifest: Manifest) -> set[str]:
        """Return the objects of the files that the folder does not have."""
        return {format_file_key(file) for file in manifest.files if not (self._folder / file.path).exists()}

    def upload(self, files: Iterable[ArtifactFile]) -> bool:
        """Upload files that are not there yet: small ones side by side, large ones in parts, one after the other.

        False if a file is neither in the store nor in the folder.
        """
        waiting = [file for file in files if format_file_key(file) not in self._done]
        each(self._upload, [file for file in waiting if file.size <= WHOLE_BYTES_MAX])
        for file in waiting:
            if file.size > WHOLE_BYTES_MAX:
                self._upload(file)
        return all(format_file_key(file) in self._done for file in waiting)

    def _upload(self, file: ArtifactFile) -> None:
        key = format_file_key(file)
        found = self._objects.head(key)
        if found is None or found.size != file.size:
            path = self._folder / file.path
            if not path.exists():
                return
            if file.size <= WHOLE_BYTES_MAX:
                data = path.read_bytes()
                check_bytes(str(self._folder), file, data)
                self._objects.put(key, data)
            else:
                self._objects.put_stream(key, _parts_of(path, file))
            with self._lock:
                self.bytes += file.size
        with self._lock:
            self._done.add(key)


def missing_file(objects: ObjectStore, file: ArtifactFile) -> ArtifactInvalid:
    """Return the error for a file that a manifest names and the store does not have."""
    return ArtifactInvalid(objects.address, Refusal.MISSING_FILE, f"{format_file_key(file)} is missing")


def fetch_stage(destination: Path) -> Path:
    """Return where the files of an artifact are fetched before it is put at its destination."""
    return destination.with_name(f".{destination.name}{FETCH_MARK}")


def _parts_of(path: Path, file: ArtifactFile) -> Iterator[bytes]:
    """Yield a file in parts; it is refused before the last of them if it is not the one of the manifest."""
    digest = blake3()
    with path.open("rb") as reader:
        part = reader.read(CHUNK_BYTES)
        while part:
            digest.update(part)
            following = reader.read(CHUNK_BYTES)
            if not following and digest.hexdigest() != file.blake3:
                raise ArtifactInvalid(str(path), Refusal.TAMPERED, "it has not the hash that the manifest says")
            yield part
            part = following


def _known_files(reuse: Path | None) -> dict[str, Path]:
    """Return the files of an artifact in a folder by their hashes, as its manifest says; none if it has no manifest."""
    if reuse is None or not (reuse / MANIFEST_NAME).exists():
        return {}
    try:
        manifest = parse_manifest(read_manifest(reuse), str(reuse))
    except (ArtifactInvalid, ArtifactUnfit):
        return {}
    return {file.blake3: reuse / file.path for file in manifest.files if (reuse / file.path).is_file()}


def _is_that(path: Path, file: ArtifactFile) -> bool:
    """Tell whether there is a file with the size and the hash of the manifest."""
    return (
        path.is_file() and not path.is_symlink() and path.stat().st_size == file.size and hash_of(path) == file.blake3
    )


def _by_turns(files: Iterable[ArtifactFile]) -> list[ArtifactFile]:
    """Return files in the order they are used in: runs are merged, so the first files of all runs come first."""
    turns: Counter[int | None] = Counter()
    ranked = []
    for file in files:
        ranked.append((turns[file.run], file))
        turns[file.run] += 1
    return [file for _, file in sorted(ranked, key=lambda pair: pair[0])]


def _part_name(file: ArtifactFile) -> str:
    return f"{file.blake3}.part"


def keep_only(stage: Path, paths: set[str]) -> None:
    """Remove what an earlier fetch of another artifact left: its files, and folders where this one may have files."""
    for path in sorted(stage.rglob("*"), reverse=True):  # what is in a folder comes before it
        is_empty = path.is_dir() and not any(path.iterdir())
        is_other = path.is_file() and path.relative_to(stage).as_posix() not in paths
        if path.is_symlink() or is_other or is_empty:
            remove_tree(path)


def each(work: Callable[[T], object], items: Iterable[T]) -> None:
    """Do some work for each item, several at once; the first error is raised, and no more is begun then."""
    with ThreadPoolExecutor(PARALLEL, "strandline-artifacts") as threads:
        futures = [threads.submit(work, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise
