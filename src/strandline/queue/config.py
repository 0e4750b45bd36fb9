"""How a queue behaves."""

from dataclasses import dataclass, field

from strandline.errors import InvalidInput
from strandline.groups import GroupConfig
from strandline.journal import JournalConfig


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The settings of one queue; they may change from one opening to the next."""

    deliveries_max: int | None = 10
    """A message delivered this often without an acknowledgement becomes a dead letter; None never gives up."""
    journal: JournalConfig = field(default_factory=JournalConfig)
    """The settings of the journal that holds the messages."""
    group: GroupConfig = field(default_factory=GroupConfig)
    """The settings of every group."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.deliveries_max is not None and self.deliveries_max < 1:
            raise InvalidInput(f"deliveries_max must be at least 1, not {self.deliveries_max}")
