"""A fleet of folds over one bucket that evicts: exports, publications, removals and newcomers, each request by itself.

Every process may export at any time, for the lease only saves work; it publishes request by request, and may crash, or
lose the answer to its pointer, which then comes late or never. Every process may remove what is old, request by
request, from a view that others have changed meanwhile; ages protect nothing here (`is_aged` is always true), so that
clocks do not matter. Newcomers and folds that fell behind read pointer, manifest and files one after the other. All
decisions are those of `strandline.protocol`.

What must hold: the pointer never moves back, and its manifest and files are there. What is imported is one artifact. A
fold lacks nothing that its cursor names, and while it watches it is right, or what makes it right is to come, or
the guard will trip. From every state the whole fleet can become right, and a newcomer too.

What is taken for granted: conditions are honoured (`conditions`), others do not destroy the pointer (`corruptions`),
and, for the last promise, no message is evicted before some fold has it (`unread`).

A state is bytes for the world and for each process, in order: bytes are hashed once, and are sorted, compared and
written as they are. A process goes on in the same way whatever the others hold, so its steps in a world are made once.
"""

import marshal
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias, TypeVar

from strandline.protocol import artifacts as rules
from strandline.protocol import fold_modes, repairs, windows
from strandline.protocol.artifacts import PointerState
from strandline.protocol.fold_modes import FoldMode
from strandline.protocol.repairs import Held, KeyRepair, RepairMode, RepairPlan
from strandline.protocol.shards import Code
from strandline.sim.explore import Step

BACK, DANGLING, TORN = "the pointer moved back", "the pointer names what is not there", "parts of two artifacts"
DIVERGED, LOST = "a fold is silently wrong", "a fold is wrong, and nothing is to come"
ValueT = TypeVar("ValueT")
Content: TypeAlias = tuple[int, ...]
"""The revision of each key that a fold holds; 0 is nothing."""
Manifest: TypeAlias = tuple[int, tuple[str, ...]]
"""A rank and the names of files."""
UNREADABLE: Manifest = (-1, ())
"""A pointer that others destroyed."""


class FleetBounds(NamedTuple):
    """How large the world is, and what may go wrong."""

    mode: FoldMode = FoldMode.ARCHIVE
    nodes: int = 2
    newcomers: int = 0
    revisions: int = 3
    keys: int = 1
    exports: int | None = 2
    """How often; None is as often as they like, and so for the others."""
    removals: int | None = 1
    crashes: int | None = 0
    lost: int = 0
    corruptions: int = 0
    evicts: bool = True
    unread: bool = True
    """Whether a message may be evicted or overwritten before any fold has it."""
    conditions: bool = True
    chain: int = 0
    """How many revisions, each of the first key, were published before: a base, and increments upon it."""


class Phase(Code):
    """What a process does with its fold; an absent one has none."""

    ABSENT = 0
    STOPPED = 1
    WATCHING = 2


class Cell(NamedTuple):
    """The last message of a key."""

    revision: int = 0
    is_put: bool = False
    is_kept: bool = False

    @property
    def value(self) -> int:
        """The revision that a fold holds of it."""
        return self.revision if self.is_put else 0


class Publishing(NamedTuple):
    """An artifact on its way: its own file, the files that it goes on from, and the pointer that was seen last."""

    rank: int
    own: str
    shared: tuple[str, ...]
    seen: Manifest | None = None
    manifest: Manifest | None = None
    """As it will be published; None before the pointer was read."""
    is_uploaded: bool = False
    is_described: bool = False


class Removing(NamedTuple):
    """A removal on its way: the pointer that was seen, what was listed, and what is still to be deleted."""

    seen: Manifest
    manifests: tuple[Manifest, ...] | None = None
    files: tuple[str, ...] = ()
    doomed: tuple[Manifest | str, ...] | None = None


class Fetching(NamedTuple):
    """An artifact on its way here."""

    manifest: Manifest
    fetched: tuple[str, ...] = ()


Job: TypeAlias = Publishing | Removing | Fetching


class Node(NamedTuple):
    """A process: its fold, and the one thing that it does beside watching."""

    phase: Phase
    cursor: int
    content: Content
    job: Job | None = None


JOBS = (Publishing, Removing, Fetching)


class World(NamedTuple):
    """The bucket, the object store, writes that are still under way, and what happened so far."""

    log: tuple[Cell, ...]
    last: int
    pointer: Manifest | None = None
    manifests: tuple[Manifest, ...] = ()
    files: tuple[str, ...] = ()
    late: tuple[tuple[Manifest, Manifest | None], ...] = ()
    spent: tuple[int, ...] = (0, 0, 0, 0, 0)
    """How many exports, removals, crashes, lost answers and corruptions there were."""

    @property
    def first(self) -> int:
        """Where the log begins."""
        return min((cell.revision for cell in self.log if cell.is_kept), default=self.last + 1)


FoldStep: TypeAlias = tuple[str, World, Node]
"""What a process does, and the world and itself after it."""
FleetState: TypeAlias = tuple[bytes, ...]
"""A world, and processes in the order of their bytes."""
EXPORT, REMOVAL, CRASH, LOSS, CORRUPTION = range(5)
_CANONICAL = 2
"""The last version of marshal that writes a value each time as the first time."""
_KNOWN_MAX = 100_000
"""How many steps of processes in worlds are kept: at most about 100 MB."""


class WorldSteps:
    """What can happen in a world, and what is wrong in it; filled as it is asked for."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed
        self.world = unpack_world(packed)
        self.first = self.world.first
        self.own: dict[int, list[tuple[str, bytes, str | None]]] = {}
        """Steps of the bucket and the store, by the revision that some process has read."""
        self.of_nodes: dict[bytes, list[tuple[str, bytes, bytes, str | None]]] = {}
        self.problems: dict[bytes, str | None] = {}
        pointer = self.world.pointer
        self.is_dangling = pointer is not None and pointer != UNREADABLE and not _is_whole(self.world, pointer)

    def pack(self, world: World) -> bytes:
        """Return a world after a step of this one."""
        return self.packed if world is self.world else pack_world(world)


class FleetModel:
    """The model."""

    def __init__(self, bounds: FleetBounds) -> None:
        self.bounds = bounds
        self._limits = (bounds.exports, bounds.removals, bounds.crashes, bounds.lost, bounds.corruptions)
        self._worlds: dict[bytes, WorldSteps] = {}
        self._nodes: dict[bytes, Node] = {}
        self._known = 0

    def initial(self) -> list[FleetState]:
        """Return a bucket, folds that have watched it from the first write, newcomers, and what was published."""
        bounds, revision = self.bounds, self.bounds.chain
        nothing = (0,) * bounds.keys
        contents = [(written, *nothing[1:]) for written in range(revision + 1)]
        log = (Cell(revision, bool(revision), bool(revision)), *(Cell(),) * (bounds.keys - 1))
        nodes = (Node(Phase.WATCHING, revision, contents[-1]),) * bounds.nodes
        newcomers = (Node(Phase.ABSENT, 0, nothing),) * bounds.newcomers
        world = World(log, revision)
        if revision:
            files = tuple(
                format_file(written, contents[written - 1] if written > 1 else None, contents[written])
                for written in range(1, revision + 1)
            )
            pointer = (revision, files)
            world = world._replace(pointer=pointer, manifests=(pointer,), files=tuple(sorted(files)))
        return [(pack_world(world), *sorted(map(pack_node, (*nodes, *newcomers))))]

    def place(self, state: FleetState) -> bytes:
        """Return the world: steps of processes that leave it as it is stay on a core, which knows them."""
        return state[0]

    def steps(self, state: FleetState) -> Iterator[Step[FleetState]]:
        """Yield what the bucket, the store and the processes can do; processes that are alike count once."""
        packed, *nodes = state
        here = self._steps_in(packed)
        for action, world, problem in self._own_steps(here, nodes):
            yield action, (world, *nodes), problem
        earlier = b""
        for index, node in enumerate(nodes):
            if node == earlier:
                continue
            earlier = node
            others = nodes[:index] + nodes[index + 1 :]
            if node not in here.of_nodes:
                here.of_nodes[node] = self._node_steps(here, node)
            for action, world, after, problem in here.of_nodes[node]:
                yield f"{index}: {action}", (world, *sorted([*others, after])), problem

    def broken(self, state: FleetState) -> str | None:
        """Return the promise that a state breaks."""
        packed, *nodes = state
        here = self._steps_in(packed)
        if here.is_dangling:
            return DANGLING
        problems = here.problems
        for node in nodes:
            if node not in problems:
                problems[node] = self._problem(here, self._node(node))
            if problems[node]:
                return problems[node]
        return None

    def show(self, state: FleetState) -> str:
        """Return the bucket, the store and the processes."""
        world, nodes = unpack_world(state[0]), map(unpack_node, state[1:])
        cells = " ".join(
            f"{'+' if cell.is_put else '-'}{'abcd'[key]}{cell.revision}{'' if cell.is_kept else ' gone'}"
            for key, cell in enumerate(world.log)
            if cell.revision
        )
        folds = "; ".join(
            f"{node.phase.name.lower()} {node.content} at {node.cursor}" + (f" {node.job}" if node.job else "")
            for node in nodes
        )
        return f"[{cells}] from {world.first}, pointer {world.pointer}, files {world.files}, {folds}"

    def is_done(self, state: FleetState) -> bool:
        """Return whether everything was written, and every fold is right."""
        world = self._steps_in(state[0]).world
        truth = tuple(cell.value for cell in world.log)
        kept = tuple(cell.value if cell.is_kept else 0 for cell in world.log)
        wanted = kept if self.bounds.mode is FoldMode.MIRROR else truth
        return world.last == self.bounds.revisions and all(
            node.phase == Phase.WATCHING and node.content == wanted for node in map(self._node, state[1:])
        )

    # Steps that are known

    def _steps_in(self, packed: bytes) -> WorldSteps:
        found = self._worlds.get(packed)
        if found is None:
            if self._known >= _KNOWN_MAX:
                self._worlds, self._nodes, self._known = {}, {}, 0
            found = self._worlds[packed] = WorldSteps(packed)
            self._known += 1
        return found

    def _node(self, packed: bytes) -> Node:
        if packed not in self._nodes:
            self._nodes[packed] = unpack_node(packed)
        return self._nodes[packed]

    def _own_steps(self, here: WorldSteps, nodes: list[bytes]) -> list[tuple[str, bytes, str | None]]:
        read = 0 if self.bounds.unread else max(self._node(node).cursor for node in nodes)
        if read not in here.own:
            world = here.world
            here.own[read] = [
                (action, here.pack(after), _moved_back(world, after))
                for action, after in (*self._bucket(world, read), *self._store(world))
            ]
        return here.own[read]

    def _node_steps(self, here: WorldSteps, packed: bytes) -> list[tuple[str, bytes, bytes, str | None]]:
        self._known += 1
        world, node = here.world, self._node(packed)
        return [
            (action, here.pack(after), pack_node(changed), _moved_back(world, after) or _torn(node, changed))
            for action, after, changed in (*self._fold(world, node), *self._job(world, node))
        ]

    # The bucket and the store

    def _bucket(self, world: World, read: int) -> Iterator[tuple[str, World]]:
        may_go = [self.bounds.unread or not cell.is_kept or cell.revision <= read for cell in world.log]
        for key, cell in enumerate(world.log):
            if world.last < self.bounds.revisions and may_go[key]:
                for is_put in (True, False) if cell.is_put else (True,):
                    log = _put(world.log, key, Cell(world.last + 1, is_put, is_kept=True))
                    yield f"{'put' if is_put else 'delete'} {'abcd'[key]}", world._replace(log=log, last=world.last + 1)
            is_first = cell.is_kept and cell.revision == world.first
            if is_first and may_go[key] and (self.bounds.evicts or not cell.is_put):
                yield f"{'abcd'[key]} goes", world._replace(log=_put(world.log, key, cell._replace(is_kept=False)))

    def _store(self, world: World) -> Iterator[tuple[str, World]]:
        for write in world.late:
            manifest, seen = write
            arrived = world._replace(late=_without(world.late, write))
            if world.pointer == seen or not self.bounds.conditions:
                arrived = arrived._replace(pointer=manifest)
            yield "a late pointer arrives", arrived
        if world.pointer and world.pointer != UNREADABLE and self._may(world, CORRUPTION):
            yield "the pointer is destroyed", self._spent(world, CORRUPTION)._replace(pointer=UNREADABLE)

    def _may(self, world: World, what: int) -> bool:
        limit = self._limits[what]
        return limit is None or world.spent[what] < limit

    def _spent(self, world: World, what: int) -> World:
        if self._limits[what] is None:
            return world
        return world._replace(spent=_put(world.spent, what, world.spent[what] + 1))

    # A fold

    def _fold(self, world: World, node: Node) -> Iterator[FoldStep]:
        if node.phase == Phase.WATCHING:
            yield from self._watch(world, node)
        elif node.job is None:
            yield from self._start(world, node)
        if self._may(world, CRASH) and (node.phase == Phase.WATCHING or node.job is not None):
            stopped = node._replace(phase=min(node.phase, Phase.STOPPED), job=None)
            yield "crash", self._spent(world, CRASH), stopped

    def _watch(self, world: World, node: Node) -> Iterator[FoldStep]:
        is_sound = windows.resume_window_ok(node.cursor, world.first)
        if not is_sound:
            yield "backstop: expired", world, node._replace(phase=Phase.STOPPED)
        coming = [(cell.revision, key) for key, cell in enumerate(world.log) if cell.is_kept]
        if found := min((each for each in coming if each[0] > node.cursor), default=None):
            revision, key = found
            if is_sound or not windows.is_gapped(node.cursor, revision):
                content = _put(node.content, key, world.log[key].value)
                yield f"receive {revision}", world, node._replace(content=content, cursor=revision)
        if self.bounds.mode is FoldMode.MIRROR and fold_modes.is_settled(node.cursor, world.last):
            content = tuple(0 if self._has_left(world, held) else held for held in node.content)
            if content != node.content:
                yield "sweep", world, node._replace(content=content)

    def _has_left(self, world: World, held: int) -> bool:
        mode, drops = self.bounds.mode, self.bounds.evicts
        return bool(held) and fold_modes.has_left(mode, held, 0, first=world.first, now_ns=0, drops=drops)

    def _start(self, world: World, node: Node) -> Iterator[FoldStep]:
        """Start a fold: resume, list, or fetch an artifact first."""
        truth = repairs.listing_is_truth(world.first, evicts=self.bounds.evicts, seen=self.bounds.evicts)
        counts = fold_modes.listing_counts(self.bounds.mode, truth)
        if node.phase == Phase.ABSENT:
            yield from self._fetch(world, node)
            if world.pointer is None and not repairs.cursorless_start_needs_repair(
                RepairMode.AUTO, counts, has_data=False, can_restore=True
            ):
                yield "begin with the listing", world, _listed(world)
        elif windows.resume_window_ok(node.cursor, world.first):
            yield "resume", world, node._replace(phase=Phase.WATCHING)
        elif repairs.plan_repair(RepairMode.AUTO, counts) == RepairPlan.RELIST:
            yield "relist", world, _listed(world)
        else:
            yield from self._fetch(world, node)

    def _fetch(self, world: World, node: Node) -> Iterator[FoldStep]:
        if world.pointer and world.pointer != UNREADABLE:
            yield "fetch: see the pointer", world, node._replace(job=Fetching(world.pointer))

    # What a process does beside

    def _job(self, world: World, node: Node) -> Iterator[FoldStep]:
        match node.job:
            case None:
                if node.phase == Phase.WATCHING:
                    yield from self._begin(world, node)
            case Publishing() as job:
                yield from self._publish(world, node, job)
            case Removing() as job:
                yield from self._remove(world, node, job)
            case Fetching() as job:
                yield from self._fetch_on(world, node, job)

    def _begin(self, world: World, node: Node) -> Iterator[FoldStep]:
        pointer = world.pointer
        if self._may(world, EXPORT) and node.cursor:
            after = self._spent(world, EXPORT)
            whole = Publishing(node.cursor, format_file(node.cursor, None, node.content), ())
            yield "export", after, node._replace(job=whole)
            is_longer = self.bounds.exports is None and pointer is not None and len(pointer[1]) >= node.cursor
            if pointer and pointer in world.manifests and pointer[0] <= node.cursor and not is_longer:
                delta = format_file(node.cursor, content_of(pointer[1][-1]), node.content)
                upon = Publishing(node.cursor, delta, pointer[1])
                yield "export an increment", after, node._replace(job=upon)
        if self._may(world, REMOVAL) and pointer and pointer != UNREADABLE:
            after = self._spent(world, REMOVAL)
            yield "remove: see the pointer", after, node._replace(job=Removing(pointer))

    def _publish(self, world: World, node: Node, job: Publishing) -> Iterator[FoldStep]:
        if job.manifest is None:
            yield self._aim(world, node, job)
        elif not job.is_uploaded and job.own in job.manifest[1]:
            after = world._replace(files=_added(world.files, job.own))
            yield "upload the file", after, node._replace(job=job._replace(is_uploaded=True))
        elif not job.is_described:
            after = world._replace(manifests=_added(world.manifests, job.manifest))
            yield "put the manifest", after, node._replace(job=job._replace(is_described=True))
        else:
            yield from self._point(world, node, job, job.manifest)

    def _aim(self, world: World, node: Node, job: Publishing) -> FoldStep:
        """Read the pointer, and decide whether and as what to publish."""
        pointer = world.pointer
        target = frozenset(pointer[1]) if pointer and pointer in world.manifests else frozenset[str]()
        if not rules.pointer_publish_allowed(pointer_state(pointer), job.rank):
            return "publish: superseded", world, node._replace(job=None)
        if not rules.shared_files_allowed(frozenset(job.shared), target):
            whole = Publishing(job.rank, format_file(job.rank, None, content_of(job.own)), ())
            return "publish: rebased, export whole", world, node._replace(job=whole)
        same = next((file for file in target if bytes_of(file) == bytes_of(job.own)), job.own)
        manifest = (job.rank, (*job.shared, same))
        return "publish: see the pointer", world, node._replace(job=job._replace(seen=pointer, manifest=manifest))

    def _point(self, world: World, node: Node, job: Publishing, manifest: Manifest) -> Iterator[FoldStep]:
        done = node._replace(job=None)
        if world.pointer == job.seen or not self.bounds.conditions:
            yield "move the pointer", world._replace(pointer=manifest), done
        else:
            again = job._replace(seen=None, manifest=None, is_described=False)
            yield "the pointer moved: again", world, node._replace(job=again)
        if self._may(world, LOSS):
            late = (*_without(world.late, (manifest, job.seen)), (manifest, job.seen))
            yield "move the pointer, unanswered", self._spent(world, LOSS)._replace(late=late), done

    def _remove(self, world: World, node: Node, job: Removing) -> Iterator[FoldStep]:
        if job.manifests is None:
            listed = job._replace(manifests=world.manifests, files=world.files)
            yield "remove: list", world, node._replace(job=listed)
        elif job.doomed is None:
            yield "remove: mark", world, node._replace(job=self._mark(world, job, job.manifests))
        else:
            doomed, *rest = job.doomed
            left = job._replace(doomed=tuple(rest))
            after = node._replace(job=left if rest else None)
            if isinstance(doomed, str):
                yield f"remove file {doomed}", world._replace(files=_without(world.files, doomed)), after
            else:
                yield f"remove manifest {doomed}", world._replace(manifests=_without(world.manifests, doomed)), after

    def _mark(self, world: World, job: Removing, manifests: tuple[Manifest, ...]) -> Removing | None:
        """Read the manifests that are kept, and decide what is deleted; None if that is nothing."""
        rank = job.seen[0]
        gone = [each for each in manifests if _is_prunable(each[0], rank, is_target=each == job.seen)]
        kept = frozenset(manifests).difference(gone) | {job.seen}
        read = kept.intersection(world.manifests)
        if not rules.marks_are_whole(kept, read):
            return None
        marked = rules.marked_files(frozenset(each[1]) for each in read)
        swept = [file for file in job.files if _is_prunable(rank_of(file), rank, is_target=file in marked)]
        return Removing(job.seen, (), (), (*gone, *swept)) if gone or swept else None

    def _fetch_on(self, world: World, node: Node, job: Fetching) -> Iterator[FoldStep]:
        wanted = next((file for file in job.manifest[1] if file not in job.fetched), None)
        if wanted is None:
            yield (
                "import",
                world,
                self._imported(world, node, job.manifest[0], content_of(job.fetched[-1])),
            )
        elif wanted in world.files and (job.fetched or job.manifest in world.manifests):
            fetched = job._replace(fetched=(*job.fetched, wanted))
            yield f"fetch {wanted}", world, node._replace(job=fetched)
        elif world.pointer and world.pointer != job.manifest:
            kept = tuple(file for file in world.pointer[1] if file in job.fetched)
            again = Fetching(world.pointer, kept) if world.pointer != UNREADABLE else None
            yield "fetch: removed under the reader", world, node._replace(job=again)

    def _imported(self, world: World, node: Node, rank: int, content: Content) -> Node:
        if node.phase == Phase.ABSENT:
            return Node(Phase.STOPPED, rank, content)
        if not repairs.restore_allowed(rank, node.cursor, world.first):
            return node._replace(job=None)
        restored = []
        for local, value, cell in zip(node.content, content, world.log, strict=True):
            listed = cell.is_kept and cell.is_put
            decided = repairs.restore_key(_held(local), _held(value), identical=local == value, listed=listed)
            restored.append({KeyRepair.KEEP: local, KeyRepair.TAKE: value, KeyRepair.DELETE: 0}[decided])
        return Node(Phase.STOPPED, rank, tuple(restored))

    # What must hold

    def _problem(self, here: WorldSteps, node: Node) -> str | None:
        world = here.world
        if node.phase == Phase.ABSENT:
            return None
        for held, cell in zip(node.content, world.log, strict=True):
            if held == cell.value or (self.bounds.mode is FoldMode.MIRROR and self._is_leaving(cell, held)):
                continue
            if cell.revision <= node.cursor:
                return DIVERGED
            if node.phase == Phase.WATCHING and not cell.is_kept and windows.resume_window_ok(node.cursor, here.first):
                return LOST
        return None

    def _is_leaving(self, cell: Cell, held: int) -> bool:
        """Return whether a mirror may have a key so: its value was evicted, and a sweep removes it or has done so."""
        return not cell.is_kept and (not held or held <= cell.revision)


def pointer_state(pointer: Manifest | None) -> PointerState | None:
    """Return a pointer as the rules see it."""
    if pointer is None:
        return None
    return PointerState(None if pointer == UNREADABLE else pointer[0])


# Files are strings, which are hashed once: the rank, the content that they go on from, and the content after them.


@cache
def format_file(rank: int, upon: Content | None, content: Content) -> str:
    """Return the name of a file."""
    return f"{rank}:{'' if upon is None else _digits(upon)}>{_digits(content)}"


@cache
def rank_of(file: str) -> int:
    """Return the rank in the name of a file."""
    return int(file.partition(":")[0])


@cache
def bytes_of(file: str) -> str:
    """Return the part that stands for the bytes of a file: its name without the rank."""
    return file.partition(":")[2]


@cache
def content_of(file: str) -> Content:
    """Return the content of a fold that is made of a chain which ends with a file."""
    return tuple(int(held) for held in file.partition(">")[2].split("."))


@cache
def _upon(file: str) -> str:
    return bytes_of(file).partition(">")[0]


def _digits(content: Content) -> str:
    return ".".join(map(str, content))


def pack_world(world: World) -> bytes:
    """Return a world as bytes, equal ones as equal bytes."""
    return marshal.dumps((tuple(map(tuple, world.log)), *world[1:]), _CANONICAL)


def unpack_world(packed: bytes) -> World:
    """Return the world that was packed."""
    log, *others = marshal.loads(packed)  # noqa: S302 - our own
    return World(tuple(Cell(*cell) for cell in log), *others)


def pack_node(node: Node) -> bytes:
    """Return a process as bytes, equal ones as equal bytes."""
    job = None if node.job is None else (JOBS.index(type(node.job)), *node.job)
    return marshal.dumps((int(node.phase), node.cursor, node.content, job), _CANONICAL)


def unpack_node(packed: bytes) -> Node:
    """Return the process that was packed."""
    phase, cursor, content, job = marshal.loads(packed)  # noqa: S302 - our own
    return Node(Phase(phase), cursor, content, None if job is None else JOBS[job[0]](*job[1:]))


def _is_prunable(rank: int, pointer_rank: int, *, is_target: bool) -> bool:
    return rules.payload_prunable(rank, pointer_rank, is_target=is_target, is_aged=True)


def _held(value: int) -> Held | None:
    return Held(value) if value else None


def _listed(world: World) -> Node:
    content = tuple(cell.value if cell.is_kept else 0 for cell in world.log)
    return Node(Phase.WATCHING, world.last, content)


def _put(values: tuple[ValueT, ...], index: int, value: ValueT) -> tuple[ValueT, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _added(values: tuple[ValueT, ...], value: ValueT) -> tuple[ValueT, ...]:
    """Return a sorted tuple as a set with one more value."""
    return values if value in values else tuple(sorted((*values, value)))  # type: ignore[type-var]


def _without(values: tuple[ValueT, ...], value: object) -> tuple[ValueT, ...]:
    return tuple(each for each in values if each != value)


def _is_whole(world: World, manifest: Manifest) -> bool:
    return manifest in world.manifests and all(file in world.files for file in manifest[1])


def _moved_back(before: World, after: World) -> str | None:
    if before.pointer is None or before.pointer == UNREADABLE:
        return None
    if after.pointer is None or (after.pointer != UNREADABLE and after.pointer[0] < before.pointer[0]):
        return BACK
    return None


def _torn(before: Node, after: Node) -> str | None:
    """Return whether the files that were just imported do not go on from each other."""
    if not isinstance(before.job, Fetching) or after.job is not None:
        return None
    fetched = before.job.fetched
    links = [("", fetched[0]), *pairwise(fetched)] if fetched else []
    if any(_upon(file) != (_digits(content_of(earlier)) if earlier else "") for earlier, file in links):
        return TORN
    return None
