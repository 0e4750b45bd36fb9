"""A page of metrics, as Prometheus reads it."""

from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families


def page(address: str) -> dict[str, float]:
    """Return the samples of a page, by their names and labels: `name{label=value,…}`."""
    with urlopen(address) as answer:  # noqa: S310 - our own page
        text = answer.read().decode()
    found = dict[str, float]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def names(found: dict[str, float]) -> set[str]:
    """Return the names of our own metrics on a page."""
    return {name.partition("{")[0] for name in found if name.startswith("strandline_")}
