"""How a bucket is made, what it keeps, and what a connection can do."""

from dataclasses import dataclass
from enum import Enum

from strandline.errors import InvalidInput

HISTORY_MAX = 64
MIB = 1 << 20


class Discard(Enum):
    """What a full bucket does with a new value: refuse it, or drop the oldest ones, current or not."""

    NEW = "new"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The settings a bucket is created with; a bucket that exists keeps its own.

    `updates_max`, `bytes_max` and `age_max_s` of 0 are no limit. `ttl` allows a time to live on single values, and
    `marker_ttl_s` leaves a purge marker, kept so long, where a current value expires.
    """

    history: int = 1
    updates_max: int = 0
    bytes_max: int = 10 * MIB
    value_bytes_max: int = MIB
    age_max_s: float = 0.0
    discard: Discard = Discard.NEW
    ttl: bool = False
    marker_ttl_s: float = 0.0
    replicas: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.history <= HISTORY_MAX:
            raise InvalidInput(f"history of {self.history} is not within 1 and {HISTORY_MAX}")
        if min(self.updates_max, self.bytes_max, self.value_bytes_max, self.age_max_s, self.marker_ttl_s) < 0:
            raise InvalidInput("a limit of a bucket cannot be negative", hint="0 is no limit")

    @property
    def evicts_current_values(self) -> bool:
        """Tell whether a key's current value can vanish without anybody deleting it."""
        bounded = bool(self.updates_max or self.bytes_max)
        return self.age_max_s > 0 or self.ttl or (self.discard is Discard.OLD and bounded)


@dataclass(frozen=True, slots=True)
class Retention:
    """What a bucket has kept: `first_revision` is its oldest update, or the one to come if it holds none.

    If `evicts_current_values`, a key that is not listed was perhaps never deleted. `age_only` says that nothing but
    `age_max_ns` evicts.
    """

    evicts_current_values: bool
    first_revision: int
    last_revision: int
    age_only: bool = False
    age_max_ns: int = 0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a connection's buckets can do; advice for callers, who may also ask and be refused."""

    watch: bool = False
    write: bool = False
    compare_and_swap: bool = False
    resume: bool = False
    multi_prefix: bool = False
    ttl: bool = False
    purge: bool = False


class ConnectionState(Enum):
    """Where a connection stands in its life: NEW, then CONNECTED, then SHUTDOWN, and CONNECTED again if asked."""

    NEW = "new"
    CONNECTED = "connected"
    SHUTDOWN = "shut down"
