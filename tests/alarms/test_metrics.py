"""Metrics of alarms change with what happens to them."""

from pathlib import Path

from strandline.alarms import AlarmSettings, AlarmWatch, Condition
from tests.alarms.receiver import SECRET, receiving
from tests.metrics.scrapes import Scrapes


def test_firing_undelivered_delivered_and_failed_are_counted(tmp_path: Path) -> None:
    scrapes = Scrapes()
    with receiving() as server:
        alarms = AlarmWatch(AlarmSettings((server.url,), SECRET, outbox=tmp_path))
        scrapes.take(alarms.metrics)
        server.statuses = [500]
        alarms.tell(Condition("test", "s", "broken"))
        found = scrapes.take(alarms.metrics)
        assert (found["strandline_alarms_firing"], found["strandline_alarms_undelivered"]) == (1, 1)
        alarms.delivery.run(now=True)
        assert scrapes.take(alarms.metrics)["strandline_alarms_failed_attempts_total"] == 1
        alarms.tell(Condition("test", "s", None))
        alarms.delivery.run(now=True)
        found = scrapes.take(alarms.metrics)
        assert (found["strandline_alarms_firing"], found["strandline_alarms_undelivered"]) == (0, 0)
        assert found["strandline_alarms_delivered_total"] == 2
    scrapes.check_changed(
        "strandline_alarms_firing",
        "strandline_alarms_undelivered",
        "strandline_alarms_delivered_total",
        "strandline_alarms_failed_attempts_total",
    )
