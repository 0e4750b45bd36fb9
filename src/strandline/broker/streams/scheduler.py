"""The schedules of a stream: messages that publish others at a time.

A message with `Nats-Schedule` is a schedule, named by its subject. Its messages have `Nats-Scheduler`, the name of the
schedule, and `Nats-Schedule-Next`: the time of the next message, or `purge` if it was the last and the schedule is
removed.

Invariants: schedules and their times follow from the messages of the stream. A scheduled message and its effect on the
schedule are one change, so a crash neither repeats nor loses it. One message makes up for all times that passed while
the stream was closed.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strandline.broker.api.codes import ApiError
from strandline.broker.api.schedules import PURGE, OnceSchedule, Schedule, parse_schedule
from strandline.broker.api.times import format_time, parse_time
from strandline.broker.streams import headers as names
from strandline.broker.streams.admission import Draft
from strandline.broker.streams.headers import Special, special_headers, with_headers, without_header
from strandline.broker.streams.message_reader import MessageReader
from strandline.broker.streams.records import Gone
from strandline.broker.streams.write_batch import WriteBatch

READ_COUNT = 4096
Read = Callable[[int], tuple[bytes, bytes]]
"""Headers and payload of a message, by its sequence."""


@dataclass(slots=True)
class Planned:
    """A schedule, where it is stored, and when it is due."""

    sequence: int
    schedule: Schedule
    due_ns: int


class Scheduler:
    """The schedules of one stream, by subject."""

    def __init__(self) -> None:
        self._planned: dict[bytes, Planned] = {}
        self._done: list[int] = []
        """Schedules that have had their day and are still there."""

    def recover(self, reader: MessageReader) -> None:
        """Find the schedules among the messages of a stream that was opened."""
        sequences = reader.next_sequences(reader.filter(()), 0, 2**62)
        for at in range(0, len(sequences), READ_COUNT):
            found = reader.read(sequences[at : at + READ_COUNT])
            rows = zip(found.sequences.tolist(), found.times.tolist(), found.subjects, found.headers, strict=True)
            for sequence, time_ns, subject, block in rows:
                if names.SCHEDULE in block:
                    self.note(subject, sequence, special_headers(block), time_ns)

    def note(self, subject: bytes, sequence: int, special: Special, time_ns: int) -> None:
        """Record a stored message, if it is a valid schedule or a valid message of one."""
        with contextlib.suppress(ValueError):  # messages of another stream are kept, valid or not
            self._note(subject, sequence, special, time_ns)

    def _note(self, subject: bytes, sequence: int, special: Special, time_ns: int) -> None:
        pattern, owner = special.get(names.SCHEDULE), special.get(names.SCHEDULER)
        if pattern and special.get(names.SCHEDULE_TARGET):
            schedule = parse_schedule(pattern.decode(), special.get(names.SCHEDULE_ZONE, b"").decode())
            due_ns = schedule.next_ns(time_ns)
            if due_ns is not None:
                self._planned[subject] = Planned(sequence, schedule, due_ns)
        elif owner in self._planned:
            following = special.get(names.SCHEDULE_NEXT, b"").decode(errors="replace")
            if following == PURGE:
                self._done.append(self._planned.pop(owner).sequence)
            else:
                self._planned[owner].due_ns = parse_time(following)

    def next_ns(self) -> int | None:
        """Return when `fire` has something to do."""
        if self._done:
            return 0
        return min((planned.due_ns for planned in self._planned.values()), default=None)

    def fire(self, write_batch: WriteBatch, read: Read, publish: Callable[[Draft], object]) -> None:
        """Publish messages that are due, and remove finished schedules; `read` returns a message by its sequence."""
        due = [subject for subject, planned in self._planned.items() if planned.due_ns <= write_batch.time_ns]
        for subject in sorted(due, key=lambda subject: self._planned[subject].due_ns):
            planned = self._planned[subject]
            if not self._is_there(write_batch, planned.sequence):
                del self._planned[subject]
                continue
            draft = self._draft(write_batch, subject, planned, read)
            if draft is not None:
                with contextlib.suppress(ApiError):  # for example, a full stream
                    publish(draft)
            if self._planned.get(subject) is planned and planned.due_ns <= write_batch.time_ns:
                self._go_on(subject, planned, write_batch.time_ns)
        self._remove_done(write_batch)

    def _go_on(self, subject: bytes, planned: Planned, now_ns: int) -> None:
        """Go on although nothing could be published."""
        following = None if isinstance(planned.schedule, OnceSchedule) else planned.schedule.next_ns(now_ns)
        if following is None:
            self._done.append(self._planned.pop(subject).sequence)
        else:
            planned.due_ns = following

    def _draft(self, write_batch: WriteBatch, subject: bytes, planned: Planned, read: Read) -> Draft | None:
        """Return the message of a schedule, None if it copies a message that does not exist."""
        headers, payload = read(planned.sequence)
        special = special_headers(headers)
        source = special.get(names.SCHEDULE_SOURCE)
        if source:
            last = _last_of(write_batch, source)
            if not last:
                return None
            headers, payload = read(last)
        following = (
            None if isinstance(planned.schedule, OnceSchedule) else planned.schedule.next_ns(write_batch.time_ns)
        )
        pairs = [
            (names.SCHEDULER, subject),
            (names.SCHEDULE_NEXT, (PURGE if following is None else format_time(following)).encode()),
        ]
        for asked, name in ((names.SCHEDULE_TTL, names.TTL), (names.SCHEDULE_ROLLUP, names.ROLLUP)):
            if special.get(asked):
                pairs.append((name, special[asked]))
        block = with_headers(without_header(headers, names.MARK), pairs)
        return Draft(special[names.SCHEDULE_TARGET], block, payload, special_headers(block))

    def _is_there(self, write_batch: WriteBatch, sequence: int) -> bool:
        return bool(write_batch.state.is_live(np.array([sequence], np.uint64))[0])

    def _remove_done(self, write_batch: WriteBatch) -> None:
        if not self._done:
            return
        done, self._done = np.array(sorted(self._done), np.uint64), []
        live = done[write_batch.state.is_live(done)]
        if len(live):
            write_batch.state.remove(live, write_batch.removals)
            write_batch.control(Gone(write_batch.time_ns, write_batch.state.index.last_seq, live))


def _last_of(write_batch: WriteBatch, subject: bytes) -> int:
    subjects = write_batch.state.index.subjects
    number = subjects.find(subject)
    return 0 if number is None else int(subjects.last_at[number])
