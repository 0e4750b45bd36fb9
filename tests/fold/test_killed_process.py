"""A real process is killed, or lied to, at a system call; the store it left is whole and its cursor not ahead.

This shows the death of a process and the paths of errors, not a power cut, for which there is the simulated disk.
"""

import threading
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from strandline.journal import SYNCED, WRITTEN, Durability
from strandline.kv import NO_CURSOR, format_cursor, parse_cursor
from tests.effort import Part, parts
from tests.fold.child import BATCHES, LIVES, open_store, revision_of, rows_of, serve, states
from tests.forkserver import forkserver
from tests.straced import strace_problem, traced
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
CALLS = {
    "append log": {"pwritev2": 41, "fdatasync": 23, "fsync": 7, "rename": 11, "unlink": 11},
    "sqlite": {"pwrite64": 131, "fdatasync": 41, "ftruncate": 5, "unlink": 3},
    "rocksdb": {"write": 131, "fdatasync": 41, "fsync": 7, "rename": 5, "unlink": 5},
}
"""By which calls each store changes the disk, and how many of them are passed over from one death to the next."""
CASES = [(backend, call) for backend, calls in CALLS.items() for call in calls]


REASON = strace_problem()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture
def server() -> ForkServerContext:
    return forkserver()


def run(
    server: ForkServerContext,
    backend: str,
    folder: Path,
    *strace: str,
    sync: Durability = SYNCED,
    log: Path = Path("/dev/null"),
) -> list[str]:
    """Let a child apply under strace until it ends or dies; return what it said."""
    ours, theirs = server.Pipe()
    child = server.Process(target=serve, args=(theirs, backend, str(folder), sync), daemon=True)
    child.start()
    theirs.close()
    assert ours.recv() == "ready"
    assert child.pid is not None
    with traced(child.pid, *strace, log=log):
        ours.send("go")
        said: list[str] = []
        try:
            while True:
                assert ours.poll(WAIT_S), f"it hangs after {said}"
                said.append(str(ours.recv()))
        except (EOFError, ConnectionResetError):
            pass
        child.join(WAIT_S)
    return said


def check(backend: str, folder: Path, said: list[str]) -> None:
    """What was acknowledged is there, the data is what the cursor says, and the store takes the next batch."""
    acknowledged = max((int(word) for word in said if word.isdigit()), default=0)
    store = open_store(backend, folder)
    number = number_of(store.cursor())
    assert acknowledged <= number <= acknowledged + 1
    found = {entry.key: entry for entry in store.range()}
    possible = states(number)
    assert found in (possible if backend == "append log" else possible[:1])
    assert store.verify().entries == len(found)
    store.close()


def number_of(cursor: bytes) -> int:
    """Return the batch that a cursor stands after."""
    revision = parse_cursor(cursor) if cursor != NO_CURSOR else 0  # type: ignore[arg-type]
    number = (revision or 0) // 100
    assert cursor == (format_cursor(revision_of(number) + len(rows_of(number)) - 1) if number else NO_CURSOR)
    return number


def kill_at_every(server: ForkServerContext, place: Path, backend: str, call: str, step: int) -> int:
    """Kill it at its first call, the one `step` later, and so on until it does not make so many; return how many."""
    for times in range(10_000):
        folder = place / str(times)
        harm = f"inject={call}:signal=SIGKILL:when={1 + times * step}"
        said = run(server, backend, folder, "-e", f"trace={call}", "-e", harm)
        check(backend, folder, said)
        if said and said[-1] == "done":
            assert said[:-1] == [str(number) for number in range(1, LIVES * BATCHES + 1)]
            return times
    raise AssertionError("it never ends")


@pytest.mark.parametrize(("backend", "call"), CASES)
def test_it_may_be_killed_at_any_call(server: ForkServerContext, tmp_path: Path, backend: str, call: str) -> None:
    assert kill_at_every(server, tmp_path, backend, call, CALLS[backend][call]) >= 1


@pytest.mark.parametrize(
    ("backend", "call", "error"),
    [
        ("append log", "pwritev2", "EIO"),
        ("append log", "pwritev2", "ENOSPC"),
        ("append log", "fdatasync", "EIO"),
        ("append log", "rename", "EIO"),
        ("sqlite", "pwrite64", "ENOSPC"),
        ("sqlite", "fdatasync", "EIO"),
        ("rocksdb", "fdatasync", "EIO"),
    ],
)
@parts(2)
def test_any_call_may_fail(
    server: ForkServerContext, tmp_path: Path, backend: str, call: str, error: str, part: Part
) -> None:
    for when in part.of((1, 5, 12, 20)):
        folder = tmp_path / str(when)
        said = run(server, backend, folder, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}")
        assert said[-1].startswith(("error", "done")), said
        check(backend, folder, said)


@pytest.mark.parametrize("backend", CALLS)
def test_a_synced_store_syncs_every_batch_and_a_written_one_does_not(
    server: ForkServerContext, tmp_path: Path, backend: str
) -> None:
    syncs = {}
    for sync in (SYNCED, WRITTEN):
        log = tmp_path / f"{sync.value}.log"
        said = run(server, backend, tmp_path / sync.value, "-e", "trace=fdatasync,pwritev2", sync=sync, log=log)
        assert said[-1] == "done"
        syncs[sync] = sum("fdatasync(" in line or "RWF_DSYNC" in line for line in log.read_text().splitlines())
    assert syncs[SYNCED] >= LIVES * BATCHES
    assert syncs[SYNCED] - syncs[WRITTEN] >= LIVES * BATCHES * 0.9


@pytest.mark.parametrize("backend", CALLS)
def test_it_may_be_killed_from_outside_at_any_moment(server: ForkServerContext, tmp_path: Path, backend: str) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        ours, theirs = server.Pipe()
        child = server.Process(target=serve, args=(theirs, backend, str(folder)), daemon=True)
        child.start()
        theirs.close()
        assert ours.recv() == "ready"
        ours.send("go")
        timer = threading.Timer(0.01 + 0.06 * number, child.kill)
        timer.start()
        said: list[str] = []
        try:
            while True:
                said.append(str(ours.recv()))
        except (EOFError, ConnectionResetError):
            pass
        child.join(WAIT_S)
        timer.cancel()
        check(backend, folder, said)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("backend", "call"), CASES)
def test_it_may_be_killed_at_every_call(server: ForkServerContext, tmp_path: Path, backend: str, call: str) -> None:
    assert kill_at_every(server, tmp_path, backend, call, 1) >= 1
