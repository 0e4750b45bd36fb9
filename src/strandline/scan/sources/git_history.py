r"""Parsers of git's output: the paths of a history, the blobs that each one had, and the commits that brought them.

    diff-tree -z    commit \0  (`:` per parent, modes, ids, status) \0 path \0 …
    seen            u32 2^32-1, u8 format (1), u8 flags, u8 length of ids, blob, u32 how often, first and last commit,
                    u32 length of a path, the path, u32 ranges, per range: u32 first byte, u32 byte after the last

Flags: 1 the version is in HEAD, 2 a commit is known, 4 only ranges of bytes count. An older format begins with the u32
how often, which is never 2^32-1; per place: u8 length of the commit's id, the id, u32 length of the path, the path.

Invariants: pure; every line that brings a blob is one change, whatever the number of parents; submodules and removals
are none. `format_seen` and `parse_seen` are each other's inverse.
"""

import struct
from array import array
from binascii import unhexlify
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

_SUBMODULE = b"160000"
_SLICE_ROWS = 10_000
_U32 = struct.Struct("<I")
_HEAD = struct.Struct("<IBBB")
_RANGE = struct.Struct("<II")
_NEW_FORMAT, _FORMAT = 2**32 - 1, 1
_AT_HEAD, _HAS_COMMIT, _HAS_RANGES = 1, 2, 4

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges of bytes, each from its first byte to the one after its last."""


class Change(NamedTuple):
    """A commit (its id as bytes; empty where there is none) that brings a blob to a path."""

    commit: bytes
    path: bytes
    blob: bytes


class Seen(NamedTuple):
    """A version of a path in a history: the blob, and the commits that brought it there, as far as they are listed.

    `first` and `last` are ids in hexadecimal, empty if the version is staged, or if only a tag names it. `leader` is
    the first path of the same blob in the listing, empty if it is this one. With `added` only some ranges count.
    """

    blob: str
    total: int = 1
    first: str = ""
    last: str = ""
    at_head: bool = False
    leader: bytes = b""
    added: Ranges | None = None


def format_seen(seen: Seen) -> bytes:
    """Return a version of a path as bytes."""
    blob = bytes.fromhex(seen.blob)
    flags = _AT_HEAD * seen.at_head | _HAS_COMMIT * bool(seen.first) | _HAS_RANGES * (seen.added is not None)
    ranges = seen.added or ()
    return b"".join(
        (
            *(_HEAD.pack(_NEW_FORMAT, _FORMAT, flags, len(blob)), blob, _U32.pack(seen.total)),
            *(bytes.fromhex(seen.first), bytes.fromhex(seen.last)),
            *(_U32.pack(len(seen.leader)), seen.leader),
            _U32.pack(len(ranges)),
            *(_RANGE.pack(*one) for one in ranges),
        )
    )


def parse_seen(data: bytes) -> Seen:
    """Return a version of a path from the bytes of `format_seen`, or of the older format."""
    if _U32.unpack_from(data)[0] != _NEW_FORMAT:
        return _parse_places(data)
    _, _, flags, size = _HEAD.unpack_from(data)
    at = _HEAD.size + size
    blob = data[_HEAD.size : at].hex()
    (total,) = _U32.unpack_from(data, at)
    at += _U32.size
    first = last = ""
    if flags & _HAS_COMMIT:
        first, last = data[at : at + size].hex(), data[at + size : at + 2 * size].hex()
        at += 2 * size
    (length,) = _U32.unpack_from(data, at)
    at += _U32.size + length
    leader = data[at - length : at]
    ranges = tuple(_RANGE.iter_unpack(data[at + _U32.size :]))
    added = ranges if flags & _HAS_RANGES else None
    return Seen(blob, total, first, last, bool(flags & _AT_HEAD), leader, added)


def _parse_places(data: bytes) -> Seen:
    """Return the places of a blob, as older versions stored them: the blob itself was the item."""
    (total,) = _U32.unpack_from(data)
    commits = []
    at = _U32.size
    while at < len(data):
        commit_end = at + 1 + data[at]
        (length,) = _U32.unpack_from(data, commit_end)
        commits.append(data[at + 1 : commit_end].hex())
        at = commit_end + _U32.size + length
    known = [commit for commit in commits if commit] or [""]
    return Seen("", total, known[0], known[-1])


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


class History:
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
        """Return every version of every path once: `blob`, `path`, and the `first`, `last` and number of its changes.

        Versions of one blob are together, blobs are in the order of their first changes.
        """
        count = len(self._commit_of)
        blobs = pa.Array.from_buffers(pa.binary(self._id_bytes or 1), count, [None, pa.py_buffer(self._blobs)])
        at = pa.array(np.arange(count, dtype=np.uint32))
        table = pa.table({"blob": blobs, "path": pa.array(np.asarray(self._path_of, np.uint32)), "at": at})
        versions = table.group_by(["blob", "path"], use_threads=False).aggregate(
            [("at", "min"), ("at", "max"), ("at", "count")]
        )
        begins = table.group_by("blob", use_threads=False).aggregate([("at", "min")]).rename_columns(["blob", "begin"])
        joined = versions.join(begins, "blob", use_threads=False)
        return joined.sort_by([("begin", "ascending"), ("at_min", "ascending")])

    def seen(self, grouped: pa.Table, head: Container[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, Seen]]:
        """Yield the versions of `grouped`, each with its path; `head` has the paths of HEAD with their blobs."""
        paths = list(self._paths)
        before, leader = b"", b""
        columns = ("blob", "path", "at_min", "at_max", "at_count")
        for batch in grouped.to_batches(_SLICE_ROWS):
            for blob, number, first, last, total in zip(*(batch[name].to_pylist() for name in columns), strict=True):
                path = paths[number]
                if blob != before:
                    before, leader = blob, path
                yield (
                    path,
                    Seen(
                        *(blob.hex(), total, self._commit(first), self._commit(last)),
                        at_head=(path, blob) in head,
                        leader=b"" if leader == path else leader,
                    ),
                )

    def _commit(self, change: int) -> str:
        return self._commits[self._commit_of[change]].hex()
