"""Scrapes of real parts, kept to see which metrics a test has changed."""

from collections.abc import Mapping

from strandline.metrics import MetricSource, check_metric


class Scrapes:
    """Values of metrics over time."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, frozenset[tuple[str, str]]], set[float | None]] = {}
        self.names: set[str] = set()

    def take(self, *sources: MetricSource) -> dict[str, float]:
        """Ask parts; return the sums of their metrics by name."""
        sums: dict[str, float] = {}
        for source in sources:
            for metric in source():
                check_metric(metric)
                is_known = metric.name in self.names
                self.names.add(metric.name)
                for value, labels, suffix in metric.samples:
                    key = (metric.name + suffix, frozenset(labels.items()))
                    self._seen.setdefault(key, {None} if is_known else set()).add(float(value))
                    sums[metric.name + suffix] = sums.get(metric.name + suffix, 0.0) + float(value)
        return sums

    def read(self, page: Mapping[str, float]) -> None:
        """Note the samples of a page, by their names and labels."""
        for sample, value in page.items():
            name = sample.partition("{")[0]
            self._seen.setdefault((name, frozenset({(sample, "")})), {None} if name in self.names else set()).add(value)
        self.names |= {sample.partition("{")[0] for sample in page}

    @property
    def changed(self) -> set[str]:
        """The names of metrics that changed: one of their samples had two values, or came after an earlier scrape."""
        found = {name for (name, _), values in self._seen.items() if len(values) > 1}
        return found | {name.removesuffix("_count") for name in found if name.endswith("_count")}

    def check_changed(self, *names: str) -> None:
        """Fail unless metrics changed; `test_table` reads the names out of calls of this."""
        assert set(names) <= self.changed, f"unchanged: {sorted(set(names) - self.changed)}"
