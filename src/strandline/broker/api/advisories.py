"""Advisories and metrics on `$JS.EVENT.`, in nats-server's form.

Invariants: an advisory is a frozen value; its id, time and domain are added when it is written. Its subject is derived
from its fields.
"""

import secrets
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol

from strandline.broker.api.json_text import write_json
from strandline.broker.api.responses import LostMessages, StreamState
from strandline.broker.api.schema import BOOL, INT, KEEP, STRING, TIME, UINT64, struct_kind, to_plain
from strandline.broker.api.times import ZERO_TIME_NS, format_time

ADVISORY = "$JS.EVENT.ADVISORY"
METRIC = "$JS.EVENT.METRIC"
_KIND = "io.nats.jetstream.advisory.v1."
_OTHERWISE = {"asked": "subject"}
"""JSON names of fields whose names are taken in Python."""
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Advisory(Protocol):
    """An event of JetStream."""

    TYPE: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def subject(self) -> str:
        """The subject it is published to."""


def format_advisory(advisory: Advisory, now_ns: int, *, domain: str = "") -> bytes:
    """Return the JSON of an advisory."""
    said = {_OTHERWISE.get(name, name): part for name, part in to_plain(advisory).items()}
    plain = {"type": advisory.TYPE, "id": new_id(), "timestamp": format_time(now_ns), **said}
    return write_json({**plain, "domain": domain} if domain else plain)


def new_id(length: int = 22) -> str:
    """Return a new unique id."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """The client of a request, as advisories describe it."""

    start: Annotated[int | None, TIME] = None
    host: Annotated[str, STRING] = ""
    id: Annotated[int, UINT64] = 0
    acc: Annotated[str, STRING, KEEP] = ""
    user: Annotated[str, STRING] = ""
    name: Annotated[str, STRING] = ""
    lang: Annotated[str, STRING] = ""
    ver: Annotated[str, STRING] = ""
    rtt: Annotated[int, INT] = 0
    server: Annotated[str, STRING] = ""
    kind: Annotated[str, STRING] = "Client"
    client_type: Annotated[str, STRING] = "nats"


@dataclass(frozen=True, slots=True)
class ApiAudit:
    """An API request and its response."""

    TYPE: ClassVar[str] = _KIND + "api_audit"

    server: Annotated[str, STRING, KEEP] = ""
    client: Annotated[ClientInfo, struct_kind(ClientInfo), KEEP] = ClientInfo()
    asked: Annotated[str, STRING] = ""
    request: Annotated[str, STRING] = ""
    response: Annotated[str, STRING, KEEP] = ""

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.API"


@dataclass(frozen=True, slots=True)
class StreamAction:
    """A stream was created, updated or deleted."""

    TYPE: ClassVar[str] = _KIND + "stream_action"
    WORDS: ClassVar[dict[str, str]] = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}

    stream: Annotated[str, STRING, KEEP] = ""
    action: Annotated[str, STRING, KEEP] = ""

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.STREAM.{self.WORDS[self.action]}.{self.stream}"


@dataclass(frozen=True, slots=True)
class MessagesLost:
    """A stream has lost messages to damage; nats-server has no such advisory."""

    TYPE: ClassVar[str] = "io.strandline.jetstream.advisory.v1.stream_lost"

    stream: Annotated[str, STRING, KEEP] = ""
    lost: Annotated[LostMessages | None, struct_kind(LostMessages), KEEP] = None

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.STREAM.LOST.{self.stream}"


@dataclass(frozen=True, slots=True)
class BatchAbandoned:
    """An atomic batch was abandoned: after a timeout, or because of a gap (`incomplete`)."""

    TYPE: ClassVar[str] = _KIND + "stream_batch_abandoned"

    stream: Annotated[str, STRING, KEEP] = ""
    batch: Annotated[str, STRING, KEEP] = ""
    reason: Annotated[str, STRING, KEEP] = ""

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.STREAM.BATCH_ABANDONED.{self.stream}"


@dataclass(frozen=True, slots=True)
class ConsumerAction:
    """A consumer was created or deleted."""

    TYPE: ClassVar[str] = _KIND + "consumer_action"
    WORDS: ClassVar[dict[str, str]] = {"create": "CREATED", "delete": "DELETED"}

    stream: Annotated[str, STRING, KEEP] = ""
    consumer: Annotated[str, STRING, KEEP] = ""
    action: Annotated[str, STRING, KEEP] = ""

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.CONSUMER.{self.WORDS[self.action]}.{self.stream}.{self.consumer}"


@dataclass(frozen=True, slots=True)
class Paused:
    """A consumer was paused or resumed."""

    TYPE: ClassVar[str] = _KIND + "consumer_pause"

    stream: Annotated[str, STRING, KEEP] = ""
    consumer: Annotated[str, STRING, KEEP] = ""
    paused: Annotated[bool, BOOL, KEEP] = False
    pause_until: Annotated[int, TIME, KEEP] = ZERO_TIME_NS

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.CONSUMER.PAUSE.{self.stream}.{self.consumer}"


@dataclass(frozen=True, slots=True)
class MaxDeliveries:
    """A message reached `max_deliver` without an acknowledgement."""

    TYPE: ClassVar[str] = _KIND + "max_deliver"

    stream: Annotated[str, STRING, KEEP] = ""
    consumer: Annotated[str, STRING, KEEP] = ""
    stream_seq: Annotated[int, UINT64, KEEP] = 0
    deliveries: Annotated[int, UINT64, KEEP] = 0

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.CONSUMER.MAX_DELIVERIES.{self.stream}.{self.consumer}"


@dataclass(frozen=True, slots=True)
class MessageNaked:
    """A message was negatively acknowledged."""

    TYPE: ClassVar[str] = _KIND + "nak"

    stream: Annotated[str, STRING, KEEP] = ""
    consumer: Annotated[str, STRING, KEEP] = ""
    consumer_seq: Annotated[int, UINT64, KEEP] = 0
    stream_seq: Annotated[int, UINT64, KEEP] = 0
    deliveries: Annotated[int, UINT64, KEEP] = 0

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.CONSUMER.MSG_NAKED.{self.stream}.{self.consumer}"


@dataclass(frozen=True, slots=True)
class MessageTerminated:
    """A message was terminated."""

    TYPE: ClassVar[str] = _KIND + "terminated"

    stream: Annotated[str, STRING, KEEP] = ""
    consumer: Annotated[str, STRING, KEEP] = ""
    consumer_seq: Annotated[int, UINT64, KEEP] = 0
    stream_seq: Annotated[int, UINT64, KEEP] = 0
    deliveries: Annotated[int, UINT64, KEEP] = 0
    reason: Annotated[str, STRING] = ""

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.CONSUMER.MSG_TERMINATED.{self.stream}.{self.consumer}"


@dataclass(frozen=True, slots=True)
class AckSample:
    """A sampled acknowledgement, with its delay."""

    TYPE: ClassVar[str] = "io.nats.jetstream.metric.v1.consumer_ack"

    stream: Annotated[str, STRING, KEEP] = ""
    consumer: Annotated[str, STRING, KEEP] = ""
    consumer_seq: Annotated[int, UINT64, KEEP] = 0
    stream_seq: Annotated[int, UINT64, KEEP] = 0
    ack_time: Annotated[int, INT, KEEP] = 0
    deliveries: Annotated[int, UINT64, KEEP] = 0

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{METRIC}.CONSUMER.ACK.{self.stream}.{self.consumer}"


@dataclass(frozen=True, slots=True)
class GroupPinned:
    """A priority group was pinned to a client."""

    TYPE: ClassVar[str] = _KIND + "consumer_group_pinned"

    account: Annotated[str, STRING] = ""
    stream: Annotated[str, STRING, KEEP] = ""
    consumer: Annotated[str, STRING, KEEP] = ""
    group: Annotated[str, STRING, KEEP] = ""
    pinned_id: Annotated[str, STRING, KEEP] = ""

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.CONSUMER.PINNED.{self.stream}.{self.consumer}"


@dataclass(frozen=True, slots=True)
class GroupUnpinned:
    """A priority group was unpinned, by an `admin` or after a `timeout`."""

    TYPE: ClassVar[str] = _KIND + "consumer_group_unpinned"

    account: Annotated[str, STRING] = ""
    stream: Annotated[str, STRING, KEEP] = ""
    consumer: Annotated[str, STRING, KEEP] = ""
    group: Annotated[str, STRING, KEEP] = ""
    reason: Annotated[str, STRING] = ""

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.CONSUMER.UNPINNED.{self.stream}.{self.consumer}"


@dataclass(frozen=True, slots=True)
class SnapshotCreated:
    """A snapshot of a stream started."""

    TYPE: ClassVar[str] = _KIND + "snapshot_create"

    stream: Annotated[str, STRING, KEEP] = ""
    state: Annotated[StreamState, struct_kind(StreamState), KEEP] = field(default_factory=StreamState)
    client: Annotated[ClientInfo, struct_kind(ClientInfo), KEEP] = ClientInfo()

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.STREAM.SNAPSHOT_CREATE.{self.stream}"


@dataclass(frozen=True, slots=True)
class SnapshotCompleted:
    """A snapshot of a stream ended."""

    TYPE: ClassVar[str] = _KIND + "snapshot_complete"

    stream: Annotated[str, STRING, KEEP] = ""
    start: Annotated[int, TIME, KEEP] = 0
    end: Annotated[int, TIME, KEEP] = 0
    client: Annotated[ClientInfo, struct_kind(ClientInfo), KEEP] = ClientInfo()

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.STREAM.SNAPSHOT_COMPLETE.{self.stream}"


@dataclass(frozen=True, slots=True)
class RestoreCreated:
    """A restore of a stream started."""

    TYPE: ClassVar[str] = _KIND + "restore_create"

    stream: Annotated[str, STRING, KEEP] = ""
    client: Annotated[ClientInfo, struct_kind(ClientInfo), KEEP] = ClientInfo()

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.STREAM.RESTORE_CREATE.{self.stream}"


@dataclass(frozen=True, slots=True)
class RestoreCompleted:
    """A restore of a stream ended."""

    TYPE: ClassVar[str] = _KIND + "restore_complete"

    stream: Annotated[str, STRING, KEEP] = ""
    start: Annotated[int, TIME, KEEP] = 0
    end: Annotated[int, TIME, KEEP] = 0
    bytes: Annotated[int, INT, KEEP] = 0
    client: Annotated[ClientInfo, struct_kind(ClientInfo), KEEP] = ClientInfo()

    @property
    def subject(self) -> str:
        """The subject it is published to."""
        return f"{ADVISORY}.STREAM.RESTORE_COMPLETE.{self.stream}"
