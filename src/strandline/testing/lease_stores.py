"""The contract of a lease's store as checks, each a function of an empty place that can be opened again and again."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from strandline.errors import Conflict
from strandline.lease import LeaseRecord, LeaseStore, StoredRecord
from strandline.testing.contract import ContractBroken, expect, named, refuses, same

OpenLeaseStore = Callable[[], LeaseStore]
"""Opens one place, empty at first, each time for another process."""
LeaseStoreCheck = Callable[[LeaseStore, LeaseStore], None]
WRITERS, ROUNDS = 4, 5
RECORD = LeaseRecord(1, "a", "http://a", "session", 1, 10_000_000_000)


def _found(store: LeaseStore) -> StoredRecord:
    found = store.read()
    if found is None:
        raise ContractBroken("", "there is no record after one was written")
    return found


def a_missing_record_is_none(store: LeaseStore, other: LeaseStore) -> None:
    """Nothing is there before the first write, which returns a version."""
    same("a record that was never written", (store.read(), other.read()), (None, None))
    version = store.write(RECORD, None)
    expect(version, "a write returned no version")


def what_was_written_is_read_by_others(store: LeaseStore, other: LeaseStore) -> None:
    """Every field comes back, with the version that the write returned."""
    record = RECORD._replace(epoch=2**63 - 1, holder="nöde 'a' 🦀", address="", nonce=7, ttl_ns=0, released=True)
    version = store.write(record, None)
    same("what another reads", _found(other), StoredRecord(record, version))
    same("what the writer reads", _found(store), StoredRecord(record, version))


def a_create_wants_no_record(store: LeaseStore, other: LeaseStore) -> None:
    """A second create is refused and changes nothing."""
    version = store.write(RECORD, None)
    refuses("creating it again", Conflict, other.write, RECORD._replace(session="another"), None)
    same("the record", _found(store), StoredRecord(RECORD, version))


def a_write_wants_the_last_version(store: LeaseStore, other: LeaseStore) -> None:
    """A version is used up by the next write, and no later write brings it back."""
    versions = [store.write(RECORD, None)]
    for nonce in (2, 3):
        versions.append(other.write(RECORD._replace(nonce=nonce), versions[-1]))
    same("how many versions there were", len(set(versions)), 3)
    for version in versions[:-1]:
        refuses("a write over an earlier version", Conflict, store.write, RECORD._replace(nonce=9), version)
    same("the record", _found(store), StoredRecord(RECORD._replace(nonce=3), versions[-1]))


def of_many_who_write_at_once_one_wins(store: LeaseStore, other: LeaseStore) -> None:
    """Writers that expect the same version are told apart."""
    expected: str | None = None
    with ThreadPoolExecutor(WRITERS) as pool:
        for turn in range(1, ROUNDS + 1):
            barrier = threading.Barrier(WRITERS)

            def write(
                number: int, turn: int = turn, expected: str | None = expected, barrier: threading.Barrier = barrier
            ) -> bool:
                barrier.wait()
                record = RECORD._replace(epoch=turn, session=f"writer {number}")
                try:
                    (store, other)[number % 2].write(record, expected)
                except Conflict:
                    return False
                return True

            won = [number for number, is_written in enumerate(pool.map(write, range(WRITERS))) if is_written]
            same("how many of the writers were told that they had written", len(won), 1)
            found = _found(store)
            same("whose record it is", (found.record.epoch, found.record.session), (turn, f"writer {won[0]}"))
            expected = found.version


LEASE_STORE_CHECKS: tuple[LeaseStoreCheck, ...] = (
    a_missing_record_is_none,
    what_was_written_is_read_by_others,
    a_create_wants_no_record,
    a_write_wants_the_last_version,
    of_many_who_write_at_once_one_wins,
)
"""Every promise of the contract, as a function whose name says what must hold."""


def run_lease_store_check(check: LeaseStoreCheck, open_store: OpenLeaseStore) -> None:
    """Run one check over a place of its own, opened twice; `ContractBroken` carries its name."""
    with named(check.__name__):
        store, other = open_store(), open_store()
        try:
            check(store, other)
        finally:
            store.close()
            other.close()


def check_lease_store(open_places: Callable[[], OpenLeaseStore]) -> None:
    """Run every check, each over a new place that `open_places` makes; `ContractBroken` names the first that fails."""
    for check in LEASE_STORE_CHECKS:
        run_lease_store_check(check, open_places())
