"""The configuration of a consumer, as clients send it and the server returns it.

Invariants: a `ConsumerConfig` is frozen; its fields are named and ordered as nats-server's JSON. Times are nanoseconds.
A field that the client left out has Go's zero value; `consumer_checks` fills in defaults.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from strandline.broker.api.config import API_LEVEL, LEVEL_KEY, REQUIRED_LEVEL_KEY, SERVER_VERSION, VERSION_KEY
from strandline.broker.api.json_text import invalid_json, write_json
from strandline.broker.api.schema import (
    BOOL,
    DURATION,
    DURATIONS,
    INT,
    KEEP,
    SEQUENCE,
    STRING,
    STRING_MAP,
    STRINGS,
    TIME,
    UINT64,
    Json,
    Kind,
    enum_kind,
)
from strandline.broker.api.times import ZERO_TIME_NS


class DeliverPolicy(StrEnum):
    """Where a consumer starts."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"


class AckPolicy(StrEnum):
    """What an acknowledgement covers; with NONE a delivery is enough."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(StrEnum):
    """The pace of deliveries: at once, or at the original intervals."""

    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(StrEnum):
    """Which pulls of a priority group are served."""

    NONE = ""
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


def _read_priority(value: Json, where: str, go: str) -> PriorityPolicy:
    del where, go
    if value == "none":
        return PriorityPolicy.NONE
    if type(value) is str and value and value in PriorityPolicy._value2member_map_:
        return PriorityPolicy(value)
    raise invalid_json(f"unknown priority policy: {write_json(value).decode()}")


_PRIORITY = Kind("PriorityPolicy", _read_priority, str)


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The configuration of a consumer."""

    durable_name: Annotated[str, STRING] = ""
    name: Annotated[str, STRING] = ""
    description: Annotated[str, STRING] = ""
    deliver_policy: Annotated[DeliverPolicy, enum_kind(DeliverPolicy), KEEP] = DeliverPolicy.ALL
    opt_start_seq: Annotated[int, SEQUENCE] = 0
    opt_start_time: Annotated[int | None, TIME] = None
    ack_policy: Annotated[AckPolicy, enum_kind(AckPolicy), KEEP] = AckPolicy.NONE
    ack_wait: Annotated[int, DURATION] = 0
    max_deliver: Annotated[int, INT] = 0
    backoff: Annotated[tuple[int, ...], DURATIONS] = ()
    filter_subject: Annotated[str, STRING] = ""
    filter_subjects: Annotated[tuple[str, ...], STRINGS] = ()
    replay_policy: Annotated[ReplayPolicy, enum_kind(ReplayPolicy), KEEP] = ReplayPolicy.INSTANT
    rate_limit_bps: Annotated[int, UINT64] = 0
    sample_freq: Annotated[str, STRING] = ""
    max_waiting: Annotated[int, INT] = 0
    max_ack_pending: Annotated[int, INT] = 0
    flow_control: Annotated[bool, BOOL] = False
    headers_only: Annotated[bool, BOOL] = False
    max_batch: Annotated[int, INT] = 0
    max_expires: Annotated[int, DURATION] = 0
    max_bytes: Annotated[int, INT] = 0
    deliver_subject: Annotated[str, STRING] = ""
    deliver_group: Annotated[str, STRING] = ""
    idle_heartbeat: Annotated[int, DURATION] = 0
    inactive_threshold: Annotated[int, DURATION] = 0
    num_replicas: Annotated[int, INT, KEEP] = 0
    mem_storage: Annotated[bool, BOOL] = False
    direct: Annotated[bool, BOOL] = False
    sourcing: Annotated[bool, BOOL] = False
    metadata: Annotated[dict[str, str], STRING_MAP] = field(default_factory=dict)
    pause_until: Annotated[int | None, TIME] = None
    priority_groups: Annotated[tuple[str, ...], STRINGS] = ()
    priority_policy: Annotated[PriorityPolicy, _PRIORITY] = PriorityPolicy.NONE
    priority_timeout: Annotated[int, DURATION] = 0

    @property
    def is_push(self) -> bool:
        """Whether it is a push consumer."""
        return bool(self.deliver_subject)

    @property
    def is_durable(self) -> bool:
        """Whether the consumer is durable."""
        return bool(self.durable_name)

    @property
    def filters(self) -> tuple[str, ...]:
        """The filter subjects; none means all."""
        return (self.filter_subject,) if self.filter_subject else self.filter_subjects

    def paused_until_ns(self) -> int:
        """Return when deliveries resume; a time in the past, or `ZERO_TIME_NS`, means now."""
        return ZERO_TIME_NS if self.pause_until is None else self.pause_until

    @property
    def required_level(self) -> int:
        """The lowest API level that supports this consumer."""
        if self.ack_policy is AckPolicy.FLOW_CONTROL:
            return 4
        pauses = self.pause_until is not None and self.pause_until != ZERO_TIME_NS
        priorities = self.priority_policy or self.priority_timeout or self.priority_groups
        return 1 if pauses or priorities else 0

    def with_level(self) -> "ConsumerConfig":
        """Return the configuration as it is stored: with the required API level in its metadata."""
        own = {key: value for key, value in self.metadata.items() if key not in (LEVEL_KEY, VERSION_KEY)}
        return replace(self, metadata={**own, REQUIRED_LEVEL_KEY: str(self.required_level)})

    def with_server(self) -> "ConsumerConfig":
        """Return the configuration as INFO returns it: with the server's version and level too."""
        return replace(self, metadata={**self.metadata, LEVEL_KEY: str(API_LEVEL), VERSION_KEY: SERVER_VERSION})
