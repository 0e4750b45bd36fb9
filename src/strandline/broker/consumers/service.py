"""The JetStream API below `$JS.API.CONSUMER.`: the subject names the operation, the payload is JSON.

Invariants: a request gets one response, with nats-server's content; None for an unknown operation. A response about a
change is sent after the stream's barrier: nothing is confirmed that a crash could undo.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from strandline.broker.api import codes
from strandline.broker.api import consumer_responses as responses
from strandline.broker.api.codes import ApiError
from strandline.broker.api.consumer_checks import check_group
from strandline.broker.api.consumer_requests import (
    CreateConsumerRequest,
    parse_names,
    parse_pause,
    parse_reset,
    parse_unpin,
)
from strandline.broker.api.error_text import for_clients
from strandline.broker.api.paging import page_of
from strandline.broker.api.responses import LIST_LIMIT, NAMES_LIMIT, TYPE_PREFIX, ClusterOnly
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.consumers.registry import Registry
from strandline.broker.mirrors.source_names import stream_identity
from strandline.broker.routes import Origin
from strandline.broker.streams.headers import special_headers
from strandline.broker.streams.messages import Reply
from strandline.broker.streams.service import PREFIX, check_level
from strandline.errors import StrandlineError
from strandline.wire import format_headers

IDENTITY = "Nats-Stream-Identity"
Response = bytes | list[Reply] | None
_ANY_NUMBER = 10_000


class ConsumerService:
    """Answers API requests about the consumers of one account."""

    def __init__(self, consumers: Registry) -> None:
        self._consumers = consumers

    def request(
        self, subject: str, headers: bytes, payload: bytes, reply: bytes, origin: Origin, now_ns: int
    ) -> Response:
        """Response a request below `$JS.API.CONSUMER.`; None if it is about nothing known."""
        del reply, origin
        operation = subject.removeprefix(f"{PREFIX}CONSUMER.")
        if operation.startswith("LEADER.STEPDOWN."):
            refusal = codes.CLUSTER_REQUIRED.error()
            return to_json(ClusterOnly(f"{TYPE_PREFIX}consumer_leader_stepdown_response", refusal))
        words = operation.split(".")
        kind = _KINDS.get(words[0])
        if kind is None or not kind.words_min <= len(words) <= kind.words_max:
            return None
        try:
            check_level(headers)
            return kind.handler(self._consumers, words, headers, payload, now_ns)
        except StrandlineError as error:
            self._consumers.streams.errors += 1
            refusal = error if isinstance(error, ApiError) else codes.CONSUMER_CREATE.with_text(err=for_clients(error))
            return to_json(kind.failed(error=refusal))
        finally:
            self._consumers.streams.requests += 1


Handler = Callable[[Registry, list[str], bytes, bytes, int], Response]


class _Kind(NamedTuple):
    """An operation: the number of tokens in its subject, its handler, and its error response."""

    words_min: int
    words_max: int
    handler: Handler
    failed: Callable[..., object]


def _create(consumers: Registry, words: list[str], headers: bytes, payload: bytes, now_ns: int) -> Response:
    request = from_json(CreateConsumerRequest, payload) if payload else CreateConsumerRequest()
    is_legacy_durable = words[0] == "DURABLE"
    stream, name, pattern = _names_in(words[2:] if is_legacy_durable else words[1:])
    config = request.config
    if stream != request.stream_name:
        raise codes.STREAM_MISMATCH.error()
    if "/" in name or "\\" in name:
        raise codes.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS.error()
    if is_legacy_durable and not config.durable_name:
        raise codes.CONSUMER_DURABLE_NAME_NOT_SET.error()
    if name and config.durable_name and name != config.durable_name:
        raise codes.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT.error()
    if not name and config.durable_name:
        raise codes.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME.error()
    if pattern and config.filter_subjects:
        raise codes.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED.error()
    if pattern and config.filter_subject != pattern:
        raise codes.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH.error()
    if config.num_replicas > 1:
        raise codes.STREAM_REPLICAS_NOT_SUPPORTED.error()
    if name:
        config = replace(config, name=name)
    identity = _identity(consumers, stream, headers, is_origin=config.direct or config.sourcing)
    entry = consumers.create(stream, config, request.action, now_ns, pedantic=request.pedantic)
    answer = to_json(responses.ConsumerCreated(info=consumers.info(entry, now_ns)))
    return [Reply(format_headers([(IDENTITY, identity)]), answer)] if identity else answer


def _names_in(words: list[str]) -> tuple[str, str, str]:
    """Return stream, consumer and filter of a subject; missing ones are empty."""
    return words[0], words[1] if len(words) > 1 else "", ".".join(words[2:])


def _identity(consumers: Registry, name: str, headers: bytes, *, is_origin: bool) -> str:
    """Return the identity of a stream for mirrors and sources; refuse a request for another identity."""
    stream = consumers.streams.find(name)
    if not is_origin:
        return ""
    identity = stream_identity(stream.created_ns)
    wanted = special_headers(headers).get(IDENTITY.encode(), b"").decode(errors="replace") if headers else ""
    if wanted and wanted != identity:
        raise codes.CONSUMER_STREAM_IDENTITY_MISMATCH.with_text(msg=wanted)
    return identity


def _info(consumers: Registry, words: list[str], headers: bytes, payload: bytes, now_ns: int) -> bytes:
    del headers
    if payload:
        raise codes.NOT_EMPTY_REQUEST.error()
    entry = consumers.entry(words[1], words[2])
    return to_json(responses.ConsumerShown(info=consumers.info(entry, now_ns)))


def _names(consumers: Registry, words: list[str], headers: bytes, payload: bytes, now_ns: int) -> bytes:
    del headers, now_ns
    page, names = page_of(consumers.shown(words[1]), parse_names(payload).offset, NAMES_LIMIT)
    return to_json(responses.ConsumerNames(**page._asdict(), consumers=tuple(names)))


def _list(consumers: Registry, words: list[str], headers: bytes, payload: bytes, now_ns: int) -> bytes:
    del headers
    page, names = page_of(consumers.shown(words[1]), parse_names(payload).offset, LIST_LIMIT)
    entries = (consumers.entry(words[1], name) for name in names)
    shown = tuple(consumers.info(entry, now_ns, listed=True) for entry in entries)
    return to_json(responses.ConsumerList(**page._asdict(), consumers=shown))


def _delete(consumers: Registry, words: list[str], headers: bytes, payload: bytes, now_ns: int) -> bytes:
    del headers, now_ns
    if payload:
        raise codes.NOT_EMPTY_REQUEST.error()
    consumers.delete(words[1], words[2])
    return to_json(responses.ConsumerDeleted(success=True))


def _pause(consumers: Registry, words: list[str], headers: bytes, payload: bytes, now_ns: int) -> bytes:
    del headers
    until_ns = parse_pause(payload).pause_until
    paused = consumers.pause(words[1], words[2], until_ns, now_ns)
    remaining = until_ns - now_ns if paused else 0
    return to_json(responses.ConsumerPaused(paused=paused, pause_until=until_ns, pause_remaining=remaining))


def _reset(consumers: Registry, words: list[str], headers: bytes, payload: bytes, now_ns: int) -> bytes | None:
    del headers
    request = parse_reset(payload)
    if consumers.find(words[1], words[2]) is None:
        return None
    reset_seq = consumers.reset(words[1], words[2], request.seq)
    info = consumers.info(consumers.entry(words[1], words[2]), now_ns)
    return to_json(responses.ConsumerReset(info=info, reset_seq=reset_seq))


def _unpin(consumers: Registry, words: list[str], headers: bytes, payload: bytes, now_ns: int) -> bytes:
    del headers, now_ns
    request = parse_unpin(payload)
    check_group(request.group)
    entry = consumers.entry(words[1], words[2])
    if request.group not in entry.config.priority_groups:
        raise codes.CONSUMER_INVALID_PRIORITY_GROUP.error()
    entry.consumer.unpin()
    return to_json(responses.ConsumerUnpinned())


_KINDS: dict[str, _Kind] = {
    "CREATE": _Kind(2, _ANY_NUMBER, _create, responses.ConsumerCreated),
    "DURABLE": _Kind(4, 4, _create, responses.ConsumerCreated),
    "INFO": _Kind(3, 3, _info, responses.ConsumerShown),
    "NAMES": _Kind(2, 2, _names, responses.ConsumerNames),
    "LIST": _Kind(2, 2, _list, responses.ConsumerList),
    "DELETE": _Kind(3, 3, _delete, responses.ConsumerDeleted),
    "PAUSE": _Kind(3, 3, _pause, responses.ConsumerPaused),
    "RESET": _Kind(3, 3, _reset, responses.ConsumerReset),
    "UNPIN": _Kind(3, 3, _unpin, responses.ConsumerUnpinned),
}
