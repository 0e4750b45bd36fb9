"""Whatever is killed, and wherever: the same request goes on, and comes to the rows of an undisturbed run."""

import random
import signal
from pathlib import Path

import pytest

from strandline.scan.events import Event, Planned, Resumed
from strandline.scan.request import ScanRequest
from tests.scan.dying import LEASE_S, hours_later, live
from tests.scan.things import Thing, Things
from tests.scan.threaded_workers import RULES, TENANT, made, request_for, rule, scanned
from tests.servers_etcd import EtcdServer
from tests.spark.rows import Rows, rows_of

ITEMS: dict[str, Thing | str] = {
    **{f"item {number:02}": f"alpha_{number:03} text beta_{number:03}" for number in range(14)},
    "clean": "nothing",
    "allowed": "alpha_100 # strandline:allow",
    "parts": Thing(parts=["alpha_100", "beta_100"]),
    "fresh": Thing("beta_500", fresh=True),
    "broken": Thing(fails="PERMISSION_DENIED"),
    "link": Thing(problem="SYMLINK"),
}


def stored(request: ScanRequest) -> Rows:
    with request.open_stores() as stores:
        return rows_of(stores, TENANT)


@pytest.fixture
def wanted(tmp_path: Path, things: Things) -> Rows:
    """What an undisturbed run leaves."""
    things.write(ITEMS)
    request = request_for(made(str(tmp_path / "whole.db")), things)
    scanned(request)
    return stored(request)


def killed_and_resumed(request: ScanRequest, writes: int, *, after: bool) -> int:
    """Let a driver be killed at a write, and another go on; return how the first ended."""
    ended = live(request, writes, after=after)
    assert ended in (0, -signal.SIGKILL)
    events: list[Event] = []
    with hours_later():
        outcome = scanned(request, events=events)
    assert outcome.unseen == 0
    if any(isinstance(event, Resumed) for event in events):
        left = [event.plan.todo_items for event in events if isinstance(event, Planned)]
        assert left == [0], "a run that was resumed has looked at all its items"
    return ended


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "writes", [pytest.param(at, marks=() if at in (3, 7, 10, 14, 19, 24) else pytest.mark.long) for at in range(1, 45)]
)
def test_a_driver_killed_at_any_write_leaves_what_another_finishes(
    things: Things, address: str, wanted: Rows, writes: int, after: bool
) -> None:
    request = request_for(address, things, lease_ttl_s=LEASE_S)
    ended = killed_and_resumed(request, writes, after=after)
    assert ended == -signal.SIGKILL or writes > 30
    assert stored(request) == wanted


@pytest.mark.parametrize(
    "writes", [pytest.param(at, marks=() if at in (9, 16, 22) else pytest.mark.long) for at in range(2, 40)]
)
def test_the_same_on_postgres(things: Things, postgres_address: str, wanted: Rows, writes: int) -> None:
    request = request_for(postgres_address, things, lease_ttl_s=LEASE_S)
    killed_and_resumed(request, writes, after=bool(writes % 2))
    assert stored(request) == wanted


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_drivers_that_die_one_after_another_come_to_the_same(
    things: Things, address: str, wanted: Rows, seed: int
) -> None:
    source = random.Random(seed)
    request = request_for(address, things, lease_ttl_s=LEASE_S)
    for hours in range(4):
        live(request, source.randrange(1, 30), after=source.random() < 0.5, workers=2, hours=hours)
    with hours_later(4):
        scanned(request)
    assert stored(request) == wanted


@pytest.mark.parametrize("writes", [12, 16, 20])
def test_a_delta_that_is_killed_comes_to_the_rows_of_a_whole_one(
    things: Things, tmp_path: Path, address: str, writes: int
) -> None:
    things.write(ITEMS)
    rules = type(RULES)((rule("alpha"), rule("gamma"), rule("text", r"text beta")))
    whole = request_for(made(str(tmp_path / "whole.db")), things)
    scanned(whole)
    whole = request_for(whole.address, things, rules=rules)
    scanned(whole)
    scanned(request_for(address, things))
    request = request_for(address, things, rules=rules, lease_ttl_s=LEASE_S)
    killed_and_resumed(request, writes, after=True)
    assert stored(request) == stored(whole)


def test_runs_may_be_in_etcd(
    things: Things, address: str, wanted: Rows, etcd_server: EtcdServer, etcd_prefix: str
) -> None:
    coordination = f"etcd://{etcd_server.endpoint}{etcd_prefix}"
    request = request_for(address, things, lease_ttl_s=LEASE_S, coordination=coordination)
    assert killed_and_resumed(request, 14, after=True) == -signal.SIGKILL
    assert stored(request) == wanted
    with hours_later():
        assert scanned(request).is_whole is False, "one item cannot be read"
