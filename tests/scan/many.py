"""A source of very many items, made up as they are asked for, and how much memory a call has at once."""

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from blake3 import blake3

from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.sources import Content, ItemReader, Part, Problem, Tell
from strandline.scan.sources.source import Row, batches

T = TypeVar("T")
_pools: list[pa.MemoryPool] = []  # what was allocated from one outlives the call
_STAT = struct.Struct("<QQqqq")


@dataclass(frozen=True)
class Many:
    """So many items with paths of so many bytes; those with a problem are never read."""

    count: int
    path_bytes: int = 64
    problem: str | None = None

    tag = "test"
    is_part = False
    name = "many"

    @property
    def instance(self) -> ConnectorInstanceId:
        """Which one it is."""
        return connector_instance_id(b"many")

    def plain(self) -> Plain:
        """What decides the listing."""
        return {"count": self.count, "path_bytes": self.path_bytes}

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the items in order."""
        return batches(map(self._row, range(self.count)), tell, {})

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader."""
        return nullcontext(Reader())

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002
        """Return the name."""
        return locator.decode()

    def locator(self, number: int) -> bytes:
        """Return the path of an item."""
        name = b"src/main/package%04d/module%03d/file%09d.py" % (number // 1000, number // 20 % 50, number)
        return name.rjust(self.path_bytes, b"/")

    def _row(self, number: int) -> Row:
        locator = self.locator(number)
        stat = stat_of(locator)
        version = None if self.problem is None else b"stat:" + stat
        return locator, version, 7, stat, None, self.problem


def stat_of(locator: bytes) -> bytes:
    """Return stat data as those of a real tree: some of it random, some of it nearly the same."""
    digest = int.from_bytes(blake3(locator).digest()[:8], "little")
    time_ns = 10**18 + digest % 10**16
    return _STAT.pack(2049, digest % 2**24, 7, time_ns, time_ns + digest % 1000)


class Reader:
    """Reads items."""

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002
        """Return an item."""
        version = b"blake3:" + blake3(locator).digest()
        return Content(version, [Part(b"nothing", locator.decode())], 7, stat_of(locator))


def peak_of(call: Callable[[], T]) -> tuple[T, int, int]:
    """Return what a call returns, how many bytes it had at once, Python's and Arrow's, and how many it left."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        result = call()
        left, most = tracemalloc.get_traced_memory()
        return result, most + pool.max_memory(), left + pool.bytes_allocated()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


BROKEN = Problem.TOO_LARGE.value
