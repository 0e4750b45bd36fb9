"""Seeded schedules of three nodes over the code of production: they promote, hand over, crash, stand still and rejoin.

Invariants: everything follows from the seed. `Node`, `NodeCopy`, `Lease`, `Shipper`, the follower and compaction are
those of production; their threads, SQLite and time are not. A database is a few pages with rows and a log that ends
somewhere. Every request of a node goes through its own view of a store with faults: it may crash before any of them,
or stand still while others act and leases run out. After each operation, what was acknowledged is in the replica,
under one leader for each position; what was set aside is not; and a follower holds what the replica holds.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from strandline.clock import NS_PER_S, ManualClock
from strandline.errors import Closed, Conflict, StrandlineError, Unavailable, UnknownOutcome
from strandline.lease import Lease, LeaseTiming
from strandline.objects import GuardedObjects, MemoryObjects, ObjectStore
from strandline.replica import Layout, Node, NotLeading, Position, Role, Shipper, find_position
from strandline.replica.capture import Change, LogState
from strandline.replica.compaction import compact_level, take_snapshot
from strandline.replica.cursor import ReplicaCursor, Shipped, read_cursor, write_cursor
from strandline.replica.layout import LtxFile
from strandline.replica.ltx import LtxReader
from strandline.replica.restore import file_pieces
from strandline.replica.restore_points import plan_restore
from strandline.replica.retention import plan_retention, prune
from strandline.replica.shipper import EMPTY, Shipment
from strandline.replica.wal import WalPosition
from strandline.sim import SimObjects

TIMING = LeaseTiming(ttl_s=10.0, renew_s=2.0, margin_s=1.0, poll_s=0.5)
NAMES = "abc"
OPERATIONS = 30
NESTED_MAX = 2
PRUNED_AFTER_S, RENEWED_EVERY_S = 304, 8
ROUNDS = 40
LATE_RATE = 0.01
PAGE_SIZE = 512
PAGES = 4
"""The first page has the number of rows; row r is in page 2 + r % 3."""
_FRAME_BYTES = PAGE_SIZE + 24
_LOG_HEADER_BYTES = 32


def _page(numbers: list[int]) -> bytes:
    return struct.pack(f">H{len(numbers)}H", len(numbers), *numbers).ljust(PAGE_SIZE, b"\0")


def _numbers(page: bytes) -> tuple[int, ...]:
    return struct.unpack_from(f">{struct.unpack_from('>H', page)[0]}H", page, 2)


EMPTY_DATABASE = {1: _page([0]), **{number: _page([]) for number in range(2, PAGES + 1)}}


class Crashed(BaseException):
    """The process of a node is gone; no handler of errors may go on."""


class Acknowledged(NamedTuple):
    """A row whose writer was told that it is durable."""

    row: int
    position: Position
    epoch: int


class Disk:
    """The database of one node and its log, as they outlive its process."""

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.pages: dict[int, bytes] = {}
        self.is_locked = False
        """Whether a node keeps others from writing."""
        self._salts = (number, 7)
        self._end = WalPosition(_LOG_HEADER_BYTES, (0, 0))
        self.log: list[tuple[LogState, LogState, Mapping[int, bytes]]] = []
        """The commits: the end of the log before and after each, and its pages."""
        path.write_bytes(b"a database")

    def state(self) -> LogState:
        """Return the end of the log."""
        return LogState(self._salts, self._end, len(self.pages), PAGE_SIZE)

    def prepared(self, pages: Mapping[int, bytes], commit: int) -> LogState:
        """Return the end of the log with one transaction more."""
        content = b"".join(struct.pack(">I", number) + page for number, page in sorted(pages.items()))
        checksum = zlib.crc32(content, self._end.checksum[0]), self._end.checksum[1] + 1
        offset = self._end.offset + len(pages) * _FRAME_BYTES
        return LogState(self._salts, WalPosition(offset, checksum), commit, PAGE_SIZE)

    def commit(self, pages: Mapping[int, bytes], commit: int) -> None:
        """Write a transaction."""
        before, after = self.state(), self.prepared(pages, commit)
        self.pages = {number: page for number, page in {**self.pages, **pages}.items() if number <= commit}
        self._end = after.position
        self.log.append((before, after, dict(pages)))

    def insert(self, row: int) -> None:
        """Commit a row, as an application does."""
        number = 2 + row % (PAGES - 1)
        rows = [*rows_of(self.pages), row]
        pages = {number: _page([one for one in rows if 2 + one % (PAGES - 1) == number])}
        self.commit({1: _page([len(rows)]), **pages}, PAGES)


def rows_of(pages: Mapping[int, bytes]) -> list[int]:
    """Return the rows of a database; it has to be whole."""
    if not pages:
        return []
    assert sorted(pages) == list(range(1, PAGES + 1)), "a page is missing"
    rows = [row for number in range(2, PAGES + 1) for row in _numbers(pages[number])]
    assert _numbers(pages[1]) == (len(rows),), "pages of different transactions stand side by side"
    return rows


class DiskLock:
    """What `WriteLock` is to a node, over a disk."""

    page_size = PAGE_SIZE

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.connection = SimpleNamespace(execute=lambda *_: [], disk=disk)
        self.state, self.close = disk.state, self.release

    def acquire(self, _: Callable[[], bool]) -> bool:
        self._disk.is_locked = True
        return True

    def release(self) -> None:
        self._disk.is_locked = False

    def is_current(self) -> bool:
        return True

    def first_page(self) -> bytes:
        return self._disk.pages[1]

    def page_count(self) -> int:
        return len(self._disk.pages)

    def pin(self) -> None:
        pass

    unpin = pin

    def prepare(self, pages: Mapping[int, bytes], commit: int, _: int) -> SimpleNamespace:
        found = dict(pages.items())
        return SimpleNamespace(state=self._disk.prepared(found, commit), pages=found, commit=commit)

    def write(self, transaction: SimpleNamespace) -> None:
        self._disk.commit(transaction.pages, transaction.commit)


class DiskReplicator:
    """What `Replicator` is to a node, over a disk: the same order of cursor and upload, one attempt at a time."""

    def __init__(self, path: Path, store: ObjectStore, *, epoch: int, disk: Disk) -> None:
        self._path, self._store, self._epoch, self._disk = path, store, epoch, disk
        self._under_way: tuple[Shipment, LogState] | None = None
        self._is_closed = False
        self.failure: StrandlineError | None = None

    @property
    def position(self) -> Position:
        return self._shipper.position

    def start(self) -> None:
        if not self._disk.pages:
            self._disk.commit(EMPTY_DATABASE, PAGES)
        layout = Layout(self._store)
        cursor, head = read_cursor(self._path), find_position(self._store, layout)
        found = cursor.find(head) if cursor else None
        self._shipper = Shipper(self._store, layout, head, epoch=self._epoch)
        self._shipped = found or Shipped(head)

    def wait_durable(self, _: float) -> Position:
        if self._is_closed:
            raise Closed("the replicator")
        if self.failure is None:
            try:
                self._ship_all()
            except (Unavailable, UnknownOutcome) as error:
                raise Unavailable(str(error)) from error
            except Conflict as error:
                self.failure = error
        if self.failure is not None:
            raise self.failure
        return self.position

    def close(self, *, flush: bool) -> None:
        assert not flush
        self._is_closed = True

    def _ship_all(self) -> None:
        while self._under_way is not None or self._shipped.state != self._disk.state():
            if self._under_way is None:
                self._pack()
            assert self._under_way is not None
            shipment, state = self._under_way
            self._shipped = Shipped(self._shipper.ship(shipment), state)
            self._under_way = None

    def _pack(self) -> None:
        known, end = self._shipped.state, self._disk.state()
        start = next((at for at, (before, _, _) in enumerate(self._disk.log) if before == known), None)
        pages = dict(self._disk.pages)
        if start is not None:
            pages = {number: pages[number] for _, _, some in self._disk.log[start:] for number in some}
        offset = known.position.offset if known is not None and start is not None else _LOG_HEADER_BYTES
        ordered = iter(sorted(pages.items()))
        shipment = self._shipper.pack(Change(PAGE_SIZE, PAGES, ordered, offset, end, is_whole=start is None))
        self._under_way = shipment, end
        sending, inode = Shipped(shipment.position, end), self._path.stat().st_ino
        write_cursor(self._path, ReplicaCursor(self._store.address, self._shipped, sending, inode=inode))


class _SlowNetwork(SimObjects):
    """A network in which a late request may come much later."""

    def _let_arrive(self) -> None:
        while self._late and self._random.random() < LATE_RATE:
            self._arrive()


class _QuietLease(Lease):
    """A lease that is renewed when the schedule says so, and not by a thread."""

    def _keep(self, tenure: Any) -> None:  # noqa: ANN401 - as the class behind it has it
        self._kept_epoch = tenure.record.epoch

    def renew(self) -> None:
        """Renew once."""
        self._renew_once()


class _Time:
    """What the modules of production take for `time`."""

    def __init__(self, schedule: "Schedule") -> None:
        self._schedule = schedule

    def monotonic(self) -> float:
        return self._schedule.elapsed_ns() / NS_PER_S

    def time_ns(self) -> int:
        return self._schedule.wall_ns()

    def sleep(self, seconds: float) -> None:
        self._schedule.pass_time(seconds)


class Schedule:
    """One schedule: three nodes, their applications, and the store."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = Random(seed)
        self._clock = ManualClock()
        self._start_ns = self._clock.now_ns()
        self._wall_offsets_s = dict.fromkeys(NAMES, 0.0)
        self._memory = MemoryObjects(f"schedule-{seed}", clock=self._clock)
        self._sim = _SlowNetwork(seed, fault_rate=self._random.choice([0.0, 0.03, 0.1]), store=self._memory)
        self._disks = {name: Disk(folder / f"{name}.db", number) for number, name in enumerate(NAMES)}
        self._nodes: dict[str, Node] = {}
        self._busy: list[str] = []
        self._rows = 0
        self._unled = set[int]()
        """Rows that were committed where no leader was: they never come into the replica."""
        self._layout = Layout(self._memory)
        self._acknowledged: list[Acknowledged] = []
        self._is_calm = False
        self.done: list[str] = []

    # Time

    def elapsed_ns(self) -> int:
        """Return the time that the clocks of nodes count; it never steps."""
        return self._clock.now_ns() - self._start_ns + NS_PER_S

    def wall_ns(self) -> int:
        """Return what the wall clock of the node that acts says."""
        offset_s = self._wall_offsets_s[self._busy[-1]] if self._busy else 0.0
        return self._clock.now_ns() + int(offset_s * NS_PER_S)

    def pass_time(self, seconds: float) -> None:
        """Let time go by."""
        self._clock.advance(seconds)

    # The run

    def run(self) -> None:
        """Do some operations, then end without faults."""
        with self._patched():
            self._disks["a"].commit(EMPTY_DATABASE, PAGES)
            for name in NAMES:
                self._begin(name)
            for _ in range(OPERATIONS):
                self._operate()
            self._end()

    def _end(self) -> None:
        """Without faults, the nodes come to agree, and every row is in the replica or set aside."""
        self._is_calm = True
        self._sim._fault_rate = 0.0  # noqa: SLF001 - the end is calm
        while self._sim._late:  # noqa: SLF001 - what is under way comes first
            self._sim._arrive()  # noqa: SLF001
        for name in NAMES:
            if name not in self._nodes:
                self._begin(name)
        leaders = list[Node]()
        for _ in range(ROUNDS):
            self.pass_time(TIMING.renew_s)
            for name in NAMES:
                self._step(name)
                self._nodes[name].lease.renew()  # type: ignore[attr-defined]
            leaders = [node for node in self._nodes.values() if node.role is Role.LEADER]
            if leaders:
                break
        assert len(leaders) == 1, "one node leads in the end"
        self._write(leaders[0].name)
        assert self._acknowledged[-1].row == self._rows - 1, "its writes are durable"
        for name in NAMES:
            self._step(name)
        rows = sorted(self._replica_rows())
        assert self._rows - 1 in rows
        assert all(sorted(rows_of(disk.pages)) == rows for disk in self._disks.values())
        lost = set(range(self._rows)) - set(rows) - self._set_aside_rows()
        assert not lost, "a row is neither in the replica nor set aside"

    def _operate(self) -> None:
        idle = [name for name in NAMES if name not in self._busy]
        name = self._random.choice(idle)
        which: Callable[[str], None] = self._random.choice(
            [self._step] * 6 + [self._renew] * 3 + [self._write] * 6 + [self._compact] * 2
        )
        if self._random.random() < 0.15:
            which = self._random.choice([self._crash, self._hand_over, self._stand_still, self._jump])
        if which == self._write and self._random.random() < 0.7:
            leaders = (one for one in idle if one in self._nodes and self._nodes[one].epoch)
            name = next(leaders, name)
        if name not in self._nodes and which != self._write:
            which = self._begin
        self.done.append(f"{'  ' * len(self._busy)}{which.__name__.strip('_')} {name}")
        try:
            which(name)
        except Crashed:
            self._lose(name)
        self._check()

    def _acting(self, name: str) -> "ExitStack":
        stack = ExitStack()
        self._busy.append(name)
        stack.callback(self._busy.pop)
        return stack

    def _before(self) -> Callable[[], None]:
        """Return what happens before each request of a node: its process may end there, or others act first."""

        def before() -> None:
            if self._is_calm:
                return
            if self._random.random() < 0.01:
                raise Crashed
            if len(self._busy) < NESTED_MAX and self._random.random() < 0.04:
                for _ in range(self._random.choice([1, 2, 8])):
                    self.pass_time(self._random.choice([0.0, 1.0, TIMING.ttl_s / 2, TIMING.ttl_s]))
                    self._operate()

        return before

    # Operations

    def _begin(self, name: str) -> None:
        """Start the process of a node."""
        before = self._before()
        view = GuardedObjects(self._sim, before, before)
        disk = self._disks[name]
        node = Node(disk.path, view, name, address=f"http://{name}", timing=TIMING, follow_every_s=0.0)
        self._nodes[name] = node
        with self._acting(name):
            try:
                node._copy.hold()  # noqa: SLF001 - as `start` does, without its thread
            except Crashed:
                self._lose(name)

    def _step(self, name: str) -> None:
        """Do what the thread of a node does next."""
        node = self._nodes[name]
        with self._acting(name):
            if node._tenure is None:  # noqa: SLF001
                node._follow_once()  # noqa: SLF001
            else:
                node._try(node._lead_once, "leading")  # noqa: SLF001

    def _renew(self, name: str) -> None:
        with self._acting(name):
            self.pass_time(self._random.choice([0.0, 1.0, 2.0]))
            self._nodes[name].lease.renew()  # type: ignore[attr-defined]

    def _write(self, name: str) -> None:
        """Have the application commit a row, if its database lets it, and wait until it is durable."""
        disk, node = self._disks[name], self._nodes.get(name)
        if disk.is_locked or not disk.pages:
            return
        row, self._rows = self._rows, self._rows + 1
        epoch = node.epoch if node else 0
        disk.insert(row)
        if node is None or not epoch:
            if any(self._layout.files(0)):  # otherwise this database may be the one that begins the replica
                self._unled.add(row)
            return
        with self._acting(name):
            try:
                txid = node.wait_durable(1.0, epoch=epoch)
            except (NotLeading, Unavailable):
                return
            assert node._tenure is not None  # noqa: SLF001 - it has answered
            position = node._tenure.replicator.position  # noqa: SLF001
            assert position.txid >= txid
            self._acknowledged.append(Acknowledged(row, position, epoch))

    def _compact(self, name: str) -> None:
        """Merge, write a snapshot and remove files, as the maintenance of a leader does."""
        node = self._nodes[name]
        tenure = node._tenure  # noqa: SLF001
        if tenure is None:
            return
        fenced = GuardedObjects(node._store, lambda: node.lease.check(tenure.fence))  # noqa: SLF001
        layout = Layout(fenced)
        with self._acting(name):
            try:
                compact_level(fenced, layout, layout.all_files(), 1)
                if self._random.random() < 0.3:
                    take_snapshot(fenced, layout, layout.all_files())
                if self._random.random() < 0.7:
                    self._lead_on(node)
                now = datetime.fromtimestamp(self._clock.now_ns() / NS_PER_S, UTC)
                prune(fenced, plan_retention(layout.all_files(), now))
            except (Unavailable, UnknownOutcome, Conflict):
                return

    def _lead_on(self, node: Node) -> None:
        """Let the time pass for which single transactions are kept, with the lease renewed."""
        for _ in range(PRUNED_AFTER_S // RENEWED_EVERY_S):
            self.pass_time(RENEWED_EVERY_S)
            node.lease.renew()  # type: ignore[attr-defined]

    def _hand_over(self, name: str) -> None:
        self._nodes[name].hand_over()
        self._step(name)

    def _stand_still(self, _: str) -> None:
        self.pass_time(self._random.choice([TIMING.ttl_s / 2, TIMING.ttl_s, 2 * TIMING.ttl_s, 200.0]))

    def _jump(self, name: str) -> None:
        self._wall_offsets_s[name] = self._random.choice([-3600.0, 0.0, 3600.0])

    def _crash(self, _: str) -> None:
        raise Crashed

    def _lose(self, name: str) -> None:
        """End the process of a node; SQLite's lock goes with it."""
        self._nodes.pop(name, None)
        self._disks[name].is_locked = False

    # What must hold

    @property
    def acknowledged(self) -> int:
        """Return how many rows were acknowledged."""
        return len(self._acknowledged)

    @property
    def failovers(self) -> int:
        """Return how often a leader acknowledged rows after another one had."""
        return len({one.epoch for one in self._acknowledged}) - 1

    @property
    def set_aside(self) -> int:
        """Return how many rows are in databases that were set aside."""
        return len(self._set_aside_rows())

    def _check(self) -> None:
        rows = self._replica_rows()
        assert len(rows) == len(set(rows)), "a row is there twice"
        lost = {one.row for one in self._acknowledged} - set(rows)
        assert not lost, f"acknowledged rows {lost} are lost"
        leaders: dict[int, tuple[Position, int]] = {}
        for one in self._acknowledged:
            first = leaders.setdefault(one.position.txid, (one.position, one.epoch))
            assert first == (one.position, one.epoch), "two leaders were acknowledged for one position"
        invented = self._unled & set(rows)
        assert not invented, f"rows {invented} of no leader are in the replica"
        for name, node in self._nodes.items():
            followed = node._copy.followed  # noqa: SLF001
            if name not in self._busy and followed and followed.position == find_position(self._memory, self._layout):
                assert sorted(rows_of(self._disks[name].pages)) == sorted(rows), f"{name} holds something else"

    def _set_aside_rows(self) -> set[int]:
        found = set[int]()
        for disk in self._disks.values():
            for kept in disk.path.parent.glob(f"{disk.path.name}.set-aside-*"):
                found |= {int(row) for row in kept.read_text().split()}
        return found

    def _replica_rows(self) -> list[int]:
        files = self._layout.all_files()
        return rows_of(self._restored(plan_restore(files))) if files else []

    def _restored(self, plan: list[LtxFile]) -> dict[int, bytes]:
        pages: dict[int, bytes] = {}
        position = EMPTY
        for file in plan:
            reader = LtxReader(file_pieces(self._memory, file), file.key)
            if position != EMPTY and file.min_txid == position.txid + 1:
                assert reader.header.continues(position.checksum), "a file does not continue the one before it"
            pages |= reader.pages()
            assert reader.end is not None
            position = Position(file.max_txid, reader.header.end_checksum(reader.end.checksum))
        return pages

    # Production, without threads, SQLite and time

    @contextmanager
    def _patched(self) -> Iterator[None]:
        time = _Time(self)
        by_path = {disk.path: disk for disk in self._disks.values()}

        def lease(*arguments: Any, **options: Any) -> Lease:  # noqa: ANN401
            return _QuietLease(*arguments, now_ns=self.elapsed_ns, **options)

        def replicator(path: Path, store: ObjectStore, *, epoch: int) -> DiskReplicator:
            return DiskReplicator(path, store, epoch=epoch, disk=by_path[path])

        def back_up(connection: SimpleNamespace, to: Path) -> None:
            to.write_text(" ".join(map(str, rows_of(connection.disk.pages))))

        registration = SimpleNamespace(renew=lambda _: None, remove=lambda: None)
        replaced: dict[str, object] = {
            "strandline.replica.node.Lease": lease,
            "strandline.replica.node.Replicator": replicator,
            "strandline.replica.node.Registration": lambda *_: registration,
            "strandline.replica.node.time": time,
            "strandline.replica.node_copy.WriteLock": lambda path: DiskLock(by_path[path]),
            "strandline.replica.node_copy._back_up": back_up,
            "strandline.replica.shipper.time": time,
            "strandline.replica.shipper._elapsed_s": time.monotonic,
            "strandline.lease.holder.LimitedLeaseStore": lambda store, _: store,
            "os.fsync": lambda _: None,
            "os.fdatasync": lambda _: None,
        }
        with ExitStack() as stack:
            for name, value in replaced.items():
                stack.enter_context(patch(name, value))
            yield
