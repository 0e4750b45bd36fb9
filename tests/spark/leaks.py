"""Secrets that are planted, and a search for any trace of them in whatever is left lying about.

A secret is `leak_`, a core that all of them share, and a tail of its own. The search knows the core in every way in
which programs write bytes down, each tail as it is, and looks into what is compressed.
"""

import base64
import gzip
import random
import sqlite3
import string
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import zstandard

_LETTERS = string.ascii_letters + string.digits
_SHOWN_MIN = 8
_UNPACKED_MAX = 64 << 20
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08"


class Secrets:
    """Makes secrets, and knows them again."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)
        self._core = self._word(14)
        self._tails: dict[str, str] = {}

    def new(self, name: str) -> str:
        """Return a secret that nobody has seen; `name` tells where it is planted."""
        self._tails[name] = self._word(10)
        return f"leak_{self._core}{self._tails[name]}"

    def needles(self) -> dict[bytes, str]:
        """Return what to look for, and how it would have been written."""
        core = self._core.encode()
        found = {core[at : at + _SHOWN_MIN]: "a part of it" for at in range(len(core) - _SHOWN_MIN + 1)}
        found |= {tail.encode()[:_SHOWN_MIN]: f"the tail planted as {name}" for name, tail in self._tails.items()}
        found |= {core[::-1]: "reversed", core.hex().encode(): "hex", core.hex().upper().encode(): "hex"}
        found |= {core.hex(" ").encode(): "hex", core.hex(":").encode(): "hex", core.swapcase(): "other case"}
        found |= {core.lower(): "lower case", core.upper(): "upper case"}
        for form in ("%{:02x}", "%{:02X}", "\\x{:02x}", "\\u{:04x}", "&#{};", "&#x{:x};", "{}, ", "{},"):
            found["".join(form.format(byte) for byte in core).encode()] = f"written as {form}"
        for code in ("utf-16-le", "utf-16-be", "utf-32-le"):
            found[self._core.encode(code)] = code
        for shift in range(3):
            inner = base64.b64encode(b"\0" * shift + core)[4 if shift else 0 :].rstrip(b"=")[:-1]
            found |= {inner: "base64", inner.replace(b"+", b"-").replace(b"/", b"_"): "base64"}
        for shift in range(5):
            inner = base64.b32encode(b"\0" * shift + core)[8 if shift else 0 :].rstrip(b"=")[:-2]
            found[inner] = "base32"
        return found

    def _word(self, length: int) -> str:
        return "".join(self._source.choice(_LETTERS) for _ in range(length))


class Search:
    """Looks for secrets in files and databases."""

    def __init__(self, secrets: Secrets) -> None:
        self._needles = secrets.needles()
        self.bytes = 0

    def folder(self, folder: Path) -> list[str]:
        """Return what was found in the files of a folder, in their names and in the rows of databases."""
        found = []
        for path in sorted(folder.rglob("*")):
            found += [f"{path}: in its name, {how}" for how in self.data(bytes(path.relative_to(folder)))]
            if path.is_file() and not path.is_symlink():
                found += [f"{path}: {how}" for how in self.data(path.read_bytes())]
                if path.suffix == ".db":
                    found += [f"{path}: {how}" for how in self._database(path)]
        return found

    def data(self, data: bytes) -> list[str]:
        """Return how secrets are written in some bytes, and in what is compressed within."""
        found = []
        for view, name in _views(data):
            self.bytes += len(view)
            found += [f"{how}{name}" for needle, how in self._needles.items() if needle in view]
        return found

    def _database(self, path: Path) -> Iterator[str]:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - names of our own
                    for cell in row:
                        data = cell if isinstance(cell, bytes) else str(cell).encode(errors="surrogateescape")
                        yield from (f"table {table}: {how}" for how in self.data(data))


def _views(data: bytes) -> Iterator[tuple[bytes, str]]:
    """Yield bytes, and whatever is compressed in them, wherever it begins."""
    yield data, ""
    for at in _places(data, _ZSTD):
        reader = zstandard.ZstdDecompressor().stream_reader(data[at:], read_across_frames=True)
        yield _read(reader), " (zstd)"
    for at in _places(data, _GZIP):
        yield _inflated(data[at:]), " (gzip)"


def _places(data: bytes, magic: bytes) -> Iterator[int]:
    at = data.find(magic)
    while at >= 0:
        yield at
        at = data.find(magic, at + 1)


def _read(reader: zstandard.ZstdDecompressionReader) -> bytes:
    read = bytearray()
    try:
        while len(read) < _UNPACKED_MAX and (some := reader.read(1 << 16)):
            read += some
    except zstandard.ZstdError:
        pass  # as much as it was
    return bytes(read)


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        return inflater.decompress(data, _UNPACKED_MAX)
    except zlib.error:
        return b""


def written_down(secret: str) -> dict[str, bytes]:
    """Return a secret as careless programs would leave it, to see that the search finds it."""
    raw = secret.encode()
    padded = [b"x" * shift + raw + b"yz" for shift in range(3)]
    return {
        "plain": b"warning: found " + raw,
        "cut": raw[:16] + b"****",
        "reversed": raw[::-1],
        "hex": raw.hex().encode(),
        "percent": "".join(f"%{byte:02X}" for byte in raw).encode(),
        "utf-16": b"\xff\xfe" + secret.encode("utf-16-le"),
        "utf-16-be": secret.encode("utf-16-be"),
        "json": "".join(f"\\u{byte:04x}" for byte in raw).encode(),
        **{f"base64 {shift}": base64.b64encode(one) for shift, one in enumerate(padded)},
        **{f"base32 {shift}": base64.b32encode(b"x" * shift + raw) for shift in range(5)},
        "gzip": b"before" + gzip.compress(raw),
        "zstd": b"before" + zstandard.compress(raw) + b"after",
    }
