"""A scan that was really killed: the pages say so, and an alarm is raised once and resolved once."""

import signal
from contextlib import ExitStack
from pathlib import Path

from strandline.alarms import AlarmSettings, AlarmWatch
from strandline.cli.ui_pages import KilledScans
from strandline.scan.state import open_state
from strandline.web import Parts
from strandline.web.parts.scans import ScanPart
from tests.alarms.receiver import SECRET, receiving
from tests.cli.scan_command import Repository
from tests.cli.stopped_scans import stopped
from tests.waiting import eventually
from tests.web.sites import serve_parts

KIND = "scan_stopped"
LEFT = "is not finished, and no process works on it"


def test_a_killed_scan_raises_an_alarm_once_and_its_end_resolves_it(tmp_path: Path) -> None:
    shop = Repository(tmp_path)
    shop.commit(**{f"file{number}": f"alpha_0000000{number}\n" for number in range(8)})
    assert stopped(shop, signal.SIGKILL)[0] == -signal.SIGKILL
    with ExitStack() as stack:
        server = stack.enter_context(receiving())
        part = ScanPart(stack.enter_context(open_state(str(shop.state))), every_s=0.05, idle_s=0.5)
        settings = AlarmSettings((server.url,), SECRET, outbox=tmp_path / "outbox", look_every_s=0.05)
        client = stack.enter_context(serve_parts(Parts(scans=part)))
        stack.enter_context(AlarmWatch(settings, KilledScans(part)))
        eventually(lambda: server.states(KIND) == ["raised"], "the alarm is raised when the lease is over")
        assert LEFT in client.get("/").text
        again = shop.scan("--lease-s", "1")
        assert "resuming" in again.err
        eventually(lambda: server.states(KIND) == ["raised", "resolved"], "the end of the scan resolves it")
        eventually(lambda: LEFT not in client.get("/").text, "and the page follows")


def test_a_moment_without_a_lease_is_no_kill(tmp_path: Path) -> None:
    shop = Repository(tmp_path)
    shop.commit(**{f"file{number}": f"alpha_0000000{number}\n" for number in range(8)})
    stopped(shop, signal.SIGKILL)
    with open_state(str(shop.state)) as state:
        hasty, patient = ScanPart(state, idle_s=0.0), ScanPart(state, idle_s=3600.0)

        def left(part: ScanPart) -> tuple[int, ...]:
            part.step()
            assert part.value is not None
            return part.value.left

        eventually(lambda: left(hasty), "the lease is over")
        assert left(patient) == ()
        assert not list(KilledScans(patient)())
        assert [one.kind for one in KilledScans(hasty)()] == [KIND]
