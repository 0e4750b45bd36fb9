"""Workers of a scan: the task that a worker gets, and the Protocol of those that start workers.

`LocalWorkers` runs them on this machine, `strandline.spark.workers` as tasks of Spark; `WorkersBySize` takes the former
for few items.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from strandline.protocol.shards import RunKey
from strandline.scan.request import ScanRequest

FEW_ITEMS = 2_000
"""From so many items on a scan is Spark's, unless told otherwise."""
LARGE_ITEMS = 200_000
"""From so many listed items on tasks of Spark list, plan and settle (`scan.parted`)."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class WorkerTask:
    """A run to work on; `slots` workers share it. The failures of `forgiven` shards before a fence do not count.

    `items` and `weight` are those of the whole run.
    """

    request: ScanRequest
    run: RunKey = field(repr=False)
    manifest: int
    slots: int
    forgiven: Mapping[int, int] = field(default_factory=dict)
    items: int = 0
    weight: int = 0


class Workers(Protocol):
    """Starts workers for runs."""

    @property
    def are_here(self) -> bool:
        """Whether the workers are on this machine and see its files."""
        ...

    def check(self, request: ScanRequest) -> None:
        """Raise for a request whose stores the workers cannot reach."""
        ...

    def make_ready(self, request: ScanRequest) -> None:
        """Start to prepare workers while the plan is made; return at once."""
        ...

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work until no shard of the run is active; `task` takes the number of workers, `poll` is called meanwhile.

        Raises `WorkersFailed` if a worker gave up. Results are read from the stores, not from the workers.
        """
        ...


@runtime_checkable
class PartWorkers(Protocol):
    """Calls functions on parts of a large scan, each in some process."""

    def map_parts(self, call: Callable[[ScanRequest, T], R], request: ScanRequest, tasks: Sequence[T]) -> Iterator[R]:
        """Yield the answers in the order of the tasks; a call may be repeated, and its errors are raised here."""
        ...


class WorkersBySize:
    """Workers on this machine for runs of few items, others for the rest."""

    def __init__(self, few: Workers, many: Workers) -> None:
        self._few = few
        self._many = many
        self._chosen = few

    @property
    def are_here(self) -> bool:
        """Whether the workers of the last run, or of the last parts, are on this machine."""
        return self._chosen.are_here

    def check(self, request: ScanRequest) -> None:
        """Ask both: the number of items is not known yet."""
        self._few.check(request)
        self._many.check(request)

    def make_ready(self, request: ScanRequest) -> None:
        """Prepare the workers for many items: the listing is long already."""
        self._many.make_ready(request)

    def run(self, task: Callable[[int], WorkerTask], shards: Sequence[int], poll: Callable[[], None]) -> None:
        """Work with the workers that fit the number of items."""
        self._chosen = self._few if is_little(task(1).items) else self._many
        self._chosen.run(task, shards, poll)

    def map_parts(self, call: Callable[[ScanRequest, T], R], request: ScanRequest, tasks: Sequence[T]) -> Iterator[R]:
        """Call with the workers for many items."""
        if not isinstance(self._many, PartWorkers):
            raise TypeError("the workers for many items take no parts")
        self._chosen = self._many
        return self._many.map_parts(call, request, tasks)


def is_large(items: int) -> bool:
    """Return whether so many listed items are listed, planned and settled by tasks, where workers are Spark's."""
    return items >= LARGE_ITEMS


def is_little(items: int) -> bool:
    """Return whether so few items are scanned sooner than Spark starts."""
    return items < FEW_ITEMS
