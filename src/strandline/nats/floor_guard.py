"""The floor guard: whether a reader can have missed something that its stream removed before it was read.

A server that has removed messages goes on with those that it has, and says nothing. So the guard keeps the frontier, up
to which nothing is missed, and compares it with where the stream begins: before a skipped revision is handed out (in
band), and from time to time (backstop). What decides are the functions of `strandline.protocol.windows`;
`tests.models.live_watch` shows that they suffice, and what goes wrong without them.

Invariants: pure. The frontier never goes back. Erring is towards "expired", which costs a repair and loses nothing.
"""

import numpy as np
from numpy.typing import NDArray

from strandline.protocol import windows

Sequences = NDArray[np.uint64]


class FloorGuard:
    """The frontier of one reader: what was delivered, and what a sentinel or a probe proves beyond it."""

    def __init__(self, frontier: int) -> None:
        self._delivered = frontier
        self._proven = frontier
        self._awaited: Sequences = np.empty(0, np.uint64)

    @property
    def delivered(self) -> int:
        """Return the last revision that was handed out."""
        return self._delivered

    @property
    def frontier(self) -> int:
        """Return up to where nothing is missed."""
        return self.frontier_after(self._delivered)

    def frontier_after(self, last: int) -> int:
        """Return up to where nothing would be missed if revisions up to one were handed out."""
        awaited = self._awaited[np.searchsorted(self._awaited, np.uint64(last), side="right") :]
        first = int(awaited[0]) if len(awaited) else None
        return windows.proven_frontier(max(self._delivered, last), self._proven, first)

    def gap(self, sequences: Sequences) -> int | None:
        """Return the first of some ascending revisions before which one may be missing; None if there is no such.

        It is to be handed out only if the window is open from there, with the beginning of the stream read after the
        revision came.
        """
        begun = int(np.searchsorted(sequences, np.uint64(self._delivered), side="right"))
        rows = sequences[begun:]
        if not len(rows):
            return None
        # What the sentinel has seen must come, each of it and nothing else.
        seen = int(np.searchsorted(rows, np.uint64(self._proven), side="right"))
        awaited = self._awaited[: np.searchsorted(self._awaited, rows[-1], side="right")]
        same = min(seen, len(awaited))
        differs = np.flatnonzero(rows[:same] != awaited[:same])
        if len(differs) or same < max(seen, len(awaited)):
            return begun + int(differs[0] if len(differs) else same)
        rest = rows[seen:]
        before = np.concatenate((np.array([max(self._proven, self._delivered)], np.uint64), rest))[:-1]
        for row in np.flatnonzero(rest > before + np.uint64(1))[:1].tolist():
            if windows.is_gapped(int(before[row]), int(rest[row])):
                return begun + seen + int(row)
        return None

    def is_open(self, first: int, reached: int = 0) -> bool:
        """Tell whether nothing is missed, up to what was handed out or reached, if the stream begins there."""
        return windows.resume_window_ok(self.frontier_after(reached), first)

    def deliver(self, last: int) -> None:
        """Note that everything of the reader's up to a revision was handed out."""
        self._delivered = max(self._delivered, last)
        self._awaited = self._awaited[self._awaited > np.uint64(self._delivered)]

    def see(self, last: int, own: Sequences) -> None:
        """Note that the sentinel has seen everything up to a revision, and which of it are the reader's own."""
        self._proven = max(self._proven, last)
        fresh = own[own > np.uint64(self._delivered)]
        self._awaited = np.concatenate((self._awaited, fresh)) if len(fresh) else self._awaited

    def begin_anew(self) -> None:
        """Forget the sentinel, which begins anew after the frontier."""
        self._proven = self.frontier
        self._awaited = self._awaited[:0]

    def prove(self, last: int) -> None:
        """Note what a probe found: nothing of the reader's lies between what was delivered and a revision."""
        self._proven = max(self._proven, last)
