"""The position of a streaming query: the identity of a log, and the first offset that was not read yet.

    {"journal": "…32 hex…", "offset": 1042}
    {"stream": "ORDERS", "created": "2026-11-15T18:00:00.123456789Z", "sequence": 1042}
    {…, "offset": "earliest"}      only as the beginning of a query

Invariants: the order of the keys is fixed, because Spark compares positions as JSON text. A position is never compared
with one of another log: a journal or a stream that was made again under its name is another. "earliest" is a constant,
because Spark asks for the first position again when it replays the first batch, and a number that retention moves
would lose records there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from strandline.errors import FormatError

EARLIEST = "earliest"


class Position(NamedTuple):
    """A position; `offset` None means from the first record that the log holds when the batch is planned."""

    identity: tuple[str, ...]
    offset: int | None


@dataclass(frozen=True, slots=True)
class PositionFormat:
    """The JSON of a log's positions: the keys of its identity, then the key of the offset."""

    what: str
    identity_keys: tuple[str, ...]
    offset_key: str
    is_identity: Callable[[str], bool] = lambda _: True

    def format(self, position: Position) -> dict[str, Any]:
        """Return the JSON that Spark writes into its checkpoint."""
        offset = EARLIEST if position.offset is None else position.offset
        return {**dict(zip(self.identity_keys, position.identity, strict=True)), self.offset_key: offset}

    def parse(self, fields: Mapping[str, Any]) -> Position:
        """Return the position that Spark hands back; `FormatError` for a position of another source."""
        try:
            identity = tuple(fields[key] for key in self.identity_keys)
            offset = fields[self.offset_key]
        except (KeyError, TypeError) as error:
            raise self._foreign(fields) from error
        is_number = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
        if len(fields) != len(self.identity_keys) + 1 or not (is_number or offset == EARLIEST):
            raise self._foreign(fields)
        if not all(isinstance(value, str) and self.is_identity(value) for value in identity):
            raise self._foreign(fields)
        return Position(identity, offset if is_number else None)

    def _foreign(self, fields: object) -> FormatError:
        hint = "the checkpoint belongs to another source, or to a later version; use a new checkpointLocation"
        error = FormatError("checkpoint", f"{fields!r} is not a position in a {self.what}", hint=hint)
        error.add_note(hint)
        return error
