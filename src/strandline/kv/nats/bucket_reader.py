"""Buckets over the ordered reader: subjects as keys, headers as kinds, batches as `UpdateBatch`.

Invariants: a message with the header of a delete or purge, or with a server's marker of an expired value, is told as
what it means; everything else is a put, an empty value too. Keys are bytes as the subject has them.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.kv.config import Retention
from strandline.kv.entries import UpdateBatch, UpdateKind
from strandline.kv.errors import BucketNotFound, BucketPurged, BucketReplaced, CursorExpired
from strandline.kv.keys import validate_prefix
from strandline.kv.nats.layout import retention_of, stream_name
from strandline.kv.nats.messages import MARKER_REASON, OPERATION, TTL, deadline_ns, kind_of_headers
from strandline.nats.cancellation import CancelToken
from strandline.nats.deliveries import Delivered
from strandline.nats.errors import NoAnswer, PositionExpired, StreamNotFound, StreamPurged, StreamReplaced
from strandline.nats.ordered_reader import OrderedReader
from strandline.nats.read_plan import ReadPlan
from strandline.nats.settings import NatsSettings
from strandline.nats.streams import parse_header_values
from strandline.wire import binary_list, binary_spans, gather


def update_batch(delivered: Delivered) -> UpdateBatch:
    """Return messages of a bucket as updates; a subject without the plan's prefix is the key."""
    kinds = kinds_of(delivered.headers, len(delivered))
    values = delivered.payloads
    if kinds.any():
        data, edges = binary_spans(values)
        values = gather(data, np.where(kinds == UpdateKind.PUT, edges[:-1], edges[1:]), edges[1:])
    return UpdateBatch(delivered.subjects, kinds, delivered.sequences, values, deadlines_of(delivered))


def deadlines_of(delivered: Delivered) -> NDArray[np.uint64] | None:
    """Return when each value expires by a time to live of its own, or expired if it is marked; None if none does.

    A time that was not asked for is taken to be now: later than it was, so that nothing is taken for expired that is
    not.
    """
    if delivered.headers is None:
        return None
    either = pc.or_(
        pc.match_substring(delivered.headers, pattern=TTL),
        pc.match_substring(delivered.headers, pattern=MARKER_REASON),
    )
    rows = np.flatnonzero(either.to_numpy(zero_copy_only=False))
    if not len(rows):
        return None
    times = delivered.times_ns
    if times is None:
        times = np.full(len(delivered), time.time_ns(), np.int64)
    blocks = binary_list(delivered.headers.take(pa.array(rows)))
    deadlines = np.zeros(len(delivered), np.uint64)
    deadlines[rows] = [deadline_ns(*pair) for pair in zip(blocks, times[rows].tolist(), strict=True)]
    return deadlines


def kinds_of(headers: pa.BinaryArray | None, count: int) -> NDArray[np.uint8]:
    """Return the kind of each message, by its raw header block."""
    kinds = np.zeros(count, np.uint8)
    if headers is None:
        return kinds
    either = pc.or_(
        pc.match_substring(headers, pattern=OPERATION),
        pc.match_substring(headers, pattern=MARKER_REASON),
    )
    rows = np.flatnonzero(either.to_numpy(zero_copy_only=False))
    if len(rows):
        blocks = binary_list(headers.take(pa.array(rows)))
        known = {block: kind_of_headers(parse_header_values(block)) for block in set(blocks)}
        kinds[rows] = [known[block] for block in blocks]
    return kinds


@contextmanager
def bucket_errors(bucket: str) -> Iterator[None]:
    """Raise what a stream's reader raises as the error of a bucket."""
    try:
        yield
    except StreamNotFound as gone:
        raise BucketNotFound(bucket) from gone
    except PositionExpired as expired:
        kinds = {StreamReplaced: BucketReplaced, StreamPurged: BucketPurged}
        kind = kinds.get(type(expired), CursorExpired)
        raise kind(bucket, expired.sequence, expired.first, expired.last) from expired


class BucketReader:
    """Reads the updates of a bucket as columns; one thread reads, any thread may close."""

    def __init__(self, reader: OrderedReader, bucket: str) -> None:
        self.reader = reader
        self._bucket = bucket

    @staticmethod
    def open(
        settings: NatsSettings,
        bucket: str,
        plan: ReadPlan | None = None,
        *,
        prefixes: Sequence[str] = ("",),
        subject_prefix: str = "",
        cancel: CancelToken | None = None,
    ) -> "BucketReader":
        """Return a reader of the keys below some prefixes; of a plan, all but its stream and filters count.

        `subject_prefix` is what subjects of the bucket begin with, if that is not `$KV.<bucket>.`: a mirror has those
        of its origin. `InvalidKey` for what is not a prefix, `BucketNotFound`, `CursorExpired`, or why no server was
        connected to.
        """
        plan = bucket_plan(bucket, plan, prefixes=prefixes, subject_prefix=subject_prefix)
        with bucket_errors(bucket):
            return BucketReader(OrderedReader.open(settings, plan, cancel), bucket)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> int:
        """Return the last revision that was handed out, or the one that the reader began after."""
        return self.reader.position

    @property
    def frontier(self) -> int:
        """Return the revision up to which every update of the prefixes was handed out."""
        return self.reader.frontier

    @property
    def pending(self) -> int:
        """Return how many updates waited behind the last one, when it was sent."""
        return self.reader.pending

    @property
    def is_current(self) -> bool:
        """Tell whether everything that was there when the reader was opened was handed out."""
        return self.reader.is_current

    @property
    def retention(self) -> Retention:
        """Return what the bucket had kept when the reader was opened."""
        return retention_of(self.reader.state)

    def read(self, timeout_s: float) -> UpdateBatch | None:
        """Return updates as soon as there are any, None if none come within a time; `CursorExpired` and the like."""
        delivered = self.read_messages(timeout_s)
        return None if delivered is None else update_batch(delivered)

    def read_messages(self, timeout_s: float) -> Delivered | None:
        """Return the same as messages of the bucket's stream."""
        with bucket_errors(self._bucket):
            return self.reader.read(timeout_s)

    def close(self) -> None:
        """Detach; a second time does nothing."""
        self.reader.close()


def bucket_plan(
    bucket: str, plan: ReadPlan | None = None, *, prefixes: Sequence[str] = ("",), subject_prefix: str = ""
) -> ReadPlan:
    """Return the plan of a bucket's keys below some prefixes, otherwise as the one given.

    A prefix that another covers is left out, for a server refuses filters that overlap.
    """
    kept: list[str] = []
    for prefix in sorted({validate_prefix(prefix) for prefix in prefixes}, key=len):
        if not prefix.startswith(tuple(kept)):
            kept.append(prefix)
    subject_prefix = subject_prefix or f"$KV.{bucket}."
    filters = tuple(f"{subject_prefix}{prefix}>" for prefix in sorted(kept))
    stream = stream_name(bucket)
    plan = plan or ReadPlan(stream=stream)
    return replace(plan, stream=stream, filters=filters, subject_prefix=subject_prefix)


def scan_bucket(
    settings: NatsSettings,
    bucket: str,
    *,
    prefixes: Sequence[str] = ("",),
    subject_prefix: str = "",
    headers_only: bool = False,
    cancel: CancelToken | None = None,
) -> Iterator[UpdateBatch]:
    """Yield the current values of a bucket, in the order of their revisions, without deletes.

    With `headers_only` the values are left out. What is written after the beginning may be in it or not; a key that is
    written while the reader attaches may come twice, the newer value last.
    """
    plan = ReadPlan(stream="", headers_only=headers_only, exact_state=True, outage_s=settings.timeout_s)
    with BucketReader.open(
        settings, bucket, plan, prefixes=prefixes, subject_prefix=subject_prefix, cancel=cancel
    ) as reader:
        while not reader.is_current:
            delivered = reader.read_messages(settings.timeout_s)
            if delivered is None:
                if reader.reader.is_current:
                    return
                raise NoAnswer(f"a scan of bucket {bucket!r}", settings.timeout_s)
            batch = update_batch(delivered)
            chosen = batch.kinds == UpdateKind.PUT
            yield batch if chosen.all() else batch.select(chosen)


def read_keys(
    settings: NatsSettings,
    bucket: str,
    *,
    prefixes: Sequence[str] = ("",),
    subject_prefix: str = "",
    cancel: CancelToken | None = None,
) -> list[str]:
    """Return the keys of a bucket that have a value, in the order of their revisions."""
    batches = scan_bucket(
        settings, bucket, prefixes=prefixes, subject_prefix=subject_prefix, headers_only=True, cancel=cancel
    )
    return [key for batch in batches for key in batch.keys]
