"""Ways to hide a text, each with the span that a span of it takes in what comes out."""

import base64
import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import zstandard

Span = tuple[int, int]


class Packed(NamedTuple):
    """Bytes, and where the planted ones stand in them."""

    data: bytes
    span: Span


def _quoted(text: bytes, spans: Callable[[int, int], Span], at: Span) -> Packed:
    before = b'value: "'
    start, end = spans(*at)
    return Packed(before + text + b'" # end\n', (start + len(before), end + len(before)))


def in_base64(inner: Packed) -> Packed:
    return _quoted(base64.b64encode(inner.data), _digits, inner.span)


def in_url_base64(inner: Packed) -> Packed:
    return _quoted(base64.urlsafe_b64encode(inner.data).rstrip(b"="), _digits, inner.span)


def _digits(start: int, end: int) -> Span:
    return start * 4 // 3, -(-end * 4 // 3)


def in_wrapped_base64(inner: Packed) -> Packed:
    text = base64.encodebytes(inner.data).rstrip(b"\n")
    start, end = _digits(*inner.span)
    before = b"value:\n"
    return Packed(
        before + text + b"\n\nend\n", (len(before) + start + start // 76, len(before) + end + (end - 1) // 76)
    )


def in_hex(inner: Packed) -> Packed:
    return _quoted(inner.data.hex().encode(), lambda start, end: (2 * start, 2 * end), inner.span)


def in_upper_hex(inner: Packed) -> Packed:
    packed = in_hex(inner)
    return Packed(packed.data[:8] + packed.data[8:-8].upper() + packed.data[-8:], packed.span)


def in_percent(inner: Packed) -> Packed:
    text = b"".join(b"%%%02X" % byte for byte in inner.data)
    return _quoted(text, lambda start, end: (3 * start, 3 * end), inner.span)


def in_utf16(inner: Packed) -> Packed:
    start, end = inner.span
    return Packed(b"\xff\xfe" + inner.data.decode("ascii").encode("utf-16-le"), (2 + 2 * start, 2 + 2 * end))


def in_bare_utf16(inner: Packed) -> Packed:
    start, end = inner.span
    return Packed(inner.data.decode("ascii").encode("utf-16-be"), (2 * start, 2 * end))


def in_gzip(inner: Packed) -> Packed:
    return _whole(gzip.compress(inner.data))


def in_bzip2(inner: Packed) -> Packed:
    return _whole(bz2.compress(inner.data))


def in_xz(inner: Packed) -> Packed:
    return _whole(lzma.compress(inner.data))


def in_zstd(inner: Packed) -> Packed:
    return _whole(zstandard.ZstdCompressor().compress(inner.data))


def _whole(data: bytes) -> Packed:
    return Packed(data, (0, len(data)))


def zipped(data: bytes, method: int = zipfile.ZIP_DEFLATED, name: str = "in/side.txt") -> bytes:
    """Return a zip of two members, the second with the data."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("first.txt", b"nothing")
        archive.writestr(name, data)
    return out.getvalue()


def in_zip(inner: Packed) -> Packed:
    data = zipped(inner.data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        info = archive.infolist()[1]
    start = info.header_offset + 30 + len(info.filename)
    return Packed(data, (start, start + info.compress_size))


def in_stored_zip(inner: Packed) -> Packed:
    data = zipped(inner.data, zipfile.ZIP_STORED)
    start = data.index(inner.data)
    return Packed(data, (start + inner.span[0], start + inner.span[1]))


def in_tar(inner: Packed) -> Packed:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in (("first.txt", b"nothing"), ("deep/" * 40 + "side.txt", inner.data)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    start = out.getvalue().index(inner.data)
    return Packed(out.getvalue(), (start + inner.span[0], start + inner.span[1]))


VIEWS = (in_base64, in_url_base64, in_wrapped_base64, in_hex, in_upper_hex, in_percent)
TEXTS = (in_utf16, in_bare_utf16)
ARCHIVES = (in_gzip, in_bzip2, in_xz, in_zstd, in_zip, in_stored_zip, in_tar)
