"""Every store keeps the contract, and the contract catches stores that do not."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import fold
from strandline.journal import SYNCED, WRITTEN, Durability
from strandline.testing import (
    SNAPSHOT_STORE_CHECKS,
    ContractBroken,
    SnapshotStoreCheck,
    check_snapshot_store,
    snapshot_stores,
)
from strandline.testing.snapshot_stores import changes, everything
from tests.fold.broken import CAUGHT_BY, Broken
from tests.fold.helpers import DURABLE, MODES, durable, opened, resident

WORDS = {"changes", "entry", "everything", "check_snapshot_store"}


@pytest.mark.parametrize("check", SNAPSHOT_STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("backend", ["memory", *DURABLE])
def test_stores_keep_the_contract(backend: str, check: SnapshotStoreCheck, tmp_path: Path) -> None:
    with opened(backend, tmp_path, WRITTEN) as checked:
        check(checked)


@pytest.mark.parametrize("backend", DURABLE)
def test_sync_mode_round_trips(backend: str, tmp_path: Path) -> None:
    """Each mode opens what the other wrote."""
    for round_, sync in enumerate([*MODES, *MODES], 1):
        with durable(backend, tmp_path, sync) as checked:
            assert len(checked.store.range()) == round_ - 1
            checked.store.apply(*changes(round_, (b"key %d" % round_, b"x")))


@pytest.mark.parametrize("sync", MODES)
@pytest.mark.parametrize("backend", DURABLE)
def test_no_sync_tail_is_consistent_and_idempotent(backend: str, sync: Durability, tmp_path: Path) -> None:
    """What was applied once and is applied again changes nothing, so a tail that was lost may be told again."""
    with durable(backend, tmp_path, sync) as checked:
        for at in range(1, 20):
            checked.store.apply(*changes(at, (b"key %d" % (at % 5), b"%d" % at), (b"key %d" % (at % 3), None)))
        before = everything(checked.store)
        for at in range(15, 20):
            checked.again().apply(*changes(at, (b"key %d" % (at % 5), b"%d" % at), (b"key %d" % (at % 3), None)))
        assert everything(checked.again()) == before


def test_all_checks_can_be_run_at_once_without_a_test_runner() -> None:
    check_snapshot_store(resident)


def test_the_whole_twin_that_broken_ones_derive_from_is_not_caught() -> None:
    assert not list(failures(Broken))


@pytest.mark.parametrize(("broken", "check"), CAUGHT_BY.items(), ids=lambda part: getattr(part, "__name__", part))
def test_a_broken_store_is_caught_by_the_check_for_its_promise(broken: type[Broken], check: str) -> None:
    assert check in list(failures(broken))
    with pytest.raises(ContractBroken):
        check_snapshot_store(lambda: resident(broken))


def test_every_check_catches_something() -> None:
    assert set(CAUGHT_BY.values()) == {check.__name__ for check in SNAPSHOT_STORE_CHECKS}


def test_every_check_that_is_written_is_listed() -> None:
    written = {
        name
        for name, function in inspect.getmembers(snapshot_stores, inspect.isfunction)
        if function.__module__ == snapshot_stores.__name__ and not name.startswith("_")
    }
    assert written - WORDS == {check.__name__ for check in SNAPSHOT_STORE_CHECKS}


@pytest.mark.parametrize("backend", DURABLE)
def test_the_default_is_synced(backend: str) -> None:
    stores = {"append log": "AppendLogStore", "sqlite": "SqliteStore", "rocksdb": "RocksDbStore"}
    parameters = inspect.signature(getattr(fold, stores[backend.split(",", maxsplit=1)[0]]).open).parameters
    assert parameters["sync"].default is SYNCED


def failures(broken: type[Broken]) -> Iterator[str]:
    """Yield the names of the checks that a store fails."""
    for check in SNAPSHOT_STORE_CHECKS:
        with resident(broken) as checked:
            try:
                check(checked)
            except Exception:  # noqa: BLE001 - whatever it is, the check failed
                yield check.__name__
