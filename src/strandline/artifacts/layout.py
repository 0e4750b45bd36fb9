"""The names of published artifacts in object storage, and the pointer to the newest.

    pointer.json                                   names the newest manifest; moved last, by a conditional write
    manifests/<rank, 16 hex>-<hash, 16 hex>.json   manifests, by their own hash
    files/<rank, 16 hex>-<hash, 32 hex>            files, by the rank they were first published with and their hash

Invariants: `parse_name` undoes `format_name`; names sort by rank. The rank in a name is what removal goes by. Pointers
of two exporters differ in their bytes unless they name the same manifest.
"""

import json
import re
from typing import Any, NamedTuple

from strandline.artifacts.errors import ArtifactUnfit, Refusal
from strandline.artifacts.manifest import RANK_MAX, ArtifactFile
from strandline.protocol.artifacts import PointerState

POINTER_KEY = "pointer.json"
MANIFESTS = "manifests/"
FILES = "files/"
POINTER_FORMAT = 1
POINTER_BYTES_MAX = 4096
MANIFEST_HASH_DIGITS, FILE_HASH_DIGITS = 16, 32
_NAME = re.compile(r"(?:manifests/|files/)([0-9a-f]{16})-(?:[0-9a-f]{16}\.json|[0-9a-f]{32})")
_HASH = re.compile(r"[0-9a-f]{64}")


class Pointer(NamedTuple):
    """What a pointer says: the rank, and the hash of the manifest."""

    rank: int
    manifest_hash: str

    @property
    def manifest_key(self) -> str:
        """Return where the manifest is."""
        return format_manifest_key(self.rank, self.manifest_hash)


def format_manifest_key(rank: int, manifest_hash: str) -> str:
    """Return the name of a manifest."""
    return f"{MANIFESTS}{rank:016x}-{manifest_hash[:MANIFEST_HASH_DIGITS]}.json"


def format_file_key(file: ArtifactFile) -> str:
    """Return the name of a file's object."""
    return f"{FILES}{file.rank:016x}-{file.blake3[:FILE_HASH_DIGITS]}"


def parse_rank(key: str) -> int | None:
    """Return the rank in the name of a manifest or a file, None for other names."""
    found = _NAME.fullmatch(key)
    return int(found[1], 16) if found else None


def format_pointer(pointer: Pointer) -> bytes:
    """Return a pointer's bytes."""
    return json.dumps({"format": POINTER_FORMAT, "rank": pointer.rank, "manifest": pointer.manifest_hash}).encode()


def parse_pointer(data: bytes, path: str) -> Pointer | None:
    """Return what a pointer says, None for bytes that are no pointer; `ArtifactUnfit` for one of a later format.

    A later format is not damage: a later version wrote it, and it must not be replaced.
    """
    try:
        found: Any = json.loads(data[:POINTER_BYTES_MAX])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or type(found.get("format")) is not int:
        return None
    if found["format"] > POINTER_FORMAT:
        problem = f"the pointer has format {found['format']}; this is {POINTER_FORMAT}"
        raise ArtifactUnfit(path, Refusal.SCHEMA, problem, hint="use the version that wrote it, or a later one")
    if found.keys() != {"format", "rank", "manifest"} or found["format"] != POINTER_FORMAT:
        return None
    rank, manifest_hash = found["rank"], found["manifest"]
    if type(rank) is not int or not 0 <= rank <= RANK_MAX or not _HASH.fullmatch(str(manifest_hash)):
        return None
    return Pointer(rank, manifest_hash)


def state_of(pointer: Pointer) -> PointerState:
    """Return a pointer that is there, and can be read, as the rules see it."""
    return PointerState(pointer.rank)
