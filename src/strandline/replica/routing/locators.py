"""Where the requests of a proxy go: to the leader, or to readers in turn.

Invariants: a node counts as failed where it took no connection or said that it does not lead. A connection that was
lost within a request, or an answer that did not come, may be the work of that request, and leaves the node in use.
"""

from collections.abc import Callable

from strandline.replica.directory import ReplicaDirectory
from strandline.replica.routing.forwarder import Place
from strandline.replica.routing.rules import Failure


class LeaderLocator:
    """Sends a request to the leader."""

    def __init__(self, directory: ReplicaDirectory, is_wanted: Callable[[], bool]) -> None:
        self._directory = directory
        self.is_wanted = is_wanted

    def where(self) -> str | Place:
        """Return the leader's address."""
        return self._directory.leader() or Place.UNKNOWN

    def note_failure(self, address: str, failure: Failure) -> None:
        """Have the directory look again."""
        if failure.is_unknown:
            self._directory.look_soon()
        else:
            self._directory.note_failure(address)

    def note_success(self, address: str) -> None:
        """Have the directory forget failures."""
        self._directory.note_success(address)


class ReaderLocator(LeaderLocator):
    """Sends a request to a reader, and to another one where that fails."""

    def __init__(self, directory: ReplicaDirectory, is_wanted: Callable[[], bool]) -> None:
        super().__init__(directory, is_wanted)
        self._tried: set[str] = set()

    def where(self) -> str | Place:
        """Return the address of a reader that was not tried yet."""
        found = self._directory.reader(self._tried)
        if found is None:
            self._tried.clear()
            return Place.UNKNOWN
        return found

    def note_failure(self, address: str, failure: Failure) -> None:
        """Leave the reader out."""
        self._tried.add(address)
        super().note_failure(address, failure)
