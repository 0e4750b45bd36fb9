"""Tables as values of the scanner's state: Arrow IPC streams, zstd within."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from strandline.scan.errors import ManifestBroken

_WRITE = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)
"""A chunk is small: threads would cost more than they save, and every core has a task."""


def format_table(table: pa.Table) -> bytes:
    """Return a table as one value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_WRITE) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def parse_table(data: bytes, *schemas: pa.Schema) -> pa.Table:
    """Return the table of a value, if it has one of these schemas."""
    try:
        with pa.ipc.open_stream(data, options=_READ) as reader:
            table = reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise ManifestBroken("a chunk of it cannot be read") from error
    if table.schema not in schemas:
        raise ManifestBroken("a chunk of it has other columns than this version knows")
    return table


def rechunked(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """Yield the rows of batches in tables of `rows` rows each; the last one may have fewer."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        while count >= rows:
            table = pa.Table.from_batches(waiting, schema)
            yield table.slice(0, rows).combine_chunks()
            waiting = table.slice(rows).to_batches()
            count -= rows
    if count:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()
