"""Scrapes of real parts, kept to see which metrics a test has changed."""

from strandline.metrics import MetricSource, check_metric


class Scrapes:
    """Values of metrics over time; a metric has changed where one of its samples had two values."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, frozenset[tuple[str, str]]], set[float]] = {}
        self.names: set[str] = set()
        self._scrapes: dict[str, int] = {}

    def take(self, *sources: MetricSource) -> dict[str, float]:
        """Ask parts; return the sums of their metrics by name."""
        sums: dict[str, float] = {}
        for source in sources:
            for metric in source():
                check_metric(metric)
                self.names.add(metric.name)
                for value, labels, suffix in metric.samples:
                    key = (metric.name + suffix, frozenset(labels.items()))
                    self._seen.setdefault(key, {0.0}).add(float(value))
                    sums[metric.name + suffix] = sums.get(metric.name + suffix, 0.0) + float(value)
        return sums

    @property
    def changed(self) -> set[str]:
        """The names of metrics that changed."""
        found = {name for (name, _), values in self._seen.items() if len(values) > 1}
        return found | {name.removesuffix("_count") for name in found if name.endswith("_count")}
