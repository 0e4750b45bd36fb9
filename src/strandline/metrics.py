"""Metrics for Prometheus: what a part says of itself, and the page that a scraper reads.

A part describes itself by a function that returns `Metric`s when it is asked; it imports nothing for that.
`serve_metrics` asks all of them at each scrape, and needs the extra `metrics`.

Invariants: names begin with `strandline_`, are in base units (seconds, bytes), and counters end with `_total`; one that
does not is refused when the page is opened. A counter never falls while its process lives. A part whose function fails
is left out of the page and counted in `strandline_metrics_failures_total`: the rest is still told.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

from strandline.errors import InvalidInput, Unavailable
from strandline.version import __version__

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

HOST = "127.0.0.1"
_NAME = re.compile(r"strandline(_[a-z][a-z0-9]*)+")


class Sample(NamedTuple):
    """A value, and what it is of."""

    value: float
    labels: Mapping[str, str] = {}


class Metric(NamedTuple):
    """A metric with its samples; a counter's name ends with `_total`."""

    name: str
    kind: Literal["gauge", "counter"]
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
    labels = {frozenset(sample.labels) for sample in metric.samples}
    if len(labels) > 1:
        raise InvalidInput(f"the samples of {metric.name} have different labels")


class MetricsPage(NamedTuple):
    """A page that is served."""

    address: str


class _Collector:
    """What Prometheus' client asks at each scrape."""

    def __init__(self, sources: Sequence[MetricSource]) -> None:
        self._sources = sources
        self._failures = 0
        self._lock = threading.Lock()

    def collect(self) -> "Iterator[Family]":
        """Yield what all parts say."""
        found = [gauge("strandline_build_info", "The version that runs; always 1.", 1, version=__version__)]
        for source in self._sources:
            try:
                found += source()
            except Exception:  # noqa: BLE001 - counted, and the page tells the rest
                with self._lock:
                    self._failures += 1
        text = "Scrapes in which a part could not be asked."
        found.append(counter("strandline_metrics_failures_total", text, self._failures))
        yield from _families(found)


def _families(metrics: Iterable[Metric]) -> "Iterator[Family]":
    """Yield metrics as Prometheus' client has them; those of one name become one."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

    families: dict[str, Family] = {}
    for metric in metrics:
        family = families.get(metric.name)
        if family is None:
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = families[metric.name] = make(metric.name, metric.help)
        for sample in metric.samples:
            family.add_sample(metric.name, dict(sample.labels), sample.value)
    return iter(families.values())


@contextmanager
def serve_metrics(port: int | None, *sources: MetricSource, host: str = HOST) -> Iterator[MetricsPage | None]:
    """Serve a page of metrics for the block, at `/metrics`; port 0 is any free one, and None serves nothing."""
    if port is None:
        yield None
        return
    from strandline.extras import needs  # noqa: PLC0415 - the way to it is the extra

    with needs("metrics"):
        from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server  # noqa: PLC0415

    for source in sources:
        for metric in source():
            check_metric(metric)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(sources))
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "give --metrics-port another one, or 0 for any that is free"
        raise Unavailable(f"metrics cannot be served at {host}:{port}: {reason}", hint=hint) from error
    try:
        yield MetricsPage(f"http://{host}:{server.server_port}/metrics")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
