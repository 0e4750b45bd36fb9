"""Starting the child of `tests.queue.child`, ending it, and holding what it said against what is there."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from strandline.clock import ManualClock
from strandline.queue import JournalStorage
from tests.queue.child import CONFIG, GROUPS
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
CALLS = ("pwritev2", "fdatasync", "fsync", "rename", "ftruncate", "fallocate", "unlink")
"""The system calls by which a queue changes its folder."""


@dataclass
class Said:
    """What a child said, over one life or several."""

    puts: dict[int, str] = field(default_factory=dict)
    taken: dict[tuple[str, int], int] = field(default_factory=dict)
    acking: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    acked: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    failed: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def listen(self, output: bytes) -> None:
        """Take in what was said; a line that the end cut off was not said."""
        for line in output.decode().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue
            match line.split():
                case ["put", offset, value]:
                    self.puts[int(offset)] = value
                case ["taken", group, offset, deliveries]:
                    key = (group, int(offset))
                    self.taken[key] = max(self.taken.get(key, 0), int(deliveries))
                case ["acking", group, offset]:
                    self.acking[group].add(int(offset))
                case ["acked", group, offset]:
                    self.acked[group].add(int(offset))
                case ["failed", kind, *_]:
                    self.failed.append(kind)
                case words:
                    self.other.append(" ".join(words))


def command(folder: Path, threads: int, steps: int, seed: int) -> list[str]:
    """Return how to start a child."""
    return [sys.executable, "-m", "tests.queue.child", str(folder), *map(str, (threads, steps, seed))]


def strace() -> str:
    """Return where strace is, or skip with the reason."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed: no system call can be made to fail or kill")
    probe = [found, "-f", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=1", "true"]
    tried = subprocess.run(probe, capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"strace cannot trace here: {tried.stderr.decode().strip()}")
    return found


def run_injected(
    folder: Path, what: str, seed: int, *, calls: str, steps: int = 12, threads: int = 2
) -> tuple[int, Said]:
    """Run a child under strace, which does `what` to some of its calls; return how it ended and what it said.

    strace counts calls by thread and by name, so the "n-th" is that of whichever thread and call comes there first.
    """
    traced = [strace(), "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    child = command(folder, threads, steps, seed)
    done = subprocess.run([*traced, *child], cwd=ROOT, capture_output=True, check=False, timeout=PATIENCE_S)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    said = Said()
    said.listen(done.stdout)
    return done.returncode, said


def run_and_kill(folder: Path, said: Said, seed: int, after_s: float) -> None:
    """Let a child work for a while, then kill it."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command(folder, 3, 10_000, seed), cwd=ROOT, stdout=output)
        try:
            give_up_s = time.monotonic() + PATIENCE_S
            while output.tell() == 0 and time.monotonic() < give_up_s and child.poll() is None:
                output.seek(0, 2)
                time.sleep(0.01)
            time.sleep(after_s)
        finally:
            child.kill()
            assert child.wait() != 1
        output.seek(0)
        said.listen(output.read())


def check(folder: Path, said: Said) -> None:
    """Open what a child left: everything it was told is so, and nothing else happened to a message."""
    clock = ManualClock(time.time_ns())
    with JournalStorage.open(folder, CONFIG, clock=clock) as storage:
        journal = storage.messages
        assert journal.next_offset >= max(said.puts, default=-1) + 1
        for offset, value in said.puts.items():
            if offset >= journal.first_offset:
                assert storage.fetch_by_offset(offset).value == value.encode()
        known = {status.group for status in storage.status()}
        for group in GROUPS:
            assert group in known or not said.taken
            if group in known:
                check_group(storage, group, said)
        clock.advance(3600)
        for group in known:
            check_nothing_is_missing(storage, group)


def check_group(storage: JournalStorage, name: str, said: Said) -> None:
    """One group has every acknowledgement, no other, and counts that never went back."""
    group = storage.add_group(name)
    end = storage.messages.next_offset
    assert storage.messages.first_offset <= group.acked_until <= end
    acked = {offset for offset in range(end) if group.is_acked(offset)}
    letters = [letter.offset for letter in storage.dead_letters(name)]
    assert len(set(letters)) == len(letters), "a letter was written twice"
    assert said.acked[name] <= acked, "an acknowledgement is gone"
    assert acked <= said.acking[name] | set(letters), "a message was lost"
    for (told, offset), deliveries in said.taken.items():
        if told == name and offset not in acked:
            assert group.deliveries(offset) >= deliveries, "a delivery count went back"


def check_nothing_is_missing(storage: JournalStorage, name: str) -> None:
    """Long after, every message is available, acknowledged, or a letter."""
    group = storage.add_group(name)
    given = {message.offset for message in storage.fetch_available(name, 1_000_000)}
    letters = [letter.offset for letter in storage.dead_letters(name)]
    assert len(set(letters)) == len(letters), "a letter was written twice"
    end = storage.messages.next_offset
    assert given == {offset for offset in range(end) if not group.is_acked(offset)}
    assert not given & set(letters)
