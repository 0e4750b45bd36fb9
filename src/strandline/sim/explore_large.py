"""Exploration of models too large for memory: breadth first as `explore`, with a fingerprint for each state.

Of a visited state only its fingerprint, and that of the state it was first reached from, stay in memory: 16 bytes in a
table that is between 30 and 60 % full. The states of a level are in files, compressed. Each core owns a share of the
states, expands only those, and writes states of other cores to files that they read at the end of the level.

Invariants: counts, depth and the length of the counterexample are those of `explore`, and do not depend on the number
of cores, as long as no two states have the same fingerprint. Of two states with the same fingerprint only the first is
visited: with n states and fingerprints of 64 bits the probability of that is about n² / 2⁶⁵, for 10⁸ states 1 in 3,700.
The fingerprint is Python's own hash, which differs from process to process: cores are forked from one process. Python
gives -1 and -2 the same hash: a model uses at most one of the two.
"""

import gc
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import compress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeAlias

import numpy as np
import pyarrow as pa

from strandline.sim.explore import (
    Bounds,
    Counterexample,
    Exploration,
    Failure,
    Model,
    StateT,
    Tally,
    ended,
    goes_on,
    total,
)

CHUNK = 4096
"""How many states are expanded, or written to a file, at a time."""
_MASK = (1 << 64) - 1
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FULL = 0.6
_RECENT = 1 << 20

Fingerprints = np.ndarray[tuple[int], np.dtype[np.uint64]]
Found: TypeAlias = dict[int, tuple[StateT, int]]
"""States by their fingerprints, each with its parent; in the order they were found in."""


def explore_large(
    model: Model[StateT],
    *,
    cores: int = 1,
    states_max: int | None = None,
    depth_max: int | None = None,
    folder: Path | None = None,
    on_level: Callable[[Tally], object] | None = None,
) -> Exploration:
    """Visit every reachable state; a bound ends it after the level that reaches it.

    `folder` is where the files of a level are while it is explored; by default a temporary one. `on_level` is called
    with the counts after each level.
    """
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder, prefix="levels-") as files:
        tally, complete, counterexample = _search(
            model, cores, Bounds(states_max, depth_max), Path(files), on_level or (lambda _: None)
        )
    seconds = time.perf_counter() - begin
    return Exploration(tally.states, tally.transitions, tally.depth, complete, seconds, counterexample)


def fingerprint(state: object) -> int:
    """Return the fingerprint of a state within this process and its children; 0 is no fingerprint."""
    return hash(state) & _MASK or _MASK


class FingerprintTable:
    """A set of fingerprints, each with its parent: open addressing in two columns, in batches."""

    def __init__(self, size: int = 1 << 16) -> None:
        self._keys: Fingerprints = np.zeros(size, np.uint64)
        self._parents: Fingerprints = np.zeros(size, np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self._keys.nbytes + self._parents.nbytes

    def add(self, keys: Fingerprints, parents: Fingerprints) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Add fingerprints that differ from one another; return which were not there."""
        while self._count + len(keys) > _FULL * len(self._keys):
            self._grow()
        return self._insert(keys, parents)

    def parent(self, key: int) -> int | None:
        """Return the parent of a fingerprint, or None if it is not there; a state to start from has 0."""
        mask, slot = len(self._keys) - 1, int(_slots(np.array([key], np.uint64), len(self._keys))[0])
        while found := int(self._keys[slot]):
            if found == key:
                return int(self._parents[slot])
            slot = (slot + 1) & mask
        return None

    def _insert(self, keys: Fingerprints, parents: Fingerprints) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        is_new = np.zeros(len(keys), np.bool_)
        slots, waiting = _slots(keys, len(self._keys)), np.arange(len(keys))
        mask = np.int64(len(self._keys) - 1)
        while len(waiting):
            found = self._keys[slots]
            free = found == 0
            self._keys[slots[free]] = keys[waiting[free]]  # of several with one slot the last one has it
            held = self._keys[slots] == keys[waiting]
            won = free & held
            self._parents[slots[won]] = parents[waiting[won]]
            is_new[waiting[won]] = True
            waiting, slots = waiting[~held], (slots[~held] + 1) & mask
        self._count += int(is_new.sum())
        return is_new

    def _grow(self) -> None:
        taken = self._keys != 0
        keys, parents = self._keys[taken], self._parents[taken]
        self._keys, self._parents = (np.zeros(2 * len(self._keys), np.uint64) for _ in range(2))
        self._count = 0
        for first in range(0, len(keys), 1 << 20):
            self._insert(keys[first : first + (1 << 20)], parents[first : first + (1 << 20)])


def _slots(keys: Fingerprints, size: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return (keys * _SPREAD >> np.uint64(65 - size.bit_length())).astype(np.int64)


class _Chunks:
    """Lists or dictionaries in a file, compressed, one after the other."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("ab")
        self._codec = pa.Codec("zstd", compression_level=1)

    def write(self, chunk: Sized) -> None:
        if len(chunk):
            data = pickle.dumps(chunk, pickle.HIGHEST_PROTOCOL)
            packed = self._codec.compress(data, asbytes=True)
            self._file.write(len(data).to_bytes(8, "little") + len(packed).to_bytes(8, "little") + packed)

    def close(self) -> None:
        self._file.close()


def _read(path: Path) -> Iterator[Any]:
    """Read what `_Chunks` wrote, and remove it."""
    codec = pa.Codec("zstd")
    with path.open("rb") as file:
        path.unlink()
        while head := file.read(16):
            size, packed = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
            yield pickle.loads(codec.decompress(file.read(packed), size, asbytes=True))  # noqa: S301 - our own


class _Share(Generic[StateT]):
    """The states of one core."""

    def __init__(self, model: Model[StateT], index: int, count: int, folder: Path) -> None:
        self.table = FingerprintTable()
        self.failure: Failure[StateT] | None = None
        self._model, self._index, self._count, self._folder = model, index, count, folder
        self._recent: Fingerprints = np.zeros(_RECENT, np.uint64)
        self._states = self._waiting = self._transitions = self._depth = 0

    def start(self) -> None:
        """Make the own states to start from the first level."""
        own = [state for state in self._model.initial() if self._owner(state, fingerprint(state)) == self._index]
        level = _Chunks(self._level(0))
        self._admit({fingerprint(state): (state, 0) for state in own}, level)
        level.close()

    def expand(self) -> None:
        """Take every step from the level; own states become the next level, others go to the files of their cores."""
        here, self._waiting = self._level(self._depth), 0
        self._depth += 1
        level = _Chunks(self._level(self._depth))
        others = [_Chunks(self._sent(self._index, other)) for other in range(self._count)]
        for states in _read(here):
            found: list[Found[StateT]] = [{} for _ in range(self._count)]
            for before in states:
                self._expand_one(before, found)
            for other, sent in enumerate(found):
                if other == self._index:
                    self._admit(sent, level)
                else:
                    others[other].write(self._unsent(sent))
        for file in (level, *others):
            file.close()

    def receive(self) -> None:
        """Add what other cores found to the next level."""
        level = _Chunks(self._level(self._depth))
        for other in range(self._count):
            for sent in _read(self._sent(other, self._index)):
                self._admit(sent, level)
        level.close()

    def tally(self) -> Tally:
        """Return the counts."""
        return Tally(self._states, self._waiting, self._transitions, self._depth, self.failure is not None)

    def _expand_one(self, before: StateT, found: list[Found[StateT]]) -> None:
        parent, is_alone = fingerprint(before), self._count == 1
        try:
            for action, after, problem in self._model.steps(before):
                self._transitions += 1
                if problem is not None:
                    self._fail(Failure(problem, before, action, after))
                key = hash(after) & _MASK or _MASK  # as in `fingerprint`, without a call for each transition
                owned = found[0 if is_alone else self._owner(after, key)]
                if key not in owned:
                    owned[key] = after, parent
        except Exception as error:  # noqa: BLE001 - an unexpected error of a decision is a finding
            self._fail(Failure(f"{type(error).__name__}: {error}", before, "a step that raises", None))

    def _admit(self, found: Found[StateT], level: _Chunks) -> None:
        """Visit those that are new."""
        keys = np.fromiter(found, np.uint64, len(found))
        parents = np.fromiter((parent for _, parent in found.values()), np.uint64, len(found))
        is_new = self.table.add(keys, parents).tolist()
        new = [state for state, _ in compress(found.values(), is_new)]
        for state in new:
            problem = self._model.broken(state)
            if problem is not None:
                self._fail(Failure(problem, None, "", state))
        for first in range(0, len(new), CHUNK):
            level.write(new[first : first + CHUNK])
        self._states += len(new)
        self._waiting += len(new)

    def _unsent(self, found: Found[StateT]) -> Found[StateT]:
        """Leave out most of what was sent before."""
        keys = np.fromiter(found, np.uint64, len(found))
        slots = keys % np.uint64(_RECENT)
        is_unsent = self._recent[slots] != keys
        self._recent[slots] = keys
        return dict(compress(found.items(), is_unsent.tolist()))

    def _owner(self, state: StateT, key: int) -> int:
        if self._count == 1:
            return 0
        place = self._model.place(state)
        return (key if place is state else fingerprint(place)) % self._count

    def _level(self, depth: int) -> Path:
        return self._folder / f"{self._index}-level-{depth}"

    def _sent(self, sender: int, receiver: int) -> Path:
        return self._folder / f"{sender}-to-{receiver}"

    def _fail(self, failure: Failure[StateT]) -> None:
        if self.failure is None:
            self.failure = failure


def _search(
    model: Model[StateT], cores: int, bounds: Bounds, folder: Path, on_level: Callable[[Tally], object]
) -> tuple[Tally, bool, Counterexample | None]:
    context = get_context("fork")
    links, children = [], []
    try:
        for index in range(cores):
            link, other = context.Pipe()
            child = context.Process(target=_serve, args=(other, model, index, cores, folder), daemon=True)
            child.start()
            other.close()
            links.append(link)
            children.append(child)
        tally = _conduct(links, bounds, on_level)
        counterexample = _retrace(model, links) if tally.failed else None
        for link in links:
            link.send("end")
        for child in children:
            child.join()
    finally:
        for link in links:
            link.close()
        for child in children:
            if child.is_alive():
                child.terminate()
    return *ended(tally), counterexample


def _serve(link: Connection, model: Model[StateT], index: int, cores: int, folder: Path) -> None:
    gc.disable()  # states have no cycles, and are freed chunk by chunk
    share = _Share(model, index, cores, folder)
    while True:
        match link.recv():
            case "start":
                share.start()
                link.send(share.tally())
            case "expand":
                share.expand()
                link.send(None)
            case "receive":
                share.receive()
                link.send(share.tally())
            case "failure":
                link.send(share.failure)
            case int(key):
                link.send(share.table.parent(key))
            case _:
                return


def _ask(links: Sequence[Connection], question: str | int) -> list[object]:
    for link in links:
        link.send(question)
    return [link.recv() for link in links]


def _conduct(links: Sequence[Connection], bounds: Bounds, on_level: Callable[[Tally], object]) -> Tally:
    """Lead the cores level by level."""
    tally = total([answer for answer in _ask(links, "start") if isinstance(answer, Tally)])
    while goes_on(tally, bounds):
        _ask(links, "expand")
        tally = total([answer for answer in _ask(links, "receive") if isinstance(answer, Tally)])
        on_level(tally)
    return tally


def _retrace(model: Model[StateT], links: Sequence[Connection]) -> Counterexample:
    """Return the way to the first failure: by fingerprints back to a start, then by steps of the model."""
    failure = next(answer for answer in _ask(links, "failure") if isinstance(answer, Failure))
    problem, before, action, after = failure
    keys = [fingerprint(after if before is None else before)]
    while parent := next(answer for answer in _ask(links, keys[-1]) if answer is not None):
        assert isinstance(parent, int)  # noqa: S101 - what a table holds
        keys.append(parent)
    state = next(start for start in model.initial() if fingerprint(start) == keys[-1])
    trace = [("start", model.show(state))]
    for key in reversed(keys[:-1]):
        taken, state = next((step, found) for step, found, _ in model.steps(state) if fingerprint(found) == key)
        trace.append((taken, model.show(state)))
    if before is not None:
        trace.append((action, "nothing" if after is None else model.show(after)))
    return Counterexample(problem, tuple(trace))
