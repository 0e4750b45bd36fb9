"""Losses of a stream by damage: parts of its log that a repair gave up, and the messages in them.

    strandline-stream-lost 1 crc32c=0a1b2c3d
    {"identity": "…", "parts": [[first place, end place, sequence before, sequence after], …],
     "sequences": [[first, last], …], "bytes": 512, "told": false}

`parts` has the sequence after each part, so that the rest of the log is read the same way every time. `sequences` and
`bytes` are the lost messages whose loss is not accepted.

Invariants: the file is written before the stream is read; a part never changes, and stays as long as the log has
it. Pure.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from strandline.broker.api.responses import LostMessages
from strandline.broker.streams.arrays import Words
from strandline.broker.streams.records import from_ranges, to_ranges
from strandline.checksums import crc32c

LOST_NAME = "lost"
VERSION = 1
_FIRST_WORD = "strandline-stream-lost"
_NO_WORDS: Words = np.zeros(0, np.uint64)


class LostPlaces(NamedTuple):
    """Places of the log whose records are lost, and their approximate size."""

    first: int
    end: int
    size: int


class LostPart(NamedTuple):
    """A part of the log that is lost, with the last sequence before it and the last sequence in it."""

    first: int
    end: int
    before: int
    after: int


@dataclass(slots=True)
class Losses:
    """The losses of a stream."""

    parts: dict[int, LostPart] = field(default_factory=dict)
    """By the first place."""
    sequences: Words = field(default_factory=lambda: _NO_WORDS)
    """The messages that are lost and were not accepted, in order."""
    bytes: int = 0
    is_told: bool = True
    """Whether an advisory was sent."""
    is_new: bool = False
    """Whether something was added that the file does not say."""

    def add(self, sequences: Words, size: int) -> None:
        """Note that messages are lost."""
        self.sequences = np.union1d(self.sequences, sequences)
        self.bytes += size if len(sequences) else 0
        self.is_new = True
        self.is_told = self.is_told and not len(sequences)

    def without(self, sequences: Words, place: int) -> "Losses":
        """Return the remaining losses after some were accepted, and after the log begins at a place."""
        left = np.setdiff1d(self.sequences, sequences)
        parts = {first: part for first, part in self.parts.items() if part.end > place}
        return Losses(parts, left, self.bytes if len(left) else 0, self.is_told)

    def shown(self) -> LostMessages | None:
        """Return the messages that are lost as they are shown, None if there are none."""
        return LostMessages(tuple(self.sequences.tolist()), self.bytes) if len(self.sequences) else None


def format_losses(losses: Losses, identity: bytes) -> bytes:
    """Return the file."""
    body = json.dumps(
        {
            "identity": identity.hex(),
            "parts": [list(part) for part in losses.parts.values()],
            "sequences": to_ranges(losses.sequences).tolist(),
            "bytes": losses.bytes,
            "told": losses.is_told,
        }
    ).encode()
    return f"{_FIRST_WORD} {VERSION} crc32c={crc32c(body):08x}\n".encode() + body + b"\n"


def parse_losses(data: bytes, identity: bytes) -> Losses | None:
    """Return the losses in a file; None if it is damaged, of another journal or of a later version."""
    first, _, body = data.partition(b"\n")
    body = body.removesuffix(b"\n")
    if first != f"{_FIRST_WORD} {VERSION} crc32c={crc32c(body):08x}".encode():
        return None
    fields: dict[str, Any] = json.loads(body)
    if fields["identity"] != identity.hex():
        return None
    parts = {part[0]: LostPart(*part) for part in fields["parts"]}
    ranges = np.array(fields["sequences"], np.uint64).reshape(-1, 2)
    return Losses(parts, from_ranges(ranges), fields["bytes"], fields["told"])


def candidates(parts: Iterable[LostPart]) -> Words:
    """Return the sequences that may have stood in parts: no more of each than the part has places."""
    found = [
        np.arange(part.before + 1, min(part.after, part.before + part.end - part.first) + 1, dtype=np.uint64)
        for part in parts
    ]
    return np.unique(np.concatenate(found)) if found else _NO_WORDS
