"""Record batches in memory, compressed beyond the first ones: columns of paths and stat data repeat much.

Compressing takes as long as the rest of a small plan, so batches are kept as they are until they are large together.

Invariants: batches come back in their order and with their rows; no column is ever longer than its batch, so that
however many rows there are, offsets of 32 bits are enough.
"""

from collections.abc import Iterator

import pyarrow as pa

PLAIN_BYTES_MAX = 16 << 20
_WRITE = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class PackedBatches:
    """Batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._plain: list[pa.RecordBatch] = []
        self._plain_bytes_left = PLAIN_BYTES_MAX
        self._packed: list[bytes] = []
        self._rows = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch, if it has rows."""
        if not len(batch):
            return
        self._rows += len(batch)
        if not self._packed and batch.nbytes <= self._plain_bytes_left:
            self._plain_bytes_left -= batch.nbytes
            self._plain.append(batch)
        else:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.schema, options=_WRITE) as writer:
                writer.write_batch(batch)
            self._packed.append(sink.getvalue().to_pybytes())  # a sink has up to twice the bytes that it holds

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches, unpacked one after another."""
        yield from self._plain
        for data in self._packed:
            with pa.ipc.open_stream(data, options=_READ) as reader:
                yield reader.read_next_batch()


class CountedBatches(PackedBatches):
    """Batches that are counted, and not kept."""

    def append(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch."""
        self._rows += len(batch)
