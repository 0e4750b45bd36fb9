"""What a scan says it looked at is what the ledger has, whoever survived to tell."""

from collections.abc import Callable, Sequence

import pytest

from strandline.cli.scan_summary import Counts, outcome_record
from strandline.scan.worker.page_writer import PageWriter
from strandline.scan.worker.worker import work
from strandline.scan.workers import WorkerTask
from tests.scan.dying import LEASE_S, hours_later
from tests.scan.things import Thing, Things
from tests.scan.threaded_workers import ThreadWorkers, request_for, scanned


class Lost(ThreadWorkers):
    """Workers of which the first does everything and is gone before it can tell; the next finds nothing to do."""

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work twice."""
        work(task(1), shards[0])
        super().run(task, shards, poll)


def test_what_a_lost_worker_committed_was_looked_at_now(things: Things, address: str) -> None:
    things.write({f"item {number}": "alpha_100" for number in range(40)})
    outcome = scanned(request_for(address, things), Lost())
    assert (outcome.new_items, outcome.new_bytes, outcome.worked.items) == (40, 40 * 9, 40)
    assert outcome_record(outcome, Counts(40, 40), 1.0)["looked_at"] == 40
    again = scanned(request_for(address, things))
    assert (again.new_items, again.new_bytes, again.worked.items) == (0, 0, 0)


def test_what_changed_alone_was_looked_at_now(things: Things, address: str) -> None:
    whole: dict[str, Thing | str] = {f"item {number}": "nothing" for number in range(40)}
    things.write(whole)
    scanned(request_for(address, things))
    things.write({**whole, "item 7": "alpha_1000", "new": Thing("x", fresh=True), "bad": Thing("y", fails="IO_ERROR")})
    outcome = scanned(request_for(address, things))
    assert (outcome.items, outcome.new_items, outcome.new_bytes) == (42, 3, 11)


def test_of_a_run_that_is_gone_on_with_only_the_rest_is_new(
    things: Things, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    things.write({f"item {number:02}": "nothing" for number in range(40)})
    monkeypatch.setattr("strandline.scan.worker.shard_scanner.PAGE_ITEMS_MAX", 10)
    monkeypatch.setattr("strandline.scan.worker.page_writer.PageWriter.prescan", lambda *_: None)

    class Stopped(ThreadWorkers):
        def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
            del poll
            with monkeypatch.context() as patch:
                flush, count = PageWriter.flush, 0

                def stopping(self: PageWriter, row: int) -> None:
                    nonlocal count
                    count += 1
                    if count == 3:
                        raise KeyboardInterrupt
                    flush(self, row)

                patch.setattr(PageWriter, "flush", stopping)
                work(task(1), shards[0])

    request = request_for(address, things, lease_ttl_s=LEASE_S)
    with pytest.raises(KeyboardInterrupt):
        scanned(request, Stopped())
    with hours_later():
        outcome = scanned(request)
    assert (outcome.items, outcome.new_items, outcome.is_whole) == (40, 20, True)
    assert outcome.worked.items == 20
