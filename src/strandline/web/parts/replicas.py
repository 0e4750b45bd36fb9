"""Replicas: who leads, who follows and how far behind, and the points that can be restored.

Invariants: the store is only listed and read; ages are told by the store's clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from strandline.objects import ObjectStore, open_objects
from strandline.replica import Layout, discover
from strandline.replica.check import reach_problem
from strandline.replica.layout import LtxFile
from strandline.replica.nodes import LEASE_KEY, node_key
from strandline.web.polling import Need, Polled

EVERY_S = 3.0
AGE_NOTED_S = 30.0


@dataclass(frozen=True)
class NodeFacts:
    """A node of a replica, and when it gave a sign of life."""

    name: str
    address: str
    seen: datetime
    txid: int | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class ReplicaFacts:
    """A replica: its files, and its nodes."""

    txid: int
    bytes: int
    files: int
    problem: str | None
    written: datetime | None
    wholes: tuple[tuple[int, datetime, int], ...]
    others: tuple[tuple[int, datetime, int], ...]
    leader: NodeFacts | None
    followers: tuple[NodeFacts, ...]
    unread: tuple[str, ...]

    def behind(self, node: NodeFacts) -> int:
        """Return how many transactions a follower lacks."""
        return max(0, self.txid - (node.txid or 0))


class ReplicaPart(Polled[ReplicaFacts]):
    """A replica at an address."""

    def __init__(self, address: str) -> None:
        super().__init__("replicas", address, self._look, every_s=EVERY_S)
        self._address = address

    def needs(self, link: str) -> list[Need]:
        """Return what needs a person."""
        facts = self.value
        if facts is None:
            return []
        text = f"{self.name} cannot be restored: {facts.problem}"
        found = [Need(text, link, is_urgent=True)] if facts.problem else []
        if facts.followers and facts.leader is None:
            found.append(Need(f"{self.name} has followers and no leader", link, is_urgent=True))
        elif facts.leader is not None and age_s(facts.leader.seen) > AGE_NOTED_S:
            silence = f"gave no sign of life for {age_s(facts.leader.seen):.0f} s"
            text = f"the leader of {self.name}, {facts.leader.name}, {silence}"
            found.append(Need(text, link, is_urgent=True))
        return found

    def _look(self) -> ReplicaFacts:
        store = open_objects(self._address, conditional=False)
        try:
            return _facts(store)
        finally:
            store.close()


def age_s(moment: datetime) -> float:
    """Return how long ago something was."""
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


def _facts(store: ObjectStore) -> ReplicaFacts:
    files = Layout(store).all_files()
    found = discover(store)
    leader = None
    if found.leader is not None:
        seen = found.modified[LEASE_KEY]
        leader = NodeFacts(found.leader.name, found.leader.address, seen, epoch=found.leader.epoch)
    followers = tuple(
        NodeFacts(node.name, node.address, found.modified[node_key(node.name)], txid=node.txid)
        for node in found.followers
    )
    return ReplicaFacts(
        txid=max((file.max_txid for file in files), default=0),
        bytes=sum(file.size for file in files),
        files=len(files),
        problem=reach_problem(files, store.address) if files else None,
        written=max((file.modified for file in files), default=None),
        wholes=_points(file for file in files if file.is_whole),
        others=_points(file for file in files if not file.is_whole),
        leader=leader,
        followers=followers,
        unread=tuple(found.errors),
    )


def _points(files: Iterable[LtxFile]) -> tuple[tuple[int, datetime, int], ...]:
    return tuple(sorted(((file.max_txid, file.modified, file.size) for file in files), key=lambda point: point[1]))
