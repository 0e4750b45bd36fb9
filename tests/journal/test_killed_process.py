"""A real process, on a real disk, is killed or lied to at a system call; what it acknowledged is there afterwards.

This shows the death of a process and the paths of errors, not the loss of power: that is what the simulated disk is for.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from strandline.files import OsDisk
from strandline.journal import Journal, JournalReader, examine
from tests.journal.child import value_of
from tests.journal.helpers import WAIT_S, records_of

ROOT = Path(__file__).resolve().parent.parent.parent
CALLS = ["pwritev2", "pwrite64", "fdatasync", "fsync", "rename", "ftruncate", "fallocate", "unlink"]
"""What the journal changes the disk with: os.pwritev, fdatasync, fsync, rename, ftruncate, posix_fallocate, unlink."""
SETTINGS = {"segment_bytes_max": 2048, "reserve_bytes_max": 1000}
SIZE = 150
SCRIPT = f"hammer 40 5 {SIZE}\nreopen\nhammer 60 5 {SIZE}\nclose\n"
LIE = re.compile(r"^(\d+) +(\w+)\(")


def strace_works() -> str | None:
    """Return why strace cannot be used here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    probe = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "true"], check=False, capture_output=True)
    return None if probe.returncode == 0 else f"strace cannot trace here: {probe.stderr.decode().strip()}"


REASON = strace_works()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def run(folder: Path, *strace: str, log: Path | None = None) -> list[str]:
    """Let a child append under strace until it ends or dies; return what it said."""
    trace = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", str(log or "/dev/null"), *strace]
    child = [sys.executable, "-m", "tests.journal.child", str(folder), json.dumps(SETTINGS)]
    done = subprocess.run(
        [*trace, *child], check=False, capture_output=True, text=True, input=SCRIPT, cwd=ROOT, timeout=WAIT_S * 3
    )
    lines = done.stdout.splitlines()
    assert "Traceback" not in done.stderr or "StorageRefused" in done.stderr or "CommitFailed" in done.stderr, (
        done.stderr
    )
    return lines


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often the workload makes each call, in the thread that makes most of them."""
    place = tmp_path_factory.mktemp("count")
    lines = run(place / "j", "-e", f"trace={','.join(CALLS)}", log=place / "log")
    assert lines[-1] == "closed"
    seen = Counter(match.groups() for line in (place / "log").read_text().splitlines() if (match := LIE.match(line)))
    most: Counter[str] = Counter()
    for (_, call), times in seen.items():
        most[call] = max(most[call], times)
    assert most["pwritev2"] > 20
    assert most["fdatasync"] > 10
    assert most["rename"] > 5
    assert most["fsync"] > 5
    return most


def check(folder: Path, lines: list[str]) -> None:
    """Everything that was acknowledged is there, and everything that is there was sent."""
    acknowledged = 0
    for line in lines:
        words = line.split()
        if words[0].isdigit():
            assert int(words[0]) == acknowledged, "offsets were acknowledged without a gap"
            acknowledged = int(words[0]) + int(words[1])
        elif words[0] == "open":
            acknowledged = max(acknowledged, int(words[2]))
        elif words[0] == "error":
            assert words[1] in ("CommitFailed", "Poisoned", "StorageRefused", "Closed"), line
    if folder.exists() and acknowledged:
        eager = JournalReader.open(folder)
        for record in records_of(eager):
            assert record.value == value_of(record.offset, SIZE)
    if folder.exists():
        found = examine(OsDisk(), folder, deep=True)
        assert not found.damage
    with Journal.open(folder) as journal:
        assert journal.next_offset >= acknowledged
        records = records_of(journal)
        assert [record.offset for record in records] == list(range(journal.first_offset, journal.next_offset))
        for record in records:
            assert record.value == value_of(record.offset, SIZE)
        end = journal.next_offset
        assert journal.append([value_of(end, SIZE)]).base_offset == end
    found = examine(OsDisk(), folder, deep=True)
    assert (found.damage, found.torn, found.next_offset) == ([], None, end + 1)


def sampled(total: int, wanted: int) -> list[int]:
    """Return some of 1 … total, the first and the last among them."""
    if total <= wanted:
        return list(range(1, total + 1))
    return sorted({1 + round(i * (total - 1) / (wanted - 1)) for i in range(wanted)})


@pytest.mark.parametrize(
    ("call", "wanted"),
    [("pwritev2", 9), ("fdatasync", 6), ("fsync", 3), ("rename", 3), ("ftruncate", 2), ("fallocate", 2), ("unlink", 3)],
)
def test_it_may_be_killed_at_any_call(tmp_path: Path, counts: Counter[str], call: str, wanted: int) -> None:
    assert counts[call], f"the workload does not call {call}"
    for when in sampled(counts[call], wanted):
        print(f"killed at {call} number {when}")
        folder = tmp_path / f"{call}-{when}"
        lines = run(folder, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}")
        assert not lines or lines[-1] != "closed", "it was not killed"
        check(folder, lines)


@pytest.mark.parametrize(
    ("call", "error", "wanted"),
    [
        ("pwritev2", "EIO", 3),
        ("pwritev2", "ENOSPC", 3),
        ("fdatasync", "EIO", 4),
        ("fsync", "EIO", 3),
        ("rename", "EIO", 2),
        ("ftruncate", "EIO", 1),
        ("fallocate", "ENOSPC", 2),
        ("unlink", "EIO", 2),
    ],
)
def test_any_call_may_fail(tmp_path: Path, counts: Counter[str], call: str, error: str, wanted: int) -> None:
    for when in sampled(counts[call], wanted):
        print(f"{error} at {call} number {when}")
        folder = tmp_path / f"{call}-{when}"
        lines = run(folder, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}")
        check(folder, lines)
        if (call, error) != ("fallocate", "ENOSPC"):
            assert any(line.startswith("error") for line in lines) or "closed" not in lines, "nobody was told"


def test_a_disk_that_stays_full_refuses_everything_and_loses_nothing(tmp_path: Path, counts: Counter[str]) -> None:
    for when in sampled(counts["pwritev2"], 3):
        folder = tmp_path / f"{when}"
        lines = run(folder, "-e", "trace=pwritev2", "-e", f"inject=pwritev2:error=ENOSPC:when={when}+")
        check(folder, lines)


def test_a_writer_killed_from_outside_at_any_moment(tmp_path: Path) -> None:
    """No system call in particular: a signal comes when it comes."""
    for number in range(4):
        folder = tmp_path / f"{number}"
        command = [sys.executable, "-m", "tests.journal.child", str(folder), json.dumps(SETTINGS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(f"hammer 1000000 5 {SIZE}\n")
            child.stdin.flush()
            threading.Timer(0.35 + 0.05 * number, child.kill).start()
            lines = child.stdout.read().splitlines()
        check(folder, lines if lines and lines[-1].count(" ") == 2 else lines[:-1])


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("call", CALLS)
def test_it_may_be_killed_at_every_call(tmp_path: Path, counts: Counter[str], call: str) -> None:
    for when in range(1, counts[call] + 1):
        print(f"killed at {call} number {when}")
        folder = tmp_path / f"{call}-{when}"
        check(folder, run(folder, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}"))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_may_fail(tmp_path: Path, counts: Counter[str], call: str, error: str) -> None:
    for when in range(1, counts[call] + 1):
        for more in ("", "+"):
            print(f"{error} at {call} number {when}{more}")
            folder = tmp_path / f"{call}-{when}{more}"
            check(folder, run(folder, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}{more}"))
