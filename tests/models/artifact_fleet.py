"""A fleet of exporters over one store of objects: payloads, manifests, the pointer, removal, and deaths anywhere.

A writer moves the log on. An exporter exports at the present revision, whole or upon what the pointer names, then
reads the pointer, uploads its file, puts its manifest, and moves the pointer if it is still the one that it read; else
it begins again at the pointer. A remover lists, decides, and removes one object after the other. Each step is one
request; whoever is at work may die between two. Removal has no grace: every payload counts as aged.

What must hold: the pointer never moves back, and what it names is there whole.
"""

from collections.abc import Iterator
from typing import NamedTuple

from strandline.protocol import artifacts as rules
from strandline.protocol.artifacts import PointerState
from strandline.sim.explore import Step

File = tuple[int, int]
"""The rank it was first published with, and the rank that it goes on from, -1 for a base."""


class Manifest(NamedTuple):
    """An artifact: its rank, and its files."""

    rank: int
    files: frozenset[File]


class Pointer(NamedTuple):
    """What the pointer names, and how often it was written."""

    manifest: Manifest
    etag: int


class Exporter(NamedTuple):
    """An export: what it will publish, the file it brings, the pointer that it read, and how far it is."""

    manifest: Manifest
    own: File
    seen: Pointer | None = None
    phase: int = 0


class FleetBounds(NamedTuple):
    """How large the world is; the pointer is moved at most `pointers` times."""

    exporters: int = 2
    revisions: int = 3
    pointers: int = 3


class FleetState(NamedTuple):
    """The log's last revision, the store, those at work, and the highest rank that was ever published."""

    exporters: tuple[Exporter | None, ...]
    last: int = 1
    pointer: Pointer | None = None
    files: frozenset[File] = frozenset()
    manifests: frozenset[Manifest] = frozenset()
    removing: tuple[Manifest | File, ...] = ()
    high: int = 0


EXPORTED, OBSERVED, UPLOADED, DESCRIBED = range(4)
"""How far an exporter is."""


class ArtifactFleetModel:
    """The model."""

    def __init__(self, bounds: FleetBounds | None = None) -> None:
        self.bounds = bounds or FleetBounds()

    def initial(self) -> list[FleetState]:
        """Return an empty store."""
        return [FleetState((None,) * self.bounds.exporters)]

    def place(self, state: FleetState) -> FleetState:
        """Return the state with its exporters in an order of their own: they are all alike."""
        return state._replace(exporters=tuple(sorted(state.exporters, key=hash)))

    def steps(self, state: FleetState) -> Iterator[Step[FleetState]]:
        """Yield what the writer, each exporter and the remover can do."""
        if state.last < self.bounds.revisions:
            yield "write", state._replace(last=state.last + 1), None
        for number, exporter in enumerate(state.exporters):
            for name, after in self._exporter_steps(state, exporter):
                put = (*after.exporters[:number], *after.exporters[-1:], *after.exporters[number + 1 : -1])
                yield f"{number}: {name}", after._replace(exporters=put), None
        yield from self._remover_steps(state)

    def _exporter_steps(self, state: FleetState, exporter: Exporter | None) -> Iterator[tuple[str, FleetState]]:
        """Yield the steps of one exporter, whose next state is put behind all others."""

        def becomes(after: Exporter | None, changed: FleetState = state) -> FleetState:
            return changed._replace(exporters=(*changed.exporters, after))

        if exporter is None:
            yield "export a base", becomes(_export(state.last, None))
            target = state.pointer.manifest if state.pointer else None
            if target is not None and target.rank <= state.last:
                yield "export an increment", becomes(_export(state.last, target))
            return
        yield "die", becomes(None)
        manifest = exporter.manifest
        match exporter.phase:
            case 0:
                yield "read the pointer", becomes(_observed(state.pointer, exporter))
            case 1:
                yield "upload", becomes(exporter._replace(phase=UPLOADED), _with_file(state, exporter.own))
            case 2:
                described = state._replace(manifests=state.manifests | {manifest})
                yield "put the manifest", becomes(exporter._replace(phase=DESCRIBED), described)
            case _:
                if state.pointer != exporter.seen:
                    yield "lose the race", becomes(exporter._replace(seen=None, phase=EXPORTED))
                elif state.pointer is None or state.pointer.etag < self.bounds.pointers:
                    etag = state.pointer.etag + 1 if state.pointer else 1
                    moved = state._replace(pointer=Pointer(manifest, etag), high=max(state.high, manifest.rank))
                    yield "move the pointer", becomes(None, moved)

    def _remover_steps(self, state: FleetState) -> Iterator[Step[FleetState]]:
        if state.removing:
            yield "the remover dies", state._replace(removing=()), None
            first, *rest = state.removing
            yield f"remove {_shown(first)}", _removed(state, first)._replace(removing=tuple(rest)), None
        elif plan := _plan(state):
            yield "decide what to remove", state._replace(removing=plan), None

    def broken(self, state: FleetState) -> str | None:
        """Return what is wrong with the pointer."""
        target = state.pointer.manifest if state.pointer else None
        if target is None:
            return None
        if target.rank < state.high:
            return "the pointer moved back"
        if target not in state.manifests or not target.files <= state.files:
            return "the pointer names what is not there"
        return None

    def show(self, state: FleetState) -> str:
        """Return the store and those at work."""
        target = state.pointer.manifest if state.pointer else None
        files = " ".join(sorted(map(_shown, state.files)))
        at_work = ", ".join(f"{e.manifest.rank} at {e.phase}" for e in state.exporters if e)
        return f"log {state.last}, pointer {_shown(target) if target else '-'}, files [{files}], exporters [{at_work}]"


def _export(rank: int, target: Manifest | None) -> Exporter:
    own = (rank, target.rank if target else -1)
    return Exporter(Manifest(rank, frozenset({own}) | (target.files if target else frozenset())), own)


def _observed(pointer: Pointer | None, exporter: Exporter) -> Exporter | None:
    """Return an exporter that goes on upon this pointer, None if it ends: superseded, or its base is gone."""
    target = pointer.manifest if pointer else None
    state = None if target is None else PointerState(target.rank)
    if not rules.pointer_publish_allowed(state, exporter.manifest.rank):
        return None
    shared = {_shown(file) for file in exporter.manifest.files if file != exporter.own}
    if not rules.shared_files_allowed(shared, {_shown(file) for file in (target.files if target else ())}):
        return None
    return exporter._replace(seen=pointer, phase=OBSERVED)


def _with_file(state: FleetState, file: File) -> FleetState:
    return state._replace(files=state.files | {file})


def _plan(state: FleetState) -> tuple[Manifest | File, ...]:
    """Return what a remover finds that it may remove, manifests first."""
    target = state.pointer.manifest if state.pointer else None
    if target is None:
        return ()
    gone = [
        manifest
        for manifest in sorted(state.manifests)
        if rules.payload_prunable(manifest.rank, target.rank, is_target=manifest == target, is_aged=True)
    ]
    kept = state.manifests.difference(gone) | {target}
    marked = rules.marked_files({_shown(file) for file in manifest.files} for manifest in kept)
    swept = [
        file
        for file in sorted(state.files)
        if rules.payload_prunable(file[0], target.rank, is_target=_shown(file) in marked, is_aged=True)
    ]
    return (*gone, *swept)


def _removed(state: FleetState, gone: Manifest | File) -> FleetState:
    if isinstance(gone, Manifest):
        return state._replace(manifests=state.manifests - {gone})
    return state._replace(files=state.files - {gone})


def _shown(what: Manifest | File) -> str:
    if isinstance(what, Manifest):
        return f"{what.rank}<{' '.join(sorted(map(_shown, what.files)))}>"
    return f"{what[0]}" if what[1] < 0 else f"{what[0]}+{what[1]}"
