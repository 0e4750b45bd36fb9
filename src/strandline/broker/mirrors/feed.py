"""One origin of one stream: its messages, its position, and its error.

Invariants: a feed belongs to the server's thread. It stores messages in order; messages without room are kept and tried
again. Its status has nats-server's fields: `lag`, `active` and an error.
"""

from collections.abc import Callable

import numpy as np

from strandline.broker.api import codes
from strandline.broker.api.codes import ApiError
from strandline.broker.api.responses import SourceInfo
from strandline.broker.mirrors.copy_plan import CopyPlan, Start
from strandline.broker.streams import Copied, OriginBatch, Published, Stream
from strandline.clock import NS_PER_S

RETRY_NS = NS_PER_S
"""How long to wait for room."""

Stored = Callable[[str, Published], None]


class Feed:
    """Base of local and remote origins."""

    def __init__(self, stream: Stream, plan: CopyPlan, stored: Stored) -> None:
        self.stream = stream
        self.plan = plan
        self.error: ApiError | None = None
        self.heard_ns = -1
        self.next_due_ns: int | None = None
        self._stored = stored

    def step(self, now_ns: int) -> bool:
        """Do a little; return whether there is more to do at once."""
        raise NotImplementedError

    def close(self) -> None:
        """End the feed; stored messages stay."""

    def join(self, seconds: float) -> None:
        """Wait, for a while, until nothing of it is under way."""

    def lag(self) -> int:
        """Return how many messages of the origin are not stored yet, as far as is known."""
        raise NotImplementedError

    def start(self, identity: bytes) -> Start:
        """Return where to resume in the origin."""
        return self.plan.start(self.plan.position(self.stream), identity)

    def take(self, batch: OriginBatch, now_ns: int) -> Copied:
        """Store messages of the origin, as far as there is room; return the result."""
        copied = self.stream.copy(self.plan.prepare(batch), now_ns)
        if len(copied.published.stored) or len(copied.published.removed):
            self._stored(self.stream.config.name, copied.published)
        self.error = copied.refusal
        self.next_due_ns = None if copied.refusal is None else now_ns + RETRY_NS
        return copied

    def fail(self, problem: str) -> None:
        """Record an error, as the origin's own."""
        code = codes.MIRROR_CONSUMER_SETUP_FAILED if self.plan.is_mirror else codes.SOURCE_CONSUMER_SETUP_FAILED
        self.error = code.with_text(err=problem)

    def info(self, now_ns: int) -> SourceInfo:
        """Return the status of the origin."""
        source, position = self.plan.source, self.plan.position(self.stream)
        return SourceInfo(
            name=source.name,
            external=source.external,
            lag=self.lag(),
            seq=position.sequence if position is not None and not self.plan.is_mirror else 0,
            active=-1 if self.heard_ns < 0 else max(1, now_ns - self.heard_ns),  # 0 is shown as "never"
            filter_subject=source.filter_subject,
            subject_transforms=source.subject_transforms,
            error=self.error,
        )


class LostFeed(Feed):
    """An origin that nothing is known of."""

    def __init__(self, stream: Stream, plan: CopyPlan, stored: Stored, problem: str) -> None:
        super().__init__(stream, plan, stored)
        self.fail(problem)

    def step(self, now_ns: int) -> bool:
        """Do nothing."""
        del now_ns
        return False

    def lag(self) -> int:
        """Return nothing, for nothing is known."""
        return 0


NO_SEQUENCES = np.zeros(0, np.uint64)
