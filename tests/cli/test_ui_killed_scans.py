"""A scan that was really killed: the pages say so, and an alarm is raised once and resolved once."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.alarms import AlarmSettings, AlarmWatch, Condition, Outbox
from strandline.cli.ui_pages import KilledScans
from strandline.objects import StoreUnavailable
from strandline.scan.local_workers import LocalWorkers
from strandline.scan.state import open_state
from strandline.web import Parts
from strandline.web.parts.scans import STILL_S, ScanFacts, ScanPart
from tests.alarms.receiver import SECRET, receiving
from tests.cli.scan_command import Repository
from tests.cli.stopped_scans import stopped
from tests.waiting import eventually
from tests.web.sites import serve_parts

KIND = "scan_stopped"
LEFT = "is not finished, and no worker has continued it for a minute"


class Looks:
    """What `strandline ui` sees of a state, with a clock of its own; alarms go to an outbox that outlives it."""

    def __init__(self, part: ScanPart, outbox: Outbox) -> None:
        self.part = part
        self.outbox = outbox
        self._killed = KilledScans(part, outbox)

    def look(self) -> None:
        """Look once."""
        self.part.step()
        assert self.part.problem is None
        for seen in self._killed():
            self.outbox.observe(seen)

    @property
    def facts(self) -> ScanFacts:
        """Return what was seen."""
        assert self.part.value is not None
        return self.part.value

    @property
    def needs(self) -> str:
        """Return what the pages say."""
        return "\n".join(one.text for one in self.part.needs())

    @property
    def firing(self) -> list[str]:
        """Return the subjects of the alarms that fire."""
        return [one.subject for one in self.outbox.alarms() if one.is_firing and one.kind == KIND]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@contextmanager
def looks(shop: Repository, clock: Clock) -> Iterator[Looks]:
    """Show a state as a `strandline ui` does that was started now."""
    with open_state(str(shop.state)) as state:
        yield Looks(ScanPart(state, now_s=clock), Outbox(shop.state.parent / "outbox", ("webhook",)))


@pytest.fixture
def killed(tmp_path: Path) -> Repository:
    """Return a folder whose scan was killed after three of its items."""
    shop = Repository(tmp_path)
    shop.commit(**{f"file{number}": f"alpha_0000000{number}\n" for number in range(8)})
    assert stopped(shop, signal.SIGKILL)[0] == -signal.SIGKILL
    return shop


def test_a_killed_scan_raises_an_alarm_once_and_its_end_resolves_it(killed: Repository, tmp_path: Path) -> None:
    clock = Clock()
    with receiving() as server, open_state(str(killed.state)) as state:
        part = ScanPart(state, every_s=0.05, now_s=clock)
        settings = AlarmSettings((server.url,), SECRET, outbox=tmp_path / "outbox", look_every_s=0.05)
        alarms = AlarmWatch(settings)
        alarms.add(KilledScans(part, alarms.outbox))
        with serve_parts(Parts(scans=part)) as client, alarms:
            eventually(lambda: part.reads, "it was looked at")
            clock.now_s += STILL_S
            eventually(lambda: server.states(KIND) == ["raised"], "the alarm is raised after a minute")
            assert LEFT in client.get("/").text
            again = killed.scan("--lease-s", "1")
            assert "resuming" in again.err
            eventually(lambda: server.states(KIND) == ["raised", "resolved"], "the end of the scan resolves it")
            eventually(lambda: LEFT not in client.get("/").text, "and the page follows")


def test_a_run_in_which_something_moves_is_at_work_whatever_its_deadlines_say(
    killed: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine of `strandline ui` is an hour ahead: every lease seems to be over."""
    clock, now_ns = Clock(), time.time_ns() + 10**9
    with looks(killed, clock) as ui:
        coordinator, tenant = ui.part.state.stores.coordinator, ui.part.state.tenant
        (run,) = coordinator.list_runs(tenant)
        (shard,) = ui.part.shards(run.run)
        lease = coordinator.acquire_and_restore(now_ns, shard.key, worker=9).lease
        monkeypatch.setattr(time, "time_ns", lambda: now_ns + 3600 * 10**9)
        for renewal in range(1, 5):
            ui.look()
            clock.now_s += STILL_S * 0.9
            lease = coordinator.renew(now_ns + renewal, lease)
        ui.look()
        assert ui.facts.left == ()
        assert not ui.firing
        clock.now_s += STILL_S
        ui.look()
        assert LEFT in ui.needs
        assert len(ui.firing) == 1
        coordinator.renew(now_ns + 5, lease)
        ui.look()
        assert LEFT not in ui.needs
        assert not ui.firing, "work goes on"


def test_a_scan_that_waits_for_machines_is_not_said_to_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, clock = Repository(tmp_path), Clock()
    shop.commit(a="alpha_00000001\n")
    with monkeypatch.context() as waiting:
        waiting.setattr(LocalWorkers, "run", _interrupted)
        assert shop.scan().code == 130
    with looks(shop, clock) as ui:
        ui.look()
        assert "no worker" not in ui.needs
        clock.now_s += STILL_S
        ui.look()
        assert "no worker has started the scan of" in ui.needs
        assert not any(one.is_urgent for one in ui.part.needs())
        assert not ui.firing
        shop.scan()
        ui.look()
        assert "no worker" not in ui.needs


def test_the_pages_resolve_no_alarm_that_a_scan_raised(killed: Repository) -> None:
    clock = Clock()
    with looks(killed, clock) as ui:
        address = str(ui.part.state.address)
        ui.look()
        clock.now_s += STILL_S
        ui.look()
        assert ui.firing == [f"unfinished scans of {address}"]
        killed.scan("--lease-s", "1")
        ui.outbox.observe(Condition(KIND, address, "2 shards failed again and again, and are parked"))
        ui.look()
        ui.look()
        assert ui.firing == [address]


def test_a_scan_that_told_why_it_stopped_raises_no_second_alarm(killed: Repository) -> None:
    clock = Clock()
    with looks(killed, clock) as ui:
        address = str(ui.part.state.address)
        ui.outbox.observe(Condition(KIND, address, "the scan ended before it was done: StoreUnavailable"))
        ui.look()
        clock.now_s += STILL_S
        ui.look()
        assert LEFT in ui.needs
        assert ui.firing == [address]


def test_pages_that_start_again_raise_nothing_twice_and_resolve_what_is_over(killed: Repository) -> None:
    clock = Clock()
    with looks(killed, clock) as ui:
        ui.look()
        clock.now_s += STILL_S
        ui.look()
        assert len(ui.firing) == 1
    with looks(killed, clock) as ui:
        ui.look()
        assert ui.facts.left == (), "it was not watched for long enough"
        assert len(ui.firing) == 1, "so nothing is known to be over"
        clock.now_s += STILL_S
        ui.look()
    assert [alarm.notices for alarm in ui.outbox.alarms()] == [1]
    killed.scan("--lease-s", "1")
    with looks(killed, clock) as ui:
        ui.look()
        assert not ui.firing


def test_stores_that_cannot_be_reached_for_a_while_are_no_kill(
    killed: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with looks(killed, clock) as ui:
        ui.look()
        with monkeypatch.context() as away:
            away.setattr(ui.part, "_runs", _unreachable)
            ui.part.step()
            assert ui.part.problem is not None
        clock.now_s += STILL_S
        ui.look()
        assert ui.facts.left == (), "its workers could not renew either"
        clock.now_s += STILL_S
        ui.look()
        assert len(ui.facts.left) == 1


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _unreachable() -> None:
    raise StoreUnavailable("state", "away")
