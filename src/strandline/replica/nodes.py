"""The nodes of a replicated database: who leads, who follows, and how clients find them.

    leader.json          the lease (docs/formats/lease.md)
    nodes/<name>.json    a follower's registration, rewritten every few seconds, deleted on promotion and shutdown

Invariants: nothing is decided by a registration; it helps clients to choose. Its age is judged by the store's clock
alone. A follower counts only if it has registered under the session that leads now.
"""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from strandline.errors import FormatError, InvalidInput
from strandline.lease import ObjectLeaseStore
from strandline.objects import ObjectStore

LEASE_KEY = "leader.json"
NODES_PREFIX = "nodes/"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_VERSION = 1


class NodeRecord(NamedTuple):
    """A follower, as it registers itself."""

    name: str
    address: str
    session: str
    """The session of the leader that it follows."""
    txid: int


class Leader(NamedTuple):
    """Who leads, by the record of the lease; whether it is alive only time tells."""

    name: str
    address: str
    session: str
    epoch: int


class Discovered(NamedTuple):
    """The nodes of a replica; `leader` is None where the lease was released or never taken."""

    leader: Leader | None
    followers: Sequence[NodeRecord]

    def readers(self) -> list[str]:
        """Return addresses to read from: followers, and the leader where there is none."""
        addresses = [node.address for node in self.followers if node.address]
        return addresses or ([self.leader.address] if self.leader and self.leader.address else [])


def check_name(name: str) -> str:
    """Return the name of a node, which becomes a part of a key."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot name a node",
            hint="use letters, digits, '.', '_' and '-', up to 63, a letter or digit first",
        )
    return name


def node_key(name: str) -> str:
    """Return the key of a registration."""
    return f"{NODES_PREFIX}{check_name(name)}.json"


def format_node(record: NodeRecord) -> bytes:
    """Return a registration as JSON."""
    return (json.dumps({"format": _VERSION, **record._asdict()}) + "\n").encode()


def parse_node(body: bytes, key: str) -> NodeRecord:
    """Return what `format_node` wrote."""
    try:
        fields = json.loads(body)
        if fields["format"] != _VERSION:
            raise FormatError(key, f"format {fields['format']} is of a later Strandline")
        return NodeRecord(str(fields["name"]), str(fields["address"]), str(fields["session"]), int(fields["txid"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(key, "it is not the registration of a node") from error


def register(store: ObjectStore, record: NodeRecord) -> None:
    """Write a follower's registration; it does so every few seconds, and anew when the leader's session changes."""
    store.put(node_key(record.name), format_node(record))


def unregister(store: ObjectStore, name: str) -> None:
    """Delete a registration, on promotion and on shutdown."""
    store.delete(node_key(name))


def discover(store: ObjectStore, *, age_max: timedelta = timedelta(seconds=15)) -> Discovered:
    """Return who leads and who follows it, without registrations that are `age_max` older than the latest sign of life.

    The leader renews its lease, and followers register, every few seconds: the latest of these is now, by the store.
    """
    found = ObjectLeaseStore(store, LEASE_KEY).read()
    record = found.record if found else None
    leader = None
    if record is not None and not record.released:
        leader = Leader(record.holder, record.address, record.session, record.epoch)
    infos = [info for info in store.list(NODES_PREFIX) if info.key.endswith(".json")]
    lease = store.head(LEASE_KEY)
    newest = max(info.modified for info in [*infos, *([lease] if lease else [])]) if infos else None
    followers = []
    for info in infos:
        body = store.get(info.key) if newest is not None and newest - info.modified <= age_max else None
        node = parse_node(body.body, info.key) if body else None
        if node is not None and leader is not None and node.session == leader.session:
            followers.append(node)
    return Discovered(leader, sorted(followers))


class ReplicaDirectory:
    """The nodes of a replica, for a client that knows its address alone; any thread may ask.

    An address that has failed three times is left out until another session leads: until then it is of a node that is
    gone, and a new leader is waited for.
    """

    def __init__(self, store: ObjectStore, *, look_every_s: float = 1.0, failures_max: int = 3) -> None:
        self._store = store
        self._look_every_s = look_every_s
        self._failures_max = failures_max
        self._found = Discovered(None, ())
        self._look_at_s = 0.0
        self._session = ""
        self._failures = Counter[str]()
        self._lock = threading.Lock()

    def leader(self) -> str | None:
        """Return where the leader is reached; None where none is known, or it has failed."""
        leader = self._look().leader
        return leader.address if leader is not None and self._is_good(leader.address) else None

    def readers(self) -> list[str]:
        """Return addresses to read from: followers, and the leader where there is none that has not failed."""
        found = self._look()
        followers = [node.address for node in found.followers if self._is_good(node.address)]
        if followers:
            return followers
        leader = self.leader()
        return [] if leader is None else [leader]

    def note_failure(self, address: str) -> None:
        """Count a request that failed at an address."""
        with self._lock:
            self._failures[address] += 1

    def note_success(self, address: str) -> None:
        """Forget the failures of an address."""
        with self._lock:
            del self._failures[address]

    def wait_for_leader(self, timeout_s: float) -> str | None:
        """Wait until there is a leader that has not failed, and return its address; None after the timeout."""
        give_up = time.monotonic() + timeout_s
        while (address := self.leader()) is None and (left_s := give_up - time.monotonic()) > 0:
            time.sleep(min(left_s, self._look_every_s))
        return address

    def _is_good(self, address: str) -> bool:
        return bool(address) and self._failures[address] < self._failures_max

    def _look(self) -> Discovered:
        with self._lock:
            if time.monotonic() >= self._look_at_s:
                self._found = discover(self._store)
                self._look_at_s = time.monotonic() + self._look_every_s
                session = self._found.leader.session if self._found.leader else ""
                if session and session != self._session:
                    self._session = session
                    self._failures.clear()
            return self._found
