"""Layers of container images: tar streams, plain or compressed, and what a later layer hides of an earlier one.

    .wh.NAME          NAME of earlier layers is deleted
    .wh..wh..opq      everything that earlier layers have in this folder is deleted

Invariants: a layer is read as a stream, in bounded memory, and never unpacked to disk; its content is checked against
its diff id (the SHA-256 of the unpacked stream) when it is indexed; broken bytes are `BrokenLayer` and no other error.
"""

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from blake3 import blake3

from strandline.cache import cache_folder
from strandline.lazy_imports import deferred

if TYPE_CHECKING:
    import zstandard
else:
    zstandard = deferred("zstandard", "scan")

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
VISIBLE, DELETED, REPLACED = "", "deleted", "replaced"
UNPACKED_BYTES_MAX = 64 << 30
ENTRIES_MAX = 5_000_000
HEADER_BYTES_MAX = 1 << 20
NAMES_CHARACTERS_MAX = 256 << 20
_PIECE_BYTES = 1 << 20
_ZSTD_WINDOW = 1 << 27
_LONG_TYPES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class BrokenLayer(Exception):
    """A layer is no tar, is cut off, is larger than the bounds, or is not what its digest says."""


class LayerFile(NamedTuple):
    """An entry of a layer: its number in the tar; a file has a digest, any other entry none."""

    number: int
    path: str
    size: int
    digest: str


class _BoundedInfo(tarfile.TarInfo):
    """An entry whose long names and extended headers are bounded: a stream could claim gigabytes of them.

    A header that is no header ends the tar for `tarfile`, as if nothing came behind it; here it is an error.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError("a header is broken") from error

    def _proc_member(self, tar: tarfile.TarFile) -> Any:  # noqa: ANN401 - as the class behind it has it
        if self.type in _LONG_TYPES and self.size > HEADER_BYTES_MAX:
            raise tarfile.ReadError("a header is too long")
        return super()._proc_member(tar)  # type: ignore[misc]


class _Hashed(io.RawIOBase):
    """A stream that is hashed as it is read, up to a bound."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._sha256 = hashlib.sha256()
        self._count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(_PIECE_BYTES if size < 0 else size)
        self._sha256.update(data)
        self._count += len(data)
        if self._count > UNPACKED_BYTES_MAX:
            raise BrokenLayer("it is too large")
        return data

    def finish(self) -> str:
        """Read to the end and return the digest."""
        while self.read(_PIECE_BYTES):
            pass
        return self._sha256.hexdigest()


def unpacked(blob: IO[bytes]) -> IO[bytes]:
    """Return a blob unpacked, by its first bytes: gzip, zstd, or as it is."""
    whole = io.BufferedReader(_Raw(blob), _PIECE_BYTES)
    head = whole.peek(4)[:4]
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=whole)  # type: ignore[return-value]
    if head == b"\x28\xb5\x2f\xfd":
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        return decompressor.stream_reader(whole, read_across_frames=True)
    return whole


class _Raw(io.RawIOBase):
    """Any object with `read` as a raw stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def layer_errors() -> Iterator[None]:
    """Map the errors of broken bytes."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, ArithmeticError) as error:
        raise BrokenLayer(type(error).__name__) from error
    except RecursionError as error:  # `tarfile` reads each header before an entry one call deeper
        raise BrokenLayer(type(error).__name__) from error
    except Exception as error:
        if type(error).__module__.startswith("zstd") or type(error).__name__ == "ZstdError":
            raise BrokenLayer(type(error).__name__) from error
        raise


def entries(stream: IO[bytes]) -> Iterator[tuple[int, str, tarfile.TarInfo, tarfile.TarFile]]:
    """Yield the entries of an unpacked layer with their numbers and plain paths."""
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_PIECE_BYTES, tarinfo=_BoundedInfo, errorlevel=0) as tar:
        characters = 0
        for number, entry in enumerate(tar):
            characters += len(entry.name)
            if number >= ENTRIES_MAX or characters > NAMES_CHARACTERS_MAX:
                raise BrokenLayer("it has too many entries")
            if "\0" in entry.name:
                raise BrokenLayer("a name is broken")
            yield number, plain_path(entry.name), entry, tar
            tar.members = []  # type: ignore[attr-defined] # it would keep all of them


def plain_path(name: str) -> str:
    """Return a path without empty names and dots; names such as `..` stay, since nothing is written."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def index_layer(blob: IO[bytes], diff_id: str) -> list[LayerFile]:
    """Return the entries of a layer, read to its end and checked."""
    with layer_errors():
        stream = _Hashed(unpacked(blob))
        found, size = [], 0
        for number, path, entry, tar in entries(stream):  # type: ignore[arg-type]
            digest = ""
            size += entry.size  # a sparse file may claim more than the stream has
            if size > UNPACKED_BYTES_MAX:
                raise BrokenLayer("it is too large")
            if entry.isreg():
                content = tar.extractfile(entry)
                hasher = blake3()
                while content is not None and (piece := content.read(_PIECE_BYTES)):
                    hasher.update(piece)
                digest = hasher.hexdigest()
            elif entry.isdir():
                digest = "dir"
            found.append(LayerFile(number, path, entry.size, digest))
        if stream.finish() != diff_id:
            raise BrokenLayer("it is not what its digest says")
        return found


def cached_index(diff_id: str) -> list[LayerFile] | None:
    """Return the index of a layer that was checked before, or None."""
    try:
        rows = json.loads(_cache_file(diff_id).read_bytes())
        return [LayerFile(number, path, size, digest) for number, path, size, digest in rows]
    except (OSError, ValueError, TypeError):
        return None


def keep_index(diff_id: str, index: Sequence[LayerFile]) -> None:
    """Keep an index; a cache that cannot be written costs time and nothing else."""
    path = _cache_file(diff_id)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(file, "w") as out:
            json.dump(index, out)
        os.replace(temporary, path)  # noqa: PTH105 - atomic


def _cache_file(diff_id: str) -> Path:
    return cache_folder() / "image-layers" / f"{diff_id}.json"


def hidden(layers: Sequence[Sequence[LayerFile]]) -> list[dict[int, str]]:
    """Return for each layer, first to last, which of its entries later layers delete or replace."""
    above = _Above()
    found: list[dict[int, str]] = []
    for layer in reversed(layers):
        states = {one.number: above.state(one.path) for one in layer if len(one.digest) == blake3().digest_size * 2}
        found.append({number: state for number, state in states.items() if state != VISIBLE})
        above.add(layer)
    return found[::-1]


class _Above:
    """Everything that the layers above one have and delete."""

    def __init__(self) -> None:
        self._deleted: set[str] = set()
        self._opaque: set[str] = set()
        self._files: set[str] = set()

    def add(self, layer: Sequence[LayerFile]) -> None:
        for one in layer:
            folder, _, name = one.path.rpartition("/")
            if name == OPAQUE:
                self._opaque.add(folder)
            elif name.startswith(WHITEOUT):
                self._deleted.add(plain_path(f"{folder}/{name.removeprefix(WHITEOUT)}"))
            elif one.digest != "dir":
                self._files.add(one.path)

    def state(self, path: str) -> str:
        if path in self._files:
            return REPLACED
        parents = [path[:at] for at, character in enumerate(path) if character == "/"]
        if path in self._deleted or not self._deleted.isdisjoint(parents) or not self._files.isdisjoint(parents):
            return DELETED
        return DELETED if not self._opaque.isdisjoint([*parents, ""]) else VISIBLE
