"""The position of a streaming query: which stream, made when, and the first sequence that was not read yet.

    {"stream": "ORDERS", "created": "2026-11-15T18:00:00.123456789Z", "sequence": 1042}
    {"stream": "ORDERS", "created": "2026-11-15T18:00:00.123456789Z", "sequence": "earliest"}    only as a beginning

Invariants: the order of the keys is fixed, because Spark compares positions as JSON text; a position is never compared
with one of another stream, and a stream that was made again under its name is another; "earliest" is a constant,
because Spark asks for the first position again when it replays the first batch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from strandline.errors import FormatError
from strandline.nats.streams import StreamState

EARLIEST = "earliest"


class Position(NamedTuple):
    """A position; `sequence` None means from the first message that is there when the batch is planned."""

    stream: str
    created: str
    sequence: int | None

    def is_of(self, state: StreamState) -> bool:
        """Tell whether this is a position in the stream that has this state."""
        return (self.stream, self.created) == (state.name, state.created)


def position_in(state: StreamState, sequence: int | None) -> Position:
    """Return a position in a stream."""
    return Position(state.name, state.created, sequence)


def format_position(position: Position) -> dict[str, Any]:
    """Return what Spark writes into its checkpoint."""
    sequence = EARLIEST if position.sequence is None else position.sequence
    return {"stream": position.stream, "created": position.created, "sequence": sequence}


def parse_position(fields: Mapping[str, Any]) -> Position:
    """Return the position that Spark hands back; `FormatError` where it is none of ours."""
    try:
        stream, created, sequence = fields["stream"], fields["created"], fields["sequence"]
    except (KeyError, TypeError) as error:
        raise _foreign(fields) from error
    is_number = isinstance(sequence, int) and not isinstance(sequence, bool) and sequence >= 0
    if len(fields) != len(Position._fields) or not isinstance(stream, str) or not isinstance(created, str):
        raise _foreign(fields)
    if not is_number and sequence != EARLIEST:
        raise _foreign(fields)
    return Position(stream, created, sequence if is_number else None)


def _foreign(fields: object) -> FormatError:
    hint = "the checkpoint belongs to another source, or to a later version; use a new checkpointLocation"
    error = FormatError("checkpoint", f"{fields!r} is not a position in a stream", hint=hint)
    error.add_note(hint)
    return error
