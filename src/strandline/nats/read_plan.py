"""The plan of a reader: subjects, start, and time limits; a value that pickles, for readers in other processes."""

from dataclasses import dataclass
from enum import Enum

from strandline.errors import InvalidInput
from strandline.protocol.windows import resume_start_sequence
from strandline.wire import Times


class Overrun(Enum):
    """How a watch of prefixes learns that the bucket has removed what it did not tell; one of all keys always does.

    `SENTINEL`: the heads of all updates are read too. Exact, and updates of other keys do not look like losses; it
    costs what a watch of everything without values costs.

    `PROBE`: a few small questions every few seconds. It never misses an overrun, but if the bucket turns over as a
    whole between two of them it takes that for one, and a repair is made without need.

    `UNWATCHED`: nothing while it watches; only when it attaches, so that a loss is noticed at the next start.
    """

    SENTINEL = "sentinel"
    PROBE = "probe"
    UNWATCHED = "unwatched"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Some subjects of a stream, from a sequence on.

    `after` None is the last message of each subject first, then what is written; else what follows that revision.
    `identity`, if given, is that of the stream that `after` belongs to: another one is `StreamReplaced`.
    `subject_prefix` is what all subjects begin with, and is left out of the column. `overrun` matters only if the
    filters leave some subjects out.

    With `exact_state`, a state that breaks off is sent again from its beginning; without, it goes on where it broke
    off, and older values that the stream still has of a subject may come before its last one. A lost consumer is
    noticed after three heartbeats; `outage_s` is how long connections are tried again before a reader gives up.
    """

    stream: str
    filters: tuple[str, ...] = (">",)
    after: int | None = None
    identity: bytes = b""
    headers_only: bool = False
    times: Times = Times.NONE
    subject_prefix: str = ""
    exact_state: bool = False
    overrun: Overrun = Overrun.PROBE
    heartbeat_s: float = 5.0
    backstop_s: float = 10.0
    outage_s: float = 300.0

    def __post_init__(self) -> None:
        if not self.filters:
            raise InvalidInput("a reader of no subjects at all has nothing to read", hint="'>' is all of them")
        if self.after is not None and (self.after < 0 or resume_start_sequence(self.after) is None):
            raise InvalidInput(f"there is no revision after {self.after}")
