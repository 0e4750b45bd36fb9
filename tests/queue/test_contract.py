"""Every storage keeps the contract, and the contract catches storages that do not."""

import inspect
import pickle
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from strandline.clock import ManualClock
from strandline.queue import JournalStorage, MemoryStorage, QueueConfig
from strandline.sim import SimDisk
from strandline.testing import (
    DELIVERIES_MAX,
    QUEUE_STORAGE_CHECKS,
    CheckedStorage,
    ContractBroken,
    QueueStorageCheck,
    check_queue_storage,
    queue_deliveries,
    queue_messages,
)
from tests.queue.broken_storages import CAUGHT_BY, Broken
from tests.queue.helpers import open_sim, served, tiny

CONFIG = QueueConfig(deliveries_max=DELIVERIES_MAX)

Opens = Callable[[ManualClock, Path], AbstractContextManager[CheckedStorage]]
BACKENDS: dict[str, Opens] = {
    "memory": lambda clock, _: nullcontext(MemoryStorage(CONFIG, clock=clock)),
    "disk": lambda clock, folder: JournalStorage.open(folder / "queue", CONFIG, clock=clock),
    "simulated": lambda clock, _: open_sim(SimDisk(), clock, CONFIG),
    "served": lambda clock, folder: served(JournalStorage.open(folder / "queue", CONFIG, clock=clock), clock),
    "simulated, tiny": lambda clock, _: open_sim(SimDisk(), clock, tiny(DELIVERIES_MAX)),
}


@pytest.mark.parametrize("check", QUEUE_STORAGE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_storages_keep_the_contract(backend: str, check: QueueStorageCheck, tmp_path: Path) -> None:
    clock = ManualClock()
    with BACKENDS[backend](clock, tmp_path) as storage:
        check(storage, clock)


def test_all_checks_can_be_run_at_once_without_a_test_runner() -> None:
    opened: list[CheckedStorage] = []

    def open_storage(clock: ManualClock) -> AbstractContextManager[CheckedStorage]:
        opened.append(MemoryStorage(CONFIG, clock=clock))
        return nullcontext(opened[-1])

    check_queue_storage(open_storage)
    assert len(opened) == len(QUEUE_STORAGE_CHECKS)


def test_the_whole_twin_that_broken_ones_derive_from_is_not_caught() -> None:
    assert not list(failures(Broken))


@pytest.mark.parametrize(("broken", "check"), CAUGHT_BY.items(), ids=lambda part: getattr(part, "__name__", part))
def test_a_broken_storage_is_caught_by_the_check_for_its_promise(broken: type[Broken], check: str) -> None:
    assert check in failures(broken, {check})
    with pytest.raises(ContractBroken) as caught:
        check_queue_storage(lambda clock: nullcontext(broken(clock)))
    assert caught.value.check in {check.__name__ for check in QUEUE_STORAGE_CHECKS}
    assert str(caught.value).startswith(caught.value.check.replace("_", " "))


def test_every_check_catches_something() -> None:
    assert set(CAUGHT_BY.values()) == {check.__name__ for check in QUEUE_STORAGE_CHECKS}


def test_every_check_that_is_written_is_listed() -> None:
    written = {
        function
        for module in (queue_messages, queue_deliveries)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert written == set(QUEUE_STORAGE_CHECKS)


def test_a_storage_that_raises_something_of_its_own_is_told_as_a_broken_contract() -> None:
    class Falls(MemoryStorage):
        def fetch_by_offset(self, offset: int) -> None:  # type: ignore[override]
            raise ZeroDivisionError(offset)

    with pytest.raises(ContractBroken, match=r"contiguous offsets: raised ZeroDivisionError: 0"):
        check_queue_storage(lambda clock: nullcontext(Falls(CONFIG, clock=clock)))  # type: ignore[arg-type]


def test_a_broken_contract_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(ContractBroken("a_check", "it is so")))  # noqa: S301 - our own bytes
    assert (error.check, error.problem, str(error)) == ("a_check", "it is so", "a check: it is so")


def failures(broken: type[Broken], only: Collection[str] = ()) -> Iterator[str]:
    """Yield the names of the checks, all or some of them, that a storage fails."""
    for check in QUEUE_STORAGE_CHECKS:
        if only and check.__name__ not in only:
            continue
        clock = ManualClock()
        try:
            check(broken(clock), clock)
        except Exception:  # noqa: BLE001 - whatever it is, the check failed
            yield check.__name__
