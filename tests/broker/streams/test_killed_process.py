"""A process is killed while it publishes, over and over; what it was told is stored is there, once and in order."""

import random
import time
from pathlib import Path

import pytest

from strandline.broker.streams import PublishBatch, Stream
from tests.broker.streams.child import KEYS, headers_of, payload_of, publish, subject_of
from tests.broker.streams.helpers import make
from tests.forkserver import forkserver
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S


@pytest.fixture(params=[{}, {"max_msgs_per_subject": 3}], ids=["all", "history"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    Stream.create(tmp_path / "S", make(**request.param)).close()
    return tmp_path / "S"


def kill_once(folder: Path, after_s: float) -> int:
    """Let a process publish, kill it, and return the last sequence that was acknowledged."""
    context = forkserver()
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=publish, args=(str(folder), theirs), daemon=True)
    child.start()
    theirs.close()
    assert ours.poll(WAIT_S)
    acknowledged = ours.recv()
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        if ours.poll(0.01):
            acknowledged = ours.recv()
    child.kill()
    child.join()
    try:
        while ours.poll():
            acknowledged = ours.recv()
    except EOFError:
        pass
    return int(acknowledged)


def check(folder: Path, acknowledged: int) -> None:
    """See that everything up to a sequence is there, as it was sent, and that nothing else is."""
    stream = Stream.open(folder)
    try:
        limit = stream.config.max_msgs_per_subject
        last = stream.last_seq
        assert last >= acknowledged
        found = stream.read(stream.next_sequences(stream.filter(()), 0, 10_000_000))
        sequences = found.sequences.tolist()
        kept = range(1, last + 1)
        if limit > 0:
            newest = {key: [s for s in kept if s * 7 % KEYS == key][-limit:] for key in range(KEYS)}
            kept_of_all = sorted(s for part in newest.values() for s in part)
            assert sequences == kept_of_all
        else:
            assert sequences == list(kept)
        assert found.subjects == list(map(subject_of, sequences))
        assert found.headers == list(map(headers_of, sequences))
        assert found.payloads == list(map(payload_of, sequences))
        recent = [s for s in kept if s % 5 == 0][-1:]
        for sequence in recent:  # an identifier is known after the crash
            batch = PublishBatch([b"s.0"], [b"again"], [headers_of(sequence)])
            assert b"duplicate" in stream.publish(batch, time.time_ns()).answers[0]
    finally:
        stream.close()


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_what_was_acknowledged_is_there_after_sigkill(folder: Path, rounds: int) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for number in range(rounds):
        acknowledged = kill_once(folder, chance.uniform(0.05, 0.6))
        try:
            check(folder, acknowledged)
        except AssertionError as error:
            error.add_note(f"seed={seed} round={number}")
            raise
