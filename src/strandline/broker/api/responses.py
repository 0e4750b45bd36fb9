"""Responses about streams, in nats-server's form.

Invariants: a response has its type first, then the error if there is one; other fields are present as in nats-server.
`to_json` of a response is sent to the client.
"""

import base64
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import API_LEVEL, ExternalStream, StreamConfig, SubjectTransform
from strandline.broker.api.schema import (
    BOOL,
    DURATION,
    EMBED,
    INT,
    KEEP,
    STRING,
    TIME,
    UINT64,
    VALUE,
    Json,
    Kind,
    struct_kind,
    structs_kind,
    to_json,
)
from strandline.broker.api.times import ZERO_TIME_NS

TYPE_PREFIX = "io.nats.jetstream.api.v1."
NAMES_LIMIT = 1024
LIST_LIMIT = 256
SUBJECTS_LIMIT = 100_000


def _plain_error(error: ApiError) -> dict[str, Any]:
    return {"code": error.code, "err_code": error.err_code, "description": error.description}


def _unread(value: Json, where: str, go: str) -> Json:
    raise TypeError(f"{where}: {go} is only written, never read, and was {value!r}")


ERROR = Kind("ApiError", _unread, _plain_error)
BYTES = Kind("[]byte", _unread, lambda data: base64.b64encode(data).decode())


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Messages lost to damage, and about how many bytes they had."""

    msgs: Annotated[tuple[int, ...], VALUE, KEEP] = ()
    bytes: Annotated[int, UINT64, KEEP] = 0


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream."""

    messages: Annotated[int, UINT64, KEEP] = 0
    bytes: Annotated[int, UINT64, KEEP] = 0
    first_seq: Annotated[int, UINT64, KEEP] = 0
    first_ts: Annotated[int, TIME, KEEP] = ZERO_TIME_NS
    last_seq: Annotated[int, UINT64, KEEP] = 0
    last_ts: Annotated[int, TIME, KEEP] = ZERO_TIME_NS
    num_subjects: Annotated[int, INT] = 0
    subjects: Annotated[dict[str, int] | None, VALUE] = None
    num_deleted: Annotated[int, INT] = 0
    deleted: Annotated[tuple[int, ...], VALUE] = ()
    lost: Annotated[LostMessages | None, struct_kind(LostMessages)] = None
    consumer_count: Annotated[int, INT, KEEP] = 0


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """The progress of a mirror or source; `active` is nanoseconds since the last contact, -1 for none."""

    name: Annotated[str, STRING, KEEP] = ""
    external: Annotated[ExternalStream | None, struct_kind(ExternalStream)] = None
    lag: Annotated[int, UINT64, KEEP] = 0
    seq: Annotated[int, UINT64] = 0
    active: Annotated[int, DURATION, KEEP] = -1
    filter_subject: Annotated[str, STRING] = ""
    subject_transforms: Annotated[tuple[SubjectTransform, ...], structs_kind(SubjectTransform)] = ()
    error: Annotated[ApiError | None, ERROR] = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The cluster leader; a single server leads everything."""

    name: Annotated[str, STRING] = ""
    leader: Annotated[str, STRING] = ""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The info of a stream."""

    config: Annotated[StreamConfig, struct_kind(StreamConfig), KEEP] = field(default_factory=StreamConfig)
    created: Annotated[int, TIME, KEEP] = ZERO_TIME_NS
    state: Annotated[StreamState, struct_kind(StreamState), KEEP] = StreamState()
    domain: Annotated[str, STRING] = ""
    cluster: Annotated[ClusterInfo | None, struct_kind(ClusterInfo)] = None
    mirror: Annotated[SourceInfo | None, struct_kind(SourceInfo)] = None
    sources: Annotated[tuple[SourceInfo, ...], structs_kind(SourceInfo)] = ()
    ts: Annotated[int, TIME, KEEP] = ZERO_TIME_NS


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """The response to CREATE, and to the end of a RESTORE."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_create_response"
    error: Annotated[ApiError | None, ERROR] = None
    info: Annotated[StreamInfo | None, VALUE, EMBED] = None
    did_create: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class StreamUpdated:
    """The response to UPDATE."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_update_response"
    error: Annotated[ApiError | None, ERROR] = None
    info: Annotated[StreamInfo | None, VALUE, EMBED] = None


@dataclass(frozen=True, slots=True)
class StreamDeleted:
    """The response to DELETE."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_delete_response"
    error: Annotated[ApiError | None, ERROR] = None
    success: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class StreamShown:
    """The response to INFO."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_info_response"
    error: Annotated[ApiError | None, ERROR] = None
    total: Annotated[int, INT, KEEP] = 0
    offset: Annotated[int, INT, KEEP] = 0
    limit: Annotated[int, INT, KEEP] = 0
    info: Annotated[StreamInfo | None, VALUE, EMBED] = None


@dataclass(frozen=True, slots=True)
class StreamNames:
    """The response to NAMES; without any, `streams` is null."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_names_response"
    error: Annotated[ApiError | None, ERROR] = None
    total: Annotated[int, INT, KEEP] = 0
    offset: Annotated[int, INT, KEEP] = 0
    limit: Annotated[int, INT, KEEP] = 0
    streams: Annotated[list[str] | None, VALUE, KEEP] = None


@dataclass(frozen=True, slots=True)
class StreamList:
    """The response to LIST."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_list_response"
    error: Annotated[ApiError | None, ERROR] = None
    total: Annotated[int, INT, KEEP] = 0
    offset: Annotated[int, INT, KEEP] = 0
    limit: Annotated[int, INT, KEEP] = 0
    streams: Annotated[tuple[StreamInfo, ...], structs_kind(StreamInfo), KEEP] = ()
    offline: Annotated[dict[str, str] | None, VALUE] = None


@dataclass(frozen=True, slots=True)
class StreamPurged:
    """The response to PURGE."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_purge_response"
    error: Annotated[ApiError | None, ERROR] = None
    success: Annotated[bool, BOOL] = False
    purged: Annotated[int, UINT64, KEEP] = 0


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message in a response."""

    subject: Annotated[str, STRING, KEEP] = ""
    seq: Annotated[int, UINT64, KEEP] = 0
    hdrs: Annotated[bytes, BYTES] = b""
    data: Annotated[bytes, BYTES] = b""
    time: Annotated[int, TIME, KEEP] = 0


@dataclass(frozen=True, slots=True)
class MessageGot:
    """The response to MSG.GET."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_msg_get_response"
    error: Annotated[ApiError | None, ERROR] = None
    message: Annotated[StoredMessage | None, struct_kind(StoredMessage)] = None


def format_got(message: StoredMessage) -> bytes:
    """Return the response to MSG.GET as JSON; the base64 payload is inserted without escaping."""
    text = to_json(MessageGot(message=replace(message, data=b"")))
    if not message.data:
        return text
    head, time, tail = text.rpartition(b',"time":')
    return b"".join((head, b',"data":"', base64.b64encode(message.data), b'"', time, tail))


@dataclass(frozen=True, slots=True)
class MessageDeleted:
    """The response to MSG.DELETE."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_msg_delete_response"
    error: Annotated[ApiError | None, ERROR] = None
    success: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class LossAccepted:
    """The response to LOST.ACCEPT, which nats-server does not have."""

    type: Annotated[str, STRING, KEEP] = "io.strandline.jetstream.api.v1.stream_lost_accept_response"
    error: Annotated[ApiError | None, ERROR] = None
    success: Annotated[bool, BOOL] = False
    accepted: Annotated[int, INT, KEEP] = 0


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """The response to SNAPSHOT, before the chunks."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_snapshot_response"
    error: Annotated[ApiError | None, ERROR] = None
    config: Annotated[StreamConfig | None, struct_kind(StreamConfig)] = None
    state: Annotated[StreamState | None, struct_kind(StreamState)] = None


@dataclass(frozen=True, slots=True)
class StreamRestoring:
    """The response to RESTORE: where the chunks go."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "stream_restore_response"
    error: Annotated[ApiError | None, ERROR] = None
    deliver_subject: Annotated[str, STRING, KEEP] = ""


@dataclass(frozen=True, slots=True)
class ClusterOnly:
    """The response to a cluster-only request; `type` is that of the request."""

    type: Annotated[str, STRING, KEEP] = ""
    error: Annotated[ApiError | None, ERROR] = None


@dataclass(frozen=True, slots=True)
class ApiUse:
    """Counters of API requests."""

    level: Annotated[int, INT, KEEP] = API_LEVEL
    total: Annotated[int, UINT64, KEEP] = 0
    errors: Annotated[int, UINT64, KEEP] = 0
    inflight: Annotated[int, UINT64] = 0


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """Limits of an account; -1 means unlimited."""

    max_memory: Annotated[int, INT, KEEP] = -1
    max_storage: Annotated[int, INT, KEEP] = -1
    max_streams: Annotated[int, INT, KEEP] = -1
    max_consumers: Annotated[int, INT, KEEP] = -1
    max_ack_pending: Annotated[int, INT, KEEP] = -1
    memory_max_stream_bytes: Annotated[int, INT, KEEP] = -1
    storage_max_stream_bytes: Annotated[int, INT, KEEP] = -1
    max_bytes_required: Annotated[bool, BOOL, KEEP] = False


@dataclass(frozen=True, slots=True)
class AccountInfo:
    """The response to `$JS.API.INFO`."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "account_info_response"
    error: Annotated[ApiError | None, ERROR] = None
    memory: Annotated[int, UINT64, KEEP] = 0
    storage: Annotated[int, UINT64, KEEP] = 0
    reserved_memory: Annotated[int, UINT64, KEEP] = 0
    reserved_storage: Annotated[int, UINT64, KEEP] = 0
    streams: Annotated[int, INT, KEEP] = 0
    consumers: Annotated[int, INT, KEEP] = 0
    limits: Annotated[AccountLimits, struct_kind(AccountLimits), KEEP] = AccountLimits()
    domain: Annotated[str, STRING] = ""
    api: Annotated[ApiUse, struct_kind(ApiUse), KEEP] = ApiUse()


@dataclass(frozen=True, slots=True)
class PubAck:
    """The response to a publish."""

    error: Annotated[ApiError | None, ERROR] = None
    stream: Annotated[str, STRING, KEEP] = ""
    seq: Annotated[int, UINT64, KEEP] = 0
    domain: Annotated[str, STRING] = ""
    val: Annotated[str, STRING] = ""
    batch: Annotated[str, STRING] = ""
    count: Annotated[int, INT] = 0


def format_duplicate(stream: str, sequence: int, domain: str = "") -> bytes:
    """Return the response to a duplicate publish; its space is nats-server's."""
    return to_json(PubAck(stream=stream, seq=sequence, domain=domain))[:-1] + b',"duplicate": true}'
