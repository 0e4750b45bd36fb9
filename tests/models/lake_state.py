"""Batches of scanner state in a lake as an explicit state machine, request by request.

Programs are production's `LakeState` over `StateLog`: writers under a fence, and readers. Old batches may be deleted
behind the last snapshot but one, while every writer is at its write: as retention does to a writer that slept for long.
What must hold, in every state:

- what a writer was told is durable is there for a reader that begins now, and batches are whole;
- no batch was accepted under an older fence than one before it;
- a reader sees all keys of a batch or none.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from strandline.objects import ObjectStore
from strandline.pipeline.lake import state_log
from strandline.pipeline.lake.layout import (
    format_log,
    format_log_prefix,
    format_snapshots_prefix,
    format_trimmed,
    parse_number,
)
from strandline.pipeline.lake.state import LakeState
from strandline.pipeline.lake.state_log import parse_batch
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import Put, parse_fence_key
from strandline.sim.explore import Step
from strandline.testing.persistence_helpers import TENANT, WRITER
from tests.models.object_programs import Contents, Fact, ObjectModel, ObjectState, Program, Progress, Write

_ERRORS = {"StaleFence", "WriteUnknown"}
_LEFT, _RIGHT = b"left", b"right"


def writer(name: str, fence: int, batches: int = 1) -> Program:
    """Return a worker that writes so many batches, each with a key of its own and two that all batches have."""
    context: WriteContext = WRITER._replace(fence=fence)

    def run(store: ObjectStore) -> Iterator[Fact]:
        state = LakeState(store)
        for number in range(batches):
            value = f"{name} {number}".encode()
            state.apply_batch(TENANT, [Put(value, value), Put(_LEFT, value), Put(_RIGHT, value)], writer=context)
            yield "wrote", value

    return Program(name, run)


def reader(name: str) -> Program:
    """Return a process that reads the two keys that all batches have."""

    def run(store: ObjectStore) -> Iterator[Fact]:
        yield ("read", *LakeState(store).multi_get(TENANT, [_LEFT, _RIGHT]))

    return Program(name, run)


def nothing(_: ObjectStore) -> None:
    """Begin with an empty store."""


class StateLogModel(ObjectModel):
    """The model; with `snapshot_every`, snapshots are taken so often, and old batches deleted."""

    def __init__(self, programs: list[Program], faults: int, *, snapshot_every: int = 0) -> None:
        self._every = snapshot_every
        self._problems: dict[Contents, tuple[frozenset[bytes], str | None]] = {}
        super().__init__(programs, nothing, faults)

    def steps(self, state: ObjectState) -> Iterator[Step[ObjectState]]:
        """Yield every request with every answer, and the deletion of old batches."""
        yield from super().steps(state)
        if self._every and (kept := self._trimmed(state)) != state.contents:
            yield "old batches are deleted", state._replace(contents=kept), None

    def broken(self, state: ObjectState) -> str | None:
        """Return which promise a state breaks, or None."""
        told = [fact for known in self.facts(state) for fact in known]
        if wrong := next((fact for fact in told if fact[0] == "error" and fact[1] not in _ERRORS), None):
            return f"a program was told {wrong[1]}"
        if any(fact[0] == "read" and fact[1] != fact[2] for fact in told):
            return "a reader saw a part of a batch"
        if state.contents not in self._problems:
            self._problems[state.contents] = self._look(state.contents)
        there, problem = self._problems[state.contents]
        if problem is None and not {fact[1] for fact in told if fact[0] == "wrote"} <= there:
            return "a batch was lost"
        return problem

    def broken_step(self, before: ObjectState, after: ObjectState, index: int | None) -> str | None:  # noqa: ARG002
        """Return which promise a step breaks, or None."""
        return None

    def replayed(self, program: Program, answers: tuple[Any, ...]) -> Progress:
        """Return how far a program is, with snapshots as often as this model has them."""
        with patch.object(state_log, "SNAPSHOT_EVERY", self._every) if self._every else nullcontext():
            return super().replayed(program, answers)

    def _look(self, contents: Contents) -> tuple[frozenset[bytes], str | None]:
        """Return the keys that a reader sees that begins now, and the problem of the log."""
        log = [self.bodies[number] for key, number in contents if key.startswith(format_log_prefix(TENANT))]
        fences = [
            int.from_bytes(operation.value, "big")
            for body in log
            for operation in parse_batch(body, "a batch").operations
            if parse_fence_key(operation.key) is not None
        ]
        if fences != sorted(fences):
            return frozenset(), "a batch was accepted under an old fence"
        rows = LakeState(self.stored(contents)).list_range(TENANT, b"\x00", b"\xff", 1_000)
        values = dict(rows)
        if values.get(_LEFT) != values.get(_RIGHT):
            return frozenset(), "a batch is there in part"
        return frozenset(values), None

    def _trimmed(self, state: ObjectState) -> Contents:
        """Return the objects without batches that the last snapshot but one has, where each writer is at its write."""
        snapshots = [key for key, _ in state.contents if key.startswith(format_snapshots_prefix(TENANT))]
        requests = [self.progress(number).request for number in state.programs]
        writes = [isinstance(one, Write) and one.key.startswith(format_log_prefix(TENANT)) for one in requests if one]
        if len(snapshots) < 2 or not all(writes):
            return state.contents
        old = {format_log(TENANT, number) for number in range(parse_number(sorted(snapshots)[-2]) + 1)}
        kept = [one for one in state.contents if one[0] not in old and one[0] != format_trimmed(TENANT)]
        return tuple(sorted([*kept, (format_trimmed(TENANT), self.bodies.number(b""))]))


def two_writers(faults: int = 1) -> StateLogModel:
    """Two writers, the second of whom has the newer fence."""
    return StateLogModel([writer("first", 1), writer("second", 2)], faults)


def writer_and_reader(faults: int = 1) -> StateLogModel:
    """A writer of two batches and a reader."""
    return StateLogModel([writer("first", 1, 2), reader("reader")], faults)


def sleeper(faults: int = 0) -> StateLogModel:
    """A writer that may sleep until its number was used and deleted, and one that goes on."""
    return StateLogModel([writer("sleeper", 1), writer("other", 1, 4)], faults, snapshot_every=2)
