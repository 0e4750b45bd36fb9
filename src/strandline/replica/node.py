"""A node: leader or follower of one database at one place in an object store.

    follower   no connection commits here; transactions of the leader are applied in place; the lease is tried for
    promotion  claim -> catch up -> publish one transaction under the new epoch -> accept writes
    leader     a replicator ships what is committed, for as long as the lease is held
    demotion   let writes that are served end -> stop writes -> ship the rest -> release the lease -> follow in place

Invariants: writes are accepted only after the first transaction under the epoch is in the store, and only while the
lease is held by this node's own monotonic clock; nothing is sent to the store under a lease that is over, and nothing
that was sent before is accepted once the next leader has published. What was committed and not shipped is set aside
whole before a page of it is overwritten. The wall clock enters records alone.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from strandline.errors import Closed, Conflict, Locked, StrandlineError, Unavailable, UnknownOutcome
from strandline.events import Events
from strandline.files import Lock, OsDisk
from strandline.lease import Fence, Lease, LeaseHeld, LeaseLost, LeaseTiming, ObjectLeaseStore
from strandline.lease.claimant import DEFAULT_TIMING
from strandline.objects import GuardedObjects, ObjectStore, StoreRefused
from strandline.replica.connections import real_path
from strandline.replica.errors import LtxDamaged, NotLeading, ReplicaAhead, ReplicaFenced, ReplicaFork, ReplicaGap
from strandline.replica.maintenance import Maintenance, MaintenancePolicy
from strandline.replica.node_copy import NodeCopy
from strandline.replica.node_events import DatabaseSetAside, NodeHealth, NodeTrouble, RoleChanged
from strandline.replica.nodes import LEASE_KEY, check_name, parse_address
from strandline.replica.pace import REFUSED_PAUSE_S
from strandline.replica.registration import Registration
from strandline.replica.replicator import Replicator
from strandline.replica.roles import Role

logger = logging.getLogger("strandline.replica")
DRAIN_S = 30.0
"""How long a node that ends waits for the application's transaction, and for the store to take the rest."""
WRITES_S = 10.0
"""How long a hand-over waits for writes that are served already; others are held meanwhile."""
_RETRY_S = 0.1
_QUICK_S = 0.02


class _Tenure(NamedTuple):
    fence: Fence
    replicator: Replicator
    maintenance: Maintenance | None


class Node:
    """Leads or follows, from `start` to `close`. Implements `ReplicaNode`; `store` stays the caller's."""

    def __init__(
        self,
        path: Path,
        store: ObjectStore,
        name: str,
        *,
        address: str = "",
        timing: LeaseTiming = DEFAULT_TIMING,
        follow_every_s: float = 1.0,
        maintenance: MaintenancePolicy | None = None,
        events: Events | None = None,
    ) -> None:
        self.path, self.name, self.address = real_path(path), check_name(name), address
        if address:
            parse_address(address)  # clients could not reach it otherwise, and would say so far from here
        self.events = events or Events()
        self._store = store
        self._policy = maintenance
        self._timing = timing
        self._pause_s = min(follow_every_s, timing.poll_s)
        self._stop, self._wake = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._copy = NodeCopy(store, self.path, told=self._set_aside, give_up=self._is_over)
        own = Events(lambda _: self._wake.set())
        self.lease = Lease(
            ObjectLeaseStore(store, LEASE_KEY),
            name,
            address=address,
            timing=timing,
            floor=self._floor,
            events=own,
        )
        self._thread: threading.Thread | None = None
        self._file_lock: Lock
        self._role = Role.CHANGING
        self._tenure: _Tenure | None = None
        self._hand_over = False
        self._claims_after_s = 0.0
        self._blank_until_s: float | None = None  # others may have a database to begin the replica with
        self._registration = Registration(store, self.lease, name, address)
        self._caught_up_s: float | None = None
        self._stop_by_s: float | None = None
        self._led_epoch = 0
        self._waiters = self._writes = 0
        self._failovers = self._failed = 0
        self._kept: tuple[str, ...] = ()
        self._errors: dict[str, StrandlineError] = {}  # of each step, while it fails
        self._has_started = (
            False  # whether the store took all it was asked for once: a refusal before that ends the node
        )
        self._reason = ""
        self.failure: BaseException | None = None

    def start(self) -> Self:
        """Keep other connections from writing, then follow and lead from then on."""
        try:
            self._file_lock = OsDisk().lock(self.path.with_name(f".{self.path.name}-strandline-node.lock"))
        except Locked:  # a second node would keep the application of the first from writing
            hint = "one node holds a database; end the other one, or give this one another database"
            raise Locked(str(self.path), hint=hint) from None
        try:
            self._copy.hold()
        except BaseException:
            self._copy.close()
            self._file_lock.release()
            raise
        self._thread = threading.Thread(target=self._run, name=f"strandline-node-{self.name}", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop writes and ship the rest if this node leads, then let go of the database; raise what had ended it."""
        self._stop_by_s = time.monotonic() + DRAIN_S
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if isinstance(self.failure, StrandlineError):
            raise self.failure
        if self.failure is not None:
            raise RuntimeError(f"node {self.name} ended") from self.failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close()

    # What routing asks

    @property
    def role(self) -> Role:
        """Return the role at this moment: a leader whose lease is over is one no longer."""
        role = self._role
        return Role.CHANGING if role is Role.LEADER and not self.lease.is_held else role

    @property
    def epoch(self) -> int:
        """Return the epoch under which this node leads; 0 where it does not."""
        tenure = self._tenure
        return tenure.fence.epoch if tenure and self.role is Role.LEADER else 0

    def leader_address(self) -> str | None:
        """Return the address of the leader; None where no leader is known."""
        if self.role is Role.LEADER:
            return self.address or None
        health = self.lease.health()
        is_alive = not health.is_held and (health.expires_in_s or 0.0) > 0
        return (health.leader_address or None) if is_alive else None

    @property
    def is_led(self) -> bool:
        """Return whether a node holds the lease, as far as is known here: this one, or the last seen, in its time."""
        health = self.lease.health()
        return health.is_held or (bool(health.leader) and (health.expires_in_s or 0.0) > 0)

    def position(self) -> int:
        """Return the last transaction: applied by a follower, in the object store for a leader."""
        tenure = self._tenure
        if tenure is not None:
            return tenure.replicator.position.txid
        followed = self._copy.followed
        return followed.position.txid if followed else 0

    def wait_for(self, txid: int, timeout_s: float) -> bool:
        """Wait until `position` has reached a transaction; return whether it has."""
        return self._wait(lambda: self.position() >= txid, timeout_s)

    def wait_for_leader(self, timeout_s: float) -> str | None:
        """Wait until a leader is known, and return its address; None after the timeout."""
        self._wait(lambda: self.leader_address() is not None, timeout_s)
        return self.leader_address()

    def wait_for_role(self, role: Role, timeout_s: float) -> bool:
        """Wait until this node has a role; return whether it has."""
        return self._wait(lambda: self.role is role, timeout_s)

    @contextlib.contextmanager
    def serving_write(self) -> Iterator[int]:
        """Serve a write in this context: a hand-over waits for it. Gives the epoch; 0 where this node does not lead."""
        with self._changed:
            epoch = self.epoch
            self._writes += bool(epoch)
        try:
            yield epoch
        finally:
            with self._changed:
                self._writes -= bool(epoch)
                self._changed.notify_all()

    def wait_durable(self, timeout_s: float, *, epoch: int | None = None) -> int:
        """Return a transaction that holds everything which was committed here before the call, once it is stored."""
        tenure = self._tenure
        if tenure is None or epoch not in (None, tenure.fence.epoch):
            raise NotLeading(str(self.path), epoch or 0)
        try:
            return tenure.replicator.wait_durable(timeout_s).txid
        except (Closed, Conflict) as error:
            raise NotLeading(str(self.path), tenure.fence.epoch) from error

    def hand_over(self) -> None:
        """Have another node lead: stop writes, ship the rest, release the lease, and follow. Returns at once."""
        self._hand_over = True
        self._wake.set()

    def health(self) -> NodeHealth:
        """Return how this node is doing, without asking the store."""
        tenure, seen = self._tenure, self.lease.health()
        caught_up_s = self._caught_up_s
        lag_s = None if caught_up_s is None else time.monotonic() - caught_up_s
        errors = list(self._errors.values())
        error, is_refused = str(next(iter(errors), self._reason)), any(isinstance(one, StoreRefused) for one in errors)
        if tenure is not None:
            status = tenure.replicator.status()
            lag_s, error, is_refused = status.lag_s, status.error or "", is_refused or status.is_refused
        return NodeHealth(
            self.name,
            self.role,
            self.epoch,
            seen.leader,
            seen.leader_address,
            self.position(),
            lag_s,
            self._kept,
            error or seen.last_error,
            self._failovers,
            self._failed,
            is_refused,
        )

    def _wait(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        give_up = time.monotonic() + timeout_s
        with self._changed:
            self._waiters += 1
            self._wake.set()
            try:
                while not is_so():
                    left_s = give_up - time.monotonic()
                    if left_s <= 0 or self._thread is None or self.failure is not None:
                        return is_so()
                    self._changed.wait(min(left_s, _QUICK_S))
                return True
            finally:
                self._waiters -= 1

    # The thread

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._follow_once() if self._tenure is None else self._try(self._lead_once, "leading")
            if self._tenure is not None:
                self._demote()
        except BaseException as error:
            logger.exception("node %s ended", self.name)
            self.failure = error
        finally:
            self._end()

    def _end(self) -> None:
        self._set_role(Role.CHANGING)
        with contextlib.suppress(StrandlineError):
            if self._tenure is not None:
                self._tenure.replicator.close(flush=False)
        self._tenure = None
        self.lease.release()
        self._registration.remove()
        self._copy.close()
        self._file_lock.release()
        with self._changed:
            self._changed.notify_all()

    def _follow_once(self) -> None:
        self._hand_over = False
        is_current = self._try(self._catch_up, "catching up")
        if is_current and not self._stop.is_set():
            self._try(self._claim, "claiming")
        if self._tenure is None:
            self._try(self._register, "registering")
            self._has_started = self._has_started or not self._errors
            if any(isinstance(error, StoreRefused) for error in self._errors.values()):
                self._stop.wait(REFUSED_PAUSE_S)
                return
            self._wake.wait(_QUICK_S if self._waiters else self._pause_s)
            self._wake.clear()

    def _catch_up(self) -> None:
        """Apply what the leader has shipped; what forks from it is set aside."""
        if not self._copy.settle(self._led_epoch):  # there is no replica yet: this database may become the first of it
            if self._blank_until_s is None:
                self._blank_until_s = time.monotonic() + (self._timing.ttl_s if self._copy.is_blank() else 0.0)
            self._claims_after_s = max(self._claims_after_s, self._blank_until_s)
            return
        try:
            self._copy.catch_up()
        except ReplicaFork as error:
            logger.warning("%s does not continue the replica: %s", self.path, error)
            self._copy.fork()
            self._copy.catch_up()
        self._caught_up_s = time.monotonic()
        self._set_role(Role.FOLLOWER)

    def _claim(self) -> None:
        """Try for the lease; after a hand-over once another node has had it, for however short, or a lease later."""
        if time.monotonic() < self._claims_after_s:
            record = self.lease.look()
            if record is not None and record.epoch > self._led_epoch:
                self._claims_after_s = 0.0
            return
        with contextlib.suppress(LeaseHeld, LeaseLost, ReplicaFenced, ReplicaAhead):  # another leads: follow it
            self._promote(self.lease.acquire(0))

    def _promote(self, fence: Fence) -> None:
        """Lead under a new epoch: catch up and publish, and only then accept writes."""
        self._set_role(Role.CHANGING)
        try:
            self._registration.remove()
            while not self._try(lambda: self._publish(fence), "publishing", raises_refusal=True):
                self.lease.check(fence)
                time.sleep(_RETRY_S)
            while not self._try(lambda: self._open(fence), "opening", raises_refusal=True):
                self.lease.check(fence)
                time.sleep(_RETRY_S)
        except BaseException:
            for step in ("publishing", "opening"):
                self._errors.pop(step, None)
            self.lease.release()
            raise
        self._errors.clear()  # of steps of a follower, which a leader does not take
        self._led_epoch, self._has_started = fence.epoch, True
        self._failovers += 1
        self._set_role(Role.LEADER)

    def _publish(self, fence: Fence) -> None:
        while self._copy.settle(self._led_epoch) or not self._copy.is_new():
            self._copy.catch_up()
            try:
                self._copy.publish(fence.epoch, lambda: self.lease.check(fence))
            except ReplicaFenced:  # the last leader came first: catch up with it
                self.lease.check(fence)
            else:
                return

    def _open(self, fence: Fence) -> None:
        """Accept writes, with a replicator that ships them. The first database of a replica is shipped whole."""
        self.lease.check(fence)
        fenced = GuardedObjects(self._store, lambda: self.lease.check(fence))
        replicator = Replicator(self.path, fenced, epoch=fence.epoch)
        is_first = self._copy.followed is None
        try:
            with self._copy.opened_to_writers():
                replicator.start()
            if is_first:
                replicator.wait_durable(self._timing.ttl_s)
        except BaseException:
            with contextlib.suppress(StrandlineError):
                replicator.close(flush=False)
            self._copy.hold()
            raise
        maintenance = None if self._policy is None else Maintenance(fenced, self._policy)
        if maintenance is not None:
            maintenance.start()
        self._tenure = _Tenure(fence, replicator, maintenance)

    def _lead_once(self) -> None:
        assert self._tenure is not None  # noqa: S101 - the caller looked
        self._wake.wait(_QUICK_S if self._waiters else self._pause_s)
        self._wake.clear()
        if not self.lease.is_held or self._tenure.replicator.failure is not None:
            self._stand_down(self._tenure, "the lease is over" if not self.lease.is_held else "its replicator ended")
        elif self._hand_over:
            self._demote()

    def _demote(self) -> None:
        """Stop writes, ship the rest, then release the lease."""
        tenure = self._tenure
        assert tenure is not None  # noqa: S101 - the caller looked
        self._set_role(Role.CHANGING)
        reason = "it was handed over"
        self._wait(lambda: not self._writes or not self.lease.is_held, WRITES_S)
        try:
            if self._copy.hold():
                tenure.replicator.wait_durable(DRAIN_S)
        except StrandlineError as error:
            reason = f"the rest was not shipped: {error}"
        self._claims_after_s = time.monotonic() + self._timing.ttl_s
        self._stand_down(tenure, reason)

    def _stand_down(self, tenure: _Tenure, reason: str) -> None:
        """Lead no longer. What was not shipped is found when it follows."""
        self._set_role(Role.CHANGING)
        self._reason = "" if self._hand_over or self._stop.is_set() else reason
        self._copy.hold()
        with contextlib.suppress(StrandlineError):
            tenure.replicator.close(flush=False)
        self._tenure = None
        self.lease.release()
        if tenure.maintenance is not None:
            tenure.maintenance.close()
        logger.info("%s leads no longer: %s", self.name, reason)
        with contextlib.suppress(Unavailable, UnknownOutcome):
            self._copy.settle(self._led_epoch)

    # Around it

    def _try(self, step: Callable[[], None], name: str, *, raises_refusal: bool = False) -> bool:
        """Do a step; what passes by itself, or when the store is mended, is said once and tried again.

        So is a refusal of the store that has answered before, since credentials are renewed; not within a promotion,
        which would hold the lease meanwhile.
        """
        try:
            step()
        except (Unavailable, UnknownOutcome, LtxDamaged, ReplicaGap, ReplicaFork) as error:
            is_renewable = isinstance(error, StoreRefused) and self._has_started and not raises_refusal
            if isinstance(error, Unavailable) and not error.retryable and not is_renewable:
                raise
            if str(self._errors.get(name)) != str(error):
                logger.warning("node %s: %s", self.name, error)
                self.events.emit(NodeTrouble(self.name, str(error)))
            self._errors[name] = error
            self._failed += 1
            return False
        self._errors.pop(name, None)
        return True

    def _register(self) -> None:
        if self._role is Role.FOLLOWER:
            self._registration.renew(self.position())

    def _floor(self) -> int:
        followed = self._copy.followed
        return followed.epoch if followed else 0

    def _is_over(self) -> bool:
        """Return whether a node that ends has waited long enough for the application's transaction."""
        return self._stop_by_s is not None and time.monotonic() > self._stop_by_s

    def _set_role(self, role: Role) -> None:
        if role is self._role:
            return
        with self._changed:
            self._role = role
            self._changed.notify_all()
        self.events.emit(RoleChanged(self.name, role, self.epoch, self.position()))

    def _set_aside(self, file: Path, txid: int) -> None:
        self._kept = (*self._kept, str(file))
        self.events.emit(DatabaseSetAside(self.name, file, txid))
