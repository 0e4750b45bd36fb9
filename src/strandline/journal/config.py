"""The settings of a journal: sizes, limits and durability, with defaults that suit a server's disk."""

from dataclasses import dataclass
from enum import Enum

from strandline.errors import InvalidInput

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


class Durability(Enum):
    """When an append returns, or how far a reader looks."""

    WRITTEN = "written"
    """In the operating system's cache: survives the process, not the machine."""
    SYNCED = "synced"
    """On stable storage: survives the machine."""


SYNCED = Durability.SYNCED
WRITTEN = Durability.WRITTEN


def check_durability(name: str, value: object) -> None:
    """Raise `InvalidInput` unless the value is a `Durability`."""
    if not isinstance(value, Durability):
        raise InvalidInput(f"{name} must be SYNCED or WRITTEN, not {value!r}")


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """The settings of one journal; they may change from one opening to the next."""

    segment_bytes_max: int = 128 * MiB
    """A new segment begins before this size is passed (a larger single append gets a segment of its own)."""
    segment_age_max_s: float | None = None
    """A new segment begins when the current one was begun longer ago."""
    reserve_bytes_max: int = 4 * MiB
    """Space is reserved ahead of the end, as much as is used already but at most this: an fsync then seldom has to
    record a new size; for small durable appends it is filled with zeros, which makes them up to twice as fast.
    0 reserves nothing."""
    record_bytes_max: int = 64 * MiB
    """The largest value, key or headers of one record."""
    append_bytes_max: int = 256 * MiB
    """The largest single append; it is one atomic batch."""
    queue_bytes_max: int = 64 * MiB
    """How much may wait for the writer before callers block."""
    tells_readers: bool = True
    """Readers in other processes are told of every append as soon as no other waits; without it only now and then,
    while appends keep coming, which spares a lone append a second write."""
    retain_bytes: int | None = None
    """Whole old segments are removed when the rest is at least this large."""
    retain_age_s: float | None = None
    """Whole old segments are removed when their last record is older."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        for name in ("segment_bytes_max", "record_bytes_max", "append_bytes_max", "queue_bytes_max"):
            if getattr(self, name) < KiB:
                raise InvalidInput(f"{name} must be at least {KiB}, not {getattr(self, name)}")
        if self.append_bytes_max > GiB:
            raise InvalidInput(f"append_bytes_max must be at most {GiB}: a column is addressed with 32 bits")
        for name in ("reserve_bytes_max", "segment_age_max_s", "retain_bytes", "retain_age_s"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidInput(f"{name} must not be negative")
