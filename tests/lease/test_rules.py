"""Every rule about leases over conditional writes, by name; time is the test's."""

import pytest

from strandline.lease import Fence, FenceStale, LeaseLost, ObjectLeaseStore, StoredRecord, open_lease_store, revoke
from strandline.objects import ConditionsIgnored, MemoryObjects, ObjectConflict, StoreRefused, StoreUnavailable
from strandline.objects import WriteUnknown as Unknown
from tests.lease.candidates import KEY, MARGIN_S, TTL_S, SharedLease, epoch_of

LOST = Unknown(KEY, "no answer came")
UNDECIDED = StoreUnavailable("memory://", "another conditional write is being decided")
HOUR_S = 3600.0


class TestALeaseNeverFencesDataByItself:
    def test_a_delayed_write_of_a_paused_leader_is_refused_by_the_epoch_in_the_data(self) -> None:
        world = SharedLease()
        paused, other = world.candidate("a"), world.candidate("b")
        paused.claim()
        old = Fence(epoch_of(paused))
        other.look()
        world.time.advance(TTL_S)
        other.claim()
        new = Fence(epoch_of(other))
        new.check_over(old.epoch)
        new.check_over(new.epoch)
        with pytest.raises(FenceStale):
            old.check_over(new.epoch)

    def test_a_holder_that_was_paused_past_its_deadline_knows_it_at_the_next_call(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        world.time.advance(TTL_S - MARGIN_S - 0.001)
        assert epoch_of(candidate) == 1
        world.time.advance(0.001)
        assert epoch_of(candidate) == 0
        assert candidate.renew() is None  # and nothing is sent in its name any more
        assert world.objects.faults.calls["put"] == 1


class TestReleasing:
    def test_it_keeps_the_epoch_and_the_record(self) -> None:
        world = SharedLease()
        first, second = world.candidate("a"), world.candidate("b")
        first.claim()
        assert first.release()
        record = world.record()
        assert record is not None
        assert (record.epoch, record.released, record.ttl_ns) == (1, True, 0)
        assert "delete" not in world.objects.faults.calls
        second.claim()
        assert epoch_of(second) == 2

    def test_a_release_that_races_a_claim_never_takes_the_next_leaders_lease(self) -> None:
        world = SharedLease()
        first, second = world.candidate("a"), world.candidate("b")
        first.claim()
        second.look()
        stale = first.candidate
        world.time.advance(TTL_S)
        second.claim()
        first._candidate = stale  # noqa: SLF001 - as if it had been paused just before it sends
        assert not first.release()
        second.look()
        assert (epoch_of(second), world.epoch()) == (2, 2)

    def test_it_stops_holding_before_it_asks_the_store(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        world.objects.faults.fail("put", StoreRefused("memory://", "denied"))
        with pytest.raises(StoreRefused):
            candidate.release()
        assert epoch_of(candidate) == 0

    def test_whose_answer_is_lost_is_read_back(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        world.objects.faults.fail("put", LOST, after=True)
        assert candidate.release()
        assert world.objects.faults.calls["put"] == 2

    def test_after_a_renewal_that_arrived_unheard_gives_that_back(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        world.objects.faults.fail("put", LOST, after=True)
        world.objects.faults.fail("get", StoreUnavailable("memory://", "slow down"))
        with pytest.raises(StoreUnavailable):
            candidate.renew()
        assert candidate.release()
        record = world.record()
        assert record is not None
        assert record.released


class TestClocks:
    def test_another_waits_a_whole_lease_from_when_it_first_saw_this_very_record(self) -> None:
        world = SharedLease()
        holder, other = world.candidate("a"), world.candidate("b")
        holder.claim()
        world.time.advance(TTL_S)  # the record is old, and new to the other
        other.claim()
        world.time.advance(TTL_S - 0.001)
        other.claim()
        assert epoch_of(other) == 0
        world.time.advance(0.001)
        other.claim()
        assert epoch_of(other) == 2

    def test_a_renewal_begins_the_wait_anew(self) -> None:
        world = SharedLease()
        holder, other = world.candidate("a"), world.candidate("b")
        holder.claim()
        for _ in range(5):
            other.claim()
            world.time.advance(TTL_S / 2)
            holder.renew()
        assert (epoch_of(holder), epoch_of(other)) == (1, 0)

    def test_the_holder_counts_from_before_the_request_was_sent(self) -> None:
        world = SharedLease()
        candidate = world.candidate()

        class Slow(ObjectLeaseStore):
            def write(self, record: object, expected: str | None) -> str:
                version = super().write(record, expected)  # type: ignore[arg-type]
                world.time.advance(5)
                return version

        candidate.store = Slow(world.objects, KEY)
        candidate.claim()
        world.time.advance(TTL_S - MARGIN_S - 5)
        assert epoch_of(candidate) == 0

    def test_another_counts_from_when_the_answer_came(self) -> None:
        world = SharedLease()
        holder, other = world.candidate("a"), world.candidate("b")
        holder.claim()

        class Slow(ObjectLeaseStore):
            def read(self) -> StoredRecord | None:
                world.time.advance(5)
                holder.renew()
                return super().read()

        other.store = Slow(world.objects, KEY)
        other.look()
        other.store = ObjectLeaseStore(world.objects, KEY)
        world.time.advance(TTL_S - 0.001)
        other.claim()
        assert epoch_of(other) == 0

    def test_an_answer_that_comes_after_the_deadline_brings_nothing_back(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        world.time.advance(TTL_S - MARGIN_S - 1)

        class Slow(ObjectLeaseStore):
            def write(self, record: object, expected: str | None) -> str:
                world.time.advance(2)
                return super().write(record, expected)  # type: ignore[arg-type]

        candidate.store = Slow(world.objects, KEY)
        assert candidate.renew() is None
        candidate.store = ObjectLeaseStore(world.objects, KEY)
        candidate.claim()
        assert epoch_of(candidate) == 2

    @pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
    def test_a_jump_of_the_wall_clock_changes_nothing(self, jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        world = SharedLease()
        holder, other = world.candidate("a"), world.candidate("b")
        holder.claim()
        other.claim()
        real = __import__("time").time_ns()
        monkeypatch.setattr("time.time", lambda: real / 1e9 + jump_s)
        monkeypatch.setattr("time.time_ns", lambda: real + int(jump_s * 1e9))
        world.time.advance(1)
        holder.renew()
        other.claim()
        assert (epoch_of(holder), epoch_of(other)) == (1, 0)
        world.time.advance(TTL_S)
        other.claim()
        assert (epoch_of(holder), epoch_of(other)) == (0, 2)


class TestAnAmbiguousWrite:
    @pytest.mark.parametrize("call", ["claim", "renew"])
    def test_that_was_done_is_recognised_by_session_and_nonce(self, call: str) -> None:
        world = SharedLease()
        candidate = world.candidate()
        if call == "renew":
            candidate.claim()
            world.time.advance(5)
        world.objects.faults.fail("put", LOST, after=True)
        getattr(candidate, call)()
        world.time.advance(TTL_S - MARGIN_S - 0.001)
        assert epoch_of(candidate) == 1
        assert world.objects.faults.calls["put"] == (1 if call == "claim" else 2)  # it was not repeated

    def test_that_was_not_done_is_not_taken_for_done(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        world.objects.faults.fail("put", LOST)
        candidate.claim()
        assert epoch_of(candidate) == 0
        candidate.claim()
        assert epoch_of(candidate) == 1

    def test_a_renewal_that_was_not_done_prolongs_nothing(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        world.time.advance(5)
        world.objects.faults.fail("put", LOST)
        candidate.renew()  # what it reads back is a record of its session, and not this one
        world.time.advance(TTL_S - MARGIN_S - 5)
        assert epoch_of(candidate) == 0

    def test_whose_read_back_fails_is_recognised_later_with_the_time_of_its_sending(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        world.time.advance(4)
        world.objects.faults.fail("put", LOST, after=True)
        world.objects.faults.fail("get", StoreUnavailable("memory://", "slow down"))
        with pytest.raises(StoreUnavailable):
            candidate.renew()
        world.time.advance(3)
        candidate.look()
        world.time.advance(TTL_S - MARGIN_S - 3 - 0.001)
        assert epoch_of(candidate) == 1
        world.time.advance(0.001)
        assert epoch_of(candidate) == 0

    def test_a_conflict_with_our_own_success_is_no_loss(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        # As a proxy does that sends a request twice and hands the second answer on.
        world.objects.faults.fail("put", ObjectConflict(KEY, "it was written by another"), after=True)
        candidate.renew()
        assert epoch_of(candidate) == 1

    def test_a_claim_that_arrives_an_hour_late_gives_nothing_and_is_claimed_over(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        world.objects.faults.fail("put", LOST, after=True)
        world.objects.faults.fail("get", StoreUnavailable("memory://", "slow down"), nth=2)
        with pytest.raises(StoreUnavailable):
            candidate.claim()
        world.time.advance(HOUR_S)
        candidate.look()
        assert epoch_of(candidate) == 0
        candidate.claim()
        assert epoch_of(candidate) == 2


class TestVersions:
    def test_no_two_writes_of_a_lease_are_equal_bytes(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        bodies = []
        for _ in range(20):
            candidate.renew()
            found = world.objects.get(KEY)
            assert found is not None
            bodies.append(found.body)
        assert len(set(bodies)) == 20


class TestStatusCodes:
    def test_412_is_a_loss_that_is_read_back(self) -> None:
        world = SharedLease()
        holder, other = world.candidate("a"), world.candidate("b")
        holder.claim()
        other.look()
        still = holder.candidate
        world.time.advance(TTL_S)
        other.claim()
        world.time.ns -= int(TTL_S * 1e9)  # as a clock that stood still
        holder._candidate = still  # noqa: SLF001 - it has seen nothing of it
        assert holder.renew() is None
        assert epoch_of(holder) == 0

    def test_a_storm_of_409_is_waited_out(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        for nth in range(1, 21):
            world.objects.faults.fail("put", UNDECIDED, nth=nth)
        for _ in range(20):
            candidate.claim()
            assert epoch_of(candidate) == 0
        candidate.claim()
        assert epoch_of(candidate) == 1
        for nth in range(1, 6):
            world.objects.faults.fail("put", UNDECIDED, nth=nth)
        for _ in range(5):
            candidate.renew()
            assert epoch_of(candidate) == 1

    def test_a_missing_record_is_a_loss_for_its_holder(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        world.objects.delete(KEY)
        assert candidate.renew() is None

    def test_what_no_retry_mends_is_raised(self) -> None:
        world = SharedLease()
        world.objects.faults.fail("put", StoreRefused("memory://", "denied"))
        with pytest.raises(StoreRefused):
            world.candidate().claim()


class TestARecordDeletedByHand:
    def test_who_knew_it_waits_a_lease_and_goes_on_above_its_epoch(self) -> None:
        world = SharedLease()
        holder, other = world.candidate("a"), world.candidate("b")
        holder.claim()
        other.claim()
        world.objects.delete(KEY)
        other.claim()
        assert epoch_of(other) == 0
        world.time.advance(TTL_S)
        other.claim()
        assert (epoch_of(holder), epoch_of(other)) == (0, 2)

    def test_who_learns_the_epoch_from_the_data_does_so_too(self) -> None:
        world = SharedLease()
        holder, newcomer = world.candidate("a"), world.candidate("b", floor=lambda: 41)
        holder.claim()
        world.objects.delete(KEY)
        newcomer.claim()
        assert epoch_of(newcomer) == 0
        world.time.advance(TTL_S)
        newcomer.claim()
        assert epoch_of(newcomer) == 42

    def test_an_epoch_that_is_news_begins_the_wait_anew(self) -> None:
        world = SharedLease()
        epochs = [1]
        holder, other = world.candidate("a", floor=lambda: 1), world.candidate("b", floor=lambda: epochs[-1])
        for candidate in (holder, other):
            candidate.claim()
        world.time.advance(TTL_S)  # both have seen it missing for a whole lease
        holder.claim()
        epochs.append(epoch_of(holder))
        world.objects.delete(KEY)
        other.claim()
        assert (epoch_of(holder), epoch_of(other)) == (2, 0)
        world.time.advance(TTL_S)
        other.claim()
        assert (epoch_of(holder), epoch_of(other)) == (0, 3)

    def test_who_knows_of_no_epoch_takes_it_for_the_first_start_and_begins_at_1(self) -> None:
        world = SharedLease()
        holder, newcomer = world.candidate("a"), world.candidate("b")
        holder.claim()
        world.objects.delete(KEY)
        newcomer.claim()
        assert epoch_of(newcomer) == 1  # beside the holder, until that renews
        assert holder.renew() is None


class TestTheSameName:
    def test_a_restarted_holder_does_not_go_on_with_what_its_predecessor_held(self) -> None:
        world = SharedLease()
        before, after = world.candidate("a"), world.candidate("a")
        before.claim()
        after.claim()
        assert (epoch_of(before), epoch_of(after)) == (1, 0)
        world.time.advance(TTL_S)
        after.claim()
        assert epoch_of(after) == 2


class TestEpochs:
    def test_they_only_grow_over_claims_releases_thefts_and_restarts(self) -> None:
        world = SharedLease()
        epochs = []
        for turn in range(12):
            candidate = world.candidate(f"node-{turn % 3}")
            candidate.look()
            world.time.advance(TTL_S)
            candidate.claim()
            epochs.append(epoch_of(candidate))
            if turn % 2:
                candidate.release()
        assert epochs == list(range(1, 13))


class TestRacing:
    def test_of_two_who_claim_at_once_exactly_one_wins(self) -> None:
        world = SharedLease()
        first, second = world.candidate("a"), world.candidate("b")

        class Between(ObjectLeaseStore):
            def write(self, record: object, expected: str | None) -> str:
                second.claim()
                return super().write(record, expected)  # type: ignore[arg-type]

        first.store = Between(world.objects, KEY)
        first.claim()
        assert (epoch_of(first), epoch_of(second)) == (0, 1)

    def test_a_claim_costs_a_read_and_a_write_and_a_renewal_a_write(self) -> None:
        world = SharedLease()
        candidate = world.candidate()
        candidate.claim()
        assert world.objects.faults.calls == {"get": 1, "put": 1}
        candidate.renew()
        assert world.objects.faults.calls == {"get": 1, "put": 2}


class TestRevoking:
    def test_the_holder_cannot_renew_and_others_wait_its_time(self) -> None:
        world = SharedLease()
        holder, other = world.candidate("a"), world.candidate("b")
        holder.claim()
        revoke(ObjectLeaseStore(world.objects, KEY), 1)
        other.claim()
        assert (epoch_of(holder), epoch_of(other)) == (1, 0)
        assert holder.renew() is None
        world.time.advance(TTL_S)
        other.claim()
        assert epoch_of(other) == 2

    def test_it_needs_the_epoch_that_is_there(self) -> None:
        world = SharedLease()
        world.candidate().claim()
        with pytest.raises(LeaseLost, match="epoch 1"):
            revoke(ObjectLeaseStore(world.objects, KEY), 7)


class IgnoringConditions(MemoryObjects):
    """A store that takes every write, as some do."""

    def put(self, key, body, *, if_absent=False, if_match=None, metadata=None) -> str:  # type: ignore[no-untyped-def] # noqa: ANN001, ARG002
        return super().put(key, body, metadata=metadata)


def test_a_store_without_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.lease.addresses.open_objects", lambda *_, **__: IgnoringConditions())
    with pytest.raises(ConditionsIgnored):
        open_lease_store("memory://ignoring", KEY)
