"""What a replicator, its maintenance, a follower and a node say of themselves to Prometheus."""

import threading
import time
from collections.abc import Iterable

from strandline.errors import StrandlineError
from strandline.metrics import Health, Metric, MetricSource, Sample, counter, gauge
from strandline.replica.follower import Followed
from strandline.replica.maintenance import Maintenance
from strandline.replica.node import Node
from strandline.replica.replicator import Replicator
from strandline.replica.roles import Role


def replicator_metrics(replicator: Replicator) -> MetricSource:
    """Return what tells how a replicator is doing."""
    name = str(replicator.path)

    def metrics() -> Iterable[Metric]:
        status = replicator.status()
        prefix = "strandline_replica"
        return [
            gauge(f"{prefix}_txid", "The last transaction in the object store.", status.position.txid, database=name),
            gauge(f"{prefix}_lag_seconds", "How long commits have waited to be shipped.", status.lag_s, database=name),
            gauge(
                f"{prefix}_last_success_timestamp_seconds",
                "When everything that was committed was last in the object store.",
                status.last_success_s,
                database=name,
            ),
            gauge(f"{prefix}_failing", "1 while an error is waited out.", bool(status.error), database=name),
            gauge(f"{prefix}_refused", "1 while the store refuses the credential.", status.is_refused, database=name),
            counter(f"{prefix}_transactions_total", "Transactions shipped.", status.transactions, database=name),
            counter(f"{prefix}_shipped_bytes_total", "Bytes of transactions.", status.shipped_bytes, database=name),
            counter(f"{prefix}_snapshots_total", "Whole databases shipped.", status.snapshots, database=name),
            counter(f"{prefix}_checkpoints_total", "Times the log began anew.", status.checkpoints, database=name),
            counter(f"{prefix}_errors_total", "Attempts that failed.", status.errors, database=name),
        ]

    return metrics


def replicator_health(replicator: Replicator) -> Health:
    """Return the checks: the replicator runs; what is committed reaches the object store."""

    def running() -> str | None:
        failure = replicator.failure
        return None if failure is None else f"the replicator ended: {failure}"

    def shipping() -> str | None:
        status = replicator.status()
        if status.error is not None:
            return status.error
        return None if status.position.txid else "nothing is in the object store yet"

    return Health(live={"replicator": running}, ready={"shipping": shipping})


def node_health(node: Node) -> Health:
    """Return the checks: the node runs; it leads or follows, and the object store answers."""

    def running() -> str | None:
        return None if node.failure is None else f"the node ended: {node.failure}"

    def role() -> str | None:
        health = node.health()
        if health.is_refused:
            return f"the object store refuses it: {health.last_error}"
        return "it neither leads nor follows" if health.role is Role.CHANGING else None

    return Health(live={"node": running}, ready={"role": role})


def maintenance_metrics(maintenance: Maintenance, name: str) -> MetricSource:
    """Return what tells what maintenance has done."""

    def metrics() -> Iterable[Metric]:
        done = maintenance.done
        merged = [
            Sample(done[f"level {level}"], {"database": name, "level": str(level)})
            for level, _ in enumerate(maintenance.policy.level_every_s, 1)
        ]
        return [
            Metric("strandline_replica_compactions_total", "counter", "Files made by merging others.", merged),
            counter(
                "strandline_replica_maintenance_snapshots_total", "Snapshots written.", done["snapshots"], database=name
            ),
            counter("strandline_replica_pruned_files_total", "Files removed.", done["pruned"], database=name),
            counter("strandline_replica_maintenance_errors_total", "Steps that failed.", done["errors"], database=name),
        ]

    return metrics


class FollowerCounts:
    """How a follower is doing, told by the loop that drives it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._followed: Followed | None = None
        self._since_s = time.time()
        self._last_success_s = 0.0
        self._errors = 0
        self._error: str | None = "the copy was never current"

    def caught_up(self, followed: Followed) -> None:
        """Note that the copy was current a moment ago."""
        with self._lock:
            self._followed, self._last_success_s, self._error = followed, time.time(), None

    def failed(self, error: StrandlineError) -> None:
        """Note that the replica could not be read."""
        with self._lock:
            self._errors += 1
            self._error = str(error)

    @property
    def error(self) -> str | None:
        """Why the copy is not current; None where the last look made it so."""
        with self._lock:
            return self._error

    @property
    def has_failed(self) -> bool:
        """Whether the last look at the replica failed."""
        with self._lock:
            return self._error is not None and self._errors > 0

    @property
    def lag_s(self) -> float:
        """How long ago the copy was last current, or this began."""
        with self._lock:
            return max(0.0, time.time() - (self._last_success_s or self._since_s))

    def health(self) -> Health:
        """Return the checks: the last look at the replica made the copy current."""
        return Health(ready={"copy": lambda: self.error})

    def metrics(self) -> Iterable[Metric]:
        """Return what is known."""
        with self._lock:
            followed, success_s, errors = self._followed, self._last_success_s, self._errors
        prefix, name = "strandline_replica_follower", self._name
        stale_s = max(0.0, time.time() - (success_s or self._since_s))
        position = followed.position.txid if followed else 0
        stamp_s = followed.timestamp_ms / 1000 if followed else 0.0
        return [
            gauge(f"{prefix}_txid", "The last transaction that was applied.", position, database=name),
            gauge(f"{prefix}_lag_seconds", "How long ago the copy was last current.", stale_s, database=name),
            gauge(
                f"{prefix}_transaction_timestamp_seconds", "When that transaction was shipped.", stamp_s, database=name
            ),
            gauge(
                f"{prefix}_last_success_timestamp_seconds", "When the copy was last current.", success_s, database=name
            ),
            counter(f"{prefix}_errors_total", "Looks at the replica that failed.", errors, database=name),
        ]


def node_metrics(node: Node) -> MetricSource:
    """Return what tells how a node is doing."""
    labels = {"database": str(node.path), "node": node.name}

    def metrics() -> Iterable[Metric]:
        health, prefix = node.health(), "strandline_replica_node"
        roles = [Sample(health.role is role, {**labels, "role": role.value}) for role in Role]
        lag = [] if health.lag_s is None else [Sample(health.lag_s, labels)]
        kept = len(health.set_aside)
        return [
            Metric(f"{prefix}_role", "gauge", "1 for the role that the node has.", roles),
            gauge(f"{prefix}_epoch", "The epoch under which it leads; 0 where it does not.", health.epoch, **labels),
            gauge(f"{prefix}_txid", "The last transaction, applied or shipped.", health.txid, **labels),
            Metric(f"{prefix}_lag_seconds", "gauge", "Age of the follower's state, or of unshipped commits.", lag),
            gauge(f"{prefix}_failing", "1 while an error is waited out.", bool(health.last_error), **labels),
            gauge(f"{prefix}_refused", "1 while the store refuses the credential.", health.is_refused, **labels),
            counter(f"{prefix}_failovers_total", "Times that it began to lead.", health.failovers, **labels),
            counter(f"{prefix}_set_aside_total", "Databases that it has set aside.", kept, **labels),
            counter(f"{prefix}_errors_total", "Steps that failed.", health.errors, **labels),
        ]

    return metrics
