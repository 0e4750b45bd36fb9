"""Workers in threads that also take parts of a large scan, as Spark's do: calls and answers are pickled."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from strandline.scan.request import ScanRequest
from tests.scan.threaded_workers import ThreadWorkers

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class PartThreads(ThreadWorkers):
    """Workers in threads; each call is made `times` times, as Spark may, and the last answer counts."""

    times: int = 1
    calls: list[tuple[str, int]] = field(default_factory=list)

    def map_parts(self, call: Callable[[ScanRequest, T], R], request: ScanRequest, tasks: Sequence[T]) -> Iterator[R]:
        """Call, and yield the answers."""
        self.calls.append((call.__name__, len(tasks)))
        for task in tasks:
            answers = [pickle.dumps(call(request, pickle.loads(pickle.dumps(task)))) for _ in range(self.times)]  # noqa: S301
            answer: R = pickle.loads(answers[-1])  # noqa: S301
            yield answer
