"""Responses about consumers, in nats-server's form.

Invariants: those of `responses`.
"""

from dataclasses import dataclass, field
from typing import Annotated

from strandline.broker.api.codes import ApiError
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.responses import ERROR, TYPE_PREFIX
from strandline.broker.api.schema import (
    BOOL,
    DURATION,
    EMBED,
    INT,
    KEEP,
    STRING,
    STRINGS,
    TIME,
    UINT64,
    VALUE,
    struct_kind,
    structs_kind,
)
from strandline.broker.api.times import ZERO_TIME_NS


@dataclass(frozen=True, slots=True)
class SequenceInfo:
    """A pair of consumer sequence and stream sequence."""

    consumer_seq: Annotated[int, UINT64, KEEP] = 0
    stream_seq: Annotated[int, UINT64, KEEP] = 0
    last_active: Annotated[int | None, TIME] = None


@dataclass(frozen=True, slots=True)
class PriorityGroupState:
    """The pin of a priority group."""

    group: Annotated[str, STRING, KEEP] = ""
    pinned_client_id: Annotated[str, STRING] = ""
    pinned_ts: Annotated[int, TIME, KEEP] = ZERO_TIME_NS


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """The info of a consumer."""

    stream_name: Annotated[str, STRING, KEEP] = ""
    name: Annotated[str, STRING, KEEP] = ""
    created: Annotated[int, TIME, KEEP] = ZERO_TIME_NS
    config: Annotated[ConsumerConfig, struct_kind(ConsumerConfig)] = field(default_factory=ConsumerConfig)
    delivered: Annotated[SequenceInfo, struct_kind(SequenceInfo), KEEP] = SequenceInfo()
    ack_floor: Annotated[SequenceInfo, struct_kind(SequenceInfo), KEEP] = SequenceInfo()
    num_ack_pending: Annotated[int, INT, KEEP] = 0
    num_redelivered: Annotated[int, INT, KEEP] = 0
    num_waiting: Annotated[int, INT, KEEP] = 0
    num_pending: Annotated[int, UINT64, KEEP] = 0
    push_bound: Annotated[bool, BOOL] = False
    paused: Annotated[bool, BOOL] = False
    pause_remaining: Annotated[int, DURATION] = 0
    ts: Annotated[int, TIME, KEEP] = ZERO_TIME_NS
    priority_groups: Annotated[tuple[PriorityGroupState, ...], structs_kind(PriorityGroupState)] = ()


@dataclass(frozen=True, slots=True)
class ConsumerCreated:
    """The response to every form of CREATE."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "consumer_create_response"
    error: Annotated[ApiError | None, ERROR] = None
    info: Annotated[ConsumerInfo | None, VALUE, EMBED] = None


@dataclass(frozen=True, slots=True)
class ConsumerShown:
    """The response to INFO."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "consumer_info_response"
    error: Annotated[ApiError | None, ERROR] = None
    info: Annotated[ConsumerInfo | None, VALUE, EMBED] = None


@dataclass(frozen=True, slots=True)
class ConsumerNames:
    """The response to NAMES."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "consumer_names_response"
    error: Annotated[ApiError | None, ERROR] = None
    total: Annotated[int, INT, KEEP] = 0
    offset: Annotated[int, INT, KEEP] = 0
    limit: Annotated[int, INT, KEEP] = 0
    consumers: Annotated[tuple[str, ...], STRINGS, KEEP] = ()


@dataclass(frozen=True, slots=True)
class ConsumerList:
    """The response to LIST."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "consumer_list_response"
    error: Annotated[ApiError | None, ERROR] = None
    total: Annotated[int, INT, KEEP] = 0
    offset: Annotated[int, INT, KEEP] = 0
    limit: Annotated[int, INT, KEEP] = 0
    consumers: Annotated[tuple[ConsumerInfo, ...], structs_kind(ConsumerInfo), KEEP] = ()


@dataclass(frozen=True, slots=True)
class ConsumerDeleted:
    """The response to DELETE."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "consumer_delete_response"
    error: Annotated[ApiError | None, ERROR] = None
    success: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class ConsumerPaused:
    """The response to PAUSE."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "consumer_pause_response"
    error: Annotated[ApiError | None, ERROR] = None
    paused: Annotated[bool, BOOL, KEEP] = False
    pause_until: Annotated[int, TIME, KEEP] = ZERO_TIME_NS
    pause_remaining: Annotated[int, DURATION] = 0


@dataclass(frozen=True, slots=True)
class ConsumerReset:
    """The response to RESET."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "consumer_reset_response"
    error: Annotated[ApiError | None, ERROR] = None
    info: Annotated[ConsumerInfo | None, VALUE, EMBED] = None
    reset_seq: Annotated[int, UINT64, KEEP] = 0


@dataclass(frozen=True, slots=True)
class ConsumerUnpinned:
    """The response to UNPIN."""

    type: Annotated[str, STRING, KEEP] = TYPE_PREFIX + "consumer_unpin_response"
    error: Annotated[ApiError | None, ERROR] = None
