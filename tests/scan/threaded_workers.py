"""Scans without Spark: workers as threads, and requests over a state of their own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import pytest

from strandline.detect import Engine, Rule, RuleSet
from strandline.pipeline.identity import TenantSecretKey
from strandline.pipeline.stores import Stores, open_database
from strandline.scan.driver import parked_items, scan_with
from strandline.scan.events import Event
from strandline.scan.plan.planner import Plan, plan
from strandline.scan.request import ScanRequest
from strandline.scan.settle.outcome import Outcome
from strandline.scan.sources import Content, Source
from strandline.scan.state import tenant_named
from strandline.scan.worker.content_scan import ContentResult, scan_content
from strandline.scan.worker.shared_results import SharedResults
from strandline.scan.worker.worker import work
from strandline.scan.workers import WorkerTask

TENANT = tenant_named("test")
KEY = TenantSecretKey(b"k" * 32)


def rule(name: str, regex: str | None = None, **more: Any) -> Rule:  # noqa: ANN401
    """Return a rule that finds its name and digits: `abc_123`."""
    return Rule(name, regex or rf"\b{name}_[0-9]{{3,}}\b", **more)


RULES = RuleSet((rule("alpha"), rule("beta")))


@dataclass
class ThreadWorkers:
    """Workers in threads of this process."""

    count: int = 2
    started: int = field(default=0)
    are_here: bool = True

    def check(self, request: ScanRequest) -> None:
        """Take any request."""

    def make_ready(self, request: ScanRequest) -> None:
        """Be ready."""

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work until no shard is active."""
        self.started += 1
        given = task(self.count)
        prefer = [*shards[: self.count], *[None] * max(0, self.count - len(shards))]
        with ThreadPoolExecutor(self.count) as pool:
            running = [pool.submit(work, given, one) for one in prefer]
            while wait(running, 0.05).not_done:
                poll()
            for one in running:
                one.result()


def made(address: str) -> str:
    """Make the tables at an address, and return it."""
    with open_database(address) as database:
        database.migrate()
    return address


def request_for(address: str, *sources: Source, rules: RuleSet = RULES, **more: Any) -> ScanRequest:  # noqa: ANN401
    """Return a request over sources."""
    return ScanRequest(sources, rules, TENANT, KEY, address, **{"parallelism": 2, **more})


def plan_of(stores: Stores, request: ScanRequest) -> Plan:
    """Return the plan of a scan, with its items."""
    left = plan(stores, request, lambda _: None, parked_items(stores, request))
    assert left is not None, "a plan without a bound has all items"
    return left


def scanned(request: ScanRequest, workers: ThreadWorkers | None = None, events: list[Event] | None = None) -> Outcome:
    """Do a scan."""
    told = [] if events is None else events
    with request.open_stores() as stores:
        return scan_with(stores, request, workers or ThreadWorkers(), told.append)


def on_each_look(monkeypatch: pytest.MonkeyPatch, what: Callable[[Content], None]) -> None:
    """Let something happen before an item is scanned in full, and every item be."""

    def looked(
        engine: Engine, source: Source, content: Content, beat: Callable[[], None], shared: SharedResults
    ) -> ContentResult:
        what(content)
        return scan_content(engine, source, content, beat, shared)

    monkeypatch.setattr("strandline.scan.worker.item_scanner.scan_content", looked)
    monkeypatch.setattr("strandline.scan.worker.item_scanner.ItemScanner.prescan", lambda *_: None)
