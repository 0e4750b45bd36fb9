"""How a bucket is made, what it keeps, and what a connection can do."""

from collections.abc import Mapping
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
    """The settings a bucket is created with; one that exists must have the same, or be opened without.

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
        """Tell whether a key's current value can vanish without a delete."""
        bounded = bool(self.updates_max or self.bytes_max)
        return self.age_max_s > 0 or self.ttl or (self.discard is Discard.OLD and bounded)


def format_differences(wanted: Mapping[str, object], has: Mapping[str, object]) -> str:
    """Return which settings are not as wanted, empty if all are; only those that are wanted count."""
    others = {name: has.get(name) for name, value in wanted.items() if has.get(name) != value}
    return ", ".join(f"{name} is {value}, not {wanted[name]}" for name, value in others.items())


@dataclass(frozen=True, slots=True)
class Retention:
    """What a bucket has kept: `first_revision` is its oldest update, or the one to come if it holds none.

    If `evicts_current_values`, a key that is not listed was perhaps never deleted. `age_only` says that nothing but
    `age_max_ns` evicts. `identity` is eight bytes that tell this bucket from any other, one of the same name that was
    made later too; empty if the backend cannot tell. `updates` is how many updates it holds, None if unknown; if not
    `in_order`, some of them can expire before older ones do. `ttl_only` says that nothing but a time to live of single
    values evicts. `history` is how many updates of a key are kept, and `now_ns` the time by the bucket's clock, 0 if it
    does not tell.
    """

    evicts_current_values: bool
    first_revision: int
    last_revision: int
    age_only: bool = False
    age_max_ns: int = 0
    identity: bytes = b""
    updates: int | None = None
    in_order: bool = True
    ttl_only: bool = False
    history: int = 1
    now_ns: int = 0

    @property
    def drops_current_values(self) -> bool:
        """Tell whether age, size or count can remove a key's current value."""
        return self.evicts_current_values and not self.ttl_only

    @property
    def removed(self) -> int:
        """Return how many revisions between the first and the last are missing, at least 1 if that is unknown."""
        return 1 if self.updates is None else self.last_revision + 1 - self.first_revision - self.updates


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
