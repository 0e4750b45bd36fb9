"""The stream parser: bytes in, batches of frames out; a partial frame is kept for the next buffer.

Invariants: the frames do not depend on how the stream was split. Frames before a violation are returned; the violation
is in `FrameBatch.problem` at once, and every later `feed` raises it. Less than one frame within its limits is kept. A
buffer is copied only to join it to a partial frame before it, and a frame that comes in many buffers is joined once,
when it is whole.
"""

import numpy as np

from strandline.wire.batches import Candidates, find_candidates
from strandline.wire.columns import Ints
from strandline.wire.errors import ProtocolViolation
from strandline.wire.frames import FrameBatch, columns_of
from strandline.wire.lines import Incomplete, Row, is_plain, parse_frame, parse_plain
from strandline.wire.ops import Op, Side, WireLimits
from strandline.wire.uniform_frames import find_uniform

BATCH_BYTES_MIN = 4096
"""Below this, reading frame by frame is faster than setting up columns."""

ROWS_MIN = {Side.SERVER: 128, Side.CLIENT: 384}
"""The same, in frames: those of clients have fewer arguments and are read faster."""

UNIFORM_BYTES_MIN = 2048
"""Below this, there are hardly enough frames to look for a common shape."""

LARGE_FRAME_BYTES = 4096
SAMPLE_ROWS = 4
"""If so many frames at the beginning are so large on average, it is not worth to look for lines in all bytes."""

SHORT_RUN = 4
SHORT_RUNS_MAX = 8
"""So many short runs one after the other show a buffer that is better read frame by frame."""


_ANYTHING = Incomplete(1, in_line=False)


class FrameParser:
    """Parses what one end of a connection sends; one parser for each connection and direction."""

    def __init__(self, side: Side, limits: WireLimits | None = None) -> None:
        self._side = side
        self._limits = limits or WireLimits()
        self._parts: list[bytes] = []
        self._kept = 0
        self._needed = _ANYTHING
        self._problem: ProtocolViolation | None = None
        self._is_tidy = True
        self._stride = self._alike = 0

    @property
    def kept_bytes(self) -> int:
        """Return how many bytes of a partial frame wait for the rest."""
        return self._kept

    @property
    def needed_bytes(self) -> int:
        """Return how many bytes, with those that are kept, the next frame takes at least."""
        return self._kept + 1 if self._needed.in_line else self._needed.needed

    def feed(self, data: bytes | bytearray | memoryview) -> FrameBatch:
        """Return the frames that this buffer completes, in order.

        A stream that cannot be read raises `ProtocolViolation`; if frames came before it in this buffer, they are
        returned with the violation as their `problem`, and the next call raises it.
        """
        if self._problem is not None:
            raise self._problem
        if not self._kept and len(data) < UNIFORM_BYTES_MIN:
            # A few plain messages and nothing else: nearly all that most clients ever send at once.
            data = bytes(data)
            plain = parse_plain(data, 0, self._side, self._limits)
            if plain and plain[-1][-1] == len(data):
                return FrameBatch(data, plain)
        self._parts.append(bytes(data))
        self._kept += len(data)
        if self._kept < self._needed.needed and not (self._needed.in_line and b"\n" in self._parts[-1]):
            return FrameBatch.empty()
        joined = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._is_tidy, self._stride, self._alike = True, 0, 0
        rows, position = self._parse(joined)
        rest = joined[position:]
        self._parts, self._kept = ([rest] if rest else []), len(rest)
        batch = FrameBatch(joined, rows, self._problem, is_tidy=self._is_tidy, stride=self._stride, alike=self._alike)
        if batch.problem is not None and not len(batch):
            raise batch.problem
        return batch

    def _parse(self, data: bytes) -> tuple[Ints | list[tuple[int, ...]], int]:
        pieces: list[Ints] = []
        position = self._uniform(data, pieces) if self._side is Side.CLIENT else 0
        candidates = None
        if not position and not self._is_read_singly(data):
            candidates = find_candidates(data, self._side, self._limits)
        if candidates is not None:
            position = self._runs(data, candidates, pieces)
        rows: list[tuple[int, ...]] = []
        while True:
            plain = parse_plain(data, position, self._side, self._limits)
            rows += plain
            row = self._one(data, plain[-1][-1] if plain else position)
            if row is None:
                position = plain[-1][-1] if plain else position
                break
            rows.append(row)
            position = row.end
        if not pieces:
            return rows, position
        if rows:
            pieces.append(columns_of(rows))
        return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)), position

    def _uniform(self, data: bytes, pieces: list[Ints]) -> int:
        """Take runs of frames of one shape from the start on, if they are most of it; return where to go on."""
        position = 0
        while len(data) - position >= UNIFORM_BYTES_MIN:
            first = parse_plain(data, position, self._side, self._limits, 1)
            rows = find_uniform(data, position, first[0]) if first and first[0][0] != Op.SUB else None
            if rows is None:
                break
            pieces.append(rows)
            position = int(rows[-1, -1])
        if not position or position < len(data) // 2:
            pieces.clear()
            return 0
        self._stride, self._alike = int(pieces[0][-1, 0]), pieces[0].shape[1]
        return position

    def _is_read_singly(self, data: bytes) -> bool:
        """Tell whether frame by frame is faster: in a small buffer, or if the first frames show that there are few."""
        if len(data) < BATCH_BYTES_MIN:
            return True
        first = parse_plain(data, 0, self._side, self._limits, SAMPLE_ROWS)
        if not first:
            return False
        frame_bytes = first[-1][-1] / len(first)
        return frame_bytes >= LARGE_FRAME_BYTES or len(data) < ROWS_MIN[self._side] * frame_bytes

    def _runs(self, data: bytes, candidates: Candidates, pieces: list[Ints]) -> int:
        """Take runs of linked frames, and single ones between them; return where to go on frame by frame."""
        position = short = 0
        while short < SHORT_RUNS_MAX:
            run = _run_at(candidates, position)
            if run is not None:
                pieces.append(candidates.rows[:, run[0] : run[1]])
                position = int(candidates.rows[-1, run[1] - 1])
                short = 0 if run[1] - run[0] >= SHORT_RUN else short + 1
                continue
            row = self._one(data, position)
            if row is None:
                break
            pieces.append(columns_of([row]))
            position = row.end
            short += 1
        return position

    def _one(self, data: bytes, position: int) -> Row | None:
        """Return the frame at a position; None at the end, in the middle of a frame, and at a violation."""
        self._needed = _ANYTHING
        if position >= len(data) or self._problem is not None:
            return None
        try:
            found = parse_frame(data, position, self._side, self._limits)
        except ProtocolViolation as problem:
            self._problem = problem
            return None
        if isinstance(found, Incomplete):
            self._needed = found
            return None
        if found.subject_end and found.op != Op.SUB and not is_plain(data, position, found):
            self._is_tidy = False
        return found


def _run_at(candidates: Candidates, position: int) -> tuple[int, int] | None:
    """Return the rows of the linked frames that begin at a position, as a range; None if there is none."""
    first = int(np.searchsorted(candidates.starts, position))
    if first == len(candidates.starts) or candidates.starts[first] != position or not candidates.good[first]:
        return None
    at = int(np.searchsorted(candidates.breaks, first))
    last = int(candidates.breaks[at]) if at < len(candidates.breaks) else len(candidates.starts) - 1
    return first, last + 1 if candidates.good[last] else last
