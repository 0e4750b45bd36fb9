"""The duplicate window: the message identifiers of late, and their sequences.

Invariants: an identifier is known for exactly the length of the window, in the stream's own time; entries are in the
order of their times, so the oldest are dropped first.
"""

from strandline.broker.streams.records import KnownId


class Dedupe:
    """Identifiers by name; a dict keeps them in the order in which they came."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, identifier: bytes, now_ns: int, window_ns: int) -> int | None:
        """Return the sequence of the message that had this identifier within the window, or None."""
        found = self._known.get(identifier)
        if found is None or now_ns - found[1] >= window_ns:
            return None
        return found[0]

    def add(self, identifier: bytes, sequence: int, time_ns: int) -> None:
        """Remember an identifier."""
        self._known.pop(identifier, None)
        self._known[identifier] = (sequence, time_ns)

    def add_old(self, identifier: bytes, sequence: int, time_ns: int) -> None:
        """Remember an identifier of an older message, unless it was used again since."""
        self._known.setdefault(identifier, (sequence, time_ns))

    def trim(self, now_ns: int, window_ns: int) -> None:
        """Drop the entries that are older than the window."""
        known = self._known
        while known:
            identifier = next(iter(known))
            if now_ns - known[identifier][1] < window_ns:
                return
            del known[identifier]

    def forget(self, sequences: set[int]) -> None:
        """Forget the identifiers of some messages, which may be published again."""
        self._known = {name: entry for name, entry in self._known.items() if entry[0] not in sequences}

    def entries(self) -> list[KnownId]:
        """Return everything, oldest first."""
        return [KnownId(identifier, sequence, time_ns) for identifier, (sequence, time_ns) in self._known.items()]

    def load(self, entries: list[KnownId] | tuple[KnownId, ...]) -> None:
        """Add entries, oldest first; an entry that is known with a later time stays."""
        merged = {entry.identifier: (entry.sequence, entry.time_ns) for entry in entries}
        merged.update(self._known)
        self._known = dict(sorted(merged.items(), key=lambda item: item[1][1]))
