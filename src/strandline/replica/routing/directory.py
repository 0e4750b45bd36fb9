"""The nodes of a replica as they were last found, looked for again where an attempt fails.

Invariants: a failure that is noted begins a look at once, or as soon as the one before is over; after three failures in
a row a leader is tried once a second until another session leads; a reader that failed is left out for a while. A store
that does not answer leaves what was known.
"""

import threading
import time
from collections.abc import Callable
from typing import Self

from strandline.errors import StrandlineError
from strandline.replica.nodes import Discovered
from strandline.replica.routing.forwarder import Place
from strandline.replica.routing.rules import Failure

LOOK_EVERY_S = 2.0
LOOK_AGAIN_S = 0.1
"""How soon after a look the next one begins where an attempt failed."""
FAILURES_MAX = 3
RETRY_S = 1.0
FORGET_S = 5.0
AWAY_S = 2.0
"""How long a reader is left out that failed."""


class Directory:
    """Knows who leads and who follows; `look` asks the object store, in a thread from `start` to `close`."""

    def __init__(self, look: Callable[[], Discovered], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._found = Discovered(None, ())
        self._failures = 0
        self._failed_s = float("-inf")
        self._away: dict[str, float] = {}
        self._turn = 0
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: str | None = None
        """Why the last look failed; None where it did not."""

    def start(self) -> Self:
        """Look once, and then again and again; an error of the first look is raised."""
        self.note(self._look())
        self._thread = threading.Thread(target=self._run, name="strandline-directory", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def found(self) -> Discovered:
        """Return what the last look found."""
        return self._found

    def note(self, found: Discovered) -> None:
        """Take what a look found."""
        with self._lock:
            if _session(found) != _session(self._found):
                self._failures = 0
            self._found = found

    def note_failure(self, address: str, failure: Failure) -> None:
        """Note that a node did not take a request, and look again."""
        now_s = self._clock()
        with self._lock:
            leader = self._found.leader
            if leader is not None and leader.address == address:
                is_row = failure is Failure.NOT_SENT and now_s - self._failed_s < FORGET_S
                self._failures = self._failures + 1 if is_row else 1
                self._failed_s = now_s
            else:
                self._away[address] = now_s + AWAY_S
        self._wake.set()

    def leader(self) -> str | None:
        """Return the address of the leader; None where there is none, or where it is not to be tried now."""
        leader = self._found.leader
        if leader is None or not leader.address:
            return None
        is_resting = self._failures >= FAILURES_MAX and self._clock() - self._failed_s < RETRY_S
        return None if is_resting else leader.address

    def reader(self, tried: set[str]) -> str | None:
        """Return an address to read from, followers in turn, the leader where there is none; None where all failed."""
        now_s = self._clock()
        with self._lock:
            addresses = [node.address for node in self._found.followers if node.address]
            left = [each for each in addresses if each not in tried and self._away.get(each, now_s) <= now_s]
            if left:
                self._turn += 1
                return left[self._turn % len(left)]
        leader = self.leader()
        return leader if leader not in tried else None

    def _run(self) -> None:
        while not self._closed.is_set():
            was_waked = self._wake.wait(LOOK_EVERY_S)
            self._wake.clear()
            if self._closed.is_set():
                return
            try:
                self.note(self._look())
                self.error = None
            except StrandlineError as error:
                self.error = str(error)
            if was_waked:
                self._closed.wait(LOOK_AGAIN_S)


def _session(found: Discovered) -> str:
    return found.leader.session if found.leader is not None else ""


class LeaderLocator:
    """Sends a request to the leader."""

    def __init__(self, directory: Directory, is_wanted: Callable[[], bool]) -> None:
        self._directory = directory
        self.is_wanted = is_wanted

    def where(self) -> str | Place:
        """Return the leader's address."""
        return self._directory.leader() or Place.NOBODY

    def note_failure(self, address: str, failure: Failure) -> None:
        """Have the directory look again."""
        self._directory.note_failure(address, failure)


class ReaderLocator:
    """Sends a request to a reader, and to another one where that fails."""

    def __init__(self, directory: Directory, is_wanted: Callable[[], bool]) -> None:
        self._directory = directory
        self._tried: set[str] = set()
        self.is_wanted = is_wanted

    def where(self) -> str | Place:
        """Return the address of a reader that was not tried yet."""
        found = self._directory.reader(self._tried)
        if found is None:
            self._tried.clear()
            return Place.NOBODY
        return found

    def note_failure(self, address: str, failure: Failure) -> None:
        """Leave the reader out."""
        self._tried.add(address)
        self._directory.note_failure(address, failure)
