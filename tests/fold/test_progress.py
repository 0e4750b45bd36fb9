"""Progress is what the events say it is."""

from strandline.events import Event, Events
from strandline.fold.events import (
    BatchStored,
    CaughtUp,
    LagMeasured,
    RepairBegan,
    RepairEnded,
    SourceAway,
    StoreFailed,
    WatchBegan,
)
from strandline.fold.progress import FoldProgress, FoldStatus
from strandline.protocol.repairs import RepairPlan


def after(*events: Event) -> FoldStatus:
    progress = FoldProgress()
    listeners = Events(progress)
    for event in events:
        listeners.emit(event)
    return progress.status()


BEGAN = WatchBegan("b", 3, anew=False)


def test_a_fold_that_has_not_begun_knows_nothing() -> None:
    status = after()
    assert (status.revision, status.lag, status.is_current, status.watches) == (0, None, False, 0)


def test_batches_are_summed_up_and_the_lag_is_what_lies_between() -> None:
    status = after(BEGAN, BatchStored(10, 100, 13, 0.1), BatchStored(5, 50, 18, 0.1), LagMeasured(18, 20))
    assert (status.updates, status.bytes, status.revision, status.lag) == (15, 150, 18, 2)
    assert status.updates_per_s > 0
    assert not status.is_current
    assert LagMeasured(18, 20).lag == 2
    assert LagMeasured(5, 3).lag == 0


def test_it_is_current_until_a_repair_an_outage_or_another_watch() -> None:
    assert after(BEGAN, CaughtUp(3)).is_current
    assert not after(BEGAN, CaughtUp(3), WatchBegan("b", 3, anew=True)).is_current
    repairing = after(BEGAN, CaughtUp(3), RepairBegan(RepairPlan.RELIST, "expired"))
    assert (repairing.is_current, repairing.is_repairing) == (False, True)
    away = after(BEGAN, CaughtUp(3), SourceAway("the connection was dropped", 1.0))
    assert (away.is_current, away.trouble) == (False, "the connection was dropped")
    assert after(BEGAN, SourceAway("away", 1.0), BEGAN).trouble is None


def test_repairs_and_failures_are_counted() -> None:
    status = after(
        BEGAN,
        RepairBegan(RepairPlan.RELIST, "expired"),
        RepairEnded(RepairPlan.RELIST, 0, 7, 0.1),
        BEGAN,
        StoreFailed(1, "no space"),
    )
    assert (status.repairs, status.deleted_by_repairs, status.is_repairing) == (1, 7, False)
    assert (status.watches, status.store_failures, status.trouble) == (2, 1, "no space")
