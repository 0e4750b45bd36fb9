"""Requests about consumers, parsed as strictly, or as loosely, as nats-server parses them.

Invariants: an invalid request is refused with `ApiError` 10025; an invalid pull with `BadPull`.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, TypeVar

from strandline.broker.api.codes import ApiError
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.json_text import invalid_json, read_json
from strandline.broker.api.schema import (
    BOOL,
    DURATION,
    INT,
    INT64,
    SEQUENCE,
    STRING,
    TIME,
    enum_kind,
    from_json,
    from_plain_loosely,
    struct_kind,
)
from strandline.broker.api.times import ZERO_TIME_NS
from strandline.errors import StrandlineError

T = TypeVar("T")
_OFFSET = re.compile(r" at offset \d+$")
_COUNT = re.compile(rb"[+-]?\d{1,30}")


class Action(StrEnum):
    """What CREATE may do: create, update, or either."""

    EITHER = ""
    CREATE = "create"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class CreateConsumerRequest:
    """CONSUMER.CREATE in all its forms."""

    stream_name: Annotated[str, STRING] = ""
    config: Annotated[ConsumerConfig, struct_kind(ConsumerConfig)] = field(default_factory=ConsumerConfig)
    action: Annotated[Action, enum_kind(Action, problem="unknown consumer action: {value}")] = Action.EITHER
    pedantic: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class ConsumersRequest:
    """CONSUMER.NAMES and CONSUMER.LIST."""

    GO_NAME = "JSApiConsumersRequest"

    offset: Annotated[int, INT] = 0


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """CONSUMER.PAUSE; without a time it resumes."""

    GO_NAME = "JSApiConsumerPauseRequest"

    pause_until: Annotated[int, TIME] = ZERO_TIME_NS


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """CONSUMER.RESET; 0 means the ack floor."""

    GO_NAME = "JSApiConsumerResetRequest"

    seq: Annotated[int, SEQUENCE] = 0


@dataclass(frozen=True, slots=True)
class UnpinRequest:
    """CONSUMER.UNPIN."""

    GO_NAME = "JSApiConsumerUnpinRequest"

    group: Annotated[str, STRING] = ""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """CONSUMER.MSG.NEXT, and what may follow `+NXT`."""

    GO_NAME = ""

    expires: Annotated[int, DURATION] = 0
    batch: Annotated[int, INT] = 0
    max_bytes: Annotated[int, INT] = 0
    no_wait: Annotated[bool, BOOL] = False
    idle_heartbeat: Annotated[int, DURATION] = 0
    group: Annotated[str, STRING] = ""
    min_pending: Annotated[int, INT64] = 0
    min_ack_pending: Annotated[int, INT64] = 0
    id: Annotated[str, STRING] = ""
    priority: Annotated[int, INT] = 0


class BadPull(StrandlineError):
    """A pull that is refused with status 400; the text follows `Bad Request - `."""


ONE = PullRequest(batch=1)


def parse_names(data: bytes) -> ConsumersRequest:
    """Parse NAMES or LIST; anything but an object asks for all."""
    return from_json(ConsumersRequest, data) if data.startswith(b"{") else ConsumersRequest()


def parse_pause(data: bytes) -> PauseRequest:
    """Parse PAUSE; anything but an object resumes."""
    return from_json(PauseRequest, data) if data.startswith(b"{") else PauseRequest()


def parse_reset(data: bytes) -> ResetRequest:
    """Parse RESET, which may be empty and have unknown fields."""
    return _loosely(ResetRequest, data) if data else ResetRequest()


def parse_unpin(data: bytes) -> UnpinRequest:
    """Parse UNPIN, which may have unknown fields."""
    request = _loosely(UnpinRequest, data)
    if not request.group:
        raise invalid_json("consumer group not specified")
    return request


def _loosely(cls: type[T], data: bytes) -> T:
    """Parse a request that may have unknown fields, with the error texts of nats-server's lenient parser."""
    try:
        value = read_json(data)
    except ApiError as error:
        problem = _OFFSET.sub("", error.description.removeprefix("invalid JSON: "))
        raise invalid_json("unexpected end of JSON input" if problem == "unexpected EOF" else problem) from None
    return from_plain_loosely(cls, value)


@lru_cache(256)
def parse_pull(data: bytes) -> PullRequest:
    """Parse a pull: empty or invalid text means one message, a number means a batch; `BadPull` if it is refused.

    Clients repeat the same few texts, so the results are cached.
    """
    text = data.strip()
    if not text.startswith(b"{"):
        return _counted(text)
    try:
        request = _loosely(PullRequest, text)
    except ApiError as error:
        raise BadPull(error.description.removeprefix("invalid JSON: ")) from None
    if request.idle_heartbeat > 0 and request.idle_heartbeat * 2 > request.expires:
        raise BadPull("heartbeat value too large")
    return request


def _counted(text: bytes) -> PullRequest:
    if _COUNT.fullmatch(text) is None:
        return ONE
    batch = int(text)
    return PullRequest(batch=batch) if -(2**63) <= batch < 2**63 else ONE
