"""Conditions of replicators, followers and nodes, for alarms."""

from collections.abc import Iterable

from strandline.alarms import Condition
from strandline.replica.metrics import FollowerCounts
from strandline.replica.node import Node
from strandline.replica.replicator import Replicator

FAILING, LAGGING, LOST = "replication_failing", "replication_lagging", "lease_lost"


def replicator_conditions(replicator: Replicator, lag_limit_s: float) -> Iterable[Condition]:
    """Return what is wrong with a replicator, or that nothing is."""
    subject, status = str(replicator.path), replicator.status()
    ended = replicator.failure
    problem = status.error if ended is None else f"the replicator ended: {ended}"
    details = {"txid": status.position.txid}
    yield Condition(FAILING, subject, problem, details=details)
    yield _lagging(subject, status.lag_s, lag_limit_s, details)


def follower_conditions(counts: FollowerCounts, copy: str, lag_limit_s: float) -> Iterable[Condition]:
    """Return what is wrong with a follower, or that nothing is."""
    yield Condition(FAILING, copy, counts.error if counts.has_failed else None)
    yield _lagging(copy, counts.lag_s, lag_limit_s, {})


def node_conditions(node: Node, lag_limit_s: float) -> Iterable[Condition]:
    """Return what is wrong with a node, or that nothing is."""
    health, subject = node.health(), f"{node.path} ({node.name})"
    details = {"txid": health.txid, "epoch": health.epoch}
    ended = None if node.failure is None else f"the node ended: {node.failure}"
    refused = f"the object store refuses it: {health.last_error}" if health.is_refused else None
    yield Condition(FAILING, subject, ended or refused, details=details)
    yield _lagging(subject, health.lag_s or 0.0, lag_limit_s, details)
    yield Condition(LOST, subject, None if node.is_led else "no node holds the lease", details=details)


def _lagging(subject: str, lag_s: float, limit_s: float, details: dict[str, int]) -> Condition:
    late = f"it is more than {limit_s:g} s behind" if lag_s > limit_s else None
    return Condition(LAGGING, subject, late, details=details)
