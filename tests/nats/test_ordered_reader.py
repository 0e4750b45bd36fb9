"""Readers whose connections are cut and stalled, whose consumers vanish and whose servers are killed."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from strandline.errors import Closed, Unavailable
from strandline.kv import BucketNotFound, BucketPurged, BucketReplaced, CursorExpired, NoAnswer, Overrun, UpdateBatch
from strandline.kv.nats.bucket_reader import BucketReader
from strandline.nats import JetStreamApi, NatsSocket, ReadPlan, StreamState
from strandline.nats.errors import Unreachable
from strandline.nats.jetstream import Standing
from strandline.nats.settings import NatsSettings
from tests.nats.filling import DELETED, Filler, filled_bucket
from tests.nats.proxy import Proxy, random_cuts, running_proxy
from tests.servers_nats import SYNC_ALWAYS, NatsCluster, NatsServer, running_nats
from tests.waiting import PATIENCE_S, eventually

LIMIT_S = PATIENCE_S
QUICK = ReadPlan(stream="", heartbeat_s=0.2, backstop_s=0.3, outage_s=LIMIT_S)


@pytest.fixture
def direct(nats_server: NatsServer) -> NatsSettings:
    return NatsSettings(nats_server.url, timeout_s=LIMIT_S)


@pytest.fixture
def proxy(nats_server: NatsServer) -> Iterator[Proxy]:
    with running_proxy(nats_server.port) as found:
        yield found


def follow(reader: BucketReader, revision: int) -> UpdateBatch:
    """Read up to a revision, with reads that are shorter than what may go wrong."""
    give_up = time.monotonic() + LIMIT_S
    batches = []
    while reader.position < revision:
        assert time.monotonic() < give_up, f"it stays at {reader.position}"
        batch = reader.read(0.1)
        batches += [] if batch is None else [batch]
    return UpdateBatch.concat(batches)


def read_until(reader: BucketReader, holds: Callable[[], bool]) -> None:
    """Read, whatever comes, until something holds."""
    give_up = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < give_up, f"the frontier stays at {reader.frontier}"
        reader.read(0.1)


def open_at_last(settings: NatsSettings, bucket: str, plan: ReadPlan, prefixes: Sequence[str] = ("",)) -> BucketReader:
    """Open a reader, however often its first connections are cut."""
    while True:
        try:
            return BucketReader.open(settings, bucket, plan, prefixes=prefixes)
        except Unavailable:
            continue


def expect(reader: BucketReader, error: type[Exception], within_s: float = LIMIT_S) -> list[UpdateBatch]:
    """Read until an error comes, and return what came before it."""
    give_up = time.monotonic() + within_s
    batches: list[UpdateBatch] = []
    while time.monotonic() < give_up:
        try:
            batch = reader.read(0.1)
        except error:
            break
        batches += [] if batch is None else [batch]
    with pytest.raises(error):
        reader.read(0.1)
    return batches


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("history", "options"),
    [(3, {"after": 0}), (1, {}), (3, {"exact_state": True}), (3, {})],
    ids=["resumed", "state", "exact-state", "state-with-history"],
)
def test_connections_that_are_cut_anywhere_lose_and_repeat_nothing(
    direct: NatsSettings, proxy: Proxy, nats_bucket: str, seed: int, history: int, options: dict[str, Any]
) -> None:
    chance = random.Random(seed)
    settings = NatsSettings(proxy.url, timeout_s=LIMIT_S)
    with filled_bucket(direct, nats_bucket, max_msgs_per_subject=history) as bucket:
        bucket.put(["never.overwritten"])
        for _ in range(20):
            value = chance.randbytes(chance.choice((3, 40, 700)))
            last = bucket.put([f"k{chance.randrange(1000)}" for _ in range(300)], value)
        proxy.cut_after = random_cuts(seed, 900_000 if "exact_state" in options else 200_000)
        plan = ReadPlan(stream="", heartbeat_s=0.2, outage_s=LIMIT_S, **options)
        with open_at_last(settings, nats_bucket, plan) as reader:
            told = follow(reader, last)
            assert reader.reader.recoveries > 0 or "exact_state" in options
        # A stall is no lost consumer.
        with BucketReader.open(direct, nats_bucket, replace(plan, heartbeat_s=LIMIT_S)) as whole:
            expected = follow(whole, last)
            assert whole.reader.recoveries == 0
        if history > 1 and not options:
            # Older values that the bucket still has may come too, each before the newer one.
            assert (np.diff(told.versions) > 0).all()
            assert dict(zip(told.keys, told.to_updates(), strict=True)) == dict(
                zip(expected.keys, expected.to_updates(), strict=True)
            )
        else:
            assert told == expected


def test_writes_while_connections_are_cut_come_once_each(direct: NatsSettings, proxy: Proxy, nats_bucket: str) -> None:
    settings = NatsSettings(proxy.url, timeout_s=LIMIT_S)
    with (
        filled_bucket(direct, nats_bucket, max_msgs_per_subject=64) as bucket,
        BucketReader.open(settings, nats_bucket, QUICK) as reader,
    ):
        batches = []
        for number in range(30):
            last = bucket.put([f"k{number}.{row}" for row in range(50)])
            batches.append(follow(reader, last - 20))
            if number % 3 == 0:
                proxy.cut_all()
        batches.append(follow(reader, last))
        told = UpdateBatch.concat(batches)
        assert told.versions.tolist() == list(range(1, last + 1))
        assert told.keys == [f"k{number}.{row}" for number in range(30) for row in range(50)]
        assert reader.reader.recoveries >= 10


def test_a_consumer_that_is_deleted_is_made_again(direct: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(direct, nats_bucket) as bucket, BucketReader.open(direct, nats_bucket, QUICK) as reader:
        follow(reader, bucket.put(["a"]))
        for name in bucket.api.call(f"CONSUMER.NAMES.{bucket.stream}", {}, bucket.stream)["consumers"]:
            bucket.api.delete_consumer(bucket.stream, name)
        last = bucket.put(["b"])
        assert follow(reader, last).keys == ["b"]
        assert reader.reader.recoveries >= 1


def test_a_connection_that_stalls_is_given_up_and_goes_on(direct: NatsSettings, proxy: Proxy, nats_bucket: str) -> None:
    settings = NatsSettings(proxy.url, timeout_s=1.0)
    with filled_bucket(direct, nats_bucket) as bucket, BucketReader.open(settings, nats_bucket, QUICK) as reader:
        follow(reader, bucket.put(["a"]))
        with proxy.stalled():
            last = bucket.put(["b"])
            give_up = time.monotonic() + LIMIT_S
            while not reader.reader.recoveries:
                assert time.monotonic() < give_up, "nobody noticed"
                assert reader.read(0.1) is None
        assert follow(reader, last).keys == ["b"]


def test_a_server_that_is_killed_and_comes_back_is_read_on(nats_bucket: str) -> None:
    with running_nats(jetstream=SYNC_ALWAYS) as server:
        settings = NatsSettings(server.url, timeout_s=LIMIT_S)
        with filled_bucket(settings, nats_bucket, max_msgs_per_subject=64) as bucket:
            first = bucket.put([f"k{number}" for number in range(500)])
        with BucketReader.open(settings, nats_bucket, QUICK) as reader:
            told = [follow(reader, first)]
            for _ in range(2):
                server.kill()
                assert reader.read(0.2) is None
                server.start()
                with filled_bucket(settings, nats_bucket, max_msgs_per_subject=64) as bucket:
                    last = bucket.put(["x", "y"])
                told.append(follow(reader, last))
            assert reader.reader.recoveries >= 2
        assert UpdateBatch.concat(told).versions.tolist() == list(range(1, last + 1))


def test_a_server_that_stays_away_is_told_after_the_outage_limit(nats_bucket: str) -> None:
    with running_nats() as server:
        settings = NatsSettings(server.url, timeout_s=LIMIT_S)
        with filled_bucket(settings, nats_bucket) as bucket:
            first = bucket.put(["a"])
        plan = ReadPlan(stream="", heartbeat_s=0.2, outage_s=0.5)
        with BucketReader.open(settings, nats_bucket, plan) as reader:
            follow(reader, first)
            server.kill()
            began = time.monotonic()
            expect(reader, Unreachable)
            assert 0.4 < time.monotonic() - began < PATIENCE_S


def test_a_bucket_that_is_deleted_is_not_found(direct: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(direct, nats_bucket) as bucket, BucketReader.open(direct, nats_bucket, QUICK) as reader:
        follow(reader, bucket.put(["a"]))
        bucket.delete()
        expect(reader, BucketNotFound)


def test_a_bucket_that_is_made_again_is_another(direct: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(direct, nats_bucket) as bucket, BucketReader.open(direct, nats_bucket, QUICK) as reader:
        last = bucket.put(["a", "b"])
        follow(reader, last)
        identity = reader.retention.identity
        bucket.delete()
        bucket.create()
        bucket.put(["c", "d", "e"])
        assert expect(reader, BucketReplaced) == []
        with pytest.raises(BucketReplaced):
            BucketReader.open(direct, nats_bucket, ReadPlan(stream="", after=last, identity=identity))
        BucketReader.open(direct, nats_bucket, ReadPlan(stream="", after=last)).close()


def test_a_bucket_that_is_purged_is_told(direct: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(direct, nats_bucket) as bucket, BucketReader.open(direct, nats_bucket, QUICK) as reader:
        follow(reader, bucket.put(["a", "b"]))
        bucket.purge()
        expect(reader, BucketPurged)
        again = ReadPlan(stream="", after=2, heartbeat_s=0.2, backstop_s=0.1)
        with BucketReader.open(direct, nats_bucket, again) as after:
            assert after.read(0.5) is None
            assert follow(after, bucket.put(["c"])).keys == ["c"]


@pytest.mark.parametrize("backstop_s", [0.3, 60.0], ids=["looking from time to time", "in band only"])
def test_a_reader_that_does_not_read_is_overrun_and_says_so(
    direct: NatsSettings, nats_bucket: str, backstop_s: float
) -> None:
    limits = {"max_bytes": 2_000_000, "discard": "old", "max_msgs_per_subject": 64, "storage": "memory"}
    with (
        filled_bucket(direct, nats_bucket, **limits) as bucket,
        BucketReader.open(direct, nats_bucket, replace(QUICK, heartbeat_s=5.0, backstop_s=backstop_s)) as reader,
    ):
        follow(reader, bucket.put(["a"]))
        bucket.put(["a"], b"", DELETED)
        for _ in range(40):
            bucket.put([f"b{number}" for number in range(1000)], b"v" * 1000)
        before = expect(reader, CursorExpired)
        told = [version for batch in before for version in batch.versions.tolist()]
        assert told == list(range(2, 2 + len(told)))
        assert len(told) < 40_001
        with pytest.raises(CursorExpired) as expired:
            reader.read(0.1)
        # Everything up to the gap was told before it.
        assert expired.value.revision == reader.position == told[-1]


def test_a_look_at_the_stream_that_fails_loses_nothing(
    direct: NatsSettings, nats_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled_bucket(direct, nats_bucket) as bucket:
        bucket.put(["first", *(f"k{number}" for number in range(3000))])
        last = bucket.put([f"k{number}" for number in range(100, 3000, 100)])
        with BucketReader.open(direct, nats_bucket, replace(QUICK, after=1)) as reader:
            answers = JetStreamApi.stream
            failures = iter([True] * 3)

            def unanswered(api: JetStreamApi, name: str, *, timeout_s: float | None = None) -> StreamState:
                if next(failures, False):
                    raise NoAnswer("a look", 0.0)
                return answers(api, name, timeout_s=timeout_s)

            monkeypatch.setattr(JetStreamApi, "stream", unanswered)
            told = follow(reader, last)
            assert reader.reader.recoveries > 0
        overwritten = {number + 2 for number in range(100, 3000, 100)}
        assert told.versions.tolist() == [version for version in range(2, last + 1) if version not in overwritten]


class Replicas(list[int]):
    """How far the leader, "one", is from what the consumer's member has; the last distance stays."""

    member = "two"
    in_step = True
    """Whether the leader says that the other members have its whole log."""
    looks = 0
    asked = 0


@pytest.fixture
def replicated(monkeypatch: pytest.MonkeyPatch) -> Replicas:
    """Have each stream say that it has replicas."""
    distances = Replicas([0])

    class OfReplicas(JetStreamApi):
        def stream(self, name: str, *, timeout_s: float | None = None) -> StreamState:
            state = super().stream(name, timeout_s=timeout_s)
            distance = distances.pop(0) if len(distances) > 1 else distances[0]
            distances.asked += 1
            return replace(
                state,
                replicas=3,
                first=max(state.first + min(distance, 0), 1),
                last=state.last + distance,
                leader="one",
                in_step=("two", "three") if distances.in_step else (),
            )

        def consumer_standing(self, stream: str, consumer: str, *, timeout_s: float | None = None) -> Standing | None:
            told = super().consumer_standing(stream, consumer, timeout_s=timeout_s)
            distances.looks += 1
            return told and replace(told, member=distances.member)

    monkeypatch.setattr("strandline.nats.ordered_reader.JetStreamApi", OfReplicas)
    return distances


@pytest.mark.parametrize("seen_by", ["a look", "a new consumer", "a reader that begins"])
def test_a_leader_that_has_yet_to_apply_what_a_member_delivered_is_waited_for(
    direct: NatsSettings, proxy: Proxy, nats_bucket: str, replicated: Replicas, seen_by: str
) -> None:
    settings = NatsSettings(proxy.url, timeout_s=LIMIT_S)
    with filled_bucket(direct, nats_bucket) as bucket:
        bucket.put(["a"])
        last = bucket.put(["b"])
        if seen_by == "a reader that begins":
            replicated[:] = [0, -1, -1, 0]
            with BucketReader.open(direct, nats_bucket, replace(QUICK, after=last)) as reader:
                assert not replicated[1:]
                assert reader.position == last
            return
        with BucketReader.open(settings, nats_bucket, replace(QUICK, after=0)) as reader:
            follow(reader, last)
            replicated[:] = [-1, -1, -1, 0]
            if seen_by == "a new consumer":
                proxy.cut_all()
            give_up = time.monotonic() + LIMIT_S
            while len(replicated) > 1:
                assert time.monotonic() < give_up, "nobody looks at the stream"
                assert reader.read(0.1) is None
            replicated[:] = [0]
            assert follow(reader, bucket.put(["c"])).keys == ["c"]


def test_what_a_member_had_evicted_is_told_though_the_leader_has_yet_to_evict_it(
    direct: NatsSettings, nats_bucket: str, replicated: Replicas
) -> None:
    with filled_bucket(direct, nats_bucket, max_msgs=10, discard="old") as bucket:
        bucket.put([f"k{number}" for number in range(30)])
        replicated[:] = [-8] * 6 + [0]
        with BucketReader.open(direct, nats_bucket, replace(QUICK, after=15)) as reader:
            assert not expect(reader, CursorExpired)
    assert not replicated[1:]


@pytest.mark.parametrize("overrun", [Overrun.SENTINEL, Overrun.PROBE])
def test_what_a_member_had_evicted_is_told_to_a_watch_of_a_prefix_too(
    direct: NatsSettings, nats_bucket: str, replicated: Replicas, overrun: Overrun
) -> None:
    plan = replace(QUICK, after=15, overrun=overrun)
    with filled_bucket(direct, nats_bucket, max_msgs=10, discard="old") as bucket:
        bucket.put([f"{'own' if number == 16 else 'other'}.{number}" for number in range(1, 31)])
        replicated[:] = [-8] * 6 + [0]
        with BucketReader.open(direct, nats_bucket, plan, prefixes=["own."]) as reader:
            assert not expect(reader, CursorExpired)
    assert not replicated[1:]


def test_a_leader_that_is_behind_does_not_keep_a_read_beyond_its_limit(
    direct: NatsSettings, nats_bucket: str, replicated: Replicas
) -> None:
    with filled_bucket(direct, nats_bucket) as bucket:
        last = bucket.put(["a", "b"])
        with BucketReader.open(direct, nats_bucket, replace(QUICK, after=0)) as reader:
            follow(reader, last)
            replicated[:] = [-1]
            replicated.asked = 0
            read_until(reader, lambda: reader.reader.recoveries > 0)
            assert replicated.asked < 20
            replicated[:] = [0]
            assert follow(reader, bucket.put(["c"])).keys == ["c"]


def test_another_stream_is_not_waited_for(direct: NatsSettings, nats_bucket: str, replicated: Replicas) -> None:
    with filled_bucket(direct, nats_bucket) as bucket:
        last = bucket.put(["a", "b"])
        with BucketReader.open(direct, nats_bucket, replace(QUICK, after=0)) as reader:
            follow(reader, last)
            bucket.delete()
            bucket.create()
            replicated.asked = 0
            expect(reader, BucketReplaced)
            assert replicated.asked == 1


def test_a_stream_that_ends_before_what_was_delivered_has_lost_it(
    direct: NatsSettings, nats_bucket: str, replicated: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.nats.ordered_reader.LAG_S", 0.3)
    with filled_bucket(direct, nats_bucket) as bucket:
        last = bucket.put(["a", "b"])
        with BucketReader.open(direct, nats_bucket, replace(QUICK, after=0)) as reader:
            follow(reader, last)
            replicated[:] = [-1]
            expect(reader, CursorExpired)


@pytest.mark.parametrize("begins", [{"after": 0}, {}], ids=["resumed", "state"])
def test_what_a_leader_has_before_the_consumer_s_member_is_not_taken_for_delivered(
    direct: NatsSettings, proxy: Proxy, nats_bucket: str, replicated: Replicas, begins: dict[str, Any]
) -> None:
    """The member where the consumer is has nothing to send, for it has not applied what the leader has."""
    settings = NatsSettings(proxy.url, timeout_s=LIMIT_S)
    plan = replace(QUICK, backstop_s=LIMIT_S, **begins)
    with filled_bucket(direct, nats_bucket) as bucket:
        other = bucket.put(["other.a"])
        replicated[:] = [5]
        with BucketReader.open(settings, nats_bucket, plan, prefixes=["own."]) as reader:
            assert not reader.is_current
            read_until(reader, lambda: reader.is_current)
            assert reader.frontier == 0
            proxy.cut_all()
            late = bucket.put(["own.a"])
            assert late <= other + 5
            assert follow(reader, late).keys == ["own.a"]
        # Two looks, with a time between them in which a member catches up, are proof.
        replicated[:] = [0]
        with BucketReader.open(direct, nats_bucket, replace(plan, backstop_s=0.05), prefixes=["own."]) as reader:
            last = bucket.put(["other.b"])
            read_until(reader, lambda: reader.frontier >= last)


@pytest.mark.parametrize("begins", [{"after": 0}, {}], ids=["resumed", "state"])
def test_of_a_member_that_lags_nothing_is_taken_for_delivered_however_long(
    direct: NatsSettings, nats_bucket: str, replicated: Replicas, begins: dict[str, Any]
) -> None:
    plan = replace(QUICK, backstop_s=0.05, **begins)
    with filled_bucket(direct, nats_bucket) as bucket:
        bucket.put(["own.a"])
        last = bucket.put(["other.a"])
        replicated[:], replicated.in_step = [5], False
        with BucketReader.open(direct, nats_bucket, plan, prefixes=["own."]) as reader:
            read_until(reader, lambda: replicated.looks >= 5)
            assert not reader.is_current
            assert (reader.position, reader.frontier) == (1, 1)
        late = bucket.put(["own.b"])
        assert late <= last + 5
        with BucketReader.open(direct, nats_bucket, replace(plan, after=1), prefixes=["own."]) as reader:
            assert follow(reader, late).keys == ["own.b"]
            last = bucket.put(["other.b"])
            replicated[:], replicated.in_step = [0], True
            read_until(reader, lambda: reader.is_current and reader.frontier >= last)


def test_what_the_leader_delivers_needs_no_second_look_to_be_current(
    direct: NatsSettings, nats_bucket: str, replicated: Replicas
) -> None:
    replicated.member, replicated.in_step = "one", False
    with filled_bucket(direct, nats_bucket) as bucket:
        last = bucket.put(["own.a", "other.a"])
        plan = replace(QUICK, backstop_s=0.05)
        with BucketReader.open(direct, nats_bucket, plan, prefixes=["own."]) as reader:
            assert follow(reader, 1).keys == ["own.a"]
            read_until(reader, lambda: reader.is_current)
            assert replicated.looks == 1
            read_until(reader, lambda: reader.frontier >= last)


@pytest.mark.parametrize("overrun", Overrun)
def test_the_cursor_of_every_watch_reaches_the_end_of_a_replicated_state(
    direct: NatsSettings, nats_bucket: str, replicated: Replicas, overrun: Overrun
) -> None:
    plan = replace(QUICK, backstop_s=0.05, overrun=overrun)
    with filled_bucket(direct, nats_bucket) as bucket:
        last = bucket.put(["own.a", "other.a", "other.b"])
        with BucketReader.open(direct, nats_bucket, plan, prefixes=["own."]) as reader:
            read_until(reader, lambda: reader.frontier >= last)
            assert reader.position == 1
        assert replicated.looks


def test_a_member_that_does_not_answer_is_not_in_step(nats_cluster: NatsCluster, nats_bucket: str) -> None:
    settings = NatsSettings(nats_cluster.urls, timeout_s=LIMIT_S)
    with filled_bucket(settings, nats_bucket, num_replicas=3) as bucket:
        leader, (silent, other) = nats_cluster.leader_of(bucket.stream), nats_cluster.followers_of(bucket.stream)
    with closing(NatsSocket.connect(NatsSettings(leader.url, timeout_s=LIMIT_S))) as connection:
        api = JetStreamApi(connection, "$JS.API")
        told = partial(api.stream, f"KV_{nats_bucket}")
        eventually(lambda: set(told().in_step) == {silent.name, other.name}, "both followers are in step")
        assert told().leader == leader.name
        with silent.frozen():
            connection.request(f"$KV.{nats_bucket}.a", b"-")
            assert silent.name not in told().in_step
        eventually(lambda: silent.name in told().in_step, "the follower is in step again")


@pytest.mark.parametrize("seed", range(3))
def test_a_sentinel_that_is_cut_off_begins_anew(
    direct: NatsSettings, proxy: Proxy, nats_bucket: str, seed: int
) -> None:
    settings = NatsSettings(proxy.url, timeout_s=LIMIT_S)
    plan = replace(QUICK, after=0, overrun=Overrun.SENTINEL)
    with filled_bucket(direct, nats_bucket, max_msgs_per_subject=64) as bucket:
        proxy.cut_after = random_cuts(seed, 150_000)
        with open_at_last(settings, nats_bucket, plan, prefixes=["own."]) as reader:
            told = []
            for number in range(20):
                last = bucket.put([f"{name}.{number}.{row}" for row in range(100) for name in ("own", "other")])
                told.append(follow(reader, last - 1))
            assert reader.reader.recoveries > 0
            give_up = time.monotonic() + LIMIT_S
            while reader.frontier < last:
                assert time.monotonic() < give_up
                reader.read(0.1)
        assert UpdateBatch.concat(told).versions.tolist() == list(range(1, last + 1, 2))


def test_a_sentinel_does_not_hide_that_heartbeats_stop(direct: NatsSettings, nats_bucket: str) -> None:
    plan = replace(QUICK, overrun=Overrun.SENTINEL, backstop_s=60.0)
    with (
        filled_bucket(direct, nats_bucket) as bucket,
        BucketReader.open(direct, nats_bucket, plan, prefixes=["own."]) as reader,
    ):
        follow(reader, bucket.put(["own.a"]))
        for name in bucket.api.call(f"CONSUMER.NAMES.{bucket.stream}", {}, bucket.stream)["consumers"]:
            bucket.api.delete_consumer(bucket.stream, name)
        assert follow(reader, bucket.put(["own.b"])).keys == ["own.b"]


def test_overwritten_values_within_reach_are_no_loss(direct: NatsSettings, nats_bucket: str) -> None:
    with filled_bucket(direct, nats_bucket) as bucket:
        bucket.put(["first", *(f"k{number}" for number in range(100))])
        plan = ReadPlan(stream="", after=1, heartbeat_s=0.2, backstop_s=0.1)
        bucket.put([f"k{number}" for number in range(0, 100, 2)])
        with BucketReader.open(direct, nats_bucket, plan) as reader:
            told = follow(reader, 151)
            assert len(told) == 100
            assert reader.read(0.4) is None


@pytest.mark.long
def test_a_reader_outlives_the_leader_of_its_stream(nats_cluster: NatsCluster, nats_bucket: str) -> None:
    settings = NatsSettings(tuple(nats_cluster.urls), timeout_s=15.0)
    plan = ReadPlan(stream="", heartbeat_s=0.5, backstop_s=1.0, outage_s=LIMIT_S)
    with filled_bucket(settings, nats_bucket, num_replicas=3, max_msgs_per_subject=64) as bucket:
        first = bucket.put([f"k{number}" for number in range(200)])
    with BucketReader.open(settings, nats_bucket, plan) as reader:
        told = [follow(reader, first)]
        nats_cluster.leader_of(f"KV_{nats_bucket}").kill()
        began = time.monotonic()
        with open_filler(settings, nats_bucket) as bucket:
            last = bucket.put(["after"])
        told.append(follow(reader, last))
        assert time.monotonic() - began < PATIENCE_S
    whole = UpdateBatch.concat(told)
    assert whole.versions.tolist() == list(range(1, last + 1))
    assert whole.keys[-1] == "after"


@contextmanager
def open_filler(settings: NatsSettings, bucket: str) -> Iterator[Filler]:
    """Fill a bucket that exists, as soon as a server answers for it."""
    give_up = time.monotonic() + LIMIT_S
    while time.monotonic() < give_up:
        with suppress(Unavailable), NatsSocket.connect(settings) as connection:
            filler = Filler(JetStreamApi(connection, settings.api_prefix), f"KV_{bucket}", f"$KV.{bucket}.")
            assert filler.last
            yield filler
            return
        time.sleep(0.05)


def test_a_reader_that_waits_for_a_silent_server_is_closed_at_once(
    direct: NatsSettings, proxy: Proxy, nats_bucket: str
) -> None:
    settings = NatsSettings(proxy.url, timeout_s=2 * LIMIT_S)
    with filled_bucket(direct, nats_bucket) as bucket, BucketReader.open(settings, nats_bucket, QUICK) as reader:
        follow(reader, bucket.put(["a"]))
        with proxy.stalled():
            proxy.cut_all()
            closing = threading.Thread(target=close_while_it_recovers, args=(reader,))
            closing.start()
            began = time.monotonic()
            with pytest.raises(Closed):
                reader.read(2 * LIMIT_S)
            assert reader.reader.recoveries == 1
            assert time.monotonic() - began < PATIENCE_S
            closing.join()


def close_while_it_recovers(reader: BucketReader) -> None:
    eventually(lambda: reader.reader.recoveries)
    time.sleep(0.1)  # so that it waits for an answer; it is closed as well if it does not yet
    reader.close()
