"""Metrics for Prometheus and health for probes: what a part says of itself, and the pages that others read.

A part describes itself by a function that returns `Metric`s when it is asked, and by checks that return a problem or
None; it imports nothing else for that. `serve_metrics` asks all of them at each request, at `/metrics`, `/healthz` and
`/readyz`, and needs the extra `metrics`; `exposition` gives the same text to a server that has pages of its own.

Invariants: names begin with `strandline_`, are in base units (seconds, bytes), and counters end with `_total`; one that
does not is refused when the page is opened. A counter never falls while its process lives. A part whose function fails
is left out of the page and counted in `strandline_metrics_failures_total`: the rest is still told. A check that fails
is a problem, never health.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names
from strandline.metrics.metric import HOST, Durations, Metric, MetricSource, Sample, check_metric, counter, gauge

if _TYPE_CHECKING:
    from strandline.metrics.expositions import Exposition, exposition, registry_of
    from strandline.metrics.health import Health, HealthCheck, HealthReport, check_all
    from strandline.metrics.page import MetricsPage, serve_metrics

__all__ = [
    "HOST",
    "Durations",
    "Exposition",
    "Health",
    "HealthCheck",
    "HealthReport",
    "Metric",
    "MetricSource",
    "MetricsPage",
    "Sample",
    "check_all",
    "check_metric",
    "counter",
    "exposition",
    "gauge",
    "registry_of",
    "serve_metrics",
]

__getattr__ = _lazy_names(
    __name__,
    {
        "expositions": ("Exposition", "exposition", "registry_of"),
        "health": ("Health", "HealthCheck", "HealthReport", "check_all"),
        "page": ("MetricsPage", "serve_metrics"),
    },
)
