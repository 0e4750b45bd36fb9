"""The nodes of a replica for its clients, which know the address of the replica alone.

Invariants: a look at the object store never runs in the thread that asks; a failure that is noted, and a question that
has no answer, begin a look at once or shortly after the one before. An address that failed three times in a row is
left out until another session leads, or until a look that began a pause later names it still: a leader whose network
failed for a moment comes back without a failover. A store that does not answer leaves what was known.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self

from strandline.replica.nodes import Discovered

logger = logging.getLogger("strandline.replica")
LOOK_EVERY_S = 2.0
LOOK_AGAIN_S, LOOK_AGAIN_S_MAX = 0.1, 1.0
"""How soon the next look begins where one is wanted: looks that change nothing become rarer."""
FAILURES_MAX = 3
PAUSE_S = 1.0


@dataclass
class _Failures:
    count: int = 0
    last_s: float = 0.0


class ReplicaDirectory:
    """Knows who leads and who follows, from `start` to `close`; any thread may ask.

    `look` asks the object store: `ReplicaDirectory(lambda: discover(store))`.
    """

    def __init__(self, look: Callable[[], Discovered], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._changed = threading.Condition()
        self._found = Discovered(None, ())
        self._looked_s = float("-inf")
        self._failures: dict[str, _Failures] = {}
        self._turn = 0
        self._again_s = LOOK_AGAIN_S
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: str | None = None
        """Why the last look failed; None where it did not."""

    def start(self) -> Self:
        """Look once, and then again and again; an error of the first look is raised."""
        self.look()
        self._thread = threading.Thread(target=self._run, name="strandline-directory", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def found(self) -> Discovered:
        """Return what the last look found."""
        return self._found

    @property
    def age_s(self) -> float:
        """Return how long ago the last look that succeeded began."""
        return self._clock() - self._looked_s

    def look(self) -> None:
        """Ask the object store now."""
        began_s = self._clock()
        found = self._look()
        with self._changed:
            is_new = _session(found) != _session(self._found)
            if is_new:
                self._failures.clear()
            self._again_s = LOOK_AGAIN_S if is_new else min(1.5 * self._again_s, LOOK_AGAIN_S_MAX)
            self._found, self._looked_s, self.error = found, began_s, None
            self._changed.notify_all()

    def leader(self) -> str | None:
        """Return the address of the leader; None where none is known, or where it has failed and rests."""
        leader = self._found.leader
        if leader is not None and leader.address and not self._rests(leader.address, FAILURES_MAX):
            return leader.address
        self._wake.set()
        return None

    def reader(self, tried: Collection[str] = ()) -> str | None:
        """Return an address to read from, followers in turn, the leader where there is none; None where all failed.

        A follower rests after its first failure.
        """
        addresses = [node.address for node in self._found.followers if node.address]
        left = [each for each in addresses if each not in tried and not self._rests(each, 1)]
        if left:
            self._turn += 1
            return left[self._turn % len(left)]
        leader = self.leader()
        return leader if leader not in tried else None

    def wait_for_leader(self, timeout_s: float) -> str | None:
        """Wait until a leader is known that has not failed, and return its address; None after the timeout."""
        give_up_s = time.monotonic() + timeout_s
        with self._changed:
            while (address := self.leader()) is None and (left_s := give_up_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, PAUSE_S))
        return address

    def note_failure(self, address: str) -> None:
        """Note that a node did not take a request, and look again."""
        with self._changed:
            failures = self._failures.setdefault(address, _Failures())
            failures.count, failures.last_s = failures.count + 1, self._clock()
        self._wake.set()

    def look_soon(self) -> None:
        """Have the object store asked at once, or shortly after the last time."""
        self._wake.set()

    def note_success(self, address: str) -> None:
        """Forget the failures of an address."""
        if address in self._failures:
            with self._changed:
                self._failures.pop(address, None)

    def _rests(self, address: str, failures_max: int) -> bool:
        failures = self._failures.get(address)
        return failures is not None and failures.count >= failures_max and self._looked_s < failures.last_s + PAUSE_S

    def _run(self) -> None:
        while not self._closed.is_set():
            is_wanted = self._wake.wait(LOOK_EVERY_S)
            self._wake.clear()
            if self._closed.is_set():
                return
            if not is_wanted:
                self._again_s = LOOK_AGAIN_S
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - whatever a store raises, the next look may succeed
                if self.error is None:
                    logger.warning("cannot look for the nodes of the replica: %s", error)
                self.error = str(error) or repr(error)
            if is_wanted:
                self._closed.wait(self._again_s)


def _session(found: Discovered) -> str:
    return found.leader.session if found.leader is not None else ""
