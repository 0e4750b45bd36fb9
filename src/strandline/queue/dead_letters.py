"""Dead letters: records of a journal of their own, with the message as it was, and who gave up on it, and when.

A dead letter's value is the message's value, and its timestamp the time of death. Its headers are JSON: `group`,
`offset`, `deliveries`, and the message's own `key` and `headers` in base64, or null.

Invariants: a letter is durable when `add` returns; letters are kept for ever, whatever retention the messages have; a
letter has room for every message that the queue has room for.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace

from strandline.errors import FormatError, OffsetsLost
from strandline.events import Events
from strandline.journal import WRITTEN, Journal, JournalConfig, Record
from strandline.queue.events import DeadLettersLost
from strandline.queue.storage import DeadLetter

_APPEND_BYTES_MOST = 1024**3
_FIELDS_BYTES = 4096
"""More than a letter needs beside its message."""


def letters_config(config: JournalConfig) -> JournalConfig:
    """Return how the journal of dead letters behaves, beside a journal of messages with `config`."""
    # Base64 takes four bytes for three, of a key and of headers that may each be as large as a record may be.
    return replace(
        config,
        record_bytes_max=3 * config.record_bytes_max + _FIELDS_BYTES,
        append_bytes_max=min(3 * config.append_bytes_max + _FIELDS_BYTES, _APPEND_BYTES_MOST),
        retain_bytes=None,
        retain_age_s=None,
    )


def format_letter(letter: DeadLetter) -> bytes:
    """Return what stands in the headers column of a dead letter."""
    fields = {
        "group": letter.group,
        "offset": letter.offset,
        "deliveries": letter.deliveries,
        "key": _text(letter.key),
        "headers": _text(letter.headers),
    }
    return json.dumps(fields).encode()


def parse_letter(record: Record) -> DeadLetter:
    """Return the dead letter in a record; `FormatError` where it is something else."""
    try:
        fields = json.loads(record.headers or b"")
        group, offset, deliveries = fields["group"], fields["offset"], fields["deliveries"]
        key, headers = _bytes(fields["key"]), _bytes(fields["headers"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _not_a_letter(record, str(error)) from error
    if not isinstance(group, str) or not _is_count(offset, 0) or not _is_count(deliveries, 1):
        raise _not_a_letter(record, "its fields are not possible")
    return DeadLetter(group, offset, record.value, key, headers, deliveries, record.timestamp_ns or 0)


def _not_a_letter(record: Record, problem: str) -> FormatError:
    return FormatError(f"dead letter {record.offset}", f"not a dead letter: {problem}")


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and least <= value < 2**63


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


class DeadLetters:
    """The journal of dead letters. One thread at a time adds; any may read."""

    def __init__(self, journal: Journal, events: Events) -> None:
        self._journal = journal
        self._events = events

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Append letters, and return when they are durable."""
        for letter in letters:
            self._journal.append(
                [letter.value],
                headers=[format_letter(letter)],
                timestamps=[letter.dead_ns],
                durability=WRITTEN,
            )
        if letters:
            self._journal.sync()

    @property
    def count(self) -> int:
        """How many letters there are."""
        return self._journal.durable_offset - self._journal.first_offset

    def read(self) -> Iterator[DeadLetter]:
        """Yield all letters, oldest first; those that damage took are passed over, and told by an event."""
        offset = self._journal.first_offset
        while offset < self._journal.durable_offset:
            try:
                for batch in self._journal.scan(offset):
                    yield from map(parse_letter, batch.records())
                    offset = batch.next_offset
            except OffsetsLost as lost:
                self._events.emit(DeadLettersLost(lost.offset, lost.resume_at))
                offset = lost.resume_at
