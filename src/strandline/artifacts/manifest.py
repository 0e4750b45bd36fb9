"""The manifest of an artifact: what it holds, of which moment of which bucket, and the hash of every file.

Invariants: `parse_manifest` undoes `format_manifest`, byte for byte; it takes no field that it does not know, and no
path that leads out of the artifact. Revision, identity, scope and mode are those of the cursor, repeated for people:
a manifest in which they differ is refused.
"""

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

from blake3 import blake3

from strandline.artifacts.errors import ArtifactInvalid, ArtifactUnfit, Refusal
from strandline.errors import FormatError
from strandline.fold.cursor import UNKNOWN, FoldCursor, parse_fold_cursor
from strandline.fold.scopes import Scope, StoredScope
from strandline.kv import WatchCursor
from strandline.protocol.fold_modes import FoldMode

SCHEMA = 1
MANIFEST_NAME = "MANIFEST.json"
DATA_FOLDER = "data"
MANIFEST_BYTES_MAX = 1024 * 1024
RANK_MAX = 2**64 - 1
TABLE_VERSION = 1
"""The version of the logical form (`strandline.artifacts.runs`)."""

_HASH = re.compile(r"[0-9a-f]{64}")
_PATH_BYTES_MAX = 512
_RUNS_MAX = 100
_TABLE_BYTES_MAX = 256 * 1024 * 1024
"""What a reader takes: each run and its tables need memory. Exporters make far fewer and smaller ones."""


class Form(Enum):
    """What the files are: a store's own, or tables that every store can be made of."""

    RAW = "raw"
    LOGICAL = "logical"


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A file of an artifact. `run` and `rows` are there in the logical form: run 0 is the base, others change it.

    `rank` is the revision of the artifact that it was first part of; its object's name has it.
    """

    path: str
    size: int
    blake3: str
    rank: int
    run: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artifact holds."""

    form: Form
    backend: str
    backend_version: int
    cursor: WatchCursor
    entries: int
    digest: str
    created_unix: int
    files: tuple[ArtifactFile, ...] = field(default=())

    @property
    def fold_cursor(self) -> FoldCursor:
        """Return the cursor that the data is exactly consistent with."""
        return parse_fold_cursor(self.cursor)

    @property
    def rank(self) -> int:
        """Return the revision, by which artifacts of one bucket are ordered."""
        return self.fold_cursor.revision

    @property
    def size(self) -> int:
        """Return how many bytes its files have together."""
        return sum(file.size for file in self.files)

    @property
    def runs(self) -> dict[int, list[ArtifactFile]]:
        """Return the files of each run of the logical form, in the order of their keys."""
        found: dict[int, list[ArtifactFile]] = {}
        for file in self.files:
            found.setdefault(file.run or 0, []).append(file)
        return dict(sorted(found.items()))


def format_manifest(manifest: Manifest) -> bytes:
    """Return a manifest's bytes."""
    return json.dumps(_shown(manifest), indent=1).encode() + b"\n"


def _shown(manifest: Manifest) -> dict[str, Any]:
    cursor = manifest.fold_cursor
    return {
        "schema": SCHEMA,
        "form": manifest.form.value,
        "backend": manifest.backend,
        "backend_version": manifest.backend_version,
        "revision": cursor.revision,
        "mode": cursor.mode.name.lower(),
        "scope": _shown_scope(cursor.scope),
        "identity": None if cursor.identity == UNKNOWN else cursor.identity.hex(),
        "cursor": manifest.cursor.hex(),
        "entries": manifest.entries,
        "digest": manifest.digest,
        "created_unix": manifest.created_unix,
        "files": [_shown_file(file) for file in manifest.files],
    }


def manifest_hash(data: bytes) -> str:
    """Return the hash that stands for a manifest in names."""
    return blake3(data).hexdigest()[:16]


def parse_manifest(data: bytes, path: str) -> Manifest:
    """Return the manifest of some bytes; `ArtifactInvalid` names the problem, `ArtifactUnfit` a later schema."""
    if len(data) > MANIFEST_BYTES_MAX:
        raise _invalid(path, f"{len(data):,} bytes are no manifest; it has at most {MANIFEST_BYTES_MAX:,}")
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise _invalid(path, f"the {len(data):,} bytes of the manifest are not JSON") from None
    if not isinstance(found, dict) or type(found.get("schema")) is not int:
        raise _invalid(path, "the manifest is no JSON object with a schema")
    if found["schema"] != SCHEMA:
        hint = "use the version that wrote it, or a later one"
        raise ArtifactUnfit(path, Refusal.SCHEMA, f"its schema is {found['schema']}; this is {SCHEMA}", hint=hint)
    _check_fields(path, "manifest", found, _FIELDS)
    try:
        form = Form(found["form"])
        cursor = WatchCursor(bytes.fromhex(found["cursor"]))
        fold_cursor = parse_fold_cursor(cursor)
    except (ValueError, FormatError) as wrong:
        raise _invalid(path, f"the manifest has a wrong form or cursor: {wrong}") from wrong
    if not _HASH.fullmatch(found["digest"]):
        raise _invalid(path, "the manifest's digest is no BLAKE3 hash")
    files = tuple(_parsed_file(path, file, form) for file in found["files"])
    _check_files(path, form, files)
    manifest = Manifest(
        form,
        found["backend"],
        found["backend_version"],
        cursor,
        found["entries"],
        found["digest"],
        found["created_unix"],
        files,
    )
    if _shown(manifest) != found:
        problem = f"revision, identity, scope or mode are not those of its cursor, at revision {fold_cursor.revision}"
        raise ArtifactInvalid(path, Refusal.CURSOR_MISMATCH, problem)
    return manifest


_FIELDS: dict[str, tuple[type, ...]] = {
    "schema": (int,),
    "form": (str,),
    "backend": (str,),
    "backend_version": (int,),
    "revision": (int,),
    "mode": (str,),
    "scope": (list, str, type(None)),
    "identity": (str, type(None)),
    "cursor": (str,),
    "entries": (int,),
    "digest": (str,),
    "created_unix": (int,),
    "files": (list,),
}
_FILE_FIELDS: dict[str, tuple[type, ...]] = {"path": (str,), "size": (int,), "blake3": (str,), "rank": (int,)}
_RUN_FIELDS = {**_FILE_FIELDS, "run": (int,), "rows": (int,)}


def _check_fields(path: str, what: str, found: dict[str, Any], fields: dict[str, tuple[type, ...]]) -> None:
    if missing := fields.keys() - found.keys():
        raise _invalid(path, f"the {what} has no {', '.join(sorted(missing))}")
    if unknown := found.keys() - fields.keys():
        raise _invalid(path, f"the {what} has unknown fields: {', '.join(sorted(map(str, unknown)))[:200]}")
    for name, kinds in fields.items():
        value = found[name]
        if type(value) not in kinds or (type(value) is int and not 0 <= value <= RANK_MAX):
            raise _invalid(path, f"the {what} has {name} {str(value)[:100]!r}")


def _parsed_file(path: str, found: object, form: Form) -> ArtifactFile:
    if not isinstance(found, dict):
        raise _invalid(path, "a file of the manifest is no JSON object")
    _check_fields(path, "file of the manifest", found, _RUN_FIELDS if form is Form.LOGICAL else _FILE_FIELDS)
    if not _HASH.fullmatch(found["blake3"]):
        raise _invalid(path, f"the hash of {found['path'][:100]!r} is no BLAKE3 hash")
    if not is_safe_path(found["path"]):
        raise ArtifactInvalid(path, Refusal.UNSAFE_PATH, f"the path {found['path'][:100]!r} is not below data/")
    return ArtifactFile(**found)


def _check_files(path: str, form: Form, files: tuple[ArtifactFile, ...]) -> None:
    if len({file.path for file in files}) != len(files):
        raise _invalid(path, "the manifest names a file twice")
    runs = {file.run or 0 for file in files}
    if runs != set(range(len(runs))) or len(runs) > _RUNS_MAX:
        raise _invalid(path, f"the manifest has the runs {sorted(runs)[:20]}: there is one missing, or too many")
    if form is Form.LOGICAL and max((file.size for file in files), default=0) > _TABLE_BYTES_MAX:
        raise _invalid(path, f"the manifest has a table of more than {_TABLE_BYTES_MAX:,} bytes")


def is_safe_path(path: str) -> bool:
    """Tell whether a path is a file below `data/`, on every system and in every store."""
    parts = path.split("/")
    return (
        len(parts) > 1
        and parts[0] == DATA_FOLDER
        and all(parts)
        and not set(parts) & {".", ".."}
        and len(path.encode(errors="replace")) <= _PATH_BYTES_MAX
        and path.isascii()
        and path.isprintable()
        and not set(path) & set('\\:*?"<>|')
        and str(PurePosixPath(path)) == path
    )


def _shown_file(file: ArtifactFile) -> dict[str, Any]:
    shown = {"path": file.path, "size": file.size, "blake3": file.blake3, "rank": file.rank}
    return shown if file.run is None else {**shown, "run": file.run, "rows": file.rows}


def _shown_scope(scope: StoredScope) -> list[str] | str | None:
    if isinstance(scope, Scope):
        return list(scope.prefixes)
    return None if scope == UNKNOWN else scope.hex()


def _invalid(path: str, problem: str) -> ArtifactInvalid:
    return ArtifactInvalid(path, Refusal.NOT_A_MANIFEST, problem)


def check_fit(
    manifest: Manifest,
    path: str,
    *,
    backend: str | None = None,
    versions: dict[str, int],
    scope: Scope | None = None,
    mode: FoldMode | None = None,
    identity: bytes | None = None,
) -> None:
    """Raise `ArtifactUnfit` unless a fold of this backend, scope, mode and bucket can be made of the artifact."""
    cursor = manifest.fold_cursor
    if manifest.form is Form.LOGICAL:
        if manifest.backend_version != TABLE_VERSION:
            raise _unfit_version(manifest, path, TABLE_VERSION)
    else:
        if manifest.backend not in versions or backend not in (None, manifest.backend):
            hint = "give the artifact's backend, or export it in the logical form, which every backend takes"
            wanted = backend or f"one of {', '.join(sorted(versions))}"
            problem = f"it is of backend {manifest.backend!r}, not {wanted}"
            raise ArtifactUnfit(path, Refusal.BACKEND, problem, hint=hint)
        if manifest.backend_version != versions[manifest.backend]:
            raise _unfit_version(manifest, path, versions[manifest.backend])
    if scope is not None and not scope.is_covered_by(cursor.scope):
        hint = "export with a scope that covers this"
        raise ArtifactUnfit(path, Refusal.SCOPE, f"it does not hold {scope}", hint=hint)
    if mode is FoldMode.ARCHIVE and cursor.mode is not FoldMode.ARCHIVE:
        hint = "an archive begins with its bucket, or with an artifact of another archive"
        problem = f"it is of mode {cursor.mode.name.lower()}, which lacks what the bucket evicted"
        raise ArtifactUnfit(path, Refusal.MODE, problem, hint=hint)
    if identity and cursor.identity not in (UNKNOWN, identity):
        hint = "look at where artifacts come from: the bucket may have been made anew under its name"
        raise ArtifactUnfit(path, Refusal.IDENTITY, "it is of another bucket", hint=hint)


def _unfit_version(manifest: Manifest, path: str, wanted: int) -> ArtifactUnfit:
    hint = "upgrade importers before exporters, or export it again with this version"
    problem = f"its format has version {manifest.backend_version}; this is version {wanted}"
    return ArtifactUnfit(path, Refusal.BACKEND_VERSION, problem, hint=hint)
