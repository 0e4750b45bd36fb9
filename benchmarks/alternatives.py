"""What the journal leaves out, and what it would gain: compression of batches, and direct I/O.

The evidence for `docs/decisions/0004`: the same batches written durably as they are, compressed with zstd, and past the
page cache. `ours` is what the journal does (a buffered write with RWF_DSYNC into reserved space); `peer` is the
alternative, so that a ratio above 1 means that leaving it out is right for speed.
"""

import json
import mmap
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks._harness import Row, compare, medians, report, scratch

ROUNDS = 5
WRITES = 200
BLOCK = 4096


def log_lines(count: int) -> bytes:
    """Return records as services write them: JSON that repeats itself, about 128 bytes each."""
    rng = random.Random(7)
    lines = (
        {
            "at": 1_700_000_000_000 + i,
            "level": rng.choice(["info", "warn", "error"]),
            "service": rng.choice(["orders", "billing", "search"]),
            "user": rng.randrange(10**9),
            "ms": rng.randrange(1000),
        }
        for i in range(count)
    )
    return b"".join(json.dumps(line).encode() for line in lines)


def timed(path: Path, flags: int, write: Callable[[int, int], int]) -> float:
    """Return milliseconds per write, over `WRITES` writes one after another."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | flags)
    os.posix_fallocate(descriptor, 0, 64 << 20)
    os.fsync(descriptor)
    position = 0
    begin = time.perf_counter()
    for _ in range(WRITES):
        position += write(descriptor, position)
    seconds = time.perf_counter() - begin
    os.close(descriptor)
    path.unlink()
    return seconds / WRITES * 1000


def rows() -> Iterator[Row]:
    """Measure each alternative beside what is done, for small and for large batches."""
    for count in (100, 1000):
        with scratch() as folder:
            yield from case(log_lines(count), folder / "file")


def case(body: bytes, path: Path) -> Iterator[Row]:
    """Measure each alternative for one batch."""
    codec = pa.Codec("zstd", compression_level=1)
    packed = codec.compress(body, asbytes=True)
    assert codec.decompress(packed, len(body), asbytes=True) == body
    aligned = mmap.mmap(-1, -(-len(body) // BLOCK) * BLOCK)
    aligned[: len(body)] = body

    def plain(descriptor: int, position: int) -> int:
        return os.pwritev(descriptor, [body], position, os.RWF_DSYNC)

    def zstd(descriptor: int, position: int) -> int:
        return os.pwritev(descriptor, [codec.compress(body, asbytes=True)], position, os.RWF_DSYNC)

    def direct(descriptor: int, position: int) -> int:
        return os.pwritev(descriptor, [aligned], position, os.RWF_DSYNC)

    sides = [lambda: timed(path, 0, plain), lambda: timed(path, 0, zstd), lambda: timed(path, os.O_DIRECT, direct)]
    ours, compressed, uncached = medians(ROUNDS, sides)
    name = f"durable write of {len(body) / 1000:.0f} kB of JSON"
    yield compare(name, ours, f"zstd -1, to {len(packed) / len(body):.0%}", compressed, "ms", better="lower")
    yield compare(name, ours, "O_DIRECT", uncached, "ms", better="lower")
    copy, unpack = medians(ROUNDS, [lambda: copy_ms(body), lambda: unpack_ms(codec, packed, len(body))])
    yield compare(
        f"read back {len(body) / 1000:.0f} kB from the page cache", copy, "zstd", unpack, "ms", better="lower"
    )


def copy_ms(body: bytes) -> float:
    """Return the milliseconds that a copy takes, which is what reading from the page cache costs."""
    begin = time.perf_counter()
    for _ in range(WRITES):
        bytes(memoryview(body))
    return (time.perf_counter() - begin) / WRITES * 1000


def unpack_ms(codec: pa.Codec, packed: bytes, size: int) -> float:
    """Return the milliseconds that decompression takes."""
    begin = time.perf_counter()
    for _ in range(WRITES):
        codec.decompress(packed, size)
    return (time.perf_counter() - begin) / WRITES * 1000


if __name__ == "__main__":
    report("alternatives", list(rows()))
