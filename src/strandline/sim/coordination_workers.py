"""Workers of a simulation of coordination: their shards and their next requests.

Keys are numbers below `KEYS`, as four bytes; an empty bound is the beginning or the end of them all. A worker is honest
if its requests fit its lease, and it repeats failed requests with the same operation id; then only the end of its lease
justifies a refusal. `wrong_request` makes requests that must always be refused.
"""

from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import NamedTuple, TypeAlias

from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import Cursor, Lease, ParkReason, RunKey, ShardKey, ShardSpec
from strandline.protocol.splits import ResidualPlan

KEYS = 2**32
OP_IDS_PER_WORKER = 1_000_000
PARTS_MAX = 12
WEIGHTS = {"checkpoint": 50, "renew": 15, "complete": 15, "split_residual": 8, "split_replace": 7, "park_shard": 5}
"""The weights of a lease holder's requests."""


Content: TypeAlias = (
    Cursor | ParkReason | tuple[ShardSpec, ...] | ResidualPlan | ShardKey | RunKey | tuple[InitialShard, ...] | None
)


class Request(NamedTuple):
    """A request: the coordinator's method, and its lease, content and operation id, if it takes them."""

    what: str
    worker: int
    lease: Lease | None = None
    content: Content = None
    op_id: int = 0


@dataclass
class SimWorker:
    """A worker: at most one shard at a time, and at most one request whose outcome it does not know."""

    number: int
    skew_ns: int = 0
    held: Acquired | None = None
    pending: Request | None = None
    op_ids: int = 0

    def next_op_id(self) -> int:
        """Return an operation id that was never used before."""
        self.op_ids += 1
        return self.number * OP_IDS_PER_WORKER + self.op_ids

    def moved(self, cursor: Cursor) -> None:
        """Remember the shard's cursor."""
        if self.held is not None:
            self.held = self.held._replace(cursor=cursor)


def key_of(number: int) -> bytes:
    """Return the key of a number."""
    return number.to_bytes(4, "big")


def bounds_of(spec: ShardSpec) -> tuple[int, int]:
    """Return the numbers that a range begins and ends with, the end excluded."""
    low = int.from_bytes(spec.start, "big") if spec.start else 0
    return low, int.from_bytes(spec.end, "big") if spec.end else KEYS


def parts_at(spec: ShardSpec, cuts: list[int]) -> tuple[ShardSpec, ...]:
    """Return a range cut at some numbers."""
    edges = [spec.start, *map(key_of, cuts), spec.end]
    return tuple(ShardSpec(start, end) for start, end in pairwise(edges))


def right_request(random: Random, worker: SimWorker, held: Acquired, *, may_split: bool = True) -> Request:
    """Return a valid request of a lease holder."""
    low, high = bounds_of(held.spec)
    at = max(low, int.from_bytes(held.cursor.key, "big"))
    (what,) = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
    if what.startswith("split") and (not may_split or at + 2 >= high):
        what = "checkpoint"
    if what == "renew":
        return Request(what, worker.number, held.lease)
    content: Content
    if what == "park_shard":
        content = random.choice(list(ParkReason))
    elif what == "split_residual":
        content = ResidualPlan(*parts_at(held.spec, [random.randrange(at + 1, high)]))
    elif what == "split_replace":
        content = parts_at(held.spec, cuts_of(random, held.spec, 3))
    else:
        further = random.randrange(at, min(high, at + 1 + (high - at) // 4))
        content = Cursor(key_of(further), random.randbytes(random.randrange(3)))
    return Request(what, worker.number, held.lease, content, worker.next_op_id())


def finishing_request(worker: SimWorker, held: Acquired) -> Request:
    """Return the end of the shard."""
    cursor = Cursor(key_of(bounds_of(held.spec)[1] - 1))
    return Request("complete", worker.number, held.lease, cursor, worker.next_op_id())


def wrong_request(random: Random, worker: SimWorker, held: Acquired) -> Request:
    """Return a request to refuse: a cursor that goes back or leaves the shard, parts that do not cover it.

    Sometimes its operation id was used before. It may be valid by chance.
    """
    spec = held.spec
    low, high = bounds_of(spec)
    cut = random.randrange(low, high)
    gap = ShardSpec(spec.start, key_of(cut)), ShardSpec(key_of(min(cut + 1, KEYS - 1)), spec.end)
    overlap = ResidualPlan(ShardSpec(spec.start, key_of(cut)), ShardSpec(key_of(cut // 2), spec.end))
    before, behind = random.randrange(1 + int.from_bytes(held.cursor.key, "big")), min(high, KEYS - 1)
    contents: list[tuple[str, Content]] = [
        ("checkpoint", Cursor(key_of(before))),
        ("checkpoint", Cursor(key_of(behind))),
        ("checkpoint", Cursor(b"", b"token")),
        ("complete", Cursor(key_of(before))),
        ("split_replace", gap),
        ("split_replace", (spec,)),
        ("split_residual", overlap),
    ]
    what, content = random.choice(contents)
    return Request(what, worker.number, held.lease, content, worker.next_op_id() - random.randrange(2))


def is_divisible(spec: ShardSpec) -> bool:
    """Return whether a range has more than one key."""
    low, high = bounds_of(spec)
    return high - low > 1


def cuts_of(random: Random, spec: ShardSpec, cuts_max: int) -> list[int]:
    """Return places to cut a range at: at least one."""
    low, high = bounds_of(spec)
    return sorted({random.randrange(low + 1, high) for _ in range(random.randint(1, cuts_max))})
