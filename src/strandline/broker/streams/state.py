"""The state of a stream without its bytes, and its changes. Pure.

Publishing and replaying the log go through the same methods, so that a crash changes nothing.

Invariants: time never goes back, whatever the clock does; every change ends within the limits; each removed message is
reported once, in the result of the change.
"""

from dataclasses import dataclass, field

import numpy as np

from strandline.broker.api.config import StreamConfig
from strandline.broker.streams.admission import ROLLUP_ALL, ROLLUP_SUBJECT
from strandline.broker.streams.arrays import Flags, Ids, Places, Times, Words, distinct
from strandline.broker.streams.dedupe import Dedupe
from strandline.broker.streams.expiry import Expiry
from strandline.broker.streams.index import Index
from strandline.broker.streams.limits import has_limits, needs_rows, over_subject, over_total
from strandline.broker.streams.losses import Losses
from strandline.broker.streams.records import Position
from strandline.wire import has_wildcard

FEW = 24
"""Up to so many rows a plain loop is quicker than arrays."""
_NO_WORDS: Words = np.zeros(0, np.uint64)
_NO_IDS: Ids = np.zeros(0, np.uint32)


@dataclass(frozen=True, slots=True)
class Removed:
    """Messages that went, in order: their sequences and the numbers of their subjects."""

    sequences: Words = field(default_factory=lambda: _NO_WORDS)
    subjects: Ids = field(default_factory=lambda: _NO_IDS)
    by_purge: bool = False

    def __len__(self) -> int:
        return len(self.sequences)


class RemovalBatch:
    """Collects the removals of one change; `moved` are those that need a record in the log."""

    def __init__(self) -> None:
        self._sequences: list[Words] = []
        self._subjects: list[Ids] = []
        self._moved: list[Words] = []
        self.count = 0
        self.by_purge = False

    def take(self, index: Index, rows: Places) -> None:
        """Take rows out of the index."""
        if not len(rows):
            return
        sequences = index.rows.sequence[rows]
        self._sequences.append(sequences)
        self._subjects.append(index.rows.subject[rows])
        moved = index.rows.moved[rows]
        if moved.any():
            self._moved.append(sequences[moved])
        index.remove(rows)
        self.count += len(rows)

    def last(self) -> Words:
        """Return the sequences that were removed last."""
        return self._sequences[-1] if self._sequences else _NO_WORDS

    def removed(self) -> Removed:
        """Return everything that went, in the order of sequences."""
        if not self._sequences:
            return Removed()
        if len(self._sequences) == 1:
            return Removed(self._sequences[0], self._subjects[0], self.by_purge)
        sequences, subjects = np.concatenate(self._sequences), np.concatenate(self._subjects)
        order = np.argsort(sequences, kind="stable")
        return Removed(sequences[order], subjects[order], self.by_purge)

    def moved(self) -> Words:
        """Return the removals that need a record in the log, in order."""
        return np.sort(np.concatenate(self._moved)) if self._moved else _NO_WORDS


class State:
    """The state of a stream."""

    def __init__(self, config: StreamConfig, created_ns: int) -> None:
        self.created_ns = created_ns
        self.index = Index()
        self.dedupe = Dedupe()
        self.expiry = Expiry()
        self.last_id = b""
        self.origins: dict[bytes, Position] = {}
        """The position of each source."""
        self.losses = Losses()
        self.now_ns = created_ns
        self.config = config
        self._has_limits = has_limits(config)
        self.needs_rows = needs_rows(config)
        """Whether messages must be added one by one."""
        self.configs: list[tuple[int, bytes]] = []
        """Every configuration that the log knows of, with the place from which it holds."""
        self.index.last_seq = max(0, config.first_seq - 1)

    def set_config(self, config: StreamConfig, removals: RemovalBatch) -> None:
        """Change the configuration, and remove messages beyond its limits."""
        self.config = config
        self._has_limits = has_limits(config)
        self.needs_rows = needs_rows(config)
        self.enforce(np.arange(len(self.index.subjects), dtype=np.uint32), removals)

    def config_at(self, place: int) -> bytes:
        """Return the configuration that held at a place of the log."""
        return next(json for start, json in reversed(self.configs) if start <= place)

    def forget_configs(self, place: int) -> None:
        """Keep only the configurations from a place of the log on."""
        later = [entry for entry in self.configs if entry[0] > place]
        self.configs = [(place, self.config_at(place)), *later]

    def tick(self, now_ns: int) -> int:
        """Return the time of a change: now, or the time of the last one if the clock went back."""
        self.now_ns = max(self.now_ns, now_ns)
        return self.now_ns

    def squeeze(self) -> None:
        """Drop dead rows, between changes: numbers of subjects may change."""
        if self.index.squeeze() and self.expiry.never:
            known = np.fromiter(self.expiry.never, np.uint64, len(self.expiry.never))
            self.expiry.never = set(known[self.index.rows_of(known) >= 0].tolist())

    # Additions.

    def append(self, numbers: Ids, sizes: Ids, place: int, removals: RemovalBatch) -> int:
        """Add messages without headers of ours, at the present time; return the first sequence."""
        if self.needs_rows:
            first = self.index.last_seq + 1
            for at, (number, size) in enumerate(zip(numbers.tolist(), sizes.tolist(), strict=True)):
                self.append_one(number, size, place + at, removals)
            return first
        first = self.index.append(numbers, sizes, place, self.now_ns)
        self.last_id = b""
        if self._has_limits:
            self.enforce(numbers, removals)
        return first

    def append_one(self, number: int, size: int, place: int, removals: RemovalBatch) -> int:
        """Add one message without headers of ours, without the cost of arrays; return its sequence."""
        index = self.index
        old = index.subjects.last_at[number]
        sequence = index.append_one(number, size, place, self.now_ns)
        self.last_id = b""
        if self._has_limits:
            config = self.config
            if old and config.max_msgs_per_subject == 1 and index.subjects.count_at[number] == 2:  # noqa: PLR2004
                removals.take(index, np.array([index.row_of(old)], np.int64))
            elif 0 < config.max_msgs_per_subject < index.subjects.count_at[number]:
                removals.take(index, over_subject(index, config, np.array([number], np.uint32)))
            if config.max_msgs > 0 or config.max_bytes > 0:
                removals.take(index, over_total(index, config))
        return sequence

    def append_special(
        self,
        number: int,
        size: int,
        place: int,
        removals: RemovalBatch,
        *,
        identifier: bytes,
        rollup: bytes,
        ttl_s: int,
    ) -> int:
        """Add one message with the effect of its headers; return its sequence."""
        sequence = self.append_one(number, size, place, removals)
        self.note(sequence, self.now_ns, identifier, ttl_s)
        self.last_id = identifier
        self.roll_up(number, sequence, rollup, removals)
        return sequence

    def note(self, sequence: int, time_ns: int, identifier: bytes, ttl_s: int) -> None:
        """Remember the identifier and the time to live of a message."""
        if identifier:
            self.dedupe.add(identifier, sequence, time_ns)
        if ttl_s:
            self.expiry.add(sequence, time_ns, ttl_s)

    def roll_up(self, number: int, sequence: int, rollup: bytes, removals: RemovalBatch) -> None:
        """Remove the messages before one: on its subject, on matching subjects, or all."""
        index = self.index
        subject = index.subjects.names[number].decode(errors="surrogateescape")
        if rollup == ROLLUP_ALL:
            removals.take(index, index.live_rows(index.first_row, index.row_from(sequence)))
        elif rollup == ROLLUP_SUBJECT and has_wildcard(subject):  # which clients may publish to
            matching = index.subjects.filter((subject,))
            removals.take(index, index.live_rows(index.first_row, index.row_from(sequence), matching))
        elif rollup == ROLLUP_SUBJECT and index.subjects.count_at[number] > 1:
            older = index.sequences_of(number)
            removals.take(index, index.rows_of(older[older < sequence]))

    def skip(self, last_seq: int) -> None:
        """Use up sequences for which there is no message."""
        self.index.last_seq = max(self.index.last_seq, last_seq)
        self.index.last_time = self.now_ns

    def place(
        self, sequences: Words, places: Places, numbers: Ids, sizes: Ids, times: Times, removals: RemovalBatch
    ) -> None:
        """Add messages under sequences of their own, which rise and are above all others, as mirrors do."""
        step = 1 if self.needs_rows else max(1, len(sequences))
        for at in range(0, len(sequences), step):
            part = slice(at, at + step)
            self.index.add(sequences[part], places[part], numbers[part], sizes[part], times[part])
            self.enforce(numbers[part], removals)
        self.last_id = b""
        self.tick(self.index.last_time)

    # Removals.

    def enforce(self, numbers: Ids, removals: RemovalBatch) -> None:
        """Remove messages beyond the limits, on these subjects and in total."""
        if not self._has_limits:
            return
        index, config = self.index, self.config
        removals.take(index, over_subject(index, config, numbers))
        if config.max_msgs > 0 or config.max_bytes > 0:
            removals.take(index, over_total(index, config))

    def expire(self, removals: RemovalBatch) -> Places:
        """Remove expired messages; return their rows, which are dead now."""
        rows = self.expiry.due(self.index, self.now_ns, self.config.max_age)
        removals.take(self.index, rows)
        if len(self.dedupe):
            self.dedupe.trim(self.now_ns, self.config.duplicate_window)
        return rows

    def remove(self, sequences: Words, removals: RemovalBatch) -> None:
        """Remove messages; sequences without a message are ignored."""
        rows = self.index.rows_of(sequences)
        removals.take(self.index, distinct(rows[rows >= 0]))

    def is_live(self, sequences: Words) -> Flags:
        """Tell which sequences have a message."""
        return self.index.rows_of(sequences) >= 0
