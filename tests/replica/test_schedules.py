"""Seeded schedules of nodes: nothing acknowledged is lost, no two leaders write one position, nothing is invented.

The checksum of the predecessor, which followers and merges check too, is a second defence behind the name of a
transaction: no schedule needs it while names are created where there are none.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from strandline.errors import StrandlineError
from strandline.lease import Fence, Lease
from strandline.replica.node_copy import NodeCopy
from strandline.replica.shipper import Position, Shipment, Shipper
from tests.effort import Part, parts
from tests.replica.schedules import Schedule

SEEDS = range(2_000)
PARTS = 16
SEARCHED = 500
SHIP = Shipper.ship


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Have no lines of warnings: every schedule has hundreds."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, folder: Path) -> Schedule:
    """Run a schedule; a failure names its seed and what was done."""
    place = folder / str(seed)
    place.mkdir()
    schedule = Schedule(seed, place)
    try:
        schedule.run()
    except (AssertionError, StrandlineError) as error:
        done = "\n".join(schedule.done)
        raise AssertionError(f"seed {seed}: {error}\n{done}") from error
    return schedule


@parts(PARTS)
def test_nodes_keep_their_promises_in_every_schedule(tmp_path: Path, part: Part) -> None:
    schedules = [run(seed, tmp_path) for seed in part.of(SEEDS)]
    done = {line.split()[0] for schedule in schedules for line in schedule.done}
    assert done == {"step", "renew", "write", "compact", "crash", "begin", "hand_over", "stand_still", "jump"}
    assert sum(schedule.acknowledged for schedule in schedules) > len(schedules), "rows are acknowledged"
    assert sum(schedule.failovers for schedule in schedules) > len(schedules) // 4, "by more leaders than one"
    assert any(schedule.set_aside for schedule in schedules), "and rows are set aside"


def _overwrite(self: Shipper, shipment: Shipment) -> Position:
    """Ship over what another leader wrote."""
    put = self._store.put

    def put_anyway(*arguments: object, if_absent: bool, **options: object) -> str:
        del if_absent
        return put(*arguments, **options)  # type: ignore[arg-type]

    with patch.object(self._store, "put", put_anyway):
        return SHIP(self, shipment)


def _is_ours(*_: object) -> bool:
    """Take the transaction of another leader for ours."""
    return True


def _is_held(_: Lease, fence: Fence | None = None) -> Fence:
    """Take a lease that is over for one that is held."""
    return fence or Fence(1)


def _find_known(self: NodeCopy, _: object, epoch: int) -> object:
    """Take the database for the last transaction that was noted, wherever its log ends."""
    return next(iter(self._noted(epoch)), None)


def _keep_nothing(*_: object) -> None:
    """Set nothing aside."""


BROKEN: dict[str, tuple[type, str, Callable[..., object], int]] = {
    "a transaction is written over that of another leader": (Shipper, "ship", _overwrite, 91),
    "a transaction of another leader counts as ours": (Shipper, "_is_ours", _is_ours, 91),
    "a lease that is over is not noticed": (Lease, "check", _is_held, 0),
    "a database counts as what was noted last, wherever its log ends": (NodeCopy, "_find_known", _find_known, 0),
    "commits that were not shipped are not set aside": (NodeCopy, "_set_aside", _keep_nothing, 0),
}
"""Each rule broken, and the first of the seeds that are tried: one that has found it, so that few are tried."""


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(tmp_path: Path, rule: str) -> None:
    where, name, broken, first = BROKEN[rule]
    with patch.object(where, name, broken):
        for seed in range(first, first + SEARCHED):
            try:
                run(seed, tmp_path)
            except AssertionError:
                return
    pytest.fail(f"no schedule has found that {rule}")
