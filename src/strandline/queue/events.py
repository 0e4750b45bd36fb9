"""What a queue tells its listeners: messages and dead letters that can never be read again."""

from dataclasses import dataclass

from strandline.events import Event


@dataclass(frozen=True, slots=True)
class MessagesSkipped(Event):
    """Messages that damage or retention took were skipped for a group, because they can never be given out."""

    group: str
    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class DeadLettersLost(Event):
    """Damage took dead letters; the offsets are those of the journal of dead letters."""

    first_offset: int
    end_offset: int
