"""Health tells the truth: what breaks turns it, what is mended turns it back."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from strandline.errors import StrandlineError
from strandline.fold.events import CaughtUp, RepairBegan, RepairEnded, SourceAway, WatchBegan
from strandline.fold.metrics import fold_health
from strandline.fold.progress import FoldProgress
from strandline.metrics import Health, MetricsPage, gauge, serve_metrics
from strandline.objects import MemoryObjects, StoreUnavailable
from strandline.protocol.repairs import RepairPlan
from strandline.queue import Queue
from strandline.queue.durable import JournalStorage
from strandline.queue.metrics import queue_health
from strandline.replica import Replicator
from strandline.replica.metrics import FollowerCounts, replicator_health
from tests.replica.databases import database, fill
from tests.waiting import PATIENCE_S, eventually


def asked(address: str) -> tuple[int, dict[str, str]]:
    """Return the status and the checks of an answer."""
    try:
        with urlopen(address) as answer:  # noqa: S310 - our own page
            status, body = answer.status, json.load(answer)
    except HTTPError as error:
        status, body = error.code, json.load(error)
    assert body["status"] == ("ok" if status == 200 else "unavailable")
    return status, body["checks"]


@contextmanager
def served(health: Health) -> Iterator[MetricsPage]:
    with serve_metrics(0, health=health) as page:
        assert page is not None
        yield page


def test_a_check_that_has_a_problem_or_raises_is_told_and_turns_back() -> None:
    problems: dict[str, str | Exception | None] = {"a": None, "b": None}

    def check(name: str) -> str | None:
        found = problems[name]
        if isinstance(found, Exception):
            raise found
        return found

    with served(Health({"a": lambda: check("a")}, {"b": lambda: check("b")})) as page:
        assert asked(page.health_address) == (200, {"a": "ok"})
        assert asked(page.ready_address) == (200, {"a": "ok", "b": "ok"})
        problems["b"] = "it waits"
        assert asked(page.health_address)[0] == 200, "it is alive"
        assert asked(page.ready_address) == (503, {"a": "ok", "b": "it waits"})
        problems["a"] = RuntimeError("broken")
        status, checks = asked(page.health_address)
        assert status == 503
        assert "RuntimeError: broken" in checks["a"]
        problems["a"] = problems["b"] = None
        assert asked(page.ready_address)[0] == 200


def test_an_answer_holds_no_password_of_an_address() -> None:
    with served(Health({"a": lambda: "cannot reach nats://user:hunter2@host:4222"})) as page:
        _, checks = asked(page.health_address)
        assert "hunter2" not in checks["a"]
        assert "host:4222" in checks["a"]


def test_a_scraper_gets_the_format_that_it_asks_for_and_other_paths_are_refused() -> None:
    with serve_metrics(0, lambda: [gauge("strandline_depth", "Depth.", 3)]) as page:
        assert page is not None
        wanted = Request(page.address, headers={"Accept": "application/openmetrics-text; version=1.0.0"})  # noqa: S310
        with urlopen(wanted) as answer:  # noqa: S310
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
        with urlopen(page.address) as answer:  # noqa: S310
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with urlopen(Request(page.address, method="HEAD")) as answer:  # noqa: S310
            assert answer.read() == b""
        for address, method, code in ((page.address + "x", "GET", 404), (page.address, "POST", 501)):
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(address, method=method))  # noqa: S310
            assert refused.value.code == code
            refused.value.close()


def test_a_replicator_is_ready_while_its_store_takes_what_is_committed(tmp_path: Path) -> None:
    store = MemoryObjects()
    put = store.put

    def away(*_: object, **__: object) -> str:
        raise StoreUnavailable("memory:", "away")

    with database(tmp_path / "a.db") as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        fill(connection, 3)
        with Replicator(tmp_path / "a.db", store) as running, served(replicator_health(running)) as page:
            running.wait_durable(PATIENCE_S)
            assert asked(page.ready_address)[0] == 200
            store.put = away  # type: ignore[method-assign]
            fill(connection, 1, seed=1)
            eventually(lambda: asked(page.ready_address)[0] == 503, "it is told")
            assert "away" in asked(page.ready_address)[1]["shipping"]
            assert asked(page.health_address)[0] == 200, "the process is alive"
            store.put = put  # type: ignore[method-assign]
            running.wait_durable(PATIENCE_S)
            assert asked(page.ready_address)[0] == 200


def test_a_follower_is_ready_after_a_look_that_went_well() -> None:
    counts = FollowerCounts("copy")
    assert not counts.health().readiness().is_well
    counts.failed(StrandlineError("away"))
    assert counts.health().readiness().problems == {"copy": "away"}


def test_a_queue_whose_journal_is_poisoned_is_not_healthy_and_is_after_it_was_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue.open(tmp_path / "q") as queue:
        queue.put(b"a")
        assert queue_health(queue).liveness().is_well
        storage = queue.storage
        assert isinstance(storage, JournalStorage)

        def failing(*_: object, **__: object) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as broken:
            broken.setattr("os.pwritev", failing)
            broken.setattr("os.fdatasync", failing)
            with pytest.raises(StrandlineError):
                queue.put(b"b")
        problem = queue_health(queue).liveness().problems["journal"]
        assert problem is not None
    with Queue.open(tmp_path / "q") as queue:
        assert queue_health(queue).liveness().is_well


def test_a_fold_is_ready_while_it_is_current() -> None:
    progress = FoldProgress()
    health = fold_health(progress)
    assert not health.readiness().is_well
    for event, is_well in (
        (WatchBegan("b", 3, anew=False), False),
        (CaughtUp(3), True),
        (SourceAway("the connection was dropped", 1.0), False),
        (WatchBegan("b", 3, anew=False), False),
        (CaughtUp(3), True),
        (RepairBegan(RepairPlan.RELIST, "expired"), False),
        (RepairEnded(RepairPlan.RELIST, 0, 7, 0.1), False),
        (CaughtUp(4), True),
    ):
        progress(event)
        assert health.readiness().is_well == is_well, event
        assert health.liveness().is_well
