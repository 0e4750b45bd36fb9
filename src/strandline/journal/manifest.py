"""The manifest: which segments are sealed, and from where recovery must look; replaced atomically, distrusted freely.

One line of check, then JSON that a person can read:

    strandline-manifest 1 crc32c=0a1b2c3d
    {"identity": "…32 hex…", "first_offset": 0, "durable_offset": 9,
     "sealed": [[base, end, bytes, last_append_ns], …], "active": [base, bytes, last_append_ns]}

Invariants: everything the manifest names was on stable storage before the manifest was, so it is a checkpoint: recovery
reads on from `bytes` of the active segment, where `durable_offset` begins. A clean shutdown writes one at the very end,
which makes opening O(1); a roll writes one at the new segment's beginning. Recovery works without it, by reading all.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.checksums import crc32c
from strandline.errors import FormatError
from strandline.files import Disk, read_file, replace_file
from strandline.journal.segment import IDENTITY_BYTES, SEGMENT_HEADER_BYTES

MANIFEST_NAME = "manifest"
MANIFEST_VERSION = 1
_FIRST_WORD = "strandline-manifest"


@dataclass(frozen=True, slots=True)
class Sealed:
    """A segment that will not be written again."""

    base_offset: int
    end_offset: int
    bytes: int
    last_append_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was durable when it was written."""

    identity: bytes
    first_offset: int
    durable_offset: int
    sealed: tuple[Sealed, ...]
    active_base: int
    active_bytes: int
    active_last_append_ns: int


def format_manifest(manifest: Manifest) -> bytes:
    """Return the content of a manifest file."""
    body = json.dumps(
        {
            "identity": manifest.identity.hex(),
            "first_offset": manifest.first_offset,
            "durable_offset": manifest.durable_offset,
            "sealed": [[s.base_offset, s.end_offset, s.bytes, s.last_append_ns] for s in manifest.sealed],
            "active": [manifest.active_base, manifest.active_bytes, manifest.active_last_append_ns],
        }
    ).encode()
    return f"{_FIRST_WORD} {MANIFEST_VERSION} crc32c={crc32c(body):08x}\n".encode() + body + b"\n"


def parse_manifest(data: bytes, path: str) -> Manifest | None:
    """Return what a manifest says, or None where it is damaged; `FormatError` for a later version's."""
    first, _, body = data.partition(b"\n")
    words = first.decode("ascii", "replace").split(" ")
    body = body.removesuffix(b"\n")
    version = words[1] if len(words) > 1 else ""
    if words != [_FIRST_WORD, version, f"crc32c={crc32c(body):08x}"]:
        return None
    if version != str(MANIFEST_VERSION):
        raise FormatError(path, f"manifest version {version} is not known here", hint="use a later Strandline")
    try:
        manifest = _from_json(json.loads(body))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return manifest if _is_possible(manifest) else None


def _from_json(fields: dict[str, Any]) -> Manifest:
    active_base, active_bytes, active_last_append_ns = map(int, fields["active"])
    return Manifest(
        bytes.fromhex(fields["identity"]),
        int(fields["first_offset"]),
        int(fields["durable_offset"]),
        tuple(Sealed(*map(int, row)) for row in fields["sealed"]),
        active_base,
        active_bytes,
        active_last_append_ns,
    )


def _is_possible(manifest: Manifest) -> bool:
    """Whether it does not contradict itself; one that did would have recovery look in the wrong place."""
    ends = [manifest.first_offset, *(sealed.end_offset for sealed in manifest.sealed)]
    bases = [*(sealed.base_offset for sealed in manifest.sealed), manifest.active_base]
    is_begun = manifest.durable_offset > manifest.active_base
    return (
        len(manifest.identity) == IDENTITY_BYTES
        and ends == bases
        and ends == sorted(ends)
        and min(ends) >= 0
        and manifest.durable_offset >= manifest.active_base
        and manifest.active_bytes >= SEGMENT_HEADER_BYTES
        and is_begun == (manifest.active_bytes > SEGMENT_HEADER_BYTES)
    )


def load_manifest(disk: Disk, folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None where it is missing or damaged."""
    path = folder / MANIFEST_NAME
    data = read_file(disk, path)
    return None if data is None else parse_manifest(data, str(path))


def store_manifest(disk: Disk, folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a folder, atomically and durably."""
    replace_file(disk, folder / MANIFEST_NAME, format_manifest(manifest))
