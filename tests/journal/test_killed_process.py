"""A real process, on a real disk, is killed or lied to at a system call; what it acknowledged is there afterwards.

This shows the death of a process and the paths of errors, not the loss of power, for which there is the simulated disk.
Children are forked from a server that has everything imported, and traced from before they open the journal; so one
run takes a few hundredths of a second, and every single call can have its turn.
"""

import itertools
import re
import threading
from collections import Counter
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from strandline.files import OsDisk
from strandline.journal import Journal, JournalReader, examine
from tests.forkserver import forkserver
from tests.journal.child import serve, value_of
from tests.journal.helpers import WAIT_S, records_of, telling
from tests.straced import strace_problem, traced

CALLS = ["pwritev2", "fdatasync", "fsync", "rename", "ftruncate", "fallocate", "unlink"]
"""What the journal changes the disk with: os.pwritev, fdatasync, fsync, rename, ftruncate, posix_fallocate, unlink."""
SETTINGS = {"segment_bytes_max": 2048, "reserve_bytes_max": 1000}
SIZE = 150
SCRIPT = f"open\nhammer 40 5 {SIZE}\nclose\nopen\nhammer 60 5 {SIZE}\nclose\n"
LOGGED = re.compile(r"^(?:(\d+) +)?(\w+)\(")


REASON = strace_problem()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def server() -> ForkServerContext:
    return forkserver()


def run(
    server: ForkServerContext, folder: Path, *strace: str, inline: bool = True, log: Path = Path("/dev/null")
) -> list[str]:
    """Let a child append under strace until it ends or dies; return what it said."""
    ours, theirs = server.Pipe()
    child = server.Process(target=serve, args=(theirs, str(folder), SETTINGS), kwargs={"inline": inline}, daemon=True)
    child.start()
    theirs.close()
    assert ours.recv() == "ready"
    assert child.pid is not None
    with traced(child.pid, *strace, log=log):
        ours.send(SCRIPT)
        lines: list[str] = []
        try:
            while True:
                assert ours.poll(WAIT_S), f"it hangs after {lines}"
                lines.append(str(ours.recv()))
        except EOFError:
            pass
        child.join(WAIT_S)
    return lines


@pytest.fixture(scope="module")
def counts(server: ForkServerContext, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often the workload makes each call when it does everything in one thread."""
    place = tmp_path_factory.mktemp("count")
    lines = run(server, place / "j", "-e", f"trace={','.join(CALLS)}", log=place / "log")
    assert lines[-1] == "closed"
    seen = Counter(found[2] for line in (place / "log").read_text().splitlines() if (found := LOGGED.match(line)))
    assert set(seen) == set(CALLS), "the workload makes all of them"
    assert seen["pwritev2"] > 50
    assert min(seen.values()) > 3
    return seen


def check(folder: Path, lines: list[str]) -> None:
    """Everything that was acknowledged is there, and everything that is there was sent."""
    acknowledged = 0
    for line in lines:
        words = line.split()
        if words[0].isdigit():
            assert int(words[0]) == acknowledged, "offsets are acknowledged without a gap"
            acknowledged = int(words[0]) + int(words[1])
        elif words[0] == "open":
            assert int(words[2]) >= acknowledged
            acknowledged = int(words[2])
        elif words[0] == "error":
            assert words[1] in ("CommitFailed", "Poisoned", "StorageRefused", "Closed"), line
    if acknowledged:
        for record in records_of(JournalReader.open(folder)):
            assert record.value == value_of(record.offset, SIZE)
    found = examine(OsDisk(), folder, deep=True)
    assert not found.damage
    with Journal.open(folder) as journal:
        assert journal.next_offset >= acknowledged
        records = records_of(journal)
        assert [record.offset for record in records] == list(range(journal.first_offset, journal.next_offset))
        assert all(record.value == value_of(record.offset, SIZE) for record in records)
        end = journal.next_offset
        assert journal.append([value_of(end, SIZE)]).base_offset == end
    found = examine(OsDisk(), folder, deep=True)
    assert (found.damage, found.torn, found.next_offset) == ([], None, end + 1)


def sampled(total: int, step: int) -> list[int]:
    """Return every `step`-th of 1 … total, and the last."""
    return sorted({*range(1, total + 1, step), total})


def case(server: ForkServerContext, place: Path, call: str, harm: str, *, inline: bool = True) -> list[str]:
    """Run the workload with one harm injected, check what it left, and return what it said."""
    folder = place / harm.replace(":", "-")
    with telling(call=call, harm=harm):
        lines = run(server, folder, "-e", f"trace={call}", "-e", f"inject={call}:{harm}", inline=inline)
        check(folder, lines)
        return lines


def is_whole(lines: list[str]) -> bool:
    """Whether the child came to the end of its script and nobody was told of any error."""
    return lines.count("closed") == 2 and not any(line.startswith("error") for line in lines)


def kill_at_every(server: ForkServerContext, place: Path, call: str, step: int) -> int:
    """Kill it at its first call, the one `step` later, and so on until it does not make so many; return how many."""
    for number in itertools.count():
        if is_whole(case(server, place, call, f"signal=SIGKILL:when={1 + number * step}")):
            return number
    raise AssertionError("it never ends")


@pytest.mark.parametrize(("call", "step"), [(call, {"pwritev2": 15, "fdatasync": 8}.get(call, 3)) for call in CALLS])
def test_it_may_be_killed_at_any_call(
    server: ForkServerContext, tmp_path: Path, counts: Counter[str], call: str, step: int
) -> None:
    assert kill_at_every(server, tmp_path, call, step) >= counts[call] // step // 2


@pytest.mark.parametrize(
    ("call", "error", "step"),
    [
        ("pwritev2", "EIO", 23),
        ("pwritev2", "ENOSPC", 27),
        ("fdatasync", "EIO", 9),
        ("fsync", "EIO", 3),
        ("rename", "EIO", 3),
        ("ftruncate", "EIO", 2),
        ("fallocate", "EIO", 7),
        ("fallocate", "ENOSPC", 7),
        ("unlink", "EIO", 5),
    ],
)
def test_any_call_may_fail(
    server: ForkServerContext, tmp_path: Path, counts: Counter[str], call: str, error: str, step: int
) -> None:
    for when in sampled(counts[call], step):
        lines = case(server, tmp_path, call, f"error={error}:when={when}")
        is_needed = error != "ENOSPC" or call not in ("fallocate", "pwritev2")  # the room ahead is not
        if is_needed and when <= counts[call] // 2:  # readers are told by the clock
            assert not is_whole(lines), "nobody was told"


@pytest.mark.parametrize("call", ["pwritev2", "fallocate", "fdatasync"])
def test_a_disk_that_stays_full_refuses_everything_and_loses_nothing(
    server: ForkServerContext, tmp_path: Path, counts: Counter[str], call: str
) -> None:
    for when in sampled(counts[call], 1 + counts[call] // 4):
        case(server, tmp_path, call, f"error=ENOSPC:when={when}+")


@pytest.mark.parametrize("call", ["pwritev2", "fdatasync", "rename"])
def test_it_may_be_killed_while_a_thread_works_in_the_background(
    server: ForkServerContext, tmp_path: Path, counts: Counter[str], call: str
) -> None:
    """Which thread comes first to its N-th call is left to chance; whichever it is, the process dies there."""
    for when in sampled(counts[call] // 2, 1 + counts[call] // 10):
        case(server, tmp_path, call, f"signal=SIGKILL:when={when}", inline=False)


def test_it_may_be_killed_from_outside_at_any_moment(server: ForkServerContext, tmp_path: Path) -> None:
    """No system call in particular: a signal comes when it comes."""
    for number in range(12):
        folder = tmp_path / f"{number}"
        ours, theirs = server.Pipe()
        child = server.Process(
            target=serve, args=(theirs, str(folder), SETTINGS), kwargs={"inline": False}, daemon=True
        )
        child.start()
        theirs.close()
        assert ours.recv() == "ready"
        ours.send(f"open\nhammer 1000000 5 {SIZE}\n")
        assert str(ours.recv()).startswith("open")
        timer = threading.Timer(0.005 + 0.01 * number, child.kill)
        timer.start()
        lines = ["open 0 0"]
        try:
            while True:
                lines.append(str(ours.recv()))
        except EOFError:
            pass
        child.join(WAIT_S)
        timer.cancel()
        check(folder, lines)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("more", ["", "+"], ids=["once", "from then on"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_may_fail(
    server: ForkServerContext, tmp_path: Path, counts: Counter[str], call: str, error: str, more: str
) -> None:
    for when in range(1, counts[call] + 1):
        case(server, tmp_path, call, f"error={error}:when={when}{more}")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("call", CALLS)
def test_it_may_be_killed_at_every_call(server: ForkServerContext, tmp_path: Path, call: str) -> None:
    assert kill_at_every(server, tmp_path, call, 1) > 3


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("round_", range(5))
def test_it_may_be_killed_at_every_call_of_any_thread(
    server: ForkServerContext, tmp_path: Path, counts: Counter[str], call: str, round_: int
) -> None:
    for when in range(1, counts[call] + 1):
        case(server, tmp_path / f"{round_}", call, f"signal=SIGKILL:when={when}", inline=False)
