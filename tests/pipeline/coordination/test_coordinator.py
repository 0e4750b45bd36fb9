"""The coordinator between its store and the decisions: retries, lost answers, races, and registrations in steps."""

from collections.abc import Callable, Sequence

import pytest

from strandline.errors import InvalidInput, Unavailable, UnknownOutcome
from strandline.pipeline.coordination import Coordinator, MemoryRecords, NoneAvailable, Throttled
from strandline.pipeline.coordination.coordinator import ATTEMPTS, CLAIMS_PER_CALL, PAUSE_MAX_S
from strandline.pipeline.coordination.record_store import (
    OwnerChange,
    Plan,
    Result,
    ShardChange,
    Versioned,
    owner_change,
)
from strandline.protocol.cooldown import COOLDOWN_FIRST_NS
from strandline.protocol.errors import (
    Contended,
    LeaseExpired,
    RegistrationPending,
    RunTerminal,
    ShardExists,
    SplitInvalid,
)
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard, Progress, RunStatus
from strandline.protocol.shards import Cursor, ParkReason, RunKey, ShardKey, ShardRecord, ShardSpec, ShardStatus
from strandline.testing.coordination_helpers import (
    CUT,
    EXPIRED,
    HALVES,
    LEASE_TTL_NS,
    NOW,
    OPERATIONS,
    RUN,
    WHOLE,
    begin,
    parts,
    take,
)


class Scripted:
    """Does one thing around the next commits: before them, or after them."""

    def __init__(self) -> None:
        self.before_next: list[Callable[[], None]] = []
        self.after_next: list[Callable[[], None]] = []

    def before(self, _: Plan) -> None:
        if self.before_next:
            self.before_next.pop(0)()

    def after(self, _: Plan) -> None:
        if self.after_next:
            self.after_next.pop(0)()


def lost() -> None:
    raise UnknownOutcome("the answer was lost")


def refused() -> None:
    raise Unavailable("the store cannot be reached")


def open_scripted(records_max: int = 10_000) -> tuple[Coordinator, Scripted, MemoryRecords]:
    script = Scripted()
    store = MemoryRecords(script)
    store.records_per_commit_max = records_max
    return Coordinator(store, lease_ttl_ns=LEASE_TTL_NS, pause=lambda _: None), script, store


# Answers that are lost.


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_whose_answer_was_lost_is_done_once_when_it_is_repeated(name: str) -> None:
    coordinator, script, _ = open_scripted()
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    script.after_next.append(lost)
    with pytest.raises(UnknownOutcome):
        OPERATIONS[name](coordinator, NOW, lease, 10)
    after = coordinator.list_shards(RUN)
    OPERATIONS[name](coordinator, EXPIRED, lease, 10)
    assert coordinator.list_shards(RUN) == after


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_was_refused_by_the_store_did_nothing(name: str) -> None:
    coordinator, script, _ = open_scripted()
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    before = coordinator.list_shards(RUN)
    script.before_next.append(refused)
    with pytest.raises(Unavailable):
        OPERATIONS[name](coordinator, NOW, lease, 10)
    assert coordinator.list_shards(RUN) == before
    OPERATIONS[name](coordinator, NOW, lease, 10)


def test_an_acquisition_whose_answer_was_lost_is_waited_for_by_everybody() -> None:
    coordinator, script, _ = open_scripted()
    (key,) = begin(coordinator, WHOLE)
    script.after_next.append(lost)
    with pytest.raises(UnknownOutcome):
        coordinator.claim_next_available(NOW, RUN, 1)
    assert coordinator.claim_next_available(NOW, RUN, 1) == NoneAvailable(EXPIRED)
    assert take(coordinator, key, EXPIRED).fence == 2


# Changes by others.


class Busy(MemoryRecords):
    """Says so many times that something changed."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def commit(self, plan: Plan) -> Result:
        if plan.shards and plan.shards[0].before and self.times:
            self.times -= 1
            return Result.CHANGED
        return super().commit(plan)


def test_a_change_is_decided_again_up_to_nine_times_with_growing_pauses() -> None:
    store = Busy(0)
    pauses: list[float] = []
    coordinator = Coordinator(store, lease_ttl_ns=LEASE_TTL_NS, pause=pauses.append)
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    store.times = ATTEMPTS - 1
    coordinator.checkpoint(NOW, lease, Cursor(b"c"), 10)
    assert len(pauses) == ATTEMPTS - 1
    assert all(0.0025 <= pause <= 1.5 * PAUSE_MAX_S for pause in pauses)
    assert pauses[-1] > pauses[0]
    store.times = ATTEMPTS
    with pytest.raises(Contended):
        coordinator.checkpoint(NOW, lease, Cursor(b"d"), 11)
    assert coordinator.get_shard(key).cursor == Cursor(b"c")


def test_a_run_that_ends_meanwhile_gives_no_shard_away() -> None:
    coordinator, script, _ = open_scripted()
    (key,) = begin(coordinator, WHOLE)
    script.before_next.append(lambda: _ended(coordinator))
    with pytest.raises(RunTerminal):
        take(coordinator, key)
    assert coordinator.get_shard(key).owner is None


def _ended(coordinator: Coordinator) -> None:
    coordinator.cancel_run(NOW, RUN, 50)


def test_a_run_is_not_done_if_a_shard_is_unparked_meanwhile() -> None:
    coordinator, script, _ = open_scripted()
    (key,) = begin(coordinator, WHOLE)
    coordinator.park_shard(NOW, take(coordinator, key), ParkReason.OTHER, 10)
    script.before_next.append(lambda: _unparked(coordinator, key))
    with pytest.raises(Exception, match="1 active shards"):
        coordinator.complete_run(NOW, RUN, 11)
    assert (coordinator.get_run(RUN).status, coordinator.progress(RUN)) == (RunStatus.ACTIVE, Progress(active=1))


def _unparked(coordinator: Coordinator, key: ShardKey) -> None:
    coordinator.unpark_shard(NOW, key, 51)


class LosesOwners(MemoryRecords):
    """A store whose owners vanish before their deadline, as etcd's do with their lease."""

    gone = False

    def commit(self, plan: Plan) -> Result:
        changes = [owner_change(change) for change in plan.shards]
        if self.gone and {OwnerChange.HELD, OwnerChange.RELEASED} & set(changes):
            return Result.OWNER_LOST
        return super().commit(plan)


@pytest.mark.parametrize("name", [*OPERATIONS, "renew"])
def test_an_owner_that_is_gone_is_a_lost_lease(name: str) -> None:
    store = LosesOwners()
    coordinator = Coordinator(store, lease_ttl_ns=LEASE_TTL_NS)
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    store.gone = True
    with pytest.raises(LeaseExpired):
        coordinator.renew(NOW, lease) if name == "renew" else OPERATIONS[name](coordinator, NOW, lease, 10)
    assert take(coordinator, key, EXPIRED).fence == 2


def test_what_a_change_does_to_an_owner() -> None:
    free = ShardRecord(RUN.tenant, 7, 1, WHOLE)
    first = free._replace(fence=1, owner=5, deadline=9)
    second = first._replace(fence=2, owner=6)
    changes = [(None, free), (free, free), (free, first), (first, first), (first, second), (first, free)]
    found = [owner_change(ShardChange(Versioned(a, 1) if a else None, b)).value for a, b in changes]
    assert found == ["none", "none", "taken", "held", "taken", "released"]


# Claims.


class AlwaysLate(MemoryRecords):
    """Every shard is taken by somebody else just before the claim."""

    late = True

    def commit(self, plan: Plan) -> Result:
        if plan.unchanged_run and self.late:
            return Result.CHANGED
        return super().commit(plan)


def test_claims_that_fail_are_followed_by_a_pause_in_which_nothing_is_claimed() -> None:
    store = AlwaysLate()
    coordinator = Coordinator(store, lease_ttl_ns=LEASE_TTL_NS)
    begin(coordinator, *[WHOLE] * 20)
    assert coordinator.claim_next_available(NOW, RUN, 1) == Throttled(COOLDOWN_FIRST_NS)
    store.late = False
    assert coordinator.claim_next_available(NOW + 1, RUN, 1) == Throttled(COOLDOWN_FIRST_NS - 1)
    assert isinstance(coordinator.claim_next_available(NOW + 1, RUN, 2), Acquired)
    later = NOW + COOLDOWN_FIRST_NS
    store.late = True
    assert coordinator.claim_next_available(later, RUN, 1) == Throttled(2 * COOLDOWN_FIRST_NS)
    store.late = False
    assert isinstance(coordinator.claim_next_available(later + 2 * COOLDOWN_FIRST_NS, RUN, 1), Acquired)
    store.late = True
    again = coordinator.claim_next_available(later + 2 * COOLDOWN_FIRST_NS, RUN, 1)
    assert again == Throttled(COOLDOWN_FIRST_NS), "a success forgets the failures"


def test_pauses_that_are_over_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.pipeline.coordination.coordinator._COOLDOWNS_MAX", 3)
    coordinator = Coordinator(AlwaysLate(), lease_ttl_ns=LEASE_TTL_NS)
    begin(coordinator, WHOLE)
    for worker in range(10):
        coordinator.claim_next_available(NOW + worker * COOLDOWN_FIRST_NS, RUN, worker)
    assert len(coordinator._cooldowns) <= 4  # noqa: SLF001 - what is kept shows nowhere else


class Counting(MemoryRecords):
    def __init__(self) -> None:
        super().__init__()
        self.loaded = 0

    def load_shards(self, keys: Sequence[ShardKey]) -> list[Versioned[ShardRecord] | None]:
        self.loaded += len(keys)
        return super().load_shards(keys)


def test_a_claim_reads_the_shard_it_takes_and_not_every_shard() -> None:
    store = Counting()
    coordinator = Coordinator(store, lease_ttl_ns=LEASE_TTL_NS)
    begin(coordinator, *[WHOLE] * 5_000)
    store.loaded = 0
    for worker in range(20):
        assert isinstance(coordinator.claim_next_available(NOW, RUN, worker), Acquired)
    assert store.loaded == 20


def test_a_claim_gives_up_after_a_few_shards() -> None:
    class CountsLate(AlwaysLate, Counting):
        pass

    store = CountsLate()
    coordinator = Coordinator(store, lease_ttl_ns=LEASE_TTL_NS)
    begin(coordinator, *[WHOLE] * 50)
    store.loaded = 0
    coordinator.claim_next_available(NOW, RUN, 1)
    assert store.loaded == CLAIMS_PER_CALL


# Registrations in steps.

MANY = [InitialShard(number, ShardSpec(b"%03d" % number)) for number in range(23)]


@pytest.mark.parametrize("fails", [refused, lost])
@pytest.mark.parametrize("commit", range(7))
def test_a_registration_that_stopped_half_way_is_finished_by_repeating_it(
    commit: int, fails: Callable[[], None]
) -> None:
    coordinator, script, store = open_scripted(records_max=5)
    coordinator.create_run(NOW, RUN, 1)
    steps = script.before_next if fails is refused else script.after_next
    steps.extend([lambda: None] * commit + [fails])
    with pytest.raises((Unavailable, UnknownOutcome)):
        coordinator.register_shards(NOW, RUN, MANY, 2)
    over = coordinator.get_run(RUN).status is RunStatus.ACTIVE
    assert over == (commit == 6 and fails is lost)
    if not over:
        with pytest.raises(Exception, match="no shards yet"):
            coordinator.claim_next_available(NOW, RUN, 1)
    coordinator.register_shards(NOW + 1, RUN, MANY, 2)
    assert [InitialShard(shard.shard, shard.spec) for shard in coordinator.list_shards(RUN)] == MANY
    assert coordinator.get_run(RUN).status is RunStatus.ACTIVE
    assert coordinator.get_run(RUN).pending is None
    del store


def test_a_registration_that_stopped_half_way_is_in_the_way_of_another() -> None:
    coordinator, script, _ = open_scripted(records_max=5)
    coordinator.create_run(NOW, RUN, 1)
    script.before_next.extend([lambda: None, lambda: None, refused])
    with pytest.raises(Unavailable):
        coordinator.register_shards(NOW, RUN, MANY, 2)
    for other in (MANY, MANY[:3]):
        with pytest.raises(RegistrationPending):
            coordinator.register_shards(NOW, RUN, other, 3)
    coordinator.cancel_run(NOW, RUN, 4)
    assert coordinator.get_run(RUN).pending is None


def test_a_shard_that_is_there_already_and_differs_is_not_taken_for_the_new_one() -> None:
    coordinator, _, store = open_scripted(records_max=5)
    coordinator.create_run(NOW, RUN, 1)
    store.commit(Plan(NOW, (ShardChange(None, ShardRecord(*RUN, 7, WHOLE)),)))
    with pytest.raises(ShardExists):
        coordinator.register_shards(NOW, RUN, MANY, 2)


def test_a_split_into_more_parts_than_a_store_can_write_is_refused() -> None:
    coordinator, _, _ = open_scripted(records_max=3)
    (key,) = begin(coordinator, WHOLE)
    lease = take(coordinator, key)
    with pytest.raises(SplitInvalid, match="2 parts at once"):
        coordinator.split_replace(NOW, lease, parts(b"b", b"c", b"d", b"y"), 10)
    coordinator.split_replace(NOW, lease, HALVES, 10)


# What is left.


def test_a_lease_that_does_not_last_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Coordinator(MemoryRecords(), lease_ttl_ns=0)


def test_a_coordinator_closes_its_store() -> None:
    closed: list[bool] = []

    class Closes(MemoryRecords):
        def close(self) -> None:
            closed.append(True)

    with Coordinator(Closes()):
        assert closed == []
    assert closed == [True]


def test_the_memory_twin_tells_the_first_deadline_that_counts() -> None:
    store = MemoryRecords()
    coordinator = Coordinator(store, lease_ttl_ns=LEASE_TTL_NS)
    keys = begin(coordinator, *[WHOLE] * 3)
    leases = [take(coordinator, key, NOW + number) for number, key in enumerate(keys)]
    for number in range(50):
        coordinator.renew(NOW + 100 + number, leases[0])
    coordinator.complete(NOW, leases[1], Cursor(b"c"), 10)
    assert store.claimable(RUN, NOW, 9).earliest_deadline == leases[2].deadline
    found = store.claimable(RUN, NOW + 149 + LEASE_TTL_NS, 9).shards
    assert sorted(key.shard for key in found) == [1, 3]
    assert store.claimable(RUN, NOW, 9).shards == (), "a clock that is behind sees the leases"
    assert len(store.claimable(RUN, NOW + 149 + LEASE_TTL_NS, 1).shards) == 1
    assert store.claimable(RunKey(RUN.tenant, 99), NOW, 9) == ((), None)


def test_a_shard_that_was_split_is_not_claimed() -> None:
    coordinator = Coordinator(MemoryRecords(), lease_ttl_ns=LEASE_TTL_NS)
    (key,) = begin(coordinator, WHOLE)
    coordinator.split_residual(NOW, take(coordinator, key), CUT, 10)
    taken = coordinator.claim_next_available(NOW, RUN, 2)
    assert isinstance(taken, Acquired)
    assert coordinator.get_shard(taken.lease.key).status is ShardStatus.ACTIVE
    assert taken.spec == CUT.rest
