"""The configuration of a stream, as clients send it and the server returns it.

Invariants: a `StreamConfig` is frozen; its fields are named and ordered as nats-server's JSON. Limits of -1 mean none.
Times are nanoseconds. A field that the client left out has Go's zero value; `checks.check_stream` fills in defaults.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from strandline.broker.api.schema import (
    BOOL,
    DURATION,
    INT,
    INT32,
    INT64,
    KEEP,
    SEQUENCE,
    STRING,
    STRING_MAP,
    STRINGS,
    TIME,
    enum_kind,
    struct_kind,
    structs_kind,
)

API_LEVEL = 5
SERVER_VERSION = "2.15.1"
"""The nats-server version whose responses these are; clients enable features by it."""
LEVEL_KEY, REQUIRED_LEVEL_KEY, VERSION_KEY = "_nats.level", "_nats.req.level", "_nats.ver"


class Retention(StrEnum):
    """When a message is removed: by limits only, when no consumer wants it, or when one has acknowledged it."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORK_QUEUE = "workqueue"


class Discard(StrEnum):
    """What a full stream does: remove the oldest message, or refuse the new one."""

    OLD = "old"
    NEW = "new"


class Storage(StrEnum):
    """Where messages are stored."""

    FILE = "file"
    MEMORY = "memory"


class Compression(StrEnum):
    """File compression of nats-server; stored in the configuration, without effect here."""

    NONE = "none"
    S2 = "s2"


class PersistMode(StrEnum):
    """Whether a publish acknowledgement waits for the disk."""

    DEFAULT = "default"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement in a cluster; without effect on a single server."""

    cluster: Annotated[str, STRING] = ""
    tags: Annotated[tuple[str, ...], STRINGS] = ()
    preferred: Annotated[str, STRING] = ""


@dataclass(frozen=True, slots=True)
class SubjectTransform:
    """A subject transform."""

    GO_NAME = "SubjectTransformConfig"

    src: Annotated[str, STRING, KEEP] = ""
    dest: Annotated[str, STRING, KEEP] = ""


@dataclass(frozen=True, slots=True)
class RePublish:
    """Republishing of stored messages."""

    src: Annotated[str, STRING] = ""
    dest: Annotated[str, STRING, KEEP] = ""
    headers_only: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class ExternalStream:
    """The API and delivery prefixes of a stream in another account or server."""

    api: Annotated[str, STRING, KEEP] = ""
    deliver: Annotated[str, STRING, KEEP] = ""


@dataclass(frozen=True, slots=True)
class SourceConsumer:
    """The durable consumer of a mirror or source."""

    GO_NAME = "StreamConsumerSource"

    name: Annotated[str, STRING] = ""
    deliver_subject: Annotated[str, STRING] = ""


@dataclass(frozen=True, slots=True)
class StreamSource:
    """The origin of a mirror or a source."""

    name: Annotated[str, STRING, KEEP] = ""
    opt_start_seq: Annotated[int, SEQUENCE] = 0
    opt_start_time: Annotated[int | None, TIME] = None
    filter_subject: Annotated[str, STRING] = ""
    subject_transforms: Annotated[tuple[SubjectTransform, ...], structs_kind(SubjectTransform)] = ()
    external: Annotated[ExternalStream | None, struct_kind(ExternalStream)] = None
    consumer: Annotated[SourceConsumer | None, struct_kind(SourceConsumer)] = None


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Limits and defaults for the consumers of a stream."""

    GO_NAME = "StreamConsumerLimits"

    inactive_threshold: Annotated[int, DURATION] = 0
    max_ack_pending: Annotated[int, INT] = 0


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The configuration of a stream."""

    GO_NAME = "StreamConfigRequest"

    name: Annotated[str, STRING, KEEP] = ""
    description: Annotated[str, STRING] = ""
    subjects: Annotated[tuple[str, ...], STRINGS] = ()
    retention: Annotated[Retention, enum_kind(Retention), KEEP] = Retention.LIMITS
    max_consumers: Annotated[int, INT, KEEP] = 0
    max_msgs: Annotated[int, INT64, KEEP] = 0
    max_bytes: Annotated[int, INT64, KEEP] = 0
    max_age: Annotated[int, DURATION, KEEP] = 0
    max_msgs_per_subject: Annotated[int, INT64, KEEP] = 0
    max_msg_size: Annotated[int, INT32, KEEP] = 0
    discard: Annotated[Discard, enum_kind(Discard), KEEP] = Discard.OLD
    storage: Annotated[Storage, enum_kind(Storage), KEEP] = Storage.FILE
    num_replicas: Annotated[int, INT, KEEP] = 0
    no_ack: Annotated[bool, BOOL] = False
    duplicate_window: Annotated[int, DURATION] = 0
    placement: Annotated[Placement | None, struct_kind(Placement)] = None
    mirror: Annotated[StreamSource | None, struct_kind(StreamSource)] = None
    sources: Annotated[tuple[StreamSource, ...], structs_kind(StreamSource)] = ()
    compression: Annotated[Compression, enum_kind(Compression, problem="unknown compression algorithm"), KEEP] = (
        Compression.NONE
    )
    first_seq: Annotated[int, SEQUENCE] = 0
    subject_transform: Annotated[SubjectTransform | None, struct_kind(SubjectTransform)] = None
    republish: Annotated[RePublish | None, struct_kind(RePublish)] = None
    allow_direct: Annotated[bool, BOOL, KEEP] = False
    mirror_direct: Annotated[bool, BOOL, KEEP] = False
    discard_new_per_subject: Annotated[bool, BOOL] = False
    sealed: Annotated[bool, BOOL, KEEP] = False
    deny_delete: Annotated[bool, BOOL, KEEP] = False
    deny_purge: Annotated[bool, BOOL, KEEP] = False
    allow_rollup_hdrs: Annotated[bool, BOOL, KEEP] = False
    consumer_limits: Annotated[ConsumerLimits, struct_kind(ConsumerLimits), KEEP] = ConsumerLimits()
    allow_msg_ttl: Annotated[bool, BOOL, KEEP] = False
    subject_delete_marker_ttl: Annotated[int, DURATION] = 0
    allow_msg_counter: Annotated[bool, BOOL] = False
    allow_atomic: Annotated[bool, BOOL] = False
    allow_msg_schedules: Annotated[bool, BOOL] = False
    persist_mode: Annotated[PersistMode | None, enum_kind(PersistMode)] = None
    allow_batched: Annotated[bool, BOOL] = False
    metadata: Annotated[dict[str, str], STRING_MAP] = field(default_factory=dict)

    @property
    def required_level(self) -> int:
        """The lowest API level that supports this stream."""
        if self.allow_batched or any(part.consumer is not None for part in self.origins):
            return 4
        newer = self.allow_msg_counter or self.allow_atomic or self.allow_msg_schedules
        if newer or self.persist_mode is PersistMode.ASYNC:
            return 2
        return 1 if self.allow_msg_ttl or self.subject_delete_marker_ttl > 0 else 0

    @property
    def origins(self) -> tuple[StreamSource, ...]:
        """The origins of this stream."""
        return (self.mirror, *self.sources) if self.mirror is not None else self.sources

    def with_level(self) -> "StreamConfig":
        """Return the configuration as it is stored: with the required API level in its metadata."""
        own = {key: value for key, value in self.metadata.items() if not key.startswith("_nats.")}
        return replace(self, metadata={**own, REQUIRED_LEVEL_KEY: str(self.required_level)})

    def with_server(self) -> "StreamConfig":
        """Return the configuration as INFO returns it: with the server's version and level too."""
        return replace(self, metadata={**self.metadata, LEVEL_KEY: str(API_LEVEL), VERSION_KEY: SERVER_VERSION})
