"""Admission of messages with headers: the checks of nats-server, in its order.

The order: sealed, size, batch, size of headers, counter, expected stream, time to live disabled, expected last sequence
of the subject, expected last sequence, schedule, source, duplicate, expected last identifier, roll-up, counter value,
time to live, limits.

Invariants: pure but for reading the last message of a counter; it changes nothing. The publisher receives the first
error.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.broker.api import codes
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import StreamConfig
from strandline.broker.streams import headers as names
from strandline.broker.streams.counters import DIGITS_MAX as COUNTER_DIGITS_MAX
from strandline.broker.streams.counters import parse_counter, parse_sources
from strandline.broker.streams.dedupe import Dedupe
from strandline.broker.streams.headers import Special
from strandline.broker.streams.index import Index
from strandline.broker.streams.limits import refusal
from strandline.broker.streams.schedule_checks import check_schedule
from strandline.broker.streams.sizes import stored_size
from strandline.clock import NS_PER_S
from strandline.wire import has_wildcard

HEADERS_MAX = 65_535
ROLLUP_SUBJECT, ROLLUP_ALL = b"sub", b"all"
_FORBIDDEN_FOR_COUNTERS = (
    names.ROLLUP,
    names.EXPECTED_STREAM,
    names.EXPECTED_LAST_SEQ,
    names.EXPECTED_LAST_SUBJECT_SEQ,
    names.EXPECTED_LAST_SUBJECT,
    names.EXPECTED_LAST_ID,
)


@dataclass(slots=True)
class Draft:
    """A message as it came, and as it will be stored."""

    subject: bytes
    headers: bytes
    payload: bytes
    special: Special
    identifier: bytes = b""
    rollup: bytes = b""
    ttl_s: int = 0
    counter: str = ""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message was stored before, under this sequence."""

    sequence: int


@dataclass(slots=True)
class BatchSoFar:
    """The effect of the earlier messages of an atomic batch."""

    subjects: set[bytes] = field(default_factory=set)
    identifiers: set[bytes] = field(default_factory=set)
    counters: dict[bytes, int] = field(default_factory=dict)
    count: int = 0

    def add(self, draft: Draft) -> None:
        """Go on to the next message."""
        self.subjects.add(draft.subject)
        if draft.identifier:
            self.identifiers.add(draft.identifier)
        if draft.counter:
            self.counters[draft.subject] = int(draft.counter)
        self.count += 1


@dataclass(slots=True)
class Checker:
    """The parts of a stream that a decision needs."""

    config: StreamConfig
    index: Index
    dedupe: Dedupe
    read_last: Callable[[int], tuple[bytes, bytes]]
    """Return headers and payload of the last message of a subject, given by number."""
    last_id: bytes = b""

    def check_size(self, draft: Draft) -> None:
        """Refuse a message for reasons that no header can change."""
        config = self.config
        if config.sealed:
            raise codes.STREAM_SEALED.error()
        if 0 <= config.max_msg_size < len(draft.headers) + len(draft.payload):
            raise codes.STREAM_MESSAGE_EXCEEDS_MAXIMUM.error()

    def check(self, draft: Draft, now_ns: int, batch: BatchSoFar | None = None) -> Duplicate | None:
        """Fill in how a message is to be stored; return where it is already, or raise `ApiError`."""
        special = draft.special
        if len(draft.headers) > HEADERS_MAX:
            raise codes.STREAM_HEADER_EXCEEDS_MAXIMUM.error()
        if special:
            found = self._check_special(draft, special, now_ns, batch)
            if found is not None:
                return found
        self._check_counter(draft, batch)
        draft.ttl_s = self._ttl(special.get(names.TTL, b""))
        self._check_limits(draft)
        return None

    def _check_special(self, draft: Draft, special: Special, now_ns: int, batch: BatchSoFar | None) -> Duplicate | None:
        self._check_features(special)
        self._check_subject_sequence(draft.subject, special, batch)
        expected = special.get(names.EXPECTED_LAST_SEQ)
        if expected:
            last = self.index.last_seq + (batch.count if batch is not None else 0)
            if names.parse_number(expected) != last:
                raise codes.STREAM_WRONG_LAST_SEQUENCE.with_text(seq=last)
        if special.get(names.SCHEDULE) or special.get(names.SCHEDULER):
            check_schedule(draft.subject, special, self.config)
        if special.get(names.SCHEDULE) and not special.get(names.ROLLUP):
            special[names.ROLLUP] = ROLLUP_SUBJECT
            draft.headers = names.with_headers(draft.headers, [(names.ROLLUP, ROLLUP_SUBJECT)])
        if special.get(names.STREAM_SOURCE):
            raise codes.MESSAGE_SOURCE_HDR_NOT_ALLOWED.error()
        found = self._check_identifiers(draft, special, now_ns, batch)
        if found is None:
            self._check_rollup(draft, special, batch)
        return found

    def _check_features(self, special: Special) -> None:
        config = self.config
        if special.get(names.INCREMENT):
            if not config.allow_msg_counter:
                raise codes.MESSAGE_INCR_DISABLED.error()
            if any(special.get(name) for name in _FORBIDDEN_FOR_COUNTERS):
                raise codes.MESSAGE_INCR_INVALID.error()
        expected = special.get(names.EXPECTED_STREAM)
        if expected and expected != config.name.encode():
            raise codes.STREAM_NOT_MATCH.error()
        if not config.allow_msg_ttl and _has_valid_ttl(special):
            raise codes.MESSAGE_TTL_DISABLED.error()

    def _check_subject_sequence(self, subject: bytes, special: Special, batch: BatchSoFar | None) -> None:
        expected = special.get(names.EXPECTED_LAST_SUBJECT_SEQ)
        other = special.get(names.EXPECTED_LAST_SUBJECT, b"")
        if not expected:
            if other:
                raise codes.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID.error()
            return
        asked = other or subject
        if batch is not None and asked in batch.subjects:
            raise codes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.error()
        last = self._last_of(asked)
        if names.parse_number(expected) != last:
            raise codes.STREAM_WRONG_LAST_SEQUENCE.with_text(seq=last)

    def _last_of(self, subject: bytes) -> int:
        text = subject.decode(errors="surrogateescape")
        subjects = self.index.subjects
        if has_wildcard(text):
            found = subjects.last[subjects.filter((text,)).numbers()]
            return int(found.max(initial=0))
        number = subjects.find(subject)
        return 0 if number is None else int(subjects.last_at[number])

    def _check_identifiers(
        self, draft: Draft, special: Special, now_ns: int, batch: BatchSoFar | None
    ) -> Duplicate | None:
        draft.identifier = special.get(names.MSG_ID, b"")
        if draft.identifier:
            found = self.dedupe.find(draft.identifier, now_ns, self.config.duplicate_window)
            if batch is not None and (found is not None or draft.identifier in batch.identifiers):
                raise codes.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE.error()
            if found is not None:
                return Duplicate(found)
        expected = special.get(names.EXPECTED_LAST_ID)
        if expected:
            if batch is not None:
                raise codes.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH.with_text(header=names.EXPECTED_LAST_ID.decode())
            if expected != self.last_id:
                raise codes.STREAM_WRONG_LAST_MSG_ID.with_text(id=self.last_id.decode(errors="replace"))
        return None

    def _check_rollup(self, draft: Draft, special: Special, batch: BatchSoFar | None) -> None:
        asked = special.get(names.ROLLUP)
        if not asked:
            return
        if not self.config.allow_rollup_hdrs or self.config.deny_purge:
            raise _rollup("rollup not permitted")
        draft.rollup = asked.lower()
        if draft.rollup not in (ROLLUP_SUBJECT, ROLLUP_ALL):
            raise _rollup(f'rollup value invalid: "{draft.rollup.decode(errors="replace")}"')
        if batch is None:
            return
        if draft.rollup == ROLLUP_ALL and batch.count:
            raise _rollup("batch rollup all invalid")
        if draft.rollup == ROLLUP_SUBJECT and draft.subject in batch.subjects:
            raise _rollup("batch rollup sub invalid")

    def _ttl(self, text: bytes) -> int:
        if not text:
            return 0
        try:
            ttl_s = names.parse_ttl(text)
        except ValueError:
            raise codes.MESSAGE_TTL_INVALID.error() from None
        return lifted_ttl(self.config, ttl_s) if self.config.allow_msg_ttl else 0

    def _check_counter(self, draft: Draft, batch: BatchSoFar | None) -> None:
        if not self.config.allow_msg_counter:
            return
        increment = draft.special.get(names.INCREMENT)
        if not increment:
            raise codes.MESSAGE_INCR_MISSING.error()
        if draft.payload:
            raise codes.MESSAGE_INCR_PAYLOAD.error()
        value = names.parse_number(increment[increment[:1] in (b"+", b"-") :], COUNTER_DIGITS_MAX)
        if value is None:
            raise codes.MESSAGE_INCR_INVALID.error()
        value = self._counter_before(draft, batch) + (-value if increment.startswith(b"-") else value)
        draft.counter = str(value)
        draft.payload = b'{"val":"%s"}' % draft.counter.encode()

    def _counter_before(self, draft: Draft, batch: BatchSoFar | None) -> int:
        if batch is not None and draft.subject in batch.counters:
            return batch.counters[draft.subject]
        number = self.index.subjects.find(draft.subject)
        if number is None or not self.index.subjects.last_at[number]:
            return 0
        headers, payload = self.read_last(number)
        try:
            sources = names.special_headers(headers).get(names.COUNTER_SOURCES)
            if sources:
                parse_sources(sources)
                draft.headers = names.with_headers(draft.headers, [(names.COUNTER_SOURCES, sources)])
            return parse_counter(payload)
        except ValueError:
            raise codes.MESSAGE_COUNTER_BROKEN.error() from None

    def _check_limits(self, draft: Draft) -> None:
        number = self.index.subjects.number(draft.subject)
        size = stored_size(self.config.storage, draft.subject, draft.headers, draft.payload)
        full = refusal(self.index, self.config, number, size)
        if full is not None:
            raise codes.STREAM_STORE_FAILED.with_text(err=full)


def lifted_ttl(config: StreamConfig, ttl_s: int) -> int:
    """Return a time to live that is not shorter than a delete marker's, so that no marker is missed."""
    marker_s = config.subject_delete_marker_ttl // NS_PER_S
    return max(ttl_s, marker_s) if ttl_s > 0 and marker_s and config.max_msgs_per_subject != 1 else ttl_s


def _has_valid_ttl(special: Special) -> bool:
    try:
        return names.parse_ttl(special.get(names.TTL, b"")) != 0
    except ValueError:
        return False


def _rollup(problem: str) -> ApiError:
    return codes.STREAM_ROLLUP_FAILED.with_text(err=problem)
