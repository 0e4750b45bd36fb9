"""A snapshot is read as it is sent, and is of what was there when it began."""

import tracemalloc

import numpy as np

from strandline.broker.api.checks import check_create
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.origins import Neighbours
from strandline.broker.consumers.state import memory_state
from strandline.broker.snapshots.archive import ArchiveReader
from strandline.broker.snapshots.archived_consumer import saved
from strandline.broker.snapshots.s2 import S2Reader
from strandline.broker.snapshots.snapshot_sender import READ_BYTES, pieces
from strandline.broker.streams.stream import Stream
from strandline.broker.streams.write_batch import PublishBatch


def _stream(count: int) -> Stream:
    config = StreamConfig(name="S", subjects=("s.>",), storage=Storage.MEMORY)
    stream = Stream.create(None, check_create(config, Neighbours()))
    _publish(stream, count)
    return stream


def _publish(stream: Stream, count: int) -> None:
    stream.publish(PublishBatch([b"s.a"] * count, [b"x"] * count), 1)


def _sequences(packed: list[bytes]) -> list[int]:
    unpacked, archive = S2Reader(), ArchiveReader(1 << 20)
    entries = [
        entry for part in packed for piece in unpacked.feed(part) for some in archive.feed(piece) for entry in some
    ]
    archive.close()
    return [entry.sequence for entry in entries]


def test_a_snapshot_is_of_what_was_there_when_it_began_and_still_is() -> None:
    stream = _stream(10)
    content = pieces(stream, (), READ_BYTES // 3)
    begin = [next(content), next(content)]
    _publish(stream, 5)
    stream.remove(np.array([2, 5, 10], np.uint64))
    assert _sequences([*begin, *content]) == [1, 2, 3, 4, 6, 7, 8, 9]


def test_what_a_snapshot_holds_does_not_grow_with_its_stream() -> None:
    stream = _stream(200_000)
    tracemalloc.start()
    try:
        held = [pieces(stream, (), READ_BYTES) for _ in range(10)]
        for content in held:
            next(content)
            next(content)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 1 << 20


def test_a_consumer_is_saved_as_far_as_its_snapshot_goes() -> None:
    state = memory_state()
    state.begin(1)
    state.deliver(np.array([1, 2, 3, 4], np.uint64), 10**18)
    state.acknowledge([1, 2, 3])
    assert saved(state, 2) == ((4, 2), (3, 2), {})
    assert saved(state) == ((4, 4), (3, 3), {4: (4, 10**18, 1)})
