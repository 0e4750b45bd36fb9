"""A stream on a simulated disk beside the model of what it must hold, so that it can be crashed anywhere."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.requests import PurgeRequest
from strandline.broker.streams import PublishBatch, Stream, stream_exists
from strandline.clock import ManualClock
from strandline.errors import StrandlineError
from strandline.gather import InlineExecutor
from strandline.sim import SimDisk
from strandline.wire import subject_matches
from tests import tally
from tests.broker.streams.model import Model
from tests.journal.helpers import WatchedDisk
from tests.journal.model import PowerCut
from tests.waiting import PATIENCE_S

FOLDER = Path("/sim/streams/S")
START_NS = 1_700_000_000_000_000_000
Row = tuple[bytes, bytes, bytes]
"""Subject, headers, payload."""


@contextmanager
def everything_small() -> Iterator[None]:
    """Make segments, steps and thresholds so small that a few messages reach all of them."""
    patches = {
        "storage.SEGMENT_BYTES": 1024,
        "storage.TAIL_BYTES_MAX": 512,
        "storage.AHEAD_MIN": 2,
        "storage.AHEAD_MAX": 5,
        "storage.GAP_MAX": 3,
        "compaction.STEP_MESSAGES": 3,
        "compaction.STORED_BYTES_MIN": 1500,
        "write_batch.ANCHOR_MESSAGES": 5,
        "index.SQUEEZE_MIN": 6,
        "index.SCAN_ROWS": 4,
        "subjects.RENUMBER_MIN": 3,
        "stream_store.SNAPSHOT_BYTES_MIN": 3000,
        "replay.STRETCH_MAX": 7,
        "write_batch.FEW": 2,
    }
    with ExitStack() as active:
        for name, value in patches.items():
            active.enter_context(mock.patch(f"strandline.broker.streams.{name}", value))
        yield


def headers(**pairs: object) -> bytes:
    """Return a header block; underscores in names become dashes."""
    lines = "".join(f"Nats-{name.replace('_', '-')}: {value}\r\n" for name, value in pairs.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


class StreamModel:
    """The disk, the stream on it, and what it must hold."""

    def __init__(self, config: StreamConfig) -> None:
        self.disk = SimDisk()
        self.cut = PowerCut()
        self.clock = ManualClock(START_NS)
        self.model = Model(config, now_ns=START_NS)
        self.possible: list[Model] = []
        """What else may be there: a change was under way when something went wrong."""
        self.stream: Stream | None = None
        self.created = False

    # Opening and dying.

    def create(self) -> bool:
        """Make the stream."""
        disk = WatchedDisk(self.disk, self.cut)
        try:
            self.stream = Stream.create(
                FOLDER, self.model.config, disk=disk, clock=self.clock, executor=InlineExecutor()
            )
        except (StrandlineError, OSError):
            return False
        self.created = True
        return True

    def open(self) -> bool:
        """Open it again; the clock may have gone back, but not across a restart."""
        self.clock.advance(max(0, self.model.now_ns - self.clock.now_ns()) / 1e9)
        disk = WatchedDisk(self.disk, self.cut)
        try:
            self.stream = Stream.open(FOLDER, disk=disk, clock=self.clock, executor=InlineExecutor())
        except (StrandlineError, OSError):
            return False
        for model in (*self.possible, self.model):
            model.tick(self.clock.now_ns())
        return True

    def close(self) -> bool:
        """Close it properly."""
        stream, self.stream = self.stream, None
        try:
            if stream is not None:
                stream.close()
        except (StrandlineError, OSError):
            return False
        return True

    def kill(self) -> None:
        """End the process."""
        self.stream = None
        self.disk.kill()

    def crash(self, random: Random) -> None:
        """Lose power."""
        tally.count(tally.POWER_LOSSES)
        self.stream = None
        self.cut.left = None
        self.disk.crash(random)

    def recover(self) -> None:
        """Open what a crash left, and see which of the possible things it is."""
        if not self.created and not stream_exists(self.disk, FOLDER):
            return
        assert self.open()
        candidates = [*self.possible, self.model]
        matching = [model for model in candidates if self._is(model)]
        assert matching, self._difference(candidates)
        self.model, self.possible = matching[0], []

    # Changes.

    def change(self, on_stream: Callable[[Stream], object], on_model: Callable[[Model], object]) -> None:
        """Make the same change to both; if the stream cannot, both what was and what will be are possible."""
        if self.stream is None:
            return
        after = self.model.copy()
        expected = on_model(after)
        try:
            got = on_stream(self.stream)
            self.stream.barrier().result(PATIENCE_S)
        except (StrandlineError, OSError):
            self.possible = [self.model, after]
            self.stream = None
            return
        self.model = after
        assert got == expected, (got, expected)

    def publish(self, rows: list[Row]) -> None:
        """Publish a batch."""
        now_ns = self.clock.now_ns()

        def on_stream(stream: Stream) -> list[int | str]:
            batch = PublishBatch(
                [row[0] for row in rows],
                [row[2] for row in rows],
                [row[1] for row in rows] if any(row[1] for row in rows) else None,
            )
            published = stream.publish(batch, now_ns)
            return [
                _said(published.answers[at].decode()) if at in published.answers else int(sequence)
                for at, sequence in enumerate(published.sequences.tolist())
            ]

        def on_model(model: Model) -> list[int | str]:
            model.tick(now_ns)
            return [model.publish(*row) for row in rows]

        self.change(on_stream, on_model)

    def remove(self, sequences: list[int]) -> None:
        """Let go of some messages, as acknowledgements do."""
        wanted = np.array(sorted(set(sequences)), np.uint64)
        self.change(lambda stream: _unsaid(stream.remove(wanted)), lambda model: model.remove(sequences))

    def purge(self, pattern: str = "", below: int = 0, keep: int = 0) -> None:
        """Purge."""
        self.change(
            lambda stream: stream.purge(PurgeRequest(seq=below, filter=pattern, keep=keep)),
            lambda model: model.purge(pattern, below, keep),
        )

    def update(self, config: StreamConfig) -> None:
        """Change the configuration."""
        now_ns = self.clock.now_ns()

        def on_model(model: Model) -> None:
            model.tick(now_ns)
            model.config = config
            model.enforce()

        self.change(lambda stream: _unsaid(stream.update(config, now_ns)), on_model)

    def expire(self) -> None:
        """Let go of what is past its time."""
        now_ns = self.clock.now_ns()
        self.change(lambda stream: _unsaid(stream.expire(now_ns)), lambda model: model.tick(now_ns))

    def compact(self, steps: int = 100) -> None:
        """Do against dead records what there is to do."""

        def on_stream(stream: Stream) -> None:
            for _ in range(steps):
                if not stream.compact_step():
                    return

        self.change(on_stream, _unsaid)

    def snapshot(self) -> None:
        """Write the index."""
        self.change(lambda stream: stream.snapshot().result(PATIENCE_S), _unsaid)

    # Comparing.

    def check(self) -> None:
        """See that the stream is what the model says."""
        if self.stream is not None:
            assert self._is(self.model), self._difference([self.model])

    def _is(self, model: Model) -> bool:
        return self._facts(model) == _model_facts(model, self._time(model))

    def _time(self, model: Model) -> int:
        return max(self.clock.now_ns(), model.now_ns)

    def _facts(self, model: Model) -> object:
        """Return everything that can be seen of a stream."""
        stream = self.stream
        assert stream is not None
        state = stream.state(deleted=True)
        sequences = stream.next_sequences(stream.filter(()), 0, 10_000)
        now_ns = self._time(model)
        due = [kept.sequence for kept in model.messages if _is_due(kept.due_ns(model.config), now_ns)]
        found = stream.read(sequences)
        messages = [found[at] for at in range(len(found)) if int(sequences[at]) not in due]
        known = {
            entry.identifier: entry.sequence
            for entry in stream._state.dedupe.entries()  # noqa: SLF001 - what no client can see directly
            if now_ns - entry.time_ns < model.config.duplicate_window
        }
        counted = [
            (pattern, stream.pending(stream.filter((pattern,)), start))
            for pattern in ("s.>", "s.a", "s.*.x")
            for start in (0, state.last_seq // 2)
        ]
        lasts = stream.last_per_subject(stream.filter(("s.>",))).tolist()
        return (
            [tuple(message) for message in messages],
            state.messages - len(set(sequences.tolist()) & set(due)),
            state.last_seq,
            state.last_ts if state.last_seq else 0,
            stream.config.max_msgs,
            stream.config.max_msgs_per_subject,
            known,
            stream._state.last_id,  # noqa: SLF001 - the same
            (counted, lasts, state.bytes, state.num_subjects) if not due else (),
        )

    def _difference(self, models: list[Model]) -> str:
        lines = [f"  {self._facts(model)}\n  {_model_facts(model, self._time(model))}" for model in models]
        return "stream, then model:\n" + "\n".join(lines)


def _unsaid(result: object) -> None:
    """Do not compare what a change returns."""
    del result


def _is_due(due_ns: int | None, now_ns: int) -> bool:
    return due_ns is not None and due_ns <= now_ns


def _model_facts(model: Model, now_ns: int) -> object:
    kept = [one for one in model.messages if not _is_due(one.due_ns(model.config), now_ns)]
    is_due = len(kept) != len(model.messages)
    known = {
        name: sequence
        for name, (sequence, time_ns) in model.known.items()
        if now_ns - time_ns < model.config.duplicate_window
    }
    counted = [
        (pattern, sum(subject_matches(pattern, one.subject.decode()) and one.sequence >= start for one in kept))
        for pattern in ("s.>", "s.a", "s.*.x")
        for start in (0, model.last_seq // 2)
    ]
    lasts = sorted({one.subject: one.sequence for one in kept}.values())
    numbers = (counted, lasts, sum(one.size for one in kept), len({one.subject for one in kept}))
    return (
        [(one.sequence, one.subject, one.headers, one.payload, one.time_ns) for one in kept],
        len(kept),
        model.last_seq,
        model.last_time or (-62_135_596_800_000_000_000 if model.last_seq else 0),
        model.config.max_msgs,
        model.config.max_msgs_per_subject,
        known,
        model.last_id,
        numbers if not is_due else (),
    )


def _said(answer: str) -> str:
    if "duplicate" in answer:
        return "duplicate " + answer.split('"seq":')[1].split(",", maxsplit=1)[0]
    return "wrong last sequence" if "wrong last sequence" in answer else "full" if "10077" in answer else answer
