"""A JetStream stream or bucket as a source: aligned blocks of sequences are items, payloads and headers are parts.

    nats://host:4222/STREAM         nats://host:4222/kv/BUCKET

    locator     u64 number of the block, big-endian; block n holds the sequences [1024 n, 1024 (n + 1))
    version     "seq:first:next:created": the sequences that the stream holds, and when it was made

A scan ends at the last sequence that the stream had when it was listed. A block that grew, or whose beginning was
removed, has another version, and is scanned again.

Invariants: nothing is acknowledged and nothing removed: a stream that keeps messages for its consumers is refused; a
stream that was made again is another stream; user and password of the address are in no name, no item and no message.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from strandline.errors import InvalidInput, StrandlineError, Unavailable
from strandline.lazy_imports import deferred
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.sources.errors import InputUnusable, Problem
from strandline.scan.sources.listing_parts import WHOLE, ListingPart, block_parts, blocks_in
from strandline.scan.sources.source import Content, ItemReader, Part, Row, Tell, batches

if TYPE_CHECKING:
    from strandline import nats
    from strandline.nats import Delivered, NatsSettings, OrderedReader, StreamState
else:
    nats = deferred("strandline.nats", "nats")

SCHEMES = ("nats://", "tls://")
BLOCK_SEQUENCES = 1024
WAIT_S = 5.0
_BUCKETS = "kv/"
_U64 = struct.Struct(">Q")


def format_block(block: int) -> bytes:
    """Return the locator of a block."""
    return _U64.pack(block)


def parse_block(locator: bytes) -> int:
    """Return the number of a block."""
    (block,) = _U64.unpack(locator)
    return int(block)


@dataclass(frozen=True)
class StreamSource:
    """A stream; make it with `StreamSource.at`."""

    settings: "NatsSettings" = field(repr=False)
    stream: str
    prefix: str
    name: str
    instance: ConnectorInstanceId

    tag = "stream"
    cut = "ranges of blocks of sequences"
    is_part = False

    @classmethod
    def at(cls, address: str, *, name: str = "") -> Self:
        """Return the stream at an address; a login may also be a creds file that NATS_CREDS names."""
        parts = urlsplit(address)
        path = unquote(parts.path.strip("/"))
        is_bucket = path.startswith(_BUCKETS)
        target = path.removeprefix(_BUCKETS)
        if not parts.hostname or not target or "/" in target:
            hint = "write nats://host:4222/STREAM, or nats://host:4222/kv/BUCKET"
            raise InvalidInput(f"{parts.scheme}://…: the address names no stream", hint=hint)
        settings = nats.NatsSettings(
            f"{parts.scheme}://{parts.netloc}",
            creds_file=os.environ.get("NATS_CREDS", ""),
            tls_ca=os.environ.get("NATS_CA", ""),
            tls_cert=os.environ.get("NATS_CERT", ""),
            tls_key=os.environ.get("NATS_KEY", ""),
        )
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{path}"
        stream, prefix = (f"KV_{target}", f"$KV.{target}.") if is_bucket else (target, "")
        instance = connector_instance_id(b"stream\0" + (name or where).encode())
        return cls(settings, stream, prefix, name or where, instance)

    def plain(self) -> Plain:
        """Return what decides the listing."""
        return {"kind": self.tag, "instance": self.instance.hex(), "stream": self.stream}

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the blocks that the stream holds now, in the order of sequences; a size is estimated."""
        return self.list_part(WHOLE, tell)

    def listing_parts(self, count: int) -> Sequence[ListingPart]:
        """Return ranges of blocks."""
        state = self._state()
        first, end = state.first // BLOCK_SEQUENCES, state.last // BLOCK_SEQUENCES + 1
        return block_parts(first, end, count, format_block)

    def list_part(self, part: ListingPart, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of a range."""
        return batches(self._rows(self._state(), part), tell, {})

    def _state(self) -> "StreamState":
        state = nats.stream_state(self.settings, self.stream)
        if state.retention != "limits":
            raise InputUnusable(
                self.name,
                f"it keeps messages by {state.retention}: a reader would be one more consumer that decides",
                hint="make a stream that is kept by limits with this one as its source, and scan that",
            )
        return state

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader of blocks."""
        return closing(SequenceReader(self))

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the number is enough
        """Return the stream and the block's first sequence."""
        return f"{self.stream}@{parse_block(locator) * BLOCK_SEQUENCES}"

    def version(self, state: "StreamState", block: int) -> bytes:
        """Return the version of a block from the state of the stream."""
        begin, end = within(block, state)
        return f"seq:{begin}:{end}:{state.created}".encode()

    def _rows(self, state: "StreamState", part: ListingPart) -> Iterator[Row]:
        if not state.messages:
            return
        each = state.stored_bytes // max(1, state.last + 1 - state.first)
        for block in blocks_in(part, state.first // BLOCK_SEQUENCES, state.last // BLOCK_SEQUENCES + 1, parse_block):
            begin, end = within(block, state)
            yield format_block(block), self.version(state, block), each * (end - begin), None, None, None


def within(block: int, state: "StreamState") -> tuple[int, int]:
    """Return the sequences of a block that a stream holds."""
    begin = max(state.first, block * BLOCK_SEQUENCES, 1)
    return begin, min(state.last + 1, (block + 1) * BLOCK_SEQUENCES)


class SequenceReader:
    """Reads blocks; one after the other, over one consumer."""

    def __init__(self, source: StreamSource) -> None:
        self._source = source
        self._reader: OrderedReader | None = None
        self._rest: Delivered | None = None
        self._next = 0

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002 - the number is enough
        """Return the messages of a block."""
        try:
            state = nats.stream_state(self._source.settings, self._source.stream)
            begin, end = within(parse_block(locator), state)
            if begin >= end:
                raise Problem.VANISHED.error()
            parts = list(self._parts(begin, end))
        except (nats.PositionExpired, nats.StreamNotFound) as error:
            self.close()
            raise Problem.CHANGED_WHILE_READ.error() from error
        except Unavailable:  # the server: the scan ends, and resumes
            self.close()
            raise
        return Content(self._source.version(state, parse_block(locator)), parts, sum(len(part.data) for part in parts))

    def close(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            self._reader.close()
        self._reader = self._rest = None

    def _parts(self, begin: int, end: int) -> Iterator[Part]:
        for batch in self._batches(begin, end):
            headers = [b""] * len(batch) if batch.headers is None else batch.headers.to_pylist()
            names, texts = batch.subjects.to_pylist(), batch.payloads.to_pylist()
            rows = zip(batch.sequences.tolist(), names, texts, headers, strict=True)
            for sequence, subject, payload, header in rows:
                name = subject.decode(errors="surrogateescape")
                address = sequence % BLOCK_SEQUENCES * 2
                if payload:
                    yield Part(payload, self._source.stream, address, row=str(sequence), field=name)
                if header:
                    yield Part(header, self._source.stream, address + 1, row=str(sequence), field=f"{name} (headers)")

    def _batches(self, begin: int, end: int) -> Iterator["Delivered"]:
        """Yield the messages of some sequences; what came behind them is kept for the next block."""
        reader = self._positioned(begin)
        while True:
            batch, self._rest = self._rest, None
            if batch is None and reader.position < end - 1 and not reader.is_current:
                batch = reader.read(WAIT_S)
            if batch is None:
                if reader.position < end - 1 and not reader.is_current:
                    continue  # what was announced has not come yet: the reader finds out why, and raises
                break
            first, stop = (int((batch.sequences < bound).sum()) for bound in (begin, end))
            if stop > first:
                yield batch.slice(first, stop)
            if stop < len(batch):
                self._rest = batch.slice(stop, len(batch))
                break
        self._next = end

    def _positioned(self, begin: int) -> "OrderedReader":
        """Return a reader that goes on at a sequence."""
        if self._reader is not None and self._next == begin and not (self._reader.is_current and self._rest is None):
            return self._reader
        self.close()
        plan = nats.ReadPlan(stream=self._source.stream, after=begin - 1, subject_prefix=self._source.prefix)
        try:
            self._reader = nats.OrderedReader.open(self._source.settings, plan)
        except StrandlineError:
            self._reader = None
            raise
        return self._reader
