"""A real process on a real disk, killed at random and at its system calls, and with calls that fail."""

from pathlib import Path

import pytest

from tests.queue.child import TYPED
from tests.queue.child_process import CALLS, Said, check, run_and_kill, run_injected

KILLED = {-9, 137}
SAMPLE = (1, 7, 14, 22, 31)
"""Which call of a thread ends the process in the quick test; the long one tries all."""
LIVES_MIN, LIVES_MAX = 3, 7
"""Each life is longer than the one before, until a job was acknowledged in one: a busy machine needs more."""
UNHARMED_MAX = 5
"""After so many runs on end to which nothing happened, a sweep is past the last call."""


def test_a_queue_survives_being_killed_again_and_again(tmp_path: Path) -> None:
    said, after_s = Said(), 0.02
    for life in range(LIVES_MAX):
        run_and_kill(tmp_path, said, seed=100 * life, after_s=after_s)
        check(tmp_path, said)
        if life + 1 >= LIVES_MIN and said.acked["workers"]:
            break
        after_s *= 4
    assert said.puts
    assert said.acked["workers"]


@pytest.mark.parametrize("when", SAMPLE)
def test_a_queue_survives_being_killed_at_a_system_call(tmp_path: Path, when: int) -> None:
    status, said = run_injected(tmp_path, f"signal=SIGKILL:when={when}", when, calls=",".join(CALLS))
    assert status in KILLED
    check(tmp_path, said)


@pytest.mark.parametrize(
    ("call", "error", "when"),
    [
        ("fdatasync", "EIO", 6),
        ("fdatasync", "EIO", 10),
        ("pwritev2", "ENOSPC", 15),
        ("pwritev2", "EIO", 29),
        ("rename", "EIO", 5),
        ("fsync", "ENOSPC", 9),
    ],
)
def test_a_call_that_fails_is_a_typed_error_and_reopening_recovers(
    tmp_path: Path, call: str, error: str, when: int
) -> None:
    status, said = run_injected(tmp_path, f"error={error}:when={when}", when, calls=call, threads=1)
    assert status == TYPED
    assert said.failed
    assert set(said.failed) <= {"CommitFailed", "Poisoned", "StorageRefused"}
    check(tmp_path, said)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("call", CALLS)
def test_a_queue_survives_being_killed_at_every_system_call(tmp_path: Path, call: str) -> None:
    for when in range(1, 400):
        folder = tmp_path / str(when)
        status, said = run_injected(folder, f"signal=SIGKILL:when={when}", when, calls=call)
        check(folder, said)
        if status == 0:
            return
        assert status in KILLED
    raise AssertionError("the sweep did not reach the end")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_may_fail(tmp_path: Path, call: str, error: str) -> None:
    unharmed = 0
    for when in range(1, 400):
        folder = tmp_path / str(when)
        status, said = run_injected(folder, f"error={error}:when={when}", when, calls=call, threads=1)
        check(folder, said)
        if status == 0 and not said.failed:
            unharmed += 1  # nothing failed any more, or only room ahead, which is not needed
            if unharmed == UNHARMED_MAX:
                return
            continue
        unharmed = 0
        assert status == TYPED
    raise AssertionError("the sweep did not reach the end")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_queue_survives_a_hundred_kills(tmp_path: Path) -> None:
    said = Said()
    for life in range(100):
        run_and_kill(tmp_path, said, seed=1000 * life, after_s=(life % 17) * 0.03)
        check(tmp_path, said)
