"""Workers of a scan: the task that a worker gets, and the Protocol of those that start workers.

`LocalWorkers` runs one worker in this process; `strandline.spark.workers` runs them as tasks of Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from strandline.protocol.shards import RunKey
from strandline.scan.request import ScanRequest


@dataclass(frozen=True)
class WorkerTask:
    """A run to work on; `slots` workers share it. The failures of `forgiven` shards before a fence do not count."""

    request: ScanRequest
    run: RunKey = field(repr=False)
    manifest: int
    slots: int
    forgiven: Mapping[int, int] = field(default_factory=dict)


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
