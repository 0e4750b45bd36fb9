"""Artifacts in object storage: payload first, the pointer last and only forward; fetched in parts, removed by rule.

Invariants: the pointer is moved by a conditional write upon the very pointer that was read, under
`pointer_publish_allowed`, after every file and the manifest are there. Files that an artifact shares are those of the
pointer's target. Removal goes by `payload_prunable` and by the manifests that are kept. What is fetched is hashed as it
comes, and a file that was fetched in part is continued.
"""

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import pyarrow as pa
from blake3 import blake3

from strandline.artifacts.errors import ArtifactInvalid, ArtifactUnfit, NoArtifact, PointerContended, Refusal
from strandline.artifacts.exporter import check_destination, hash_of
from strandline.artifacts.importer import check_bytes, read_manifest
from strandline.artifacts.layout import (
    FILES,
    MANIFESTS,
    POINTER_KEY,
    Pointer,
    format_file_key,
    format_pointer,
    parse_pointer,
    parse_rank,
    state_of,
)
from strandline.artifacts.logical import Previous
from strandline.artifacts.manifest import MANIFEST_NAME, ArtifactFile, Form, Manifest, format_manifest, parse_manifest
from strandline.artifacts.object_files import ObjectFile
from strandline.artifacts.staging import link_or_copy, publish_stage, remove_tree
from strandline.files import OsDisk, storage_errors
from strandline.fold.cursor import UNKNOWN
from strandline.objects import Object, ObjectConflict, ObjectStore, RequestCounts, WriteUnknown, open_objects
from strandline.protocol import artifacts as rules

PARALLEL = 4
WHOLE_BYTES_MAX = 16 * 1024 * 1024 + 4096
"""A larger file is uploaded in parts, by itself."""
CHUNK_BYTES = 8 * 1024 * 1024
RANGES_AHEAD = 2
"""So many ranges of a file are on their way at once."""
FETCH_MARK = ".fetched"
T = TypeVar("T")


class Outcome(Enum):
    """What became of a publication."""

    PUBLISHED = "the pointer names it"
    SUPERSEDED = "the pointer names a newer one"
    REBASED = "it goes on from an artifact that the pointer no longer names; export it again"


class Publication(NamedTuple):
    """The outcome, the manifest as it was published, and how many bytes of files were uploaded for it."""

    outcome: Outcome
    manifest: Manifest
    uploaded_bytes: int


class Pruned(NamedTuple):
    """How many manifests and files were removed, and the bytes of these."""

    manifests: int
    files: int
    bytes: int


class _Seen(NamedTuple):
    """A pointer that is there: what it says, None if it cannot be read, and its ETag and time."""

    pointer: Pointer | None
    etag: str
    modified: datetime


class Fetching:
    """The files of an artifact that are being fetched."""

    def __init__(self, files: Mapping[str, Future[Path]]) -> None:
        self._files = files

    def wait(self, file: ArtifactFile) -> Path:
        """Return where a file is, when it is there and its hash was checked; raises the error if it cannot be."""
        return self._files[file.path].result()


class PublishedArtifacts:
    """The artifacts of one fold in an object store; it must honour conditions (`open` sees to that)."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    @classmethod
    def open(cls, address: str, *, is_read_only: bool = False, counts: RequestCounts | None = None) -> Self:
        """Open an address such as `s3://bucket/prices`; a store that ignores conditions is `ConditionsIgnored`.

        Whether it does is tried by writing, and not where artifacts are only read. `counts` counts requests.
        """
        return cls(open_objects(address, conditional=not is_read_only, counts=counts))

    @property
    def address(self) -> str:
        """Return where the artifacts are."""
        return self._objects.address

    @property
    def objects(self) -> ObjectStore:
        """Return the store, for what stands beside the artifacts: the lease of exporters."""
        return self._objects

    def close(self) -> None:
        """Let go of connections."""
        self._objects.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def pointer(self) -> Pointer | None:
        """Return what the pointer says, None if there is none or it cannot be read."""
        seen = self._seen()
        return seen.pointer if seen else None

    def newest(self) -> Manifest:
        """Return the manifest that the pointer names; `NoArtifact` if there is none."""
        return self.of_newest(lambda manifest: manifest)

    def manifests(self) -> Iterator[Manifest]:
        """Yield the manifests that are there, oldest first; one that cannot be read is left out."""
        for info in sorted(self._objects.list(MANIFESTS), key=lambda info: info.key):
            with contextlib.suppress(ArtifactInvalid):
                found = self._objects.get(info.key)
                if found is not None and parse_rank(info.key) is not None:
                    yield parse_manifest(found.body, f"{self.address}/{info.key}")

    def previous(self) -> Previous | None:
        """Return the newest artifact to go on from; None if none can be read, or it is of the raw form."""
        manifest = self._target(self._seen())
        if manifest is None or manifest.form is not Form.LOGICAL:
            return None
        return Previous(
            manifest, lambda file: pa.PythonFile(ObjectFile(self._objects, format_file_key(file), file.size))
        )

    def read_file(self, file: ArtifactFile) -> pa.Buffer:
        """Return a file of the logical form, checked."""
        found = self._objects.get(format_file_key(file))
        if found is None:
            raise self._missing(file)
        check_bytes(self.address, file, found.body)
        return pa.py_buffer(found.body)

    # Publishing

    def publish(self, artifact: Path | str) -> Publication:
        """Upload an artifact and move the pointer to it; never over a newer one.

        Files that are in its manifest and not in its folder are shared with the artifact that the pointer names; all of
        them must be there (`REBASED` if not).
        """
        folder = Path(artifact)
        manifest = parse_manifest(read_manifest(folder), str(folder))
        uploads = _Uploads(self._objects, folder)
        for _ in range(rules.POINTER_ATTEMPTS_MAX):
            seen = self._seen()
            state = self._state(seen)
            newest = self._target(seen)
            self._check_identity(manifest, newest)
            target = {format_file_key(file): file for file in newest.files} if newest else {}
            if not rules.pointer_publish_allowed(state, manifest.rank):
                return Publication(Outcome.SUPERSEDED, manifest, uploads.bytes)
            if not rules.shared_files_allowed(uploads.shared(manifest), target.keys()):
                return Publication(Outcome.REBASED, manifest, uploads.bytes)
            published = replace(manifest, files=tuple(_shared_name(file, target) for file in manifest.files))
            if not uploads.upload(published.files):
                return Publication(Outcome.REBASED, manifest, uploads.bytes)
            if self._move_pointer(published, seen):
                return Publication(Outcome.PUBLISHED, published, uploads.bytes)
        raise PointerContended(self.address, rules.POINTER_ATTEMPTS_MAX)

    def _move_pointer(self, manifest: Manifest, seen: _Seen | None) -> bool:
        """Put the manifest, then the pointer upon the one that was seen; False if another moved it."""
        data = format_manifest(manifest)
        pointer = Pointer(manifest.rank, blake3(data).hexdigest())
        self._objects.put(pointer.manifest_key, data)
        try:
            self._objects.put(
                POINTER_KEY, format_pointer(pointer), if_absent=seen is None, if_match=seen.etag if seen else None
            )
        except ObjectConflict:
            return False
        except WriteUnknown:
            found = self._seen()
            if found is None or found.pointer != pointer:
                raise  # it may still come; the payload stays, for its rank is not below the pointer's
        return True

    def _target(self, seen: _Seen | None) -> Manifest | None:
        """Return the artifact that the pointer names, None if there is none that can be read."""
        if seen is None or seen.pointer is None:
            return None
        try:
            return self._manifest(seen.pointer)
        except (ArtifactInvalid, ArtifactUnfit):
            return None

    def _check_identity(self, manifest: Manifest, newest: Manifest | None) -> None:
        """Refuse to publish a fold of another bucket: revisions of two logs cannot be compared."""
        ours = manifest.fold_cursor.identity
        theirs = newest.fold_cursor.identity if newest else UNKNOWN
        if UNKNOWN not in (ours, theirs) and ours != theirs:
            hint = "the bucket was made anew, or is another: publish at another address, or remove what is at this one"
            raise ArtifactUnfit(self.address, Refusal.IDENTITY, "artifacts of another bucket are there", hint=hint)

    # Fetching

    def fetch(self, destination: Path | str, *, reuse: Path | str | None = None) -> Manifest:
        """Make a folder of the newest artifact; files that an older one in `reuse` has are linked, not fetched.

        What was fetched before a failure is beside the destination, and is not fetched again. It is read again, as are
        files that are linked: after a loss of power a file may have its name and not its bytes.
        """
        destination = Path(destination)
        check_destination(destination)
        stage = fetch_stage(destination)

        def fetched(manifest: Manifest) -> Manifest:
            with self.fetching(manifest, stage, reuse=reuse) as fetching:
                for file in manifest.files:
                    fetching.wait(file)
            return manifest

        manifest = self.of_newest(fetched)
        with storage_errors(destination):
            _keep_only(stage, {file.path for file in manifest.files})
            (stage / MANIFEST_NAME).write_bytes(format_manifest(manifest))
            publish_stage(stage, destination)
        return manifest

    @contextlib.contextmanager
    def fetching(self, manifest: Manifest, stage: Path, *, reuse: Path | str | None = None) -> Iterator["Fetching"]:
        """Fetch the files of an artifact into a stage, several at once, while those that came are used.

        Files that `reuse` or the stage has are not fetched again; nothing is synced. At the end what has not begun is
        given up.
        """
        with storage_errors(stage):
            OsDisk().make_folder(stage.parent)
            stage.mkdir(exist_ok=True)
            known = _known_files(None if reuse is None else Path(reuse))
            _keep_only(stage, {path for file in manifest.files for path in (file.path, _part_name(file))})
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

    def of_newest(self, read: Callable[[Manifest], T]) -> T:
        """Read something of the newest artifact; if that is removed under this reader, of the one after it."""
        pointer = self._needed_pointer()
        while True:
            try:
                return read(self._manifest(pointer))
            except ArtifactInvalid as error:
                again = self._needed_pointer()
                if error.refusal is not Refusal.MISSING_FILE or again == pointer:
                    raise
                pointer = again

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
                raise ArtifactInvalid(self.address, Refusal.TAMPERED, problem)
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
                raise self._missing(file)
            if not found.body:
                return
            yield found.body

    # Removing

    def prune(self, grace_s: float, *, dry_run: bool = False) -> Pruned:
        """Remove what nothing points to, `grace_s` after it was written by the store's clock; nothing if in doubt."""
        seen = self._seen()
        if seen is None or seen.pointer is None:
            return Pruned(0, 0, 0)
        rank, target = seen.pointer.rank, seen.pointer.manifest_key
        manifests, files = list(self._objects.list(MANIFESTS)), list(self._objects.list(FILES))
        now = max([seen.modified, *(info.modified for info in (*manifests, *files))])
        oldest = now - timedelta(seconds=grace_s)

        def prunable(key: str, modified: datetime, *, is_target: bool) -> bool:
            return rules.payload_prunable(parse_rank(key), rank, is_target=is_target, is_aged=modified < oldest)

        gone = [info for info in manifests if prunable(info.key, info.modified, is_target=info.key == target)]
        marked = self._marked({info.key for info in manifests} - {info.key for info in gone} | {target})
        if marked is None:
            return Pruned(0, 0, 0)
        swept = [info for info in files if prunable(info.key, info.modified, is_target=info.key in marked)]
        if not dry_run:
            each(lambda info: self._objects.delete(info.key), gone)
            each(lambda info: self._objects.delete(info.key), swept)
        return Pruned(len(gone), len(swept), sum(info.size for info in swept))

    def _marked(self, kept: Iterable[str]) -> AbstractSet[str] | None:
        """Return the files of the manifests that are kept; None, or an error, if one cannot be read."""
        wanted = frozenset(key for key in kept if parse_rank(key) is not None)
        files: dict[str, set[str]] = {}
        for key in wanted:
            if (found := self._objects.get(key)) is not None:
                manifest = parse_manifest(found.body, f"{self.address}/{key}")
                files[key] = {format_file_key(file) for file in manifest.files}
        return rules.marked_files(files.values()) if rules.marks_are_whole(wanted, files.keys()) else None

    # Names

    def _seen(self) -> _Seen | None:
        found = self._objects.get(POINTER_KEY)
        if found is None:
            return None
        pointer = parse_pointer(found.body, f"{self.address}/{POINTER_KEY}")
        return _Seen(pointer, found.info.etag, found.info.modified)

    def _state(self, seen: _Seen | None) -> rules.PointerState | None:
        """Return the pointer as the rules see it; the rank of one that cannot be read is that of the manifests."""
        if seen is None:
            return None
        if seen.pointer is not None:
            return state_of(seen.pointer)
        ranks = (parse_rank(info.key) for info in self._objects.list(MANIFESTS))
        return rules.PointerState(rules.rank_of_unreadable(ranks))

    def _needed_pointer(self) -> Pointer:
        seen = self._seen()
        if seen is None:
            raise NoArtifact(self.address, "there is no artifact")
        if seen.pointer is None:
            raise ArtifactInvalid(f"{self.address}/{POINTER_KEY}", Refusal.NOT_A_MANIFEST, "the pointer is none")
        return seen.pointer

    def _manifest(self, pointer: Pointer) -> Manifest:
        key = pointer.manifest_key
        found = self._objects.get(key)
        if found is None:
            problem = f"the manifest {key} that the pointer names is missing"
            raise ArtifactInvalid(self.address, Refusal.MISSING_FILE, problem)
        if blake3(found.body).hexdigest() != pointer.manifest_hash:
            raise ArtifactInvalid(self.address, Refusal.TAMPERED, f"{key} has not the hash that the pointer says")
        return parse_manifest(found.body, f"{self.address}/{key}")

    def _missing(self, file: ArtifactFile) -> ArtifactInvalid:
        return ArtifactInvalid(self.address, Refusal.MISSING_FILE, f"{format_file_key(file)} is missing")


class _Uploads:
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


def _shared_name(file: ArtifactFile, target: dict[str, ArtifactFile]) -> ArtifactFile:
    """Return a file under the name that the pointer's target has for the same bytes, if it has them."""
    same = {known.blake3: known.rank for known in target.values()}
    return replace(file, rank=same.get(file.blake3, file.rank))


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


def fetch_stage(destination: Path) -> Path:
    """Return where the files of an artifact are fetched before it is put at its destination."""
    return destination.with_name(f".{destination.name}{FETCH_MARK}")


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


def _keep_only(stage: Path, paths: set[str]) -> None:
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
