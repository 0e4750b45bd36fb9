"""Leases and the data that they guard, over requests that go astray: no write is accepted under an older fence."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

import pytest

from strandline.clock import NS_PER_S
from strandline.errors import Conflict, Unavailable, UnknownOutcome
from strandline.lease import Claimant, Fence, LeaseTiming, ObjectLeaseStore
from strandline.objects import MemoryObjects, Object
from strandline.objects.contracts import Buffer
from strandline.sim import SimObjects
from tests import tally

TIMING = LeaseTiming(ttl_s=10, renew_s=2, margin_s=1)
DRIFT = 0.04
"""A clock is quicker or slower by so much, within a lease less than half the margin."""
DATA = "data"
SAMPLE, ALL = 250, 10_000
STEPS = 80


class RecordingObjects(MemoryObjects):
    """A store that tells under which epochs it accepted writes of the data."""

    def __init__(self, seed: int) -> None:
        super().__init__(f"recording-{seed}")
        self.accepted: list[int] = []

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object, and note the epoch of the data."""
        etag = super().put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)
        if key == DATA:
            self.accepted.append(_epoch_in(bytes(body)))
        return etag


class Node:
    """A candidate with a clock of its own, which writes data while it leads, and may be paused in the middle of it."""

    def __init__(self, sim: SimObjects, number: int, now_ns: Callable[[], int]) -> None:
        self.sim, self.number = sim, number
        self.claimant = Claimant(
            ObjectLeaseStore(sim, "lease"), f"n{number % 2}", timing=TIMING, floor=self.floor, now_ns=now_ns
        )
        self.fence: Fence | None = None
        self.read: Object | None = None
        self.has_read = False

    def floor(self) -> int:
        """Return the epoch that the data names."""
        found = self.sim.get(DATA)
        return _epoch_in(found.body) if found else 0

    def act(self, step: int) -> None:
        """Check the lease, or read the data and check the fence, or write; a pause may be before each of them."""
        if self.fence is None:
            tenure = self.claimant.tenure
            self.fence = Fence(tenure.record.epoch) if tenure else None
        elif not self.has_read:
            self.read = self.sim.get(DATA)
            fence, self.fence = self.fence, None
            fence.check_over(_epoch_in(self.read.body) if self.read else 0)
            self.fence, self.has_read = fence, True
        else:
            body = b"%d at %d" % (self.fence.epoch, step)
            self.fence, self.has_read = None, False
            self.sim.put(DATA, body, if_absent=self.read is None, if_match=self.read.info.etag if self.read else None)


class Outcome(NamedTuple):
    """What came of a run."""

    accepted: list[int]
    tenures: list[int]
    together: int
    """How many held the lease at once, at most."""


def run(seed: int) -> Outcome:
    """Let three nodes lead, write, pause and restart for a while."""
    tally.count(tally.SEEDS)
    random, elapsed_s = Random(seed), 0.0
    store = RecordingObjects(seed)
    sim = SimObjects(seed, store=store, fault_rate=random.choice((0.0, 0.1, 0.4)))

    def clock() -> Callable[[], int]:
        rate, begin = 1 + random.uniform(-DRIFT, DRIFT), random.uniform(0, 1e6)
        return lambda: int((begin + elapsed_s * rate) * NS_PER_S)

    nodes = [Node(sim, number, clock()) for number in range(3)]
    tenures: list[int] = []
    together = 0
    for step in range(STEPS):
        number = random.randrange(3)
        node = nodes[number]
        action = random.choices(("claim", "renew", "act", "release", "look", "restart"), (6, 6, 18, 0.5, 2, 0.3))[0]
        before = node.claimant.tenure
        try:
            if action == "restart":
                nodes[number] = node = Node(sim, number, clock())
            elif action == "act":
                node.act(step)
            else:
                getattr(node.claimant, action)()
        except (Conflict, Unavailable, UnknownOutcome):
            pass  # as applications do, it goes on with what it knows
        tenure = node.claimant.tenure
        if tenure is not None and (before is None or before.record.epoch != tenure.record.epoch):
            tenures.append(tenure.record.epoch)
        together = max(together, sum(each.claimant.tenure is not None for each in nodes))
        elapsed_s += random.choice((0, 0, 0.1, 0.2, 0.5, 1, 2, 11))
    sim.close()
    return Outcome(store.accepted, tenures, together)


def _epoch_in(body: bytes) -> int:
    return int(body.split()[0])


def problem_of(outcome: Outcome) -> str | None:
    if outcome.accepted != sorted(outcome.accepted):
        return f"a write was accepted under an older fence: {outcome.accepted}"
    if outcome.tenures != sorted(set(outcome.tenures)):
        return f"an epoch was there before: {outcome.tenures}"
    return "two held the lease at once" if outcome.together > 1 else None


@pytest.mark.parametrize("seeds", [range(SAMPLE), pytest.param(range(SAMPLE, ALL), marks=pytest.mark.long)])
def test_no_write_is_accepted_under_an_older_fence(seeds: range) -> None:
    writes = tenures = 0
    for seed in seeds:
        outcome = run(seed)
        assert problem_of(outcome) is None, f"seed {seed}: {problem_of(outcome)}"
        writes += len(outcome.accepted)
        tenures += len(outcome.tenures)
    print(f"{writes:,} writes in {tenures:,} tenures")  # noqa: T201 - pytest shows it on demand
    assert min(writes, tenures) > len(seeds)  # they did lead, and did write


def always(*_: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("guard", "problem"),
    [("admits", "a write was accepted under an older fence"), ("is_expired", "two held"), ("is_own", "two held")],
)
def test_without_a_guard_one_is(guard: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"strandline.protocol.leadership.{guard}", always)
    found = (str(problem_of(run(seed))) for seed in range(ALL))
    assert any(each.startswith(problem) for each in found)
