"""Artifacts in object storage: payload first, the pointer last and only forward; fetched in parts, removed by rule.

Invariants: the pointer is moved by a conditional write upon the very pointer that was read, under
`pointer_publish_allowed`, after every file and the manifest are there. Files that an artifact shares are those of the
pointer's target. Removal goes by `payload_prunable` and by the manifests that are kept. Files travel by `transfers`.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import pyarrow as pa
from blake3 import blake3

from strandline.artifacts.errors import ArtifactInvalid, ArtifactUnfit, NoArtifact, PointerContended, Refusal
from strandline.artifacts.exporter import check_destination
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
from strandline.artifacts.staging import publish_stage
from strandline.artifacts.transfers import Downloads, Fetching, Uploads, each, fetch_stage, keep_only, missing_file
from strandline.files import storage_errors
from strandline.fold.cursor import UNKNOWN
from strandline.objects import ObjectConflict, ObjectStore, RequestCounts, WriteUnknown, open_objects
from strandline.objects.object_files import ObjectFile
from strandline.protocol import artifacts as rules

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
            raise missing_file(self._objects, file)
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
        uploads = Uploads(self._objects, folder)
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
            keep_only(stage, {file.path for file in manifest.files})
            (stage / MANIFEST_NAME).write_bytes(format_manifest(manifest))
            publish_stage(stage, destination)
        return manifest

    def fetching(
        self, manifest: Manifest, stage: Path, *, reuse: Path | str | None = None
    ) -> AbstractContextManager[Fetching]:
        """Fetch the files of an artifact into a stage, several at once, while those that came are used."""
        return Downloads(self._objects).into(stage, manifest, reuse=reuse)

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
            problem, safe = "the pointer cannot be read", "publish again, which replaces it; nothing was changed"
            raise ArtifactInvalid(f"{self.address}/{POINTER_KEY}", Refusal.NOT_A_MANIFEST, problem, safe=safe)
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


def _shared_name(file: ArtifactFile, target: dict[str, ArtifactFile]) -> ArtifactFile:
    """Return a file under the name that the pointer's target has for the same bytes, if it has them."""
    same = {known.blake3: known.rank for known in target.values()}
    return replace(file, rank=same.get(file.blake3, file.rank))
