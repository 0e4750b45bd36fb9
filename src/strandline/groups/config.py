"""The settings of a durable group: compaction, and the bytes that may wait for the disk."""

from dataclasses import dataclass

from strandline.errors import InvalidInput
from strandline.journal.config import KiB, MiB


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of one group; they may change from one opening to the next."""

    compact_bytes_min: int = 4 * MiB
    """A delta is compacted when it is as large as this and as the snapshot: each byte is rewritten about once."""
    compact_age_s: float | None = 600.0
    """A delta is compacted when its first operation is older; None leaves it to the size."""
    queue_bytes_max: int = 16 * MiB
    """Bytes that may wait for the disk before callers block."""
    frame_bytes_max: int = 4 * MiB
    """Maximum bytes of one frame (a larger single commit gets a frame of its own)."""

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        for name in ("compact_bytes_min", "queue_bytes_max", "frame_bytes_max"):
            if getattr(self, name) < KiB:
                raise InvalidInput(f"{name} must be at least {KiB}, not {getattr(self, name)}")
        if self.compact_age_s is not None and self.compact_age_s < 0:
            raise InvalidInput("compact_age_s must not be negative")
