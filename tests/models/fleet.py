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
"""

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


class FleetState(NamedTuple):
    """The bucket, the object store, writes that are still under way, the processes, and what happened so far."""

    log: tuple[Cell, ...]
    last: int
    nodes: tuple[Node, ...]
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


EXPORT, REMOVAL, CRASH, LOSS, CORRUPTION = range(5)


class FleetModel:
    """The model."""

    def __init__(self, bounds: FleetBounds) -> None:
        self.bounds = bounds
        self._limits = (bounds.exports, bounds.removals, bounds.crashes, bounds.lost, bounds.corruptions)

    def initial(self) -> list[FleetState]:
        """Return a bucket, folds that have watched it from the first write, newcomers, and what was published."""
        bounds, revision = self.bounds, self.bounds.chain
        nothing = (0,) * bounds.keys
        contents = [(written, *nothing[1:]) for written in range(revision + 1)]
        log = (Cell(revision, bool(revision), bool(revision)), *(Cell(),) * (bounds.keys - 1))
        nodes = (Node(Phase.WATCHING, revision, contents[-1]),) * bounds.nodes
        newcomers = (Node(Phase.ABSENT, 0, nothing),) * bounds.newcomers
        state = FleetState(log, revision, (*nodes, *newcomers))
        if not revision:
            return [state]
        files = tuple(
            format_file(written, contents[written - 1] if written > 1 else None, contents[written])
            for written in range(1, revision + 1)
        )
        pointer = (revision, files)
        return [state._replace(pointer=pointer, manifests=(pointer,), files=tuple(sorted(files)))]

    def place(self, state: FleetState) -> FleetState:
        """Return the state: there is little to share."""
        return state

    def steps(self, state: FleetState) -> Iterator[Step[FleetState]]:
        """Yield what the bucket, the store and the processes can do; processes that are alike count once."""
        for action, after in self._bucket(state):
            yield action, after, None
        for action, after in self._store(state):
            yield action, after, _moved_back(state, after)
        for index, node in enumerate(state.nodes):
            if node in state.nodes[:index]:
                continue
            for action, after in (*self._fold(state, index, node), *self._job(state, index, node)):
                ordered = after._replace(nodes=tuple(sorted(after.nodes, key=hash)))
                yield f"{index}: {action}", ordered, _moved_back(state, after) or _torn(node, after.nodes[index])

    def broken(self, state: FleetState) -> str | None:
        """Return the promise that a state breaks."""
        pointer = state.pointer
        if pointer is not None and pointer != UNREADABLE and not _is_whole(state, pointer):
            return DANGLING
        first = state.first
        for node in state.nodes:
            if node.phase != Phase.ABSENT and (problem := self._wrong(state, node, first)):
                return problem
        return None

    def show(self, state: FleetState) -> str:
        """Return the bucket, the store and the processes."""
        cells = " ".join(
            f"{'+' if cell.is_put else '-'}{'abcd'[key]}{cell.revision}{'' if cell.is_kept else ' gone'}"
            for key, cell in enumerate(state.log)
            if cell.revision
        )
        nodes = "; ".join(
            f"{node.phase.name.lower()} {node.content} at {node.cursor}" + (f" {node.job}" if node.job else "")
            for node in state.nodes
        )
        return f"[{cells}] from {state.first}, pointer {state.pointer}, files {state.files}, {nodes}"

    def is_done(self, state: FleetState) -> bool:
        """Return whether everything was written, and every fold is right."""
        truth = tuple(cell.value for cell in state.log)
        kept = tuple(cell.value if cell.is_kept else 0 for cell in state.log)
        wanted = kept if self.bounds.mode is FoldMode.MIRROR else truth
        return state.last == self.bounds.revisions and all(
            node.phase == Phase.WATCHING and node.content == wanted for node in state.nodes
        )

    # The bucket and the store

    def _bucket(self, state: FleetState) -> Iterator[tuple[str, FleetState]]:
        read = max(node.cursor for node in state.nodes)
        may_go = [self.bounds.unread or not cell.is_kept or cell.revision <= read for cell in state.log]
        for key, cell in enumerate(state.log):
            if state.last < self.bounds.revisions and may_go[key]:
                for is_put in (True, False) if cell.is_put else (True,):
                    log = _put(state.log, key, Cell(state.last + 1, is_put, is_kept=True))
                    yield f"{'put' if is_put else 'delete'} {'abcd'[key]}", state._replace(log=log, last=state.last + 1)
            is_first = cell.is_kept and cell.revision == state.first
            if is_first and may_go[key] and (self.bounds.evicts or not cell.is_put):
                yield f"{'abcd'[key]} goes", state._replace(log=_put(state.log, key, cell._replace(is_kept=False)))

    def _store(self, state: FleetState) -> Iterator[tuple[str, FleetState]]:
        for write in state.late:
            manifest, seen = write
            arrived = state._replace(late=_without(state.late, write))
            if state.pointer == seen or not self.bounds.conditions:
                arrived = arrived._replace(pointer=manifest)
            yield "a late pointer arrives", arrived
        if state.pointer and state.pointer != UNREADABLE and self._may(state, CORRUPTION):
            yield "the pointer is destroyed", self._spent(state, CORRUPTION)._replace(pointer=UNREADABLE)

    def _may(self, state: FleetState, what: int) -> bool:
        limit = self._limits[what]
        return limit is None or state.spent[what] < limit

    def _spent(self, state: FleetState, what: int) -> FleetState:
        if self._limits[what] is None:
            return state
        return state._replace(spent=_put(state.spent, what, state.spent[what] + 1))

    # A fold

    def _fold(self, state: FleetState, index: int, node: Node) -> Iterator[tuple[str, FleetState]]:
        if node.phase == Phase.WATCHING:
            yield from self._watch(state, index, node)
        elif node.job is None:
            yield from self._start(state, index, node)
        if self._may(state, CRASH) and (node.phase == Phase.WATCHING or node.job is not None):
            stopped = node._replace(phase=min(node.phase, Phase.STOPPED), job=None)
            yield "crash", _with(self._spent(state, CRASH), index, stopped)

    def _watch(self, state: FleetState, index: int, node: Node) -> Iterator[tuple[str, FleetState]]:
        is_sound = windows.resume_window_ok(node.cursor, state.first)
        if not is_sound:
            yield "backstop: expired", _with(state, index, node._replace(phase=Phase.STOPPED))
        coming = [(cell.revision, key) for key, cell in enumerate(state.log) if cell.is_kept]
        if found := min((each for each in coming if each[0] > node.cursor), default=None):
            revision, key = found
            if is_sound or not windows.is_gapped(node.cursor, revision):
                content = _put(node.content, key, state.log[key].value)
                yield f"receive {revision}", _with(state, index, node._replace(content=content, cursor=revision))
        if self.bounds.mode is FoldMode.MIRROR and fold_modes.is_settled(node.cursor, state.last):
            content = tuple(0 if self._has_left(state, held) else held for held in node.content)
            if content != node.content:
                yield "sweep", _with(state, index, node._replace(content=content))

    def _has_left(self, state: FleetState, held: int) -> bool:
        mode, drops = self.bounds.mode, self.bounds.evicts
        return bool(held) and fold_modes.has_left(mode, held, 0, first=state.first, now_ns=0, drops=drops)

    def _start(self, state: FleetState, index: int, node: Node) -> Iterator[tuple[str, FleetState]]:
        """Start a fold: resume, list, or fetch an artifact first."""
        truth = repairs.listing_is_truth(state.first, evicts=self.bounds.evicts, seen=self.bounds.evicts)
        counts = fold_modes.listing_counts(self.bounds.mode, truth)
        if node.phase == Phase.ABSENT:
            yield from self._fetch(state, index, node)
            if state.pointer is None and not repairs.cursorless_start_needs_repair(
                RepairMode.AUTO, counts, has_data=False, can_restore=True
            ):
                yield "begin with the listing", _with(state, index, _listed(state))
        elif windows.resume_window_ok(node.cursor, state.first):
            yield "resume", _with(state, index, node._replace(phase=Phase.WATCHING))
        elif repairs.plan_repair(RepairMode.AUTO, counts) == RepairPlan.RELIST:
            yield "relist", _with(state, index, _listed(state))
        else:
            yield from self._fetch(state, index, node)

    def _fetch(self, state: FleetState, index: int, node: Node) -> Iterator[tuple[str, FleetState]]:
        if state.pointer and state.pointer != UNREADABLE:
            yield "fetch: see the pointer", _with(state, index, node._replace(job=Fetching(state.pointer)))

    # What a process does beside

    def _job(self, state: FleetState, index: int, node: Node) -> Iterator[tuple[str, FleetState]]:
        match node.job:
            case None:
                if node.phase == Phase.WATCHING:
                    yield from self._begin(state, index, node)
            case Publishing() as job:
                yield from self._publish(state, index, node, job)
            case Removing() as job:
                yield from self._remove(state, index, node, job)
            case Fetching() as job:
                yield from self._fetch_on(state, index, node, job)

    def _begin(self, state: FleetState, index: int, node: Node) -> Iterator[tuple[str, FleetState]]:
        pointer = state.pointer
        if self._may(state, EXPORT) and node.cursor:
            after = self._spent(state, EXPORT)
            whole = Publishing(node.cursor, format_file(node.cursor, None, node.content), ())
            yield "export", _with(after, index, node._replace(job=whole))
            is_longer = self.bounds.exports is None and pointer is not None and len(pointer[1]) >= node.cursor
            if pointer and pointer in state.manifests and pointer[0] <= node.cursor and not is_longer:
                delta = format_file(node.cursor, content_of(pointer[1][-1]), node.content)
                upon = Publishing(node.cursor, delta, pointer[1])
                yield "export an increment", _with(after, index, node._replace(job=upon))
        if self._may(state, REMOVAL) and pointer and pointer != UNREADABLE:
            after = self._spent(state, REMOVAL)
            yield "remove: see the pointer", _with(after, index, node._replace(job=Removing(pointer)))

    def _publish(self, state: FleetState, index: int, node: Node, job: Publishing) -> Iterator[tuple[str, FleetState]]:
        if job.manifest is None:
            yield self._aim(state, index, node, job)
        elif not job.is_uploaded and job.own in job.manifest[1]:
            after = state._replace(files=_added(state.files, job.own))
            yield "upload the file", _with(after, index, node._replace(job=job._replace(is_uploaded=True)))
        elif not job.is_described:
            after = state._replace(manifests=_added(state.manifests, job.manifest))
            yield "put the manifest", _with(after, index, node._replace(job=job._replace(is_described=True)))
        else:
            yield from self._point(state, index, node, job, job.manifest)

    def _aim(self, state: FleetState, index: int, node: Node, job: Publishing) -> tuple[str, FleetState]:
        """Read the pointer, and decide whether and as what to publish."""
        pointer = state.pointer
        target = frozenset(pointer[1]) if pointer and pointer in state.manifests else frozenset[str]()
        if not rules.pointer_publish_allowed(pointer_state(pointer), job.rank):
            return "publish: superseded", _with(state, index, node._replace(job=None))
        if not rules.shared_files_allowed(frozenset(job.shared), target):
            whole = Publishing(job.rank, format_file(job.rank, None, content_of(job.own)), ())
            return "publish: rebased, export whole", _with(state, index, node._replace(job=whole))
        same = next((file for file in target if bytes_of(file) == bytes_of(job.own)), job.own)
        manifest = (job.rank, (*job.shared, same))
        return "publish: see the pointer", _with(
            state, index, node._replace(job=job._replace(seen=pointer, manifest=manifest))
        )

    def _point(
        self, state: FleetState, index: int, node: Node, job: Publishing, manifest: Manifest
    ) -> Iterator[tuple[str, FleetState]]:
        done = _with(state, index, node._replace(job=None))
        if state.pointer == job.seen or not self.bounds.conditions:
            yield "move the pointer", done._replace(pointer=manifest)
        else:
            again = job._replace(seen=None, manifest=None, is_described=False)
            yield "the pointer moved: again", _with(state, index, node._replace(job=again))
        if self._may(state, LOSS):
            late = (*_without(state.late, (manifest, job.seen)), (manifest, job.seen))
            yield "move the pointer, unanswered", self._spent(done, LOSS)._replace(late=late)

    def _remove(self, state: FleetState, index: int, node: Node, job: Removing) -> Iterator[tuple[str, FleetState]]:
        if job.manifests is None:
            listed = job._replace(manifests=state.manifests, files=state.files)
            yield "remove: list", _with(state, index, node._replace(job=listed))
        elif job.doomed is None:
            yield "remove: mark", _with(state, index, node._replace(job=self._mark(state, job, job.manifests)))
        else:
            doomed, *rest = job.doomed
            left = job._replace(doomed=tuple(rest))
            after = _with(state, index, node._replace(job=left if rest else None))
            if isinstance(doomed, str):
                yield f"remove file {doomed}", after._replace(files=_without(state.files, doomed))
            else:
                yield f"remove manifest {doomed}", after._replace(manifests=_without(state.manifests, doomed))

    def _mark(self, state: FleetState, job: Removing, manifests: tuple[Manifest, ...]) -> Removing | None:
        """Read the manifests that are kept, and decide what is deleted; None if that is nothing."""
        rank = job.seen[0]
        gone = [each for each in manifests if _is_prunable(each[0], rank, is_target=each == job.seen)]
        kept = frozenset(manifests).difference(gone) | {job.seen}
        read = kept.intersection(state.manifests)
        if not rules.marks_are_whole(kept, read):
            return None
        marked = rules.marked_files(frozenset(each[1]) for each in read)
        swept = [file for file in job.files if _is_prunable(rank_of(file), rank, is_target=file in marked)]
        return Removing(job.seen, (), (), (*gone, *swept)) if gone or swept else None

    def _fetch_on(self, state: FleetState, index: int, node: Node, job: Fetching) -> Iterator[tuple[str, FleetState]]:
        wanted = next((file for file in job.manifest[1] if file not in job.fetched), None)
        if wanted is None:
            yield (
                "import",
                _with(state, index, self._imported(state, node, job.manifest[0], content_of(job.fetched[-1]))),
            )
        elif wanted in state.files and (job.fetched or job.manifest in state.manifests):
            fetched = job._replace(fetched=(*job.fetched, wanted))
            yield f"fetch {wanted}", _with(state, index, node._replace(job=fetched))
        elif state.pointer and state.pointer != job.manifest:
            kept = tuple(file for file in state.pointer[1] if file in job.fetched)
            again = Fetching(state.pointer, kept) if state.pointer != UNREADABLE else None
            yield "fetch: removed under the reader", _with(state, index, node._replace(job=again))

    def _imported(self, state: FleetState, node: Node, rank: int, content: Content) -> Node:
        if node.phase == Phase.ABSENT:
            return Node(Phase.STOPPED, rank, content)
        if not repairs.restore_allowed(rank, node.cursor, state.first):
            return node._replace(job=None)
        restored = []
        for local, value, cell in zip(node.content, content, state.log, strict=True):
            listed = cell.is_kept and cell.is_put
            decided = repairs.restore_key(_held(local), _held(value), identical=local == value, listed=listed)
            restored.append({KeyRepair.KEEP: local, KeyRepair.TAKE: value, KeyRepair.DELETE: 0}[decided])
        return Node(Phase.STOPPED, rank, tuple(restored))

    # What must hold

    def _wrong(self, state: FleetState, node: Node, first: int) -> str | None:
        for held, cell in zip(node.content, state.log, strict=True):
            if held == cell.value or (self.bounds.mode is FoldMode.MIRROR and self._is_leaving(cell, held)):
                continue
            if cell.revision <= node.cursor:
                return DIVERGED
            if node.phase == Phase.WATCHING and not cell.is_kept and windows.resume_window_ok(node.cursor, first):
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


def _is_prunable(rank: int, pointer_rank: int, *, is_target: bool) -> bool:
    return rules.payload_prunable(rank, pointer_rank, is_target=is_target, is_aged=True)


def _held(value: int) -> Held | None:
    return Held(value) if value else None


def _listed(state: FleetState) -> Node:
    content = tuple(cell.value if cell.is_kept else 0 for cell in state.log)
    return Node(Phase.WATCHING, state.last, content)


def _with(state: FleetState, index: int, node: Node) -> FleetState:
    return state._replace(nodes=_put(state.nodes, index, node))


def _put(values: tuple[ValueT, ...], index: int, value: ValueT) -> tuple[ValueT, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _added(values: tuple[ValueT, ...], value: ValueT) -> tuple[ValueT, ...]:
    """Return a sorted tuple as a set with one more value."""
    return values if value in values else tuple(sorted((*values, value)))  # type: ignore[type-var]


def _without(values: tuple[ValueT, ...], value: object) -> tuple[ValueT, ...]:
    return tuple(each for each in values if each != value)


def _is_whole(state: FleetState, manifest: Manifest) -> bool:
    return manifest in state.manifests and all(file in state.files for file in manifest[1])


def _moved_back(before: FleetState, after: FleetState) -> str | None:
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
