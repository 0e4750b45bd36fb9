"""Production code over a store of objects, explored request by request.

A program is a generator that calls production code with a store, and yields facts: what it was told. To take a step it
is run again from its beginning: the requests that it made are answered as before, and the next one is the step. So the
code of production decides everything, and what the explorer chooses is who is next and what becomes of a write:

    done            it takes effect if its condition holds, and the answer says so
    unanswered      it takes effect, and the writer gets `WriteUnknown`
    lost            it has no effect, and the writer gets `WriteUnknown`
    late            it takes effect at any later time, or never, and the writer gets `WriteUnknown`

A program that takes no further step has crashed, so every state is also one after crashes. ETags are those of S3: equal
bodies have equal ETags. Listings come page by page, `listed_max` objects in each.
"""

import secrets
import uuid
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import patch

from blake3 import blake3

from strandline.errors import StrandlineError
from strandline.objects import MemoryObjects, Object, ObjectConflict, ObjectInfo, WriteUnknown
from strandline.objects.contracts import Buffer
from strandline.sim.explore import Step

Contents = tuple[tuple[str, int], ...]
"""Keys and the numbers of their bodies, sorted."""
Fact = tuple[Any, ...]
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Program(NamedTuple):
    """Production code with a name of its own, from which its random numbers are derived."""

    name: str
    run: Callable[[Any], Iterator[Fact]]


class Read(NamedTuple):
    """A request that changes nothing; a listing begins after a key."""

    call: str
    key: str
    after: str = ""


class Write(NamedTuple):
    """A request that writes a body, or deletes where there is none."""

    key: str
    body: int | None
    if_absent: bool = False
    if_match: int | None = None


class Progress(NamedTuple):
    """What a program was told, and its next request; None if it is over."""

    facts: tuple[Fact, ...]
    request: Read | Write | None


class ObjectState(NamedTuple):
    """The objects, where each program is, writes that may still arrive, faults left, and what the model remembers."""

    contents: Contents
    programs: tuple[int, ...]
    late: frozenset[Write]
    faults: int
    notes: frozenset[Fact] = frozenset()


class _Pending(BaseException):
    """The request that has no answer yet; no code of production catches it."""

    def __init__(self, request: Read | Write) -> None:
        self.request = request


class Bodies:
    """Bodies of objects and their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._bodies: list[bytes] = []

    def number(self, body: Buffer) -> int:
        """Return the number of a body."""
        known = self._numbers.setdefault(bytes(body), len(self._bodies))
        if known == len(self._bodies):
            self._bodies.append(bytes(body))
        return known

    def __getitem__(self, number: int) -> bytes:
        return self._bodies[number]

    def info(self, key: str, number: int) -> ObjectInfo:
        """Return what the store says of an object."""
        return ObjectInfo(key, len(self[number]), f"etag-{number}", EPOCH)


class AnsweredObjects:
    """A store that gives answers in their order, and stops its program at the request that has none."""

    address = "model://"

    def __init__(self, bodies: Bodies, answers: Iterable[Any], listed_max: int) -> None:
        self._bodies = bodies
        self._answers = iter(answers)
        self._listed_max = listed_max

    def get(self, key: str, *, start: int = 0, stop: int | None = None) -> Object | None:
        assert (start, stop) == (0, None), "no code under this model reads ranges"
        number = self._ask(Read("get", key))
        return None if number is None else Object(self._bodies.info(key, number), self._bodies[number])

    def head(self, key: str) -> ObjectInfo | None:
        number = self._ask(Read("head", key))
        return None if number is None else self._bodies.info(key, number)

    def put(
        self,
        key: str,
        body: Buffer,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        assert not metadata, "no code under this model writes metadata"
        number = self._bodies.number(body)
        expected = None if if_match is None else int(if_match.removeprefix("etag-"))
        self._written(Write(key, number, if_absent, expected))
        return f"etag-{number}"

    def delete(self, key: str) -> None:
        self._written(Write(key, None))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        after = start_after
        while True:
            page = self._ask(Read("list", prefix, after))
            for key, number in page:
                yield self._bodies.info(key, number)
            if len(page) < self._listed_max:
                return
            after = page[-1][0]

    def close(self) -> None:
        """Nothing is open."""

    def _written(self, write: Write) -> None:
        answer = self._ask(write)
        if answer == "conflict":
            raise ObjectConflict(write.key, "it was written by another")
        if answer == "unknown":
            raise WriteUnknown(write.key, "the answer was lost")

    def _ask(self, request: Read | Write) -> Any:  # noqa: ANN401 - each request has its own answer
        for answer in self._answers:
            return answer
        raise _Pending(request)


class ObjectModel:
    """Programs over one store. Subclasses say what must hold, in `broken` and `broken_step`."""

    listed_max = 1_000

    def __init__(self, programs: Iterable[Program], begin: Callable[[MemoryObjects], None], faults: int) -> None:
        self.programs = tuple(programs)
        self.bodies = Bodies()
        self._faults = faults
        self._steps: list[tuple[int, tuple[Any, ...]]] = [(index, ()) for index in range(len(self.programs))]
        self._numbers = {step: number for number, step in enumerate(self._steps)}
        self._progress: dict[int, Progress] = {}
        store = MemoryObjects()
        with predictable("before"):
            begin(store)
        found = ((info.key, store.get(info.key)) for info in store.list())
        self._begin = tuple(sorted((key, self.bodies.number(stored.body)) for key, stored in found if stored))

    def initial(self) -> list[ObjectState]:
        """Return the store as it begins, with all programs before their first request."""
        return [ObjectState(self._begin, tuple(range(len(self.programs))), frozenset(), self._faults)]

    def place(self, state: ObjectState) -> Hashable:
        """Return one key for all: bodies and steps have numbers that only one process knows."""
        return len(state.programs)

    def steps(self, state: ObjectState) -> Iterator[Step[ObjectState]]:
        """Yield every request with every answer, and every late write that arrives."""
        for index, number in enumerate(state.programs):
            request = self.progress(number).request
            if request is None:
                continue
            for fate, answer, contents, late in self._answers(state, request):
                programs = list(state.programs)
                programs[index] = self._next(number, answer)
                lost = state.faults - (fate not in {"", "done"})
                after = ObjectState(contents, tuple(programs), late, lost, state.notes)
                after = after._replace(notes=self.notes(state, after, index))
                yield (
                    f"{self.programs[index].name}: {shown(request)}{fate and ', ' + fate}",
                    after,
                    self.broken_step(state, after, index),
                )
        for write in state.late:
            written = _written(state.contents, write)
            contents = state.contents if written is None else written
            after = state._replace(contents=contents, late=state.late - {write})
            after = after._replace(notes=self.notes(state, after, None))
            yield f"late: {shown(write)}", after, self.broken_step(state, after, None)

    def broken(self, state: ObjectState) -> str | None:
        """Return which promise a state breaks, or None."""
        raise NotImplementedError

    def broken_step(self, before: ObjectState, after: ObjectState, index: int | None) -> str | None:
        """Return which promise a step breaks, or None; without a program it is a late write that arrives."""
        raise NotImplementedError

    def notes(self, before: ObjectState, after: ObjectState, index: int | None) -> frozenset[Fact]:  # noqa: ARG002
        """Return what is to be remembered of the way to a state."""
        return after.notes

    def show(self, state: ObjectState) -> str:
        """Return what each program was told."""
        return "; ".join(
            f"{program.name} {' '.join(map(str, facts))}"
            for program, facts in zip(self.programs, self.facts(state), strict=True)
        )

    def facts(self, state: ObjectState) -> list[tuple[Fact, ...]]:
        """Return what each program was told so far."""
        return [self.progress(number).facts for number in state.programs]

    def is_over(self, state: ObjectState) -> bool:
        """Return whether all programs have ended."""
        return all(self.progress(number).request is None for number in state.programs)

    def stored(self, contents: Contents) -> MemoryObjects:
        """Return a store with these objects, for code that looks at one state."""
        store = MemoryObjects()
        for key, number in contents:
            store.put(key, self.bodies[number])
        return store

    def progress(self, number: int) -> Progress:
        """Return how far a program is after the answers that the number stands for."""
        if number not in self._progress:
            index, answers = self._steps[number]
            self._progress[number] = self.replayed(self.programs[index], answers)
        return self._progress[number]

    def told_last(self, number: int) -> tuple[Fact, ...]:
        """Return what a program was told with its last answer, or before its first request."""
        index, answers = self._steps[number]
        before = len(self.progress(self._numbers[index, answers[:-1]]).facts) if answers else 0
        return self.progress(number).facts[before:]

    def replayed(self, program: Program, answers: tuple[Any, ...]) -> Progress:
        """Return how far a program is after these answers."""
        facts: list[Fact] = []
        with predictable(program.name):
            try:
                facts.extend(program.run(AnsweredObjects(self.bodies, answers, self.listed_max)))
            except _Pending as pending:
                return Progress(tuple(facts), pending.request)
            except StrandlineError as error:
                facts.append(("error", type(error).__name__))
        return Progress(tuple(facts), None)

    def _next(self, number: int, answer: Any) -> int:  # noqa: ANN401 - each request has its own answer
        index, answers = self._steps[number]
        step = index, (*answers, answer)
        known = self._numbers.setdefault(step, len(self._steps))
        if known == len(self._steps):
            self._steps.append(step)
        return known

    def _answers(
        self, state: ObjectState, request: Read | Write
    ) -> Iterator[tuple[str, Any, Contents, frozenset[Write]]]:
        """Yield what may become of a request: its fate, the answer, the objects after it, and late writes."""
        contents, late = state.contents, state.late
        if isinstance(request, Read):
            yield "", _read(contents, request, self.listed_max), contents, late
            return
        after = _written(contents, request)
        yield (
            "done" if after is not None else "refused",
            "done" if after is not None else "conflict",
            (contents if after is None else after),
            late,
        )
        if state.faults:
            if after is not None:
                yield "unanswered", "unknown", after, late
            yield "lost", "unknown", contents, late
            yield "late", "unknown", contents, late | {request}


@contextmanager
def predictable(name: str) -> Iterator[None]:
    """Let random numbers follow from a name, and threads be calls, so that code that runs again does the same."""
    numbers = count()

    def token_bytes(size: int = 32) -> bytes:
        return blake3(f"{name} {next(numbers)}".encode()).digest(length=size)

    def submit(_: ThreadPoolExecutor, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:  # noqa: ANN401
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **named))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)
        return future

    with ExitStack() as stack:
        stack.enter_context(patch.object(secrets, "token_bytes", token_bytes))
        stack.enter_context(patch.object(secrets, "token_hex", lambda size=32: token_bytes(size).hex()))
        stack.enter_context(patch.object(uuid, "uuid4", lambda: uuid.UUID(bytes=token_bytes(16))))
        stack.enter_context(patch.object(ThreadPoolExecutor, "submit", submit))
        yield


def shown(request: Read | Write) -> str:
    """Return a request as a few words, with the end of its key."""
    name = "/".join(request.key.rstrip("/").split("/")[-2:])[-40:]
    if isinstance(request, Read):
        return f"{request.call} {name}"
    return f"{'delete' if request.body is None else 'put'} {name}"


def body_of(contents: Contents, key: str) -> int | None:
    """Return the number of an object's body, or None."""
    at = bisect_left(contents, (key, -1))
    return contents[at][1] if at < len(contents) and contents[at][0] == key else None


def _read(contents: Contents, read: Read, listed_max: int) -> Any:  # noqa: ANN401 - each request has its own answer
    if read.call != "list":
        return body_of(contents, read.key)
    return tuple(one for one in contents if one[0].startswith(read.key) and one[0] > read.after)[:listed_max]


def _written(contents: Contents, write: Write) -> Contents | None:
    """Return the objects after a write, or None if its condition does not hold."""
    found = body_of(contents, write.key)
    if (write.if_absent and found is not None) or (write.if_match is not None and write.if_match != found):
        return None
    others = [one for one in contents if one[0] != write.key]
    return tuple(sorted(others if write.body is None else [*others, (write.key, write.body)]))
