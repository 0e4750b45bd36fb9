"""What is checked under a lease, and in which order."""

from collections.abc import Callable

import pytest

from strandline.protocol import leases, splits
from strandline.protocol.errors import (
    AlreadyLeased,
    LeaseExpired,
    OpIdConflict,
    ShardTerminal,
    StaleFence,
    TenantMismatch,
)
from strandline.protocol.leases import Decided
from strandline.protocol.shards import Cursor, Lease, ParkReason, ShardRecord, ShardSpec, ShardStatus
from strandline.protocol.splits import ResidualPlan

TENANT = b"t" * 32
HALVES = (ShardSpec(b"b", b"m"), ShardSpec(b"m", b"y"))
OPERATIONS: dict[str, Callable[[ShardRecord, Lease, int], Decided | ShardRecord]] = {
    "checkpoint": lambda record, lease, now: leases.checkpoint(record, lease, now, Cursor(b"c"), 9),
    "complete": lambda record, lease, now: leases.complete(record, lease, now, Cursor(b"c"), 9),
    "park": lambda record, lease, now: leases.park(record, lease, now, ParkReason.OTHER, 9),
    "split_replace": lambda record, lease, now: splits.split_replace(record, lease, now, HALVES, 9),
    "split_residual": lambda record, lease, now: splits.split_residual(record, lease, now, ResidualPlan(*HALVES), 9),
    "renew": lambda record, lease, now: leases.renew(record, lease, now, 10),
}
ends = pytest.mark.parametrize("name", OPERATIONS)


def leased() -> tuple[ShardRecord, Lease]:
    record = leases.acquire(ShardRecord(TENANT, 1, 2, ShardSpec(b"b", b"y")), 100, TENANT, 5, 10)
    return record, leases.lease_of(record)


@ends
def test_a_lease_is_checked_for_tenant_status_fence_expiry_and_owner_in_this_order(name: str) -> None:
    record, lease = leased()
    operation = OPERATIONS[name]
    wrong = lease._replace(tenant=b"o" * 32, fence=7, worker=6)
    done = record._replace(status=ShardStatus.DONE, cursor=Cursor(b"c"), owner=None, deadline=None)
    with pytest.raises(TenantMismatch):
        operation(done, wrong, 110)
    wrong = wrong._replace(tenant=TENANT)
    with pytest.raises(ShardTerminal):
        operation(done, wrong, 110)
    with pytest.raises(StaleFence) as stale:
        operation(record, wrong, 110)
    assert stale.value.fence == 7
    wrong = wrong._replace(fence=lease.fence)
    with pytest.raises(LeaseExpired):
        operation(record, wrong, 110)
    with pytest.raises(StaleFence) as stale:
        operation(record, wrong, 109)
    assert stale.value.fence == stale.value.current
    operation(record, lease, 109)


@ends
def test_what_is_remembered_is_answered_before_anything_is_checked(name: str) -> None:
    if name == "renew":
        return
    record, lease = leased()
    decided = OPERATIONS[name](record, lease, 101)
    assert isinstance(decided, Decided)
    again = OPERATIONS[name](decided.record, lease._replace(fence=99, worker=0), 10_000)
    assert again == Decided(decided.record, decided.outcome, replayed=True)
    other = next(other for other in OPERATIONS if other not in {name, "renew"})
    with pytest.raises(OpIdConflict):
        OPERATIONS[other](decided.record, lease._replace(fence=99), 10_000)


def test_an_acquisition_is_checked_for_tenant_status_and_lease_in_this_order() -> None:
    record, _ = leased()
    parked = record._replace(status=ShardStatus.PARKED, park_reason=ParkReason.OTHER, owner=None, deadline=None)
    with pytest.raises(TenantMismatch):
        leases.acquire(parked, 105, b"o" * 32, 5, 10)
    with pytest.raises(ShardTerminal):
        leases.acquire(parked, 105, TENANT, 5, 10)
    with pytest.raises(AlreadyLeased) as held:
        leases.acquire(record, 109, TENANT, 5, 10)
    assert held.value.deadline == 110
    assert leases.acquire(record, 110, TENANT, 6, 10)[7:10] == (2, 6, 120)


def test_a_renewal_never_shortens_a_lease_and_changes_nothing_else() -> None:
    record, lease = leased()
    assert leases.renew(record, lease, 100, 3) == record
    assert leases.renew(record, lease, 105, 10) == record._replace(deadline=115)
