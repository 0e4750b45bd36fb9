"""Nodes of one process each: they hand over, take over, and set aside what is in no history."""

import errno
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import apsw
import pytest

from strandline.clock import NS_PER_S, elapsed_ns
from strandline.errors import Locked, StrandlineError, Unavailable
from strandline.lease import LeaseLost, LeaseTiming, ObjectLeaseStore
from strandline.lease.stores import StoredRecord
from strandline.objects import GuardedObjects, LocalObjects, MemoryObjects, Object, ObjectStore
from strandline.objects.contracts import Buffer
from strandline.objects.errors import StoreRefused, StoreUnavailable
from strandline.replica import (
    DatabaseSetAside,
    Follower,
    Layout,
    Node,
    NodeTrouble,
    NotLeading,
    ReplicaForeign,
    ReplicaNode,
    Replicator,
    Restored,
    Role,
    RoleChanged,
    discover,
    find_position,
    node_copy,
    restore,
)
from strandline.replica.compaction import compact_level
from strandline.replica.cursor import cursor_path
from strandline.replica.ltx import HEADER_BYTES, LtxHeader, encode, parse_header
from strandline.replica.metrics import node_metrics
from strandline.replica.node_copy import NodeCopy
from strandline.replica.nodes import LEASE_KEY, node_key
from tests.metrics.scrapes import Scrapes
from tests.replica.databases import content, database, fill
from tests.waiting import PATIENCE_S, eventually

TIMING = LeaseTiming(ttl_s=600.0, renew_s=150.0, margin_s=1.0, poll_s=0.05)
"""No lease ends by itself, however long the machine pauses: nodes hand over, or a test skips time."""


class Clock:
    """The clock of the lease of a node, which a test can move on."""

    def __init__(self, node: Node) -> None:
        self._skipped_ns = 0
        node.lease._now_ns = node.lease._claimant._now_ns = self.now_ns  # noqa: SLF001

    def now_ns(self) -> int:
        """Return the time."""
        return elapsed_ns() + self._skipped_ns

    def skip(self, seconds: float = TIMING.ttl_s) -> None:
        """Let a lease that is not renewed end."""
        self._skipped_ns += int(seconds * NS_PER_S)


class Store(LocalObjects):
    """A local store that can be away, and that does something before a write."""

    is_away = is_refusing = False
    before_put: Callable[[str], None] = staticmethod(lambda _key: None)

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        """Return an object."""
        self._check_there()
        return super().get(key, start=start, stop=stop)

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object."""
        self._check_there()
        self.before_put(key)
        return super().put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)

    def _check_there(self) -> None:
        if self.is_refusing:
            raise StoreRefused(self.address, "the token has expired")
        if self.is_away:
            raise StoreUnavailable(self.address, "it is away")


def node_of(place: Path, name: str, store: Store | None = None) -> Node:
    """Return a node that was not started yet."""
    store = store or Store(place / "replica")
    return Node(place / f"{name}.db", store, name, address=f"http://{name}", timing=TIMING, follow_every_s=0.05)


@contextmanager
def nodes_at(place: Path, names: str) -> Iterator[dict[str, Node]]:
    """Run nodes for a block; the first has a database to begin with."""
    if not (place / "replica").exists() and not (place / f"{names[0]}.db").exists():
        with database(place / f"{names[0]}.db") as application:
            application.execute("CREATE TABLE t (value TEXT)")
    with ExitStack() as running:
        nodes = {name: running.enter_context(node_of(place, name)) for name in names}
        if len(nodes) > 1:
            wait_until_known(nodes, leader_of(nodes))
        yield nodes


def leader_of(nodes: Mapping[str, Node], *, but: Node | None = None) -> Node:
    """Return the node that leads, once one does."""

    def found() -> Node | None:
        for node in nodes.values():
            assert node.failure is None, node.failure
        return next((node for node in nodes.values() if node.role is Role.LEADER and node is not but), None)

    node = eventually(found)
    assert node is not None
    return node


def wait_until_known(nodes: Mapping[str, Node], leader: Node) -> None:
    """Wait until all nodes have seen who leads: a node that has not does not claim for a while."""
    eventually(lambda: all(node.leader_address() == leader.address for node in nodes.values()))


@contextmanager
def opened(node: Node) -> Iterator[apsw.Connection]:
    """Connect to the database of a node as its application does."""
    connection = apsw.Connection(str(node.path))
    connection.set_busy_timeout(int(PATIENCE_S * 1000))
    try:
        yield connection
    finally:
        connection.close()


def check_locked(connection: apsw.Connection) -> None:
    """Have a write be told that the database is locked."""
    connection.set_busy_timeout(0)
    with pytest.raises(apsw.BusyError):
        connection.execute("INSERT INTO t VALUES ('lost')")
    connection.set_busy_timeout(int(PATIENCE_S * 1000))


def write(node: Node, value: str) -> int:
    """Commit a row, and return the transaction that holds it."""
    epoch = node.epoch
    with opened(node) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (value TEXT)")
        connection.execute("INSERT INTO t VALUES (?)", (value,))
    return node.wait_durable(PATIENCE_S, epoch=epoch)


def rows(path: Path) -> list[str]:
    """Return the rows of a database that SQLite finds whole."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(int(PATIENCE_S * 1000))
    try:
        assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
        return [value for (value,) in connection.execute("SELECT value FROM t ORDER BY 1")]
    finally:
        connection.close()


def handed_over(nodes: Mapping[str, Node]) -> Node:
    """Have another node lead, and return it."""
    last = leader_of(nodes)
    wait_until_known(nodes, last)
    last.hand_over()
    return leader_of(nodes, but=last)


def test_nodes_hand_over_and_every_one_has_every_row(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "abc") as nodes:
        txid = write(leader_of(nodes), "0")
        for number in range(1, 4):
            txid = write(handed_over(nodes), str(number))
        for node in nodes.values():
            assert node.wait_for(txid, PATIENCE_S)
            assert rows(node.path) == ["0", "1", "2", "3"]
        wait_until_known(nodes, leader_of(nodes))
        assert not any(node.health().set_aside for node in nodes.values())
    found = discover(Store(tmp_path / "replica"))
    assert (found.leader, list(found.followers)) == (None, []), "the lease is released, and registrations are gone"


def test_a_node_that_handed_over_leads_again_once_another_has_led_unseen(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "a") as nodes:
        node = leader_of(nodes)
        node.hand_over()
        lease = ObjectLeaseStore(node._store, LEASE_KEY)  # noqa: SLF001

        def given_back() -> StoredRecord | None:
            found = lease.read()
            return found if found is not None and found.record.released else None

        stored = eventually(given_back, "the lease is given back")
        assert stored is not None
        record = stored.record._replace(epoch=stored.record.epoch + 1, holder="b", session="b")
        lease.write(record, stored.version)  # another had it between two looks
        assert node.wait_for_role(Role.LEADER, PATIENCE_S), "it does not wait for the time of a lease"
        assert node.epoch == record.epoch + 1


def test_a_wall_clock_that_jumps_an_hour_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, real_ns = itertools.cycle([0, 3600, -3600, 1800]), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + next(offsets) * 1_000_000_000)
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
    with nodes_at(tmp_path, "ab") as nodes:
        first = leader_of(nodes)
        write(first, "0")
        for _ in range(4):
            assert first.role is Role.LEADER, "renewals go by the monotonic clock"
            write(first, "more")
        assert first.wait_for(write(handed_over(nodes), "1"), PATIENCE_S)
        assert rows(first.path) == ["0", "1", *["more"] * 4]


def test_only_the_leader_takes_writes(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "ab") as nodes:
        leader = leader_of(nodes)
        follower = next(node for node in nodes.values() if node is not leader)
        assert follower.wait_for(write(leader, "0"), PATIENCE_S)
        with opened(follower) as connection:
            check_locked(connection)
        with pytest.raises(NotLeading):
            follower.wait_durable(PATIENCE_S)
        epoch = leader.epoch
        with opened(leader) as old:  # a connection that stays open over the change, in both directions
            old.execute("INSERT INTO t VALUES ('1')")
            assert handed_over(nodes) is follower
            eventually(lambda: leader.role is Role.FOLLOWER)
            check_locked(old)
            assert leader.wait_for(write(follower, "2"), PATIENCE_S)
            assert list(old.execute("SELECT value FROM t")) == [("0",), ("1",), ("2",)]
            assert handed_over(nodes) is leader
            old.execute("INSERT INTO t VALUES ('3')")
            with pytest.raises(NotLeading, match=f"under epoch {epoch}"):  # of an earlier tenure
                leader.wait_durable(PATIENCE_S, epoch=epoch)
            assert follower.wait_for(leader.wait_durable(PATIENCE_S), PATIENCE_S)
        assert rows(follower.path) == ["0", "1", "2", "3"]


def test_a_node_leads_only_after_a_transaction_under_its_epoch(tmp_path: Path) -> None:
    store, epochs = Store(tmp_path / "replica"), list[tuple[int, int]]()

    def look(event: object) -> None:
        if isinstance(event, RoleChanged) and event.role is Role.LEADER:
            layout = Layout(store)
            last = max(layout.files(0), key=lambda file: file.max_txid)
            found = store.get(last.key, stop=HEADER_BYTES)
            epochs.append((event.epoch, parse_header(found.body, last.key).epoch if found else 0))

    with database(tmp_path / "a.db") as application:
        application.execute("CREATE TABLE t (value TEXT)")
    with ExitStack() as running:
        nodes = {name: node_of(tmp_path, name) for name in "ab"}
        for node in nodes.values():
            node.events.subscribe(look)
            running.enter_context(node)
        for number in range(3):
            write(leader_of(nodes), str(number))
            handed_over(nodes)
    assert epochs[:4] == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_shipment_of_the_last_leader_that_came_first_is_caught_up_with(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "a") as nodes:
        write(leader_of(nodes), "0")
    store, layout = Store(tmp_path / "replica"), Layout(Store(tmp_path / "replica"))
    follower = Follower(Store(tmp_path / "replica"), tmp_path / "copy.db")
    late = follower.catch_up()
    page = (tmp_path / "copy.db").read_bytes()[:4096]
    count = (tmp_path / "copy.db").stat().st_size // 4096
    follower.close()
    txid = late.position.txid + 1
    header = LtxHeader(4096, count, txid, txid, late.timestamp_ms, epoch=1, predecessor=late.position.checksum)
    body, keys = b"".join(encode(header, iter([(1, page)]))), list[str]()

    def first(key: str) -> None:
        if key == layout.key(0, txid, txid) and not keys:
            keys.append(key)
            Store(tmp_path / "replica").put(key, body, if_absent=True)

    store.before_put = first
    with node_of(tmp_path, "b", store) as node:
        leader_of({"b": node})
        assert keys, "the last leader came first"
        assert node.position() > txid
        write(node, "1")
    assert rows(tmp_path / "b.db") == ["0", "1"]


def test_a_leader_without_its_store_stops_and_sets_aside_what_was_not_shipped(tmp_path: Path) -> None:
    store, told = Store(tmp_path / "replica"), list[DatabaseSetAside]()
    away = node_of(tmp_path, "a", store)
    clock = Clock(away)
    with database(away.path) as connection:
        connection.execute("CREATE TABLE t (value TEXT)")
    away.events.subscribe(lambda event: told.append(event) if isinstance(event, DatabaseSetAside) else None)
    scrapes, told_by = Scrapes(), node_metrics(away)
    with away, opened(away) as application:
        txid = write(leader_of({"a": away}), "0")
        epoch = away.epoch
        scrapes.take(told_by)
        store.is_away = True
        application.execute("INSERT INTO t VALUES ('unshipped')")
        assert away.role is Role.LEADER
        clock.skip()
        eventually(lambda: away.role is not Role.LEADER)
        assert away.epoch == 0
        with pytest.raises((NotLeading, StrandlineError)):
            away.wait_durable(0.01, epoch=epoch)
        other = node_of(tmp_path, "b")
        their_clock = Clock(other)
        with other:
            eventually(lambda: other.leader_address() == away.address)
            their_clock.skip()
            leader_of({"b": other})
            assert other.epoch > epoch
            write(other, "1")
            store.is_away = False
            eventually(lambda: away.role is Role.FOLLOWER)
            check_locked(application)
            assert away.wait_for(write(other, "2"), PATIENCE_S)
            assert list(application.execute("SELECT value FROM t")) == [("0",), ("1",), ("2",)]
            with pytest.raises(NotLeading):
                away.wait_durable(PATIENCE_S, epoch=epoch)
    kept = tmp_path / "a.db.set-aside-1"
    assert rows(kept) == ["0", "unshipped"]
    assert [(event.file, event.txid) for event in told] == [(kept, txid)]
    assert away.health().set_aside == (str(kept),)
    assert scrapes.take(told_by)["strandline_replica_node_set_aside_total"] == 1
    scrapes.check_changed("strandline_replica_node_set_aside_total")


def test_an_expired_credential_is_said_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.replica.node.REFUSED_PAUSE_S", 0.1)
    monkeypatch.setattr("strandline.replica.replicator.REFUSED_PAUSE_S", 0.1)
    store, troubles = Store(tmp_path / "replica"), list[str]()
    with database(tmp_path / "a.db") as application:
        application.execute("CREATE TABLE t (value TEXT)")
    node = node_of(tmp_path, "a", store)
    clock = Clock(node)
    scrapes, told_by = Scrapes(), node_metrics(node)
    with node:
        node.events.subscribe(lambda event: troubles.append(event.error) if isinstance(event, NodeTrouble) else None)
        assert leader_of({"a": node}) is node
        assert not node.health().is_refused
        scrapes.take(told_by)
        store.is_refusing = True
        clock.skip()
        assert node.wait_for_role(Role.CHANGING, PATIENCE_S), "its lease is not renewed"
        eventually(lambda: node.health().is_refused and troubles)
        found = scrapes.take(told_by)
        assert (found["strandline_replica_node_failing"], found["strandline_replica_node_refused"]) == (1, 1)
        assert "the token has expired" in node.health().last_error
        store.is_refusing = False
        assert leader_of({"a": node}) is node, "the credential was renewed"
        assert not node.health().is_refused
        assert scrapes.take(told_by)["strandline_replica_node_refused"] == 0
    scrapes.check_changed(
        "strandline_replica_node_failing", "strandline_replica_node_refused", "strandline_replica_node_errors_total"
    )


def test_a_leader_is_not_refused_since_it_was_as_a_follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that was refused its registration leads next, and does not register."""
    monkeypatch.setattr("strandline.replica.node.REFUSED_PAUSE_S", 0.1)
    monkeypatch.setattr("strandline.replica.registration.REGISTER_EVERY_S", 0.1)
    store, troubles = Store(tmp_path / "replica"), list[str]()
    with database(tmp_path / "a.db") as application:
        application.execute("CREATE TABLE t (value TEXT)")
    with ExitStack() as nodes:
        leader = node_of(tmp_path, "a")
        first = nodes.enter_context(ExitStack())
        first.enter_context(leader)
        assert leader_of({"a": leader}) is leader
        follower = nodes.enter_context(node_of(tmp_path, "b", store))
        assert follower.wait_for_role(Role.FOLLOWER, PATIENCE_S)
        eventually(lambda: store.get(node_key("b")))
        follower.events.subscribe(
            lambda event: troubles.append(event.error) if isinstance(event, NodeTrouble) else None
        )
        store.is_refusing = True
        eventually(lambda: len(troubles) > 1)  # it is refused when it catches up, and when it registers
        assert follower.health().is_refused
        first.close()
        store.is_refusing = False
        assert leader_of({"b": follower}) is follower
        assert not follower.health().is_refused


def test_a_store_that_refuses_at_the_start_ends_the_node(tmp_path: Path) -> None:
    store = Store(tmp_path / "replica")
    store.is_refusing = True
    with pytest.raises(StoreRefused, match="the token has expired") as refused, node_of(tmp_path, "a", store) as node:
        eventually(lambda: node.failure)
    assert "credentials" in (refused.value.hint or "")


def test_nothing_is_sent_to_the_store_under_a_lease_that_is_over(tmp_path: Path) -> None:
    store = Store(tmp_path / "replica")

    def check() -> None:
        raise LeaseLost(store.address, 1, "it ended")

    fenced = GuardedObjects(store, check)
    store.put("kept", b"1")
    for act in (
        lambda: fenced.put("new", b"1"),
        lambda: fenced.put_stream("new", [b"1"]),
        lambda: fenced.delete("kept"),
    ):
        with pytest.raises(LeaseLost):
            act()
    assert [info.key for info in fenced.list()] == ["kept"]


def test_commits_made_while_no_node_ran_are_set_aside(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "ab") as nodes:
        txid = write(leader_of(nodes), "0")
        for node in nodes.values():
            assert node.wait_for(txid, PATIENCE_S)
    for name in "ab":
        connection = apsw.Connection(str(tmp_path / f"{name}.db"))
        connection.execute("INSERT INTO t VALUES (?)", (f"alone {name}",))
        connection.close()
    with nodes_at(tmp_path, "ab") as nodes:
        txid = write(leader_of(nodes), "1")
        for name, node in nodes.items():
            assert node.wait_for(txid, PATIENCE_S)
            assert rows(node.path) == ["0", "1"]
            assert rows(tmp_path / f"{name}.db.set-aside-1") == ["0", f"alone {name}"]


def test_nothing_is_set_aside_where_nothing_was_committed(tmp_path: Path) -> None:
    for number in range(3):  # the first time without a replica, then with logs that the last connection has removed
        with nodes_at(tmp_path, "abc") as nodes:
            txid = write(leader_of(nodes), str(number))
            for node in nodes.values():
                assert node.wait_for(txid, PATIENCE_S)
        for name in "abc":
            assert rows(tmp_path / f"{name}.db") == [str(one) for one in range(number + 1)]
    assert list(tmp_path.glob("*set-aside*")) == []


def test_nothing_is_set_aside_where_the_folder_of_the_replica_is_given_by_another_path(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "a") as nodes:
        write(leader_of(nodes), "0")
    (tmp_path / "link").symlink_to("replica")
    with node_of(tmp_path, "a", Store(tmp_path / "link")) as node:
        assert node.wait_for_role(Role.LEADER, PATIENCE_S)
        write(node, "1")
    assert rows(tmp_path / "a.db") == ["0", "1"]
    assert list(tmp_path.glob("*set-aside*")) == []


class SlowStore(MemoryObjects):
    """A store that a request for a transaction reaches much later."""

    is_slow = False
    late: tuple[str, bytes] | None = None

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object, or keep a transaction back."""
        if self.is_slow and key.endswith(".ltx"):
            self.late = (key, bytes(body))
            raise StoreUnavailable(self.address, "it is slow")
        return super().put(key, body, if_absent=if_absent, if_match=if_match, metadata=metadata)


@pytest.mark.parametrize("is_noted", [True, False], ids=["it was on its way", "the log alone tells of it"])
def test_a_transaction_of_its_own_that_came_late_is_set_aside_where_another_is_of_the_history(
    tmp_path: Path, is_noted: bool
) -> None:
    store = SlowStore()
    layout = Layout(store)
    with database(tmp_path / "a.db") as application:
        for table in ("t", "other"):
            application.execute(f"CREATE TABLE {table} (value TEXT)")
        running = Replicator(tmp_path / "a.db", store).start()
        running.wait_durable(PATIENCE_S)
        application.execute("INSERT INTO t VALUES ('first')")
        running.wait_durable(PATIENCE_S)
        shipped = cursor_path(tmp_path / "a.db").read_text()
        compact_level(store, layout, layout.all_files(), 1)
        store.is_slow = True
        application.execute("INSERT INTO other VALUES ('late')")
        eventually(lambda: store.late, "a request is on its way")
        running.close(flush=False)
        store.is_slow = False
        if not is_noted:
            cursor_path(tmp_path / "a.db").write_text(shipped)
        with Node(tmp_path / "b.db", store, "b", timing=TIMING, follow_every_s=0.05) as other:
            assert other.wait_for_role(Role.LEADER, PATIENCE_S)
            for number in range(3):
                write(other, str(number))
        compact_level(store, layout, layout.all_files(), 1)
        for file in list(layout.files(0))[:-1]:
            store.delete(file.key)
        assert store.late is not None
        store.put(*store.late, if_absent=True)
        with closing(NodeCopy(store, tmp_path / "a.db")) as copy:
            copy.settle()
            copy.catch_up()
    assert content(tmp_path / "a.db") == content(tmp_path / "b.db")
    assert content(tmp_path / "a.db.set-aside-1") == [("other", "late"), ("t", "first")]


def test_an_old_database_of_an_application_begins_a_replica(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application:
        application.execute("CREATE TABLE t (value TEXT)")
        application.execute("INSERT INTO t VALUES ('old')")
        with nodes_at(tmp_path, "a") as nodes:
            write(leader_of(nodes), "new")
    store = Store(tmp_path / "replica")
    restore(store, Layout(store), tmp_path / "restored.db")
    assert rows(tmp_path / "restored.db") == ["new", "old"]


def test_a_node_without_a_database_leaves_it_to_others_to_begin(tmp_path: Path) -> None:
    blank = node_of(tmp_path, "b")
    roles = list[Role]()
    blank.events.subscribe(lambda event: roles.append(event.role) if isinstance(event, RoleChanged) else None)
    with blank:
        with database(tmp_path / "a.db") as application:
            application.execute("CREATE TABLE t (value TEXT)")
        with node_of(tmp_path, "a") as node:
            assert leader_of({"a": node, "b": blank}) is node
            assert blank.wait_for(write(node, "0"), PATIENCE_S)
            wait_until_known({"a": node, "b": blank}, node)
        assert Role.LEADER not in roles
        assert leader_of({"b": blank}) is blank
    assert rows(tmp_path / "b.db") == ["0"]


def test_an_application_may_open_its_database_while_that_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nodes_at(tmp_path, "a") as nodes:
        txid = write(leader_of(nodes), "0")
        early, restored = apsw.Connection(str(tmp_path / "unused.db")), restore

        def restore_late(store: ObjectStore, layout: Layout, path: Path) -> Restored:
            nonlocal early
            found = restored(store, layout, path)
            early.close()
            early = apsw.Connection(str(tmp_path / "b.db"))
            early.set_busy_timeout(int(PATIENCE_S * 1000))
            assert list(early.execute("SELECT name FROM sqlite_schema")) == []
            return found

        monkeypatch.setattr(node_copy, "restore", restore_late)
        with node_of(tmp_path, "b") as node:
            assert node.wait_for(txid, PATIENCE_S)
            assert list(early.execute("SELECT value FROM t")) == [("0",)]
            check_locked(early)
            early.close()


def test_a_replica_begins_without_a_database(tmp_path: Path) -> None:
    node = node_of(tmp_path, "a")
    node._timing = LeaseTiming(ttl_s=1.0, renew_s=0.2, margin_s=0.1)  # noqa: SLF001 - how long it waits for others
    with node:
        write(leader_of({"a": node}), "0")
    assert rows(tmp_path / "a.db") == ["0"]


def test_a_database_of_another_replica_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with nodes_at(tmp_path, "a") as nodes:
        write(leader_of(nodes), "0")
    with nodes_at(tmp_path / "other", "a") as nodes:
        write(leader_of(nodes), "1")
    node = Node(tmp_path / "other" / "a.db", Store(tmp_path / "replica"), "x", timing=TIMING)
    node.start()
    eventually(lambda: node.failure)
    with pytest.raises(ReplicaForeign):
        node.close()
    assert rows(tmp_path / "other" / "a.db") == ["1"]
    assert find_position(Store(tmp_path / "replica"), Layout(Store(tmp_path / "replica"))).txid > 0


def test_the_transaction_of_the_moment_is_waited_for_and_shipped(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "ab") as nodes:
        leader = leader_of(nodes)
        write(leader, "0")
        with opened(leader) as application:
            application.execute("BEGIN IMMEDIATE")
            application.execute("INSERT INTO t VALUES ('late')")
            leader.hand_over()
            eventually(lambda: leader.role is Role.CHANGING)
            committed = threading.Timer(0.0, lambda: application.execute("COMMIT"))
            committed.start()
            other = leader_of(nodes, but=leader)
            committed.join()
        assert rows(other.path) == ["0", "late"]


def test_a_node_is_what_routing_asks_for(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "a") as nodes:
        node: ReplicaNode = leader_of(nodes)
        assert node.wait_for_leader(PATIENCE_S) == "http://a"
        assert (node.role, node.epoch, node.leader_address()) == (Role.LEADER, 1, "http://a")
        assert not node.wait_for(node.position() + 1000, 0.01)


def test_a_large_database_is_followed_in_place(tmp_path: Path) -> None:
    with database(tmp_path / "a.db") as application, application:
        fill(application, 3000)
    with nodes_at(tmp_path, "ab") as nodes:
        leader = leader_of(nodes)
        with opened(leader) as application:
            application.execute("DELETE FROM t WHERE id > 100")
            application.execute("VACUUM")
            txid = leader.wait_durable(PATIENCE_S)
        assert nodes["b"].wait_for(txid, PATIENCE_S)
        with opened(nodes["b"]) as reader:
            assert list(reader.execute("SELECT count(*) FROM t")) == [(100,)]


def test_a_full_disk_is_waited_out_and_the_lock_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes_at(tmp_path, "ab") as nodes:
        leader = leader_of(nodes)
        follower = next(node for node in nodes.values() if node is not leader)
        assert follower.wait_for(write(leader, "1"), PATIENCE_S)
        real, refused = os.pwrite, threading.Event()
        log = follower.path.with_name(f"{follower.path.name}-wal").stat().st_ino

        def full(descriptor: int, data: bytes, offset: int) -> int:
            if os.fstat(descriptor).st_ino == log:
                refused.set()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(descriptor, data, offset)

        monkeypatch.setattr(os, "pwrite", full)
        txid = write(leader, "2")
        eventually(lambda: "No space left" in follower.health().last_error)
        assert refused.is_set()
        with opened(follower) as application:
            check_locked(application)
        assert rows(follower.path) == ["1"]
        monkeypatch.setattr(os, "pwrite", real)
        assert follower.wait_for(txid, PATIENCE_S)
        assert rows(follower.path) == ["1", "2"]
        assert follower.failure is None


def test_a_hand_over_waits_for_a_write_that_is_served_and_begins_no_other(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "a") as nodes:
        node = leader_of(nodes)
        with node.serving_write() as epoch:
            assert epoch == node.epoch
            node.hand_over()
            eventually(lambda: node.role is Role.CHANGING)
            with node.serving_write() as other:
                assert other == 0
            with opened(node) as connection:
                connection.execute("INSERT INTO t VALUES ('served')")
            assert node.wait_durable(PATIENCE_S, epoch=epoch)
        eventually(lambda: node.role is Role.FOLLOWER)
        assert node.health().set_aside == ()


def remove_log(path: Path) -> None:
    """Remove the log of a database that is removed or replaced next: its node puts a new one in its place at once."""
    for suffix in ("-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink()


def test_a_database_that_was_removed_or_replaced_under_a_follower_is_restored(tmp_path: Path) -> None:
    with nodes_at(tmp_path, "ab") as nodes:
        leader = leader_of(nodes)
        follower = next(node for node in nodes.values() if node is not leader)
        assert follower.wait_for(write(leader, "1"), PATIENCE_S)
        remove_log(follower.path)
        follower.path.unlink()
        eventually(lambda: follower.path.exists() and rows(follower.path) == ["1"])
        assert follower.wait_for(write(leader, "2"), PATIENCE_S)
        other = tmp_path / "other.db"
        with database(other) as application:
            application.execute("CREATE TABLE t (value TEXT)")
            application.execute("INSERT INTO t VALUES ('other')")
        remove_log(follower.path)
        other.rename(follower.path)
        eventually(lambda: follower.health().set_aside)
        assert follower.wait_for(write(leader, "3"), PATIENCE_S)
        eventually(lambda: rows(follower.path) == ["1", "2", "3"])
        with opened(follower) as application:
            check_locked(application)
        assert rows(Path(follower.health().set_aside[0])) == ["other"]
        assert follower.failure is None


def test_a_second_node_of_one_database_is_refused(tmp_path: Path) -> None:
    """It would hold the lock, and the application of the leader could not write."""
    with nodes_at(tmp_path, "a") as nodes:
        leader = leader_of(nodes)
        (tmp_path / "link.db").symlink_to("a.db")
        for name in ("a", "link"):
            with pytest.raises(Locked) as refused:
                node_of(tmp_path, name).start()
            assert "one node holds a database" in str(refused.value.hint)
        assert write(leader, "1")
    with node_of(tmp_path, "a") as node:
        assert node.wait_for_role(Role.LEADER, PATIENCE_S)


def test_a_database_that_cannot_be_held_at_once_is_tried_again_when_it_is_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nodes_at(tmp_path, "ab") as nodes:
        leader = leader_of(nodes)
        write(leader, "1")
        hold, failures = node_copy.NodeCopy.hold, itertools.count()

        def busy(copy: node_copy.NodeCopy) -> bool:
            if copy._path == leader.path and next(failures) < 4:  # noqa: SLF001
                raise Unavailable("the database is busy")
            return hold(copy)

        monkeypatch.setattr(node_copy.NodeCopy, "hold", busy)
        leader.hand_over()
        other = leader_of(nodes, but=leader)
        assert leader.wait_for(write(other, "2"), PATIENCE_S)
        assert leader.failure is None
        assert rows(leader.path) == ["1", "2"]
