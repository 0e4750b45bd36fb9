"""The position of a streaming query: which journal, and the first offset that was not read yet.

    {"journal": "…32 hex…", "offset": 1042}
    {"journal": "…32 hex…", "offset": "earliest"}      only as the beginning of a query

Invariants: the order of the keys is fixed, because Spark compares positions as JSON text; a position is never compared
with one of another journal; "earliest" is a constant, because Spark asks for the first position again when it replays
the first batch, and a number that retention moves would lose records there.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from strandline.errors import FormatError

EARLIEST = "earliest"
_IDENTITY_BYTES = 16


class StreamOffset(NamedTuple):
    """A position; `offset` None means from the first record that is there when the batch is planned."""

    identity: bytes
    offset: int | None


def format_offset(position: StreamOffset) -> dict[str, Any]:
    """Return what Spark writes into its checkpoint."""
    offset = EARLIEST if position.offset is None else position.offset
    return {"journal": position.identity.hex(), "offset": offset}


def parse_offset(fields: Mapping[str, Any]) -> StreamOffset:
    """Return the position that Spark hands back; `FormatError` where it is none of ours."""
    try:
        identity, offset = bytes.fromhex(fields["journal"]), fields["offset"]
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(fields) from error
    is_number = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
    if len(fields) != len(StreamOffset._fields) or len(identity) != _IDENTITY_BYTES:
        raise _foreign(fields)
    if not is_number and offset != EARLIEST:
        raise _foreign(fields)
    return StreamOffset(identity, offset if is_number else None)


def _foreign(fields: object) -> FormatError:
    hint = "the checkpoint belongs to another source, or to a later version; use a new checkpointLocation"
    error = FormatError("checkpoint", f"{fields!r} is not a position in a journal", hint=hint)
    error.add_note(hint)
    return error
