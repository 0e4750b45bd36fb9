"""The state of a stream from its files and its log, across parts of the log that are lost to damage.

The sequence after a lost part is counted back from the next record that has one, or from the index. Without either,
every lost record counts as a message, so no sequence is used twice. A mirror has its origin's sequences: there nothing
is counted, and it copies what the origin still has again.

Invariants: a state has no lost message; the first time that a lost part is found, its messages are recorded. The rest
is read as without the damage, except for the effect of the lost records: without an index, their removals are undone.
"""

import numpy as np

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.schema import from_json
from strandline.broker.streams.arrays import Places
from strandline.broker.streams.checkpoint import StreamCheckpoint
from strandline.broker.streams.files import StreamFiles
from strandline.broker.streams.losses import Losses, LostPart, LostPlaces, candidates
from strandline.broker.streams.replay import Replay, sequence_at
from strandline.broker.streams.state import RemovalBatch, State
from strandline.broker.streams.storage import JournalLog
from strandline.errors import Damaged


def recover(files: StreamFiles, checkpoint: StreamCheckpoint, log: JournalLog, stop: int) -> State:
    """Return the state that a stream's files and log, up to a place, say it has."""
    if checkpoint.identity != log.identity:
        raise Damaged(
            str(files.folder), "the journal belongs to another stream", safe="restore both from the same copy"
        )
    found = files.read_index(checkpoint, stop)
    lost = [part for part in log.lost if part.end > checkpoint.place]
    losses = files.read_losses(checkpoint.identity) or Losses()
    new = [part for part in lost if _is_new(part, losses)]
    if new:
        known = {part.first: losses.parts[part.first] for part in lost if part not in new}
        losses.parts, losses.is_new = _Measure(files, checkpoint, log, stop).parts(known), True
    state, place = (_begin(checkpoint), checkpoint.place) if found is None else found
    state.losses = losses
    replay = Replay(state, str(files.folder), losses.parts)
    _remove_lost(state, lost, [part for part in new if part.end <= place])
    replay.run(log.scan(place, stop))
    later = [losses.parts[part.first] for part in new if part.end > place]
    if later:
        sequences = np.setdiff1d(candidates(later), np.concatenate([np.zeros(0, np.uint64), *replay.gone]))
        losses.add(sequences[~state.is_live(sequences)], sum(part.size for part in new if part.end > place))
    return state


def _is_new(part: LostPlaces, losses: Losses) -> bool:
    known = losses.parts.get(part.first)
    return known is None or known.end != part.end


def _begin(checkpoint: StreamCheckpoint) -> State:
    """Return the state at the checkpoint."""
    state = State(from_json(StreamConfig, checkpoint.config), checkpoint.created_ns)
    state.index.last_seq, state.index.last_time = checkpoint.last_seq, checkpoint.last_time
    state.now_ns = checkpoint.last_time  # messages with times of their own may be older than the stream
    state.configs = [(checkpoint.place, checkpoint.config)]
    return state


def _remove_lost(state: State, lost: list[LostPlaces], new: list[LostPlaces]) -> None:
    """Remove messages in lost places that an index has; record those in new lost places."""
    index = state.index
    for part in lost:
        places: Places = index.rows.place[: index.used]
        rows = np.flatnonzero((places >= part.first) & (places < part.end) & index.rows.live[: index.used])
        sequences = index.rows.sequence[rows]
        if part in new:
            state.losses.add(sequences, int(index.rows.size[rows].sum(dtype=np.int64)))
        state.dedupe.forget(set(sequences.tolist()))
        RemovalBatch().take(index, rows)


class _Measure:
    """Reads the whole log to find the sequence after each lost part."""

    def __init__(self, files: StreamFiles, checkpoint: StreamCheckpoint, log: JournalLog, stop: int) -> None:
        self._checkpoint = checkpoint
        self._state = _begin(checkpoint)
        self._log = log
        self._stop = stop
        self._path = str(files.folder)
        index = files.read_index(checkpoint, stop)
        self._index = None if index is None else (index[1], index[0].index.last_seq)

    def parts(self, known: dict[int, LostPart]) -> dict[int, LostPart]:
        """Return every lost part from the checkpoint on; some are known."""
        replay = Replay(self._state, self._path, known, self._measured)
        replay.run(self._log.scan(self._checkpoint.place, self._stop))
        return replay.parts

    def _measured(self, lost: LostPlaces, before: int) -> LostPart:
        stop, last_seq = self._stop, None
        if self._index is not None and lost.end <= self._index[0]:
            stop, last_seq = self._index
        # Of several parts the first counts as the one that had all messages: between them sequences are never too low,
        # so a consumer may get a message twice and passes over none.
        whole = (piece for piece in self._log.scan(lost.end, stop) if not isinstance(piece, LostPlaces))
        found = sequence_at(whole, last_seq)
        if found is not None:
            used = max(0, found - before)
        else:
            used = 0 if self._state.config.mirror is not None else lost.end - lost.first
        return LostPart(lost.first, lost.end, before, before + used)
