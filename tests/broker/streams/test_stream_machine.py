"""A stream does what the model does, whatever is done to it, and however often it is closed, killed or loses power."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from strandline.broker.api.config import Discard
from tests.broker.streams.helpers import SECOND, make
from tests.broker.streams.world import Row, StreamModel, everything_small, headers
from tests.effort import examples

CONFIGS = [
    {},
    {"max_msgs": 4},
    {"max_bytes": 300},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 2},
    {"max_msgs_per_subject": 3, "max_msgs": 7},
    {"max_age": 5 * SECOND, "duplicate_window": 2 * SECOND},
    {"discard": Discard.NEW, "max_msgs": 5},
    {"discard": Discard.NEW, "max_bytes": 300, "max_msgs_per_subject": 1},
    {"discard": Discard.NEW, "max_msgs_per_subject": 2, "discard_new_per_subject": True},
    {"allow_msg_ttl": True, "max_msgs": 5},
    {"allow_msg_ttl": True, "max_msgs_per_subject": 1, "subject_delete_marker_ttl": 3 * SECOND},
    {"allow_msg_ttl": True, "max_age": 4 * SECOND, "duplicate_window": SECOND, "subject_delete_marker_ttl": SECOND},
]
SUBJECTS = st.sampled_from([b"s.a", b"s.b", b"s.c.x", b"s.d.x", b"s.e"])


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """A message, often with a header that means something."""
    kind = draw(st.sampled_from(["", "", "", "", "id", "id", "cas", "sub", "all", "other", "ttl", "never"]))
    block = b""
    match kind:
        case "id":
            block = headers(Msg_Id=draw(st.sampled_from("xyz")))
        case "cas":
            block = headers(Expected_Last_Subject_Sequence=draw(st.integers(0, 12)))
        case "sub" | "all":
            block = headers(Rollup=kind)
        case "other":
            block = b"NATS/1.0\r\nA: b\r\n\r\n"
        case "ttl":
            block = headers(TTL=f"{draw(st.integers(1, 4))}s")
        case "never":
            block = headers(TTL="never")
        case _:
            pass
    return draw(SUBJECTS), block, b"v" * draw(st.sampled_from([0, 3, 3, 60, 200]))


class StreamMachine(RuleBasedStateMachine):
    """Does anything to a stream and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.small = everything_small()
        self.small.__enter__()

    @initialize(options=st.sampled_from(CONFIGS))
    def begin(self, options: dict[str, object]) -> None:
        self.world = StreamModel(make(**options))
        self.options = options
        assert self.world.create()

    def _may_have_ttl(self, row: Row) -> bool:
        return b"TTL" not in row[1] or bool(self.options.get("allow_msg_ttl"))

    @rule(batch=st.lists(rows(), min_size=1, max_size=9))
    def publish(self, batch: list[Row]) -> None:
        self.world.publish([row for row in batch if self._may_have_ttl(row)])

    @rule(subject=SUBJECTS, count=st.integers(1, 12))
    def publish_many(self, subject: bytes, count: int) -> None:
        self.world.publish([(subject, b"", b"many")] * count)

    @rule(back=st.lists(st.integers(0, 8), min_size=1, max_size=4))
    def remove(self, back: list[int]) -> None:
        last = self.world.model.last_seq
        self.world.remove([last - number for number in back if last - number > 0])

    @rule(pattern=st.sampled_from(["", "s.a", "s.*.x"]), below=st.integers(-6, 3), keep=st.integers(0, 2))
    def purge(self, pattern: str, below: int, keep: int) -> None:
        reach = max(0, self.world.model.last_seq + below) if below > -6 and not keep else 0
        self.world.purge(pattern, reach, keep)

    @rule(limit=st.sampled_from([-1, 1, 2, 5]), per_subject=st.sampled_from([-1, 1, 2]))
    def update(self, limit: int, per_subject: int) -> None:
        config = self.world.model.config
        if config.discard_new_per_subject and per_subject < 0:
            per_subject = 1
        self.world.update(replace(config, max_msgs=limit, max_msgs_per_subject=per_subject))

    @rule(seconds=st.sampled_from([0.001, 0.5, 1.0, 2.5, -1.0]))
    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def expire(self) -> None:
        self.world.expire()

    @rule(steps=st.integers(1, 60))
    def compact(self, steps: int) -> None:
        self.world.compact(steps)

    @rule()
    def snapshot(self) -> None:
        self.world.snapshot()

    @rule()
    def reopen(self) -> None:
        assert self.world.close()
        assert self.world.open()

    @rule()
    def kill(self) -> None:
        self.world.kill()
        self.world.recover()

    @rule(seed=st.integers(0, 1_000))
    def lose_power(self, seed: int) -> None:
        self.world.crash(Random(seed))
        self.world.recover()

    @precondition(lambda self: hasattr(self, "world"))
    @rule()
    def look(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.world.check()
                self.world.kill()
                self.world.recover()
                self.world.check()
        finally:
            self.small.__exit__(None, None, None)


StreamMachine.TestCase.settings = examples(60, stateful_step_count=30, suppress_health_check=list(HealthCheck))
TestStream = StreamMachine.TestCase


class LongMachine(StreamMachine):
    """The same, for longer."""


LongMachine.TestCase.settings = examples(
    150, stateful_step_count=60, suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate]
)


TestStreamLong = pytest.mark.long(pytest.mark.timeout(1800)(LongMachine.TestCase))


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with everything_small():
        yield
