"""A metric and its samples, by the conventions of Prometheus; durations, counted into a histogram.

Invariants: `check_metric` refuses names that break the conventions. Counts of `Durations` never fall.
"""

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from strandline.errors import InvalidInput

HOST = "127.0.0.1"
"""Where metrics are served unless another address is given."""
_NAME = re.compile(r"strandline(_[a-z][a-z0-9]*)+")
_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Sample(NamedTuple):
    """A value, and what it is of; `suffix` is of the parts of a histogram alone."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class Metric(NamedTuple):
    """A metric with its samples; a counter's name ends with `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    samples: Sequence[Sample]


MetricSource = Callable[[], Iterable[Metric]]
"""What a part says of itself now."""


def gauge(name: str, text: str, value: float, **labels: str) -> Metric:
    """Return a metric that goes up and down."""
    return Metric(name, "gauge", text, [Sample(value, labels)])


def counter(name: str, text: str, value: float, **labels: str) -> Metric:
    """Return a metric that only grows."""
    return Metric(name, "counter", text, [Sample(value, labels)])


def check_metric(metric: Metric) -> None:
    """Refuse a name that breaks the conventions."""
    if not _NAME.fullmatch(metric.name) or (metric.kind == "counter") != metric.name.endswith("_total"):
        raise InvalidInput(f"{metric.name} is no name of a {metric.kind}", hint="docs/metrics.md has the rules")
    labels = {frozenset(sample.labels) - {"le"} for sample in metric.samples}
    if len(labels) > 1:
        raise InvalidInput(f"the samples of {metric.name} have different labels")


class Durations:
    """Durations, counted by their length; threads may add to it at once."""

    def __init__(self, bounds_s: Sequence[float] = _BOUNDS_S) -> None:
        self._bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(self._bounds_s) + 1)
        self._sum_s = 0.0
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """Count a duration."""
        at = bisect_left(self._bounds_s, seconds)
        with self._lock:
            self._counts[at] += 1
            self._sum_s += seconds

    def metric(self, name: str, text: str, **labels: str) -> Metric:
        """Return the histogram."""
        with self._lock:
            counts, total_s = list(accumulate(self._counts)), self._sum_s
        bounds = [*(f"{bound:g}" for bound in self._bounds_s), "+Inf"]
        samples = [
            Sample(count, {**labels, "le": bound}, "_bucket") for bound, count in zip(bounds, counts, strict=True)
        ]
        samples += [Sample(counts[-1], labels, "_count"), Sample(total_s, labels, "_sum")]
        return Metric(name, "histogram", text, samples)
