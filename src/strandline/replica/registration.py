"""The registration of a follower: written every few seconds, under the condition that no other process has its name.

Invariants: a registration replaces the one that this process wrote, none, or one that has not changed for `STALE_S`,
which a process that crashed has left. A name is taken where another process shows two signs of life under it: it
renews a lease or a registration twice while this one looks. One sign may be a request that a process which has crashed
sent before.
"""

import contextlib
import secrets
import time
from collections.abc import Callable

from strandline.errors import FormatError, Unavailable, UnknownOutcome
from strandline.lease import Lease
from strandline.objects import ObjectConflict, ObjectStore
from strandline.replica.errors import NodeNameTaken
from strandline.replica.nodes import NodeRecord, node_key, parse_node, register, unregister

REGISTER_EVERY_S = 5.0
STALE_S = 12.0
"""How long a registration of another process stays as it is before it is replaced: two of its renewals, and more."""
_SIGNS = 2


class Registration:
    """The registration of one follower, renewed by the thread of its node."""

    def __init__(
        self,
        store: ObjectStore,
        lease: Lease,
        name: str,
        address: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._lease = lease
        self._name, self._address = name, address
        self._clock = clock
        self._instance = secrets.token_hex(8)
        self._due: tuple[str, float] | None = None
        """The leader under which it was written, and when it is due again; None where it is not there."""
        self._etag: str | None = None
        self._is_known = False
        """Whether the object in the store is the one with `_etag`, as far as this process knows."""
        self._others = _SignsOfLife(store.address, name, clock), _SignsOfLife(store.address, name, clock)

    def renew(self, txid: int) -> None:
        """Register under the leader of this moment, if that is due; `NodeNameTaken` where another has the name."""
        seen = self._lease.health()
        if self._due and self._due[0] == f"{seen.epoch} {seen.leader}" and self._due[1] > self._clock():
            return
        leader = self._lease.look()
        if leader is None or leader.released:
            return
        if leader.holder == self._name and leader.session != self._lease.session:
            self._others[0].note(f"{leader.session} {leader.nonce}", "renews the lease")
        else:
            self._others[0].forget()
        if self._write(NodeRecord(self._name, self._address, leader.session, txid, self._instance)):
            self._due = (f"{leader.epoch} {leader.holder}", self._clock() + REGISTER_EVERY_S)

    def remove(self) -> None:
        """Delete the registration, if there is one of this process; one that is not known to be stays until it is old.

        A store that does not answer keeps it as long.
        """
        is_own = self._due is not None and self._is_known
        self._due, self._is_known = None, False
        if is_own:
            with contextlib.suppress(Unavailable, UnknownOutcome):
                unregister(self._store, self._name)

    def _write(self, record: NodeRecord) -> bool:
        """Write a registration; return False while that of another process may be alive."""
        if not self._is_known and not self._look():
            return False
        try:
            self._etag = register(self._store, record, if_absent=self._etag is None, if_match=self._etag)
        except ObjectConflict:
            self._is_known = False
        except UnknownOutcome:
            self._is_known = False
            raise
        else:
            self._others[1].forget()
        return self._is_known

    def _look(self) -> bool:
        """Find out what a registration replaces; return False where it has to wait."""
        found = self._store.get(node_key(self._name))
        self._etag = None if found is None else found.info.etag
        self._is_known = True
        if found is not None:
            with contextlib.suppress(FormatError):  # of a later Strandline
                if parse_node(found.body, found.info.key).instance == self._instance:
                    return True
            self._is_known = self._others[1].note(found.info.etag, "renews its registration") >= STALE_S
        return self._is_known


class _SignsOfLife:
    """What another process with the name of this one changes."""

    def __init__(self, address: str, name: str, clock: Callable[[], float]) -> None:
        self._address, self._name = address, name
        self._clock = clock
        self._since_s = 0.0
        self.forget()

    def forget(self) -> None:
        """Begin anew: there is no other process at this moment."""
        self._seen: str | None = None
        self._count = 0

    def note(self, seen: str, sign: str) -> float:
        """Note what is there now; return for how long it has been."""
        if seen != self._seen:
            self._count += self._seen is not None
            self._seen, self._since_s = seen, self._clock()
            if self._count >= _SIGNS:
                raise NodeNameTaken(self._address, self._name, sign)
        return self._clock() - self._since_s
