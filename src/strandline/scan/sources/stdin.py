"""Standard input as a source of one item: `git diff | strandline scan -`.

    locator     the name that was given to it
    version     BLAKE3 of its bytes

It is read once, at the first listing or read. What is more than `MEMORY_BYTES_MAX` goes to a temporary file without a
name, which ends with the process. It is scanned in pieces that end with a line and repeat the end of the piece before,
so that a secret on the border of two is found, and once; lines and positions are those of the whole.

Invariants: at most a few pieces are in memory, however large the input, but an archive is in memory as a whole, up to
`SIZE_MAX`; only the process that read it can scan it.
"""

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import IO, Self
from uuid import uuid4

import pyarrow as pa
from blake3 import blake3

from strandline.detect.archives import kind_of
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.sources.errors import InputUnusable, Problem
from strandline.scan.sources.source import SIZE_MAX, Content, ItemReader, Part, Row, Tell, batches

ADDRESS = "-"
DEFAULT_NAME = "stdin"
WHOLE_BYTES_MAX = 16 << 20
PIECE_BYTES = 8 << 20
REPEATED_BYTES = 64 << 10
MEMORY_BYTES_MAX = 32 << 20
_READ_BYTES = 1 << 20
_HEAD_BYTES = 512


class Spool:
    """Bytes that can be read only once, kept so that they can be read again."""

    def __init__(self, stream: IO[bytes]) -> None:
        kept = tempfile.SpooledTemporaryFile(MEMORY_BYTES_MAX, prefix="strandline-stdin-")  # noqa: SIM115 - for good
        self._kept: IO[bytes] = kept
        digest = blake3()
        while data := stream.read(_READ_BYTES):
            digest.update(data)
            self._kept.write(data)
        self.size = self._kept.tell()
        self.version = b"blake3:" + digest.digest()
        self._kept.seek(0)
        is_archive = kind_of(self._kept.read(_HEAD_BYTES)) is not None
        self.is_whole = is_archive or self.size <= WHOLE_BYTES_MAX
        """Whether it is scanned as one piece: an archive has to be."""
        self.problem = Problem.TOO_LARGE if is_archive and self.size > SIZE_MAX else None

    def parts(self, path: str) -> Iterator[Part]:
        """Yield the pieces."""
        self._kept.seek(0)
        at, lines, columns, repeated = 0, 0, 0, b""
        while True:
            piece = self._piece(self.size + 1 if self.is_whole else PIECE_BYTES)
            if not piece:
                return
            data, begin = repeated + piece, at - len(repeated)
            yield Part(data, path, offset=begin, lines_before=lines, columns_before=columns)
            at += len(piece)
            tail = data[-REPEATED_BYTES:]
            repeated = tail[tail.find(b"\n") + 1 :]  # whole lines, or the end of a long one
            before = data[: len(data) - len(repeated)]
            lines += before.count(b"\n")
            columns = len(before) - before.rfind(b"\n") - 1 + (0 if b"\n" in before else columns)

    def _piece(self, size: int) -> bytes:
        """Return the next bytes, to the end of a line if it is not too long."""
        data = self._kept.read(size)
        return data if len(data) < size or data.endswith(b"\n") else data + self._kept.readline(REPEATED_BYTES)


_spools: dict[str, Spool] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class StdinSource:
    """Standard input; make it with `StdinSource.named`."""

    name: str
    instance: ConnectorInstanceId
    token: str = field(compare=False)
    """Names what this process read; another process has no such name."""

    tag = "stdin"
    cut = "one part: it is one item"
    is_part = False

    @classmethod
    def named(cls, name: str = DEFAULT_NAME) -> Self:
        """Return the standard input of this process under a name, such as the path that it is the content of."""
        return cls(name, connector_instance_id(b"stdin\0" + name.encode(errors="surrogateescape")), uuid4().hex)

    def plain(self) -> Plain:
        """Return what decides the listing."""
        return {"kind": self.tag, "instance": self.instance.hex()}

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the one item."""
        spool = self.spool()
        row: Row = (self._locator, spool.version, spool.size, None, None, spool.problem)
        return batches([row], tell, {})

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return the reader, in the process that reads it."""
        return nullcontext(StdinReader(self))

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - there is one item
        """Return the name."""
        return self.name

    def spool(self) -> Spool:
        """Return what was read, after reading it at the first call."""
        with _lock:
            if self.token not in _spools:
                _spools[self.token] = Spool(sys.stdin.buffer)
            return _spools[self.token]

    @property
    def _locator(self) -> bytes:
        return self.name.encode(errors="surrogateescape")

    def __getstate__(self) -> dict[str, object]:
        """Pickle all but the token: another process has no such input."""
        return {**vars(self), "token": ""}


class StdinReader:
    """Reads the one item."""

    def __init__(self, source: StdinSource) -> None:
        self._source = source

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002 - there is one item
        """Return the input."""
        if not self._source.token:
            problem = "another process has the standard input"
            raise InputUnusable(self._source.name, problem, hint="scan it with --without-spark")
        if locator != self._source.name.encode(errors="surrogateescape"):
            raise Problem.VANISHED.error()
        spool = self._source.spool()
        if spool.problem is not None:
            raise spool.problem.error(spool.version)
        parts = spool.parts(self._source.name)
        return Content(spool.version, list(parts) if spool.is_whole else parts, spool.size)
