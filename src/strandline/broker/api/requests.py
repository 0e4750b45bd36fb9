"""Requests about streams.

Invariants: an empty request equals one without fields. Parsing is strict, as in nats-server: an unknown field, or a
value of the wrong type, is refused.
"""

from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from strandline.broker.api.codes import BAD_REQUEST
from strandline.broker.api.config import StreamConfig
from strandline.broker.api.json_text import read_json
from strandline.broker.api.schema import (
    BOOL,
    INT,
    SEQUENCE,
    STRING,
    STRINGS,
    TIME,
    UINT64,
    VALUE,
    from_json,
    from_plain,
    struct_kind,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InfoRequest:
    """STREAM.INFO."""

    GO_NAME = "JSApiStreamInfoRequest"

    offset: Annotated[int, INT] = 0
    deleted_details: Annotated[bool, BOOL] = False
    subjects_filter: Annotated[str, STRING] = ""


@dataclass(frozen=True, slots=True)
class NamesRequest:
    """STREAM.NAMES and STREAM.LIST."""

    GO_NAME = "JSApiStreamNamesRequest"

    offset: Annotated[int, INT] = 0
    subject: Annotated[str, STRING] = ""


@dataclass(frozen=True, slots=True)
class PurgeRequest:
    """STREAM.PURGE: by subject filter, up to a sequence (exclusive), or all but the last `keep` messages."""

    GO_NAME = "JSApiStreamPurgeRequest"

    seq: Annotated[int, SEQUENCE] = 0
    filter: Annotated[str, STRING] = ""
    keep: Annotated[int, UINT64] = 0


@dataclass(frozen=True, slots=True)
class GetRequest:
    """STREAM.MSG.GET and DIRECT.GET; `batch` and the fields after it are for DIRECT.GET alone."""

    GO_NAME = "JSApiMsgGetRequest"

    seq: Annotated[int, UINT64] = 0
    last_by_subj: Annotated[str, STRING] = ""
    next_by_subj: Annotated[str, STRING] = ""
    batch: Annotated[int, INT] = 0
    max_bytes: Annotated[int, INT] = 0
    start_time: Annotated[int | None, TIME] = None
    multi_last: Annotated[tuple[str, ...], STRINGS] = ()
    up_to_seq: Annotated[int, UINT64] = 0
    up_to_time: Annotated[int | None, TIME] = None
    no_hdr: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class DeleteMessageRequest:
    """STREAM.MSG.DELETE; messages are never overwritten, with or without `no_erase`."""

    GO_NAME = "JSApiMsgDeleteRequest"

    seq: Annotated[int, UINT64] = 0
    no_erase: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """STREAM.SNAPSHOT."""

    GO_NAME = "JSApiStreamSnapshotRequest"

    deliver_subject: Annotated[str, STRING] = ""
    no_consumers: Annotated[bool, BOOL] = False
    chunk_size: Annotated[int, INT] = 0
    window_size: Annotated[int, INT] = 0
    jsck: Annotated[bool, BOOL] = False


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """STREAM.RESTORE; the `state` of the snapshot is ignored."""

    GO_NAME = "JSApiStreamRestoreRequest"

    config: Annotated[StreamConfig, struct_kind(StreamConfig)] = field(default_factory=StreamConfig)
    state: Annotated[object, VALUE] = None


def parse_if_json(cls: type[T], data: bytes) -> T:
    """Parse a request that may be empty; text that does not begin as an object or a list counts as empty."""
    return from_json(cls, data) if data.lstrip()[:1] in (b"{", b"[") else cls()


def parse_required(cls: type[T], data: bytes) -> T:
    """Parse a request that must not be empty."""
    if not data:
        raise BAD_REQUEST.error()
    return from_json(cls, data)


def parse_config(data: bytes) -> tuple[StreamConfig, bool]:
    """Parse CREATE or UPDATE: the configuration, and whether defaults are errors (`pedantic`)."""
    value = read_json(data) if data else {}
    pedantic = False
    if isinstance(value, dict) and isinstance(value.get("pedantic"), bool):
        pedantic = value.pop("pedantic")
    return from_plain(StreamConfig, value), pedantic
