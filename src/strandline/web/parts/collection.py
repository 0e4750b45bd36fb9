"""All parts that a site shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strandline.web.parts.folds import FoldPart
from strandline.web.parts.journals import JournalPart
from strandline.web.parts.replicas import ReplicaPart
from strandline.web.parts.scans import ScanPart
from strandline.web.parts.streams import ServerPart
from strandline.web.polling import Need, Polled


@dataclass(frozen=True)
class Parts:
    """The parts; pages of kinds without one say how to add it."""

    scans: ScanPart | None = None
    servers: Sequence[ServerPart] = ()
    journals: Sequence[JournalPart] = ()
    folds: Sequence[FoldPart] = ()
    replicas: Sequence[ReplicaPart] = ()

    def polled(self) -> list[Polled[Any]]:
        """Return all parts."""
        scans = [self.scans] if self.scans is not None else []
        return [*scans, *self.servers, *self.journals, *self.folds, *self.replicas]

    def needs(self) -> list[Need]:
        """Return what needs a person, the urgent first; a part that cannot be read needs one."""
        found = [
            Need(f"{part.kind} {part.name} cannot be read: {part.problem}", "/", is_urgent=True)
            for part in self.polled()
            if part.problem is not None
        ]
        if self.scans is not None:
            found += self.scans.needs()
        for server in self.servers:
            found += server.needs()
        for number, journal in enumerate(self.journals):
            found += journal.needs(f"/journals/{number}")
        for number, fold in enumerate(self.folds):
            found += fold.needs(f"/folds/{number}")
        for number, replica in enumerate(self.replicas):
            found += replica.needs(f"/replicas/{number}")
        return sorted(found, key=lambda need: not need.is_urgent)

    def unready(self) -> Sequence[str]:
        """Return the kinds of parts that were not read yet, or cannot be."""
        return [part.kind for part in self.polled() if part.reads == 0 or part.problem is not None]
