"""Every check of a lease's store catches something: a store broken in one way fails the check that speaks of it."""

import pytest

from strandline.lease import LeaseRecord, ObjectLeaseStore, StoredRecord
from strandline.objects import MemoryObjects
from strandline.testing import LEASE_STORE_CHECKS, ContractBroken, LeaseStoreCheck, run_lease_store_check

KEY = "lease"


class BrokenStore(ObjectLeaseStore):
    """A store over objects of its own making, with one promise missing."""

    def __init__(self, objects: MemoryObjects) -> None:
        super().__init__(objects, KEY)
        self.objects = objects


class InventsRecords(BrokenStore):
    def read(self) -> StoredRecord | None:
        return super().read() or StoredRecord(LeaseRecord(1, "a", "", "s", 1, 0), "0")


class DropsFields(BrokenStore):
    def write(self, record: LeaseRecord, expected: str | None) -> str:
        return super().write(record._replace(released=False), expected)


class CreatesAgain(BrokenStore):
    def write(self, record: LeaseRecord, expected: str | None) -> str:
        if expected is None:
            self.objects.delete(KEY)
        return super().write(record, expected)


class ReplacesAnything(BrokenStore):
    def write(self, record: LeaseRecord, expected: str | None) -> str:
        found = self.objects.head(KEY)
        return super().write(record, found.etag if expected and found else expected)


class TellsEverybody(BrokenStore):
    def write(self, record: LeaseRecord, expected: str | None) -> str:  # noqa: ARG002 - what is broken here
        found = self.objects.head(KEY)
        return super().write(record, found.etag if found else None)


BROKEN: dict[str, type[BrokenStore]] = {
    "a_missing_record_is_none": InventsRecords,
    "what_was_written_is_read_by_others": DropsFields,
    "a_create_wants_no_record": CreatesAgain,
    "a_write_wants_the_last_version": ReplacesAnything,
    "of_many_who_write_at_once_one_wins": TellsEverybody,
}


def test_every_check_has_a_store_that_fails_it() -> None:
    assert set(BROKEN) == {check.__name__ for check in LEASE_STORE_CHECKS}


@pytest.mark.parametrize("check", LEASE_STORE_CHECKS, ids=lambda check: check.__name__)
def test_every_check_catches_something(check: LeaseStoreCheck) -> None:
    objects = MemoryObjects()
    with pytest.raises(ContractBroken) as caught:
        run_lease_store_check(check, lambda: BROKEN[check.__name__](objects))
    assert caught.value.check == check.__name__
