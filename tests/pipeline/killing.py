"""Starting children of `tests.pipeline.child`, disturbing them, and ending them."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from random import Random
from typing import NamedTuple

from strandline.clock import ManualClock
from strandline.errors import Unavailable
from strandline.pipeline.stores import open_stores
from tests.pipeline.aftermath import Checker, Said
from tests.pipeline.child import Worker
from tests.queue.child_process import strace
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
SQLITE_CALLS = ("pwrite64", "fdatasync", "ftruncate", "unlink")
"""The system calls by which SQLite changes its files."""
POSTGRES_CALLS = ("sendto", "recvfrom")
"""The system calls by which a client of PostgreSQL speaks and listens."""
SAYING = "write"
"""The system call by which a child says what it was told: the moment between two steps."""
LIFE_S = PATIENCE_S


class KilledRun(NamedTuple):
    """Where a run is, and how many items it is over."""

    address: str
    items: int = 48

    def checker(self) -> Checker:
        """Return who looks at what is left behind."""
        return Checker(self.address, self.items)

    def command(self, worker: int, seed: int, patience: int = 0) -> list[str]:
        """Return how to start a child."""
        numbers = map(str, (worker, self.items, seed, patience))
        return [sys.executable, "-m", "tests.pipeline.child", self.address, *numbers]

    def run(self, said: Said, seed: int = 0, patience: int = 0) -> int:
        """Let a child work as long as it wants, and return how it ended."""
        return self._run(self.command(1, seed, patience), said)

    def finish(self, said: Said, seed: int = 0) -> None:
        """Go on where a child was killed, in this process, to the end."""
        lines: list[str] = []
        clock = ManualClock()
        with open_stores(self.address, migrate=True, clock=clock) as stores:
            Worker(stores, clock, 0, self.items, seed, lambda *words: lines.append(" ".join(map(str, words)))).work()
        said.listen("".join(f"{line}\n" for line in lines).encode())

    def run_injected(self, said: Said, what: str, calls: str, seed: int = 0, patience: int = 0) -> int:
        """Run a child under strace, which does `what` to some of its calls; return how it ended."""
        traced = [strace(), "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
        return self._run([*traced, *self.command(1, seed, patience)], said)

    def count_calls(self, call: str, seed: int = 0) -> int:
        """Return how many times an undisturbed child makes a call."""
        with tempfile.NamedTemporaryFile() as log:
            traced = [strace(), "-f", "-qq", "-o", log.name, "-e", f"trace={call}", "-e", "signal=none"]
            assert self._run([*traced, *self.command(1, seed)], Said()) == 0
            return sum(f" {call}(".encode() in line for line in log)

    def _run(self, command: list[str], said: Said) -> int:
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=LIFE_S
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        said.listen(done.stdout)
        return done.returncode


class Life:
    """A child that works while the test looks on; it waits for `allow`."""

    def __init__(self, world: KilledRun, worker: int, seed: int, patience: int = 0) -> None:
        # The child writes through a file of its own: what shares one shares its position, and reading would move it.
        self._output = tempfile.NamedTemporaryFile()  # noqa: SIM115 - `kill` closes them
        self._errors = tempfile.NamedTemporaryFile()  # noqa: SIM115
        self._heard = 0
        self._give_up_s = time.monotonic() + LIFE_S
        with Path(self._output.name).open("ab") as output, Path(self._errors.name).open("ab") as errors:
            self._child = subprocess.Popen(
                world.command(worker, seed, patience),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                bufsize=0,
                stdout=output,
                stderr=errors,
            )

    @property
    def is_over(self) -> bool:
        """Whether the child ended by itself."""
        assert time.monotonic() < self._give_up_s, f"a child does not go on; its last words: {self._last_words()!r}"
        return self._child.poll() is not None

    def _last_words(self) -> bytes:
        self._output.seek(max(self._heard - 500, 0))
        return self._output.read()

    def allow(self, pages: int | None) -> None:
        """Let the child begin, or wake it up, and commit so many pages; None is all."""
        self._give_up_s = time.monotonic() + LIFE_S
        assert self._child.stdin is not None
        if pages is None:
            self._child.stdin.close()
        else:
            with suppress(BrokenPipeError):
                self._child.stdin.write(b"." * pages)
        self._child.send_signal(signal.SIGCONT)

    def wake(self) -> None:
        """Let the child go on where it slept."""
        self._child.send_signal(signal.SIGCONT)

    def pause(self) -> None:
        """Let the child sleep, wherever it is; it does not notice."""
        self._child.send_signal(signal.SIGSTOP)

    def listen(self, said: Said) -> None:
        """Take in what was said since the last time."""
        self._output.seek(self._heard)
        whole, newline, _ = self._output.read().rpartition(b"\n")
        if newline:
            self._give_up_s = time.monotonic() + LIFE_S  # a life may take longer, as long as it goes on
        self._heard += len(whole) + len(newline)
        said.listen(whole + newline)

    def wait_until_ready(self, said: Said) -> None:
        """Return when the child waits for `allow`."""
        enough = said.ready + (self._heard == 0)
        while said.ready < enough and not self.is_over:
            time.sleep(0.005)
            self.listen(said)

    def wait_for(self, pages: int, said: Said, patience_s: float = inf) -> None:
        """Return when the child is at so many more pages, or ended, or patience is over."""
        enough, give_up_s = len(said.pages) + pages, time.monotonic() + patience_s
        while len(said.pages) < enough and not self.is_over and time.monotonic() < give_up_s:
            time.sleep(0.0005)
            self.listen(said)

    def kill(self, said: Said) -> int:
        """End the child wherever it is, take in its last words, and return how it ended."""
        self._child.kill()
        status = self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()
        self.listen(said)
        self._errors.seek(0)
        errors = self._errors.read().decode()
        assert "Traceback" not in errors, errors
        self._output.close()
        self._errors.close()
        return status


def _check_asleep(checker: Checker, lives: Sequence[Life], said: Said) -> None:
    """Check while children sleep; one that holds the database alone while it sleeps is woken up for a moment."""
    while True:
        for life in lives:
            life.pause()
            life.listen(said)
        try:
            checker.check(said)
        except Unavailable:
            if all(life.is_over for life in lives):
                raise
        else:
            return
        for life in lives:
            life.wake()
        time.sleep(0.05)


def live_and_die(world: KilledRun, said: Said, random: Random, *, at_once: int = 1) -> int:
    """Start children and kill each at a random moment, until the run is over; check, and return how many it took.

    Of several at once, mostly one works while the others sleep: they wake up as zombies.
    """
    checker = world.checker()
    lives: list[Life] = []
    started = 0
    while not said.over:
        while len(lives) < at_once:
            started += 1
            lives.append(Life(world, worker=started, seed=random.getrandbits(32)))
        for life in lives:
            life.wait_until_ready(said)
        one, *others = random.sample(lives, len(lives))
        pages = random.randint(1, 5)
        for life in lives if random.random() < 0.3 else [one]:
            life.allow(pages + 1)
        # Whoever sleeps may hold a lock, so that nobody else gets anywhere.
        one.wait_for(pages, said, patience_s=0.3 if others else inf)
        time.sleep(random.random() * 0.01)
        if random.random() < 0.5 or not others:
            lives = others
            status = one.kill(said)
            assert status in (0, -9), f"a child ended with {status}: {said.failed}"
        _check_asleep(checker, lives, said)
    for life in lives:
        life.kill(said)
    checker.check_over(said)
    return started
