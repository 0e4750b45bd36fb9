"""The nodes of a replicated database: who leads, who follows, and how clients find them.

    leader.json          the lease (docs/formats/lease.md)
    nodes/<name>.json    a follower's registration, rewritten every few seconds, deleted on promotion and shutdown

Invariants: nothing is decided by a registration; it helps clients to choose, and one that cannot be read hides no
other node. Its age is judged by the store's clock alone. A follower counts only if it has registered under the session
that leads now.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit

from strandline.errors import FormatError, InvalidInput
from strandline.lease import ObjectLeaseStore
from strandline.objects import ObjectStore, local_folder, open_objects

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
    instance: str = ""
    """The process that registers; empty in registrations of earlier versions."""


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
    errors: Sequence[str] = ()
    """Registrations that cannot be read, such as those of a later Strandline."""
    modified: Mapping[str, datetime] = MappingProxyType({})
    """When the lease was renewed, and each follower registered last, by their keys and the store's clock."""

    def readers(self) -> list[str]:
        """Return addresses to read from: followers, and the leader where there is none."""
        addresses = [node.address for node in self.followers if node.address]
        return addresses or ([self.leader.address] if self.leader and self.leader.address else [])


class Address(NamedTuple):
    """Where a node serves HTTP."""

    host: str
    port: int
    is_tls: bool

    @property
    def authority(self) -> str:
        """Return host and port as the header `Host` has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address of a node: `host:port`, `http://host:port` or `https://host`."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (KeyError, ValueError):
        parts, port = urlsplit(""), 0
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.username:
        raise InvalidInput(f"{text!r} is not the address of a node", hint="give it as http://HOST:PORT")
    return Address(parts.hostname, port, parts.scheme == "https")


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
        name, address, session = str(fields["name"]), str(fields["address"]), str(fields["session"])
        return NodeRecord(name, address, session, int(fields["txid"]), str(fields.get("instance", "")))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(key, "it is not the registration of a node") from error


def register(store: ObjectStore, record: NodeRecord, *, if_absent: bool = False, if_match: str | None = None) -> str:
    """Write a follower's registration and return its ETag; conditions are those of `ObjectStore.put`.

    A follower does so every few seconds, and anew when the leader's session changes.
    """
    return store.put(node_key(record.name), format_node(record), if_absent=if_absent, if_match=if_match)


def unregister(store: ObjectStore, name: str) -> None:
    """Delete a registration, on promotion and on shutdown."""
    store.delete(node_key(name))


def discover(replica: ObjectStore | str, *, age_max: timedelta = timedelta(seconds=15)) -> Discovered:
    """Return who leads and who follows it, without registrations that are `age_max` older than the latest sign of life.

    `replica` is its address (`s3://bucket/prefix`), or the store at that address. The leader renews its lease, and
    followers register, every few seconds: the latest of these is now, by the store.
    """
    if isinstance(replica, str):
        folder = local_folder(replica)
        if folder is not None and not folder.exists():  # opening it would make it
            return Discovered(None, ())
        with closing(open_objects(replica)) as opened:
            return discover(opened, age_max=age_max)
    store = replica
    found = ObjectLeaseStore(store, LEASE_KEY).read()
    record = found.record if found else None
    leader = None
    if record is not None and not record.released:
        leader = Leader(record.holder, record.address, record.session, record.epoch)
    infos = [info for info in store.list(NODES_PREFIX) if info.key.endswith(".json")]
    lease = store.head(LEASE_KEY)
    newest = max(info.modified for info in [*infos, *([lease] if lease else [])]) if infos else None
    followers, errors = list[NodeRecord](), list[str]()
    modified = {} if lease is None else {LEASE_KEY: lease.modified}
    for info in infos:
        body = store.get(info.key) if newest is not None and newest - info.modified <= age_max else None
        try:
            node = parse_node(body.body, info.key) if body else None
        except FormatError as error:
            errors.append(str(error))
            continue
        if node is not None and leader is not None and node.session == leader.session:
            followers.append(node)
            modified[info.key] = info.modified
    return Discovered(leader, sorted(followers), errors, modified)
