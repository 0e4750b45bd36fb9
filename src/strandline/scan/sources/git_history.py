r"""Parsers of git's output: the commits and paths of each blob.

    diff-tree -z    commit \0  (`:` per parent, modes, ids, status) \0 path \0 …
    seen            u32 how often; per place: u8 length of the commit's id, the id, u32 length of the path, the path

Invariants: pure; every line that brings a blob is one change, whatever the number of parents; submodules and removals
are none. `format_seen` and `parse_seen` are each other's inverse.
"""

import struct
from array import array
from binascii import unhexlify
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from blake3 import blake3

PLACES_MAX = 8
"""The number of places of a blob that are stored, beside the count of all."""

_SUBMODULE = b"160000"
_SLICE_ROWS = 10_000
_U32 = struct.Struct("<I")


class Change(NamedTuple):
    """A commit (its id as bytes; empty where there is none) that has a blob under a path."""

    commit: bytes
    path: bytes
    blob: bytes


class Place(NamedTuple):
    """Where a blob was seen: the commit's id in hexadecimal (empty: staged, or named by a tag), and the path."""

    commit: str
    path: bytes


class Seen(NamedTuple):
    """The number of commits that add a blob, and its first places; or the first place of each of its paths."""

    total: int
    places: tuple[Place, ...]

    @property
    def paths_digest(self) -> bytes:
        """Return the digest of the paths, independent of their order."""
        paths = sorted({place.path for place in self.places})
        return blake3(b"".join(_U32.pack(len(path)) + path for path in paths)).digest(16)


def format_seen(seen: Seen) -> bytes:
    """Return the places of a blob as bytes."""
    parts = [_U32.pack(seen.total)]
    for place in seen.places:
        commit = bytes.fromhex(place.commit)
        parts += [bytes([len(commit)]), commit, _U32.pack(len(place.path)), place.path]
    return b"".join(parts)


def parse_seen(data: bytes) -> Seen:
    """Return the places of a blob from the bytes of `format_seen`."""
    (total,) = _U32.unpack_from(data)
    places = []
    at = _U32.size
    while at < len(data):
        commit_end = at + 1 + data[at]
        (length,) = _U32.unpack_from(data, commit_end)
        path_begin = commit_end + _U32.size
        places.append(Place(data[at + 1 : commit_end].hex(), data[path_begin : path_begin + length]))
        at = path_begin + length
    return Seen(total, tuple(places))


def tokens(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the fields between NULs, from bytes in pieces."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\0")
        yield from whole


def changes(words: Iterator[bytes]) -> Iterator[Change]:
    """Yield the blobs that commits add, from the fields of `diff-tree --raw -z` or `diff-index --raw -z`."""
    commit = b""
    for word in words:
        if not word.startswith(b":"):
            commit = unhexlify(word)
            continue
        path = next(words)
        fields = word.split(b" ")
        parents = 1 if word[1:2] != b":" else len(word) - len(word.lstrip(b":"))
        blob = unhexlify(fields[-2])
        if any(blob) and fields[parents] != _SUBMODULE:
            yield Change(commit, path, blob)


class Blobs:
    """Gathers changes compactly: some thirty bytes for each, so that millions fit."""

    def __init__(self) -> None:
        self._blobs = bytearray()
        self._commits: list[bytes] = []
        self._commit_of = array("I")
        self._path_of = array("I")
        self._paths: dict[bytes, int] = {}
        self._id_bytes = 0

    def add(self, change: Change) -> None:
        """Add a change; changes of one commit are consecutive."""
        if not self._commits or self._commits[-1] != change.commit:
            self._commits.append(change.commit)
        self._blobs += change.blob
        self._id_bytes = len(change.blob)
        self._commit_of.append(len(self._commits) - 1)
        self._path_of.append(self._paths.setdefault(change.path, len(self._paths)))

    def grouped(self) -> pa.Table:
        """Return every blob once, in the order of first changes: its id, and the changes that added it."""
        kind = pa.binary(self._id_bytes or 1)
        blobs = pa.Array.from_buffers(kind, len(self._commit_of), [None, pa.py_buffer(self._blobs)])
        table = pa.table({"blob": blobs, "at": pa.array(self._numbers(), pa.uint32())})
        return table.group_by("blob", use_threads=False).aggregate([("at", "list")])

    def seen(self, grouped: pa.Table, *, each_path: bool = False) -> Iterator[tuple[bytes, Seen]]:
        """Yield the blobs of `grouped` with their first places, or with the first place of `each_path`."""
        paths = list(self._paths)
        for batch in grouped.to_batches(_SLICE_ROWS):
            for blob, at in zip(*(batch.column(name).to_pylist() for name in ("blob", "at_list")), strict=True):
                chosen = self._first_of_each_path(at) if each_path else at[:PLACES_MAX]
                yield blob, self._seen(len(at), chosen, paths)

    def _first_of_each_path(self, at: Sequence[int]) -> list[int]:
        return list({self._path_of[one]: one for one in reversed(at)}.values())[::-1]

    def _seen(self, total: int, first: Sequence[int], paths: list[bytes]) -> Seen:
        places = [Place(self._commits[self._commit_of[one]].hex(), paths[self._path_of[one]]) for one in first]
        return Seen(total, tuple(places))

    def _numbers(self) -> npt.NDArray[np.uint32]:
        return np.arange(len(self._commit_of), dtype=np.uint32)
