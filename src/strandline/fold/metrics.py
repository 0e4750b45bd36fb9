"""What a watched fold says of itself to Prometheus and to probes."""

from collections.abc import Iterable

from strandline.fold.progress import FoldProgress, FoldStatus
from strandline.metrics import Health, Metric, MetricSource, Sample, counter, gauge

_PREFIX = "strandline_fold"


def fold_metrics(progress: FoldProgress, name: str) -> MetricSource:
    """Return what tells how a fold is doing; `name` is its path."""
    return lambda: _metrics(progress.status(), {"fold": name})


def _metrics(status: FoldStatus, labels: dict[str, str]) -> Iterable[Metric]:
    lag = [] if status.lag is None else [Sample(status.lag, labels)]
    return [
        gauge(f"{_PREFIX}_revision", "The cursor: the last revision that is stored.", status.revision, **labels),
        Metric(f"{_PREFIX}_lag_revisions", "gauge", "Revisions of the bucket that are not stored.", lag),
        gauge(f"{_PREFIX}_current", "1 while it holds what the bucket held.", status.is_current, **labels),
        gauge(f"{_PREFIX}_repairing", "1 during a repair.", status.is_repairing, **labels),
        gauge(f"{_PREFIX}_failing", "1 while the bucket or the store fails.", status.trouble is not None, **labels),
        counter(f"{_PREFIX}_updates_total", "Updates stored.", status.updates, **labels),
        counter(f"{_PREFIX}_update_bytes_total", "Bytes of updates stored.", status.bytes, **labels),
        counter(f"{_PREFIX}_repairs_total", "Repairs.", status.repairs, **labels),
        counter(f"{_PREFIX}_repair_deletes_total", "Keys that repairs deleted.", status.deleted_by_repairs, **labels),
        counter(f"{_PREFIX}_watches_total", "Watches of the bucket that began.", status.watches, **labels),
        counter(f"{_PREFIX}_store_failures_total", "Batches that failed.", status.store_failures, **labels),
    ]


def fold_health(progress: FoldProgress) -> Health:
    """Return the checks of a fold: it is ready while it is current, and what it watches answers."""

    def current() -> str | None:
        status = progress.status()
        if status.trouble is not None:
            return status.trouble
        if status.is_repairing:
            return "the fold is being repaired"
        return None if status.is_current else f"the fold is catching up, at revision {status.revision}"

    return Health(ready={"fold": current})
