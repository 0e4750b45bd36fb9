"""The floor guard: pure, against the plain rule; and on a real server, for all subjects and for some."""

import socket
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.kv import CursorExpired, Overrun
from strandline.kv.nats.bucket_reader import BucketReader
from strandline.nats import Delivered, FloorGuard, JetStreamApi, NatsSocket, OrderedReader, ReadPlan, StreamState
from strandline.nats.cancellation import CancelToken
from strandline.nats.errors import PositionExpired
from strandline.nats.jetstream import Standing
from strandline.nats.push_consumer import PushConsumer
from strandline.nats.settings import NatsSettings
from strandline.protocol import windows
from tests.nats.filling import filled_bucket
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

LIMIT_S = PATIENCE_S


def plain_gap(delivered: int, sentinel: int, awaited: list[int], rows: list[int]) -> int | None:
    """Say before which row something may be missing, row by row, as the model does."""
    for number, row in enumerate(rows):
        left = [one for one in awaited if one > delivered]
        if row > delivered and windows.is_gapped(
            windows.proven_frontier(delivered, sentinel, min(left, default=None)), row
        ):
            return number
        delivered = max(delivered, row)
    return None


@given(st.sets(st.integers(1, 60), min_size=1), st.integers(0, 60), st.integers(0, 60), st.sets(st.integers(1, 60)))
def test_the_guard_sees_the_first_gap_that_the_plain_rule_sees(
    own: set[int], delivered: int, sentinel: int, lost: set[int]
) -> None:
    rows = sorted(one for one in own if one > delivered and one not in lost)
    awaited = sorted(one for one in own if delivered < one <= sentinel)
    guard = FloorGuard(delivered)
    guard.see(sentinel, np.array(sorted(one for one in own if one <= sentinel), np.uint64))
    if rows:
        # A reader that passes over what its sentinel has seen is noticed at the first row behind it.
        assert guard.gap(np.array(rows, np.uint64)) == plain_gap(delivered, sentinel, awaited, rows)
    assert guard.frontier == windows.proven_frontier(delivered, sentinel, min(awaited, default=None))


@given(st.lists(st.integers(1, 100), unique=True, min_size=1).map(sorted), st.integers(0, 50))
def test_a_guard_of_all_subjects_sees_every_skip_once(rows: list[int], delivered: int) -> None:
    guard = FloorGuard(delivered)
    assert guard.gap(np.array(rows, np.uint64)) == plain_gap(delivered, delivered, [], rows)
    guard.deliver(rows[-1])
    assert guard.frontier == max(delivered, rows[-1])
    assert guard.gap(np.array(rows, np.uint64)) is None


def test_the_frontier_only_grows_and_is_open_up_to_the_next_revision() -> None:
    guard = FloorGuard(10)
    frontiers = [guard.frontier]
    guard.see(12, np.array([12], np.uint64))
    frontiers.append(guard.frontier)
    guard.deliver(12)
    frontiers.append(guard.frontier)
    guard.prove(20)
    frontiers.append(guard.frontier)
    assert frontiers == [10, 11, 12, 20]
    assert all(earlier <= later for earlier, later in pairwise(frontiers))
    assert guard.is_open(21)
    assert not guard.is_open(22)
    guard.see(15, np.array([14], np.uint64))
    guard.prove(16)
    assert guard.is_open(14)
    guard.deliver(14)
    assert guard.frontier == 20


def test_a_sentinel_that_begins_anew_tells_again_what_is_awaited() -> None:
    guard, own = FloorGuard(10), np.array([11, 12], np.uint64)
    guard.see(15, own)
    assert guard.frontier == 10
    guard.begin_anew()
    assert guard.frontier == 10
    guard.see(15, own)
    assert guard.gap(own) is None
    guard.deliver(12)
    assert guard.frontier == 15


@pytest.fixture
def settings(nats_server: NatsServer) -> NatsSettings:
    return NatsSettings(nats_server.url, timeout_s=PATIENCE_S)


EVICTING = {"max_bytes": 200_000, "discard": "old", "max_msgs_per_subject": 64, "storage": "memory"}


def plan(overrun: Overrun, **options: int) -> ReadPlan:
    return ReadPlan(stream="", overrun=overrun, heartbeat_s=0.3, backstop_s=0.1, **options)  # type: ignore[arg-type]


def idle(reader: BucketReader, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert reader.read(0.05) is None


@pytest.mark.parametrize("overrun", [Overrun.SENTINEL, Overrun.PROBE])
def test_others_that_come_and_go_are_no_loss(settings: NatsSettings, nats_bucket: str, overrun: Overrun) -> None:
    with filled_bucket(settings, nats_bucket, **EVICTING) as bucket:
        first = bucket.put(["own.a"])
        patient = replace(plan(overrun), heartbeat_s=PATIENCE_S)  # a stall is no lost consumer
        with BucketReader.open(settings, nats_bucket, patient, prefixes=["own."]) as reader:
            batch = reader.read(LIMIT_S)
            assert batch is not None
            assert batch.keys == ["own.a"]
            assert reader.frontier == first
            for _ in range(6):
                # Less than the bucket holds between two looks, more than it holds in all.
                last = bucket.put([f"other.{number}" for number in range(60)], b"v" * 900)
                until = time.monotonic() + LIMIT_S
                while reader.frontier < last:
                    assert time.monotonic() < until, f"{reader.frontier} is proven of {last}"
                    assert reader.read(0.05) is None
                assert reader.frontier == last
            last = bucket.put(["own.b"])
            batch = reader.read(LIMIT_S)
            assert batch is not None
            assert batch.versions.tolist() == [last]
            assert reader.reader.recoveries == 0


@pytest.mark.parametrize("overrun", [Overrun.SENTINEL, Overrun.PROBE])
def test_own_updates_that_are_evicted_unread_are_told(
    settings: NatsSettings, nats_bucket: str, overrun: Overrun
) -> None:
    with filled_bucket(settings, nats_bucket, **EVICTING | {"max_bytes": 2_000_000}) as bucket:
        first = bucket.put(["own.a", "other.a"])
        with BucketReader.open(settings, nats_bucket, plan(overrun, after=first), prefixes=["own."]) as reader:
            for _ in range(40):
                bucket.put([f"{name}.{number}" for number in range(500) for name in ("own", "other")], b"v" * 1000)
            told, expired = read_to_the_end(reader)
    assert told == list(range(first + 1, first + 1 + 2 * len(told), 2))
    assert len(told) < 20_000
    assert expired.first_revision > expired.revision + 1


def read_to_the_end(reader: BucketReader) -> tuple[list[int], CursorExpired]:
    """Read until the cursor has expired, and return what was told before."""
    until = time.monotonic() + LIMIT_S
    told: list[int] = []
    while time.monotonic() < until:
        try:
            batch = reader.read(0.05)
        except CursorExpired as expired:
            return told, expired
        told += [] if batch is None else batch.versions.tolist()
    raise AssertionError("nobody noticed")


def test_a_reader_of_some_subjects_may_go_unwatched(settings: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(settings, nats_bucket, **EVICTING) as bucket:
        first = bucket.put(["own.a"])
        unwatched = replace(plan(Overrun.UNWATCHED, after=first), heartbeat_s=PATIENCE_S)  # a stall is no lost consumer
        with BucketReader.open(settings, nats_bucket, unwatched, prefixes=["own."]) as reader:
            bucket.put([f"other.{number}" for number in range(600)], b"v" * 900)
            idle(reader, 0.5)
            last = bucket.put(["own.b"])
            batch = reader.read(LIMIT_S)
            assert batch is not None
            assert batch.versions.tolist() == [last]
        with pytest.raises(CursorExpired):
            BucketReader.open(settings, nats_bucket, unwatched, prefixes=["own."])


@pytest.mark.parametrize("anew", [False, True], ids=["at the start", "after a lost consumer"])
@pytest.mark.parametrize("overrun", Overrun)
def test_a_stream_that_is_trimmed_between_the_look_and_the_consumer_is_noticed(
    settings: NatsSettings, nats_bucket: str, overrun: Overrun, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look before shows a stream that reaches back; the consumer that is made then begins behind the hole."""
    begin = PushConsumer.begin
    attached: list[PushConsumer] = []
    trimmed: list[int] = []
    told: list[int] = []

    def begin_late(
        settings: NatsSettings, api: JetStreamApi, plan: ReadPlan, start: int | None, cancel: CancelToken
    ) -> PushConsumer:
        if not trimmed and bool(attached) is anew:
            trimmed.append(bucket.put([f"other.{number}" for number in range(494)] + ["own.b"]))
            bucket.purge(seq=trimmed[0])
        attached.append(begin(settings, api, plan, start, cancel))
        return attached[-1]

    def read() -> None:
        with BucketReader.open(settings, nats_bucket, plan(overrun, after=cursor), prefixes=["own."]) as reader:
            bucket.api.delete_consumer(bucket.stream, attached[0].name)
            until = time.monotonic() + LIMIT_S
            while not told and time.monotonic() < until:
                batch = reader.read(0.05)
                told.extend([] if batch is None else batch.versions.tolist())

    monkeypatch.setattr(PushConsumer, "begin", staticmethod(begin_late))
    with filled_bucket(settings, nats_bucket, **EVICTING) as bucket:
        cursor = bucket.put([f"own.{number}" for number in range(5)])
        with pytest.raises(CursorExpired) as expired:
            read()
    assert not told, "nothing behind the hole was handed out"
    assert (trimmed, expired.value.revision, expired.value.first_revision) == ([500], cursor, 500)


def test_a_sentinel_sees_what_is_written_to_others_as_it_is_written(settings: NatsSettings, nats_bucket: str) -> None:
    with (
        filled_bucket(settings, nats_bucket) as bucket,
        BucketReader.open(settings, nats_bucket, plan(Overrun.SENTINEL), prefixes=["own.", "mine."]) as reader,
    ):
        told = []
        for number in range(20):
            keys = [f"{name}.{number}" for name in ("own", "other", "mine", "last")]
            last = bucket.put(keys)
            until = time.monotonic() + LIMIT_S
            while reader.frontier < last:
                assert time.monotonic() < until
                batch = reader.read(0.05)
                told += [] if batch is None else batch.keys
        assert told == [f"{name}.{number}" for number in range(20) for name in ("own", "mine")]


class Api:
    """Answers that a stream begins at a revision."""

    def __init__(self, first: int, standing: tuple[int, int] = (0, 0)) -> None:
        self.connection = NatsSocket(socket.socket(), NatsSettings())
        self._first = first
        self._standing = standing

    def stream(self, name: str) -> StreamState:
        return StreamState(name=name, created="now", first=self._first, last=1000, messages=10, subjects=("a.>", "b.>"))

    def consumer_standing(self, _stream: str, _consumer: str) -> Standing:
        return Standing(*self._standing)


class Delivery:
    """Delivers some sequences, once."""

    pending = 0
    number = 0
    name = "c"

    def __init__(self, sequences: list[int] | None = None) -> None:
        self._left = [] if sequences is None else [sequences]

    def receive(self, _timeout_s: float) -> Delivered | None:
        if not self._left:
            return None
        rows = self._left.pop()
        column = pa.array([b"x"] * len(rows), pa.binary())
        return Delivered(column, np.array(rows, np.uint64), column, None, None, 0)

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("sequences", "first", "told"),
    [
        ([1, 2, 3], 900, [1, 2, 3]),
        ([1, 2, 3, 7, 8], 3, [1, 2, 3, 7, 8]),
        ([1, 2, 3, 7, 8], 4, [1, 2, 3, 7, 8]),
        ([1, 2, 3, 7, 8], 5, [1, 2, 3]),
        ([2, 3], 1, [2, 3]),
        ([2, 3], 2, []),
    ],
)
def test_what_came_before_a_gap_is_told_before_the_cursor_expires(
    sequences: list[int], first: int, told: list[int]
) -> None:
    api = Api(first)
    reader = OrderedReader(NatsSettings(), ReadPlan(stream="KV_b", after=0), api, api.stream("KV_b"))  # type: ignore[arg-type]
    reader._attachment = Delivery(sequences)  # type: ignore[assignment]  # noqa: SLF001 - in place of a server
    reader._goal = 1000  # noqa: SLF001 - the same
    if told:
        delivered = reader.read(0.0)
        assert delivered is not None
        assert delivered.sequences.tolist() == told
        assert reader.is_current == (told == sequences)
    if told != sequences:
        with pytest.raises(PositionExpired) as expired:
            reader.read(0.0)
        assert expired.value.sequence == max(told, default=0)
    reader.close()


@pytest.mark.parametrize(("standing", "proven"), [((0, 0), 1000), ((3, 0), 5), ((0, 1), 5)])
def test_a_probe_proves_nothing_while_something_waits_or_is_on_its_way(standing: tuple[int, int], proven: int) -> None:
    api = Api(5, standing)
    some = ReadPlan(stream="KV_b", filters=("a.>",), after=5, backstop_s=0.0)
    reader = OrderedReader(NatsSettings(), some, api, api.stream("KV_b"))  # type: ignore[arg-type]
    reader._attachment = Delivery()  # type: ignore[assignment]  # noqa: SLF001 - in place of a server
    frontiers = []
    for _ in range(3):
        assert reader.read(0.0) is None
        frontiers.append(reader.frontier)
    # Only the second look proves, and what was the end at the first.
    assert frontiers == [5, proven, proven]
    reader.close()
