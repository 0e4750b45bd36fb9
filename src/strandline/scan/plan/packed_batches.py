"""Record batches compressed in memory: columns of paths and stat data repeat much.

Invariants: batches come back in their order and with their rows; no column is ever longer than its batch, so that
however many rows there are, offsets of 32 bits are enough.
"""

from collections.abc import Iterator

import pyarrow as pa

_OPTIONS = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1))


class PackedBatches:
    """Batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._packed: list[bytes] = []
        self._rows = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Add a batch, if it has rows."""
        if len(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.schema, options=_OPTIONS) as writer:
                writer.write_batch(batch)
            self._packed.append(sink.getvalue().to_pybytes())  # a sink has up to twice the bytes that it holds
            self._rows += len(batch)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches, unpacked one after another."""
        for data in self._packed:
            with pa.ipc.open_stream(data) as reader:
                yield reader.read_next_batch()


class CountedBatches(PackedBatches):
    """Batches that are counted, and not kept."""

    def append(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch."""
        self._rows += len(batch)
