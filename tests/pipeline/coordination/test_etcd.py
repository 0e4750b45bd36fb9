"""Coordination over a real etcd: owners on leases, transactions that are not answered, limits, and rivals."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from strandline.errors import InvalidInput, Unavailable, UnknownOutcome
from strandline.pipeline.coordination import Coordinator, NoneAvailable
from strandline.pipeline.coordination.etcd import EtcdRecords
from strandline.pipeline.coordination.etcd_client import (
    OPERATIONS_MAX,
    Compare,
    EtcdClient,
    KeyValue,
    Operation,
    Page,
    delete,
    put,
)
from strandline.pipeline.coordination.etcd_keys import Noun, end_of, format_key, parse_key
from strandline.pipeline.coordination.etcd_plan import (
    SHARDS_MAX,
    OwnerKey,
    format_deadline,
    owner_value,
    parse_deadline,
    transaction,
)
from strandline.pipeline.coordination.record_store import Plan, Result, RunChange, ShardChange, Versioned
from strandline.protocol.errors import CursorRegression, LeaseExpired, RunNotActive, RunNotFound, SplitInvalid
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard, Progress, RunRecord, RunStatus
from strandline.protocol.shards import (
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    Cursor,
    CursorSemantics,
    Lease,
    ParkReason,
    RunKey,
    ShardKey,
    ShardRecord,
    ShardSpec,
)
from strandline.protocol.splits import ResidualPlan
from tests.pipeline.coordination.rivals import (
    OTHER_TENANT,
    RUN,
    SECOND_NS,
    TENANT,
    TTL_NS,
    acquire_one,
    at_once,
    begin_run,
    claim_all,
    claim_twice_over,
    insisted,
    processes_meet,
    refuse_stale_plans,
    survive_outage,
)
from tests.pipeline.coordination.twins import Twins, many_runs
from tests.servers_etcd import EtcdServer, connected, running_etcd
from tests.waiting import PATIENCE_S, eventually

SHARD = ShardKey(*RUN, 0)


@pytest.fixture
def client(etcd_server: EtcdServer) -> Iterator["LossyClient"]:
    with LossyClient(etcd_server.endpoint) as client:
        yield client


@pytest.fixture
def store(client: "LossyClient", etcd_prefix: str) -> EtcdRecords:
    return EtcdRecords(client, prefix=etcd_prefix)


class LossyClient(EtcdClient):
    """A client that can lose a transaction before it is sent, or its answer afterwards, and remembers what it did."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, timeout_s=PATIENCE_S, connect_timeout_s=PATIENCE_S)
        self.losses: list[str] = []
        self.late: list[Callable[[], object]] = []
        self.kept_alive: list[int] = []
        self.granted: list[tuple[int, int]] = []
        self.before_reading_back: Callable[[], object] = lambda: None

    def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> bool:
        loss = self.losses.pop(0) if self.losses else None
        if loss == "late":
            self.late.append(partial(super().transact, compares, operations))
        done = loss not in {"late", "request"} and super().transact(compares, operations)
        if loss:
            self.before_reading_back()
            raise UnknownOutcome("the answer was lost")
        return done

    def get(self, *keys: bytes) -> list[KeyValue | None]:
        found = super().get(*keys)
        while self.late:
            self.late.pop()()  # lands when it was already found missing
        return found

    def grant(self, ttl_s: int) -> int:
        self.granted.append((super().grant(ttl_s), ttl_s))
        return self.granted[-1][0]

    def keep_alive(self, lease: int) -> bool:
        self.kept_alive.append(lease)
        return super().keep_alive(lease)


# Owners.


def owner_key(client: EtcdClient, prefix: str, shard: ShardKey = SHARD) -> KeyValue | None:
    return client.get(format_key(prefix.encode(), Noun.OWNER, shard))[0]


def test_the_owner_key_has_nineteen_bytes_and_lives_as_long_as_the_lease(
    store: EtcdRecords, client: LossyClient, etcd_prefix: str
) -> None:
    coordinator = begin_run(store, 1)
    taken = coordinator.acquire_and_restore(10, SHARD, worker=-2)
    owner = owner_key(client, etcd_prefix)
    assert owner is not None
    assert owner.value == b"v1\x03" + b"\xfe" + b"\xff" * 7 + b"\x01" + b"\0" * 7
    assert owner.lease
    renewed = coordinator.renew(20, taken.lease)
    assert client.kept_alive == [owner.lease]
    coordinator.checkpoint(30, renewed, Cursor(b"a"), op_id=3)
    assert owner_key(client, etcd_prefix) == owner
    coordinator.complete(40, renewed, Cursor(b"b"), op_id=4)
    assert owner_key(client, etcd_prefix) is None
    assert not client.keep_alive(owner.lease)


def test_a_shard_that_is_given_up_has_no_owner_key_even_if_its_etcd_lease_cannot_be_ended(
    store: EtcdRecords, client: LossyClient, etcd_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def revoke(_: int) -> None:
        raise Unavailable("etcd does not answer")

    coordinator = begin_run(store, 1)
    lease = coordinator.acquire_and_restore(10, SHARD, worker=1).lease
    monkeypatch.setattr(client, "revoke", revoke)
    coordinator.complete(20, lease, Cursor(b"z"), op_id=3)
    assert owner_key(client, etcd_prefix) is None


def test_each_acquisition_has_an_etcd_lease_of_its_own(
    store: EtcdRecords, client: LossyClient, etcd_prefix: str
) -> None:
    coordinator = begin_run(store, 2)
    for shard in (0, 1):
        coordinator.acquire_and_restore(10, ShardKey(*RUN, shard), worker=1)
    first, second = (owner_key(client, etcd_prefix, ShardKey(*RUN, shard)) for shard in (0, 1))
    assert first is not None
    assert second is not None
    assert first.lease != second.lease
    coordinator.acquire_and_restore(10 + TTL_NS, SHARD, worker=2)
    again = owner_key(client, etcd_prefix)
    assert again is not None
    assert again.lease not in {first.lease, second.lease}


def test_an_etcd_lease_lasts_as_long_as_the_shard_s_lease_and_at_least_a_minute(
    store: EtcdRecords, client: LossyClient
) -> None:
    begin_run(store, 2)
    for shard, ttl_ns in enumerate((1, 90 * SECOND_NS + 1)):
        Coordinator(store, lease_ttl_ns=ttl_ns).acquire_and_restore(10, ShardKey(*RUN, shard), worker=1)
    assert [ttl_s for _, ttl_s in client.granted] == [60, 91]


def test_the_etcd_lease_of_an_acquisition_that_failed_is_ended(store: EtcdRecords, client: LossyClient) -> None:
    begin_run(store, 1)
    (stored,) = store.load_shards([SHARD])
    assert stored is not None
    plan = Plan(20, (ShardChange(stored, stored.record._replace(fence=1, owner=1, deadline=TTL_NS)),))
    assert store.commit(plan) is Result.DONE
    assert store.commit(plan) is Result.CHANGED
    assert [client.keep_alive(lease) for lease, _ in client.granted] == [True, False]


UNDER_LEASE: dict[str, Callable[[Coordinator, Lease], object]] = {
    "renew": lambda c, lease: c.renew(20, lease),
    "checkpoint": lambda c, lease: c.checkpoint(20, lease, Cursor(b"b"), 9),
    "complete": lambda c, lease: c.complete(20, lease, Cursor(b"b"), 9),
    "park": lambda c, lease: c.park_shard(20, lease, ParkReason.OTHER, 9),
    "split_replace": lambda c, lease: c.split_replace(20, lease, [ShardSpec(end=b"m"), ShardSpec(b"m")], 9),
    "split_residual": lambda c, lease: c.split_residual(
        20, lease, ResidualPlan(ShardSpec(end=b"m"), ShardSpec(b"m")), 9
    ),
}


@pytest.mark.parametrize("remembered", [True, False], ids=["same store", "other store"])
@pytest.mark.parametrize("operation", UNDER_LEASE)
def test_nothing_is_accepted_once_the_owner_key_is_gone(
    operation: str, remembered: bool, store: EtcdRecords, client: LossyClient, etcd_prefix: str
) -> None:
    coordinator = begin_run(store, 1)
    taken = coordinator.acquire_and_restore(10, SHARD, worker=1)
    owner = owner_key(client, etcd_prefix)
    assert owner is not None
    client.revoke(owner.lease)
    other = coordinator if remembered else Coordinator(EtcdRecords(client, prefix=etcd_prefix), lease_ttl_ns=TTL_NS)
    before = coordinator.get_shard(SHARD)
    with pytest.raises(LeaseExpired):
        UNDER_LEASE[operation](other, taken.lease)
    assert coordinator.get_shard(SHARD) == before
    assert coordinator.progress(RUN) == Progress(active=1)
    # The shard goes by its deadline all the same.
    assert coordinator.claim_next_available(20, RUN, 2) == NoneAvailable(before.deadline)
    assert coordinator.acquire_and_restore(10 + TTL_NS, SHARD, worker=2).lease.fence == 2


@pytest.mark.parametrize("operation", UNDER_LEASE)
def test_a_lease_goes_on_through_another_store(
    operation: str, store: EtcdRecords, client: LossyClient, etcd_prefix: str
) -> None:
    taken = begin_run(store, 1).acquire_and_restore(10, SHARD, worker=1)
    other = Coordinator(EtcdRecords(client, prefix=etcd_prefix), lease_ttl_ns=TTL_NS)
    UNDER_LEASE[operation](other, taken.lease)
    owner = owner_key(client, etcd_prefix)
    assert (owner is not None) == (operation in {"renew", "checkpoint", "split_residual"})


@pytest.mark.parametrize("tampered", ["gone", "other value", "other lease"])
def test_each_of_the_three_conditions_on_the_owner_key_refuses(
    tampered: str, store: EtcdRecords, client: LossyClient, etcd_prefix: str
) -> None:
    begin_run(store, 1).acquire_and_restore(10, SHARD, worker=1)
    name = format_key(etcd_prefix.encode(), Noun.OWNER, SHARD)
    (owner,) = client.get(name)
    (stored,) = store.load_shards([SHARD])
    assert owner is not None
    assert stored is not None
    match tampered:
        case "gone":
            client.transact([], [delete(name)])
        case "other value":
            client.transact([], [put(name, owner_value(stored.record._replace(owner=8)), owner.lease)])
        case _:
            client.transact([], [put(name, owner.value, client.grant(60))])
    plan = Plan(20, (ShardChange(stored, stored.record._replace(cursor=Cursor(b"x"))),))
    assert store.commit(plan) is (Result.CHANGED if tampered == "other lease" else Result.OWNER_LOST)
    assert store.load_shards([SHARD]) == [stored]


def test_an_etcd_lease_that_is_not_renewed_ends_and_takes_the_shard_s_lease_with_it(
    client: LossyClient, etcd_prefix: str
) -> None:
    store = EtcdRecords(client, prefix=etcd_prefix, owner_ttl_s=1)
    begin_run(store, 1)
    coordinator = Coordinator(store, lease_ttl_ns=SECOND_NS)
    # On a machine that stands still for a moment it ends before anything is put on it.
    taken = insisted(lambda: coordinator.acquire_and_restore(10, SHARD, worker=1), time.monotonic() + PATIENCE_S)
    eventually(lambda: owner_key(client, etcd_prefix) is None, "the etcd lease ends")
    with pytest.raises(LeaseExpired):
        coordinator.checkpoint(20, taken.lease, Cursor(b"a"), op_id=3)


# The indexes.


def names(client: EtcdClient, prefix: str, noun: Noun) -> list[RunKey | ShardKey]:
    below = prefix.encode() + b"/"
    parsed = [parse_key(prefix.encode(), entry.key) for entry in client.range(below, end_of(below), 100).found]
    return [key for found, key in parsed if found is noun]


def test_the_indexes_hold_what_is_active_and_nothing_else(
    store: EtcdRecords, client: LossyClient, etcd_prefix: str
) -> None:
    coordinator = begin_run(store, 3)
    coordinator.create_run(1, RunKey(TENANT, 8), op_id=1)
    done, parked, _ = (coordinator.acquire_and_restore(10, ShardKey(*RUN, shard), 1).lease for shard in range(3))
    coordinator.complete(20, done, Cursor(b"z"), op_id=3)
    coordinator.park_shard(20, parked, ParkReason.OTHER, op_id=3)
    assert names(client, etcd_prefix, Noun.ACTIVE_SHARD) == [ShardKey(*RUN, 2)]
    coordinator.unpark_shard(30, ShardKey(*RUN, 1), op_id=4)
    assert names(client, etcd_prefix, Noun.ACTIVE_SHARD) == [ShardKey(*RUN, 1), ShardKey(*RUN, 2)]
    assert names(client, etcd_prefix, Noun.OWNER) == [ShardKey(*RUN, 2)]
    assert names(client, etcd_prefix, Noun.ACTIVE_RUN) == [RUN, RunKey(TENANT, 8)]
    coordinator.fail_run(40, RUN, op_id=5)
    assert names(client, etcd_prefix, Noun.ACTIVE_RUN) == [RunKey(TENANT, 8)]
    assert names(client, etcd_prefix, Noun.RUN) == [RUN, RunKey(TENANT, 8)]


def test_a_count_is_of_one_moment(store: EtcdRecords, client: LossyClient, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = begin_run(store, 300)
    first, last = (coordinator.acquire_and_restore(10, ShardKey(*RUN, shard), 1).lease for shard in (0, 299))
    real = client.range

    def slow_range(start: bytes, end: bytes, limit: int, revision: int = 0) -> Page:
        page = real(start, end, limit, revision)
        monkeypatch.undo()
        coordinator.complete(20, last, Cursor(b"z"), op_id=3)
        coordinator.complete(20, first, Cursor(b"z"), op_id=3)
        return page

    monkeypatch.setattr(client, "range", slow_range)
    assert coordinator.progress(RUN) == Progress(active=300)
    assert coordinator.progress(RUN) == Progress(active=298, done=2)


# Answers that are lost.


@contextmanager
def losing(client: LossyClient, *losses: str) -> Iterator[None]:
    client.losses += losses
    yield
    assert not client.losses


OPERATIONS: dict[str, Callable[[Coordinator, Lease], Any]] = {
    **UNDER_LEASE,
    "acquire": lambda c, _: c.acquire_and_restore(20, ShardKey(*RUN, 1), 1),
    "claim": lambda c, _: c.claim_next_available(20, RUN, 1),
    "create_run": lambda c, _: c.create_run(20, RunKey(TENANT, 8), 9),
    "fail_run": lambda c, _: c.fail_run(20, RUN, 9),
}
LOSSES = {
    "answer": ["answer"],
    "request": ["request"],
    "both": ["request", "answer"],
    "late": ["late"],
    "late and late": ["late", "late"],
}


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_lost_answer_is_looked_up_and_the_operation_is_done_once(
    operation: str, losses: str, client: LossyClient, etcd_prefix: str
) -> None:
    answers = []
    for name, lost in (("plain", []), ("lossy", LOSSES[losses])):
        coordinator = begin_run(EtcdRecords(client, prefix=f"{etcd_prefix}/{name}"), 2)
        lease = coordinator.acquire_and_restore(10, SHARD, worker=1).lease
        with losing(client, *lost):
            answer = OPERATIONS[operation](coordinator, lease)
        answers.append((answer, coordinator.list_shards(RUN), coordinator.list_runs(TENANT)))
    assert answers[0] == answers[1]


def test_an_answer_that_stays_lost_is_an_unknown_outcome_and_the_operation_can_be_repeated(
    store: EtcdRecords, client: LossyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.pipeline.coordination.etcd._PAUSES_S", (0.0,) * 8)
    coordinator = begin_run(store, 1)
    lease = coordinator.acquire_and_restore(10, SHARD, worker=1).lease
    with losing(client, *["request"] * 9), pytest.raises(UnknownOutcome):
        coordinator.checkpoint(20, lease, Cursor(b"b"), op_id=9)
    assert coordinator.get_shard(SHARD).cursor == Cursor()
    outcome = coordinator.checkpoint(20, lease, Cursor(b"b"), op_id=9)
    assert outcome == coordinator.checkpoint(30, lease, Cursor(b"b"), op_id=9)


def test_of_two_acquisitions_by_one_worker_at_one_time_only_one_believes_to_have_won(
    store: EtcdRecords, client: LossyClient, etcd_server: EtcdServer, etcd_prefix: str
) -> None:
    begin_run(store, 1)
    (stored,) = store.load_shards([SHARD])
    assert stored is not None
    taken = stored.record._replace(fence=1, owner=1, deadline=TTL_NS)
    plan = Plan(20, (ShardChange(stored, taken),))
    with connected(etcd_server.endpoint) as quick:
        rival = EtcdRecords(quick, prefix=etcd_prefix)
        assert rival.commit(plan) is Result.DONE
        with losing(client, "request"):
            assert store.commit(plan) is Result.CHANGED


@pytest.mark.parametrize("loss", ["answer", "request"])
def test_an_operation_whose_answer_was_lost_and_that_others_followed_is_found_in_the_log_or_decided_again(
    loss: str, store: EtcdRecords, client: LossyClient, etcd_server: EtcdServer, etcd_prefix: str
) -> None:
    coordinator = begin_run(store, 1)
    lease = coordinator.acquire_and_restore(10, SHARD, worker=1).lease
    with connected(etcd_server.endpoint) as quick:
        rival = Coordinator(EtcdRecords(quick, prefix=etcd_prefix), lease_ttl_ns=TTL_NS)
        client.before_reading_back = lambda: rival.checkpoint(25, lease, Cursor(b"c"), op_id=10)
        if loss == "answer":
            with losing(client, loss):
                coordinator.checkpoint(20, lease, Cursor(b"b"), op_id=9)
        else:
            with losing(client, loss), pytest.raises(CursorRegression):
                coordinator.checkpoint(20, lease, Cursor(b"b"), op_id=9)
    shard = coordinator.get_shard(SHARD)
    assert shard.cursor == Cursor(b"c")
    assert [entry.op_id for entry in shard.ops] == ([9, 10] if loss == "answer" else [10])


# Limits.


def largest_shard(shard: int) -> ShardRecord:
    start, end = bytes(KEY_BYTES_MAX - 1) + b"\1", b"\xff" * KEY_BYTES_MAX
    spec = ShardSpec(start, end, bytes(METADATA_BYTES_MAX))
    return ShardRecord(
        *RUN, shard, spec, cursor=Cursor(start) if shard < 0 else Cursor(), parent=0 if shard < 0 else None
    )


def test_a_full_transaction_of_the_largest_shards_is_within_etcd_s_limits(store: EtcdRecords) -> None:
    run = RunRecord(*RUN, RunStatus.INITIALIZING, CursorSemantics.COMPLETED, 1)
    changes = tuple(ShardChange(None, largest_shard(-1 - shard)) for shard in range(store.records_per_commit_max))
    assert store.records_per_commit_max == 41
    assert store.commit(Plan(1, changes, RunChange(None, run))) is Result.DONE
    assert store.progress(RUN) == Progress(active=41)


def test_a_full_transaction_that_changes_three_keys_a_shard_has_128_operations_at_most() -> None:
    run = Versioned(RunRecord(*RUN, RunStatus.ACTIVE, CursorSemantics.COMPLETED, 1), 5)
    over = run.record._replace(status=RunStatus.DONE, completed_at=2)
    shards = [ShardRecord(*RUN, shard, ShardSpec()) for shard in range(SHARDS_MAX)]
    taken = [shard._replace(fence=1, owner=1, deadline=9) for shard in shards]
    changes = tuple(ShardChange(Versioned(a, 5), b) for a, b in zip(shards, taken, strict=True))
    owners = {shard.key: OwnerKey(owner_value(shard), 1) for shard in taken}
    sent = transaction(b"/p", Plan(1, changes, RunChange(run, over)), owners)
    assert len(sent.operations) == 3 * SHARDS_MAX + 2 <= OPERATIONS_MAX
    assert len(sent.compares) <= OPERATIONS_MAX


def test_many_shards_are_registered_in_several_transactions_that_can_be_resumed(
    store: EtcdRecords, client: LossyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.pipeline.coordination.etcd._PAUSES_S", (0.0,) * 8)
    coordinator = Coordinator(store, lease_ttl_ns=TTL_NS)
    coordinator.create_run(1, RUN, op_id=1)
    shards = [InitialShard(shard, ShardSpec()) for shard in range(3 * SHARDS_MAX + 1)]
    client.losses = ["", "", *["request"] * 9]  # the run's record and the first shards come through
    with pytest.raises(UnknownOutcome):
        coordinator.register_shards(1, RUN, shards, op_id=2)
    assert 0 < coordinator.progress(RUN).active < len(shards)
    with pytest.raises(RunNotActive):
        coordinator.claim_next_available(2, RUN, worker=1)
    outcome = coordinator.register_shards(3, RUN, shards, op_id=2)
    assert outcome == coordinator.register_shards(4, RUN, shards, op_id=2)
    assert coordinator.progress(RUN) == Progress(active=len(shards))
    assert len(coordinator.list_shards(RUN)) == len(shards)
    assert isinstance(coordinator.claim_next_available(5, RUN, worker=1), Acquired)


def test_a_split_into_more_parts_than_a_transaction_takes_is_refused(store: EtcdRecords) -> None:
    coordinator = begin_run(store, 1)
    lease = coordinator.acquire_and_restore(10, SHARD, worker=1).lease
    cuts = [b"", *(b"%02d" % number for number in range(SHARDS_MAX - 1)), b""]
    parts = [ShardSpec(start, end) for start, end in pairwise(cuts)]
    with pytest.raises(SplitInvalid, match="40 parts"):
        coordinator.split_replace(20, lease, parts, op_id=3)
    outcome = coordinator.split_replace(20, lease, [*parts[:-2], ShardSpec(parts[-2].start, b"")], op_id=4)
    assert len(outcome.spawned) == SHARDS_MAX - 1
    assert coordinator.progress(RUN) == Progress(active=SHARDS_MAX - 1, split=1)


@pytest.mark.parametrize("deadline", [None, 0, 5, 2**63 - 1])
def test_deadlines_in_the_index_are_parsed_back(deadline: int | None) -> None:
    assert parse_deadline(format_deadline(deadline)) == deadline


def test_an_owner_must_last(client: LossyClient) -> None:
    with pytest.raises(InvalidInput):
        EtcdRecords(client, owner_ttl_s=0)


def test_a_plan_is_written_only_over_the_versions_it_was_decided_on(store: EtcdRecords) -> None:
    refuse_stale_plans(store)


# Neighbours.


def test_stores_whose_prefixes_begin_alike_do_not_see_each_other(client: LossyClient, etcd_prefix: str) -> None:
    prefixes = [etcd_prefix + tail for tail in ("", "/tenants", "x", "/v1")]
    coordinators = [begin_run(EtcdRecords(client, prefix=prefix), count + 1) for count, prefix in enumerate(prefixes)]
    for count, coordinator in enumerate(coordinators):
        assert coordinator.progress(RUN) == Progress(active=count + 1)
        assert len(coordinator.list_runs(TENANT)) == 1
        assert len(claim_all(coordinator, 10, worker=1)) == count + 1


def test_tenants_do_not_see_each_other(store: EtcdRecords) -> None:
    coordinator = begin_run(store, 3)
    other = RunKey(OTHER_TENANT, RUN.run)
    assert store.list_shards(other, None, 10) == []
    with pytest.raises(RunNotFound):
        coordinator.progress(other)
    begin_run(store, 1, other)
    assert coordinator.progress(RUN) == Progress(active=3)
    assert coordinator.progress(other) == Progress(active=1)
    assert [shard.tenant for shard in coordinator.list_shards(other)] == [OTHER_TENANT]


def test_runs_are_listed_by_signed_id(store: EtcdRecords) -> None:
    many_runs(store)


def test_more_shards_than_a_page_are_counted_listed_and_claimed(store: EtcdRecords) -> None:
    coordinator = begin_run(store, 600)
    for worker in range(300):
        assert isinstance(coordinator.claim_next_available(10, RUN, worker), Acquired)
    assert coordinator.progress(RUN) == Progress(active=600)
    assert [shard.shard for shard in coordinator.list_shards(RUN, 20, 500)] == list(range(21, 521))
    assert len(store.claimable(RUN, 10, 1_000).shards) == 300


# Rivals and outages.


def test_threads_that_claim_at_once_get_different_shards_under_growing_fences(store: EtcdRecords) -> None:
    claim_twice_over(store, workers=6, shards=24)


def test_of_threads_that_take_one_shard_at_once_one_wins(store: EtcdRecords) -> None:
    acquire_one(store, workers=8)


def test_processes_take_a_shard_in_turns_under_growing_fences(
    store: EtcdRecords, etcd_server: EtcdServer, etcd_prefix: str
) -> None:
    processes_meet(store, "etcd", etcd_server.endpoint, etcd_prefix)


def test_an_etcd_that_ends_and_comes_back_loses_nothing_that_was_answered() -> None:
    with running_etcd() as server, EtcdClient(server.endpoint, connect_timeout_s=PATIENCE_S) as client:

        def outage() -> None:
            server.stop()  # etcd 3.5.0 to 3.5.2 may lose what they answered when they are killed; the tests have 3.5.1
            server.start()

        survive_outage(EtcdRecords(client), outage)


def test_an_etcd_that_does_not_answer_for_a_while_delays_operations_and_no_more() -> None:
    with (
        running_etcd() as server,
        connected(server.endpoint) as patient,
        EtcdClient(server.endpoint, timeout_s=0.2, connect_timeout_s=PATIENCE_S) as client,
    ):
        coordinator = begin_run(EtcdRecords(patient, owner_ttl_s=2 * int(PATIENCE_S)), 3)
        hasty = Coordinator(EtcdRecords(client))
        held = [coordinator.acquire_and_restore(10, ShardKey(*RUN, shard), worker=1).lease for shard in range(3)]
        until = time.monotonic() + PATIENCE_S
        is_frozen, is_delayed = threading.Event(), threading.Event()

        def checkpoint(number: int) -> None:
            try:
                hasty.checkpoint(20, held[number], Cursor(b"b"), op_id=9)
            except (Unavailable, UnknownOutcome):
                is_delayed.set()
                raise

        def move(number: int) -> None:
            is_frozen.wait(PATIENCE_S)
            insisted(lambda: checkpoint(number), until)

        def freeze() -> None:
            with server.frozen():
                is_frozen.set()
                assert is_delayed.wait(PATIENCE_S)

        at_once(len(held), move, freeze)
        for shard in coordinator.list_shards(RUN):
            assert (shard.cursor, shard.fence, len(shard.ops)) == (Cursor(b"b"), 1, 1)


def test_reads_that_are_given_up_do_not_end_an_old_etcd() -> None:
    keys = [b"%d" % at for at in range(OPERATIONS_MAX)]
    with (
        running_etcd() as server,
        connected(server.endpoint) as patient,
        EtcdClient(server.endpoint, timeout_s=0.02, connect_timeout_s=PATIENCE_S) as client,
    ):
        patient.transact([], [put(key, b"") for key in keys])
        is_over = threading.Event()

        def read(_: int) -> None:
            while not is_over.is_set():
                with suppress(Unavailable):
                    client.get(*keys)

        def freeze() -> None:
            try:
                for _ in range(20):
                    assert server.is_running
                    with server.frozen():
                        time.sleep(0.03)
                    time.sleep(0.01)
            finally:
                is_over.set()

        at_once(4, read, freeze)


@pytest.mark.parametrize("seed", range(6))
def test_random_operations_end_as_they_do_in_memory(seed: int, store: EtcdRecords) -> None:
    Twins(store, seed).run(steps=120)
