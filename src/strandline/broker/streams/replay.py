"""Replay of a stream's log: the same changes, in the same order, through the same state.

Messages are gathered and added many at a time: in a run without removals it makes no difference when the limits are
enforced, because the oldest are always removed first. A removal, a roll-up, a time to live or a change of the
configuration ends a run.

Invariants: after a replay the state is that of the last appended record, whatever was compacted meanwhile. Of a lost
part of the log only the used sequences are known.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.schema import from_json
from strandline.broker.streams import headers as names
from strandline.broker.streams.admission import lifted_ttl
from strandline.broker.streams.arrays import Ids, Places, Times, Words, distinct
from strandline.broker.streams.headers import special_headers
from strandline.broker.streams.losses import LostPart, LostPlaces
from strandline.broker.streams.records import Config, Facts, Gone, Origins, Placed, Sequence, parse_control
from strandline.broker.streams.sizes import FILE_OVERHEAD, HEADER_OVERHEAD
from strandline.broker.streams.state import RemovalBatch, State
from strandline.errors import Damaged
from strandline.journal import Batch

STRETCH_MAX = 1 << 18
_NO_WORDS: Words = np.zeros(0, np.uint64)


class _Gathered:
    """Rows to be added, in parts."""

    def __init__(self) -> None:
        self._parts: list[tuple[Words, Places, Ids, Ids, Times]] = []
        self.count = 0

    def add(self, part: tuple[Words, Places, Ids, Ids, Times]) -> None:
        self._parts.append(part)
        self.count += len(part[0])

    def take(self) -> tuple[Words, Places, Ids, Ids, Times]:
        parts, self._parts, self.count = self._parts, [], 0
        if len(parts) == 1:
            return parts[0]
        sequences, places, numbers, sizes, times = (np.concatenate(column) for column in zip(*parts, strict=True))
        return sequences, places, numbers, sizes, times


class _Columns:
    """The columns of one batch of the journal."""

    def __init__(self, batch: Batch) -> None:
        self.base = batch.base_offset
        self.keys = batch.keys() or [b""] * len(batch)
        self.headers = batch.headers()
        times = batch.timestamps()
        self.times: Times = times if times is not None else np.zeros(len(batch), np.int64)
        self._batch = batch
        lengths = np.array(list(map(len, self.keys)), np.uint32)
        self.controls = np.flatnonzero(lengths == 0).tolist()
        arrow = batch.to_arrow().column("value")
        offsets = np.frombuffer(arrow.buffers()[1], np.int32, len(batch) + 1)
        self.sizes: Ids = np.diff(offsets).astype(np.uint32) + lengths + np.uint32(FILE_OVERHEAD)
        self.special: list[int] = []
        if self.headers is not None:
            extra = np.array(list(map(len, self.headers)), np.uint32)
            self.sizes += extra + np.where(extra > 0, np.uint32(HEADER_OVERHEAD), np.uint32(0))
            self.special = [at for at, block in enumerate(self.headers) if names.MARK in block]

    def control(self, at: int) -> bytes:
        """Return the value of a control record."""
        offset = self.base + at
        return self._batch.clip(offset, offset + 1).values()[0]


class Replay:
    """Brings a state up to the end of the log, batch by batch."""

    def __init__(
        self,
        state: State,
        path: str = "stream",
        parts: Mapping[int, LostPart] | None = None,
        measure: Callable[[LostPlaces, int], LostPart] | None = None,
    ) -> None:
        self._state = state
        self._path = path
        self.parts: dict[int, LostPart] = dict(parts or {})
        """Every lost part, by its first place; unknown ones are measured."""
        self._measure = measure
        self.gone: list[Words] = []
        """Messages that were removed by a client, or by an acknowledgement, after a loss."""
        self._new = _Gathered()
        self._moved = _Gathered()
        self._dropped: list[Words] = []
        self._last_seq = state.index.last_seq
        self._placed = _NO_WORDS
        self._placed_moved = False
        self._placed_dues: Times | None = None

    def run(self, pieces: Iterable[Batch | LostPlaces]) -> None:
        """Read everything."""
        for piece in pieces:
            if isinstance(piece, LostPlaces):
                self._pass_over(piece)
                continue
            columns = _Columns(piece)
            at = 0
            for control in columns.controls:
                self._rows(columns, at, control)
                self._control(columns.control(control), columns.base + control, int(columns.times[control]))
                at = control + 1
            self._rows(columns, at, len(columns.keys))
            if self._new.count + self._moved.count > STRETCH_MAX:
                self._flush()
        self._flush()

    def _pass_over(self, lost: LostPlaces) -> None:
        """Go on behind a part that is lost, with the sequence that comes then."""
        self._flush()
        self._placed, self._placed_dues = _NO_WORDS, None
        if self._measure is not None and lost.first not in self.parts:
            self.parts[lost.first] = self._measure(lost, self._last_seq)
        self._reach(self.parts[lost.first].after)
        self._state.last_id = b""

    # Messages.

    def _rows(self, columns: _Columns, start: int, stop: int) -> None:
        if start < stop and len(self._placed):
            start = self._take_placed(columns, start, stop)
        if start >= stop:
            return
        special = [at for at in columns.special if start <= at < stop] if columns.special else []
        for at in special:
            self._plain(columns, start, at)
            self._special(columns, at)
            start = at + 1
        self._plain(columns, start, stop)

    def _take_placed(self, columns: _Columns, start: int, stop: int) -> int:
        count = min(len(self._placed), stop - start)
        sequences, self._placed = self._placed[:count], self._placed[count:]
        dues = None
        if self._placed_dues is not None:
            dues, self._placed_dues = self._placed_dues[:count], self._placed_dues[count:]
        stop = start + count
        part = self._part(columns, start, stop, sequences)
        (self._moved if self._placed_moved else self._new).add(part)
        if not self._placed_moved:
            self._last_seq = int(sequences[-1])
            self._state.last_id = b""
        for at in columns.special:
            if start <= at < stop:
                due_ns = int(dues[at - start]) if dues is not None else 0
                self._note_placed(columns, at, int(sequences[at - start]), due_ns)
        self._flush_if_needed()
        return stop

    def _note_placed(self, columns: _Columns, at: int, sequence: int, due_ns: int) -> None:
        special = special_headers((columns.headers or [])[at])
        identifier = special.get(names.MSG_ID)
        if identifier:
            self._state.dedupe.add_old(identifier, sequence, int(columns.times[at]))
        if due_ns > 0:
            self._state.expiry.add_at(sequence, due_ns)
        elif due_ns < 0:
            self._state.expiry.never.add(sequence)

    def _ttl(self, special: names.Special) -> int:
        config = self._state.config
        if not config.allow_msg_ttl or names.TTL not in special:
            return 0
        try:
            return lifted_ttl(config, names.parse_ttl(special[names.TTL]))
        except ValueError:  # a mirror keeps the messages of its origin
            return 0

    def _part(
        self, columns: _Columns, start: int, stop: int, sequences: Words
    ) -> tuple[Words, Places, Ids, Ids, Times]:
        return (
            sequences,
            np.arange(columns.base + start, columns.base + stop, dtype=np.int64),
            np.array(self._state.index.subjects.all_numbers(columns.keys[start:stop]), np.uint32),
            columns.sizes[start:stop],
            columns.times[start:stop],
        )

    def _plain(self, columns: _Columns, start: int, stop: int) -> None:
        if start >= stop:
            return
        if self._state.expiry.is_uniform:
            self._add(columns, start, stop)
            return
        changes = np.flatnonzero(np.diff(columns.times[start:stop])) + start + 1
        for end in [*changes.tolist(), stop]:
            self._advance(int(columns.times[start]))
            self._add(columns, start, end)
            start = end

    def _add(self, columns: _Columns, start: int, stop: int) -> None:
        first = self._last_seq + 1
        self._last_seq += stop - start
        sequences = np.arange(first, self._last_seq + 1, dtype=np.uint64)
        self._new.add(self._part(columns, start, stop, sequences))
        self._state.last_id = b""
        self._flush_if_needed()

    def _special(self, columns: _Columns, at: int) -> None:
        """Add one message with the effect of its headers."""
        state = self._state
        special = special_headers((columns.headers or [])[at])
        time_ns = int(columns.times[at])
        rollup = special.get(names.ROLLUP, b"").lower()
        ttl_s = self._ttl(special)
        if ttl_s or not state.expiry.is_uniform:
            self._advance(time_ns)
        self._add(columns, at, at + 1)
        identifier = special.get(names.MSG_ID, b"")
        state.note(self._last_seq, time_ns, identifier, ttl_s)
        state.last_id = identifier
        if rollup and state.config.allow_rollup_hdrs:
            self._flush()
            state.roll_up(state.index.subjects.number(columns.keys[at]), self._last_seq, rollup, RemovalBatch())
            state.last_id = identifier

    def _advance(self, time_ns: int) -> None:
        self._flush()
        self._state.tick(time_ns)
        self._state.expire(RemovalBatch())

    def _flush_if_needed(self) -> None:
        if self._state.needs_rows:
            self._flush()

    def _flush(self) -> None:
        state, last_id = self._state, self._state.last_id
        touched = []
        if self._new.count:
            sequences, places, numbers, sizes, times = self._new.take()
            state.place(sequences, places, numbers, sizes, times, RemovalBatch())
            touched.append(numbers)
        if self._moved.count:
            sequences, places, numbers, sizes, times = self._newest(self._moved.take())
            state.index.put_back(sequences, places, numbers, sizes, times)
            touched.append(numbers)
        if self._dropped:
            state.remove(np.concatenate(self._dropped), RemovalBatch())
            self._dropped.clear()
        if touched:
            state.enforce(distinct(np.concatenate(touched)), RemovalBatch())
            state.tick(state.index.last_time)
        state.index.last_seq = max(state.index.last_seq, self._last_seq)
        state.last_id = last_id

    def _newest(self, part: tuple[Words, Places, Ids, Ids, Times]) -> tuple[Words, Places, Ids, Ids, Times]:
        """Of several copies of a message keep the last, and put them in order."""
        order = np.argsort(part[0], kind="stable")
        ordered = part[0][order]
        last = np.append(ordered[1:] != ordered[:-1], True)
        sequences, places, numbers, sizes, times = (column[order[last]] for column in part)
        return sequences, places, numbers, sizes, times

    # Control records.

    def _control(self, data: bytes, place: int, written_ns: int) -> None:
        state = self._state
        if len(self._placed):
            raise self._damaged("a control record stands where a message belongs")
        match parse_control(data):
            case Sequence(next_seq):
                if next_seq <= self._last_seq:
                    raise self._damaged(f"sequence {next_seq} stands after {self._last_seq}")
                self._last_seq = next_seq - 1
            case Placed() as placed:
                self._expect(placed, written_ns)
            case Gone(_, _, sequences, True):
                self._dropped.append(sequences)
                self._note_gone(sequences)
                self._flush_if_needed()
            case Gone(time_ns, last_seq, sequences, _):
                self._flush()
                state.tick(time_ns)
                state.remove(sequences, RemovalBatch())
                self._note_gone(sequences)
                self._reach(last_seq)
            case Config(time_ns, json):
                self._advance(time_ns)
                state.set_config(from_json(StreamConfig, json), RemovalBatch())
                state.configs.append((place, json))
            case Facts(last_seq, last_time, last_id, known):
                self._flush()
                self._reach(last_seq)
                state.index.last_time = max(state.index.last_time, last_time)
                state.tick(last_time)
                state.last_id = last_id
                state.dedupe.load(known)
            case Origins(positions):
                state.origins.update(positions)

    def _note_gone(self, sequences: Words) -> None:
        if self.parts:
            self.gone.append(sequences)

    def _expect(self, placed: Placed, written_ns: int) -> None:
        if not placed.moved and not self._state.expiry.is_uniform:
            self._advance(written_ns)
        self._placed, self._placed_moved, self._placed_dues = placed

    def _reach(self, last_seq: int) -> None:
        self._last_seq = max(self._last_seq, last_seq)
        self._state.index.last_seq = self._last_seq

    def _damaged(self, problem: str) -> Damaged:
        return Damaged(self._path, problem, safe="the journal itself can still be read: `strandline journal dump`")


def sequence_at(
    pieces: Iterable[Batch | LostPlaces], last_seq: int | None, parts: Mapping[int, LostPart] | None = None
) -> int | None:
    """Return the last sequence before the first of these batches, which end at `last_seq`.

    Every record that makes sequences jump follows one with the next sequence. None if there is neither.
    """
    counted = placed = 0
    for piece in pieces:
        if isinstance(piece, LostPlaces):
            return None if parts is None else parts[piece.first].before - counted
        columns = _Columns(piece)
        at = 0
        for control in [*columns.controls, len(columns.keys)]:
            skipped = min(placed, control - at)
            placed -= skipped
            counted += control - at - skipped
            if control == len(columns.keys):
                break
            found = parse_control(columns.control(control))
            if isinstance(found, Sequence):
                return found.next_seq - 1 - counted
            if isinstance(found, Placed):
                placed = len(found.sequences)
            at = control + 1
    return None if last_seq is None else last_seq - counted
