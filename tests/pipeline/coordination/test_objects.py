"""Coordination over objects: whoever dies between two requests, and whatever answer is lost, a plan is whole."""

import random
from collections.abc import Callable

import pytest

from strandline.errors import Damaged, UnknownOutcome
from strandline.objects import MemoryObjects, ObjectStore, RequestCounts, WriteUnknown
from strandline.objects.counted import CountedObjects
from strandline.pipeline.coordination import Coordinator, NoneAvailable
from strandline.pipeline.coordination.object_records import (
    Envelope,
    Intent,
    format_envelope,
    format_intent,
    format_run_key,
    format_shard_key,
    parse_envelope,
    parse_intent,
    parse_run_key,
    parse_shard_key,
)
from strandline.pipeline.coordination.objects import ObjectRecords
from strandline.protocol.errors import RunNotFound, ShardNotFound
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import Progress
from strandline.protocol.shards import Cursor, ParkReason, RunKey, ShardKey
from strandline.testing.coordination_helpers import CUT, HALVES, LEASE_TTL_NS, NOW, RUN, WHOLE, begin, take
from tests.pipeline.lake.faulty import Killed, Mortal, losing_answers

SHARD = ShardKey(*RUN, 1)


def coordinator_over(store: ObjectStore) -> Coordinator:
    return Coordinator(ObjectRecords(store), lease_ttl_ns=LEASE_TTL_NS, pause=lambda _: None)


def split(it: Coordinator) -> None:
    it.split_replace(NOW, take(it, SHARD), HALVES, 11)


def split_off(it: Coordinator) -> None:
    it.split_residual(NOW, take(it, SHARD), CUT, 11)


def unpark(it: Coordinator) -> None:
    it.park_shard(NOW, take(it, SHARD), ParkReason.OTHER, 11)
    it.unpark_shard(NOW, SHARD, 12)


def finish(it: Coordinator) -> None:
    it.complete(NOW, take(it, SHARD), Cursor(b"c"), 11)
    it.complete_run(NOW, RUN, 12)


STORIES: dict[str, Callable[[Coordinator], None]] = {
    "split": split,
    "split off": split_off,
    "unpark": unpark,
    "finish": finish,
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("story", STORIES)
def test_a_process_that_dies_at_any_request_leaves_all_of_a_plan_or_nothing(story: str, *, after: bool) -> None:
    """Another process sees only whole plans, and the same calls lead to the same end as undisturbed ones."""
    whole = MemoryObjects()
    counted = Mortal(whole, None)
    begin(coordinator_over(counted), WHOLE)
    before = counted.writes
    STORIES[story](coordinator_over(counted))
    wanted = coordinator_over(whole).progress(RUN)
    for number in range(1, counted.writes - before + 1):
        store = MemoryObjects()
        begin(coordinator_over(store), WHOLE)
        with pytest.raises(Killed):
            STORIES[story](coordinator_over(Mortal(store, number, after=after)))
        survivor = coordinator_over(store)
        seen = survivor.progress(RUN)
        shards = survivor.list_shards(RUN)
        assert Progress(*seen) in {Progress(1), Progress(0, 1), Progress(2, 0, 1), Progress(2), Progress(0, 0, 0, 1)}
        assert seen.split == 0 or len(shards) == 3
        for shard in shards:  # what is listed can be loaded, and the other way round
            assert survivor.get_shard(shard.key) == shard
        if story != "finish":
            continue
        if seen.active:
            survivor.complete(NOW + LEASE_TTL_NS, take(survivor, SHARD, NOW + LEASE_TTL_NS), Cursor(b"c"), 13)
        survivor.complete_run(NOW + LEASE_TTL_NS, RUN, 12)
        assert survivor.progress(RUN) == wanted


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_unpark_that_was_interrupted_is_finished_or_forgotten_by_whoever_reads_the_run(*, after: bool) -> None:
    for number in range(1, 5):
        store = MemoryObjects()
        begin(coordinator_over(store), WHOLE)
        parking = coordinator_over(store)
        parking.park_shard(NOW, take(parking, SHARD), ParkReason.OTHER, 11)
        mortal = Mortal(store, number, after=after)
        try:
            coordinator_over(mortal).unpark_shard(NOW, SHARD, 12)
        except Killed:
            pass
        else:
            assert number > 3
        again = coordinator_over(store)
        again.get_run(RUN)
        state = again.progress(RUN)
        outcome = again.unpark_shard(NOW, SHARD, 12)  # the same operation, by another process: done once
        assert outcome.at == NOW
        assert (again.get_shard(SHARD).fence, again.progress(RUN)) == (2, Progress(1))
        assert state in (Progress(0, 0, 0, 1), Progress(1))


def test_a_part_of_a_split_that_failed_is_nobodys() -> None:
    store = MemoryObjects()
    begin(coordinator_over(store), WHOLE)
    with pytest.raises(Killed):
        split(coordinator_over(Mortal(store, 4)))  # the claim, two parts, and then the parent
    it = coordinator_over(store)
    listed = [parse_shard_key(info.key) for info in store.list("coordination/shards/")]
    assert len(listed) == 3
    assert it.progress(RUN) == Progress(1)
    for key in listed:
        if key != SHARD:
            with pytest.raises(ShardNotFound):
                it.get_shard(key)
    later = NOW + LEASE_TTL_NS
    it.split_replace(later, take(it, SHARD, later), HALVES, 21)
    assert it.progress(RUN) == Progress(2, 0, 1)


def test_a_part_that_its_parent_names_and_that_is_gone_is_damage() -> None:
    store = MemoryObjects()
    begin(coordinator_over(store), WHOLE)
    split(coordinator_over(store))
    gone = max(info.key for info in store.list("coordination/shards/") if parse_shard_key(info.key) != SHARD)
    store.delete(gone)
    questions: list[Callable[[Coordinator], object]] = [
        lambda it: it.progress(RUN),
        lambda it: it.list_shards(RUN),
        lambda it: it.complete_run(NOW, RUN, 12),
    ]
    for ask in questions:
        with pytest.raises(Damaged, match=gone) as caught:
            ask(coordinator_over(store))
        assert "restore the object" in str(caught.value.hint)


def test_a_claim_is_undone_when_its_run_ended_meanwhile() -> None:
    store = MemoryObjects()
    begin(coordinator_over(store), WHOLE)

    class Cancels(Mortal):
        def put(self, key: str, *args: object, **options: object) -> str:
            if key.startswith("coordination/shards/") and not self.writes:
                self.writes += 1
                coordinator_over(store).cancel_run(NOW, RUN, 31)
            return self._store.put(key, *args, **options)  # type: ignore[arg-type]

    with pytest.raises(Exception, match="cancelled"):
        take(coordinator_over(Cancels(store, None)), SHARD)
    shard = coordinator_over(store).get_shard(SHARD)
    assert (shard.owner, shard.fence) == (None, 1)


@pytest.mark.parametrize("story", STORIES)
def test_a_lost_answer_is_read_back_and_nothing_is_done_twice(story: str) -> None:
    counted = Mortal(MemoryObjects(), None)
    begin(coordinator_over(counted), WHOLE)
    STORIES[story](coordinator_over(counted))
    wanted = [shard._replace(ops=()) for shard in coordinator_over(counted).list_shards(RUN)]
    for number in range(1, counted.writes + 1):
        store = losing_answers(number)
        it = coordinator_over(store)
        begin(it, WHOLE)
        STORIES[story](it)
        assert [shard._replace(ops=()) for shard in it.list_shards(RUN)] == wanted


def test_a_write_that_may_still_land_is_an_unknown_outcome() -> None:
    store = MemoryObjects()
    it = coordinator_over(store)
    begin(it, WHOLE)
    store.faults.fail("put", WriteUnknown("an object", "no answer"))  # it was not done
    with pytest.raises(UnknownOutcome):
        take(it, SHARD)
    assert take(it, SHARD).fence == 1


def test_bytes_that_no_writer_produces_are_damage() -> None:
    store = MemoryObjects()
    begin(coordinator_over(store), WHOLE)
    for key in (format_run_key(RUN), format_shard_key(SHARD)):
        found = store.get(key)
        assert found is not None
        for body in (b"", b"other", found.body[:-1], found.body + b"x", b"SLR2" + found.body[4:]):
            store.put(key, body)
            with pytest.raises(Damaged, match=key):
                coordinator_over(store).get_shard(SHARD) if "shards" in key else coordinator_over(store).get_run(RUN)
        store.put(key, found.body)
    with pytest.raises(RunNotFound):
        coordinator_over(store).get_run(RunKey(RUN.tenant, 8))


def test_names_and_envelopes_come_back() -> None:
    for number in (0, 7, -1, -(2**63), 2**63 - 1):
        run, shard = RunKey(RUN.tenant, number), ShardKey(RUN.tenant, 5, number)
        assert parse_run_key(format_run_key(run)) == run
        assert parse_shard_key(format_shard_key(shard)) == shard
    envelope = Envelope(3, b"w" * 16, b"record", b"a" * 16, b"intent")
    assert parse_envelope(format_envelope(envelope), "x") == envelope
    intent = Intent(b"i" * 16, -5, 9, b"run", b"shard")
    assert parse_intent(format_intent(intent), "x") == intent


@pytest.mark.parametrize("shards", [32, 2_100])
def test_the_requests_of_a_claim_do_not_grow_with_the_shards(shards: int) -> None:
    """Workers in processes of their own take every shard once; what a claim asks for is the same for few and many."""
    store = MemoryObjects()
    begin(coordinator_over(store), *[WHOLE] * shards)
    counts = RequestCounts()
    workers = [
        Coordinator(
            ObjectRecords(CountedObjects(store, counts), random.Random(seed)),
            lease_ttl_ns=LEASE_TTL_NS,
            pause=lambda _: None,
        )
        for seed in range(4)
    ]
    first = [worker.claim_next_available(NOW, RUN, number) for number, worker in enumerate(workers)]
    before = requests(counts)  # each process has listed all shards, once
    then = [worker.claim_next_available(NOW, RUN, number) for _ in range(7) for number, worker in enumerate(workers)]
    later = {name: count - before[name] for name, count in requests(counts).items()}
    assert len({found.lease.shard for found in first + then if isinstance(found, Acquired)}) == 32
    assert later["list"] <= 2 * len(then)
    assert later["get"] <= 12 * len(then)
    assert later["put"] == len(then)


def requests(counts: RequestCounts) -> dict[str, float]:
    """Return the number of requests by operation."""
    metric = counts.metrics()[0]
    found: dict[str, float] = {}
    for sample in metric.samples:
        found[sample.labels["operation"]] = found.get(sample.labels["operation"], 0) + sample.value
    return found


def test_the_only_free_shard_is_found_wherever_it_is() -> None:
    """One shard of 1,500 is free, ever another one, before and behind where the last claim ended."""
    store = MemoryObjects()
    keys = begin(coordinator_over(store), *[WHOLE] * 1_500)
    other, mine = coordinator_over(store), coordinator_over(store)
    leases = {key.shard: take(other, key) for key in keys}
    assert mine.claim_next_available(NOW, RUN, 2) == NoneAvailable(NOW + LEASE_TTL_NS)
    for number in (1_500, 3, 700, 701, 2, 1_499):
        other.split_residual(NOW, leases[number], CUT, 11)  # its rest is a new, free shard
        found = mine.claim_next_available(NOW, RUN, 2)
        assert isinstance(found, Acquired)
        assert other.get_shard(found.lease.key).parent == number
        assert mine.claim_next_available(NOW, RUN, 2) == NoneAvailable(NOW + LEASE_TTL_NS)
    other.complete(NOW, leases[5], Cursor(b"c"), 11)
    later = NOW + LEASE_TTL_NS
    claimed = {mine.claim_next_available(later, RUN, 2).lease.shard for _ in range(1_505)}  # type: ignore[union-attr]
    assert len(claimed) == 1_505
    assert 5 not in claimed


def test_an_idle_worker_reads_few_of_the_shards_that_were_renewed_and_knows_when_all_are_over() -> None:
    store, counts = MemoryObjects(), RequestCounts()
    keys = begin(coordinator_over(store), *[WHOLE] * 200)
    other, idle = coordinator_over(store), coordinator_over(CountedObjects(store, counts))
    leases = [take(other, key) for key in keys]
    later = NOW + LEASE_TTL_NS // 2
    assert idle.claim_next_available(later, RUN, 2) == NoneAvailable(NOW + LEASE_TTL_NS)
    leases = [other.renew(later, lease) for lease in leases]
    before = requests(counts)
    assert idle.claim_next_available(later, RUN, 2) == NoneAvailable(NOW + LEASE_TTL_NS)
    assert requests(counts)["get"] - before["get"] <= 40
    assert requests(counts)["list"] - before["list"] <= 2
    assert isinstance(idle.claim_next_available(NOW + LEASE_TTL_NS, RUN, 2), NoneAvailable), "all were renewed"
    for lease in leases[1:]:
        other.complete(later, lease, Cursor(b"c"), 11)
    assert idle.claim_next_available(later, RUN, 2) != NoneAvailable(None)
    other.complete(later, leases[0], Cursor(b"c"), 11)
    assert idle.claim_next_available(later, RUN, 2) == NoneAvailable(None)
