"""Compressed streams: gzip, bzip2, xz, zstd and the methods of zip, unpacked piece by piece within a bound.

Invariants: a stream never yields more bytes than the caller allows, whatever its header claims; broken bytes end a
stream and raise nothing; work and memory are linear in the bytes read and in the bytes unpacked.
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from strandline.lazy_imports import deferred

if TYPE_CHECKING:
    import zstandard
else:
    zstandard = deferred("zstandard", "scan")


_PIECE_OUT = 1 << 20
_LZMA_MEMORY = 256 << 20
_ZSTD_WINDOW = 1 << 27
FREE_BYTES = 1 << 20
"""Bytes that a stream may yield regardless of its compression ratio."""


class Unpacked(NamedTuple):
    """The unpacked bytes of a stream, and whether they are all of it."""

    data: bytes
    is_whole: bool


class _Stream(Protocol):
    """One compressed stream, fed piece by piece."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Deflate:
    """Deflate behind the interface of the other streams; it buffers input that it has not consumed."""

    def __init__(self, bits: int) -> None:
        self._inner = zlib.decompressobj(bits)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Zstd:
    """Zstandard; its decompressor has no output bound, so it is fed small pieces of input."""

    needs_input = True

    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, _max_length: int) -> bytes:
        try:
            return self._inner.decompress(data) if data else b""
        except zstandard.ZstdError as error:
            raise ValueError("broken zstd stream") from error


class _Kind(NamedTuple):
    open: Callable[[], _Stream]
    magic: bytes
    piece_bytes: int = 64 << 10


_KINDS = {
    "deflate": _Kind(lambda: _Deflate(-15), b""),
    "gzip": _Kind(lambda: _Deflate(31), b"\x1f\x8b"),
    "bzip2": _Kind(bz2.BZ2Decompressor, b"BZh"),
    "xz": _Kind(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _LZMA_MEMORY), b"\xfd7zXZ\0"),
    "zstd": _Kind(_Zstd, b"\x28\xb5\x2f\xfd", 512),
}
_BROKEN = (zlib.error, OSError, ValueError, EOFError, lzma.LZMAError, MemoryError)


def unpacked(kind: str, data: memoryview, bytes_max: int, ratio_max: int, streams_max: int) -> Unpacked:
    """Return a stream's content, or its beginning if it is broken or over a bound; concatenated streams are one."""
    bound = min(bytes_max, max(FREE_BYTES, ratio_max * len(data)))
    out = io.BytesIO()
    try:
        for piece in _pieces(_KINDS[kind], data, streams_max):
            room = bound - out.tell()
            out.write(piece[:room])
            if len(piece) > room:
                return Unpacked(out.getvalue(), is_whole=False)
    except _BROKEN:
        return Unpacked(out.getvalue(), is_whole=False)
    return Unpacked(out.getvalue(), is_whole=True)


def _pieces(kind: _Kind, data: memoryview, streams_max: int) -> Iterator[bytes]:
    """Yield the output of one stream after the other; an error means that output is missing."""
    at = 0
    for _ in range(streams_max):
        stream = kind.open()
        while not stream.eof:
            piece = bytes(data[at : at + kind.piece_bytes]) if stream.needs_input else b""
            out = stream.decompress(piece, _PIECE_OUT)
            at += len(piece)
            if not out and not piece and not stream.eof:
                raise EOFError
            yield out
        at -= len(stream.unused_data)
        rest = bytes(data[at : at + len(kind.magic)])
        if not rest.strip(b"\0"):
            return
        if rest != kind.magic:
            break
    raise EOFError
