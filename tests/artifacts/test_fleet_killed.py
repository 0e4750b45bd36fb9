"""A fleet over a bucket that evicts, on real servers: followers are killed at system calls; a newcomer has the truth.

Each of three processes follows the bucket, starts from artifacts and publishes its own. The writer waits until an
artifact continues into the log, as an operator would see to; nothing else is taken for granted.
"""

import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path

import pytest

import strandline
from strandline.artifacts import PublishedArtifacts
from strandline.artifacts.layout import format_file_key
from strandline.fold import FoldMode
from strandline.kv import Discard, StoreConfig
from tests import tally
from tests.artifacts.buckets import Counted, current_values, write
from tests.artifacts.follower_child import Followed, run
from tests.forkserver import forkserver
from tests.servers_nats import NatsServer, fresh_bucket
from tests.servers_seaweed import SeaweedServer, fresh_address
from tests.straced import strace_problem, traced
from tests.waiting import PATIENCE_S, eventually

KEPT = 60
"""How many updates the bucket keeps."""
BATCH = 15
CONFIG = StoreConfig(updates_max=KEPT, discard=Discard.OLD)
CALLS = ("write", "pwrite64", "sendto", "fsync", "fdatasync", "rename", "unlink", "openat", "mkdir")
WHEN_MAX = 120


class Follower:
    """One process of the fleet."""

    def __init__(self, followed: Followed) -> None:
        context = forkserver()
        self._link, theirs = context.Pipe()
        self._process = context.Process(target=run, args=(theirs, followed), daemon=True)
        self._process.start()
        theirs.close()
        self.pid: int = self._link.recv()

    def begin(self) -> None:
        """Let it follow."""
        self._link.send("follow")

    def revision(self) -> int | None:
        """Return the revision that its fold has, or None if it is dead."""
        try:
            self._link.send("revision")
            found: int = self._link.recv()
        except (EOFError, OSError):
            return None
        return found

    def kill(self) -> None:
        """End it, if that has not happened."""
        self._process.kill()
        self._process.join(PATIENCE_S)
        assert self._process.exitcode == -signal.SIGKILL
        self._link.close()

    def end(self) -> None:
        """End it in good order."""
        self._link.send("end")
        self._process.join(PATIENCE_S)
        assert self._process.exitcode == 0
        self._link.close()


class Fleet:
    """Three followers, a bucket, its artifacts and its truth."""

    def __init__(self, server: NatsServer, objects: SeaweedServer, mode: FoldMode, folder: Path, seed: int) -> None:
        self._server, self._mode, self._folder = server, mode, folder
        self._bucket, self._address, self._environ = fresh_bucket(), fresh_address(), objects.environ
        self._chance = random.Random(seed)
        self._truth: dict[str, bytes] = {}
        self._rank = 0
        self._last = self._write()
        self.artifacts = PublishedArtifacts.open(self._address)
        self._followers = [self._started(number) for number in range(3)]
        for follower in self._followers:
            follower.begin()

    def close(self) -> None:
        """End all followers in good order."""
        for follower in self._followers:
            follower.end()
        self.artifacts.close()

    def kill_one(self) -> None:
        """Write while one follower is killed at a system call; the others get everything, and one exports it."""
        victim = self._chance.randrange(3)
        call, when = self._chance.choice(CALLS), self._chance.randint(1, WHEN_MAX)
        replaced = self._started(victim)
        self._followers[victim].kill()
        inject = ("-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={when}")
        with nullcontext() if strace_problem() else traced(replaced.pid, *inject):
            replaced.begin()
            self._last = self._write()
            for number, follower in enumerate(self._followers):
                if number != victim:
                    eventually(lambda follower=follower: (follower.revision() or 0) >= self._last)  # type: ignore[misc]
            self.check_pointer()
            replaced.kill()
        tally.count(tally.KILLS, 2)
        self._followers[victim] = self._started(victim)
        self._followers[victim].begin()

    def check_pointer(self) -> None:
        """Wait until an artifact continues into the log after one more batch; see that it is whole and not older."""

        def is_recent() -> bool:
            pointer = self.artifacts.pointer()
            rank = pointer.rank if pointer else 0
            assert rank >= self._rank, "the pointer moved back"
            self._rank = rank
            return rank >= max(1, self._last - KEPT + 2 * BATCH)

        eventually(is_recent, "an artifact that continues into the log")
        for file in self.artifacts.newest().files:
            assert self.artifacts.objects.head(format_file_key(file)) is not None

    def check_newcomer(self) -> None:
        """Have one more fold start from the artifact: it gets what came after it, and has the truth."""
        last = self._write()
        told, rank = Counted(), self._rank
        path = self._folder / "newcomer.fold"
        with strandline.follow(self._url, path, mode=self._mode, bootstrap=self.artifacts, on_change=told) as newcomer:
            newcomer.wait_for(last, PATIENCE_S)
            if self._mode is FoldMode.ARCHIVE:
                assert dict(newcomer) == self._truth
            else:  # what the last update evicted goes when the fold sees it
                truth = current_values(self._server, self._bucket)
                eventually(lambda: dict(newcomer) == truth, "the values of the bucket")
        assert told.updates <= last - rank < last

    @property
    def _url(self) -> str:
        return f"{self._server.url}/{self._bucket}"

    def _write(self) -> int:
        pairs: dict[str, bytes | None] = {}
        for _ in range(BATCH):
            key = f"key.{self._chance.randrange(200)}"
            is_deleted = key in self._truth and self._chance.random() < 0.3
            pairs[key] = None if is_deleted else self._chance.randbytes(self._chance.randrange(1, 200))
        for name, value in pairs.items():
            if value is None:
                del self._truth[name]
            else:
                self._truth[name] = value
        return write(self._server, self._bucket, pairs, CONFIG)

    def _started(self, number: int) -> Follower:
        suffix = ("fold", "db", "rocks")[number]
        path = self._folder / f"follower-{number}.{suffix}"
        return Follower(Followed(self._url, path, self._address, self._mode, 0.2, self._environ))


@contextmanager
def fleet_of_three(
    server: NatsServer, objects: SeaweedServer, mode: FoldMode, folder: Path, seed: int
) -> Iterator[Fleet]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in objects.environ.items():
            patch.setenv(name, value)
        yield stack.enter_context(closing(Fleet(server, objects, mode, folder, seed)))


@pytest.mark.parametrize("mode", [FoldMode.ARCHIVE, FoldMode.MIRROR], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    "kills", [2, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(1800)])], ids=["few", "many"]
)
def test_a_newcomer_has_the_truth_whoever_was_killed(
    kills: int, mode: FoldMode, nats_server: NatsServer, seaweed_server: SeaweedServer, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - a failure shows it
    with fleet_of_three(nats_server, seaweed_server, mode, tmp_path, seed) as fleet:
        for _ in range(kills):
            fleet.kill_one()
        fleet.check_newcomer()
