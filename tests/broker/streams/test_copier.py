"""Copies of another stream are exact when the power goes at any change of the disk: nothing is lost, nothing twice."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.api.config import StreamSource
from strandline.broker.streams import OriginBatch, Position, PublishBatch, Stream, part_of
from strandline.broker.streams.records import Origins, format_control, parse_control
from strandline.broker.streams.source_header import format_source, parse_source
from strandline.clock import ManualClock
from strandline.errors import StrandlineError
from strandline.gather import InlineExecutor
from strandline.sim import SimDisk
from tests.broker.streams.helpers import make
from tests.broker.streams.world import FOLDER, START_NS, everything_small, headers
from tests.journal.helpers import WatchedDisk, telling
from tests.journal.model import PowerCut

NAME, IDENTITY = b"O > >", b"A6NgNr0K"
COUNT = 36
KINDS = {"mirror": {}, "source": {}, "bucket": {"max_msgs_per_subject": 1}, "full": {"max_msgs": 7}}
BY_KIND = pytest.mark.parametrize("kind", ["mirror", "source", "bucket mirror", "bucket source", "full source"])


def origin(kind: str) -> OriginBatch:
    """Return all messages of an origin: every third sequence is missing, some have headers of ours."""
    sequences = np.array([at for at in range(2, 3 * COUNT) if at % 3], np.uint64)[:COUNT]
    is_mirror = kind.endswith("mirror")
    blocks = [headers(Msg_Id=f"m{at}") if at % 5 == 0 else b"" for at in range(COUNT)]
    if not is_mirror:
        blocks = [headers(Stream_Source=f"O {at} > > s.x A6NgNr0K") for at in sequences.tolist()]
        blocks[7] = headers(Msg_Id="seven", Stream_Source=f"O {sequences[7]} > > s.x A6NgNr0K")
    return OriginBatch(
        sequences,
        np.arange(COUNT, dtype=np.int64) + START_NS,
        [b"s.%d" % (at % 4) for at in range(COUNT)],
        blocks,
        [b"%d:" % at + b"v" * (at * 7 % 60) for at in range(COUNT)],
        b"" if is_mirror else NAME,
        b"" if is_mirror else IDENTITY,
    )


@dataclass
class Copy:
    """A stream on a simulated disk that copies an origin, until the power goes."""

    kind: str
    disk: SimDisk = field(default_factory=SimDisk)
    cut: PowerCut = field(default_factory=PowerCut)
    clock: ManualClock = field(default_factory=lambda: ManualClock(START_NS))
    removed: set[bytes] = field(default_factory=set)
    stream: Stream | None = None

    def open(self) -> Stream:
        disk = WatchedDisk(self.disk, self.cut)
        options = {"disk": disk, "clock": self.clock, "executor": InlineExecutor()}
        try:
            stream = Stream.open(FOLDER, **options)  # type: ignore[arg-type]
        except StrandlineError:
            limits = KINDS[self.kind.split()[0]]
            stream = Stream.create(FOLDER, make(**limits), **options)  # type: ignore[arg-type]
        self.stream = stream
        return stream

    def run(self) -> None:
        """Copy everything that is not there yet, as a feed would; remove and compact on the way."""
        stream = self.open()
        batch = origin(self.kind)
        start = self.resume(stream, batch)
        for at in range(start, COUNT, 4):
            copied = stream.copy(part_of(batch, at, at + 4), self.clock.now_ns())
            copied.published.ticket.result()
            if at % 3 == 0 and not self.kind.endswith("mirror"):
                self._remove_all(stream)
            for _ in range(3):
                stream.compact_step()
            if at == 16:
                stream.snapshot()
        stream.close()
        self.stream = None

    def resume(self, stream: Stream, batch: OriginBatch) -> int:
        """Return the first row that is not dealt with, by what the stream says."""
        position = Position(stream.last_seq) if not batch.name else stream.position(NAME) or Position(0)
        return int(np.searchsorted(batch.sequences, np.uint64(position.sequence), side="right"))

    def _remove_all(self, stream: Stream) -> None:
        live = stream.next_sequences(stream.filter(()), 1, COUNT)
        self.removed |= set(stream.read(live).payloads)
        stream.remove(live)
        stream.barrier().result()

    def check(self) -> None:
        stream = self.open()
        batch = origin(self.kind)
        assert self.resume(stream, batch) == COUNT
        found = stream.read(stream.next_sequences(stream.filter(()), 1, 10 * COUNT))
        assert len(set(found.payloads)) == len(found)
        expected = list(zip(batch.subjects, batch.headers, batch.payloads, strict=True))
        kept = [row for row in expected if row[2] in set(found.payloads)]
        assert list(zip(found.subjects, found.headers, found.payloads, strict=True)) == kept
        lost = [row for row in expected if row not in kept and row[2] not in self.removed]
        if self.kind in ("mirror", "source"):
            assert not lost
        if not batch.name:
            rows = [batch.payloads.index(payload) for payload in found.payloads]
            assert found.sequences.tolist() == batch.sequences[rows].tolist()
            assert found.times.tolist() == batch.times[rows].tolist()
        stream.close()


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with everything_small():
        yield


def changes_of(kind: str) -> int:
    copy = Copy(kind)
    copy.run()
    copy.check()
    return copy.cut.seen


def cut_power_everywhere(kind: str, stride: int) -> None:
    for changes in range(0, changes_of(kind) + 1, stride):
        with telling(changes=changes):
            copy = Copy(kind)
            copy.cut.left = changes
            with suppress(StrandlineError, OSError):
                copy.run()
            copy.disk.crash(Random(changes))
            copy.cut.left = None
            copy.run()
            copy.check()


@BY_KIND
def test_a_copy_is_exact_when_the_power_goes(kind: str) -> None:
    cut_power_everywhere(kind, stride=11 if kind == "source" else 29)


def test_positions_outlive_the_part_of_the_log_that_they_were_written_in() -> None:
    copy = Copy("bucket source")
    stream = copy.open()
    batch = part_of(origin("source"), 0, 3)
    stream.copy(batch, START_NS).published.ticket.result()
    stream.remove(stream.next_sequences(stream.filter(()), 1, 3))
    for _ in range(20):
        stream.publish(PublishBatch([b"s.own"], [b"v" * 200]), START_NS).ticket.result()
        while stream.compact_step():
            pass
    assert stream._log.first_place > 0  # noqa: SLF001 - that the front was let go shows nowhere else
    copy.disk.crash(Random(1))
    assert copy.open().position(NAME) == Position(int(batch.sequences[-1]), IDENTITY)


@pytest.mark.long
@BY_KIND
def test_a_copy_is_exact_when_the_power_goes_at_every_change_of_the_disk(kind: str) -> None:
    cut_power_everywhere(kind, stride=1)


def test_positions_are_written_and_read_alike() -> None:
    origins = Origins({NAME: Position(7, IDENTITY), b"\xff x": Position(2**63, b"")})
    assert parse_control(format_control(origins)) == origins


def test_what_was_dealt_with_is_passed_over() -> None:
    stream = Stream.create(None, make())
    batch = origin("source")
    assert stream.copy(batch, START_NS).count == COUNT
    assert stream.copy(batch, START_NS).count == COUNT
    assert stream.last_seq == COUNT
    assert stream.position(NAME) == Position(int(batch.sequences[-1]), IDENTITY)


def test_positions_come_with_messages_that_are_stored_as_they_were() -> None:
    stream = Stream.create(None, replace(make(), sources=(StreamSource("O"),)))
    batch = origin("source")
    stream.store(batch.sequences, batch.times, batch.subjects, batch.headers, batch.payloads)
    assert stream.position(NAME) == Position(int(batch.sequences[-1]), IDENTITY)
    assert stream.copy(batch, START_NS).count == COUNT
    assert stream.state().messages == COUNT


NAMES = st.from_regex(rb"[a-z]+(:[a-z]+)? [a-z.*]+ [a-z.]+", fullmatch=True)


@given(NAMES, st.integers(0, 2**63), st.binary(max_size=8))
def test_sources_format_and_parse(name: bytes, sequence: int, identity: bytes) -> None:
    identity = identity.replace(b" ", b"_")
    value = format_source(name, sequence, b"a.b", identity)
    assert parse_source(value) == (name, Position(sequence, identity))
