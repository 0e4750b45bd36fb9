"""Scans without Spark: workers as threads, and requests over a state of their own."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import pytest

from strandline.detect import Engine, Rule, RuleSet
from strandline.pipeline.identity import TenantSecretKey
from strandline.pipeline.stores import open_database
from strandline.scan.events import Event
from strandline.scan.job import Job
from strandline.scan.request import ScanRequest
from strandline.scan.scan import scan_with
from strandline.scan.scanning import Look, look_at
from strandline.scan.settle import Outcome
from strandline.scan.sources import Content, Source
from strandline.scan.state import tenant_named
from strandline.scan.work import work

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

    def run(self, job: Callable[[int], Job], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work until no shard is active."""
        self.started += 1
        given = job(self.count)
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


def scanned(request: ScanRequest, workers: ThreadWorkers | None = None, events: list[Event] | None = None) -> Outcome:
    """Do a scan."""
    told = [] if events is None else events
    with request.open_stores() as stores:
        return scan_with(stores, request, workers or ThreadWorkers(), told.append)


def on_each_look(monkeypatch: pytest.MonkeyPatch, what: Callable[[Content], None]) -> None:
    """Let something happen before an item is scanned in full, and every item be."""

    def looked(engine: Engine, source: Source, content: Content, beat: Callable[[], None]) -> Look:
        what(content)
        return look_at(engine, source, content, beat)

    monkeypatch.setattr("strandline.scan.looking.look_at", looked)
    monkeypatch.setattr("strandline.scan.looking.Looker.look_ahead", lambda *_: None)
