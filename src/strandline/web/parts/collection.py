"""All parts that a site shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strandline.web.parts.scans import ScanPart
from strandline.web.polling import Need, Polled


@dataclass(frozen=True)
class Parts:
    """The parts; pages of kinds without one say how to add it."""

    scans: ScanPart | None = None

    def polled(self) -> list[Polled[Any]]:
        """Return all parts."""
        return [part for part in (self.scans,) if part is not None]

    def needs(self) -> list[Need]:
        """Return what needs a person, the urgent first; a part that cannot be read needs one."""
        found = [
            Need(f"{part.kind} {part.name} cannot be read: {part.problem}", "/", is_urgent=True)
            for part in self.polled()
            if part.problem is not None
        ]
        if self.scans is not None:
            found += self.scans.needs()
        return sorted(found, key=lambda need: not need.is_urgent)

    def unready(self) -> Sequence[str]:
        """Return the kinds of parts that were not read yet, or cannot be."""
        return [part.kind for part in self.polled() if part.reads == 0 or part.problem is not None]
