"""The journal as its readers see it: the segments, and how far they are written and durable.

Invariants: a `View` is immutable; `first_offset <= durable_offset <= written_offset`; segments are contiguous and the
last one is the active one. A holder of a view may read what it names until retention removes it.
"""

from dataclasses import dataclass
from typing import Protocol

from strandline.journal.config import SYNCED, Durability, check_durability
from strandline.journal.index import Index
from strandline.journal.manifest import Manifest, Sealed
from strandline.journal.segment import SEGMENT_HEADER_BYTES


@dataclass(slots=True)
class Segment:
    """One segment file. Only the active one changes; sealing fixes its end."""

    base_offset: int
    end_offset: int
    bytes: int
    created_ns: int
    last_append_ns: int
    index: Index | None
    """None until it is needed; then loaded, or rebuilt."""

    def sealed(self) -> Sealed:
        """Return what the manifest says of it."""
        return Sealed(self.base_offset, self.end_offset, self.bytes, self.last_append_ns)


def manifest_of(identity: bytes, segments: tuple[Segment, ...], durable: int, *, at_end: bool) -> Manifest:
    """Return what names the segments that are sealed and durable.

    The checkpoint lies where the first of the others begins, or at its end.
    """
    sealed = tuple(segment for segment in segments[:-1] if segment.end_offset <= durable)
    active = segments[len(sealed)]
    return Manifest(
        identity,
        segments[0].base_offset,
        durable if at_end else active.base_offset,
        tuple(segment.sealed() for segment in sealed),
        active.base_offset,
        active.bytes if at_end else SEGMENT_HEADER_BYTES,
        active.last_append_ns if at_end else active.created_ns,
    )


@dataclass(frozen=True, slots=True)
class View:
    """The readable range at one moment."""

    segments: tuple[Segment, ...]
    first_offset: int
    written_offset: int
    durable_offset: int

    def limit(self, visibility: Durability) -> int:
        """Return the offset after the last that may be shown."""
        check_durability("visibility", visibility)
        return self.durable_offset if visibility is SYNCED else self.written_offset


class ViewSource(Protocol):
    """Where a reader's views come from: the writer in this process, or the files of another."""

    identity: bytes
    """The journal's; a segment with another is not read."""

    def view(self) -> View:
        """Return what can be read now."""
        ...

    def wait(self, offset: int, visibility: Durability, timeout_s: float | None) -> bool:
        """Return True once `offset` is readable; False on time-out, or when nothing more will come."""
        ...
