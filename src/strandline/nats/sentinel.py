"""A sentinel: a consumer of the headers of a whole stream, for a reader of some of its subjects.

Invariants: what it has seen is noted in the guard before the reader relies on it. Its own skipped revisions are looked
into as the reader's are: a sentinel that was overrun proves nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.nats.cancellation import CancelToken
from strandline.nats.floor_guard import FloorGuard
from strandline.nats.jetstream import JetStreamApi
from strandline.nats.push_consumer import PushConsumer
from strandline.nats.read_plan import ReadPlan
from strandline.nats.settings import NatsSettings
from strandline.protocol.windows import is_gapped
from strandline.wire import Times, binary_list, matcher

_TAIL = ".>"


class Sentinel:
    """Reads the heads of all messages and tells the guard."""

    def __init__(self, attachment: PushConsumer, plan: ReadPlan, guard: FloorGuard) -> None:
        self.attachment = attachment
        self._is_own = own_rows(plan.filters)
        self._guard = guard

    @staticmethod
    def begin(
        settings: NatsSettings, api: JetStreamApi, plan: ReadPlan, guard: FloorGuard, cancel: CancelToken
    ) -> "Sentinel":
        """Attach it after the guard's frontier."""
        whole = replace(plan, filters=(">",), headers_only=True, times=Times.NONE, subject_prefix="")
        return Sentinel(PushConsumer.begin(settings, api, whole, guard.frontier + 1, cancel), plan, guard)

    def look(self, check_floor: Callable[[int], None]) -> bool:
        """Take what has come, without waiting; return whether something had.

        `check_floor` is called before anything is noted that lies behind a skipped revision, with the last one that the
        member which delivers has; it raises if the guard's frontier is no longer within the stream.
        """
        seen = self.attachment.receive(0.0)
        if seen is None:
            return False
        last = int(seen.sequences[-1])
        own = seen.sequences[self._is_own(seen.subjects)]
        skips = bool((np.diff(seen.sequences) > 1).any()) or is_gapped(self._guard.frontier, int(seen.sequences[0]))
        if skips or (len(own) and int(own[-1]) > self._guard.delivered):
            check_floor(last + seen.pending)
        self._guard.see(last, own)
        return True


def own_rows(filters: Sequence[str]) -> Callable[[pa.BinaryArray], NDArray[np.bool_]]:
    """Return a test of a column of subjects for those that some filters match."""
    if all(one.endswith(_TAIL) and "*" not in one for one in filters):
        starts = [one[: -len(_TAIL) + 1].encode(errors="surrogateescape") for one in filters]

        def begins(subjects: pa.BinaryArray) -> NDArray[np.bool_]:
            found = np.zeros(len(subjects), np.bool_)
            for start in starts:
                found |= pc.starts_with(subjects, pattern=start).to_numpy(zero_copy_only=False)
            return found

        return begins
    matches = matcher(filters)

    def fits(subjects: pa.BinaryArray) -> NDArray[np.bool_]:
        texts = (subject.decode(errors="surrogateescape") for subject in binary_list(subjects))
        return np.fromiter(map(matches, texts), np.bool_, len(subjects))

    return fits
