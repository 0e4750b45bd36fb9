"""The text of a page of metrics, in the format that a scraper asks for: Prometheus' own, or OpenMetrics.

It needs the extra `metrics`.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from strandline.extras import needs
from strandline.metrics.metric import Metric, MetricSource, counter, gauge
from strandline.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family


class Exposition(NamedTuple):
    """A page of metrics, and its type."""

    content_type: str
    body: bytes


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
    from prometheus_client.core import (  # noqa: PLC0415 - an extra
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    families: dict[str, Family] = {}
    for metric in metrics:
        family = families.get(metric.name)
        if family is None:
            family = families[metric.name] = kinds[metric.kind](metric.name, metric.help)
        for sample in metric.samples:
            family.add_sample(metric.name + sample.suffix, dict(sample.labels), sample.value)
    return iter(families.values())


def registry_of(sources: Sequence[MetricSource]) -> "CollectorRegistry":
    """Return what Prometheus' client reads: all parts, and the process."""
    with needs("metrics"):
        import prometheus_client.core  # noqa: F401, PLC0415 - so that the first scrape imports nothing
        from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 - an extra

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(sources))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: "CollectorRegistry", accept: str = "") -> Exposition:
    """Return the page; `accept` is the header of the request. Keep the registry: it counts failures."""
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - an extra

    encode, content_type = choose_encoder(accept)
    return Exposition(content_type, encode(registry))
